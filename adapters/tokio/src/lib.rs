//! Runs a [`rehome::Node`] on tokio: a TCP mesh between hosts, a store client, and a host of live objects with one
//! mailbox and one task each.
//!
//! Write an [`Object`], offer its type with a [`HostBuilder`], and talk to the [`Host`] that it starts. With the feature
//! `tls` connections are protected by certificates on both sides (`Tls`); without it any peer is who it says it is, so
//! use it on a network that you trust. With the feature `testing` the same objects run in a `testing::Cluster` without
//! sockets, on a paused clock.

#![forbid(unsafe_code)]

mod builder;
pub mod clock;
mod driver;
mod handle;
mod host;
mod net;
mod object;
mod observe;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tls")]
mod tls;
mod turn;
mod wire;

pub use builder::{HostBuilder, StartError};
pub use driver::TimedEvent;
pub use host::{Host, MoveHandle};
pub use object::{Activate, HandlerError, Object, ObjectError, Reply, payload};
pub use rehome::node::CallError;
pub use task::OnPanic;
#[cfg(feature = "tls")]
pub use tls::{IdentityError, Tls, TlsError};
pub use turn::TurnContext;
