//! The machines alone: what the settlements conclude from what they read, and what each machine does with each input in
//! each state. The rules are named after the faults that systems of this kind shipped.

// A test looks at one answer and lets the others pass.
#![allow(clippy::wildcard_enum_match_arm)]

use bytes::Bytes;
use rehome::fence::{CoordinatorFence, NodeFence, ObjectIdentity, ObjectKind, OwnerPair, PeerFence};
use rehome::id::{
    LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId, RelocationId, RoutingId,
    StoreVersion, Text8, TypeName,
};
use rehome::machine::settlement::{
    LeaseSeen, RecordSeen, SourceAsk, SourceTenure, TargetAsk, TargetSettlement, TargetSettlementInput, TargetTenure,
    TargetVerdict, WriteSeen,
};
use rehome::machine::source::{Source, SourceEffect, SourceEffects, SourceInput, SourceTimer};
use rehome::machine::target::{Facts, Limits, Target, TargetEffect, TargetEffects, TargetInput, TargetTimer};
use rehome::node::{Conn, KeptReason};
use rehome::store::record::{Authority, AuthorityRecord, Slot};
use rehome::wire::{
    ApplicationState, Destination, FailureCode, FrozenRecord, Message, Payload, SavedState, Sender, SourceIdentity,
    StreamContents, encode_stream, frozen_crc,
};
use std::fmt::Write as _;

fn pair(name: &str, lease: u64) -> OwnerPair {
    OwnerPair { owner: OwnerId::new(name).expect("an id"), lease: LeaseGeneration::new(lease).expect("a lease") }
}

fn node(name: &str) -> NodeFence {
    NodeFence { rid: RoutingId::new(name.as_bytes().to_vec()).expect("an id"), generation: NodeGeneration::FIRST }
}

fn peer(name: &str) -> PeerFence {
    PeerFence { node: node(name), owner: pair(name, 1) }
}

fn relocation(id: u128) -> RelocationId {
    RelocationId::new(id).expect("not zero")
}

fn version(text: &str) -> StoreVersion {
    StoreVersion::new(text).expect("a version")
}

fn generation(number: u64) -> OwnerGeneration {
    OwnerGeneration::new(number).expect("a generation")
}

/// The record of an incarnation, as a read shows it.
fn record(incarnation: u64, owner_generation: u64, owner: &PeerFence, by: Option<u128>, at: &str) -> RecordSeen {
    RecordSeen::Found(Box::new(Authority {
        record: AuthorityRecord {
            slot: Slot { tenure_by: by.map(relocation), application: Bytes::new() },
            generation: ObjectGeneration::new(incarnation).expect("a generation"),
            owner_generation: generation(owner_generation),
            owner: owner.owner.clone(),
            stable_type: TypeName::new("thing").expect("a name"),
            kind: ObjectKind::Actor,
            mesh: Text8::new("mesh").expect("a name"),
            node: owner.node.clone(),
        },
        version: version(at),
    }))
}

const SOURCE: &str = "source";
const TARGET: &str = "target";

fn ours() -> RecordSeen {
    record(1, 5, &peer(SOURCE), None, "v1")
}

struct SourceRig {
    machine: Source,
}

impl SourceRig {
    fn waiting() -> Self {
        let (machine, _) = Source::start();
        Self { machine }
    }

    fn step(&mut self, input: SourceInput) -> SourceEffects {
        self.step_with(true, input)
    }

    fn step_with(&mut self, guard: bool, input: SourceInput) -> SourceEffects {
        self.machine.step(guard, input, |version| SourceTenure {
            generation: ObjectGeneration::FIRST,
            owner_generation: generation(5),
            owner: pair(SOURCE, 1),
            version,
            relocation: relocation(7),
            target: peer(TARGET),
        })
    }

    fn sealing() -> Self {
        let mut rig = Self::waiting();
        rig.step(SourceInput::Size { fits: true });
        rig.step(SourceInput::Budget);
        rig.step(SourceInput::Record(ours()));
        rig
    }

    fn capturing() -> Self {
        let mut rig = Self::sealing();
        rig.step(SourceInput::TurnsEnded);
        rig
    }

    fn transferring() -> Self {
        let mut rig = Self::capturing();
        rig.step(SourceInput::Captured);
        rig
    }

