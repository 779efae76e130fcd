//! Moves live stateful objects between nodes while messages keep arriving.

pub mod chunk;
pub mod fence;
pub mod id;
pub mod link;
mod rope;
pub mod state;
pub mod store;
pub mod time;
pub mod wire;

pub use rope::Rope;
