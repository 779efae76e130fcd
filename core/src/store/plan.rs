//! Plans: pure functions that turn a decision into a conditional batch. An engine applies a batch whole or not at all;
//! what a batch demands here is what makes one owner certain.

use super::command::{Batch, Condition, Mutation, StoreKey};
use super::record::{
    Authority, AuthorityRecord, CapacityRecord, DescriptorRecord, LeaseRecord, OwnerRecord, Slot, authority_key,
    capacity_key, descriptor_key, lease_key, owner_key, reservation_key,
};
use crate::fence::{NodeFence, ObjectKey, OwnerPair};
use crate::id::{
    LeaseGeneration, ObjectGeneration, OwnerGeneration, OwnerId, RelocationId, StoreVersion, Text8, TypeName,
};
use bytes::Bytes;
use core::time::Duration;

fn put(key: StoreKey, value: Bytes) -> Mutation {
    Mutation::Put { key, value, ttl: None }
}

/// Claims the generation after `last`. Another generation's key is never touched: it lives until its own time ends.
/// `None` when the generations are used up.
pub fn claim_lease(
    owner: &OwnerId,
    last: Option<(OwnerRecord, StoreVersion)>,
    lease: &LeaseRecord,
    ttl: Duration,
) -> Option<(OwnerPair, Batch)> {
    let (next, condition) = match last {
        None => (LeaseGeneration::FIRST, Condition::Missing(owner_key(owner))),
        Some((record, version)) => (record.lease.next()?, Condition::Version(owner_key(owner), version)),
    };
    let pair = OwnerPair { owner: owner.clone(), lease: next };
    let batch = Batch {
        conditions: vec![condition, Condition::Missing(lease_key(&pair))],
        mutations: vec![
            put(owner_key(owner), OwnerRecord { lease: next }.encode()),
            Mutation::Put { key: lease_key(&pair), value: lease.encode(), ttl: Some(ttl) },
        ],
    };
    Some((pair, batch))
}

/// Renews a lease that is still there. One that has ended cannot come back.
pub fn renew_lease(pair: &OwnerPair, lease: &LeaseRecord, ttl: Duration) -> Batch {
    Batch {
        conditions: vec![Condition::Present(lease_key(pair))],
        mutations: vec![Mutation::Put { key: lease_key(pair), value: lease.encode(), ttl: Some(ttl) }],
    }
}

/// Gives a lease back.
pub fn release_lease(pair: &OwnerPair) -> Batch {
    Batch { conditions: vec![Condition::Present(lease_key(pair))], mutations: vec![Mutation::Delete(lease_key(pair))] }
}

/// Publishes the node's descriptor over whatever an earlier run left.
pub fn publish_descriptor(mesh: &Text8, node: &NodeFence, descriptor: &DescriptorRecord) -> Batch {
    Batch {
        conditions: vec![Condition::Present(lease_key(&descriptor.owner))],
        mutations: vec![put(descriptor_key(mesh, &node.rid), descriptor.encode())],
    }
}

/// The tenure that a plan gives to an object, and where it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewTenure {
    /// The object.
    pub object: ObjectKey,
    /// Its type.
    pub stable_type: TypeName,
    /// The mesh.
    pub mesh: Text8,
    /// The node.
    pub node: NodeFence,
    /// The owner pair.
    pub owner: OwnerPair,
}

impl NewTenure {
    fn record(&self, generation: ObjectGeneration, owner_generation: OwnerGeneration, slot: Slot) -> AuthorityRecord {
        AuthorityRecord {
            slot,
            generation,
            owner_generation,
            owner: self.owner.clone(),
            stable_type: self.stable_type.clone(),
            kind: self.object.kind,
            mesh: self.mesh.clone(),
            node: self.node.clone(),
        }
    }
}

/// Creates an object that has no record, on the node whose descriptor is at `descriptor`.
pub fn create(tenure: &NewTenure, generation: ObjectGeneration, descriptor: &StoreVersion) -> Batch {
    let record = tenure.record(generation, OwnerGeneration::FIRST, Slot::default());
    Batch {
        conditions: vec![
            Condition::Missing(authority_key(&tenure.object)),
            Condition::Present(lease_key(&tenure.owner)),
            Condition::Version(descriptor_key(&tenure.mesh, &tenure.node.rid), descriptor.clone()),
        ],
        mutations: vec![put(authority_key(&tenure.object), record.encode())],
    }
}