    fn unguarded() -> Self {
        let mut rig = Self::transferring();
        rig.step_with(false, SourceInput::Ready);
        rig
    }

    fn cutover() -> Self {
        let mut rig = Self::transferring();
        rig.step(SourceInput::Ready);
        rig
    }

    /// The record is being read.
    fn settling() -> Self {
        let mut rig = Self::cutover();
        rig.step(SourceInput::Submitted);
        rig
    }

    fn retiring() -> Self {
        let mut rig = Self::settling();
        rig.step(SourceInput::Record(record(1, 6, &peer(TARGET), Some(7), "v2")));
        rig
    }

    fn following() -> Self {
        let mut rig = Self::retiring();
        rig.step(SourceInput::Retired);
        rig
    }
}

fn has(effects: &SourceEffects, which: impl Fn(&SourceEffect) -> bool) -> bool {
    effects.iter().any(which)
}

fn retires(effects: &SourceEffects) -> Option<bool> {
    effects.iter().find_map(|effect| match effect {
        SourceEffect::Retire { follow } => Some(*follow),
        _ => None,
    })
}

fn resumes(effects: &SourceEffects) -> bool {
    has(effects, |effect| matches!(effect, SourceEffect::Resume(..)))
}

fn loses(effects: &SourceEffects) -> bool {
    has(effects, |effect| matches!(effect, SourceEffect::Lose))
}

#[test]
fn trap_01_a_time_out_is_no_permission_at_the_source() {
    let mut rig = SourceRig::settling();
    for input in
        [SourceInput::Timer(SourceTimer::Deadline), SourceInput::Timer(SourceTimer::Resubmit), SourceInput::PeerDown]
    {
        let effects = rig.step(input);
        assert!(!resumes(&effects) && retires(&effects).is_none() && !loses(&effects));
    }
}

#[test]
fn trap_02_the_source_does_not_roll_back_when_its_submission_fails() {
    let mut rig = SourceRig::cutover();
    assert!(!resumes(&rig.step(SourceInput::PeerDown)));
    assert!(!resumes(&rig.step(SourceInput::Submitted)));
    let effects = rig.step(SourceInput::Record(record(1, 6, &peer(TARGET), Some(7), "v2")));
    assert_eq!(retires(&effects), Some(true));
}

#[test]
fn trap_03_committed_is_a_grown_owner_generation_whoever_owns_by_now() {
    let mut rig = SourceRig::settling();
    let effects = rig.step(SourceInput::Record(record(1, 7, &peer("third"), Some(8), "v3")));
    assert_eq!(retires(&effects), Some(false));
}

#[test]
fn trap_04_another_lease_generation_of_our_owner_id_is_another_owner() {
    let mut rig = SourceRig::settling();
    let restarted = PeerFence { node: node(SOURCE), owner: pair(SOURCE, 2) };
    // A new incarnation, reclaimed by our own next run: not ours, and not proof that we lost it to our own lease's end.
    let effects = rig.step(SourceInput::Record(record(2, 1, &restarted, None, "v9")));
    assert!(!resumes(&effects) && retires(&effects).is_none() && !loses(&effects));
    let effects = rig.step(SourceInput::OwnLease(LeaseSeen::Missing));
    assert!(!loses(&effects), "the record is read once more first");
    assert!(loses(&rig.step(SourceInput::Record(record(2, 1, &restarted, None, "v9")))));
}

#[test]
fn trap_05_a_follow_route_needs_our_targets_own_tenure() {
    for (owner, owner_generation, by, follow) in
        [(TARGET, 6, 7, true), ("third", 7, 8, false), (TARGET, 8, 9, false), (TARGET, 6, 8, false)]
    {
        let mut rig = SourceRig::settling();
        let effects = rig.step(SourceInput::Record(record(1, owner_generation, &peer(owner), Some(by), "v2")));
        assert_eq!(retires(&effects), Some(follow), "{owner} {owner_generation} by {by}");
    }
}

#[test]
fn trap_06_an_unknown_read_and_an_unreadable_lease_decide_nothing() {
    let mut rig = SourceRig::settling();
    let effects = rig.step(SourceInput::Record(RecordSeen::Unknown));
    assert!(!resumes(&effects) && retires(&effects).is_none() && !loses(&effects));
    rig.step(SourceInput::Timer(SourceTimer::Poll(0)));
    rig.step(SourceInput::Record(RecordSeen::Missing));
    let effects = rig.step(SourceInput::OwnLease(LeaseSeen::Unknown));
    assert!(!resumes(&effects) && retires(&effects).is_none() && !loses(&effects));
}

