//! The target of a move: from the prepare until its stage opened or is over. It never opens dispatch without a
//! [`Committed`], and it never commits without a verified cutover.

use super::settlement::{
    Committed, LeaseSeen, RecordSeen, TargetAsk, TargetSettlement, TargetSettlementInput, TargetTenure, TargetVerdict,
    WriteSeen,
};
use crate::chunk::{Assembly, Progress};
use crate::fence::{CoordinatorFence, ObjectIdentity};
use crate::id::{OwnerGeneration, TypeName};
use crate::link::Conn;
use crate::rope::Rope;
use crate::wire::{FailureCode, FrozenRecord, StreamContents, StreamDecoder, frozen_crc};
use smallvec::{SmallVec, smallvec};

/// The target of one move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Chunks arrive, and the record is read.
    Assembling(Box<Assembling>),
    /// The host restores.
    Restoring { contents: Box<StreamContents> },
    /// Restored; nothing runs. Boundary records arrive.
    Ready { contents: Box<StreamContents>, span: Span },
    /// The cutover was verified; the store decides.
    Committing { contents: Box<StreamContents>, boundary: Vec<FrozenRecord>, settlement: TargetSettlement },
    /// Over.
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Assembling {
    assembly: Assembly,
    decoder: StreamDecoder,
    /// The whole stream, once it is verified.
    contents: Option<Box<StreamContents>>,
    /// The object's type, once the record confirmed the fence.
    stable_type: Option<TypeName>,
}

/// Boundary records of one connection, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Span {
    conn: Option<Conn>,
    records: Vec<FrozenRecord>,
}

/// The facts of a stage that its machine compares with: given at each step, owned by the stage.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The object as the prepare named it.
    pub object: &'a ObjectIdentity,
    /// The source tenure.
    pub coordinator: &'a CoordinatorFence,
    /// The tenure that the stage would commit.
    pub tenure: &'a TargetTenure,
    /// The most bytes of state that a type takes; `None` where this node does not offer it.
    pub state_limit: &'a dyn Limits,
}

/// What the node knows of the types that it offers.
pub trait Limits: core::fmt::Debug {
    /// The most bytes of state of this type; `None` where the type is not offered.
    fn state_limit(&self, stable_type: &TypeName) -> Option<u64>;
}

/// What the target hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetInput {
    /// 40 again, with identical contents.
    PrepareAgain,
    /// 40 of the same identity with other contents.
    PrepareOther,
    /// 52.
    Chunk {
        /// Its index.
        ordinal: u32,
        /// Its bytes.
        data: Rope,
    },
    /// 31.
    Data {
        /// The connection that carried it.
        conn: Conn,
        /// The message.
        record: FrozenRecord,
    },
    /// 34.
    Cutover {
        /// The connection that carried it.
        conn: Conn,
        /// Records in the batch.
        count: u64,
        /// Their checksum.
        checksum: u32,
    },
    /// The record was read.
    Record(RecordSeen),
    /// The host restored the object.
    Restored,
    /// It failed.
    RestoreFailed(FailureCode),
    /// Our commit ended.
    Submitted(WriteSeen),
    /// Our own lease was read.
    OwnLease(LeaseSeen),
    /// The source's lease was read.
    SourceLease(LeaseSeen),
    /// The connection that carries the move is gone.
    PeerDown,
    /// The source's generation is over.
    SourceGone,
    /// A timer fired.
    Timer(TargetTimer),
    /// The node shuts down.
    Shutdown,
    /// The node's lease is lost.
    Over,
}

/// The timers of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetTimer {
    /// The move's operation ends: the prepare's deadline, else the node's own setting.
    Deadline,
    /// The cutover should have come. A warning: nothing depends on it.
    CutoverWait,
    /// The next read of the store.
    Poll,
}

