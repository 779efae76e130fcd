//! The in-flight budget: how many bytes of state may be on their way to one peer and to all. Waiting for it happens
//! before a seal, so that a waiting object keeps running. It grants and takes back; it sends nothing.

use crate::fence::NodeFence;
use crate::id::RelocationId;
use std::collections::{BTreeMap, VecDeque};

/// Grants of in-flight bytes, first come first served per peer. A wish larger than the budget is granted the whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    peer_limit: u64,
    node_limit: u64,
    used: u64,
    peers: BTreeMap<NodeFence, u64>,
    waiting: VecDeque<Wish>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wish {
    relocation: RelocationId,
    peer: NodeFence,
    bytes: u64,
}

impl Budget {
    /// A budget of `peer_limit` bytes to each peer and `node_limit` to all; 0 means no limit.
    pub const fn new(peer_limit: u64, node_limit: u64) -> Self {
        Self { peer_limit, node_limit, used: 0, peers: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Asks for `bytes` to `peer`. The grant comes out of [`Budget::next_grant`].
    pub fn ask(&mut self, relocation: RelocationId, peer: NodeFence, bytes: u64) {
        let mut bytes = bytes.max(1);
        for limit in [self.peer_limit, self.node_limit] {
            if limit != 0 {
                bytes = bytes.min(limit);
            }
        }
        self.waiting.push_back(Wish { relocation, peer, bytes });
    }

    /// The next wish that fits, with its grant. A wish waits behind earlier ones to its own peer only.
    pub fn next_grant(&mut self) -> Option<(RelocationId, u64)> {
        let mut blocked: Vec<NodeFence> = Vec::new();
        let mut found = None;
        for (index, wish) in self.waiting.iter().enumerate() {
            if blocked.contains(&wish.peer) {
                continue;
            }
            let used = self.peers.get(&wish.peer).copied().unwrap_or(0);
            let fits = |used: u64, limit: u64| limit == 0 || used.saturating_add(wish.bytes) <= limit;
            if !fits(self.used, self.node_limit) {
                return None;
            }
            if fits(used, self.peer_limit) {
                found = Some(index);
                break;
            }
            blocked.push(wish.peer.clone());
        }
        let wish = self.waiting.remove(found?)?;
        self.used = self.used.saturating_add(wish.bytes);
        let used = self.peers.entry(wish.peer).or_default();
        *used = used.saturating_add(wish.bytes);
        Some((wish.relocation, wish.bytes))
    }

    /// Takes back a wish that was not granted yet.
    pub fn withdraw(&mut self, relocation: RelocationId) {
        self.waiting.retain(|wish| wish.relocation != relocation);
    }

    /// Gives `bytes` of a grant back.
    pub fn give_back(&mut self, peer: &NodeFence, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(used) = self.peers.get_mut(peer) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                self.peers.remove(peer);
            }
        }
    }

    /// Bytes granted and not given back.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Wishes not granted yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
