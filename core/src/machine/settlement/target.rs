//! The target's settlement: from a verified cutover until the store says whether its commit won. It sends no frame.

use super::{Committed, LeaseSeen, RecordSeen, WriteSeen};
use crate::fence::OwnerPair;
use crate::id::{ObjectGeneration, OwnerGeneration, RelocationId, StoreVersion};

/// The tenure that the target commits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetTenure {
    /// The incarnation.
    pub generation: ObjectGeneration,
    /// The owner generation after the source's.
    pub owner_generation: OwnerGeneration,
    /// Our owner pair.
    pub owner: OwnerPair,
    /// The version that the commit expects.
    pub expected: StoreVersion,
    /// The move.
    pub relocation: RelocationId,
}

/// Settles one move at its target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetSettlement {
    tenure: TargetTenure,
    phase: Phase,
    /// The operation's deadline has passed: nothing more is submitted.
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Until the next poll.
    Waiting,
    /// Our commit is out.
    Submitting,
    /// A read of the record is out, after a submission that ended this way or after none.
    Reading(Option<WriteSeen>),
    /// A read of our own lease is out.
    OwnLease,
    /// A read of the source's lease is out.
    SourceLease,
    /// The source's lease has ended, so that no commit can happen any more; the record is read once more.
    LastReading,
    /// Over.
    Settled,
}

/// What the settlement hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetSettlementInput {
    /// Begin, or the poll timer fired.
    Poll,
    /// Our commit ended.
    Submitted(WriteSeen),
    /// The record was read.
    Record(RecordSeen),
    /// Our own lease was read.
    OwnLease(LeaseSeen),
    /// The source's lease was read.
    SourceLease(LeaseSeen),
    /// The operation's deadline has passed.
    Deadline,
}

/// What the settlement wants done. Replies come back as inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetAsk {
    /// Submit the commit: always the same batch, with the same expected version.
    Submit,
    /// Read the record.
    ReadRecord,
    /// Read our own lease key.
    ReadOwnLease,
    /// Read the source's lease key.
    ReadSourceLease,
    /// Poll again later.
    Wait,
}

/// Whether the target owns the object.
#[derive(Debug)]
pub enum TargetVerdict {
    /// It does.
    Committed(Committed),
    /// It does not and never will by this move.
    Excluded,
}

type Step = (Option<TargetAsk>, Option<TargetVerdict>);

impl TargetSettlement {
    /// For a target whose cutover was verified.
    pub const fn new(tenure: TargetTenure) -> Self {
        Self { tenure, phase: Phase::Waiting, stopped: false }
    }

    /// The tenure that it commits.
    pub const fn tenure(&self) -> &TargetTenure {
        &self.tenure
    }

