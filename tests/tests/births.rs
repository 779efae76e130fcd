//! Making and taking over objects while the store answers late, or not at all. A write whose end is not known may take
//! effect long after it was given up: it must not bring back what has gone, nor name an owner who knows nothing of it.

use bytes::Bytes;
use rehome::id::{Text8, TypeName};
use rehome::node::{CallError, CallId, CallResult, Created, Existing, UserRequest};
use rehome::store::record::descriptor_key;
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreReply};
use rehome_tests::{StoreFault, World, key, rid};
use std::time::Duration;

/// An object that nobody has made yet.
const NEW: usize = 7;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn writes(command: &StoreCommand, condition: impl Fn(&Condition) -> bool) -> bool {
    matches!(command, StoreCommand::Write(batch) if batch.conditions.iter().any(condition))
}

fn creates(command: &StoreCommand) -> bool {
    writes(command, |condition| matches!(condition, Condition::Missing(key) if key.0.starts_with(b"authority")))
}

fn reclaims(command: &StoreCommand) -> bool {
    writes(command, |condition| matches!(condition, Condition::Missing(key) if key.0.starts_with(b"lease")))
        && writes(
            command,
            |condition| matches!(condition, Condition::Version(key, _) if key.0.starts_with(b"authority")),
        )
}

fn publishes(command: &StoreCommand) -> bool {
    matches!(command, StoreCommand::Write(batch)
        if batch.mutations.iter().any(|mutation| mutation.key().0.starts_with(b"mesh-node")))
}

fn create(world: &mut World, node: usize) -> CallId {
    world.call(
        node,
        UserRequest::Create {
            object: key(NEW),
            type_name: TypeName::new("thing").expect("a valid name"),
            arguments: Bytes::new(),
            existing: Existing::Refuse,
        },
    )
}

#[track_caller]
fn created(world: &World, call: CallId) {
    let result = world.result(call);
    assert!(matches!(result, Some(CallResult::Created(Ok(Created { new: true, .. })))), "{result:?}");
}

#[track_caller]
fn unavailable(world: &World, call: CallId) {
    assert_eq!(world.result(call), Some(&CallResult::Created(Err(CallError::StoreUnavailable))));
}

#[track_caller]
fn serves(world: &mut World, node: usize, object: usize) {
    assert_eq!(world.owner_of(object), Some(node));
    let asked = world.ask(0, object, ms(5000));
    world.advance(ms(500));
    assert!(matches!(world.result(asked), Some(CallResult::Answered(Ok(_)))), "{:?}", world.result(asked));
}

#[test]
fn a_create_that_was_given_up_brings_nothing_back() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::Applied(ms(10_000)), |_, command| creates(command));
    let call = create(&mut world, 1);
    world.advance(ms(5000));
    created(&world, call);
    let delete = world.call(1, UserRequest::Delete { object: key(NEW) });
    world.advance(ms(500));
    assert_eq!(world.result(delete), Some(&CallResult::Deleted(Ok(()))));
    // The first write arrives at last.
    world.advance(ms(10_000));
    assert_eq!(world.record(NEW), None, "the deleted incarnation is back");
    world.end();
}

#[test]
fn a_create_that_outlives_its_call_still_comes_to_its_end() {
    let mut world = World::quiet(2, 1, |config| config.timing.operation = ms(6000));
    // The write is done, but its answer is lost, and for a long time nothing can be made sure of.
    world.store_fault(1, StoreFault::ReplyLost, |_, command| creates(command));
    world.store_fault(u32::MAX, StoreFault::Lost, |_, command| publishes(command));
    let call = create(&mut world, 1);
    world.advance(ms(14_000));
    unavailable(&world, call);
    assert!(world.record(NEW).is_some(), "the store names node 1");
    world.no_faults();
    world.advance(ms(5000));
    serves(&mut world, 1, NEW);
    world.end();
}

#[test]
fn a_takeover_whose_write_hangs_ends_only_when_that_is_known() {
    let mut world = World::quiet(2, 1, |config| {
        (config.timing.lease_ttl, config.timing.lease_margin) = (ms(30_000), ms(20_000));
    });
    world.kill(0);
    world.advance(ms(35_000));
    // The takeover's first write hangs, no other one is done, and so the guard passes while nobody knows.
    world.store_fault(1, StoreFault::Applied(ms(9000)), |_, command| reclaims(command));
    let written = |node, command: &StoreCommand| node == 1 && matches!(command, StoreCommand::Write(_));
    world.store_fault(u32::MAX, StoreFault::Lost, move |node, command| written(node, command));
    world.advance(ms(4000));
    let call = world.call(1, UserRequest::Reclaim { object: key(0), arguments: Bytes::new() });
    world.advance(ms(8500));
    assert_eq!(world.result(call), None, "the write has not arrived, and may yet");
    world.no_faults();
    world.advance(ms(4000));
    created(&world, call);
    world.restart(0);
    world.advance(ms(2000));
    serves(&mut world, 1, 0);
    world.end();
}

#[test]
fn a_descriptor_that_somebody_else_wrote_is_written_again() {
    let mut world = World::quiet(2, 1, |_| {});
    let descriptor = descriptor_key(&Text8::new("world").expect("a valid name"), &rid(1));
    let StoreReply::Found(found) = world.store_now(&StoreCommand::Read(descriptor.clone())) else {
        panic!("node 1 has no descriptor")
    };
    // As a hung copy of an earlier write would: the same bytes, at another version.
    let put = Mutation::Put { key: descriptor, value: found.value, ttl: None };
    world.store_now(&StoreCommand::Write(Batch { conditions: Vec::new(), mutations: vec![put] }));
    let call = create(&mut world, 1);
    world.advance(ms(500));
    created(&world, call);
    world.end();
}
