//! The source's settlement: from its cutover until the store says who owns the object. It sends no frame.

use super::{Kept, LeaseSeen, RecordSeen, WriteSeen};
use crate::fence::{OwnerPair, PeerFence};
use crate::id::{ObjectGeneration, OwnerGeneration, RelocationId, StoreVersion};
use crate::store::record::Authority;

/// The tenure that the source had when it sealed, and the move that may have ended it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceTenure {
    /// The incarnation.
    pub generation: ObjectGeneration,
    /// Our owner generation.
    pub owner_generation: OwnerGeneration,
    /// Our owner pair.
    pub owner: OwnerPair,
    /// The version that our fence names.
    pub version: StoreVersion,
    /// The move.
    pub relocation: RelocationId,
    /// Its target.
    pub target: PeerFence,
}

/// Settles one move at its source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceSettlement {
    tenure: SourceTenure,
    phase: Phase,
    /// The target can be fenced out: its time is over, it gave up, or its lease has ended.
    fence_due: bool,
    polls: u32,
    /// The target said that it is open while an earlier question was out: the answer may be older than that.
    hinted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Until the next poll.
    Waiting,
    /// A read of the record is out.
    Reading,
    /// A read of our own lease is out, to fence.
    LeaseToFence,
    /// A read of our own lease is out; the record that was read before is neither ours nor provably moved on.
    LeaseOfGone,
    /// Our preserve is out.
    Preserving,
    /// Our lease has ended; the record is read once more.
    LastReading,
    /// Over.
    Settled,
}

/// What the settlement hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceSettlementInput {
    /// Begin, or the poll timer fired.
    Poll,
    /// The target says that it opened. It proves nothing: it is a reason to read the record now.
    Hint,
    /// The record was read.
    Record(RecordSeen),
    /// Our own lease was read.
    OwnLease(LeaseSeen),
    /// Our preserve ended.
    Preserved(WriteSeen),
    /// The target has no more time, gave up, or its lease has ended.
    FenceDue,
}

/// What the settlement wants done. Replies come back as inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceAsk {
    /// Read the record.
    ReadRecord,
    /// Read our own lease key.
    ReadOwnLease,
    /// Write our record again, unchanged, on condition of the fence's version.
    Preserve,
    /// Poll again after the `n`-th step of the back-off.
    Wait(u32),
}

/// Who owns the object.
#[derive(Debug)]
pub enum SourceVerdict {
    /// The move was committed, whoever owns the object by now.
    Target {
        /// Whether the record still names our target's tenure: only then a follow route may be installed.
        follow: bool,
    },
    /// The source, for good.
    Source(Kept),
    /// Our lease ended before the store said anything else.
    Lost,
}

type Step = (Option<SourceAsk>, Option<SourceVerdict>);

impl SourceSettlement {
    pub(super) const fn new(tenure: SourceTenure) -> Self {
        Self { tenure, phase: Phase::Waiting, fence_due: false, polls: 0, hinted: false }
    }

    /// The tenure that it settles.
    pub const fn tenure(&self) -> &SourceTenure {
        &self.tenure
    }

    /// Whether the target may be fenced out.
    pub const fn fence_due(&self) -> bool {
        self.fence_due
    }