#[test]
fn trap_07_no_count_of_polls_ends_an_undecided_commit() {
    let mut rig = SourceRig::settling();
    for _ in 0..10_000 {
        let effects = rig.step(SourceInput::Record(ours()));
        assert!(!resumes(&effects) && retires(&effects).is_none() && !loses(&effects));
        rig.step(SourceInput::Timer(SourceTimer::Poll(0)));
    }
}

#[test]
fn the_source_fences_only_with_a_live_lease_and_is_kept_only_by_a_moved_version() {
    let mut rig = SourceRig::settling();
    rig.step(SourceInput::Timer(SourceTimer::Deadline));
    let effects = rig.step(SourceInput::Record(ours()));
    assert!(has(&effects, |effect| matches!(effect, SourceEffect::Settle(SourceAsk::ReadOwnLease))), "lease first");
    let effects = rig.step(SourceInput::OwnLease(LeaseSeen::Live));
    assert!(has(&effects, |effect| matches!(effect, SourceEffect::Settle(SourceAsk::Preserve))));
    for seen in [WriteSeen::Unknown, WriteSeen::Applied, WriteSeen::Conflict] {
        let mut rig = SourceRig { machine: rig.machine.clone() };
        assert!(!resumes(&rig.step(SourceInput::Preserved(seen))), "{seen:?} proves nothing");
        assert!(resumes(&rig.step(SourceInput::Record(record(1, 5, &peer(SOURCE), None, "v2")))));
    }
}

#[test]
fn trap_11_there_and_back_again_is_a_move_that_ended() {
    let mut rig = SourceRig::settling();
    // Our own pair again, two owner generations later.
    let effects = rig.step(SourceInput::Record(record(1, 7, &peer(SOURCE), Some(9), "v3")));
    assert_eq!(retires(&effects), Some(false));
}

#[test]
fn a_record_that_is_gone_under_a_live_lease_means_that_our_move_committed() {
    let mut rig = SourceRig::settling();
    rig.step(SourceInput::Record(RecordSeen::Missing));
    assert_eq!(retires(&rig.step(SourceInput::OwnLease(LeaseSeen::Live))), Some(false));
}

#[test]
fn cancel_and_shutdown_keep_the_object_before_ready_and_change_nothing_after() {
    for (input, reason) in
        [(SourceInput::Cancel, KeptReason::Cancelled), (SourceInput::Shutdown, KeptReason::ShuttingDown)]
    {
        let mut rig = SourceRig::transferring();
        let effects = rig.step(input.clone());
        assert!(has(&effects, |effect| matches!(effect, SourceEffect::Resume(_, why) if *why == reason)));
        for mut rig in [SourceRig::cutover(), SourceRig::settling()] {
            assert!(has(&rig.step(input.clone()), |effect| matches!(effect, SourceEffect::Ignored { .. })));
        }
    }
}

// --- the target ---

fn commits() -> TargetTenure {
    TargetTenure {
        generation: ObjectGeneration::FIRST,
        owner_generation: generation(6),
        owner: pair(TARGET, 1),
        expected: version("v1"),
        relocation: relocation(7),
    }
}

fn settlement() -> TargetSettlement {
    let mut settlement = TargetSettlement::new(commits());
    let (ask, _) = settlement.step(true, TargetSettlementInput::Poll).expect("it begins");
    assert_eq!(ask, Some(TargetAsk::Submit));
    settlement
}

fn after(settlement: &mut TargetSettlement, inputs: Vec<TargetSettlementInput>) -> Option<TargetVerdict> {
    let mut last = None;
    for input in inputs {
        (_, last) = settlement.step(true, input).expect("an input that counts");
    }
    last
}

use TargetSettlementInput as In;

#[test]
fn a_commit_counts_only_once_a_read_shows_it() {
    for seen in [WriteSeen::Applied, WriteSeen::Unknown, WriteSeen::Conflict] {
        let mut settlement = settlement();
        assert!(after(&mut settlement, vec![In::Submitted(seen)]).is_none(), "{seen:?} proves nothing");
        let ours = record(1, 6, &peer(TARGET), Some(7), "v2");
        // Also trap 8: the write that our conflict met was our own.
        assert!(matches!(after(&mut settlement, vec![In::Record(ours)]), Some(TargetVerdict::Committed(_))));
    }
}

