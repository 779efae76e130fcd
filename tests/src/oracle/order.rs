//! Promise 4: one sender's messages to one object are never reordered, across a route flip too. A sender that gave its
//! order up counts a gap, and only what it had made before the gap may be out of place.

use super::{Faults, Hit};
use rehome::fence::ObjectKey;
use std::collections::BTreeMap;

/// What ran last of each sender.
#[derive(Debug, Default)]
pub(crate) struct Order {
    highest: BTreeMap<(ObjectKey, u64), u64>,
    made: BTreeMap<Hit, u64>,
    gap: BTreeMap<ObjectKey, u64>,
    /// Messages that ran out of order behind a counted gap.
    pub(crate) late: u64,
}

impl Order {
    pub(crate) fn made(&mut self, hit: &Hit, now: u64) {
        self.made.insert(hit.clone(), now);
    }

    /// A node counted a gap in somebody's order to the object. `fair`: nothing was made that could be a reason.
    pub(crate) fn gap(&mut self, faults: &mut Faults, object: &ObjectKey, now: u64, fair: bool) {
        if fair {
            faults.promise(4, format!("a sender gave its order to {object} up for no reason"));
        }
        self.gap.insert(object.clone(), now);
    }

    pub(super) fn ran(&mut self, faults: &mut Faults, _now: u64, hit: &Hit) {
        let (object, client, number) = hit;
        let highest = self.highest.entry((object.clone(), *client)).or_default();
        if number < highest {
            let excused = match (self.gap.get(object), self.made.get(hit)) {
                (Some(gap), Some(made)) => made <= gap,
                _ => false,
            };
            self.late += u64::from(excused);
            if !excused {
                faults.promise(4, format!("{object} ran message {number} of client {client} after message {highest}"));
            }
        }
        *highest = (*highest).max(*number);
    }
}
