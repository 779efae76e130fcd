//! The records of the wire as checked values. What a value of these types holds is valid by construction, except for
//! the bounds that their fields' docs name; encoding and decoding live beside this file.

use crate::fence::{
    CoordinatorFence, NodeFence, ObjectIdentity, PeerFence, RelocationIdentity, RouteFence, SessionFence,
};
use crate::id::{
    LeaseGeneration, ObjectGeneration, ObjectId, OperationId, OwnerGeneration, ParticipantId, RelocationId, ReplyRoute,
    Text8,
};
use crate::rope::Rope;
use crate::time::UnixMillis;
use bytes::Bytes;

/// One record between nodes: the published relocation commands, and this project's own link records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// Command 40.
    Prepare(Prepare),
    /// Command 52.
    State(State),
    /// Command 30.
    Ready(Ready),
    /// Command 53.
    Failed(Failed),
    /// Command 31.
    Data(Data),
    /// Command 34.
    Cutover(Cutover),
    /// Command 42.
    SessionSeal(SessionSeal),
    /// Command 43.
    SessionSealed(SessionSealed),
    /// Command 44.
    SessionRoute(SessionRoute),
    /// Command 33.
    ReplyRelay(ReplyRelay),
    /// Command 46.
    ReplyRelayAck(ReplyRelayAck),
    /// Command 50.
    FollowNotice(FollowNotice),
    /// A record of this project's own link: between nodes that agreed on it only.
    Link(LinkRecord),
}

/// 40, source to target: a move begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// The move.
    pub identity: RelocationIdentity,
    /// The target it was made for.
    pub target: PeerFence,
    /// The object.
    pub object: ObjectIdentity,
    /// The node that sends the state.
    pub source: NodeFence,
    /// Bytes of the logical stream.
    pub total_length: u64,
    /// Chunks that carry it, 1 to 4,096.
    pub chunk_count: u32,
    /// CRC-32C of the logical stream.
    pub checksum: u32,
    /// The application's version of its state format.
    pub application_version: i64,
    /// When the move's operation ends; between nodes of capability v14 only.
    pub deadline: Option<UnixMillis>,
}

/// 52, source to target: a chunk of the logical stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The move.
    pub identity: RelocationIdentity,
    /// The object.
    pub object: ObjectIdentity,
    /// The chunk's index, from 0.
    pub ordinal: u32,
    /// Its bytes.
    pub data: Rope,
}

/// 30, target to source: restored, waiting for the cutover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ready {
    /// The move.
    pub identity: RelocationIdentity,
    /// The target.
    pub target: PeerFence,
    /// The object.
    pub object: ObjectIdentity,
}

/// 53, target to source: this stage is over and will never open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failed {
    /// The move.
    pub identity: RelocationIdentity,
    /// The target.
    pub target: PeerFence,
    /// The object.
    pub object: ObjectIdentity,
    /// Why.
    pub code: FailureCode,
}

/// 31, source to target: one message of the boundary batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// The move.
    pub identity: RelocationIdentity,
    /// The object.
    pub object: ObjectIdentity,
    /// The message.
    pub record: FrozenRecord,
}

/// 34, source to target: the boundary batch is complete; the target may commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cutover {
    /// The move.
    pub identity: RelocationIdentity,
    /// The object.
    pub object: ObjectIdentity,
    /// Records in the batch.
    pub record_count: u64,
    /// CRC-32C of the canonical bytes of its frozen records, concatenated; 0 for none.
    pub checksum: u32,
}

/// 42, source to session owner: hold this client's traffic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionSeal {
    /// The move.
    pub relocation: RelocationId,
    /// The source tenure.
    pub coordinator: CoordinatorFence,
    /// The route that the session must have.
    pub actor: RouteFence,
    /// The binding.
    pub session: SessionFence,
}

/// 43, session owner to source: held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionSealed {
    /// The move.
    pub relocation: RelocationId,
    /// The source tenure.
    pub coordinator: CoordinatorFence,
    /// The route.
    pub actor: RouteFence,
    /// The binding.
    pub session: SessionFence,
}