#[test]
fn trap_11_an_older_attempt_does_not_take_a_newer_ones_commit_for_its_own() {
    let mut settlement = settlement();
    let newer = record(1, 6, &peer(TARGET), Some(8), "v2");
    let verdict = after(&mut settlement, vec![In::Submitted(WriteSeen::Conflict), In::Record(newer)]);
    assert!(matches!(verdict, Some(TargetVerdict::Excluded)));
}

#[test]
fn a_version_that_moved_without_us_excludes_us_also_with_a_submission_unknown() {
    let mut settlement = settlement();
    let preserved = record(1, 5, &peer(SOURCE), None, "v2");
    let verdict = after(&mut settlement, vec![In::Submitted(WriteSeen::Unknown), In::Record(preserved)]);
    assert!(matches!(verdict, Some(TargetVerdict::Excluded)));
}

#[test]
fn an_unmoved_version_keeps_the_commit_going_until_the_source_is_gone() {
    let mut settlement = settlement();
    let unmoved = || In::Record(ours());
    assert!(after(&mut settlement, vec![In::Submitted(WriteSeen::Conflict), unmoved()]).is_none());
    assert!(after(&mut settlement, vec![In::OwnLease(LeaseSeen::Live), In::SourceLease(LeaseSeen::Unknown)]).is_none());
    assert!(after(&mut settlement, vec![In::Poll, In::Submitted(WriteSeen::Conflict), unmoved()]).is_none());
    assert!(after(&mut settlement, vec![In::OwnLease(LeaseSeen::Live), In::SourceLease(LeaseSeen::Missing)]).is_none());
    assert!(matches!(after(&mut settlement, vec![unmoved()]), Some(TargetVerdict::Excluded)));
}

#[test]
fn nothing_is_submitted_after_the_deadline_or_without_the_guard() {
    let mut settlement = TargetSettlement::new(commits());
    settlement.step(true, In::Deadline).expect("it counts");
    let (ask, _) = settlement.step(true, In::Poll).expect("it counts");
    assert_eq!(ask, Some(TargetAsk::ReadRecord));
    let mut settlement = TargetSettlement::new(commits());
    let (ask, _) = settlement.step(false, In::Poll).expect("it counts");
    assert_eq!(ask, Some(TargetAsk::ReadRecord));
}

fn object() -> ObjectIdentity {
    ObjectIdentity::Actor {
        id: ObjectId::new("thing-1").expect("an id"),
        generation: ObjectGeneration::FIRST,
        owner_generation: generation(5),
    }
}

fn coordinator() -> CoordinatorFence {
    CoordinatorFence { owner: pair(SOURCE, 1), node: node(SOURCE), version: version("v1") }
}

#[derive(Debug)]
struct AnySize;

impl Limits for AnySize {
    fn state_limit(&self, _: &TypeName) -> Option<u64> {
        Some(1 << 20)
    }
}

fn stream() -> (rehome::Rope, u32) {
    encode_stream(&StreamContents {
        relocation: relocation(7),
        object: object(),
        application_version: 1,
        states: vec![ApplicationState {
            participant: rehome::id::ParticipantId::FIRST,
            state: Some(SavedState::from(rehome::Rope::from(b"state".to_vec()))),
        }],
        work: Vec::new(),
        timers: Vec::new(),
        ticks: Vec::new(),
    })
    .expect("a valid stream")
}

fn message(number: u128) -> FrozenRecord {
    let name = Text8::new("m").expect("a name");
    FrozenRecord::Known(Box::new(Message {
        source: SourceIdentity { node: peer("client"), sender: Sender::Node },
        metadata: None,
        operation: rehome::id::OperationId(number),
        reply: None,
        to: Destination::Node,
        payload: Payload { name: name.clone(), content_type: name, bytes: Bytes::new() },
    }))
}

#[derive(Clone)]
struct TargetRig {
    machine: Target,
}

impl TargetRig {
    fn assembling() -> Self {
        let (stream, crc) = stream();
        let (machine, _) = Target::start(stream.len() as u64, 1, crc);
        Self { machine }
    }

