//! Faults that systems of this kind shipped and later fixed, each on a hand-made schedule and named after its number. The
//! oracles look on; `World::end` heals and checks the rest.

use rehome::chunk::Assembly;
use rehome::id::{NodeGeneration, RelocationId, RoutingId};
use rehome::machine::settlement::{
    RecordSeen, TargetAsk, TargetSettlement, TargetSettlementInput, TargetTenure, TargetVerdict, WriteSeen,
};
use rehome::node::{
    CallError, CallId, CallResult, HostCommand, KeptReason, MoveOutcome, RefusedReason, Ticket, UserRequest,
};
use rehome::store::{StoreCommand, StoreReply};
use rehome::wire::{Cutover, FailureCode, Prepare, Record};
use rehome::{Input, Rope};
use rehome_tests::{HostFault, RecordFault, StoreFault, World, commits, reads_lease, reads_record};
use std::cell::Cell;
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

fn kept(world: &World, call: CallId) -> KeptReason {
    let MoveOutcome::KeptSource { reason, .. } = outcome(world, call) else { panic!("{:?}", outcome(world, call)) };
    *reason
}

fn answered(world: &World, call: CallId) {
    assert!(matches!(world.result(call), Some(CallResult::Answered(Ok(_)))), "{:?}", world.result(call));
}

fn is_cutover(record: &Record) -> bool {
    matches!(record, Record::Cutover(_))
}

fn is_restore(command: &HostCommand) -> bool {
    matches!(command, HostCommand::Restore { .. })
}

fn cutover_sent(world: &World) -> bool {
    world.has_sent(0, is_cutover)
}

fn owner_generation(world: &mut World) -> u64 {
    world.record(0).map_or(0, |found| found.record.owner_generation.get())
}

fn key(object: usize) -> rehome::fence::ObjectKey {
    rehome::fence::ObjectKey::actor(rehome::id::ObjectId::new(&format!("object-{object}")).expect("a valid id"))
}

fn reclaim() -> UserRequest {
    UserRequest::Reclaim { object: key(0), arguments: bytes::Bytes::new() }
}

fn prepares(world: &World) -> Vec<Prepare> {
    let of = |record: &Record| if let Record::Prepare(prepare) = record { Some(prepare.clone()) } else { None };
    world.sent_records().iter().filter_map(|(_, record)| of(record)).collect()
}

fn cutovers(world: &World) -> Vec<Cutover> {
    let of = |record: &Record| if let Record::Cutover(cutover) = record { Some(cutover.clone()) } else { None };
    world.sent_records().iter().filter_map(|(_, record)| of(record)).collect()
}