/// 44, to the session owner: where the session goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionRoute {
    /// The move.
    pub relocation: RelocationId,
    /// The source tenure.
    pub coordinator: CoordinatorFence,
    /// Who says so.
    pub role: Role,
    /// The actor's id.
    pub actor: ObjectId,
    /// Its incarnation.
    pub generation: ObjectGeneration,
    /// The binding.
    pub session: SessionFence,
    /// What to do.
    pub route: RouteChange,
}

/// What a [`SessionRoute`] says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteChange {
    /// The move was committed: go on at the target.
    Commit {
        /// The source's owner generation.
        previous: OwnerGeneration,
        /// The target's.
        current: OwnerGeneration,
        /// The target node.
        target: NodeFence,
        /// The target's lease generation.
        lease: LeaseGeneration,
    },
    /// The source kept the object: go on there.
    Abort {
        /// The source's owner generation.
        current: OwnerGeneration,
    },
}

/// Which end of a move speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// 1.
    Source,
    /// 2.
    Target,
    /// 3.
    Coordinator,
}

/// 33, target to a requester: the answer of a request that moved with the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyRelay {
    /// The request.
    pub operation: OperationId,
    /// Its reply route at the requester.
    pub reply_route: ReplyRoute,
    /// The move.
    pub identity: RelocationIdentity,
    /// The participant that answered.
    pub participant: ParticipantId,
    /// Counts the relays of one stage.
    pub sequence: u64,
    /// How the request ended.
    pub result: TerminalResult,
    /// Why it failed, 0 where it did not.
    pub failure: u32,
    /// The payload frame.
    pub payload: Option<Payload>,
}

/// 46, requester to target: the answer came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyRelayAck {
    /// The move.
    pub relocation: RelocationId,
    /// The source tenure.
    pub coordinator: CoordinatorFence,
    /// The request.
    pub operation: OperationId,
    /// Its reply route.
    pub reply_route: ReplyRoute,
    /// The requester.
    pub requester: PeerFence,
    /// Whether it was the first terminal.
    pub status: RelayStatus,
}

/// The status of a [`ReplyRelayAck`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelayStatus {
    /// 1: this answer ended the request.
    Received,
    /// 2: the request had ended before.
    AlreadyTerminal,
}

/// 50, old owner to a sender: the object moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FollowNotice {
    /// The tenure that the sender used.
    pub source: RouteFence,
    /// The tenure that follows it.
    pub target: RouteFence,
    /// Hops of the message that caused the notice, 1 to 8.
    pub hops: u8,
    /// Messages that wait, saturating.
    pub queued_messages: u32,
    /// Their bytes, saturating.
    pub queued_bytes: u32,
    /// The message that caused the notice.
    pub operation: OperationId,
    /// Its reply route, 0 for none.
    pub reply_route: ReplyRoute,
}

/// A failure code of the wire. Codes that a node does not know are read as [`FailureCode::REQUEST_FAILED`] by
/// [`FailureCode::mapped`]; the number itself is kept, so that a record is passed on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailureCode(pub core::num::NonZeroU32);

/// How a request ended, as the wire says it. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TerminalResult(pub u32);

/// A message in the form in which it travels with a move.
///
/// A record of a kind that this node does not run keeps its canonical bytes and is passed on unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrozenRecord {
    /// A record of a known kind.
    Known(Box<Message>),
    /// Kinds 7, 8 and 11 to 14, which no object here runs, and kinds that this version does not know.
    Opaque {
        /// The kind byte.
        kind: u8,
        /// The whole record, kind byte included.
        bytes: Bytes,
    },
}

/// A message to a node, a channel, a spot or an actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Who sent it.
    pub source: SourceIdentity,
    /// A metadata frame of at most 1,024 bytes.
    pub metadata: Option<Bytes>,
    /// Its id: the idempotency key of what it does. Zero only on a one-way message.
    pub operation: OperationId,
    /// Whether its sender waits for a reply, and where.
    pub reply: Option<ReplyRoute>,
    /// Where it goes.
    pub to: Destination,
    /// What it says.
    pub payload: Payload,
}

