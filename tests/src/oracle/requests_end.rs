//! Promise 5: every request ends exactly once, within its own deadline, and what it says is true.

use super::{Faults, Hit};
use std::collections::{BTreeMap, BTreeSet};

/// What the callers were told.
#[derive(Debug, Default)]
pub(crate) struct RequestsEnd {
    /// What each message's turn was.
    ran: BTreeMap<Hit, u64>,
    refused: BTreeSet<Hit>,
}

impl RequestsEnd {
    pub(super) fn ran(&mut self, faults: &mut Faults, hit: &Hit, turn: u64) {
        if self.refused.contains(hit) {
            faults.promise(5, format!("message {hit:?} ran after its caller was told that it will not"));
        }
        self.ran.insert(hit.clone(), turn);
    }

    /// A caller was told that its message has not run and will not.
    pub(crate) fn refused(&mut self, faults: &mut Faults, hit: &Hit) {
        if self.ran.contains_key(hit) {
            faults.promise(5, format!("message {hit:?} ran, and its caller was told that it has not"));
        }
        self.refused.insert(hit.clone());
    }

    /// A caller got an answer.
    pub(crate) fn answered(&self, faults: &mut Faults, hit: &Hit, turn: u64) {
        if self.ran.get(hit) != Some(&turn) {
            faults.promise(
                5,
                format!("message {hit:?} was answered with turn {turn}; it ran as {:?}", self.ran.get(hit)),
            );
        }
    }

    /// A call ended at `now`; it had until `by`, and its node was awake since `awake`.
    pub(crate) fn ended(&self, faults: &mut Faults, now: u64, by: u64, awake: u64) {
        const SLACK: u64 = 5_000_000;
        if now > by.max(awake) + SLACK {
            faults.promise(5, format!("a request ended {} us after its deadline", (now - by) / 1000));
        }
    }

    /// A turn is handed out: not for a request whose time is over.
    pub(crate) fn started(&self, faults: &mut Faults, hit: &Hit, now: u64, by: u64) {
        const SLACK: u64 = 5_000_000;
        if now > by + SLACK {
            faults.promise(5, format!("{hit:?} was handed out {} us after its deadline", (now - by) / 1000));
        }
    }

    pub(crate) fn ended_twice(&self, faults: &mut Faults, what: &str) {
        faults.promise(5, format!("{what} ended twice"));
    }

    pub(crate) fn never_ended(&self, faults: &mut Faults, what: &str) {
        faults.promise(5, format!("{what} never ended"));
    }
}
