//! Promise 7: unknown is not failure. Whoever says that a lease has ended, a peer is gone or an object is lost must be
//! right about the store.

use super::{Faults, Truth};
use rehome::fence::{OwnerPair, PeerFence};

/// Looks at each such statement.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// Leases given back or ended, as they were said to be.
    pub(crate) said: u64,
}

impl Unknown {
    /// A node says that its lease is gone.
    pub(crate) fn lease_lost(&mut self, faults: &mut Faults, truth: &mut Truth<'_>, pair: &OwnerPair) {
        self.said += 1;
        if truth.lease_live(pair) {
            faults.promise(7, format!("{pair:?} gave itself up while its lease was live"));
        }
    }

    /// A node says that a peer's generation is over.
    pub(crate) fn peer_gone(&mut self, faults: &mut Faults, truth: &mut Truth<'_>, peer: &PeerFence) {
        self.said += 1;
        if truth.lease_live(&peer.owner) {
            faults.promise(7, format!("{peer:?} was called gone while its lease was live"));
        }
    }

    /// A move was reported as lost by a node that is not over.
    pub(crate) fn move_lost(&mut self, faults: &mut Faults, truth: &mut Truth<'_>, pair: &OwnerPair) {
        self.said += 1;
        if truth.lease_live(pair) {
            faults.promise(7, format!("a move of {pair:?} was called lost while its lease was live"));
        }
    }
}
