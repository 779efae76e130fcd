//! Runs a [`rehome::Node`] on tokio: a TCP mesh between hosts, a store client, and a host of live objects with one
//! mailbox and one task each.

pub mod clock;
mod driver;
mod host;
mod net;
mod object;
mod observe;

pub use driver::TimedEvent;
pub use host::{Host, HostBuilder, MoveHandle, StartError};
pub use object::{Activate, HandlerError, Object, ObjectError, Reply, TurnContext, payload};
pub use rehome::node::CallError;
