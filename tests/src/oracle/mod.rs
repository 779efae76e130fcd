//! The oracles: the promises of the protocol, looked at from outside over all nodes at once, the stopped ones too. One
//! file for each promise. They see what crosses the border of a node and what the store holds, never a node's inside.

mod bounded;
mod idempotent;
mod no_rollback;
mod nothing_early;
mod nothing_lost;
mod one_owner;
mod order;
mod released;
mod requests_end;
mod unknown;

use rehome::fence::{ObjectKey, OwnerPair, Tenure};
use rehome::id::RelocationId;
use rehome::store::record::{Authority, AuthorityRecord, authority_key, lease_key};
use rehome::store::{MemoryStore, StoreCommand, StoreReply};
use rehome::time::Instant;

/// A client's message: who, which number.
pub(crate) type Hit = (ObjectKey, u64, u64);

/// What went wrong, in words.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<String>);

impl Faults {
    pub(crate) fn promise(&mut self, number: u8, text: String) {
        self.0.push(format!("promise {number}: {text}"));
    }
}

/// The store as the oracles see it: always now, never late.
pub(crate) struct Truth<'a> {
    pub(crate) store: &'a mut MemoryStore,
    pub(crate) now: u64,
}

impl Truth<'_> {
    pub(crate) fn record(&mut self, object: &ObjectKey) -> Option<Authority> {
        authority(&self.store.apply(Instant::from_nanos(self.now), &StoreCommand::Read(authority_key(object))))
    }

    pub(crate) fn lease_live(&mut self, pair: &OwnerPair) -> bool {
        let read = StoreCommand::Read(lease_key(pair));
        self.store.apply(Instant::from_nanos(self.now), &read) != StoreReply::Missing
    }
}

/// The authority record of a read.
pub(crate) fn authority(reply: &StoreReply) -> Option<Authority> {
    match reply {
        StoreReply::Found(found) => {
            let record = AuthorityRecord::decode(&found.value).ok()?;
            Some(Authority { record, version: found.version.clone() })
        }
        StoreReply::Missing
        | StoreReply::Applied(_)
        | StoreReply::Conflict
        | StoreReply::Page { .. }
        | StoreReply::Expired
        | StoreReply::Unknown
        | StoreReply::Invalid => None,
    }
}

/// A turn that is about to run its handler.
pub(crate) struct TurnSeen<'a> {
    pub(crate) tenure: &'a Tenure,
    pub(crate) pair: &'a OwnerPair,
    /// Until when the node's last successful renewal lets it act.
    pub(crate) guard: u64,
    pub(crate) hit: &'a Hit,
    /// The state before the turn.
    pub(crate) before: (u64, u64),
    /// The state after it.
    pub(crate) after: (u64, u64),
}

/// All promises.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) faults: Faults,
    pub(crate) one_owner: one_owner::OneOwner,
    pub(crate) early: nothing_early::NothingEarly,
    pub(crate) lost: nothing_lost::NothingLost,
    pub(crate) order: order::Order,
    pub(crate) requests: requests_end::RequestsEnd,
    pub(crate) rollback: no_rollback::NoRollback,
    pub(crate) unknown: unknown::Unknown,
    pub(crate) idempotent: idempotent::Idempotent,
    pub(crate) bounded: bounded::Bounded,
    pub(crate) released: released::Released,
}

impl Oracle {
    /// A handler is about to run.
    pub(crate) fn turn(&mut self, truth: &mut Truth<'_>, seen: &TurnSeen<'_>) {
        self.one_owner.turn(&mut self.faults, truth, seen);
        self.early.turn(&mut self.faults, seen);
        self.order.ran(&mut self.faults, truth.now, seen.hit);
        self.requests.ran(&mut self.faults, seen.hit, seen.after.0);
        self.idempotent.ran(&mut self.faults, seen.hit);
        self.lost.ran(seen.hit);
    }

    /// A write took effect at the store.
    pub(crate) fn wrote(
        &mut self,
        truth: &mut Truth<'_>,
        writer: Option<&OwnerPair>,
        object: &str,
        before: Option<&Authority>,
        after: Option<&Authority>,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        if before.version != after.version {
            self.one_owner.wrote(&mut self.faults, truth, writer, object, before, after);
            self.rollback.wrote(&mut self.faults, before, after);
        }
    }

    /// Whether the move with this id took effect.
    pub(crate) fn committed(&self, relocation: RelocationId) -> bool {
        self.rollback.committed(relocation)
    }
}
