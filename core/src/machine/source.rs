//! The source of a move: from the wish to move until the object is kept, moved or lost. It never opens dispatch without
//! a [`Kept`], and after its first cutover only the settlement can make one.

use super::settlement::{
    CutoverUnsent, Kept, LeaseSeen, RecordSeen, SourceAsk, SourceSettlement, SourceSettlementInput, SourceTenure,
    SourceVerdict, WriteSeen,
};
use super::{KeptReason, RefusedReason};
use crate::id::StoreVersion;
use crate::wire::FailureCode;
use smallvec::{SmallVec, smallvec};

/// The source of one move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The object still runs.
    Waiting { unsent: CutoverUnsent, want: Want },
    /// No new turn starts; the running one ends.
    Sealing { unsent: CutoverUnsent, version: StoreVersion },
    /// Nothing runs; the state is captured.
    Capturing { unsent: CutoverUnsent, version: StoreVersion },
    /// Prepare and chunks are on the way.
    Transferring { unsent: CutoverUnsent, version: StoreVersion },
    /// The target is ready, and the lease guard forbids the cutover until a renewal succeeds.
    ReadyUnguarded { unsent: CutoverUnsent, version: StoreVersion },
    /// The first cutover is being written.
    Cutover { settlement: SourceSettlement, failed: Option<FailureCode> },
    /// The store decides.
    Settling { settlement: SourceSettlement, failed: Option<FailureCode> },
    /// Moved; the host drops its copy.
    Retiring,
    /// Moved; late messages are forwarded.
    Following,
    /// Over.
    Ended,
}

/// What a waiting source waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    /// The host's size hint.
    Size,
    /// Room in the in-flight budget.
    Budget,
    /// The store's record, read after the last write that this node makes to it.
    Record,
}

/// What the source hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceInput {
    /// The host told the size; `false` where it is over the limits.
    Size {
        /// Whether a state of that size may move.
        fits: bool,
    },
    /// The host could not tell.
    SizeFailed,
    /// The budget has room.
    Budget,
    /// The record was read.
    Record(RecordSeen),
    /// No turn runs any more.
    TurnsEnded,
    /// The state was captured.
    Captured,
    /// It could not be captured, or turned out too large.
    CaptureFailed(KeptReason),
    /// 30.
    Ready,
    /// 53.
    Failed(FailureCode),
    /// The connection to the target is gone.
    PeerDown,
    /// A connection to the target is up.
    PeerUp,
    /// The target's lease has ended.
    TargetGone,
    /// The first cutover was written, or will not be.
    Submitted,
    /// Our own lease was read.
    OwnLease(LeaseSeen),
    /// Our preserve ended.
    Preserved(WriteSeen),
    /// The host dropped its copy, well or not.
    Retired,
    /// A timer fired.
    Timer(SourceTimer),
    /// The caller wants the move to end.
    Cancel,
    /// The node shuts down.
    Shutdown,
    /// A lease renewal succeeded.
    GuardLive,
    /// The node's lease is lost: everything here is over.
    Over,
}

/// The timers of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceTimer {
    /// The operation's deadline; once a cutover was sent, the time from which the target may be fenced out.
    Deadline,
    /// Prepare is sent again.
    PrepareResend,
    /// The running turn has taken too long.
    SealLimit,
    /// The next read of the store; the number is a step of the back-off.
    Poll(u32),
    /// Batch and cutover are sent again, whole.
    Resubmit,
    /// Message follow ends.
    Follow,
}

/// What the source wants done.
#[derive(Debug)]
pub enum SourceEffect {
    /// Ask the host for the size.
    AskSize,
    /// Wait for room in the budget.
    AcquireBudget,
    /// Read the record.
    ReadRecord,
    /// Start no new turn, and say when none runs.
    CloseGate,
    /// Capture the state. The version is that of the coordinator fence.
    Capture(StoreVersion),
    /// Send prepare and all chunks.
    Transfer,
    /// Send prepare again.
    ResendPrepare,
    /// Send the boundary batch and the cutover, and say when that ended.
    Submit,
    /// Send the same batch and cutover again, whole.
    Resubmit,
    /// Do what the settlement asks.
    Settle(SourceAsk),
    /// Start a timer; one of that name that runs is replaced.
    Arm(SourceTimer),
    /// Stop a timer.
    Disarm(SourceTimer),
    /// The object never stopped: end.
    Refuse(RefusedReason),
    /// Open dispatch again with everything in its accepted order: end.
    Resume(Kept, KeptReason),
    /// The object lives elsewhere: drop what the target took over, forward the rest.
    Retire {
        /// Whether the target's tenure was proved.
        follow: bool,
    },
    /// The move is over for its caller.
    Moved,
    /// The object is lost to this node: end its pending requests, once each.
    Lose,
    /// Message follow is over.
    End,
    /// Nothing changed.
    Ignored {
        /// The state.
        state: &'static str,
        /// The input.
        input: &'static str,
    },
}

