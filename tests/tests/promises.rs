//! Each promise of the protocol, on a hand-made schedule. The oracles look on; `World::end` heals and checks the rest.

use rehome::node::{CallId, CallResult, HostCommand, KeptReason, MoveOutcome, UserRequest};
use rehome::wire::Record;
use rehome_tests::{HostFault, RecordFault, StoreFault, World, commits, reads_record};
use std::time::Duration;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn outcome(world: &World, call: CallId) -> &MoveOutcome {
    match world.result(call) {
        Some(CallResult::Moved(Ok(outcome))) => outcome,
        other => panic!("no outcome: {other:?}"),
    }
}

fn moved(world: &World, call: CallId) {
    assert!(matches!(outcome(world, call), MoveOutcome::Moved { .. }), "{:?}", outcome(world, call));
}

fn cutover_sent(world: &World) -> bool {
    world.has_sent(0, |record| matches!(record, Record::Cutover(_)))
}

#[test]
fn promise_01_one_owner_though_the_old_one_wakes_past_its_lease() {
    let mut world = World::quiet(3, 1, |_| {});
    world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    for _ in 0..5 {
        world.send_to(0, 0);
    }
    world.pause(0);
    world.advance(ms(20_000));
    let asked = world.ask(2, 0, ms(3000));
    world.advance(ms(3000));
    assert!(matches!(world.result(asked), Some(CallResult::Answered(Ok(_)))), "{:?}", world.result(asked));
    world.resume(0);
    world.advance(ms(100));
    assert_eq!(world.owner_of(0), Some(1));
    world.end();
}

#[test]
fn promise_01_a_running_object_stops_with_the_guard() {
    let mut world = World::quiet(2, 1, |_| {});
    // The store is away: no renewal, and no end of the lease that anybody could read.
    world.store_fault(u32::MAX, StoreFault::Lost, |node, _| node == 0);
    world.advance(ms(8_300));
    let turns = world.turns();
    for _ in 0..3 {
        world.send_to(0, 0);
    }
    world.advance(ms(500));
    assert_eq!(world.turns(), turns, "a turn ran after the guard");
    world.no_faults();
    world.advance(ms(4000));
    assert_eq!(world.turns(), turns + 3, "it goes on when a renewal succeeds");
    world.end();
}

#[test]
fn promise_02_nothing_runs_before_the_commit_is_confirmed() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::Slow(ms(2000)), |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    let turns = world.turns();
    world.send_to(1, 0);
    world.advance(ms(1900));
    assert_eq!(world.turns(), turns);
    assert_eq!(world.record(0).map(|found| found.record.owner_generation.get()), Some(2), "committed, not confirmed");
    world.advance(ms(500));
    assert_eq!(world.turns(), turns + 1);
    moved(&world, call);
    world.end();
}

#[test]
fn promise_03_nothing_accepted_is_lost() {
    let mut world = World::quiet(3, 1, |_| {});
    world.slow_turn(ms(300));
    world.host_fault(1, HostFault::Slow(ms(300)), |_, command| matches!(command, HostCommand::Restore { .. }));
    world.store_fault(1, StoreFault::Slow(ms(300)), |_, command| commits(command));
    let mut sent = 0;
    // The first one runs for 300 ms: the others are saved work, then held, then boundary, then temporary.
    for _ in 0..4 {
        world.send_to(2, 0);
        sent += 1;
    }
    world.advance(ms(5));
    let call = world.relocate(0, 0, 1);
    for _ in 0..60 {
        world.advance(ms(20));
        world.send_to(0, 0);
        world.send_to(2, 0);
        sent += 2;
    }
    world.advance(ms(3000));
    moved(&world, call);
    assert_eq!(world.turns(), sent);
    world.end();
}

#[test]
fn promise_04_order_holds_across_flips_of_the_route() {
    let mut world = World::quiet(3, 1, |_| {});
    for round in 0..9 {
        let (from, to) = (round % 3, (round + 1) % 3);
        let call = world.relocate(from, 0, to);
        for _ in 0..30 {
            world.advance(Duration::from_micros(200));
            for node in 0..3 {
                world.send_to(node, 0);
            }
        }
        world.advance(ms(300));
        moved(&world, call);
    }
    assert_eq!(world.count("order gap"), 0);
    assert_eq!(world.turns(), 9 * 30 * 3);
    world.end();
}

#[test]
fn promise_05_every_request_ends_once_in_its_own_time() {
    let mut world = World::quiet(3, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(900)), |_, command| matches!(command, HostCommand::Restore { .. }));
    world.relocate(0, 0, 1);
    world.advance(ms(2));
    let short: Vec<_> = (0..5).map(|_| world.ask(2, 0, ms(400))).collect();
    let long: Vec<_> = (0..5).map(|_| world.ask(2, 0, ms(4000))).collect();
    let turns = world.turns();
    world.advance(ms(406));
    for call in short {
        assert!(matches!(world.result(call), Some(CallResult::Answered(Err(_)))), "{:?}", world.result(call));
    }
    world.advance(ms(3000));
    for call in long {
        assert!(matches!(world.result(call), Some(CallResult::Answered(Ok(_)))), "{:?}", world.result(call));
    }
    assert_eq!(world.turns(), turns + 5, "a request whose time is over does not run");
    world.end();
}