/// What the target wants done.
#[derive(Debug)]
pub enum TargetEffect {
    /// Read the record.
    ReadRecord,
    /// Restore the object, without dispatch.
    Restore {
        /// Its type.
        stable_type: TypeName,
        /// The version of the state format.
        version: i64,
        /// The state.
        state: Option<Rope>,
    },
    /// Send 30.
    SendReady,
    /// Send 53. The stage goes on where nothing else says that it is over.
    SendFailed(FailureCode),
    /// The cutover is late.
    Warn,
    /// Do what the settlement asks.
    Settle(TargetAsk),
    /// Publish, admit saved work, then the boundary batch, then the temporary queue, and open dispatch.
    Open {
        /// The proof.
        committed: Committed,
        /// Saved work and timers.
        contents: Box<StreamContents>,
        /// The boundary batch.
        boundary: Vec<FrozenRecord>,
    },
    /// The stage is over and did not open: give everything back.
    Discard {
        /// The code that a resent prepare is answered with.
        code: FailureCode,
        /// Saved work that is dropped; the source still has it.
        saved: u64,
        /// Records of a verified boundary batch that are dropped.
        boundary: u64,
    },
    /// Start a timer.
    Arm(TargetTimer),
    /// Stop a timer.
    Disarm(TargetTimer),
    /// Nothing changed.
    Ignored {
        /// The state.
        state: &'static str,
        /// The input.
        input: &'static str,
    },
}

/// Effects of one step.
pub type TargetEffects = SmallVec<[TargetEffect; 4]>;

impl Target {
    /// Begins a stage. Its temporary queue must stand before the first chunk is taken.
    pub fn start(total_length: u64, chunk_count: u32, checksum: u32) -> (Self, TargetEffects) {
        match Assembly::new(total_length, chunk_count, checksum) {
            Ok(assembly) => {
                let assembling =
                    Assembling { assembly, decoder: StreamDecoder::new(), contents: None, stable_type: None };
                (
                    Self { state: State::Assembling(Box::new(assembling)) },
                    smallvec![TargetEffect::Arm(TargetTimer::Deadline), TargetEffect::ReadRecord],
                )
            }
            Err(_) => {
                let (state, effects) = fail(FailureCode::DATA_LOST);
                (Self { state }, effects)
            }
        }
    }

    /// The name of its state.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Assembling(_) => "Assembling",
            State::Restoring { .. } => "Restoring",
            State::Ready { .. } => "Ready",
            State::Committing { .. } => "Committing",
            State::Ended => "Ended",
        }
    }

    /// Whether its cutover was verified: it must run to its terminal, whatever happens.
    pub const fn is_committing(&self) -> bool {
        matches!(self.state, State::Committing { .. })
    }

    /// The settlement, while there is one.
    pub const fn settlement(&self) -> Option<&TargetSettlement> {
        match &self.state {
            State::Committing { settlement, .. } => Some(settlement),
            State::Assembling(_) | State::Restoring { .. } | State::Ready { .. } | State::Ended => None,
        }
    }

    /// One step.
    pub fn step(&mut self, guard_live: bool, facts: Facts<'_>, input: TargetInput) -> TargetEffects {
        let state = core::mem::replace(&mut self.state, State::Ended);
        let (next, effects) = match state {
            State::Assembling(stage) => assembling(stage, facts, input),
            State::Restoring { contents } => restoring(contents, input),
            State::Ready { contents, span } => ready(guard_live, contents, span, facts, input),
            State::Committing { contents, boundary, settlement } => {
                committing(guard_live, contents, boundary, settlement, input)
            }
            State::Ended => (State::Ended, ignored("Ended", &input)),
        };
        self.state = next;
        effects
    }
}

type Next = (State, TargetEffects);

fn ignored(state: &'static str, input: &TargetInput) -> TargetEffects {
    smallvec![TargetEffect::Ignored { state, input: input.name() }]
}

fn fail(code: FailureCode) -> Next {
    discard(code, 0, 0, true)
}

fn discard(code: FailureCode, saved: u64, boundary: u64, tell: bool) -> Next {
    let mut effects = TargetEffects::new();
    if tell {
        effects.push(TargetEffect::SendFailed(code));
    }
    effects.push(TargetEffect::Discard { code, saved, boundary });
    (State::Ended, effects)
}

