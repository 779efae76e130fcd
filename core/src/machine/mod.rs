//! The machines of a move. Each is an enum whose states carry exactly what exists in that state, and one `step` that
//! takes an input and returns effects. A machine holds no instant, sends nothing and decides nothing by time alone: it
//! asks for timers by name. What cannot happen is a counted, named `Ignored`.

pub mod follow;
mod reason;
pub mod relay;
pub mod settlement;
pub mod source;
pub mod target;

pub use reason::{KeptReason, RefusedReason};
