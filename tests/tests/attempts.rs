//! Several moves of one object over the same nodes, on hand-made schedules. Several attempts would make the same tenure:
//! only the one that committed may take what is addressed to it, and none of the others once it has ended. And a node's
//! own messages stay in order though it was the owner when they were sent. And a process that outlived its lease says
//! nothing twice.

use rehome::node::{CallError, CallId, CallResult, MoveOutcome, RefusedReason, UserRequest};
use rehome::store::StoreCommand;
use rehome::wire::Record;
use rehome_tests::{RecordFault, StoreFault, World, commits, key, rid};
use std::cell::Cell;
use std::time::Duration;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[track_caller]
fn moved(world: &World, call: CallId) {
    assert!(
        matches!(world.result(call), Some(CallResult::Moved(Ok(MoveOutcome::Moved { .. })))),
        "{:?}",
        world.result(call)
    );
}

#[track_caller]
fn answered(world: &World, call: CallId) {
    assert!(matches!(world.result(call), Some(CallResult::Answered(Ok(_)))), "{:?}", world.result(call));
}

#[track_caller]
fn refused(world: &World, call: CallId, reason: RefusedReason) {
    assert_eq!(world.result(call), Some(&CallResult::Moved(Ok(MoveOutcome::Refused(reason)))));
}

fn stages(world: &World, node: usize) -> Option<usize> {
    world.node(node).map(|node| node.held().stages)
}

/// Node 2 learns that the object is at node 1, then the object goes back to node 0.
fn known_there_and_gone(world: &mut World) {
    let asked = world.ask(2, 0, ms(5000));
    world.advance(ms(20));
    answered(world, asked);
    let back = world.relocate(1, 0, 0);
    world.advance(ms(50));
    moved(world, back);
}

#[test]
fn a_losing_stage_takes_nothing_that_is_for_the_winner() {
    let mut world = World::quiet(3, 1, |_| {});
    // The first attempt is ready, and its source never hears of it.
    world.record_fault(1, RecordFault::Lose, |_, record| matches!(record, Record::Ready(_)));
    let first = world.relocate(0, 0, 1);
    world.advance(ms(20));
    world.call(0, UserRequest::CancelMove { relocate: first });
    world.advance(ms(5));
    assert!(matches!(world.result(first), Some(CallResult::Moved(Ok(MoveOutcome::KeptSource { .. })))));
    let second = world.relocate(0, 0, 1);
    world.advance(ms(50));
    moved(&world, second);
    known_there_and_gone(&mut world);
    assert_eq!(stages(&world, 1), Some(1), "the stage of the first attempt still waits");
    // Addressed to the tenure that has ended at node 1: it follows the object at once, and what comes after it by
    // another way does not overtake it.
    let asked = world.ask(2, 0, ms(5000));
    world.advance(ms(20));
    answered(&world, asked);
    world.end();
}

#[test]
fn a_late_prepare_takes_nothing_that_is_for_a_tenure_that_ended() {
    let mut world = World::quiet(3, 1, |config| config.limits.terminal_memory = 1);
    world.record_fault(1, RecordFault::Again(ms(300)), |_, record| matches!(record, Record::Prepare(_)));
    let first = world.relocate(0, 0, 1);
    world.advance(ms(50));
    moved(&world, first);
    known_there_and_gone(&mut world);
    // Node 1 forgets the first move over another one, which it refuses.
    let mut other = world
        .sent_records()
        .iter()
        .find_map(|(_, record)| if let Record::Prepare(prepare) = record { Some(prepare.clone()) } else { None })
        .expect("a prepare");
    other.identity.relocation = rehome::id::RelocationId::new(77).expect("not zero");
    world.inject(0, 1, Record::Prepare(other));
    world.advance(ms(20));
    assert_eq!(stages(&world, 1), Some(0));
    // The first prepare comes again, and the look at the store that will refuse it takes its time.
    let reads = |node, command: &StoreCommand| {
        node == 1 && matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"authority"))
    };
    world.store_fault(1, StoreFault::Slow(ms(1500)), reads);
    world.advance(ms(200));
    assert_eq!(stages(&world, 1), Some(1), "nobody remembers it");
    let asked = world.ask(2, 0, ms(5000));
    world.advance(ms(20));
    answered(&world, asked);
    world.end();
}

#[test]
fn what_a_former_owner_sent_itself_is_not_overtaken_when_the_object_is_back() {
    let mut world = World::quiet(3, 1, |_| {});
    let slow = |_, command: &StoreCommand| matches!(command, StoreCommand::Write(batch) if batch.conditions.len() >= 3);
    world.store_fault(1, StoreFault::Slow(ms(300)), slow);
    let there = world.relocate(0, 0, 1);
    let cut_over = |world: &World| {
        world.sent_records().iter().any(|(node, record)| *node == 0 && matches!(record, Record::Cutover(_)))
    };
    assert!(world.until_true(ms(1000), cut_over));
    // Held by the owner that it was sent at, and sent on along a connection that is gone.
    world.advance(ms(5));
    world.send_to(0, 0);
    world.part(0, 1);
    world.advance(ms(600));
    moved(&world, there);
    let on = world.relocate(1, 0, 2);
    world.advance(ms(100));
    moved(&world, on);
    let back = world.relocate(2, 0, 0);
    world.advance(ms(100));
    moved(&world, back);
    // The object is here again, and the first message is not.
    assert_eq!((world.owner_of(0), world.turns()), (Some(0), 0));
    world.send_to(0, 0);
    world.advance(ms(100));
    assert_eq!(world.turns(), 0, "the second message does not run before the first");
    world.join(0, 1);
    world.advance(ms(2000));
    assert_eq!(world.turns(), 2);
    world.end();
}