/// Effects of one step.
pub type SourceEffects = SmallVec<[SourceEffect; 4]>;

impl Source {
    /// Begins a move whose preflight passed. `tenure.version` is not known yet and is filled in when the record is read.
    pub fn start() -> (Self, SourceEffects) {
        let state = State::Waiting { unsent: CutoverUnsent::new(), want: Want::Size };
        (Self { state }, smallvec![SourceEffect::Arm(SourceTimer::Deadline), SourceEffect::AskSize])
    }

    /// The name of its state.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Waiting { want: Want::Size, .. } => "Waiting(Size)",
            State::Waiting { want: Want::Budget, .. } => "Waiting(Budget)",
            State::Waiting { want: Want::Record, .. } => "Waiting(Record)",
            State::Sealing { .. } => "Sealing",
            State::Capturing { .. } => "Capturing",
            State::Transferring { .. } => "Transferring",
            State::ReadyUnguarded { .. } => "ReadyUnguarded",
            State::Cutover { .. } => "Cutover",
            State::Settling { .. } => "Settling",
            State::Retiring => "Retiring",
            State::Following => "Following",
            State::Ended => "Ended",
        }
    }

    /// The settlement, while there is one.
    pub const fn settlement(&self) -> Option<&SourceSettlement> {
        match &self.state {
            State::Cutover { settlement, .. } | State::Settling { settlement, .. } => Some(settlement),
            State::Waiting { .. }
            | State::Sealing { .. }
            | State::Capturing { .. }
            | State::Transferring { .. }
            | State::ReadyUnguarded { .. }
            | State::Retiring
            | State::Following
            | State::Ended => None,
        }
    }

    /// Whether the move is past its first cutover and not settled.
    pub const fn is_settling(&self) -> bool {
        self.settlement().is_some()
    }

    /// Whether the object has moved and only message follow is left.
    pub const fn is_following(&self) -> bool {
        matches!(self.state, State::Following)
    }

    /// One step. `tenure` gives the tenure that is moved; its version is that of the fence.
    pub fn step(
        &mut self,
        guard_live: bool,
        input: SourceInput,
        tenure: impl FnOnce(StoreVersion) -> SourceTenure,
    ) -> SourceEffects {
        let state = core::mem::replace(&mut self.state, State::Ended);
        let (next, effects) = match state {
            State::Waiting { unsent, want } => waiting(unsent, want, input),
            State::Sealing { unsent, version } => sealing(unsent, version, input),
            State::Capturing { unsent, version } => capturing(unsent, version, input),
            State::Transferring { unsent, version } => transferring(guard_live, unsent, version, input, tenure),
            State::ReadyUnguarded { unsent, version } => ready(guard_live, unsent, version, input, tenure),
            State::Cutover { settlement, failed } => cutover(guard_live, settlement, failed, input),
            State::Settling { settlement, failed } => settling(guard_live, settlement, failed, input),
            State::Retiring => retiring(input),
            State::Following => following(input),
            State::Ended => (State::Ended, ignored("Ended", &input)),
        };
        self.state = next;
        effects
    }
}

fn ignored(state: &'static str, input: &SourceInput) -> SourceEffects {
    smallvec![SourceEffect::Ignored { state, input: input.name() }]
}

fn refuse(reason: RefusedReason) -> (State, SourceEffects) {
    (State::Ended, smallvec![SourceEffect::Refuse(reason)])
}

fn keep(unsent: CutoverUnsent, reason: KeptReason) -> (State, SourceEffects) {
    (State::Ended, smallvec![SourceEffect::Resume(unsent.keep(), reason)])
}

fn lose() -> (State, SourceEffects) {
    (State::Ended, smallvec![SourceEffect::Lose])
}

