//! Authority store engines. An engine reads, writes conditional batches and scans; every rule about owners, leases and
//! moves is in the core. See [`Engine`] for what one must promise.

#[cfg(feature = "conformance")]
pub mod conformance;
mod memory;
mod open;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use memory::{Clock, Fault, Memory, Rule};
pub use open::{OpenError, open};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteError};

use rehome::store::{StoreCommand, StoreReply};
use std::future::Future;
use std::pin::Pin;

/// The answer of an engine on its way.
pub type Answer = Pin<Box<dyn Future<Output = StoreReply> + Send + 'static>>;

/// A store engine.
///
/// - Reads are linearizable, and an acknowledged write survives whatever the engine says it survives.
/// - A batch is applied whole or not at all, serializable with all others, keys that are absent or expired included.
/// - Versions come from one sequence for the whole store: one never recurs for a key, also after a deletion, an expiry
///   or a restart, and a write of equal bytes moves it.
/// - Time is the store's own and leaves it only as remaining time. An expired key is missing.
/// - A command over the bounds is [`StoreReply::Invalid`] before any I/O. Whatever else goes wrong is
///   [`StoreReply::Unknown`]. A write is never retried.
pub trait Engine: Send + Sync + 'static {
    /// Carries out one command. Dropping the answer does not undo it.
    fn execute(&self, command: StoreCommand) -> Answer;

    /// The engine's name.
    fn name(&self) -> &'static str;

    /// Settings that endanger the promises, as sentences to show at the start.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Boot time in nanoseconds: goes on in suspend, and is not set by anybody.
fn boot_nanos() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0))
}