#[test]
fn a_generation_that_is_over_does_not_come_back_and_say_everything_again() {
    let mut world = World::quiet(2, 1, |_| {});
    world.send_to(1, 0);
    // It has arrived and run, and the connection ends before anybody has acknowledged it.
    assert!(world.until_true(ms(15), |world| world.turns() == 1));
    world.part(0, 1);
    // The sender's process stops until its lease has ended and the owner has read that.
    world.pause(1);
    world.advance(ms(20_000));
    assert_eq!(world.turns(), 1);
    // It wakes, and connects before it looks at its lease.
    world.store_fault(u32::MAX, StoreFault::Lost, |node, _| node == 1);
    world.join(0, 1);
    world.resume(1);
    world.advance(ms(2000));
    assert_eq!(world.turns(), 1, "the same message ran again");
    world.end();
}

#[test]
fn a_source_need_not_poll_for_a_target_that_is_open() {
    let mut world = World::quiet(2, 1, |config| config.timing.source_poll = (ms(3000), ms(3000)));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(50));
    moved(&world, call);
    // Without the hint its own poll tells the source.
    let readies = Cell::new(0);
    world.record_fault(1, RecordFault::Lose, move |_, record| {
        readies.set(readies.get() + i32::from(matches!(record, Record::Ready(_))));
        readies.get() == 2
    });
    let back = world.relocate(1, 0, 0);
    world.advance(ms(50));
    assert_eq!((world.owner_of(0), world.result(back)), (Some(0), None));
    world.advance(ms(3000));
    moved(&world, back);
    world.end();
}

/// The commit is done, and its answer takes its time: the source has read that the object has moved while the target
/// does not know yet.
fn moved_and_not_open(world: &mut World) {
    world.store_fault(1, StoreFault::Slow(ms(400)), |node, command| node == 1 && commits(command));
    let there = world.relocate(0, 0, 1);
    world.advance(ms(250));
    moved(world, there);
    assert_eq!(stages(world, 1), Some(1));
}

#[test]
fn a_move_on_that_is_asked_for_before_the_target_knows_waits_for_it() {
    let mut world = World::quiet(3, 1, |_| {});
    moved_and_not_open(&mut world);
    let on = world.relocate(1, 0, 2);
    let too_late = world.call(1, UserRequest::Relocate { object: key(0), target: rid(2), timeout: Some(ms(20)) });
    let cancelled = world.relocate(1, 0, 2);
    world.advance(ms(50));
    assert_eq!(world.result(on), None, "it waits");
    refused(&world, too_late, RefusedReason::DeadlineExceeded);
    world.call(1, UserRequest::CancelMove { relocate: cancelled });
    world.advance(ms(500));
    refused(&world, cancelled, RefusedReason::Cancelled);
    moved(&world, on);
    assert_eq!(world.owner_of(0), Some(2));
    world.end();
}

#[test]
fn a_move_on_that_waits_ends_with_a_shutdown() {
    let mut world = World::quiet(3, 1, |_| {});
    moved_and_not_open(&mut world);
    let on = world.relocate(1, 0, 2);
    world.call(1, UserRequest::Shutdown { timeout: ms(5000) });
    world.advance(ms(50));
    refused(&world, on, RefusedReason::ShuttingDown);
    world.end();
}

#[test]
fn a_refusal_that_comes_after_the_route_went_on_is_not_left_behind() {
    let mut world = World::quiet(3, 1, |config| {
        config.timing.follow = ms(500);
        config.timing.operation = Duration::from_secs(3);
    });
    let there = world.relocate(0, 0, 1);
    world.advance(ms(50));
    moved(&world, there);
    known_there_and_gone(&mut world);
    // Node 1 stops, and node 2 still believes that the object is there.
    world.pause(1);
    let asked = [world.ask(2, 0, ms(20_000)), world.ask(2, 0, ms(20_000))];
    // The object comes to node 2 itself, whose marker to node 1 is not answered in time.
    let here = world.relocate(0, 0, 2);
    world.advance(ms(6000));
    moved(&world, here);
    assert_eq!((world.result(asked[0]), world.count("order gap")), (None, 1), "the route has gone on");
    // Node 1 wakes, forwards nothing any more, and refuses both.
    world.resume(1);
    world.advance(ms(1000));
    answered(&world, asked[0]);
    answered(&world, asked[1]);
    world.end();
}

#[test]
fn what_another_node_has_may_have_run_when_its_sender_shuts_down() {
    let mut world = World::quiet(2, 1, |_| {});
    world.slow_turn(ms(2000));
    let asked = world.ask(1, 0, ms(10_000));
    world.advance(ms(100));
    // The turn runs at node 0; node 1 is told to end, and nobody can take back what it has sent.
    world.call(1, UserRequest::Shutdown { timeout: ms(200) });
    world.advance(ms(1000));
    let ended = world.result(asked);
    assert!(matches!(ended, Some(CallResult::Answered(Err(CallError::MayHaveRun(_))))), "{ended:?}");
    world.end();
}

#[test]
fn a_sender_whose_old_owner_follows_no_more_counts_a_gap() {
    let mut world = World::quiet(3, 1, |config| config.timing.follow = ms(200));
    // The route has taken a message, so that nobody can tell any more how far what it took has come.
    world.send_to(2, 0);
    world.advance(ms(20));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(1000));
    moved(&world, call);
    assert_eq!(world.count("order gap"), 0);
    world.send_to(2, 0);
    world.advance(ms(200));
    assert_eq!((world.turns(), world.count("order gap")), (2, 1));
    world.end();
}