    fn step(&mut self, input: TargetInput) -> TargetEffects {
        let facts = Facts { object: &object(), coordinator: &coordinator(), tenure: &commits(), state_limit: &AnySize };
        self.machine.step(true, facts, input)
    }

    fn restoring() -> Self {
        let mut rig = Self::assembling();
        rig.step(TargetInput::Record(ours()));
        let effects = rig.step(TargetInput::Chunk { ordinal: 0, data: stream().0 });
        assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Restore { .. })));
        rig
    }

    fn ready() -> Self {
        let mut rig = Self::restoring();
        rig.step(TargetInput::Restored);
        rig
    }

    fn committing() -> Self {
        let mut rig = Self::ready();
        rig.step(TargetInput::Cutover { conn: Conn(1), count: 0, checksum: 0 });
        rig
    }
}

fn batch(conn: u64, numbers: &[u128]) -> (Vec<TargetInput>, u32) {
    let records: Vec<_> = numbers.iter().map(|number| message(*number)).collect();
    let crc = records.iter().try_fold(0, frozen_crc).expect("records that encode");
    (records.into_iter().map(|record| TargetInput::Data { conn: Conn(conn), record }).collect(), crc)
}

/// Operations of the boundary batch with which a stage would open.
fn opened(mut rig: TargetRig) -> Vec<u128> {
    rig.step(TargetInput::Submitted(WriteSeen::Applied));
    let effects = rig.step(TargetInput::Record(record(1, 6, &peer(TARGET), Some(7), "v2")));
    effects
        .into_iter()
        .find_map(|effect| match effect {
            TargetEffect::Open { boundary, .. } => Some(boundary),
            _ => None,
        })
        .expect("it opens")
        .into_iter()
        .map(|record| match record {
            FrozenRecord::Known(message) => message.operation.0,
            FrozenRecord::Opaque { .. } => 0,
        })
        .collect()
}

#[test]
fn the_type_and_the_stream_may_come_in_any_order() {
    let mut rig = TargetRig::assembling();
    assert!(rig.step(TargetInput::Chunk { ordinal: 0, data: stream().0 }).is_empty());
    let effects = rig.step(TargetInput::Record(ours()));
    assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Restore { .. })));
}

#[test]
fn trap_01_a_late_cutover_is_a_warning_and_no_permission_at_the_target() {
    let mut rig = TargetRig::ready();
    let effects = rig.step(TargetInput::Timer(TargetTimer::CutoverWait));
    assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Warn)));
    assert!(!effects.iter().any(|effect| matches!(effect, TargetEffect::Settle(TargetAsk::Submit))));
    assert_eq!(rig.machine.state(), "Ready");
}

#[test]
fn trap_16_a_batch_that_comes_again_replaces_what_came_before() {
    let mut rig = TargetRig::ready();
    let (partial, _) = batch(1, &[1, 2]);
    let (whole, crc) = batch(2, &[1, 2, 3]);
    for input in partial.into_iter().chain(whole) {
        rig.step(input);
    }
    rig.step(TargetInput::Cutover { conn: Conn(2), count: 3, checksum: crc });
    assert_eq!(opened(rig), [1, 2, 3]);
}

#[test]
fn trap_16_a_tail_alone_is_not_a_batch() {
    let mut rig = TargetRig::ready();
    let (first, _) = batch(1, &[1, 2]);
    let (_, crc) = batch(1, &[1, 2, 3]);
    let (tail, _) = batch(2, &[3]);
    for input in first.into_iter().chain(tail) {
        rig.step(input);
    }
    rig.step(TargetInput::Cutover { conn: Conn(2), count: 3, checksum: crc });
    assert_eq!(rig.machine.state(), "Ready", "records of two connections are not one batch");
}

#[test]
fn trap_17_a_cutover_is_taken_while_the_store_is_observed() {
    let mut rig = TargetRig::ready();
    rig.step(TargetInput::Timer(TargetTimer::CutoverWait));
    let effects = rig.step(TargetInput::Cutover { conn: Conn(1), count: 0, checksum: 0 });
    assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Settle(TargetAsk::Submit))));
    // The observation's own answer comes later and changes nothing.
    let effects = rig.step(TargetInput::Record(ours()));
    assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Ignored { .. })));
}

