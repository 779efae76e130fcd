//! The account of a move: what became of every message that it touched. Each side's must balance.

/// The source's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceReceipt {
    /// Accepted and not yet run when the object was captured.
    pub saved: u64,
    /// Accepted after the capture.
    pub held: u64,
    /// Saved work that the target has taken over.
    pub transferred: u64,
    /// Held messages that the target has taken over as the boundary batch.
    pub relayed: u64,
    /// Held messages that follow to the new owner.
    pub followed: u64,
    /// Messages that went back to the queue here.
    pub returned: u64,
    /// Messages that ended with an error.
    pub rejected: u64,
}

impl SourceReceipt {
    /// Whether every message that came in has gone exactly one way.
    pub fn balances(&self) -> bool {
        let into = u128::from(self.saved).saturating_add(u128::from(self.held));
        let out = [self.transferred, self.relayed, self.followed, self.returned, self.rejected];
        into == out.iter().fold(0u128, |sum, count| sum.saturating_add(u128::from(*count)))
    }
}

/// The target's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TargetReceipt {
    /// Saved work that came with the state.
    pub saved: u64,
    /// Records of the verified boundary batch.
    pub boundary: u64,
    /// Messages that arrived in the temporary queue.
    pub temporary: u64,
    /// Messages admitted to the object's queue.
    pub admitted: u64,
    /// Messages given up because the stage did not open; the source still has the first two kinds.
    pub dropped: u64,
    /// Messages sent back to their senders.
    pub rejected: u64,
}

impl TargetReceipt {
    /// Whether every message that came in has gone exactly one way.
    pub fn balances(&self) -> bool {
        let sum = |counts: [u64; 3]| counts.iter().fold(0u128, |sum, count| sum.saturating_add(u128::from(*count)));
        sum([self.saved, self.boundary, self.temporary]) == sum([self.admitted, self.dropped, self.rejected])
    }
}
