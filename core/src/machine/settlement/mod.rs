//! Settlement: finding out, from the store alone, who owns an object after the point of no return.
//!
//! This module is the safety argument. The target's commit and the source's preserve are conditional writes on the
//! *same version of the same record*; versions never recur; so at most one of them ever takes effect, and a read that
//! shows the record at another version than the fence's proves that the commit can no longer win. Dispatch opens only
//! with a proof value, and proofs are made here and nowhere else:
//!
//! - [`Committed`] by [`TargetSettlement`], from a read that shows our tenure made by our relocation id;
//! - [`Kept`] by [`SourceSettlement`], from a read that shows our tenure at a version moved away from the fence's, or
//!   from [`CutoverUnsent`], which a source gives up when it sends its first cutover.
//!
//! A proof is not `Clone` and rests nowhere: the call that makes it is the call that spends it. A time-out, a lost
//! connection, a failed submission or an unknown store reply is never a proof of anything.

mod source;
mod target;

pub use source::{SourceAsk, SourceSettlement, SourceSettlementInput, SourceTenure, SourceVerdict};
pub use target::{TargetAsk, TargetSettlement, TargetSettlementInput, TargetTenure, TargetVerdict};

use crate::store::record::Authority;

/// The target's commit stands: its dispatch may open.
#[derive(Debug)]
pub struct Committed(());

/// The target's commit did not win and never will: the source's dispatch may resume.
#[derive(Debug)]
pub struct Kept(());

/// Rests in the states of a source that has sent no cutover. Without a cutover the target may not commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CutoverUnsent(());

impl CutoverUnsent {
    /// For a source that begins.
    pub(super) const fn new() -> Self {
        Self(())
    }

    /// The source ends without a cutover.
    pub(super) const fn keep(self) -> Kept {
        Kept(())
    }

    /// The source sends its cutover: from here only the store can say who owns the object.
    pub(super) fn give_up(self, tenure: SourceTenure) -> SourceSettlement {
        SourceSettlement::new(tenure)
    }
}

/// What one read of the authority record showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordSeen {
    /// The reply did not come, or the record could not be understood. Nothing follows from it.
    Unknown,
    /// There is no record.
    Missing,
    /// The record.
    Found(Box<Authority>),
}

/// What one read of a lease key showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseSeen {
    /// The reply did not come, or the key has no expiry, which is corruption. It has not ended.
    Unknown,
    /// The key of exactly this generation is gone: the lease has ended, for good.
    Missing,
    /// It is live.
    Live,
}

/// How one conditional write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteSeen {
    /// The reply did not come. It may have happened, or may happen yet.
    Unknown,
    /// A condition did not hold.
    Conflict,
    /// It was done.
    Applied,
}
