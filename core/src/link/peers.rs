//! Which connection to each peer counts. Knows numbers and generations, but no bytes and no time.

use super::Conn;
use crate::fence::NodeFence;
use crate::id::NodeGeneration;
use std::collections::BTreeMap;

/// What is known of the connections with one peer generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The connection that is up.
    pub(super) live: Option<Conn>,
    /// The greatest number that a welcome between the two had, 0 for none. The decider's live connection has it.
    pub(super) number: u64,
}

/// What the decider does with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Welcome it; an older connection is over.
    Welcome,
    /// Refuse it: both have another connection.
    Duplicate,
    /// Ask the far end of this connection first.
    Hold(Conn),
}

impl Known {
    /// Judges a claim. `number` is the newest welcome that the claiming node knew when it wrote the claim, `live`
    /// whether it still had that connection then.
    pub(super) const fn judge(self, number: u64, live: bool) -> Verdict {
        match self.live {
            None => Verdict::Welcome,
            // It may not have read our last welcome yet, or never will.
            Some(conn) if number < self.number => Verdict::Hold(conn),
            Some(_) if live => Verdict::Duplicate,
            Some(_) => Verdict::Welcome,
        }
    }
}

/// All peers.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    known: BTreeMap<NodeFence, Known>,
}

impl Peers {
    /// What is known of `node`.
    pub(super) fn get(&self, node: &NodeFence) -> Known {
        self.known.get(node).copied().unwrap_or_default()
    }

    /// The connection `conn` is up, by the welcome `number`.
    pub(super) fn set(&mut self, node: &NodeFence, conn: Conn, number: u64) {
        self.known.insert(node.clone(), Known { live: Some(conn), number });
    }

    /// `conn` is down. Returns whether it was the one that counts. Keeps at most `memory` peers without a connection.
    pub(super) fn lost(&mut self, node: &NodeFence, conn: Conn, memory: usize) -> bool {
        let Some(known) = self.known.get_mut(node).filter(|known| known.live == Some(conn)) else { return false };
        known.live = None;
        let idle = || self.known.iter().filter(|(_, known)| known.live.is_none()).map(|(node, _)| node);
        if self.known.len() > memory && idle().count() > memory {
            let first = idle().find(|idle| *idle != node).or(Some(node)).cloned();
            self.known.retain(|node, _| Some(node) != first.as_ref());
        }
        true
    }

    fn runs<'a>(&'a self, node: &'a NodeFence) -> impl Iterator<Item = (&'a NodeFence, &'a Known)> {
        let first = NodeFence { rid: node.rid.clone(), generation: NodeGeneration::FIRST };
        self.known.range(first..).take_while(|(run, _)| run.rid == node.rid)
    }

    /// Whether a newer run of the same node is connected.
    pub(super) fn newer_is_live(&self, node: &NodeFence) -> bool {
        self.runs(node).any(|(run, known)| run.generation > node.generation && known.live.is_some())
    }

    /// The run of the node with this routing id that is connected.
    pub(super) fn live_run(&self, rid: &crate::id::RoutingId) -> Option<Conn> {
        let first = NodeFence { rid: rid.clone(), generation: NodeGeneration::FIRST };
        self.known.range(first..).take_while(|(run, _)| run.rid == *rid).find_map(|(_, known)| known.live)
    }

    /// Forgets the older runs of the same node.
    pub(super) fn forget_older(&mut self, node: &NodeFence) {
        self.known.retain(|run, _| run.rid != node.rid || run.generation >= node.generation);
    }
}