/// Where a [`Message`] goes. With [`Message::reply`] it decides the record kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Kinds 1 and 2.
    Node,
    /// Kinds 3 and 4.
    Channel(Text8),
    /// Kinds 5 and 6.
    Spot(RouteFence),
    /// Kinds 9 and 10.
    Actor(RouteFence),
}

/// Who sent a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceIdentity {
    /// The node it was sent from.
    pub node: PeerFence,
    /// Who there.
    pub sender: Sender,
}

/// Who on a node sent a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// 1: the node itself, for a caller outside all objects.
    Node,
    /// 2: a spot.
    Spot(ObjectId),
    /// 3: an actor.
    Actor(ObjectId, ObjectGeneration),
    /// 4: a client session bound to an actor.
    BoundSession {
        /// The actor.
        actor: ObjectId,
        /// Its incarnation.
        generation: ObjectGeneration,
        /// The session.
        session: crate::id::RoutingId,
        /// The binding.
        binding: crate::id::BindingGeneration,
        /// The message's number within the binding.
        sequence: u64,
    },
}

/// A payload envelope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payload {
    /// Names what the bytes are.
    pub name: Text8,
    /// Names how they are encoded.
    pub content_type: Text8,
    /// The bytes.
    pub bytes: Bytes,
}

/// A record of this project's own link, agreed on as capability `rehome-link-1`.
///
/// Records of the [`LinkRecord::Ordered`] form are delivered once and in order between two node generations, across
/// any number of connections: each has a sequence number, the receiver acknowledges cumulatively, and after a
/// reconnect the sender sends again what was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LinkRecord {
    /// The first record of a connection, from both sides: everything below `received` has arrived.
    Resume {
        /// Ordered records received so far from this peer generation.
        received: u64,
    },
    /// Everything below `received` has arrived.
    Ack {
        /// Ordered records received so far from this peer generation.
        received: u64,
    },
    /// One ordered record.
    Ordered {
        /// Its number, from 0.
        sequence: u64,
        /// What it carries.
        body: Ordered,
    },
}

/// What an ordered link record carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ordered {
    /// A message for an object, with what the published form cannot carry.
    Deliver(Box<Delivery>),
    /// The receiver is responsible for the message now.
    Taken {
        /// The message.
        operation: OperationId,
    },
    /// The receiver does not have the addressed tenure and has not run the message.
    Refused {
        /// The message.
        operation: OperationId,
        /// Why.
        reason: Refusal,
    },
    /// Keeps one sender node's order across a route flip: travels the old route behind the last message.
    Marker(Marker),
    /// The marker has reached the owner's queue, or nothing is left of the old route.
    MarkerBack {
        /// The marker.
        marker: OperationId,
    },
    /// How a request ended.
    Reply(Reply),
}

/// A message on its way to the owner of its object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The message; its destination is an actor or a spot.
    pub message: Message,
    /// When its request ends, by the requester's clock. No hop extends it.
    pub deadline: Option<UnixMillis>,
    /// Follow hops so far, at most 8.
    pub hops: u8,
}

/// See [`Ordered::Marker`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Its id.
    pub marker: OperationId,
    /// The node whose messages it follows, and where [`Ordered::MarkerBack`] goes.
    pub origin: NodeFence,
    /// The old route.
    pub to: Destination,
    /// Follow hops so far.
    pub hops: u8,
}

/// How a request ended, on its way to its requester.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The request.
    pub operation: OperationId,
    /// Its reply route.
    pub reply_route: ReplyRoute,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The handler answered.
    Answer(Payload),
    /// It did not, or its answer says so.
    Failure {
        /// The terminal result, never 0.
        result: TerminalResult,
        /// The failure code, 0 for none.
        failure: u32,
        /// What the handler said about it, at most 1,024 bytes of text.
        detail: bytestring::ByteString,
    },
}

/// Why a message was refused. It has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The tenure is not, or no longer, here: ask the store again.
    NotHere,
    /// The object's queue is full.
    Busy,
    /// It was forwarded too often, or in a circle.
    TooManyHops,
    /// The object is of another incarnation.
    OtherIncarnation,
    /// The request's deadline had passed.
    Expired,
}
