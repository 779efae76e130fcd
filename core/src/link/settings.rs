//! Times and bounds of the link. Decides nothing.

use super::hello::CAPABILITIES_MAX;
use core::time::Duration;

/// The most bytes of a record, after its length field, before its connection is up.
pub const HANDSHAKE_LIMIT: u32 = 4096;

/// What a record may have beyond its chunk or payload: heads, ids, fences.
pub const RECORD_SLACK: u32 = 16 << 10;

/// Times and bounds of a [`Mesh`](super::Mesh).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkSettings {
    /// Silence after which a peer is probed, and the time between two probes.
    pub probe_after: Duration,
    /// Silence after which a connection is dead.
    pub dead_after: Duration,
    /// How long a connection may take to come up.
    pub hello_timeout: Duration,
    /// How long a refusal may take to be written before the connection closes without it.
    pub close_timeout: Duration,
    /// The most bytes of one message's payload that this node takes. It is told to peers as part of the record limit.
    pub payload_limit: u32,
    /// Bytes of small records that go in a row while bulk records wait; then one bulk record goes.
    pub small_burst: usize,
    /// Bytes that one [`Mesh::transmit`](super::Mesh::transmit) offers at most.
    pub write_bytes: usize,
    /// Slices that one [`Mesh::transmit`](super::Mesh::transmit) offers at most.
    pub write_slices: usize,
    /// Whether a hello counts only on a connection whose peer the transport has authenticated
    /// ([`Mesh::authenticate`](super::Mesh::authenticate)): true wherever TLS is on.
    pub require_identity: bool,
    /// Peers without a connection that are remembered, so that a reconnect is settled at once.
    pub peer_memory: usize,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            probe_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(15),
            hello_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
            payload_limit: 16 << 20,
            small_burst: 256 << 10,
            write_bytes: 512 << 10,
            write_slices: 64,
            require_identity: false,
            peer_memory: 4096,
        }
    }
}

/// Why a [`Mesh`](super::Mesh) cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MeshError {
    /// A time or bound is zero that must not be.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A connection would be dead before its peer was probed.
    #[error("a peer must be probed before it counts as dead")]
    ProbeTooLate,
    /// Every peer would refuse the hello.
    #[error("the hello has {len} bytes, at most {HANDSHAKE_LIMIT} are read")]
    HelloTooLong {
        /// Its length.
        len: usize,
    },
    /// The hello has no room for so many capabilities.
    #[error("{count} capabilities, at most {CAPABILITIES_MAX} can be told")]
    TooManyCapabilities {
        /// How many.
        count: usize,
    },
    /// The capability without which no peer talks to this node is missing.
    #[error("the capability {0} is required")]
    MissingCapability(&'static str),
}

impl LinkSettings {
    pub(super) fn check(&self) -> Result<(), MeshError> {
        let zero = [
            ("the probe time", self.probe_after.is_zero()),
            ("the hello time-out", self.hello_timeout < Duration::from_nanos(2)),
            ("the close time-out", self.close_timeout.is_zero()),
            ("the payload limit", self.payload_limit == 0),
            ("the bytes of a write", self.write_bytes == 0),
            ("the slices of a write", self.write_slices == 0),
        ];
        match zero.iter().find(|(_, zero)| *zero) {
            Some((name, _)) => Err(MeshError::Zero(name)),
            None if self.dead_after <= self.probe_after => Err(MeshError::ProbeTooLate),
            None => Ok(()),
        }
    }

    /// The most bytes of a record that this node reads once a connection is up.
    pub(super) fn record_limit(&self, chunk_limit: u32) -> u32 {
        chunk_limit.max(self.payload_limit).saturating_add(RECORD_SLACK)
    }
}
