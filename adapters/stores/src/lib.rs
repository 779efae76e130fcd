//! Authority store engines: memory and SQLite, and behind the features `redis`, `postgres` and `etcd` (whose build
//! needs `protoc`) those over a network. An engine reads, writes conditional batches and scans; every rule about
//! owners, leases and moves is in the core. See [`Engine`] for what one must promise, and the `conformance` feature for
//! the suite that tests it.
//!
//! ```
//! let engine = rehome_stores::open("memory:")?;
//! let key = rehome::store::StoreKey("some\0key".into());
//! let answer = futures_executor::block_on(engine.execute(rehome::store::StoreCommand::Read(key)));
//! assert_eq!(answer, rehome::store::StoreReply::Missing);
//! # Ok::<(), rehome_stores::OpenError>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "memory")]
mod memory;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "etcd")]
pub use etcd::Etcd;
#[cfg(feature = "memory")]
pub use memory::{Clock, Fault, Kind, Memory, Rule};
pub use open::{OpenError, open};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(feature = "remote")]
pub use remote::{RemoteError, RemoteOptions};
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
///
/// An answer needs no runtime: a loop without one waits for it on a worker thread with any `block_on`.
pub trait Engine: Send + Sync + 'static {
    /// Carries out one command. This call begins it, not the first poll; dropping the answer does not undo it. Of two
    /// commands that are both on their way, either may be the first.
    fn execute(&self, command: StoreCommand) -> Answer;

    /// The engine's name.
    fn name(&self) -> &'static str;

    /// The most distinct keys of a batch: a lower bound than the contract's where the engine has one. A larger batch is
    /// [`StoreReply::Invalid`].
    fn max_batch_keys(&self) -> usize {
        rehome::store::MAX_BATCH_KEYS
    }

    /// Settings that endanger the promises, as sentences to show at the start.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An answer that is already there.
#[cfg(any(feature = "memory", feature = "sqlite", feature = "remote"))]
fn ready(reply: StoreReply) -> Answer {
    Box::pin(std::future::ready(reply))
}

/// Whether `command` is within the bounds of every engine here. Their cursors are keys of the scanned prefix, so any
/// other is none of theirs.
#[cfg(any(feature = "memory", feature = "sqlite", feature = "redis", feature = "postgres"))]
fn in_bounds(command: &StoreCommand) -> bool {
    let cursor_fits = match command {
        StoreCommand::Scan { prefix, cursor: Some(cursor), .. } => {
            cursor.starts_with(prefix) && cursor.len() <= rehome::store::MAX_KEY
        }
        StoreCommand::Scan { cursor: None, .. } | StoreCommand::Read(_) | StoreCommand::Write(_) => true,
    };
    cursor_fits && command.check().is_ok()
}

/// Boot time in nanoseconds: goes on in suspend, and is not set by anybody.
#[cfg(any(feature = "memory", feature = "sqlite"))]
fn boot_nanos() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0))
}
