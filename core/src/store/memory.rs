//! A store as a value: the reference for what an engine does, for examples, tests and simulations. It keeps nothing
//! beyond the process and reads no clock; the caller says what time it is at the store.

use super::command::{Batch, Condition, Found, Mutation, StoreCommand, StoreKey, StoreReply};
use crate::id::StoreVersion;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::BTreeMap;

/// An authority store in memory. Versions come from one sequence for the whole store and never recur.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryStore {
    sequence: u64,
    entries: BTreeMap<StoreKey, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    value: Bytes,
    version: u64,
    expires: Option<Instant>,
}

impl Entry {
    fn live(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn found(&self, now: Instant) -> Option<Found> {
        Some(Found {
            value: self.value.clone(),
            version: version(self.version)?,
            ttl: self.expires.map(|expires| expires.since(now)),
        })
    }
}

fn version(sequence: u64) -> Option<StoreVersion> {
    StoreVersion::new(&sequence.to_string()).ok()
}

impl MemoryStore {
    /// An empty store.
    pub const fn new() -> Self {
        Self { sequence: 0, entries: BTreeMap::new() }
    }

    /// Carries out one command at the store's time `now`, which must not go backwards.
    pub fn apply(&mut self, now: Instant, command: &StoreCommand) -> StoreReply {
        if command.check().is_err() {
            return StoreReply::Invalid;
        }
        match command {
            StoreCommand::Read(key) => match self.live(now, key).and_then(|entry| entry.found(now)) {
                Some(found) => StoreReply::Found(found),
                None => StoreReply::Missing,
            },
            StoreCommand::Write(batch) => self.write(now, batch),
            StoreCommand::Scan { prefix, cursor, limit } => self.scan(now, prefix, cursor.as_ref(), *limit),
        }
    }

    fn live(&self, now: Instant, key: &StoreKey) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.live(now))
    }

    fn write(&mut self, now: Instant, batch: &Batch) -> StoreReply {
        let holds = batch.conditions.iter().all(|condition| {
            let entry = self.live(now, condition.key());
            match condition {
                Condition::Missing(_) => entry.is_none(),
                Condition::Present(_) => entry.is_some(),
                Condition::Version(_, expected) => {
                    entry.and_then(|entry| version(entry.version)).is_some_and(|version| version == *expected)
                }
            }
        });
        if !holds {
            return StoreReply::Conflict;
        }
        let mut versions = Vec::new();
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Delete(key) => {
                    self.entries.remove(key);
                }
                Mutation::Put { key, value, ttl } => {
                    self.sequence = self.sequence.saturating_add(1);
                    let expires = ttl.map(|ttl| now.after(ttl));
                    let entry = Entry { value: value.clone(), version: self.sequence, expires };
                    self.entries.insert(key.clone(), entry);
                    versions.extend(version(self.sequence));
                }
            }
        }
        StoreReply::Applied(versions)
    }

    fn scan(&self, now: Instant, prefix: &Bytes, cursor: Option<&Bytes>, limit: u16) -> StoreReply {
        let start = StoreKey(cursor.unwrap_or(prefix).clone());
        let mut entries = Vec::new();
        let mut bytes = 0usize;
        let mut next = None;
        for (key, entry) in self.entries.range(start..).take_while(|(key, _)| key.0.starts_with(prefix)) {
            let Some(found) = entry.live(now).then(|| entry.found(now)).flatten() else { continue };
            bytes = bytes.saturating_add(key.0.len()).saturating_add(found.value.len());
            if entries.len() >= usize::from(limit) || (bytes > super::MAX_BATCH_BYTES && !entries.is_empty()) {
                next = Some(key.0.clone());
                break;
            }
            entries.push((key.clone(), found));
        }
        StoreReply::Page { entries, cursor: next }
    }

    /// Ends the time to live of `key` at once, as if its time had passed.
    pub fn expire(&mut self, key: &StoreKey) {
        self.entries.remove(key);
    }
}
