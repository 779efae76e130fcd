//! The oracles: the promises of the protocol, looked at from outside over all nodes at once.

use crate::host::Thing;
use rehome::fence::{ObjectKey, OwnerPair, Tenure};
use rehome::id::{ObjectGeneration, OperationId, OwnerGeneration};
use rehome::receipt::{SourceReceipt, TargetReceipt};
use rehome::store::record::{Authority, AuthorityRecord, lease_key};
use rehome::store::{MemoryStore, StoreCommand, StoreKey, StoreReply};
use rehome::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that the oracles remember.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The last turn of each incarnation, with the owner generation that ran it and the chain after it.
    turns: BTreeMap<(ObjectKey, ObjectGeneration), (u64, OwnerGeneration, u64)>,
    /// Operations that ran, by incarnation.
    ran: BTreeSet<(ObjectKey, ObjectGeneration, OperationId)>,
    /// Client messages that ran, in any incarnation.
    done: BTreeSet<(ObjectKey, u64, u64)>,
    /// Client messages whose caller was told that they were accepted.
    accepted: BTreeSet<(ObjectKey, u64, u64)>,
    /// Client messages whose caller was told that they have not run and will not.
    refused: BTreeSet<(ObjectKey, u64, u64)>,
    /// Objects for which a node has counted a gap in somebody's order.
    pub(crate) gaps: BTreeSet<ObjectKey>,
    /// What went wrong.
    pub faults: Vec<String>,
}

impl Oracle {
    /// Something is wrong.
    pub fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// Promise 1 and 4: the turn's tenure is exactly the record's, its owner's lease is live, and the turn extends the
    /// one chain of its incarnation.
    pub(crate) fn turn(
        &mut self,
        store: &mut MemoryStore,
        now: Instant,
        tenure: &Tenure,
        pair: &OwnerPair,
        operation: OperationId,
        before: &Thing,
    ) {
        let key = rehome::store::record::authority_key(&tenure.object);
        match authority(store.apply(now, &StoreCommand::Read(key))) {
            Some(found)
                if found.record.generation == tenure.generation
                    && found.record.owner_generation == tenure.owner_generation
                    && found.record.owner == *pair => {}
            other => self.fault(format!(
                "promise 1, one owner: {} ran a turn as owner generation {} of {:?}, the store says {:?}",
                tenure.object,
                tenure.owner_generation,
                pair,
                other.map(|found| (found.record.generation, found.record.owner_generation, found.record.owner))
            )),
        }
        if store.apply(now, &StoreCommand::Read(lease_key(pair))) == StoreReply::Missing {
            self.fault(format!(
                "promise 1, one owner: {} ran a turn after its owner's lease {pair:?} ended",
                tenure.object
            ));
        }
        if !self.ran.insert((tenure.object.clone(), tenure.generation, operation)) {
            self.fault(format!("promise 8, idempotent: {} ran operation {operation:?} twice", tenure.object));
        }
        let last = self.turns.get(&(tenure.object.clone(), tenure.generation)).copied();
        let (turn, owner_generation, chain) = last.unwrap_or((0, OwnerGeneration::FIRST, 0));
        if before.turn != turn || before.chain != chain || tenure.owner_generation < owner_generation {
            self.fault(format!(
                "promise 1, one chain: {} at owner generation {} goes on from turn {} (chain {:x}), the last was {turn} ({chain:x}) at {owner_generation}",
                tenure.object, tenure.owner_generation, before.turn, before.chain
            ));
        }
    }

    /// Promise 4: a client's messages run in its order, each at most once.
    pub(crate) fn ran(&mut self, tenure: &Tenure, after: &Thing, last: Option<u64>, client: u64, number: u64) {
        if last.is_some_and(|last| last >= number) && !self.gaps.contains(&tenure.object) {
            self.fault(format!(
                "promise 4, order: {} ran message {number} of client {client} after {last:?}",
                tenure.object
            ));
        }
        let key = (tenure.object.clone(), tenure.generation);
        self.turns.insert(key, (after.turn, tenure.owner_generation, after.chain));
        let message = (tenure.object.clone(), client, number);
        if self.refused.contains(&message) {
            self.fault(format!(
                "promise 5: {} ran message {number} of client {client}, which was refused",
                tenure.object
            ));
        }
        self.done.insert(message);
    }

    pub(crate) fn accepted(&mut self, object: &ObjectKey, client: u64, number: u64) {
        self.accepted.insert((object.clone(), client, number));
    }

    pub(crate) fn refused(&mut self, object: &ObjectKey, client: u64, number: u64) {
        let message = (object.clone(), client, number);
        if self.done.contains(&message) {
            self.fault(format!(
                "promise 5: message {number} of client {client} to {object} ran and was called not run"
            ));
        }
        self.refused.insert(message);
    }

    /// Promise 3, at the end, where no owner ended: everything accepted has run.
    pub(crate) fn nothing_lost(&mut self) {
        let lost: Vec<_> = self.accepted.difference(&self.done).cloned().collect();
        for (object, client, number) in lost {
            self.fault(format!("promise 3, nothing lost: message {number} of client {client} to {object} never ran"));
        }
    }

    /// Promise 1 and 6: what a write did to authority records.
    pub(crate) fn wrote(
        &mut self,
        store: &mut MemoryStore,
        now: Instant,
        key: &StoreKey,
        before: Option<&Authority>,
        after: Option<&Authority>,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let (old, new) = (&before.record, &after.record);
        if before.version == after.version {
            return;
        }
        if old.generation != new.generation {
            if store.apply(now, &StoreCommand::Read(lease_key(&old.owner))) != StoreReply::Missing {
                self.fault(format!("{key:?}: reclaimed while its owner's lease was valid"));
            }
            return;
        }
        let same_owner = old.owner == new.owner && old.owner_generation == new.owner_generation;
        let committed = old.owner_generation.next() == Some(new.owner_generation) && new.slot.tenure_by.is_some();
        if !same_owner && !committed {
            self.fault(format!("promise 1: {key:?} went from {old:?} to {new:?}, which no commit does"));
        }
        if same_owner && old != new {
            self.fault(format!("{key:?}: a preserve changed more than the version"));
        }
    }

    pub(crate) fn source_receipt(&mut self, receipt: &SourceReceipt) {
        if !receipt.balances() {
            self.fault(format!("a receipt does not balance: {receipt:?}"));
        }
    }

    pub(crate) fn target_receipt(&mut self, receipt: &TargetReceipt) {
        if !receipt.balances() {
            self.fault(format!("a receipt does not balance: {receipt:?}"));
        }
    }
}

/// The authority record of a read.
pub(crate) fn authority(reply: StoreReply) -> Option<Authority> {
    match reply {
        StoreReply::Found(found) => {
            let record = AuthorityRecord::decode(&found.value).ok()?;
            Some(Authority { record, version: found.version })
        }
        _ => None,
    }
}
