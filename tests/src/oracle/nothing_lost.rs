//! Promise 3: what was accepted runs, unless a node died or a lease ended after its caller had made it, or its object is
//! no more in the store when the node that answers for it says so.

use super::{Faults, Hit};
use rehome::fence::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};

/// Accepted messages that have not run.
#[derive(Debug, Default)]
pub(crate) struct NothingLost {
    ran: BTreeSet<Hit>,
    /// When the caller made it.
    accepted: BTreeMap<Hit, u64>,
    /// The last end of a node, or of a lease.
    last_end: Option<u64>,
    /// When a node last said of an object that a message has no owner to go to, and the store had no such object.
    gone: BTreeMap<ObjectKey, u64>,
    /// Accepted messages that a documented loss took.
    pub(crate) taken: u64,
}

impl NothingLost {
    pub(super) fn ran(&mut self, hit: &Hit) {
        self.ran.insert(hit.clone());
        self.accepted.remove(hit);
    }

    /// A one-way message was accepted.
    pub(crate) fn accepted(&mut self, hit: &Hit, made: u64) {
        if !self.ran.contains(hit) {
            self.accepted.insert(hit.clone(), made);
        }
    }

    /// A node died or its lease ended: what it held may be lost.
    pub(crate) fn ended(&mut self, now: u64) {
        self.last_end = Some(now);
    }

    /// A node says that a message has no owner to go to, and the store has no such object: its owner died, and who took
    /// it over could not make it.
    pub(crate) fn no_object(&mut self, object: &ObjectKey, now: u64) {
        self.gone.insert(object.clone(), now);
    }

    /// Whether any node or lease ended so far.
    pub(crate) const fn any_end(&self) -> bool {
        self.last_end.is_some()
    }

    /// A node gave a message up that may have been accepted. `over`: a lease has ended, though its node may not know yet.
    pub(crate) fn gave_up(&mut self, faults: &mut Faults, now: u64, over: bool, what: &str, since: Option<u64>) {
        if over {
            self.ended(now);
        }
        let documented = self.last_end.is_some_and(|end| since.is_none_or(|since| end >= since));
        if !documented {
            faults.promise(3, format!("{what} was given up though no node had died and no lease ended"));
        }
    }

    /// At rest: everything accepted has run.
    pub(crate) fn at_rest(&mut self, faults: &mut Faults) {
        for ((object, client, number), made) in core::mem::take(&mut self.accepted) {
            let gone = self.gone.get(&object).is_some_and(|gone| *gone >= made);
            if gone || self.last_end.is_some_and(|end| end >= made) {
                self.taken += 1;
            } else {
                faults.promise(
                    3,
                    format!(
                        "message {number} of client {client} to {object}, made at {:.3} ms, was accepted and never ran",
                        made as f64 / 1e6
                    ),
                );
            }
        }
    }
}