/// Whether the record that was read is the tenure that the coordinator fence names.
fn fence_matches(facts: Facts<'_>, seen: &RecordSeen) -> Option<TypeName> {
    let RecordSeen::Found(found) = seen else { return None };
    let record = &found.record;
    let expected: Option<OwnerGeneration> = facts.object.owner_generation();
    let same = record.generation == facts.object.generation()
        && expected.is_none_or(|generation| generation == record.owner_generation)
        && record.owner == facts.coordinator.owner
        && record.node == facts.coordinator.node
        && found.version == facts.coordinator.version;
    same.then(|| record.stable_type.clone())
}

/// Inputs that end any stage without a verified cutover, in every state alike.
fn ends(input: &TargetInput) -> Option<FailureCode> {
    match input {
        TargetInput::Timer(TargetTimer::Deadline) => Some(FailureCode::WORKER_TIMED_OUT),
        TargetInput::SourceGone => Some(FailureCode::ROUTE_NOT_CONNECTED),
        TargetInput::Shutdown | TargetInput::Over => Some(FailureCode::REJECTED),
        TargetInput::PrepareAgain
        | TargetInput::PrepareOther
        | TargetInput::Chunk { .. }
        | TargetInput::Data { .. }
        | TargetInput::Cutover { .. }
        | TargetInput::Record(_)
        | TargetInput::Restored
        | TargetInput::RestoreFailed(_)
        | TargetInput::Submitted(_)
        | TargetInput::OwnLease(_)
        | TargetInput::SourceLease(_)
        | TargetInput::PeerDown
        | TargetInput::Timer(TargetTimer::CutoverWait | TargetTimer::Poll) => None,
    }
}

fn assembling(mut stage: Box<Assembling>, facts: Facts<'_>, input: TargetInput) -> Next {
    use TargetInput as In;
    if let Some(code) = ends(&input) {
        return fail(code);
    }
    match input {
        In::Chunk { ordinal, data } => {
            let Ok(progress) = stage.assembly.push(ordinal, data) else { return fail(FailureCode::DATA_LOST) };
            let (data, complete) = match progress {
                Progress::More(data) => (data, false),
                Progress::Complete(data) => (data, true),
            };
            for piece in data.pieces() {
                if stage.decoder.feed(piece.clone()).is_err() {
                    return fail(FailureCode::DATA_LOST);
                }
            }
            match complete {
                false => (State::Assembling(stage), TargetEffects::new()),
                true => {
                    let decoder = core::mem::take(&mut stage.decoder);
                    match decoder.finish() {
                        Ok(contents)
                            if contents.relocation == facts.tenure.relocation && contents.object == *facts.object =>
                        {
                            stage.contents = Some(Box::new(contents));
                            restore(stage, facts)
                        }
                        Ok(_) | Err(_) => fail(FailureCode::DATA_LOST),
                    }
                }
            }
        }
        In::Record(RecordSeen::Unknown) => (State::Assembling(stage), smallvec![TargetEffect::Arm(TargetTimer::Poll)]),
        In::Record(seen) => match fence_matches(facts, &seen) {
            Some(stable_type) => {
                stage.stable_type = Some(stable_type);
                restore(stage, facts)
            }
            None => fail(FailureCode::ACTOR_LOCATION_STALE),
        },
        In::Timer(TargetTimer::Poll) => (State::Assembling(stage), smallvec![TargetEffect::ReadRecord]),
        In::PrepareOther => (State::Assembling(stage), smallvec![TargetEffect::SendFailed(FailureCode::DATA_LOST)]),
        // The chunks came on this connection and will not come again: the source keeps the object.
        In::PeerDown => fail(FailureCode::ROUTE_NOT_CONNECTED),
        In::PrepareAgain => (State::Assembling(stage), TargetEffects::new()),
        In::Data { .. }
        | In::Cutover { .. }
        | In::Restored
        | In::RestoreFailed(_)
        | In::Submitted(_)
        | In::OwnLease(_)
        | In::SourceLease(_)
        | In::SourceGone
        | In::Shutdown
        | In::Over
        | In::Timer(TargetTimer::Deadline | TargetTimer::CutoverWait) => {
            let effects = ignored("Assembling", &input);
            (State::Assembling(stage), effects)
        }
    }
}