#[test]
fn promise_05_a_node_that_shuts_down_does_not_say_not_run_of_what_is_on_its_way() {
    let mut world = World::quiet(2, 1, |_| {});
    let sent: Vec<_> = (0..3).map(|_| world.send_to(1, 0)).collect();
    world.advance(Duration::from_micros(600));
    world.call(1, UserRequest::Shutdown { timeout: ms(1000) });
    world.advance(ms(100));
    // The oracle knows which of them ran.
    assert!(sent.iter().all(|call| world.result(*call).is_some()));
    world.end();
}

#[test]
fn promise_06_a_failing_clean_up_undoes_nothing() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Fail, |_, command| matches!(command, HostCommand::Retire { .. }));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(500));
    moved(&world, call);
    assert_eq!(world.count("host failure reported"), 1);
    assert_eq!(world.owner_of(0), Some(1));
    world.end();
}

#[test]
fn promise_07_unknown_is_not_failure() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::ReplyLost, |_, command| commits(command));
    world.store_fault(1, StoreFault::Lost, |node, command| node == 1 && reads_record(command));
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(5000), cutover_sent));
    world.store_fault(2, StoreFault::Lost, |node, command| node == 0 && reads_record(command));
    let asked = world.ask(0, 0, ms(11_000));
    world.advance(ms(11_000));
    moved(&world, call);
    assert!(matches!(world.result(asked), Some(CallResult::Answered(Ok(_)))));
    world.end();
}

#[test]
fn promise_08_whatever_comes_twice_or_late_changes_nothing() {
    let mut world = World::quiet(3, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(100)), |_, command| matches!(command, HostCommand::Restore { .. }));
    world.record_fault(60, RecordFault::Again(ms(3)), |_, _| true);
    let call = world.relocate(0, 0, 1);
    world.advance(ms(3));
    let asked: Vec<_> = (0..8).map(|_| world.ask(2, 0, ms(5000))).collect();
    world.advance(ms(400));
    moved(&world, call);
    world.no_faults();
    world.record_fault(60, RecordFault::Again(ms(2500)), |_, _| true);
    let back = world.relocate(1, 0, 0);
    world.advance(ms(4000));
    moved(&world, back);
    assert_eq!(world.turns(), 8);
    assert!(asked.iter().all(|call| matches!(world.result(*call), Some(CallResult::Answered(Ok(_))))));
    world.end();
}

#[test]
fn promise_09_a_payload_larger_than_the_budget_completes() {
    let mut world = World::quiet(2, 4, |config| {
        config.limits.peer_budget = 10;
        config.limits.node_budget = 12;
        config.limits.chunk = 7;
    });
    let calls = [world.relocate(0, 0, 1), world.relocate(0, 2, 1), world.relocate(1, 1, 0), world.relocate(1, 3, 0)];
    for _ in 0..500 {
        for object in 0..4 {
            world.send_to(0, object);
        }
    }
    world.advance(ms(12_000));
    for call in calls {
        moved(&world, call);
    }
    assert_eq!(world.turns(), 2000);
    world.end();
}

#[test]
fn promise_09_accepted_messages_pass_a_full_mailbox() {
    let mut world = World::quiet(3, 1, |config| config.limits.mailbox = 2);
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    // Held at the old owner, beyond any bound; then the new owner is slow.
    let sent: Vec<_> = (0..20).map(|_| world.send_to(0, 0)).collect();
    world.slow_turn(ms(200));
    world.advance(ms(3000));
    moved(&world, call);
    let accepted = sent.iter().filter(|call| matches!(world.result(**call), Some(CallResult::Sent(Ok(()))))).count();
    assert_eq!(accepted, 20);
    world.end();
}

#[test]
fn promise_10_every_way_to_end_gives_everything_back() {
    let mut world = World::quiet(2, 1, |config| config.limits.peer_budget = 64);
    let attempt = |world: &mut World| {
        let call = world.relocate_within(0, 0, 1, ms(1500));
        world.send_to(1, 0);
        world.advance(ms(2500));
        assert!(matches!(outcome(world, call), MoveOutcome::KeptSource { .. }), "{:?}", outcome(world, call));
        call
    };
    world.host_fault(1, HostFault::Fail, |_, command| matches!(command, HostCommand::Capture { .. }));
    let call = attempt(&mut world);
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { reason: KeptReason::CaptureFailed, .. }));
    world.host_fault(1, HostFault::Fail, |_, command| matches!(command, HostCommand::Restore { .. }));
    let call = attempt(&mut world);
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { reason: KeptReason::TargetFailed(_), .. }));
    world.record_fault(1, RecordFault::Cut, |_, record| matches!(record, Record::State(_)));
    let call = attempt(&mut world);
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { reason: KeptReason::PeerLost, .. }));
    world.host_fault(1, HostFault::Slow(ms(4000)), |_, command| matches!(command, HostCommand::Restore { .. }));
    let call = attempt(&mut world);
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { reason: KeptReason::DeadlineExceeded, .. }));
    world.advance(ms(5000));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(1000));
    moved(&world, call);
    world.end();
}
