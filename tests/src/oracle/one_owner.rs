//! Promise 1: at no instant do two nodes have dispatch open for one incarnation, and nobody but a target's commit (or a
//! reclaim after the owner's lease) writes an owner.

use super::{Faults, Truth, TurnSeen};
use rehome::fence::{ObjectKey, OwnerPair};
use rehome::id::{ObjectGeneration, OwnerGeneration};
use rehome::store::record::Authority;
use std::collections::BTreeMap;

/// The last turn of each incarnation.
#[derive(Debug, Default)]
pub(crate) struct OneOwner {
    last: BTreeMap<(ObjectKey, ObjectGeneration), (u64, u64, OwnerGeneration)>,
}

impl OneOwner {
    pub(super) fn turn(&mut self, faults: &mut Faults, truth: &mut Truth<'_>, seen: &TurnSeen<'_>) {
        let tenure = seen.tenure;
        let object = &tenure.object;
        match truth.record(object) {
            Some(found)
                if found.record.generation == tenure.generation
                    && found.record.owner_generation == tenure.owner_generation
                    && found.record.owner == *seen.pair => {}
            found => faults.promise(
                1,
                format!(
                    "{object} ran a turn at owner generation {} of {:?}; the store names {:?}",
                    tenure.owner_generation,
                    seen.pair,
                    found.map(|found| (found.record.generation, found.record.owner_generation, found.record.owner))
                ),
            ),
        }
        if truth.now >= seen.guard {
            faults.promise(1, format!("{object} ran a turn at {:?} after the lease guard", seen.pair));
        }
        let key = (object.clone(), tenure.generation);
        let (turn, chain, generation) = self.last.get(&key).copied().unwrap_or((0, 0, OwnerGeneration::FIRST));
        if seen.before != (turn, chain) || tenure.owner_generation < generation {
            faults.promise(
                1,
                format!(
                    "{object} at owner generation {} goes on from turn {:?}; its history ends with {:?} at {generation}",
                    tenure.owner_generation,
                    seen.before,
                    (turn, chain)
                ),
            );
        }
        self.last.insert(key, (seen.after.0, seen.after.1, tenure.owner_generation));
    }

    /// A node does what only an owner may do, at `now`; the guard is what its last successful renewal allows.
    pub(crate) fn acts(&self, faults: &mut Faults, now: u64, guard: u64, node: usize, what: &str) {
        if now >= guard {
            faults.promise(1, format!("n{node} {what} {} us after its lease guard", (now - guard) / 1000));
        }
    }

    pub(super) fn wrote(
        &mut self,
        faults: &mut Faults,
        truth: &mut Truth<'_>,
        writer: Option<&OwnerPair>,
        object: &str,
        before: &Authority,
        after: &Authority,
    ) {
        let (old, new) = (&before.record, &after.record);
        if old.generation != new.generation {
            if truth.lease_live(&old.owner) {
                faults.promise(1, format!("{object} was reclaimed while its owner's lease was valid"));
            }
            return;
        }
        let same_owner = old.owner == new.owner && old.owner_generation == new.owner_generation;
        if same_owner {
            if old != new || writer != Some(&old.owner) {
                faults.promise(1, format!("{object}: {writer:?} wrote {new:?} over {old:?}"));
            }
            return;
        }
        let commit = old.owner_generation.next() == Some(new.owner_generation)
            && new.slot.tenure_by.is_some()
            && writer == Some(&new.owner);
        if !commit {
            faults.promise(1, format!("{object}: {writer:?} changed the owner from {old:?} to {new:?}"));
        }
    }
}