/// Both halves must be there: the verified stream, and the record with the object's type.
fn restore(mut stage: Box<Assembling>, facts: Facts<'_>) -> Next {
    let Some(stable_type) = stage.stable_type.clone() else { return (State::Assembling(stage), TargetEffects::new()) };
    let Some(mut contents) = stage.contents.take() else { return (State::Assembling(stage), TargetEffects::new()) };
    // A unit of one actor: one participant, whose timers this version does not run.
    if contents.states.len() > 1 || !contents.timers.is_empty() || !contents.ticks.is_empty() {
        return fail(FailureCode::REJECTED);
    }
    let state = contents.states.first_mut().and_then(|one| one.state.take()).map(|state| state.rope);
    let length = state.as_ref().map_or(0, Rope::len);
    match facts.state_limit.state_limit(&stable_type) {
        None => fail(FailureCode::ACTOR_TYPE_MISMATCH),
        Some(limit) if u64::try_from(length).unwrap_or(u64::MAX) > limit => fail(FailureCode::REJECTED),
        Some(_) => {
            let version = contents.application_version;
            (
                State::Restoring { contents },
                smallvec![
                    TargetEffect::Disarm(TargetTimer::Poll),
                    TargetEffect::Restore { stable_type, version, state }
                ],
            )
        }
    }
}

fn restoring(contents: Box<StreamContents>, input: TargetInput) -> Next {
    use TargetInput as In;
    if let Some(code) = ends(&input) {
        return discard(code, saved(&contents), 0, true);
    }
    match input {
        In::Restored => (
            State::Ready { contents, span: Span::default() },
            smallvec![TargetEffect::SendReady, TargetEffect::Arm(TargetTimer::CutoverWait)],
        ),
        In::RestoreFailed(code) => discard(code, saved(&contents), 0, true),
        In::PrepareOther => {
            (State::Restoring { contents }, smallvec![TargetEffect::SendFailed(FailureCode::DATA_LOST)])
        }
        In::PeerDown => discard(FailureCode::ROUTE_NOT_CONNECTED, saved(&contents), 0, true),
        In::PrepareAgain => (State::Restoring { contents }, TargetEffects::new()),
        In::Chunk { .. }
        | In::Data { .. }
        | In::Cutover { .. }
        | In::Record(_)
        | In::Submitted(_)
        | In::OwnLease(_)
        | In::SourceLease(_)
        | In::SourceGone
        | In::Shutdown
        | In::Over
        | In::Timer(TargetTimer::Deadline | TargetTimer::CutoverWait | TargetTimer::Poll) => {
            let effects = ignored("Restoring", &input);
            (State::Restoring { contents }, effects)
        }
    }
}

fn saved(contents: &StreamContents) -> u64 {
    u64::try_from(contents.work.len()).unwrap_or(u64::MAX)
}

