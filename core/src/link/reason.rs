//! Why a connection is refused or ends, and whose fault that is. Decides nothing.

use super::settings::HANDSHAKE_LIMIT;
use crate::wire::DecodeError;
use bytestring::ByteString;

/// What one side tells the other before it closes a connection. The number is what the wire carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// 1: the first record is no hello of this protocol.
    BadMagic,
    /// 2: a hello of a version that is not spoken here.
    Version,
    /// 3: a required capability is not common.
    NoCommonCapability,
    /// 4: another mesh.
    WrongMesh,
    /// 5: not the node that was dialed for.
    NotExpected,
    /// 6: not the node that the transport authenticated.
    NotAuthenticated,
    /// 7: the node itself, or another run of it.
    SelfConnection,
    /// 8: another connection between the same two node generations is kept.
    Duplicate,
    /// 9: a newer generation of the refused node is connected.
    OlderGeneration,
    /// 10: a newer generation of the node took over.
    Superseded,
    /// 11: what came breaks the protocol.
    Misbehaved,
    /// 12: the connection did not come up in time.
    HelloTimeout,
    /// 13: nothing was heard for too long.
    Silent,
    /// 14: the program on the other side ended the connection.
    Dropped,
    /// Any other number: of a later version.
    Other(u8),
}

impl Rejection {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::BadMagic => 1,
            Self::Version => 2,
            Self::NoCommonCapability => 3,
            Self::WrongMesh => 4,
            Self::NotExpected => 5,
            Self::NotAuthenticated => 6,
            Self::SelfConnection => 7,
            Self::Duplicate => 8,
            Self::OlderGeneration => 9,
            Self::Superseded => 10,
            Self::Misbehaved => 11,
            Self::HelloTimeout => 12,
            Self::Silent => 13,
            Self::Dropped => 14,
            Self::Other(number) => number,
        }
    }

    /// The reason of `number`.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::BadMagic,
            2 => Self::Version,
            3 => Self::NoCommonCapability,
            4 => Self::WrongMesh,
            5 => Self::NotExpected,
            6 => Self::NotAuthenticated,
            7 => Self::SelfConnection,
            8 => Self::Duplicate,
            9 => Self::OlderGeneration,
            10 => Self::Superseded,
            11 => Self::Misbehaved,
            12 => Self::HelloTimeout,
            13 => Self::Silent,
            14 => Self::Dropped,
            other => Self::Other(other),
        }
    }
}

impl core::fmt::Display for Rejection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadMagic => "not a hello of this protocol",
            Self::Version => "another version of the protocol",
            Self::NoCommonCapability => "a required capability is not common",
            Self::WrongMesh => "another mesh",
            Self::NotExpected => "not the node that was dialed for",
            Self::NotAuthenticated => "not the authenticated node",
            Self::SelfConnection => "a node does not connect to itself",
            Self::Duplicate => "another connection of the same nodes is kept",
            Self::OlderGeneration => "a newer generation of the node is connected",
            Self::Superseded => "a newer generation of the node took over",
            Self::Misbehaved => "the protocol was broken",
            Self::HelloTimeout => "the connection did not come up in time",
            Self::Silent => "nothing was heard for too long",
            Self::Dropped => "the program ended the connection",
            Self::Other(number) => return write!(f, "refused with reason {number}"),
        })
    }
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Misbehaviour {
    /// A length above the bound, or too short for a record.
    #[error("a record of {len} bytes, allowed are 5 to {limit}")]
    Length {
        /// What the length field says.
        len: u32,
        /// The bound; [`HANDSHAKE_LIMIT`] before the connection is up.
        limit: u32,
    },
    /// The checksum is not that of the record.
    #[error("a checksum does not match")]
    Checksum,
    /// A kind of record that this version does not know.
    #[error("unknown record kind {0}")]
    UnknownKind(u8),
    /// A record that must not come at this point, or without the capability it needs.
    #[error("unexpected record: {0}")]
    Unexpected(&'static str),
    /// A field of the link's own records is wrong.
    #[error("invalid {0}")]
    Field(&'static str),
    /// A record of the protocol does not decode.
    #[error(transparent)]
    Record(DecodeError),
    /// A chunk of state above the limit that this node told.
    #[error("a chunk of {len} bytes, {limit} were agreed")]
    Chunk {
        /// Its length.
        len: usize,
        /// The limit.
        limit: u32,
    },
}

/// Why the program ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The node is over or shuts down.
    NodeOver,
    /// The peer's generation is over.
    PeerGone,
    /// Another run of the same routing id has connected.
    Displaced,
    /// A record was whole but broke a rule of the protocol: a fence that names another node, for example.
    Protocol,
    /// Whatever else the program wants.
    Program,
}

/// What the peer said before it closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Why.
    pub reason: Rejection,
    /// In words, at most 512 bytes. May be empty.
    pub detail: ByteString,
}