#[test]
fn trap_01_a_time_out_is_no_permission() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(3, RecordFault::Lose, |_, record| is_cutover(record));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(2500));
    assert_eq!(owner_generation(&mut world), 1, "the cutover wait has passed twice, and nothing was committed");
    assert!(world.result(call).is_none(), "and nothing rolled back");
    world.advance(ms(2000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_02_a_failed_submission_rolls_nothing_back() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::Slow(ms(200)), |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    world.advance(ms(2));
    // The target commits; the source loses the connection and cannot know.
    world.part(0, 1);
    world.advance(ms(1000));
    moved(&world, call);
    world.join(0, 1);
    world.end();

    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(1, RecordFault::Cut, |_, record| is_cutover(record));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(3000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_03_a_second_move_right_after_does_not_hide_the_first() {
    let mut world = World::quiet(3, 1, |_| {});
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    world.store_fault(u32::MAX, StoreFault::Lost, |node, command| node == 0 && reads_record(command));
    assert!(world.until_true(ms(2000), |world| world.owner_of(0) == Some(0)
        && world.node(1).is_some_and(|n| n.objects().count() == 1)));
    let second = world.relocate(1, 0, 2);
    world.advance(ms(1000));
    moved(&world, second);
    assert!(world.result(call).is_none(), "the first source cannot read yet");
    world.no_faults();
    world.advance(ms(4000));
    // A later third owner is no address to follow to.
    assert!(matches!(outcome(&world, call), MoveOutcome::Moved { route: None, .. }), "{:?}", outcome(&world, call));
    world.end();
}

#[test]
fn trap_04_a_restarted_node_is_another_owner() {
    let mut world = World::quiet(2, 1, |_| {});
    world.kill(0);
    world.advance(ms(100));
    world.restart(0);
    world.advance(ms(1000));
    assert_eq!(world.owner_of(0), None, "the new run does not own what the old one did");
    let early = world.call(0, reclaim());
    world.advance(ms(500));
    assert_eq!(world.result(early), Some(&CallResult::Created(Err(CallError::OwnerAlive))), "its lease lives on");
    world.advance(ms(16_000));
    let late = world.call(0, reclaim());
    world.advance(ms(500));
    assert!(matches!(world.result(late), Some(CallResult::Created(Ok(_)))));
    world.end();
}

#[test]
fn trap_05_no_follow_toward_a_later_third_owner() {
    let mut world = World::quiet(3, 1, |_| {});
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    world.store_fault(1, StoreFault::Lost, |node, command| node == 0 && reads_record(command));
    world.advance(ms(20));
    let second = world.relocate(1, 0, 2);
    let waiting: Vec<_> = (0..5).map(|_| world.ask(1, 0, ms(9000))).collect();
    world.advance(ms(5000));
    moved(&world, second);
    assert!(matches!(outcome(&world, call), MoveOutcome::Moved { route: None, .. }));
    for call in waiting {
        answered(&world, call);
    }
    world.end();
}

#[test]
fn trap_06_an_unreadable_lease_has_not_ended() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(u32::MAX, StoreFault::Lost, |_, command| commits(command));
    let call = world.relocate_within(0, 0, 1, ms(2000));
    assert!(world.until_true(ms(1000), cutover_sent));
    world.store_fault(2, StoreFault::Lost, |node, command| node == 0 && reads_lease(command));
    world.advance(ms(5000));
    assert!(world.result(call).is_none(), "unreadable is not ended, and no permission to fence either");
    world.advance(ms(6000));
    assert_eq!(kept(&world, call), KeptReason::Fenced);
    world.end();
}

#[test]
fn trap_07_no_number_of_tries_ends_an_undecided_commit() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(100, StoreFault::Conflict, |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(9000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_08_our_own_conflicting_write_is_read_again() {
    let mut world = World::quiet(2, 1, |_| {});
    // The first commit takes effect while the second one, sent because nothing was known, is on its way.
    world.store_fault(1, StoreFault::Applied(ms(3200)), |_, command| commits(command));
    world.store_fault(1, StoreFault::Slow(ms(1000)), |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(6000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_09_what_fails_after_the_commit_strands_nothing() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(2, HostFault::Fail, |_, command| matches!(command, HostCommand::Retire { .. }));
    let there = world.relocate(0, 0, 1);
    world.advance(ms(500));
    let back = world.relocate(1, 0, 0);
    world.advance(ms(500));
    moved(&world, there);
    moved(&world, back);
    assert_eq!(world.owner_of(0), Some(0));
    world.end();
}

#[test]
fn trap_10_a_second_attempt_is_told_from_the_first() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(20, RecordFault::Again(ms(30)), |_, _| true);
    world.host_fault(1, HostFault::Fail, |_, command| is_restore(command));
    let first = world.relocate(0, 0, 1);
    world.advance(ms(20));
    assert!(matches!(kept(&world, first), KeptReason::TargetFailed(_)));
    let second = world.relocate(0, 0, 1);
    world.advance(ms(2000));
    moved(&world, second);
    let all = prepares(&world);
    let (first, last) = (all.first().expect("a prepare"), all.last().expect("a prepare"));
    assert_ne!(first.identity.relocation, last.identity.relocation);
    assert_ne!(first.identity.attempt, last.identity.attempt);
    world.end();
}

#[test]
fn trap_11_there_and_back_before_the_source_looks() {
    let mut world = World::quiet(2, 1, |_| {});
    let there = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    // The first look of the first source is answered after everything is over.
    world.store_fault(1, StoreFault::Lost, |node, command| node == 0 && reads_record(command));
    world.host_fault(1, HostFault::Slow(ms(500)), |_, command| matches!(command, HostCommand::Retire { .. }));
    world.advance(ms(20));
    let back = world.relocate(1, 0, 0);
    world.advance(ms(1000));
    moved(&world, back);
    assert!(world.result(there).is_none());
    let asked = world.ask(1, 0, ms(8000));
    world.advance(ms(5000));
    moved(&world, there);
    answered(&world, asked);
    assert_eq!(world.owner_of(0), Some(0), "the late retirement removes the old tenure only");
    world.end();
}

#[test]
fn trap_11_an_older_attempt_does_not_take_a_newer_commit_for_its_own() {
    let mut world = World::quiet(2, 1, |_| {});
    let before = world.record(0).expect("a record");
    let call = world.relocate(0, 0, 1);
    world.advance(ms(500));
    moved(&world, call);
    let after = world.record(0).expect("a record");
    let tenure = TargetTenure {
        generation: after.record.generation,
        owner_generation: after.record.owner_generation,
        owner: after.record.owner.clone(),
        expected: before.version,
        relocation: RelocationId::new(77).expect("not zero"),
    };
    let mut older = TargetSettlement::new(tenure);
    assert!(matches!(older.step(true, TargetSettlementInput::Poll), Ok((Some(TargetAsk::Submit), None))));
    let step = older.step(true, TargetSettlementInput::Submitted(WriteSeen::Conflict));
    assert!(matches!(step, Ok((Some(TargetAsk::ReadRecord), None))));
    let step = older.step(true, TargetSettlementInput::Record(RecordSeen::Found(Box::new(after))));
    assert!(matches!(step, Ok((None, Some(TargetVerdict::Excluded)))), "{step:?}");
    world.end();
}

#[test]
fn trap_11_a_store_reply_answers_its_own_ticket_only() {
    let mut world = World::quiet(2, 1, |_| {});
    let read = StoreCommand::Read(rehome::store::record::authority_key(&key(0)));
    let stale = world.store_now(&read);
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    for ticket in 0..200 {
        // "You own it", from before the move, for tickets that are over or were never given.
        if !(3..=100).contains(&ticket) {
            world.input(0, Input::Store { ticket: Ticket(ticket), reply: stale.clone() });
            world.input(1, Input::Store { ticket: Ticket(ticket), reply: StoreReply::Missing });
        }
    }
    assert!(world.node(0).is_some_and(|node| node.counters().stale_tickets > 100));
    world.advance(ms(1000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_11_an_older_look_at_the_record_does_not_answer_the_settlement() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(1, RecordFault::Late(ms(1500)), |_, record| is_cutover(record));
    world.record_fault(2, RecordFault::Lose, |_, record| is_cutover(record));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(100));
    // The look of the waiting stage is answered while the first read of its settlement is out.
    world.store_fault(1, StoreFault::Slow(ms(1000)), |node, command| node == 1 && reads_record(command));
    world.store_fault(1, StoreFault::Slow(ms(1500)), |node, command| node == 1 && reads_record(command));
    world.advance(ms(2200));
    let stale = world.node(1).map(|node| (node.counters().stale_tickets, node.held().stages));
    assert_eq!(stale, Some((1, 1)), "the older answer was taken for the newer one");
    world.advance(ms(2000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_12_routing_ids_are_bytes() {
    let id = |bytes: &[u8]| RoutingId::new(bytes.to_vec()).expect("a valid id");
    // Both would print as the replacement character.
    assert_ne!(id(&[0xFF]), id(&[0xFE]));
    assert_ne!(id(&[0xFF]), id("\u{FFFD}".as_bytes()));
    assert_eq!(id(b"n1"), id("n1".as_bytes()));
}

#[test]
fn trap_13_generations_compare_as_numbers_of_64_bits() {
    let generation = |value| NodeGeneration::new(value).expect("in range");
    // Equal as doubles.
    assert_ne!(generation(9_007_199_254_740_993), generation(9_007_199_254_740_992));
    let mut world = World::quiet(2, 1, |_| {});
    let record = world.record(0).expect("a record").record;
    let again = rehome::store::record::AuthorityRecord::decode(&record.encode());
    assert_eq!(again.ok(), Some(record));
    world.end();
}

#[test]
fn trap_14_a_prepare_of_other_bytes_is_refused_and_replaces_nothing() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(300)), |_, command| is_restore(command));
    world.record_fault(1, RecordFault::Lose, |node, record| node == 1 && matches!(record, Record::Failed(_)));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    let mut other = prepares(&world).first().cloned().expect("a prepare");
    other.checksum ^= 1;
    world.inject(0, 1, Record::Prepare(other.clone()));
    assert!(
        world.has_sent(1, |record| matches!(record, Record::Failed(failed) if failed.code == FailureCode::DATA_LOST))
    );
    assert_eq!(world.node(1).map(|node| node.held().stages), Some(1), "the running assembly is untouched");
    world.advance(ms(2000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_15_a_forgotten_terminal_does_not_begin_again() {
    let mut world = World::quiet(2, 3, |config| config.limits.terminal_memory = 1);
    world.record_fault(1, RecordFault::Again(ms(3000)), |_, record| matches!(record, Record::Prepare(_)));
    let first = world.relocate(0, 0, 1);
    world.advance(ms(500));
    moved(&world, first);
    let other = world.relocate(0, 2, 1);
    world.advance(ms(500));
    moved(&world, other);
    let back = world.relocate(1, 0, 0);
    world.advance(ms(500));
    moved(&world, back);
    // The first prepare comes again, and nobody remembers it: the record no longer fits.
    world.advance(ms(3000));
    assert_eq!(world.node(1).map(|node| node.held().stages), Some(0));
    assert_eq!(world.owner_of(0), Some(0));
    world.end();
}

#[test]
fn trap_15_a_remembered_terminal_answers_again() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(1, RecordFault::Again(ms(700)), |_, record| matches!(record, Record::Prepare(_)));
    world.host_fault(1, HostFault::Fail, |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(500));
    assert!(matches!(kept(&world, call), KeptReason::TargetFailed(_)));
    world.advance(ms(500));
    assert_eq!(world.node(1).map(|node| node.held().stages), Some(0), "an ended move does not begin again");
    world.end();
}

#[test]
fn trap_16_the_whole_batch_is_sent_again() {
    for broken in 0..6 {
        let mut world = World::quiet(2, 1, |_| {});
        world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
        let seen = Cell::new(0);
        world.record_fault(1, RecordFault::Cut, move |_, record| {
            let data = matches!(record, Record::Data(_)) || is_cutover(record);
            seen.set(seen.get() + i32::from(data));
            data && seen.get() == broken + 1
        });
        let call = world.relocate(0, 0, 1);
        world.advance(ms(20));
        // Five records of boundary.
        for _ in 0..5 {
            world.send_to(0, 0);
        }
        world.advance(ms(4000));
        moved(&world, call);
        assert_eq!(world.turns(), 5);
        world.end();
    }
}

#[test]
fn trap_16_a_batch_is_of_one_connection() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    for _ in 0..5 {
        world.send_to(0, 0);
    }
    // The batch arrives on the first connection and its cutover, alone, on the next one; what is sent again is lost.
    world.record_fault(1, RecordFault::Late(ms(700)), |_, record| is_cutover(record));
    assert!(world.until_true(ms(1000), cutover_sent));
    world.advance(ms(5));
    world.record_fault(12, RecordFault::Lose, |_, record| matches!(record, Record::Data(_)) || is_cutover(record));
    world.cut_once(0, 1);
    world.advance(ms(800));
    assert_eq!(owner_generation(&mut world), 1, "a cutover without its batch proves nothing");
    world.advance(ms(4000));
    moved(&world, call);
    assert_eq!(world.turns(), 5);
    world.end();
}

#[test]
fn trap_17_a_cutover_while_the_target_observes_is_taken() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(1, RecordFault::Late(ms(1500)), |_, record| is_cutover(record));
    world.record_fault(2, RecordFault::Lose, |_, record| is_cutover(record));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(100));
    world.store_fault(1, StoreFault::Slow(ms(2000)), |node, command| node == 1 && reads_record(command));
    world.advance(ms(1800));
    assert_eq!(owner_generation(&mut world), 2, "the look at the store was still out");
    world.advance(ms(2000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_18_the_boundary_is_applied_once_after_the_commit() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
    world.store_fault(1, StoreFault::ReplyLost, |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    for _ in 0..5 {
        world.send_to(1, 0);
    }
    world.advance(ms(1000));
    assert_eq!(world.turns(), 0, "not before the commit is sure");
    world.advance(ms(4000));
    moved(&world, call);
    assert_eq!(world.turns(), 5);
    world.end();
}

#[test]
fn trap_19_saved_work_is_no_boundary_and_late_messages_are_no_duplicates() {
    let mut world = World::quiet(2, 1, |_| {});
    world.slow_turn(ms(100));
    for _ in 0..5 {
        world.send_to(0, 0);
    }
    world.advance(ms(2));
    world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(120));
    for _ in 0..3 {
        world.send_to(0, 0);
    }
    world.store_fault(1, StoreFault::Slow(ms(200)), |_, command| commits(command));
    assert!(world.until_true(ms(1000), cutover_sent));
    for _ in 0..3 {
        world.send_to(0, 0);
    }
    assert_eq!(cutovers(&world).first().map(|cutover| cutover.record_count), Some(3));
    world.advance(ms(3000));
    moved(&world, call);
    assert_eq!(world.turns(), 11);
    world.end();
}

#[test]
fn trap_20_a_moved_request_is_answered_once_though_its_answer_is_lost() {
    let mut world = World::quiet(3, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    world.record_fault(6, RecordFault::Lose, |_, record| matches!(record, Record::ReplyRelay(_)));
    world.record_fault(3, RecordFault::Lose, |_, record| matches!(record, Record::ReplyRelayAck(_)));
    let asked: Vec<_> = (0..3).map(|_| world.ask(2, 0, ms(5000))).collect();
    world.advance(ms(3000));
    moved(&world, call);
    for call in asked {
        answered(&world, call);
    }
    assert_eq!(world.turns(), 3);
    world.end();
}

#[test]
fn trap_20_a_move_does_not_start_a_deadline_anew() {
    let mut world = World::quiet(3, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(600)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    let asked = world.ask(2, 0, ms(300));
    world.advance(ms(2000));
    moved(&world, call);
    assert!(matches!(world.result(asked), Some(CallResult::Answered(Err(_)))));
    assert_eq!(world.turns(), 0);
    world.end();
}

#[test]
fn trap_23_what_was_held_goes_before_what_is_new() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(50)), |_, command| is_restore(command));
    world.host_fault(1, HostFault::Fail, |_, command| is_restore(command));
    let call = world.relocate_within(0, 0, 1, ms(30));
    for _ in 0..100 {
        world.advance(ms(1));
        world.send_to(1, 0);
    }
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { .. }));
    let again = world.relocate(0, 0, 1);
    for _ in 0..100 {
        world.advance(ms(1));
        world.send_to(1, 0);
    }
    world.advance(ms(1000));
    assert!(matches!(outcome(&world, again), MoveOutcome::KeptSource { .. } | MoveOutcome::Moved { .. }));
    assert_eq!((world.turns(), world.count("order gap")), (200, 0));
    world.end();
}

#[test]
fn trap_24_one_failing_retirement_stops_no_other() {
    let mut world = World::quiet(2, 4, |_| {});
    world.host_fault(1, HostFault::Fail, |_, command| matches!(command, HostCommand::Retire { .. }));
    let calls = [world.relocate(0, 0, 1), world.relocate(0, 2, 1)];
    world.advance(ms(1000));
    for call in calls {
        moved(&world, call);
    }
    world.end();
}

#[test]
fn trap_25_a_cancelled_move_gives_its_budget_back() {
    let mut world = World::quiet(2, 1, |config| {
        config.limits.peer_budget = 64;
        config.limits.chunk = 8;
    });
    for step in 0..40 {
        let call = world.relocate(0, 0, 1);
        world.advance(Duration::from_micros(100 * step));
        world.call(0, UserRequest::CancelMove { relocate: call });
        world.advance(ms(600));
        if !matches!(outcome(&world, call), MoveOutcome::Moved { .. }) {
            continue;
        }
        let back = world.relocate(1, 0, 0);
        world.advance(ms(600));
        moved(&world, back);
    }
    let held = world.node(0).map(rehome::Node::held);
    assert_eq!(held.map(|held| (held.budget_bytes, held.moves)), Some((0, 0)));
    world.end();
}

#[test]
fn trap_26_shutdown_waits_for_a_verified_cutover() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::Slow(ms(1000)), |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    world.advance(ms(50));
    let down = world.call(1, UserRequest::Shutdown { timeout: ms(8000) });
    world.advance(ms(300));
    assert!(world.result(down).is_none(), "the lease is not given back while the commit is undecided");
    world.advance(ms(2000));
    assert_eq!(world.result(down), Some(&CallResult::ShutDown));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_26_shutdown_does_not_wait_for_a_stage_without_a_cutover() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(3000)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(100));
    let down = world.call(1, UserRequest::Shutdown { timeout: ms(8000) });
    world.advance(ms(200));
    assert_eq!(world.result(down), Some(&CallResult::ShutDown));
    world.advance(ms(500));
    assert!(matches!(outcome(&world, call), MoveOutcome::KeptSource { .. }));
    world.end();
}

#[test]
fn trap_26_a_settling_source_keeps_its_lease() {
    let mut world = World::quiet(2, 1, |_| {});
    world.store_fault(1, StoreFault::Slow(ms(1000)), |_, command| commits(command));
    let call = world.relocate(0, 0, 1);
    assert!(world.until_true(ms(1000), cutover_sent));
    let down = world.call(0, UserRequest::Shutdown { timeout: ms(8000) });
    world.advance(ms(300));
    assert!(world.result(down).is_none(), "an undecided move needs its source's lease");
    world.advance(ms(2000));
    moved(&world, call);
    world.end();
}

#[test]
fn trap_27_a_target_in_shutdown_takes_no_prepare() {
    let mut world = World::quiet(2, 2, |_| {});
    world.slow_turn(ms(1500));
    world.send_to(1, 1);
    world.advance(ms(5));
    let down = world.call(1, UserRequest::Shutdown { timeout: ms(8000) });
    let call = world.relocate(0, 0, 1);
    world.advance(ms(500));
    assert!(world.result(down).is_none());
    assert!(matches!(kept(&world, call), KeptReason::TargetFailed(_)));
    assert_eq!(world.node(1).map(|node| node.held().stages), Some(0));
    world.end();
}

#[test]
fn trap_28_a_failing_hook_is_reported() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Fail, |_, command| matches!(command, HostCommand::Discard { .. }));
    world.record_fault(10, RecordFault::Lose, |_, record| is_cutover(record));
    world.store_fault(u32::MAX, StoreFault::Lost, |_, command| commits(command));
    let call = world.relocate_within(0, 0, 1, ms(500));
    world.advance(ms(6000));
    assert_eq!(kept(&world, call), KeptReason::Fenced);
    assert_eq!(world.count("host failure reported"), 1, "the target's copy could not be dropped, and that was said");
    world.end();
}