fn waiting(unsent: CutoverUnsent, want: Want, input: SourceInput) -> (State, SourceEffects) {
    use SourceInput as In;
    let stay = |unsent, effects| (State::Waiting { unsent, want }, effects);
    match (want, input) {
        (Want::Size, In::Size { fits: true }) => {
            (State::Waiting { unsent, want: Want::Budget }, smallvec![SourceEffect::AcquireBudget])
        }
        (Want::Size, In::Size { fits: false }) => refuse(RefusedReason::TooLarge),
        (Want::Size, In::SizeFailed) => refuse(RefusedReason::HostFailed),
        (Want::Budget, In::Budget) => {
            (State::Waiting { unsent, want: Want::Record }, smallvec![SourceEffect::ReadRecord])
        }
        (Want::Record, In::Record(RecordSeen::Found(found))) => (
            State::Sealing { unsent, version: found.version },
            smallvec![SourceEffect::CloseGate, SourceEffect::Arm(SourceTimer::SealLimit)],
        ),
        (Want::Record, In::Record(RecordSeen::Missing)) => refuse(RefusedReason::StoreUnavailable),
        (Want::Record, In::Record(RecordSeen::Unknown)) => {
            stay(unsent, smallvec![SourceEffect::Arm(SourceTimer::Poll(0))])
        }
        (Want::Record, In::Timer(SourceTimer::Poll(_))) => stay(unsent, smallvec![SourceEffect::ReadRecord]),
        (_, In::Timer(SourceTimer::Deadline)) => refuse(RefusedReason::DeadlineExceeded),
        (_, In::Cancel) => refuse(RefusedReason::Cancelled),
        (_, In::PeerDown | In::TargetGone) => refuse(RefusedReason::TargetUnavailable),
        (_, In::Shutdown | In::Over) => refuse(RefusedReason::ShuttingDown),
        (
            Want::Size | Want::Budget | Want::Record,
            input @ (In::Size { .. }
            | In::SizeFailed
            | In::Budget
            | In::Record(_)
            | In::TurnsEnded
            | In::Captured
            | In::CaptureFailed(_)
            | In::Ready
            | In::Failed(_)
            | In::PeerUp
            | In::Submitted
            | In::OwnLease(_)
            | In::Preserved(_)
            | In::Retired
            | In::GuardLive
            | In::Timer(
                SourceTimer::PrepareResend
                | SourceTimer::SealLimit
                | SourceTimer::Poll(_)
                | SourceTimer::Resubmit
                | SourceTimer::Follow,
            )),
        ) => {
            let effects = ignored("Waiting", &input);
            stay(unsent, effects)
        }
    }
}

/// Before ready nothing can have been accepted by the target: any end of the move keeps the object here.
enum BeforeReady {
    /// End the move and keep the object.
    Keep(KeptReason),
    /// The node is over.
    Over,
    /// Not such an input.
    No(SourceInput),
}

fn before_ready(input: SourceInput) -> BeforeReady {
    use SourceInput as In;
    match input {
        In::Timer(SourceTimer::Deadline) => BeforeReady::Keep(KeptReason::DeadlineExceeded),
        In::Cancel => BeforeReady::Keep(KeptReason::Cancelled),
        In::PeerDown | In::TargetGone => BeforeReady::Keep(KeptReason::PeerLost),
        In::Shutdown => BeforeReady::Keep(KeptReason::ShuttingDown),
        In::Over => BeforeReady::Over,
        other @ (In::Size { .. }
        | In::SizeFailed
        | In::Budget
        | In::Record(_)
        | In::TurnsEnded
        | In::Captured
        | In::CaptureFailed(_)
        | In::Ready
        | In::Failed(_)
        | In::PeerUp
        | In::Submitted
        | In::OwnLease(_)
        | In::Preserved(_)
        | In::Retired
        | In::GuardLive
        | In::Timer(
            SourceTimer::PrepareResend
            | SourceTimer::SealLimit
            | SourceTimer::Poll(_)
            | SourceTimer::Resubmit
            | SourceTimer::Follow,
        )) => BeforeReady::No(other),
    }
}

fn sealing(unsent: CutoverUnsent, version: StoreVersion, input: SourceInput) -> (State, SourceEffects) {
    match before_ready(input) {
        BeforeReady::Keep(reason) => keep(unsent, reason),
        BeforeReady::Over => lose(),
        BeforeReady::No(SourceInput::TurnsEnded) => {
            let effects =
                smallvec![SourceEffect::Disarm(SourceTimer::SealLimit), SourceEffect::Capture(version.clone()),];
            (State::Capturing { unsent, version }, effects)
        }
        BeforeReady::No(SourceInput::Timer(SourceTimer::SealLimit)) => keep(unsent, KeptReason::SealTimeout),
        BeforeReady::No(other) => (State::Sealing { unsent, version }, ignored("Sealing", &other)),
    }
}