/// Why a connection is down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// The transport lost it.
    Closed,
    /// No byte came for [`LinkSettings::dead_after`](super::LinkSettings::dead_after).
    Silent,
    /// It did not come up within [`LinkSettings::hello_timeout`](super::LinkSettings::hello_timeout).
    HelloTimeout,
    /// This side refused the peer.
    Rejected(Rejection),
    /// The peer refused this side.
    Refused(Refused),
    /// The peer broke the protocol.
    Misbehaved(Misbehaviour),
    /// The program here ended it.
    Dropped(DropReason),
}

/// Whose fault it is that a connection is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// Nobody's: the network, or the choice of one connection among two.
    Nobody,
    /// The peer sent what no correct node sends.
    PeerMisbehaved,
    /// Both are correct and do not fit together, as they are configured.
    PeerIncompatible,
    /// This side: its program ended the connection, or the peer says that it misbehaved.
    Local,
}

impl DownReason {
    /// Whose fault it is. Dialing again helps only where it is nobody's.
    pub const fn blame(&self) -> Blame {
        let rejection = match self {
            Self::Closed | Self::Silent | Self::HelloTimeout => return Blame::Nobody,
            Self::Misbehaved(_) => return Blame::PeerMisbehaved,
            Self::Dropped(_) => return Blame::Local,
            Self::Rejected(rejection) | Self::Refused(Refused { reason: rejection, .. }) => *rejection,
        };
        match rejection {
            Rejection::Duplicate | Rejection::HelloTimeout | Rejection::Silent | Rejection::Dropped => Blame::Nobody,
            Rejection::Misbehaved => Blame::Local,
            Rejection::BadMagic
            | Rejection::Version
            | Rejection::NoCommonCapability
            | Rejection::WrongMesh
            | Rejection::NotExpected
            | Rejection::NotAuthenticated
            | Rejection::SelfConnection
            | Rejection::OlderGeneration
            | Rejection::Superseded
            | Rejection::Other(_) => Blame::PeerIncompatible,
        }
    }

    /// What the peer is told, if it is told anything.
    pub(super) const fn told(&self) -> Option<Rejection> {
        match self {
            Self::Closed | Self::Refused(_) => None,
            Self::Silent => Some(Rejection::Silent),
            Self::HelloTimeout => Some(Rejection::HelloTimeout),
            Self::Rejected(rejection) => Some(*rejection),
            Self::Misbehaved(_) => Some(Rejection::Misbehaved),
            Self::Dropped(DropReason::Protocol) => Some(Rejection::Misbehaved),
            Self::Dropped(_) => Some(Rejection::Dropped),
        }
    }
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Closed => f.write_str("the transport closed"),
            Self::Silent => Rejection::Silent.fmt(f),
            Self::HelloTimeout => Rejection::HelloTimeout.fmt(f),
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Refused(refused) if refused.detail.is_empty() => write!(f, "refused by the peer: {}", refused.reason),
            Self::Refused(refused) => write!(f, "refused by the peer: {} ({})", refused.reason, refused.detail),
            Self::Misbehaved(misbehaviour) => misbehaviour.fmt(f),
            Self::Dropped(reason) => write!(f, "dropped by the program: {reason:?}"),
        }
    }
}

const _: () = assert!(HANDSHAKE_LIMIT > 600, "a refusal fits before the connection is up");
