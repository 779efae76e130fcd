//! How nodes introduce themselves, and what two of them have in common. Knows no connection.

use super::frame::{BodyReader, put_short};
use super::reason::{Misbehaviour, Rejection};
use crate::fence::{NodeFence, OwnerPair, PeerFence};
use crate::id::{LeaseGeneration, NodeGeneration, OwnerId, RoutingId, Text8};
use crate::rope::Rope;
use bytes::{BufMut, BytesMut};
use std::collections::BTreeSet;

/// The published layout's capability: every peer must have it.
pub const V13_CAPABILITY: &str = "framework-service-v13";
/// Its successor: prepares carry a deadline.
pub const V14_CAPABILITY: &str = "framework-service-v14";
/// This project's own link records.
pub const LINK_CAPABILITY: &str = "rehome-link-1";
/// The most capabilities in a hello.
pub const CAPABILITIES_MAX: usize = 64;

const MAGIC: [u8; 4] = *b"RHLK";
const VERSION: u16 = 1;

/// How a node introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The node with its owner pair.
    pub peer: PeerFence,
    /// The application's version of its state format.
    pub application_version: i64,
    /// What it speaks.
    pub capabilities: Vec<Text8>,
    /// The most bytes of a chunk of state that it takes; 0 tells none.
    pub chunk_limit: u32,
    /// The mesh that it belongs to: only nodes of one mesh talk to each other.
    pub mesh: Text8,
}

/// What both sides of a connection speak.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agreed {
    /// What both have.
    pub capabilities: BTreeSet<Text8>,
    /// The least chunk limit that was told, in bytes; `None` where neither side told one.
    pub chunk_limit: Option<u32>,
    /// The peer's version of its state format.
    pub application_version: i64,
    /// Whether `rehome-link-1` is common: link records may be sent.
    pub link: bool,
    /// Whether `framework-service-v14` is common: prepares carry a deadline.
    pub v14: bool,
}

/// A hello of a peer, with the record limit that goes with it.
#[derive(Clone, Debug)]
pub(super) struct Introduction {
    pub(super) hello: Hello,
    pub(super) record_limit: u32,
}

/// Why a hello does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloError {
    Rejected(Rejection),
    Misbehaved(Misbehaviour),
}

impl From<Misbehaviour> for HelloError {
    fn from(misbehaviour: Misbehaviour) -> Self {
        Self::Misbehaved(misbehaviour)
    }
}

impl Hello {
    /// The body of its record.
    pub(super) fn encode(&self, record_limit: u32) -> BytesMut {
        let mut body = BytesMut::with_capacity(512);
        body.put_slice(&MAGIC);
        body.put_u16(VERSION);
        put_short(&mut body, self.mesh.as_str().as_bytes());
        put_short(&mut body, self.peer.node.rid.as_bytes());
        body.put_u64(self.peer.node.generation.get());
        put_short(&mut body, self.peer.owner.owner.as_str().as_bytes());
        body.put_u64(self.peer.owner.lease.get());
        body.put_i64(self.application_version);
        body.put_u32(self.chunk_limit);
        body.put_u32(record_limit);
        body.put_u8(u8::try_from(self.capabilities.len()).unwrap_or(u8::MAX));
        for capability in &self.capabilities {
            put_short(&mut body, capability.as_str().as_bytes());
        }
        body
    }

    /// What this node and a peer have in common; `None` without [`V13_CAPABILITY`].
    pub(super) fn agree(&self, peer: &Self) -> Option<Agreed> {
        let capabilities: BTreeSet<Text8> =
            self.capabilities.iter().filter(|ours| peer.capabilities.contains(ours)).cloned().collect();
        let has = |name: &str| capabilities.iter().any(|common| common.as_str() == name);
        let (v13, v14, link) = (has(V13_CAPABILITY), has(V14_CAPABILITY), has(LINK_CAPABILITY));
        let chunk_limit = [self.chunk_limit, peer.chunk_limit].into_iter().filter(|limit| *limit != 0).min();
        v13.then_some(Agreed { capabilities, chunk_limit, application_version: peer.application_version, link, v14 })
    }
}

impl Introduction {
    /// Reads the body of a hello. All of it is in storage of its own: it lives as long as the connection.
    pub(super) fn decode(body: &Rope) -> Result<Self, HelloError> {
        let bytes = body.to_bytes();
        let mut body = BodyReader::new(bytes);
        if body.array::<4>() != Some(MAGIC) {
            return Err(HelloError::Rejected(Rejection::BadMagic));
        }
        if body.array::<2>().map(u16::from_be_bytes) != Some(VERSION) {
            return Err(HelloError::Rejected(Rejection::Version));
        }
        let mesh = body.text8("mesh")?.detached();
        let rid = RoutingId::new(body.short("node rid")?).map_err(|_| Misbehaviour::Field("node rid"))?.detached();
        let generation =
            NodeGeneration::new(body.u64("node generation")?).map_err(|_| Misbehaviour::Field("node generation"))?;
        let owner = OwnerId::from(body.text8("owner id")?.detached());
        let lease =
            LeaseGeneration::new(body.u64("lease generation")?).map_err(|_| Misbehaviour::Field("lease generation"))?;
        let application_version = body.u64("application version")?.cast_signed();
        let chunk_limit = body.u32("chunk limit")?;
        let record_limit = body.u32("record limit")?;
        let count = usize::from(body.u8("capability count")?);
        if count > CAPABILITIES_MAX {
            return Err(Misbehaviour::Field("capability count").into());
        }
        let mut capabilities = Vec::new();
        for _ in 0..count {
            capabilities.push(body.text8("capability")?.detached());
        }
        body.done("hello")?;
        let peer = PeerFence { node: NodeFence { rid, generation }, owner: OwnerPair { owner, lease } };
        Ok(Self { hello: Hello { peer, application_version, capabilities, chunk_limit, mesh }, record_limit })
    }
}