    /// The name of its phase.
    pub const fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Waiting => "Waiting",
            Phase::Submitting => "Submitting",
            Phase::Reading(_) => "Reading",
            Phase::OwnLease => "OwnLease",
            Phase::SourceLease => "SourceLease",
            Phase::LastReading => "LastReading",
            Phase::Settled => "Settled",
        }
    }

    /// One step. `guard_live` says whether the lease guard allows a write now. Returns `Err` with the phase's name for an
    /// input that changes nothing.
    pub fn step(&mut self, guard_live: bool, input: TargetSettlementInput) -> Result<Step, &'static str> {
        use TargetSettlementInput as In;
        match (self.phase, input) {
            (
                Phase::Settled,
                In::Poll | In::Submitted(_) | In::Record(_) | In::OwnLease(_) | In::SourceLease(_) | In::Deadline,
            ) => Err(self.phase()),
            (_, In::Deadline) if self.stopped => Err(self.phase()),
            (
                Phase::Waiting
                | Phase::Submitting
                | Phase::Reading(_)
                | Phase::OwnLease
                | Phase::SourceLease
                | Phase::LastReading,
                In::Deadline,
            ) => {
                self.stopped = true;
                Ok((None, None))
            }
            (Phase::Waiting, In::Poll) if guard_live && !self.stopped => {
                self.phase = Phase::Submitting;
                Ok((Some(TargetAsk::Submit), None))
            }
            (Phase::Waiting, In::Poll) => Ok(self.read(None)),
            (Phase::Submitting, In::Submitted(WriteSeen::Conflict)) if planted!("own_conflict_is_excluded") => {
                Ok(self.settle(TargetVerdict::Excluded))
            }
            (Phase::Submitting, In::Submitted(WriteSeen::Unknown)) if planted!("unknown_commit_is_conflict") => {
                Ok(self.settle(TargetVerdict::Excluded))
            }
            (Phase::Submitting, In::Submitted(WriteSeen::Unknown)) if planted!("unknown_commit_is_committed") => {
                Ok(self.settle(TargetVerdict::Committed(Committed(()))))
            }
            (Phase::Submitting, In::Submitted(seen)) => Ok(self.read(Some(seen))),
            (Phase::Reading(after), In::Record(seen)) => Ok(self.decide(after, seen)),
            (Phase::LastReading, In::Record(seen)) => Ok(match self.relate(&seen) {
                Relation::Committed => self.settle(TargetVerdict::Committed(Committed(()))),
                Relation::Moved | Relation::Unmoved => self.settle(TargetVerdict::Excluded),
                Relation::Unknown => (Some(TargetAsk::ReadRecord), None),
            }),
            (Phase::OwnLease, In::OwnLease(seen)) => Ok(match seen {
                LeaseSeen::Missing => self.settle(TargetVerdict::Excluded),
                LeaseSeen::Unknown => self.wait(),
                LeaseSeen::Live => {
                    self.phase = Phase::SourceLease;
                    (Some(TargetAsk::ReadSourceLease), None)
                }
            }),
            (Phase::SourceLease, In::SourceLease(seen)) => Ok(match seen {
                LeaseSeen::Missing => {
                    self.phase = Phase::LastReading;
                    (Some(TargetAsk::ReadRecord), None)
                }
                LeaseSeen::Unknown | LeaseSeen::Live => self.wait(),
            }),
            (Phase::Waiting, In::Submitted(_) | In::Record(_) | In::OwnLease(_) | In::SourceLease(_))
            | (Phase::Submitting, In::Poll | In::Record(_) | In::OwnLease(_) | In::SourceLease(_))
            | (
                Phase::Reading(_) | Phase::LastReading,
                In::Poll | In::Submitted(_) | In::OwnLease(_) | In::SourceLease(_),
            )
            | (Phase::OwnLease, In::Poll | In::Submitted(_) | In::Record(_) | In::SourceLease(_))
            | (Phase::SourceLease, In::Poll | In::Submitted(_) | In::Record(_) | In::OwnLease(_)) => Err(self.phase()),
        }
    }

    fn decide(&mut self, after: Option<WriteSeen>, seen: RecordSeen) -> Step {
        match self.relate(&seen) {
            Relation::Committed => self.settle(TargetVerdict::Committed(Committed(()))),
            // The version has moved without our commit, and a version never recurs: our commit can never win.
            Relation::Moved => self.settle(TargetVerdict::Excluded),
            Relation::Unknown => self.wait(),
            Relation::Unmoved => match after {
                // Only a lease or the capacity can have been in the way. With our time over, only the source's lease
                // can still tell that nobody will fence.
                Some(WriteSeen::Conflict) | None => {
                    self.phase = Phase::OwnLease;
                    (Some(TargetAsk::ReadOwnLease), None)
                }
                Some(WriteSeen::Unknown | WriteSeen::Applied) => self.wait(),
            },
        }
    }

    fn relate(&self, seen: &RecordSeen) -> Relation {
        let found = match seen {
            RecordSeen::Unknown => return Relation::Unknown,
            RecordSeen::Missing => return Relation::Moved,
            RecordSeen::Found(found) => found,
        };
        let ours = &self.tenure;
        let record = &found.record;
        let made_by_us = record.slot.tenure_by == Some(ours.relocation) || planted!("commit_without_tenure_by");
        if record.generation == ours.generation
            && record.owner_generation == ours.owner_generation
            && record.owner == ours.owner
            && made_by_us
        {
            Relation::Committed
        } else if found.version == ours.expected {
            Relation::Unmoved
        } else {
            Relation::Moved
        }
    }

    fn read(&mut self, after: Option<WriteSeen>) -> Step {
        self.phase = Phase::Reading(after);
        (Some(TargetAsk::ReadRecord), None)
    }

    fn wait(&mut self) -> Step {
        self.phase = Phase::Waiting;
        (Some(TargetAsk::Wait), None)
    }

    fn settle(&mut self, verdict: TargetVerdict) -> Step {
        self.phase = Phase::Settled;
        (None, Some(verdict))
    }
}

/// How a record that was read stands to our commit.
enum Relation {
    Unknown,
    Committed,
    Unmoved,
    Moved,
}