/// What a commit needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommitPlan {
    /// The target's tenure.
    pub tenure: NewTenure,
    /// The incarnation, which a move never changes.
    pub generation: ObjectGeneration,
    /// The owner generation after the source's.
    pub owner_generation: OwnerGeneration,
    /// The version that the coordinator fence names.
    pub expected: StoreVersion,
    /// The source's owner pair: a source whose lease has ended may have been reclaimed from.
    pub source: OwnerPair,
    /// The move.
    pub relocation: RelocationId,
    /// What the application keeps in the record: a commit carries it on.
    pub application: Bytes,
    /// Whether a capacity reservation was made for it.
    pub reserved: bool,
}

impl CommitPlan {
    /// The one write of a move. It and [`preserve`] compare the same version of the same record: at most one of them
    /// can win.
    pub fn batch(&self) -> Batch {
        let slot = Slot { tenure_by: Some(self.relocation), application: self.application.clone() };
        let record = self.tenure.record(self.generation, self.owner_generation, slot);
        let mut conditions = vec![
            Condition::Version(authority_key(&self.tenure.object), self.expected.clone()),
            Condition::Present(lease_key(&self.tenure.owner)),
            Condition::Present(lease_key(&self.source)),
        ];
        if self.reserved {
            conditions.push(Condition::Present(reservation_key(&self.tenure.owner, self.relocation)));
        }
        Batch { conditions, mutations: vec![put(authority_key(&self.tenure.object), record.encode())] }
    }
}

/// The source's fence: writes the same record again on condition of the version that the commit expects, so that the
/// version moves and the commit can never win. Nothing else changes.
pub fn preserve(object: &ObjectKey, current: &Authority) -> Batch {
    Batch {
        conditions: vec![
            Condition::Version(authority_key(object), current.version.clone()),
            Condition::Present(lease_key(&current.record.owner)),
        ],
        mutations: vec![put(authority_key(object), current.record.encode())],
    }
}

/// Takes over an object whose owner's lease has ended, as a new incarnation. Never while the lease is valid.
pub fn reclaim(tenure: &NewTenure, generation: ObjectGeneration, orphan: &Authority) -> Batch {
    let slot = Slot { tenure_by: None, application: orphan.record.slot.application.clone() };
    let record = tenure.record(generation, OwnerGeneration::FIRST, slot);
    Batch {
        conditions: vec![
            Condition::Version(authority_key(&tenure.object), orphan.version.clone()),
            Condition::Missing(lease_key(&orphan.record.owner)),
            Condition::Present(lease_key(&tenure.owner)),
        ],
        mutations: vec![put(authority_key(&tenure.object), record.encode())],
    }
}

/// Deletes an object that its owner holds.
pub fn delete(object: &ObjectKey, current: &Authority) -> Batch {
    Batch {
        conditions: vec![
            Condition::Version(authority_key(object), current.version.clone()),
            Condition::Present(lease_key(&current.record.owner)),
        ],
        mutations: vec![Mutation::Delete(authority_key(object))],
    }
}

/// Reserves room for one object under a limit. `None` when there is none. The reservation's key ends by itself; the
/// authority record is not touched.
pub fn reserve_capacity(
    owner: &OwnerPair,
    relocation: RelocationId,
    current: Option<(CapacityRecord, StoreVersion)>,
    limit: u64,
    ttl: Duration,
) -> Option<Batch> {
    let (used, condition) = match current {
        None => (0, Condition::Missing(capacity_key(owner))),
        Some((record, version)) => (record.used, Condition::Version(capacity_key(owner), version)),
    };
    let next = used.checked_add(1).filter(|next| *next <= limit)?;
    Some(Batch {
        conditions: vec![
            condition,
            Condition::Present(lease_key(owner)),
            Condition::Missing(reservation_key(owner, relocation)),
        ],
        mutations: vec![
            put(capacity_key(owner), CapacityRecord { used: next }.encode()),
            Mutation::Put { key: reservation_key(owner, relocation), value: Bytes::from_static(b"{}"), ttl: Some(ttl) },
        ],
    })
}

/// Gives the room of one object back, and its reservation with it.
pub fn release_capacity(
    owner: &OwnerPair,
    relocation: RelocationId,
    current: &CapacityRecord,
    version: &StoreVersion,
) -> Batch {
    Batch {
        conditions: vec![
            Condition::Version(capacity_key(owner), version.clone()),
            Condition::Present(lease_key(owner)),
        ],
        mutations: vec![
            put(capacity_key(owner), CapacityRecord { used: current.used.saturating_sub(1) }.encode()),
            Mutation::Delete(reservation_key(owner, relocation)),
        ],
    }
}