fn capturing(unsent: CutoverUnsent, version: StoreVersion, input: SourceInput) -> (State, SourceEffects) {
    match before_ready(input) {
        BeforeReady::Keep(reason) => keep(unsent, reason),
        BeforeReady::Over => lose(),
        BeforeReady::No(SourceInput::Captured) => (
            State::Transferring { unsent, version },
            smallvec![SourceEffect::Transfer, SourceEffect::Arm(SourceTimer::PrepareResend)],
        ),
        BeforeReady::No(SourceInput::CaptureFailed(reason)) => keep(unsent, reason),
        BeforeReady::No(other) => (State::Capturing { unsent, version }, ignored("Capturing", &other)),
    }
}

fn transferring(
    guard_live: bool,
    unsent: CutoverUnsent,
    version: StoreVersion,
    input: SourceInput,
    tenure: impl FnOnce(StoreVersion) -> SourceTenure,
) -> (State, SourceEffects) {
    match before_ready(input) {
        BeforeReady::Keep(reason) => keep(unsent, reason),
        BeforeReady::Over => lose(),
        BeforeReady::No(SourceInput::Ready) if guard_live => submit(unsent, tenure(version)),
        BeforeReady::No(SourceInput::Ready) => {
            (State::ReadyUnguarded { unsent, version }, smallvec![SourceEffect::Disarm(SourceTimer::PrepareResend)])
        }
        BeforeReady::No(SourceInput::Failed(code)) => keep(unsent, KeptReason::TargetFailed(code)),
        BeforeReady::No(SourceInput::Timer(SourceTimer::PrepareResend)) => (
            State::Transferring { unsent, version },
            smallvec![SourceEffect::ResendPrepare, SourceEffect::Arm(SourceTimer::PrepareResend)],
        ),
        BeforeReady::No(other) => (State::Transferring { unsent, version }, ignored("Transferring", &other)),
    }
}

fn ready(
    guard_live: bool,
    unsent: CutoverUnsent,
    version: StoreVersion,
    input: SourceInput,
    tenure: impl FnOnce(StoreVersion) -> SourceTenure,
) -> (State, SourceEffects) {
    match before_ready(input) {
        BeforeReady::Keep(reason) => keep(unsent, reason),
        BeforeReady::Over => lose(),
        BeforeReady::No(SourceInput::GuardLive | SourceInput::Ready) if guard_live => submit(unsent, tenure(version)),
        BeforeReady::No(SourceInput::Failed(code)) => keep(unsent, KeptReason::TargetFailed(code)),
        BeforeReady::No(other) => (State::ReadyUnguarded { unsent, version }, ignored("ReadyUnguarded", &other)),
    }
}

fn submit(unsent: CutoverUnsent, tenure: SourceTenure) -> (State, SourceEffects) {
    let settlement = unsent.give_up(tenure);
    (
        State::Cutover { settlement, failed: None },
        smallvec![SourceEffect::Disarm(SourceTimer::PrepareResend), SourceEffect::Submit],
    )
}

fn cutover(
    guard_live: bool,
    mut settlement: SourceSettlement,
    failed: Option<FailureCode>,
    input: SourceInput,
) -> (State, SourceEffects) {
    use SourceInput as In;
    match input {
        In::Submitted => {
            let (mut effects, verdict) = settle(guard_live, &mut settlement, SourceSettlementInput::Poll);
            if let Some(verdict) = verdict {
                return decided(verdict, failed);
            }
            effects.push(SourceEffect::Arm(SourceTimer::Resubmit));
            (State::Settling { settlement, failed }, effects)
        }
        In::PeerDown if planted!("rollback_on_submit_failure") => keep(CutoverUnsent::new(), KeptReason::PeerLost),
        // How the submission ended is not known yet, and says nothing about the target: the store will.
        In::Timer(SourceTimer::Deadline) | In::TargetGone => begin_fencing(guard_live, settlement, failed),
        In::Failed(code) => begin_fencing(guard_live, settlement, Some(code)),
        In::Over => lose(),
        In::PeerDown
        | In::PeerUp
        | In::Cancel
        | In::Shutdown
        | In::GuardLive
        | In::Size { .. }
        | In::SizeFailed
        | In::Budget
        | In::Record(_)
        | In::TurnsEnded
        | In::Captured
        | In::CaptureFailed(_)
        | In::Ready
        | In::OwnLease(_)
        | In::Preserved(_)
        | In::Retired
        | In::Timer(
            SourceTimer::PrepareResend
            | SourceTimer::SealLimit
            | SourceTimer::Poll(_)
            | SourceTimer::Resubmit
            | SourceTimer::Follow,
        ) => {
            let effects = ignored("Cutover", &input);
            (State::Cutover { settlement, failed }, effects)
        }
    }
}