#[test]
fn trap_29_no_timer_stays_behind() {
    let mut world = World::quiet(2, 1, |_| {});
    let call = world.relocate(0, 0, 1);
    world.send_to(0, 0);
    world.advance(ms(60_000));
    moved(&world, call);
    for node in 0..2 {
        let timers = world.node(node).map(|node| node.held().timers);
        assert!(timers.is_some_and(|timers| timers <= 2), "n{node}: {timers:?}; a lease has two");
    }
    world.end();
}

#[test]
fn trap_30_a_late_answer_of_the_first_attempt_does_not_complete_the_second() {
    let mut world = World::quiet(2, 1, |_| {});
    world.record_fault(1, RecordFault::Late(ms(300)), |_, record| matches!(record, Record::Ready(_)));
    let first = world.relocate(0, 0, 1);
    world.advance(ms(50));
    world.call(0, UserRequest::CancelMove { relocate: first });
    world.advance(ms(5));
    assert_eq!(kept(&world, first), KeptReason::Cancelled);
    world.host_fault(1, HostFault::Slow(ms(1000)), |_, command| is_restore(command));
    let second = world.relocate(0, 0, 1);
    world.advance(ms(700));
    assert!(!cutover_sent(&world), "the second target is not ready");
    world.advance(ms(1500));
    moved(&world, second);
    world.end();
}