#[test]
fn trap_19_data_after_a_verified_cutover_is_a_duplicate() {
    let mut rig = TargetRig::committing();
    let (data, _) = batch(1, &[9]);
    for input in data {
        let effects = rig.step(input);
        assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Ignored { .. })));
    }
    assert_eq!(opened(rig), [0u128; 0]);
}

#[test]
fn a_cutover_that_does_not_match_changes_nothing() {
    let mut rig = TargetRig::ready();
    let (data, crc) = batch(1, &[1, 2]);
    for input in data {
        rig.step(input);
    }
    for (count, checksum) in [(2, crc ^ 1), (1, crc), (3, crc), (u64::MAX, crc)] {
        rig.step(TargetInput::Cutover { conn: Conn(1), count, checksum });
        assert_eq!(rig.machine.state(), "Ready", "count {count}");
    }
}

#[test]
fn trap_26_a_shutdown_discards_a_stage_without_a_cutover_and_no_other() {
    for mut rig in [TargetRig::assembling(), TargetRig::restoring(), TargetRig::ready()] {
        let effects = rig.step(TargetInput::Shutdown);
        assert!(effects.iter().any(|effect| matches!(effect, TargetEffect::Discard { .. })));
    }
    let mut rig = TargetRig::committing();
    rig.step(TargetInput::Shutdown);
    assert_eq!(rig.machine.state(), "Committing");
}

#[test]
fn trap_32_chunks_out_of_order_twice_or_too_many_fail_the_stage() {
    let (stream, crc) = stream();
    for ordinals in [vec![1], vec![0, 0]] {
        let (machine, _) = Target::start(stream.len() as u64, 2, crc);
        let mut rig = TargetRig { machine };
        let mut data = stream.clone();
        let mut failed = false;
        for ordinal in ordinals {
            let effects = rig.step(TargetInput::Chunk { ordinal, data: data.split_to(3) });
            failed |= effects
                .iter()
                .any(|effect| matches!(effect, TargetEffect::SendFailed(code) if *code == FailureCode::DATA_LOST));
        }
        assert!(failed);
    }
    let (machine, _) = Target::start(0, 0, 0);
    assert_eq!(machine.state(), "Ended", "zero chunks");
}

// --- every state with every input ---

fn source_inputs() -> Vec<SourceInput> {
    use SourceInput as In;
    vec![
        In::Size { fits: true },
        In::Size { fits: false },
        In::SizeFailed,
        In::Budget,
        In::Record(RecordSeen::Unknown),
        In::Record(RecordSeen::Missing),
        In::Record(ours()),
        In::Record(record(1, 5, &peer(SOURCE), None, "v2")),
        In::Record(record(1, 6, &peer(TARGET), Some(7), "v2")),
        In::TurnsEnded,
        In::Captured,
        In::CaptureFailed(KeptReason::CaptureFailed),
        In::Ready,
        In::Failed(FailureCode::DATA_LOST),
        In::PeerDown,
        In::PeerUp,
        In::TargetGone,
        In::Submitted,
        In::OwnLease(LeaseSeen::Live),
        In::OwnLease(LeaseSeen::Missing),
        In::Preserved(WriteSeen::Applied),
        In::Retired,
        In::Timer(SourceTimer::Deadline),
        In::Timer(SourceTimer::PrepareResend),
        In::Timer(SourceTimer::SealLimit),
        In::Timer(SourceTimer::Poll(0)),
        In::Timer(SourceTimer::Resubmit),
        In::Timer(SourceTimer::Follow),
        In::Cancel,
        In::Shutdown,
        In::GuardLive,
        In::Over,
    ]
}

fn source_effect(effect: &SourceEffect) -> String {
    match effect {
        SourceEffect::Ignored { .. } => String::from("ignored"),
        SourceEffect::Resume(_, reason) => format!("Resume({reason:?})"),
        SourceEffect::Capture(_) => String::from("Capture"),
        other => format!("{other:?}"),
    }
}

