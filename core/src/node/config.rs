//! What a node is told at its start.

use crate::fence::NodeFence;
use crate::id::{OwnerId, Text8, TypeName};
use crate::wire::HOPS_MAX;
use core::time::Duration;
use std::collections::BTreeMap;

/// Everything that a [`Node`](super::Node) does not learn from its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This run of the host process.
    pub node: NodeFence,
    /// The host's owner id in the store.
    pub owner: OwnerId,
    /// The mesh that the node belongs to.
    pub mesh: Text8,
    /// Where peers can reach it, for the descriptor in the store: any text.
    pub endpoint: String,
    /// The application's version of its state format.
    pub application_version: i64,
    /// The object types that the node offers.
    pub types: BTreeMap<TypeName, TypeConfig>,
    /// Entropy: at least 128 random bits, new for each run. All ids of the node come from it.
    pub seed: u128,
    /// Times.
    pub timing: Timing,
    /// Bounds.
    pub limits: Limits,
}

/// What a node offers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeConfig {
    /// How its objects move.
    pub policy: Policy,
    /// The most bytes of state that a move may carry.
    pub state_limit: u64,
}

impl Default for TypeConfig {
    fn default() -> Self {
        Self { policy: Policy::Preserve, state_limit: 64 << 20 }
    }
}

/// How the objects of a type move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Not at all: a move is refused before the object stops.
    Disabled,
    /// Queue and timers move; the state does not, the target makes a fresh one.
    Recreate,
    /// State bytes are captured and restored.
    Preserve,
}

/// Times of a node. The defaults are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// A warning threshold for the cutover; also how often a settling source sends its batch again.
    pub cutover_wait: Duration,
    /// How long an ended move forwards; zero turns it off.
    pub follow: Duration,
    /// The whole of one move, where its caller gives none; also how long a message waits for a route.
    pub operation: Duration,
    /// How often an unanswered prepare is sent again.
    pub prepare_resend: Duration,
    /// The most that the running turn may take to end once a seal was asked for.
    pub seal_limit: Duration,
    /// First and longest wait between the source's polls of the store while it settles.
    pub source_poll: (Duration, Duration),
    /// Wait between the target's polls of the store while it settles.
    pub target_poll: Duration,
    /// How often an unacknowledged reply relay is sent again.
    pub relay_resend: Duration,
    /// Lease time to live at the store.
    pub lease_ttl: Duration,
    /// Time between renewals.
    pub lease_renew: Duration,
    /// How long one renewal may take.
    pub lease_timeout: Duration,
    /// How long before the lease's end the node stops.
    pub lease_margin: Duration,
    /// How long any other store command may take before it counts as unknown.
    pub store_timeout: Duration,
    /// How often a disconnected peer's lease is read.
    pub peer_check: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            cutover_wait: Duration::from_millis(1000),
            follow: Duration::from_secs(30),
            operation: Duration::from_secs(30),
            prepare_resend: Duration::from_millis(250),
            seal_limit: Duration::from_millis(2000),
            source_poll: (Duration::from_micros(500), Duration::from_millis(10)),
            target_poll: Duration::from_millis(25),
            relay_resend: Duration::from_millis(250),
            lease_ttl: Duration::from_secs(15),
            lease_renew: Duration::from_secs(5),
            lease_timeout: Duration::from_secs(3),
            lease_margin: Duration::from_secs(5),
            store_timeout: Duration::from_secs(3),
            peer_check: Duration::from_secs(1),
        }
    }
}

/// Bounds of a node. The defaults are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Hops of a forwarded message: 0 to 8.
    pub follow_hops: u8,
    /// Encoded bytes of a chunk that this node accepts; it tells its peers.
    pub chunk: u32,
    /// State bytes in flight to one peer; 0 for no bound.
    pub peer_budget: u64,
    /// State bytes in flight to all peers; 0 for no bound.
    pub node_budget: u64,
    /// Sends of one reply relay.
    pub relay_sends: u32,
    /// Remembered ended moves, per kind.
    pub terminal_memory: usize,
    /// Messages that wait in one object's queue before new ones are answered `Busy`. A move adds no bound.
    pub mailbox: usize,
    /// Messages that wait here for one object's route before new calls are answered `Busy`.
    pub route_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            follow_hops: 8,
            chunk: 256 << 10,
            peer_budget: 16 << 20,
            node_budget: 0,
            relay_sends: 120,
            terminal_memory: 4096,
            mailbox: 65_536,
            route_queue: 65_536,
        }
    }
}

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ConfigError {
    /// The lease could not be renewed in time.
    #[error("max(renew, timeout) + timeout must be less than the lease's time to live minus the margin")]
    Lease,
    /// A bound is zero that must not be.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A message cannot count so many hops on the wire.
    #[error("a message is forwarded at most {HOPS_MAX} times, not {0}")]
    Hops(u8),
}

impl Config {
    /// Checks that the times and bounds fit together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let t = &self.timing;
        let worst = t.lease_renew.max(t.lease_timeout).saturating_add(t.lease_timeout);
        if worst >= t.lease_ttl.saturating_sub(t.lease_margin) {
            return Err(ConfigError::Lease);
        }
        if self.limits.follow_hops > HOPS_MAX {
            return Err(ConfigError::Hops(self.limits.follow_hops));
        }
        let zero = [
            ("the chunk limit", self.limits.chunk == 0),
            ("the terminal memory", self.limits.terminal_memory == 0),
            ("the mailbox bound", self.limits.mailbox == 0),
            ("the route queue bound", self.limits.route_queue == 0),
            ("the operation deadline", t.operation.is_zero()),
            ("the source poll", t.source_poll.0.is_zero()),
            ("the target poll", t.target_poll.is_zero()),
            ("the store time-out", t.store_timeout.is_zero()),
            ("the peer check", t.peer_check.is_zero()),
        ];
        match zero.iter().find(|(_, zero)| *zero) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