/// The target's time is over while the submission has not ended: there is nothing more to wait for.
fn begin_fencing(
    guard_live: bool,
    mut settlement: SourceSettlement,
    failed: Option<FailureCode>,
) -> (State, SourceEffects) {
    let (mut effects, verdict) = settle(guard_live, &mut settlement, SourceSettlementInput::FenceDue);
    match verdict {
        Some(verdict) => decided(verdict, failed),
        None => {
            effects.push(SourceEffect::Arm(SourceTimer::Resubmit));
            (State::Settling { settlement, failed }, effects)
        }
    }
}

fn settling(
    guard_live: bool,
    mut settlement: SourceSettlement,
    failed: Option<FailureCode>,
    input: SourceInput,
) -> (State, SourceEffects) {
    use SourceInput as In;
    use SourceSettlementInput as Settle;
    let mut failed = failed;
    let name = input.name();
    let settle_input = match input {
        In::Timer(SourceTimer::Poll(_)) => Settle::Poll,
        // Once more, from a target that is open.
        In::Ready => Settle::Hint,
        In::Record(seen) => Settle::Record(seen),
        In::OwnLease(seen) => Settle::OwnLease(seen),
        In::Preserved(seen) => Settle::Preserved(seen),
        In::Timer(SourceTimer::Deadline) | In::TargetGone => Settle::FenceDue,
        In::Failed(code) => {
            failed = Some(code);
            Settle::FenceDue
        }
        In::Timer(SourceTimer::Resubmit) => {
            return (
                State::Settling { settlement, failed },
                smallvec![SourceEffect::Resubmit, SourceEffect::Arm(SourceTimer::Resubmit)],
            );
        }
        In::PeerUp => {
            return (
                State::Settling { settlement, failed },
                smallvec![SourceEffect::Resubmit, SourceEffect::Arm(SourceTimer::Resubmit)],
            );
        }
        In::Over => return lose(),
        In::PeerDown
        | In::Cancel
        | In::Shutdown
        | In::GuardLive
        | In::Size { .. }
        | In::SizeFailed
        | In::Budget
        | In::TurnsEnded
        | In::Captured
        | In::CaptureFailed(_)
        | In::Submitted
        | In::Retired
        | In::Timer(SourceTimer::PrepareResend | SourceTimer::SealLimit | SourceTimer::Follow) => {
            return (
                State::Settling { settlement, failed },
                smallvec![SourceEffect::Ignored { state: "Settling", input: name }],
            );
        }
    };
    let (effects, verdict) = settle(guard_live, &mut settlement, settle_input);
    match verdict {
        Some(verdict) => decided(verdict, failed),
        None => (State::Settling { settlement, failed }, effects),
    }
}

fn settle(
    guard_live: bool,
    settlement: &mut SourceSettlement,
    input: SourceSettlementInput,
) -> (SourceEffects, Option<SourceVerdict>) {
    let name = match &input {
        SourceSettlementInput::Poll => "Poll",
        SourceSettlementInput::Hint => "Hint",
        SourceSettlementInput::Record(_) => "Record",
        SourceSettlementInput::OwnLease(_) => "OwnLease",
        SourceSettlementInput::Preserved(_) => "Preserved",
        SourceSettlementInput::FenceDue => "FenceDue",
    };
    match settlement.step(guard_live, input) {
        Ok((ask, verdict)) => {
            let effects = match ask {
                // A settlement that was waiting and now reads has no use for its poll timer.
                Some(SourceAsk::Wait(step)) => smallvec![SourceEffect::Arm(SourceTimer::Poll(step))],
                Some(ask @ (SourceAsk::ReadRecord | SourceAsk::ReadOwnLease | SourceAsk::Preserve)) => {
                    smallvec![SourceEffect::Disarm(SourceTimer::Poll(0)), SourceEffect::Settle(ask)]
                }
                None => SourceEffects::new(),
            };
            (effects, verdict)
        }
        Err(state) => (smallvec![SourceEffect::Ignored { state, input: name }], None),
    }
}

