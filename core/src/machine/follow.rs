//! Message follow: an old owner decides, for each message that still arrives at the old address, whether it goes on to
//! the new owner. It holds no message: what it lets through queues at the node's own route to the object.

use crate::fence::RouteFence;
use std::collections::BTreeSet;

/// The forwarding of one ended tenure. Installed only from a committed record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    /// The tenure that ended here.
    pub source: RouteFence,
    /// The tenure that came after it.
    pub target: RouteFence,
    noticed: BTreeSet<crate::fence::NodeFence>,
}

/// What becomes of a message at an old address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FollowVerdict {
    /// It goes on with one more hop.
    Forward {
        /// The hops it has then.
        hops: u8,
        /// Its sender should be told about the new address, once.
        notice: bool,
    },
    /// It has been forwarded too often, or in a circle.
    TooManyHops,
    /// It is for another incarnation.
    OtherIncarnation,
}

impl Follow {
    /// Forwards from `source` to `target`. `None` where the owner generation does not grow, which would be a circle, or
    /// where the incarnations differ.
    pub fn new(source: RouteFence, target: RouteFence) -> Option<Self> {
        let grows = target.owner_generation > source.owner_generation && target.generation == source.generation;
        grows.then(|| Self { source, target, noticed: BTreeSet::new() })
    }

    /// Decides about a message addressed to `to` that came with `hops` hops from the node `from`.
    pub fn decide(&mut self, to: &RouteFence, hops: u8, limit: u8, from: &crate::fence::NodeFence) -> FollowVerdict {
        if to.generation != self.source.generation {
            return FollowVerdict::OtherIncarnation;
        }
        match hops.checked_add(1).filter(|hops| *hops <= limit) {
            Some(hops) => FollowVerdict::Forward { hops, notice: self.noticed.insert(from.clone()) },
            None => FollowVerdict::TooManyHops,
        }
    }

    /// The notice to `from` could not be sent: the next message may cause it again.
    pub fn notice_failed(&mut self, from: &crate::fence::NodeFence) {
        self.noticed.remove(from);
    }
}