    /// The name of its phase.
    pub const fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Waiting => "Waiting",
            Phase::Reading => "Reading",
            Phase::LeaseToFence => "LeaseToFence",
            Phase::LeaseOfGone => "LeaseOfGone",
            Phase::Preserving => "Preserving",
            Phase::LastReading => "LastReading",
            Phase::Settled => "Settled",
        }
    }

    /// One step. `guard_live` says whether the lease guard allows a write now. Returns `Err` with the phase's name for an
    /// input that changes nothing.
    pub fn step(&mut self, guard_live: bool, input: SourceSettlementInput) -> Result<Step, &'static str> {
        use SourceSettlementInput as In;
        match (self.phase, input) {
            (
                Phase::Settled,
                In::Poll | In::Hint | In::Record(_) | In::OwnLease(_) | In::Preserved(_) | In::FenceDue,
            ) => Err(self.phase()),
            (_, In::FenceDue) if self.fence_due => Err(self.phase()),
            (Phase::Waiting, In::FenceDue) => {
                self.fence_due = true;
                Ok(self.read())
            }
            (
                Phase::Reading | Phase::LeaseToFence | Phase::LeaseOfGone | Phase::Preserving | Phase::LastReading,
                In::FenceDue,
            ) => {
                self.fence_due = true;
                Ok((None, None))
            }
            (Phase::Waiting, In::Poll | In::Hint) => Ok(self.read()),
            (Phase::Reading | Phase::LeaseToFence | Phase::LeaseOfGone | Phase::Preserving, In::Hint) => {
                self.hinted = true;
                Ok((None, None))
            }
            (Phase::Reading, In::Record(seen)) => Ok(self.decide(seen)),
            (Phase::LastReading, In::Record(seen)) => Ok(self.decide_last(seen)),
            (Phase::LeaseToFence, In::OwnLease(seen)) => Ok(self.fence(guard_live, seen)),
            (Phase::LeaseOfGone, In::OwnLease(seen)) => Ok(match seen {
                // The lease was live after the record was read: nobody could have taken the object from us, so our
                // move committed and the object has gone on from there.
                LeaseSeen::Live => self.settle(SourceVerdict::Target { follow: false }),
                LeaseSeen::Missing => self.read_last(),
                LeaseSeen::Unknown => self.wait(),
            }),
            (Phase::Preserving, In::Preserved(WriteSeen::Unknown)) if planted!("unknown_preserve_is_kept") => {
                Ok(self.settle(SourceVerdict::Source(Kept(()))))
            }
            // However our preserve ended, the record tells.
            (Phase::Preserving, In::Preserved(WriteSeen::Applied | WriteSeen::Conflict | WriteSeen::Unknown)) => {
                Ok(self.read())
            }
            (Phase::Waiting, In::Record(_) | In::OwnLease(_) | In::Preserved(_))
            | (Phase::LastReading, In::Hint)
            | (Phase::Reading | Phase::LastReading, In::Poll | In::OwnLease(_) | In::Preserved(_))
            | (Phase::LeaseToFence | Phase::LeaseOfGone, In::Poll | In::Record(_) | In::Preserved(_))
            | (Phase::Preserving, In::Poll | In::Record(_) | In::OwnLease(_)) => Err(self.phase()),
        }
    }

    fn decide(&mut self, seen: RecordSeen) -> Step {
        let ours = &self.tenure;
        match seen {
            RecordSeen::Unknown if planted!("unknown_record_is_lost") => self.settle(SourceVerdict::Lost),
            RecordSeen::Unknown => self.wait(),
            RecordSeen::Missing => self.check_gone(),
            RecordSeen::Found(found) => {
                if planted!("committed_means_our_target") {
                    let record = &found.record;
                    if record.generation == ours.generation && record.owner == ours.target.owner {
                        return self.settle(SourceVerdict::Target { follow: true });
                    }
                    if record.generation == ours.generation && record.owner_generation > ours.owner_generation {
                        return self.wait();
                    }
                }
                match relate(ours, &found) {
                    Relation::Beyond { target: follow } => {
                        self.settle(SourceVerdict::Target { follow: follow || planted!("follow_whoever_owns") })
                    }
                    Relation::OursMoved => self.settle(SourceVerdict::Source(Kept(()))),
                    Relation::OursUnmoved if self.fence_due => {
                        if planted!("fence_without_write") {
                            return self.settle(SourceVerdict::Source(Kept(())));
                        }
                        if planted!("skip_lease_check_before_preserve") {
                            self.phase = Phase::Preserving;
                            return (Some(SourceAsk::Preserve), None);
                        }
                        self.phase = Phase::LeaseToFence;
                        (Some(SourceAsk::ReadOwnLease), None)
                    }
                    Relation::OursUnmoved => self.wait(),
                    Relation::Other => self.check_gone(),
                }
            }
        }
    }

    /// Our lease has ended; the record was read after that. Only a committed move is still to be told from a loss.
    fn decide_last(&mut self, seen: RecordSeen) -> Step {
        match seen {
            RecordSeen::Unknown => {
                self.phase = Phase::LastReading;
                (Some(SourceAsk::ReadRecord), None)
            }
            RecordSeen::Missing => self.settle(SourceVerdict::Lost),
            RecordSeen::Found(found) => match relate(&self.tenure, &found) {
                Relation::Beyond { target } => self.settle(SourceVerdict::Target { follow: target }),
                Relation::OursMoved | Relation::OursUnmoved | Relation::Other => self.settle(SourceVerdict::Lost),
            },
        }
    }

    fn fence(&mut self, guard_live: bool, seen: LeaseSeen) -> Step {
        match seen {
            LeaseSeen::Live if guard_live => {
                self.phase = Phase::Preserving;
                (Some(SourceAsk::Preserve), None)
            }
            LeaseSeen::Live | LeaseSeen::Unknown => self.wait(),
            LeaseSeen::Missing => self.read_last(),
        }
    }

    fn check_gone(&mut self) -> Step {
        if planted!("gone_is_lost") {
            return self.settle(SourceVerdict::Lost);
        }
        self.phase = Phase::LeaseOfGone;
        (Some(SourceAsk::ReadOwnLease), None)
    }

    fn read(&mut self) -> Step {
        self.phase = Phase::Reading;
        self.hinted = false;
        (Some(SourceAsk::ReadRecord), None)
    }

    fn read_last(&mut self) -> Step {
        self.phase = Phase::LastReading;
        (Some(SourceAsk::ReadRecord), None)
    }

    fn wait(&mut self) -> Step {
        if self.hinted {
            return self.read();
        }
        self.phase = Phase::Waiting;
        let step = self.polls;
        self.polls = self.polls.saturating_add(1).min(MAX_BACKOFF_STEP);
        (Some(SourceAsk::Wait(step)), None)
    }

    fn settle(&mut self, verdict: SourceVerdict) -> Step {
        self.phase = Phase::Settled;
        (None, Some(verdict))
    }
}

/// Beyond this step the back-off no longer grows.
const MAX_BACKOFF_STEP: u32 = 16;

/// How a record that was read stands to our tenure.
enum Relation {
    /// Only a commit grows the owner generation, and only our own move could commit from our tenure.
    Beyond {
        /// It names our target's tenure, made by our move.
        target: bool,
    },
    /// Our tenure at another version than the fence's: the commit can no longer win.
    OursMoved,
    /// Our tenure at the fence's version: undecided.
    OursUnmoved,
    /// Another incarnation, or an owner that did not come by a move from us.
    Other,
}

fn relate(ours: &SourceTenure, found: &Authority) -> Relation {
    let record = &found.record;
    if record.generation != ours.generation {
        return Relation::Other;
    }
    if record.owner_generation > ours.owner_generation {
        let target = ours.owner_generation.next() == Some(record.owner_generation)
            && record.owner == ours.target.owner
            && record.node == ours.target.node
            && record.slot.tenure_by == Some(ours.relocation);
        return Relation::Beyond { target };
    }
    if record.owner_generation != ours.owner_generation || record.owner != ours.owner {
        return Relation::Other;
    }
    if found.version == ours.version { Relation::OursUnmoved } else { Relation::OursMoved }
}