fn decided(verdict: SourceVerdict, failed: Option<FailureCode>) -> (State, SourceEffects) {
    match verdict {
        SourceVerdict::Source(kept) => {
            let reason = failed.map_or(KeptReason::Fenced, KeptReason::TargetFailed);
            (State::Ended, smallvec![SourceEffect::Resume(kept, reason)])
        }
        SourceVerdict::Target { follow } => (State::Retiring, smallvec![SourceEffect::Retire { follow }]),
        SourceVerdict::Lost => lose(),
    }
}

fn retiring(input: SourceInput) -> (State, SourceEffects) {
    match input {
        SourceInput::Retired => {
            (State::Following, smallvec![SourceEffect::Moved, SourceEffect::Arm(SourceTimer::Follow)])
        }
        SourceInput::Over => (State::Ended, smallvec![SourceEffect::Moved, SourceEffect::End]),
        SourceInput::Size { .. }
        | SourceInput::SizeFailed
        | SourceInput::Budget
        | SourceInput::Record(_)
        | SourceInput::TurnsEnded
        | SourceInput::Captured
        | SourceInput::CaptureFailed(_)
        | SourceInput::Ready
        | SourceInput::Failed(_)
        | SourceInput::PeerDown
        | SourceInput::PeerUp
        | SourceInput::TargetGone
        | SourceInput::Submitted
        | SourceInput::OwnLease(_)
        | SourceInput::Preserved(_)
        | SourceInput::Timer(_)
        | SourceInput::Cancel
        | SourceInput::Shutdown
        | SourceInput::GuardLive => (State::Retiring, ignored("Retiring", &input)),
    }
}

fn following(input: SourceInput) -> (State, SourceEffects) {
    match input {
        SourceInput::Timer(SourceTimer::Follow) | SourceInput::Over => (State::Ended, smallvec![SourceEffect::End]),
        SourceInput::Timer(
            SourceTimer::Deadline
            | SourceTimer::PrepareResend
            | SourceTimer::SealLimit
            | SourceTimer::Poll(_)
            | SourceTimer::Resubmit,
        )
        | SourceInput::Size { .. }
        | SourceInput::SizeFailed
        | SourceInput::Budget
        | SourceInput::Record(_)
        | SourceInput::TurnsEnded
        | SourceInput::Captured
        | SourceInput::CaptureFailed(_)
        | SourceInput::Ready
        | SourceInput::Failed(_)
        | SourceInput::PeerDown
        | SourceInput::PeerUp
        | SourceInput::TargetGone
        | SourceInput::Submitted
        | SourceInput::OwnLease(_)
        | SourceInput::Preserved(_)
        | SourceInput::Retired
        | SourceInput::Cancel
        | SourceInput::Shutdown
        | SourceInput::GuardLive => (State::Following, ignored("Following", &input)),
    }
}

impl SourceInput {
    /// The name of the input.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "Size",
            Self::SizeFailed => "SizeFailed",
            Self::Budget => "Budget",
            Self::Record(_) => "Record",
            Self::TurnsEnded => "TurnsEnded",
            Self::Captured => "Captured",
            Self::CaptureFailed(_) => "CaptureFailed",
            Self::Ready => "Ready",
            Self::Failed(_) => "Failed",
            Self::PeerDown => "PeerDown",
            Self::PeerUp => "PeerUp",
            Self::TargetGone => "TargetGone",
            Self::Submitted => "Submitted",
            Self::OwnLease(_) => "OwnLease",
            Self::Preserved(_) => "Preserved",
            Self::Retired => "Retired",
            Self::Timer(SourceTimer::Deadline) => "Timer(Deadline)",
            Self::Timer(SourceTimer::PrepareResend) => "Timer(PrepareResend)",
            Self::Timer(SourceTimer::SealLimit) => "Timer(SealLimit)",
            Self::Timer(SourceTimer::Poll(_)) => "Timer(Poll)",
            Self::Timer(SourceTimer::Resubmit) => "Timer(Resubmit)",
            Self::Timer(SourceTimer::Follow) => "Timer(Follow)",
            Self::Cancel => "Cancel",
            Self::Shutdown => "Shutdown",
            Self::GuardLive => "GuardLive",
            Self::Over => "Over",
        }
    }
}
