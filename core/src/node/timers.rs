//! The node's timers: ordered by instant, found by key. A key has at most one; arming it again replaces it.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Timers<K> {
    queue: BTreeSet<(Instant, K)>,
    armed: BTreeMap<K, Instant>,
}

impl<K: Ord + Clone> Timers<K> {
    pub(super) const fn new() -> Self {
        Self { queue: BTreeSet::new(), armed: BTreeMap::new() }
    }

    pub(super) fn arm(&mut self, key: K, at: Instant) {
        if let Some(old) = self.armed.insert(key.clone(), at) {
            self.queue.remove(&(old, key.clone()));
        }
        self.queue.insert((at, key));
    }

    pub(super) fn disarm(&mut self, key: &K) {
        if let Some(at) = self.armed.remove(key) {
            self.queue.remove(&(at, key.clone()));
        }
    }

    pub(super) fn is_armed(&self, key: &K) -> bool {
        self.armed.contains_key(key)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes out the first timer that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.queue.pop_first()?;
        self.armed.remove(&key);
        Some(key)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.armed.clear();
    }
}