fn target_inputs() -> Vec<TargetInput> {
    use TargetInput as In;
    vec![
        In::PrepareAgain,
        In::PrepareOther,
        In::Chunk { ordinal: 0, data: stream().0 },
        In::Chunk { ordinal: 5, data: stream().0 },
        In::Data { conn: Conn(1), record: message(1) },
        In::Cutover { conn: Conn(1), count: 0, checksum: 0 },
        In::Cutover { conn: Conn(1), count: 1, checksum: 0 },
        In::Record(RecordSeen::Unknown),
        In::Record(RecordSeen::Missing),
        In::Record(ours()),
        In::Record(record(1, 6, &peer(TARGET), Some(7), "v2")),
        In::Restored,
        In::RestoreFailed(FailureCode::WORKER_FAILED),
        In::Submitted(WriteSeen::Applied),
        In::OwnLease(LeaseSeen::Live),
        In::SourceLease(LeaseSeen::Live),
        In::PeerDown,
        In::SourceGone,
        In::Timer(TargetTimer::Deadline),
        In::Timer(TargetTimer::CutoverWait),
        In::Timer(TargetTimer::Poll),
        In::Shutdown,
        In::Over,
    ]
}

fn target_effect(effect: &TargetEffect) -> String {
    match effect {
        TargetEffect::Ignored { input, .. } if input.contains("mismatch") => String::from("ignored (mismatch)"),
        TargetEffect::Ignored { .. } => String::from("ignored"),
        TargetEffect::SendFailed(code) => format!("SendFailed({})", code.get()),
        TargetEffect::Discard { code, .. } => format!("Discard({})", code.get()),
        TargetEffect::Restore { .. } => String::from("Restore"),
        TargetEffect::Open { .. } => String::from("Open"),
        other => format!("{other:?}"),
    }
}

fn matrix() -> String {
    let mut out = String::from("# Source: state, input -> state: effects\n");
    let states: [fn() -> SourceRig; 9] = [
        SourceRig::waiting,
        SourceRig::sealing,
        SourceRig::capturing,
        SourceRig::transferring,
        SourceRig::unguarded,
        SourceRig::cutover,
        SourceRig::settling,
        SourceRig::retiring,
        SourceRig::following,
    ];
    for start in states {
        for input in source_inputs() {
            let mut rig = start();
            let (before, name) = (rig.machine.state(), describe(&input, input.name()));
            let effects: Vec<_> = rig.step(input).iter().map(source_effect).collect();
            let _ = writeln!(out, "{before}, {name} -> {}: {}", rig.machine.state(), effects.join(", "));
        }
    }
    out.push_str("\n# Target: state, input -> state: effects\n");
    let states: [fn() -> TargetRig; 4] =
        [TargetRig::assembling, TargetRig::restoring, TargetRig::ready, TargetRig::committing];
    for start in states {
        for input in target_inputs() {
            let mut rig = start();
            let (before, name) = (rig.machine.state(), describe(&input, input.name()));
            let effects: Vec<_> = rig.step(input).iter().map(target_effect).collect();
            let _ = writeln!(out, "{before}, {name} -> {}: {}", rig.machine.state(), effects.join(", "));
        }
    }
    out
}

/// The name of an input, with what tells two samples of one kind apart.
fn describe(input: &dyn std::fmt::Debug, name: &str) -> String {
    let text = format!("{input:?}");
    let detail = match name {
        "Record" if text.contains("Unknown") => "(unknown)",
        "Record" if text.contains("Missing") => "(missing)",
        "Record" if text.contains("owner_generation: 6") => "(committed)",
        "Record" if text.contains("\"v2\"") => "(ours, moved)",
        "Record" => "(ours)",
        "Size" if text.contains("false") => "(too large)",
        "OwnLease" if text.contains("Missing") => "(missing)",
        "Chunk" if text.contains("ordinal: 5") => "(out of order)",
        "Cutover" if text.contains("count: 1") => "(wrong)",
        _ => "",
    };
    format!("{name}{detail}")
}

/// What every machine does with every input in every state, the illegal ones included. A change here is a change of the
/// protocol: look at it, then write the file anew with `REHOME_BLESS=1`.
#[test]
fn the_matrix_is_as_it_was() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/matrix.txt");
    let now = matrix();
    if std::env::var_os("REHOME_BLESS").is_some() {
        std::fs::write(path, &now).expect("a file that can be written");
    }
    let before = std::fs::read_to_string(path).expect("the matrix");
    for (line, (before, now)) in before.lines().zip(now.lines()).enumerate() {
        assert_eq!(before, now, "line {}", line + 1);
    }
    assert_eq!(before.lines().count(), now.lines().count());
}