#[test]
fn trap_31_an_announced_length_is_not_believed() {
    let mut world = World::quiet(2, 1, |_| {});
    let call = world.relocate(0, 0, 1);
    world.advance(ms(500));
    moved(&world, call);
    let mut huge = prepares(&world).first().cloned().expect("a prepare");
    huge.identity.relocation = RelocationId::new(5).expect("not zero");
    huge.total_length = u64::MAX;
    huge.chunk_count = 4096;
    world.inject(0, 1, Record::Prepare(huge));
    world.advance(ms(1000));
    assert_eq!(world.node(1).map(|node| node.held().stages), Some(0), "its record does not fit");
    world.end();
}

#[test]
fn trap_32_chunks_come_once_in_order_and_fill_the_length() {
    let chunk = |bytes: &'static [u8]| Rope::from(bytes::Bytes::from_static(bytes));
    let sum = crc(b"abcdef");
    let new = || Assembly::new(6, 2, sum).expect("a valid announcement");
    assert!(new().push(1, chunk(b"def")).is_err(), "out of order");
    let mut twice = new();
    assert!(twice.push(0, chunk(b"abc")).is_ok());
    assert!(twice.push(0, chunk(b"abc")).is_err(), "twice");
    let mut short = new();
    assert!(short.push(0, chunk(b"abc")).is_ok());
    assert!(short.push(1, chunk(b"de")).is_err(), "too short at the end");
    let mut long = new();
    assert!(long.push(0, chunk(b"abcdefg")).is_err(), "too long");
    let mut beyond = new();
    assert!(beyond.push(0, chunk(b"abc")).is_ok());
    assert!(beyond.push(1, chunk(b"def")).is_ok());
    assert!(beyond.push(2, chunk(b"g")).is_err(), "beyond the count");
}

