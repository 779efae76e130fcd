//! Plans against the store in memory: what each demands, and what it leaves.

// A test looks at one answer and lets the others pass.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

use rehome::fence::{NodeFence, ObjectKey, OwnerPair};
use rehome::id::{
    LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId, RelocationId, RoutingId,
    StoreVersion, Text8, TypeName,
};
use rehome::store::plan::{self, CommitPlan, NewTenure};
use rehome::store::record::{
    Authority, AuthorityRecord, CapacityRecord, DescriptorRecord, LeaseRecord, authority_key, capacity_key,
    descriptor_key, lease_key, reservation_key,
};
use rehome::store::{Batch, MemoryStore, StoreCommand, StoreKey, StoreReply};
use rehome::time::Instant;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(15);

struct Shop {
    store: MemoryStore,
    now: Instant,
}

impl Shop {
    const fn new() -> Self {
        Self { store: MemoryStore::new(), now: Instant::ZERO }
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    #[track_caller]
    fn write(&mut self, batch: Batch) -> bool {
        match self.store.apply(self.now, &StoreCommand::Write(batch)) {
            StoreReply::Applied(_) => true,
            StoreReply::Conflict => false,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, key: StoreKey) -> Option<(Vec<u8>, StoreVersion, Option<Duration>)> {
        match self.store.apply(self.now, &StoreCommand::Read(key)) {
            StoreReply::Found(found) => Some((found.value.to_vec(), found.version, found.ttl)),
            _ => None,
        }
    }

    /// A lease of the owner's first generation.
    fn lease(&mut self, name: &str) -> OwnerPair {
        let lease = LeaseRecord { node: node(name), nonce: 7, renewed_unix_ms: 0 };
        let (pair, batch) = plan::claim_lease(&OwnerId::new(name).unwrap(), None, &lease, TTL).unwrap();
        assert!(self.write(batch));
        pair
    }

    fn capacity(&mut self, owner: &OwnerPair) -> Option<(CapacityRecord, StoreVersion)> {
        let (value, version, ttl) = self.read(capacity_key(owner))?;
        assert_eq!(ttl, None);
        Some((CapacityRecord::decode(&value).unwrap(), version))
    }

    fn authority(&mut self) -> Authority {
        let (value, version, _) = self.read(authority_key(&object())).expect("a record");
        Authority { record: AuthorityRecord::decode(&value).unwrap(), version }
    }
}

fn node(name: &str) -> NodeFence {
    NodeFence { rid: RoutingId::new(name.as_bytes().to_vec()).unwrap(), generation: NodeGeneration::FIRST }
}

fn object() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("thing").unwrap())
}

fn mesh() -> Text8 {
    Text8::new("mesh").unwrap()
}

fn relocation(id: u128) -> RelocationId {
    RelocationId::new(id).unwrap()
}

fn tenure(owner: &OwnerPair) -> NewTenure {
    NewTenure {
        object: object(),
        stable_type: TypeName::new("thing").unwrap(),
        mesh: mesh(),
        node: node(owner.owner.as_str()),
        owner: owner.clone(),
    }
}

/// A store in which `source` owns the object.
fn created() -> (Shop, OwnerPair, OwnerPair) {
    let mut shop = Shop::new();
    let (source, target) = (shop.lease("source"), shop.lease("target"));
    let descriptor = DescriptorRecord {
        generation: NodeGeneration::FIRST,
        owner: source.clone(),
        endpoint: String::new(),
        application_version: 1,
        types: Vec::new(),
    };
    assert!(shop.write(plan::publish_descriptor(&mesh(), &node("source"), &descriptor)));
    let (_, version, _) = shop.read(descriptor_key(&mesh(), &node("source").rid)).unwrap();
    assert!(shop.write(plan::create(&tenure(&source), ObjectGeneration::FIRST, &version)));
    (shop, source, target)
}

fn commit(target: &OwnerPair, from: &Authority, relocation: RelocationId, reserved: bool) -> Batch {
    CommitPlan {
        tenure: tenure(target),
        generation: from.record.generation,
        owner_generation: from.record.owner_generation.next().unwrap(),
        expected: from.version.clone(),
        source: from.record.owner.clone(),
        relocation,
        application: from.record.slot.application.clone(),
        reserved,
    }
    .batch()
}

