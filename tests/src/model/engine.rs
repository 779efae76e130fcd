//! The store of the search: the core's own, or one whose versions recur. It applies what it is given and decides nothing.

use rehome::store::{Batch, Condition, Found, MemoryStore, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// A store that is a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Engine {
    /// As it must be.
    Whole(MemoryStore),
    /// Each row counts its own versions, from 1 whenever it is made.
    PerRow(BTreeMap<StoreKey, (bytes::Bytes, u64)>),
}

impl Engine {
    pub(super) const fn new(versions_recur: bool) -> Self {
        if versions_recur { Self::PerRow(BTreeMap::new()) } else { Self::Whole(MemoryStore::new()) }
    }

    pub(super) fn apply(&mut self, command: &StoreCommand) -> StoreReply {
        match self {
            Self::Whole(store) => store.apply(Instant::ZERO, command),
            Self::PerRow(rows) => match command {
                StoreCommand::Read(key) => match rows.get(key) {
                    Some((value, version)) => StoreReply::Found(Found {
                        value: value.clone(),
                        version: version_of(*version),
                        ttl: key.0.starts_with(b"lease").then_some(Duration::from_secs(1)),
                    }),
                    None => StoreReply::Missing,
                },
                StoreCommand::Write(batch) => write(rows, batch),
                StoreCommand::Scan { .. } => StoreReply::Invalid,
            },
        }
    }

    /// Ends a key's time to live.
    pub(super) fn expire(&mut self, key: &StoreKey) {
        match self {
            Self::Whole(store) => store.expire(key),
            Self::PerRow(rows) => {
                rows.remove(key);
            }
        }
    }

    /// Whether this write can never take effect any more: it names a version that is past.
    pub(super) fn is_past(&mut self, command: &StoreCommand) -> bool {
        let (Self::Whole(_), StoreCommand::Write(batch)) = (&*self, command) else { return false };
        let conditions = batch.conditions.clone();
        conditions.iter().any(|condition| match condition {
            Condition::Version(key, version) => match self.apply(&StoreCommand::Read(key.clone())) {
                StoreReply::Found(found) => found.version != *version,
                _ => true,
            },
            Condition::Missing(_) | Condition::Present(_) => false,
        })
    }
}

fn version_of(number: u64) -> rehome::id::StoreVersion {
    rehome::id::StoreVersion::new(&number.to_string()).expect("a version")
}

fn write(rows: &mut BTreeMap<StoreKey, (bytes::Bytes, u64)>, batch: &Batch) -> StoreReply {
    let holds = batch.conditions.iter().all(|condition| match condition {
        Condition::Missing(key) => !rows.contains_key(key),
        Condition::Present(key) => rows.contains_key(key),
        Condition::Version(key, version) => rows.get(key).is_some_and(|(_, is)| version_of(*is) == *version),
    });
    if !holds {
        return StoreReply::Conflict;
    }
    let mut versions = Vec::new();
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Delete(key) => {
                rows.remove(key);
            }
            Mutation::Put { key, value, .. } => {
                let version = rows.get(key).map_or(1, |(_, version)| version + 1);
                rows.insert(key.clone(), (value.clone(), version));
                versions.push(version_of(version));
            }
        }
    }
    StoreReply::Applied(versions)
}