fn crc(bytes: &'static [u8]) -> u32 {
    rehome::state::Captured::from(bytes::Bytes::from_static(bytes)).crc
}

#[test]
fn trap_33_too_much_state_is_refused_before_the_object_stops() {
    let mut world = World::quiet(2, 1, |config| {
        for offered in config.types.values_mut() {
            offered.state_limit = 10;
        }
    });
    let call = world.relocate(0, 0, 1);
    world.advance(ms(100));
    assert!(matches!(outcome(&world, call), MoveOutcome::Refused(RefusedReason::TooLarge)));
    assert!(world.sent_records().is_empty());
    world.end();
}

#[test]
fn trap_34_a_cutover_count_does_not_wrap() {
    for count in [1u64 << 32, 1 << 16, 1 << 8, u64::MAX] {
        let mut world = World::quiet(2, 1, |_| {});
        world.record_fault(2, RecordFault::Lose, |_, record| is_cutover(record));
        let call = world.relocate(0, 0, 1);
        assert!(world.until_true(ms(1000), cutover_sent));
        let mut wide = cutovers(&world).first().cloned().expect("a cutover");
        wide.record_count = wide.record_count.wrapping_add(count);
        world.inject(0, 1, Record::Cutover(wide));
        world.advance(ms(500));
        assert_eq!(owner_generation(&mut world), 1, "{count}");
        world.advance(ms(3000));
        moved(&world, call);
        world.end();
    }
}

#[test]
fn trap_35_an_unknown_failure_code_is_a_failure() {
    let mut world = World::quiet(2, 1, |_| {});
    world.host_fault(1, HostFault::Slow(ms(300)), |_, command| is_restore(command));
    let call = world.relocate(0, 0, 1);
    world.advance(ms(20));
    let prepare = prepares(&world).first().cloned().expect("a prepare");
    let code = FailureCode::new(4_000_000_000).expect("any number is a code");
    let failed =
        rehome::wire::Failed { identity: prepare.identity, target: prepare.target, object: prepare.object, code };
    world.inject(1, 0, Record::Failed(failed));
    world.advance(ms(5));
    assert!(matches!(kept(&world, call), KeptReason::TargetFailed(_)));
    world.end();
}