#[test]
fn room_is_reserved_up_to_the_limit_and_given_back() {
    let (mut shop, _, owner) = created();
    let reserve = |shop: &mut Shop, id| {
        let current = shop.capacity(&owner);
        plan::reserve_capacity(&owner, relocation(id), current, 2, TTL)
    };
    for id in [1, 2] {
        let batch = reserve(&mut shop, id).expect("there is room");
        assert!(shop.write(batch));
    }
    assert_eq!(shop.capacity(&owner).unwrap().0, CapacityRecord { used: 2 });
    assert!(reserve(&mut shop, 3).is_none(), "there is no room");
    let (record, version) = shop.capacity(&owner).unwrap();
    assert!(shop.write(plan::release_capacity(&owner, relocation(1), &record, &version)));
    assert_eq!(shop.capacity(&owner).unwrap().0, CapacityRecord { used: 1 });
    assert!(shop.read(reservation_key(&owner, relocation(1))).is_none());
    let batch = reserve(&mut shop, 3).expect("there is room again");
    assert!(shop.write(batch));
    // What was read before somebody else wrote changes nothing.
    assert!(!shop.write(plan::release_capacity(&owner, relocation(2), &record, &version)));
    assert_eq!(shop.capacity(&owner).unwrap().0, CapacityRecord { used: 2 });
}

#[test]
fn one_reservation_is_made_once_and_only_under_a_live_lease() {
    let (mut shop, _, owner) = created();
    let batch = plan::reserve_capacity(&owner, relocation(1), None, 2, TTL).unwrap();
    assert!(shop.write(batch.clone()));
    assert!(!shop.write(batch), "the count has moved");
    let current = shop.capacity(&owner);
    let again = plan::reserve_capacity(&owner, relocation(1), current.clone(), 2, TTL).unwrap();
    assert!(!shop.write(again), "it stands already");
    let other = plan::reserve_capacity(&owner, relocation(2), current, 2, TTL).unwrap();
    shop.wait(TTL);
    assert!(!shop.write(other), "the lease has ended");
}

#[test]
fn a_commit_that_reserved_room_needs_its_reservation() {
    let (mut shop, source, target) = created();
    let from = shop.authority();
    assert!(!shop.write(commit(&target, &from, relocation(1), true)), "nothing is reserved");
    let short = Duration::from_secs(1);
    assert!(shop.write(plan::reserve_capacity(&target, relocation(1), None, 1, short).unwrap()));
    shop.wait(short);
    assert!(!shop.write(commit(&target, &from, relocation(1), true)), "the reservation has ended");
    let current = shop.capacity(&target);
    assert!(shop.write(plan::reserve_capacity(&target, relocation(2), current, 2, TTL).unwrap()));
    assert!(!shop.write(commit(&target, &from, relocation(1), true)), "that is another one's");
    assert!(shop.write(commit(&target, &from, relocation(2), true)));
    let now = shop.authority();
    assert_eq!((&now.record.owner, now.record.slot.tenure_by), (&target, Some(relocation(2))));
    assert_ne!(now.record.owner, source);
}

#[test]
fn of_a_commit_and_a_preserve_one_wins() {
    for preserve_first in [false, true] {
        let (mut shop, source, target) = created();
        let from = shop.authority();
        let mut batches = [commit(&target, &from, relocation(1), false), plan::preserve(&object(), &from)];
        if preserve_first {
            batches.reverse();
        }
        let [first, second] = batches;
        assert!(shop.write(first));
        assert!(!shop.write(second));
        let owner = if preserve_first { source } else { target };
        assert_eq!(shop.authority().record.owner, owner);
    }
}

#[test]
fn a_commit_needs_both_leases_and_a_takeover_needs_one_to_have_ended() {
    let (mut shop, source, target) = created();
    let from = shop.authority();
    let generation = ObjectGeneration::new(99).unwrap();
    assert!(!shop.write(plan::reclaim(&tenure(&target), generation, &from)), "its owner lives");
    assert!(shop.write(plan::release_lease(&source)));
    assert!(!shop.write(commit(&target, &from, relocation(1), false)), "the source's lease is gone");
    assert!(shop.write(plan::reclaim(&tenure(&target), generation, &from)));
    let now = shop.authority();
    assert_eq!((now.record.generation, now.record.owner_generation), (generation, OwnerGeneration::FIRST));
    assert!(!shop.write(plan::delete(&object(), &from)), "it is another version");
    assert!(shop.write(plan::delete(&object(), &now)));
    assert!(shop.read(authority_key(&object())).is_none());
}

#[test]
fn an_ended_lease_does_not_come_back() {
    let mut shop = Shop::new();
    let pair = shop.lease("owner");
    assert_eq!(pair.lease, LeaseGeneration::FIRST);
    let lease = LeaseRecord { node: node("owner"), nonce: 7, renewed_unix_ms: 1 };
    assert!(shop.write(plan::renew_lease(&pair, &lease, TTL)));
    shop.wait(TTL);
    assert!(!shop.write(plan::renew_lease(&pair, &lease, TTL)));
    assert!(shop.read(lease_key(&pair)).is_none());
}