fn ready(
    guard_live: bool,
    contents: Box<StreamContents>,
    mut span: Span,
    facts: Facts<'_>,
    input: TargetInput,
) -> Next {
    use TargetInput as In;
    if let Some(code) = ends(&input) {
        return discard(code, saved(&contents), 0, true);
    }
    match input {
        In::Data { conn, record } => {
            // After a lost connection the whole batch comes again: records of the old one are not part of it.
            if span.conn != Some(conn) && !planted!("boundary_spans_connections") {
                span.records.clear();
            }
            span.conn = Some(conn);
            span.records.push(record);
            (State::Ready { contents, span }, TargetEffects::new())
        }
        In::Cutover { conn, count, checksum } => match verified(conn, count, checksum, span) {
            Ok(boundary) => commit(guard_live, contents, boundary, facts),
            Err(span) => (
                State::Ready { contents, span },
                smallvec![TargetEffect::Ignored { state: "Ready", input: "Cutover(mismatch)" }],
            ),
        },
        In::Timer(TargetTimer::CutoverWait) if planted!("commit_on_cutover_timeout") => {
            commit(guard_live, contents, span.records, facts)
        }
        In::Timer(TargetTimer::CutoverWait) => {
            (State::Ready { contents, span }, smallvec![TargetEffect::Warn, TargetEffect::ReadRecord])
        }
        In::Timer(TargetTimer::Poll) => (State::Ready { contents, span }, smallvec![TargetEffect::ReadRecord]),
        // A read-only look: it may only end the stage, and before a verified cutover that is always safe.
        In::Record(seen) => match &seen {
            RecordSeen::Unknown => (State::Ready { contents, span }, smallvec![TargetEffect::Arm(TargetTimer::Poll)]),
            RecordSeen::Missing | RecordSeen::Found(_) if fence_matches(facts, &seen).is_some() => {
                (State::Ready { contents, span }, smallvec![TargetEffect::Arm(TargetTimer::Poll)])
            }
            RecordSeen::Missing | RecordSeen::Found(_) => {
                discard(FailureCode::ACTOR_LOCATION_STALE, saved(&contents), 0, true)
            }
        },
        In::PrepareAgain => (State::Ready { contents, span }, smallvec![TargetEffect::SendReady]),
        In::PrepareOther => {
            (State::Ready { contents, span }, smallvec![TargetEffect::SendFailed(FailureCode::DATA_LOST)])
        }
        In::PeerDown
        | In::Chunk { .. }
        | In::Restored
        | In::RestoreFailed(_)
        | In::Submitted(_)
        | In::OwnLease(_)
        | In::SourceLease(_)
        | In::SourceGone
        | In::Shutdown
        | In::Over
        | In::Timer(TargetTimer::Deadline) => {
            let effects = ignored("Ready", &input);
            (State::Ready { contents, span }, effects)
        }
    }
}

/// The batch is the last `count` records before the cutover, on the cutover's connection.
fn verified(conn: Conn, count: u64, checksum: u32, mut span: Span) -> Result<Vec<FrozenRecord>, Span> {
    let Ok(count) = usize::try_from(count) else { return Err(span) };
    let on_this = span.conn == Some(conn) || count == 0 || planted!("boundary_spans_connections");
    let Some(first) = span.records.len().checked_sub(count).filter(|_| on_this) else { return Err(span) };
    let batch = span.records.get(first..).unwrap_or_default();
    let actual = batch.iter().try_fold(0u32, frozen_crc);
    if (actual == Ok(checksum)) || planted!("unverified_cutover") {
        Ok(span.records.split_off(first))
    } else {
        Err(span)
    }
}

fn commit(guard_live: bool, contents: Box<StreamContents>, boundary: Vec<FrozenRecord>, facts: Facts<'_>) -> Next {
    let mut settlement = TargetSettlement::new(facts.tenure.clone());
    let mut effects: TargetEffects =
        smallvec![TargetEffect::Disarm(TargetTimer::CutoverWait), TargetEffect::Disarm(TargetTimer::Poll)];
    let (more, verdict) = settle(guard_live, &mut settlement, TargetSettlementInput::Poll);
    effects.extend(more);
    match verdict {
        None => (State::Committing { contents, boundary, settlement }, effects),
        Some(verdict) => {
            let (state, more) = decided(verdict, contents, boundary);
            effects.extend(more);
            (state, effects)
        }
    }
}

