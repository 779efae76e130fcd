//! The link between nodes, without a socket: bytes come in and go out, records and connections are what the rest of
//! the core sees. Owns the hello, the delimiting of records, liveness, fairness and the choice of one connection for
//! each peer. Must never read a clock, touch a socket, or decide anything about an object.
//!
//! ```
//! use rehome::fence::{NodeFence, OwnerPair, PeerFence};
//! use rehome::id::{LeaseGeneration, NodeGeneration, OwnerId, RoutingId, Text8};
//! use rehome::link::{Conn, Hello, LinkSettings, Mesh, MeshEvent, V13_CAPABILITY};
//! use rehome::time::Instant;
//!
//! /// What a transport does when a socket can be written: here the "socket" is the other mesh.
//! fn write(now: Instant, from: &mut Mesh, conn: Conn, to: &mut Mesh, far: Conn) -> Result<(), rehome::link::CallError> {
//!     while from.wants_write(conn) {
//!         let mut slices = Vec::new();
//!         from.transmit(conn, &mut slices);
//!         let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
//!         drop(slices);
//!         from.transmitted(now, conn, bytes.len())?;
//!         to.receive(now, far, bytes.into())?;
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mesh = |name: &'static str| -> Result<Mesh, Box<dyn std::error::Error>> {
//!     let node = NodeFence { rid: RoutingId::new(name.as_bytes())?, generation: NodeGeneration::FIRST };
//!     let owner = OwnerPair { owner: OwnerId::new(name)?, lease: LeaseGeneration::FIRST };
//!     let hello = Hello {
//!         peer: PeerFence { node, owner },
//!         application_version: 1,
//!         capabilities: vec![Text8::new(V13_CAPABILITY)?],
//!         chunk_limit: 256 << 10,
//!         mesh: Text8::new("example")?,
//!     };
//!     Ok(Mesh::new(hello, LinkSettings::default())?)
//! };
//! let (mut a, mut b) = (mesh("a")?, mesh("b")?);
//! let now = Instant::ZERO;
//! let (dialed, accepted) = (a.connect(now, None), b.accept(now));
//! while a.wants_write(dialed) || b.wants_write(accepted) {
//!     write(now, &mut a, dialed, &mut b, accepted)?;
//!     write(now, &mut b, accepted, &mut a, dialed)?;
//! }
//! assert!(matches!(a.poll_event(), Some(MeshEvent::Up { conn, .. }) if conn == dialed));
//! assert!(matches!(b.poll_event(), Some(MeshEvent::Up { conn, .. }) if conn == accepted));
//! # Ok(())
//! # }
//! ```
//!
//! # The stream
//! Integers are big-endian; `text8` is a u8 length of 1 to 255 and UTF-8 without NUL. Each record is
//!
//! | field | |
//! |---|---|
//! | length | u32: bytes after this field |
//! | kind | u8 |
//! | checksum | u32: CRC-32C of length, kind and the first 8,192 bytes of the body |
//! | body | by kind |
//!
//! | kind | body |
//! |---|---|
//! | 1 hello | magic `RHLK`, version u16 = 1, mesh text8, rid (u8 length, bytes), node generation u64, owner id text8, lease generation u64, application version i64, chunk limit u32 (0: none), record limit u32, capability count u8, capabilities text8 |
//! | 2 refusal | reason u8, detail (u16 length, UTF-8, at most 512 bytes) |
//! | 3 claim | number u64, live u8 |
//! | 4 welcome | number u64 |
//! | 5 probe | token u64 |
//! | 6 probe answer | token u64 |
//! | 7 published | frame count u8, that many u32 lengths, the frames of one published record |
//! | 8 link | one link record; only where `rehome-link-1` is agreed |
//!
//! The delimiting, the refusal and the begin of the hello up to its version are the same in all versions, so that a
//! peer of another version can read why it was refused. The checksum covers every identity and fence that a record can
//! carry, so damage cannot turn one identity into another; what lies beyond its 8,192 bytes is payload: the state of a
//! move has a checksum of its own, and TLS protects everything.
//!
//! # How a connection comes up
//! The dialer sends its hello, the acceptor checks it and answers with its own. The node with the greater (routing id,
//! generation) then sends a *claim*: the number of the newest connection that it was welcomed on by this peer (0 for
//! none), and whether it still has that one. The node with the smaller one alone decides: it sends a *welcome* with a
//! new, greater number, and both sides are up; or it refuses. So two nodes that dial each other at once cannot choose
//! differently. While the decider has a connection with that peer, a claim
//! - that still has that same connection is refused as a duplicate;
//! - that knew it and has it no more wins at once: the far end of the old connection is dead;
//! - that has not heard of it yet waits while the old connection is probed. An answer refuses the claim; the old
//!   connection's end, or half the hello time-out without an answer, welcomes it.
//!
//! The claiming node follows the welcome with the greatest number, in whatever order welcomes arrive.
//!
//! # Limits
//! Before a connection is up a record has at most 4,096 bytes. After it the bound is what the receiver told in its
//! hello: the greater of its chunk limit and its payload limit, plus 16 KiB for heads. A claimed length above the bound
//! ends the connection before any byte of it is kept; below it, memory grows only with bytes that have come.

mod frame;
mod hello;
mod inbox;
mod mesh;
mod outbox;
mod peers;
mod reason;
mod settings;

pub use hello::{Agreed, CAPABILITIES_MAX, Hello, LINK_CAPABILITY, V13_CAPABILITY, V14_CAPABILITY};
pub use mesh::{CallError, Mesh, MeshEvent, SendError};
pub use reason::{Blame, DownReason, DropReason, Misbehaviour, Refused, Rejection};
pub use settings::{HANDSHAKE_LIMIT, LinkSettings, MeshError, RECORD_SLACK};

/// A connection of one [`Mesh`]. Never used twice by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// Names one record on its way out. The sender chooses it; it comes back in [`MeshEvent::Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub u64);

/// Which queue of its connection a record waits in. Each class keeps its own order.
///
/// There is no order between the two: a small record passes every bulk record that is not being written yet. A record
/// that must arrive behind bulk records of its move has to be sent as [`Class::Bulk`] itself; one that must arrive
/// before them is small and sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Everything but state.
    Small,
    /// Chunks of state, each at most the agreed chunk limit long.
    Bulk,
}
