//! Promise 6: a move never rolls back a committed owner, and what it reports is what the store did.

use super::Faults;
use rehome::id::RelocationId;
use rehome::node::MoveOutcome;
use rehome::store::record::Authority;
use std::collections::BTreeSet;

/// The moves that truly committed, whatever anybody believes.
#[derive(Debug, Default)]
pub(crate) struct NoRollback {
    committed: BTreeSet<RelocationId>,
    kept: BTreeSet<RelocationId>,
}

impl NoRollback {
    pub(super) fn wrote(&mut self, faults: &mut Faults, before: &Authority, after: &Authority) {
        let (old, new) = (&before.record, &after.record);
        if old.generation == new.generation && new.owner_generation < old.owner_generation {
            faults.promise(6, format!("an owner was rolled back: {old:?} to {new:?}"));
        }
        if let Some(relocation) = new.slot.tenure_by
            && old.slot.tenure_by != Some(relocation)
        {
            if self.kept.contains(&relocation) {
                faults.promise(
                    6,
                    format!("{relocation} committed after its source had reported that it kept the object"),
                );
            }
            self.committed.insert(relocation);
        }
    }

    pub(super) fn committed(&self, relocation: RelocationId) -> bool {
        self.committed.contains(&relocation)
    }

    /// A move's caller was told how it ended.
    pub(crate) fn reported(&mut self, faults: &mut Faults, outcome: &MoveOutcome) {
        match outcome {
            MoveOutcome::Moved { relocation, .. } if !self.committed.contains(relocation) => {
                faults.promise(6, format!("{relocation} was reported as moved and never committed"));
            }
            MoveOutcome::KeptSource { relocation, reason } => {
                if self.committed.contains(relocation) {
                    faults.promise(6, format!("{relocation} committed and was reported as kept: {reason:?}"));
                }
                self.kept.insert(*relocation);
            }
            MoveOutcome::Moved { .. } | MoveOutcome::Refused(_) | MoveOutcome::Lost { .. } => {}
        }
    }
}
