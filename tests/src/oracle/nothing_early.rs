//! Promise 2: a target opens only after its host restored the object, the whole boundary batch and its cutover arrived
//! on one connection, and a read of the store showed its commit.

use super::{Faults, TurnSeen};
use rehome::fence::Tenure;
use rehome::id::{ObjectGeneration, OwnerGeneration, RelocationId};
use rehome::node::Conn;
use rehome::store::record::Authority;
use rehome::wire::{FrozenRecord, frozen_crc};
use std::collections::{BTreeMap, BTreeSet};

/// One run of one node as a target.
pub(crate) type Stager = (usize, u64);

type Life = (ObjectKeyText, ObjectGeneration, OwnerGeneration);
type ObjectKeyText = String;

/// What each target has got.
#[derive(Debug, Default)]
pub(crate) struct NothingEarly {
    spans: BTreeMap<(Stager, RelocationId), (Conn, Vec<FrozenRecord>)>,
    verified: BTreeSet<(Stager, RelocationId)>,
    restored: BTreeSet<(Stager, Life)>,
    confirmed: BTreeSet<(Stager, RelocationId)>,
    open: BTreeSet<Life>,
}

fn life(tenure: &Tenure) -> Life {
    (tenure.object.to_string(), tenure.generation, tenure.owner_generation)
}

impl NothingEarly {
    /// A boundary record arrived.
    pub(crate) fn data(&mut self, at: Stager, relocation: RelocationId, conn: Conn, record: &FrozenRecord) {
        let span = self.spans.entry((at, relocation)).or_insert_with(|| (conn, Vec::new()));
        if span.0 != conn {
            *span = (conn, Vec::new());
        }
        span.1.push(record.clone());
    }

    /// A cutover arrived: does the batch before it fit?
    pub(crate) fn cutover(&mut self, at: Stager, relocation: RelocationId, conn: Conn, count: u64, checksum: u32) {
        let empty = (conn, Vec::new());
        let (on, records) = self.spans.get(&(at, relocation)).unwrap_or(&empty);
        let first = usize::try_from(count).ok().and_then(|count| records.len().checked_sub(count));
        let batch = first.and_then(|first| records.get(first..)).filter(|batch| *on == conn || batch.is_empty());
        let sum = batch.map(|batch| batch.iter().try_fold(0u32, frozen_crc));
        if matches!(sum, Some(Ok(sum)) if sum == checksum) {
            self.verified.insert((at, relocation));
        }
    }

    /// A read of the store was answered.
    pub(crate) fn read(&mut self, at: Stager, found: &Authority) {
        if let Some(relocation) = found.record.slot.tenure_by {
            self.confirmed.insert((at, relocation));
        }
    }

    pub(crate) fn restored(&mut self, at: Stager, tenure: &Tenure) {
        self.restored.insert((at, life(tenure)));
    }

    pub(crate) fn activated(&mut self, tenure: &Tenure) {
        self.open.insert(life(tenure));
    }

    /// The node opens a life that a move made.
    pub(crate) fn opens(&mut self, faults: &mut Faults, at: Stager, tenure: &Tenure) {
        let Some(relocation) = tenure.relocation else { return };
        let object = &tenure.object;
        let of = (at, relocation);
        if !self.restored.contains(&(at, life(tenure))) {
            faults.promise(2, format!("{object} opened at n{} before it was restored", at.0));
        }
        if !self.verified.contains(&of) {
            faults.promise(2, format!("{object} opened at n{} without its whole boundary batch and cutover", at.0));
        }
        if !self.confirmed.contains(&of) {
            faults.promise(2, format!("{object} opened at n{} before its commit was confirmed", at.0));
        }
        self.open.insert(life(tenure));
    }

    pub(super) fn turn(&self, faults: &mut Faults, seen: &TurnSeen<'_>) {
        if !self.open.contains(&life(seen.tenure)) {
            faults.promise(2, format!("{} ran a turn before it was opened", seen.tenure.object));
        }
    }
}
