//! What the core asks of a store engine, and what it hears back. An engine is dumb: every rule is in the core.

use crate::id::StoreVersion;
use bytes::Bytes;
use core::time::Duration;

/// The most bytes of a key.
pub const MAX_KEY: usize = 1024;
/// The most bytes of a value.
pub const MAX_VALUE: usize = 1 << 20;
/// The most distinct keys of one batch.
pub const MAX_BATCH_KEYS: usize = 2048;
/// The most bytes of one batch or one page of a scan: keys and values.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// The most entries of one page of a scan.
pub const MAX_SCAN: u16 = 1000;

/// A store key: 1 to [`MAX_KEY`] bytes, parts joined by NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(pub Bytes);

impl core::fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// One request to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreCommand {
    /// Read one key: linearizable.
    Read(StoreKey),
    /// Apply all mutations if all conditions hold, in one commit; else nothing.
    Write(Batch),
    /// Read one page of a prefix: a consistent snapshot in key order.
    Scan {
        /// Keys that start with these bytes.
        prefix: Bytes,
        /// Where the page before ended, as the engine gave it.
        cursor: Option<Bytes>,
        /// The most entries wanted, 1 to [`MAX_SCAN`].
        limit: u16,
    },
}

/// A conditional batch. No key stands in two mutations, or in two conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    /// What must hold. An expired key is missing.
    pub conditions: Vec<Condition>,
    /// What is done then.
    pub mutations: Vec<Mutation>,
}

/// A condition of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The key is not there.
    Missing(StoreKey),
    /// The key is there, at whatever version.
    Present(StoreKey),
    /// The key is there at exactly this version.
    Version(StoreKey, StoreVersion),
}

impl Condition {
    /// The key it speaks of.
    pub const fn key(&self) -> &StoreKey {
        match self {
            Self::Missing(key) | Self::Present(key) | Self::Version(key, _) => key,
        }
    }
}

/// A mutation of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Write the value, with a time to live by the store's clock or without end.
    Put {
        /// The key.
        key: StoreKey,
        /// The value, at most [`MAX_VALUE`] bytes.
        value: Bytes,
        /// Its time to live.
        ttl: Option<Duration>,
    },
    /// Remove the key, if it is there.
    Delete(StoreKey),
}

impl Mutation {
    /// The key it changes.
    pub const fn key(&self) -> &StoreKey {
        match self {
            Self::Put { key, .. } | Self::Delete(key) => key,
        }
    }
}

/// The store's answer to one [`StoreCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreReply {
    /// To a read: no such key, or it has expired.
    Missing,
    /// To a read.
    Found(Found),
    /// To a write: all of it was done. One new version for each `Put`, in their order.
    Applied(Vec<StoreVersion>),
    /// To a write: a condition did not hold, and nothing was done.
    Conflict,
    /// To a scan.
    Page {
        /// The entries, in key order.
        entries: Vec<(StoreKey, Found)>,
        /// Where the next page begins; `None` at the end.
        cursor: Option<Bytes>,
    },
    /// To a scan: the snapshot that the cursor belongs to is gone; begin again.
    Expired,
    /// It went wrong. A write may have happened, now or later.
    Unknown,
    /// The command is out of the engine's bounds. Nothing was done.
    Invalid,
}

/// A record as one read saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The value.
    pub value: Bytes,
    /// Its version.
    pub version: StoreVersion,
    /// What is left of its time to live, by the store's clock; `None` for a key without end.
    pub ttl: Option<Duration>,
}

/// Why a command is out of bounds, whatever the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BoundsError {
    /// A key has 1 to [`MAX_KEY`] bytes.
    #[error("a key has 1 to {MAX_KEY} bytes, this one {0}")]
    Key(usize),
    /// A value has at most [`MAX_VALUE`] bytes.
    #[error("a value has at most {MAX_VALUE} bytes, this one {0}")]
    Value(usize),
    /// A batch has at most [`MAX_BATCH_KEYS`] distinct keys.
    #[error("a batch has at most {MAX_BATCH_KEYS} distinct keys, this one {0}")]
    Keys(usize),
    /// A batch has at most [`MAX_BATCH_BYTES`] bytes of keys and values.
    #[error("a batch has at most {MAX_BATCH_BYTES} bytes, this one {0}")]
    Bytes(usize),
    /// A key stands twice among the conditions or twice among the mutations.
    #[error("a key stands twice in one batch")]
    Twice,
    /// A page has 1 to [`MAX_SCAN`] entries.
    #[error("a page has 1 to {MAX_SCAN} entries, not {0}")]
    Limit(u16),
    /// A time to live is at least a millisecond.
    #[error("a time to live is at least a millisecond")]
    Ttl,
}

impl StoreCommand {
    /// Checks the bounds that hold for every engine, before any I/O.
    pub fn check(&self) -> Result<(), BoundsError> {
        match self {
            Self::Read(key) => check_key(key),
            Self::Write(batch) => batch.check(),
            Self::Scan { prefix, limit, .. } => {
                if prefix.len() > MAX_KEY {
                    return Err(BoundsError::Key(prefix.len()));
                }
                if *limit == 0 || *limit > MAX_SCAN { Err(BoundsError::Limit(*limit)) } else { Ok(()) }
            }
        }
    }
}

impl Batch {
    /// Checks the bounds that hold for every engine.
    pub fn check(&self) -> Result<(), BoundsError> {
        let mut bytes = 0usize;
        let mut conditions: Vec<&StoreKey> = Vec::with_capacity(self.conditions.len());
        for condition in &self.conditions {
            check_key(condition.key())?;
            bytes = bytes.saturating_add(condition.key().0.len());
            conditions.push(condition.key());
        }
        let mut mutations: Vec<&StoreKey> = Vec::with_capacity(self.mutations.len());
        for mutation in &self.mutations {
            check_key(mutation.key())?;
            bytes = bytes.saturating_add(mutation.key().0.len());
            if let Mutation::Put { value, ttl, .. } = mutation {
                if value.len() > MAX_VALUE {
                    return Err(BoundsError::Value(value.len()));
                }
                if ttl.is_some_and(|ttl| ttl < Duration::from_millis(1)) {
                    return Err(BoundsError::Ttl);
                }
                bytes = bytes.saturating_add(value.len());
            }
            mutations.push(mutation.key());
        }
        let (conditions_total, mutations_total) = (conditions.len(), mutations.len());
        conditions.sort_unstable();
        conditions.dedup();
        mutations.sort_unstable();
        mutations.dedup();
        if conditions.len() != conditions_total || mutations.len() != mutations_total {
            return Err(BoundsError::Twice);
        }
        let mut all = conditions;
        all.append(&mut mutations);
        all.sort_unstable();
        all.dedup();
        if all.len() > MAX_BATCH_KEYS {
            return Err(BoundsError::Keys(all.len()));
        }
        if bytes > MAX_BATCH_BYTES { Err(BoundsError::Bytes(bytes)) } else { Ok(()) }
    }
}

fn check_key(key: &StoreKey) -> Result<(), BoundsError> {
    if key.0.is_empty() || key.0.len() > MAX_KEY { Err(BoundsError::Key(key.0.len())) } else { Ok(()) }
}