fn committing(
    guard_live: bool,
    contents: Box<StreamContents>,
    boundary: Vec<FrozenRecord>,
    mut settlement: TargetSettlement,
    input: TargetInput,
) -> Next {
    use TargetInput as In;
    use TargetSettlementInput as Settle;
    let name = input.name();
    let input = match input {
        In::Timer(TargetTimer::Poll) => Settle::Poll,
        In::Record(seen) => Settle::Record(seen),
        In::Submitted(seen) => Settle::Submitted(seen),
        In::OwnLease(seen) => Settle::OwnLease(seen),
        In::SourceLease(seen) => Settle::SourceLease(seen),
        In::Timer(TargetTimer::Deadline) => Settle::Deadline,
        In::PrepareAgain => {
            return (State::Committing { contents, boundary, settlement }, smallvec![TargetEffect::SendReady]);
        }
        In::PrepareOther => {
            return (
                State::Committing { contents, boundary, settlement },
                smallvec![TargetEffect::SendFailed(FailureCode::DATA_LOST)],
            );
        }
        In::Over => {
            let count = u64::try_from(boundary.len()).unwrap_or(u64::MAX);
            return discard(FailureCode::REJECTED, saved(&contents), count, false);
        }
        In::Shutdown if planted!("shutdown_drops_verified_stage") => {
            return discard(FailureCode::REJECTED, saved(&contents), 0, false);
        }
        In::Chunk { .. }
        | In::Data { .. }
        | In::Cutover { .. }
        | In::Restored
        | In::RestoreFailed(_)
        | In::PeerDown
        | In::SourceGone
        | In::Shutdown
        | In::Timer(TargetTimer::CutoverWait) => {
            return (
                State::Committing { contents, boundary, settlement },
                smallvec![TargetEffect::Ignored { state: "Committing", input: name }],
            );
        }
    };
    let (effects, verdict) = settle(guard_live, &mut settlement, input);
    match verdict {
        None => (State::Committing { contents, boundary, settlement }, effects),
        Some(verdict) => decided(verdict, contents, boundary),
    }
}

fn settle(
    guard_live: bool,
    settlement: &mut TargetSettlement,
    input: TargetSettlementInput,
) -> (TargetEffects, Option<TargetVerdict>) {
    let name = match &input {
        TargetSettlementInput::Poll => "Poll",
        TargetSettlementInput::Submitted(_) => "Submitted",
        TargetSettlementInput::Record(_) => "Record",
        TargetSettlementInput::OwnLease(_) => "OwnLease",
        TargetSettlementInput::SourceLease(_) => "SourceLease",
        TargetSettlementInput::Deadline => "Deadline",
    };
    match settlement.step(guard_live, input) {
        Ok((ask, verdict)) => {
            let effects = match ask {
                Some(TargetAsk::Wait) => smallvec![TargetEffect::Arm(TargetTimer::Poll)],
                Some(
                    ask @ (TargetAsk::Submit
                    | TargetAsk::ReadRecord
                    | TargetAsk::ReadOwnLease
                    | TargetAsk::ReadSourceLease),
                ) => smallvec![TargetEffect::Settle(ask)],
                None => TargetEffects::new(),
            };
            (effects, verdict)
        }
        Err(state) => (smallvec![TargetEffect::Ignored { state, input: name }], None),
    }
}

fn decided(verdict: TargetVerdict, contents: Box<StreamContents>, boundary: Vec<FrozenRecord>) -> Next {
    match verdict {
        TargetVerdict::Committed(committed) => {
            (State::Ended, smallvec![TargetEffect::Open { committed, contents, boundary }])
        }
        TargetVerdict::Excluded => {
            let count = u64::try_from(boundary.len()).unwrap_or(u64::MAX);
            discard(FailureCode::ACTOR_LOCATION_STALE, saved(&contents), count, true)
        }
    }
}

impl TargetInput {
    /// The name of the input.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PrepareAgain => "PrepareAgain",
            Self::PrepareOther => "PrepareOther",
            Self::Chunk { .. } => "Chunk",
            Self::Data { .. } => "Data",
            Self::Cutover { .. } => "Cutover",
            Self::Record(_) => "Record",
            Self::Restored => "Restored",
            Self::RestoreFailed(_) => "RestoreFailed",
            Self::Submitted(_) => "Submitted",
            Self::OwnLease(_) => "OwnLease",
            Self::SourceLease(_) => "SourceLease",
            Self::PeerDown => "PeerDown",
            Self::SourceGone => "SourceGone",
            Self::Timer(TargetTimer::Deadline) => "Timer(Deadline)",
            Self::Timer(TargetTimer::CutoverWait) => "Timer(CutoverWait)",
            Self::Timer(TargetTimer::Poll) => "Timer(Poll)",
            Self::Shutdown => "Shutdown",
            Self::Over => "Over",
        }
    }
}
