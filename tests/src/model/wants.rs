//! What the machines hear and want, as small values for the tables.

use rehome::machine::settlement::{LeaseSeen, SourceAsk, TargetAsk, WriteSeen};
use rehome::machine::source::{SourceEffect, SourceTimer};
use rehome::machine::target::{TargetEffect, TargetTimer};

/// What a machine wants, without what only the wire needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Did {
    #[default]
    Nothing,
    AskSize,
    AcquireBudget,
    ReadRecord,
    ReadOwnLease,
    ReadSourceLease,
    Write,
    CloseGate,
    Capture,
    Transfer,
    Cutover,
    Wait,
    Resume,
    Retire {
        follow: bool,
    },
    Moved,
    Lose,
    /// Refused, or the follow is over.
    End,
    Restore,
    SendReady,
    SendFailed,
    Open,
    Discard,
}

pub(super) type Dids = [Did; 6];

/// What a source hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceIn {
    Size,
    Budget,
    TurnsEnded,
    Captured,
    Ready,
    Failed,
    PeerDown,
    Submitted,
    Retired,
    Deadline,
    Poll,
    Cancel,
    GuardLive,
    Over,
    Shutdown,
    Gone,
    Record(u16),
    OwnLease(LeaseSeen),
    Preserved(WriteSeen),
}

/// What a target hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetIn {
    PrepareAgain,
    PrepareOther,
    Chunk,
    Cutover,
    Restored,
    PeerDown,
    Deadline,
    CutoverWait,
    Poll,
    Over,
    Shutdown,
    Gone,
    Record(u16),
    OwnLease(LeaseSeen),
    SourceLease(LeaseSeen),
    Submitted(WriteSeen),
}

const fn lease_code(seen: LeaseSeen) -> u64 {
    match seen {
        LeaseSeen::Unknown => 0,
        LeaseSeen::Missing => 1,
        LeaseSeen::Live => 2,
    }
}

const fn write_code(seen: WriteSeen) -> u64 {
    match seen {
        WriteSeen::Unknown => 0,
        WriteSeen::Conflict => 1,
        WriteSeen::Applied => 2,
    }
}

impl SourceIn {
    pub(super) const fn code(self) -> u64 {
        match self {
            Self::Size => 1,
            Self::Budget => 2,
            Self::TurnsEnded => 3,
            Self::Captured => 4,
            Self::Ready => 5,
            Self::Failed => 6,
            Self::PeerDown => 7,
            Self::Submitted => 8,
            Self::Retired => 9,
            Self::Deadline => 10,
            Self::Poll => 11,
            Self::Cancel => 12,
            Self::GuardLive => 13,
            Self::Over => 14,
            Self::Shutdown => 15,
            Self::Gone => 16,
            Self::OwnLease(seen) => 20 + lease_code(seen),
            Self::Preserved(seen) => 30 + write_code(seen),
            Self::Record(reply) => 1 << 16 | reply as u64,
        }
    }
}

impl TargetIn {
    pub(super) const fn code(self) -> u64 {
        match self {
            Self::PrepareAgain => 1,
            Self::PrepareOther => 2,
            Self::Chunk => 3,
            Self::Cutover => 4,
            Self::Restored => 5,
            Self::PeerDown => 6,
            Self::Deadline => 7,
            Self::CutoverWait => 8,
            Self::Poll => 9,
            Self::Over => 10,
            Self::Shutdown => 11,
            Self::Gone => 12,
            Self::OwnLease(seen) => 20 + lease_code(seen),
            Self::SourceLease(seen) => 30 + lease_code(seen),
            Self::Submitted(seen) => 40 + write_code(seen),
            Self::Record(reply) => 1 << 16 | reply as u64,
        }
    }
}

fn filled(dids: impl Iterator<Item = Did>) -> Dids {
    let mut out = Dids::default();
    for (at, did) in dids.filter(|did| *did != Did::Nothing).enumerate() {
        out[at] = did;
    }
    out
}

pub(super) fn source_dids(effects: impl IntoIterator<Item = SourceEffect>) -> Dids {
    filled(effects.into_iter().map(|effect| match effect {
        SourceEffect::AskSize => Did::AskSize,
        SourceEffect::AcquireBudget => Did::AcquireBudget,
        SourceEffect::ReadRecord | SourceEffect::Settle(SourceAsk::ReadRecord) => Did::ReadRecord,
        SourceEffect::Settle(SourceAsk::ReadOwnLease) => Did::ReadOwnLease,
        SourceEffect::Settle(SourceAsk::Preserve) => Did::Write,
        SourceEffect::Settle(SourceAsk::Wait(_)) | SourceEffect::Arm(SourceTimer::Poll(_)) => Did::Wait,
        SourceEffect::CloseGate => Did::CloseGate,
        SourceEffect::Capture(_) => Did::Capture,
        SourceEffect::Transfer => Did::Transfer,
        SourceEffect::Submit => Did::Cutover,
        SourceEffect::Resume(_proof, _) => Did::Resume,
        SourceEffect::Retire { follow } => Did::Retire { follow },
        SourceEffect::Moved => Did::Moved,
        SourceEffect::Lose => Did::Lose,
        SourceEffect::Refuse(_) | SourceEffect::End => Did::End,
        // What was sent once may come again at any time here.
        SourceEffect::ResendPrepare
        | SourceEffect::Resubmit
        | SourceEffect::Arm(_)
        | SourceEffect::Disarm(_)
        | SourceEffect::Ignored { .. } => Did::Nothing,
    }))
}

pub(super) fn target_dids(effects: impl IntoIterator<Item = TargetEffect>) -> Dids {
    filled(effects.into_iter().map(|effect| match effect {
        TargetEffect::ReadRecord | TargetEffect::Settle(TargetAsk::ReadRecord) => Did::ReadRecord,
        TargetEffect::Settle(TargetAsk::Submit) => Did::Write,
        TargetEffect::Settle(TargetAsk::ReadOwnLease) => Did::ReadOwnLease,
        TargetEffect::Settle(TargetAsk::ReadSourceLease) => Did::ReadSourceLease,
        TargetEffect::Settle(TargetAsk::Wait) | TargetEffect::Arm(TargetTimer::Poll) => Did::Wait,
        TargetEffect::Restore { .. } => Did::Restore,
        TargetEffect::SendReady => Did::SendReady,
        TargetEffect::SendFailed(_) => Did::SendFailed,
        TargetEffect::Open { .. } => Did::Open,
        TargetEffect::Discard { .. } => Did::Discard,
        TargetEffect::Warn | TargetEffect::Arm(_) | TargetEffect::Disarm(_) | TargetEffect::Ignored { .. } => {
            Did::Nothing
        }
    }))
}
