//! What goes into a [`Node`](super::Node) and what comes out of it. Nothing here decides anything.

use super::event::Event;
use crate::fence::{FencingToken, NodeFence, ObjectKey, PeerFence, RouteFence, Tenure};
use crate::id::{OperationId, RelocationId, RoutingId, TypeName};
use crate::state::Captured;
use crate::store::{StoreCommand, StoreReply};
use crate::time::{Instant, UnixMillis};
use crate::wire::{FailureCode, Outcome, Payload, Record, Sender};
use crate::{Rope, link::Agreed};
use bytes::Bytes;
use core::time::Duration;

pub use crate::link::{Class, Conn, DropReason, SendId};
pub use crate::machine::{KeptReason, RefusedReason};

/// Names one store or host command; its reply carries the same ticket and is matched by nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u64);

/// Names one call of the embedding program. The program chooses it; it must not reuse one whose
/// [`Output::Done`] it has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Time passed. Early or spurious: nothing happens.
    Tick,
    /// A connection to a peer is up.
    PeerUp {
        /// The connection.
        conn: Conn,
        /// Who is there: authenticated by the link.
        peer: PeerFence,
        /// What both sides speak.
        agreed: Agreed,
    },
    /// A connection is gone. Records that were not reported as sent may or may not have arrived.
    PeerDown {
        /// The connection.
        conn: Conn,
    },
    /// A record came.
    Record {
        /// On this connection.
        conn: Conn,
        /// The record.
        record: Record,
    },
    /// The transport wrote a record, or dropped it with its connection. One for each [`Output::Send`].
    Sent {
        /// The record.
        send: SendId,
        /// Whether it was written.
        written: bool,
    },
    /// The store answered.
    Store {
        /// The command.
        ticket: Ticket,
        /// The answer. A command that was given up is [`StoreReply::Unknown`].
        reply: StoreReply,
    },
    /// The host answered.
    Host {
        /// The command.
        ticket: Ticket,
        /// The answer.
        reply: HostReply,
    },
    /// A turn ended.
    TurnEnd {
        /// The turn.
        turn: TurnId,
        /// How.
        end: TurnEnd,
    },
    /// The embedding program asks for something.
    User {
        /// Names the call.
        call: CallId,
        /// What it asks.
        request: UserRequest,
    },
}

/// What the caller must do. Outputs wait in the node until they are polled, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Write a record; answer with [`Input::Sent`].
    Send {
        /// The connection.
        conn: Conn,
        /// Comes back in [`Input::Sent`].
        send: SendId,
        /// Small records pass between bulk ones.
        class: Class,
        /// The record.
        record: Record,
    },
    /// Close a connection.
    Drop {
        /// The connection.
        conn: Conn,
        /// Why.
        reason: DropReason,
    },
    /// Ask the store; answer with [`Input::Store`].
    Store {
        /// Names the command.
        ticket: Ticket,
        /// The command.
        command: StoreCommand,
        /// Answer [`StoreReply::Unknown`] at this time, if there is no answer.
        give_up: Instant,
    },
    /// Ask the host; answer with [`Input::Host`].
    Host {
        /// Names the command.
        ticket: Ticket,
        /// The command.
        command: HostCommand,
    },
    /// Run one message; answer with [`Input::TurnEnd`].
    Turn(Turn),
    /// A call ended. Exactly one per call.
    Done {
        /// The call.
        call: CallId,
        /// How.
        result: CallResult,
    },
    /// A move that a call asked for went on.
    Progress {
        /// The call.
        call: CallId,
        /// Where it is now.
        stage: Stage,
    },
    /// Something to observe.
    Event(Event),
}

/// What the host of objects must do. Each names a tenure: one life of one object on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostCommand {
    /// Make the object.
    Activate {
        /// Its life.
        tenure: Tenure,
        /// Its type.
        type_name: TypeName,
        /// Whether it is new or a new incarnation of one whose owner died.
        cause: Activation,
        /// What the caller passed to create or reclaim.
        arguments: Bytes,
    },
    /// Tell roughly how many bytes a capture would have. Answer [`HostReply::Size`].
    SizeHint {
        /// The life.
        tenure: Tenure,
    },
    /// Capture the state, without changing the object. Answer [`HostReply::Captured`].
    Capture {
        /// The life.
        tenure: Tenure,
    },
    /// Make the object from a captured state. It must not act before [`HostCommand::Open`].
    Restore {
        /// The new life.
        tenure: Tenure,
        /// Its type.
        type_name: TypeName,
        /// The version of the state format, as the source's application gave it.
        version: i64,
        /// The state, in the pieces in which it came; `None` where the type's policy moves none.
        state: Option<Rope>,
    },
    /// A restored object is the owner now: its turns follow.
    Open {
        /// The life.
        tenure: Tenure,
    },
    /// The object was stopped for a move and goes on here.
    Resume {
        /// The life.
        tenure: Tenure,
    },
    /// The object lives elsewhere now: drop it.
    Retire {
        /// The life that ended.
        tenure: Tenure,
    },
    /// The object is lost to this node, was deleted, or its restored copy will not open: drop it.
    Discard {
        /// The life that ended.
        tenure: Tenure,
    },
}

/// Why an object is activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// It was created.
    New,
    /// Its owner's lease ended and this is a new incarnation: load what was persisted.
    Reclaimed,
}

/// The host's answer to one [`HostCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostReply {
    /// Done.
    Done,
    /// To a size hint.
    Size(u64),
    /// To a capture: the state, or `None` where the type's policy moves none.
    Captured(Option<Captured>),
    /// It failed. For [`HostCommand::Retire`] and [`HostCommand::Discard`] this is reported and changes nothing.
    Failed {
        /// A code of the wire.
        code: FailureCode,
        /// What to show a person.
        detail: String,
    },
}

/// One message to run.
///
/// Look at `not_after` again right before the handler starts: if that instant has passed, end the turn with
/// [`TurnEnd::NotStarted`] and run nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Names the turn.
    pub turn: TurnId,
    /// The life that runs it. One turn at a time per life.
    pub tenure: Tenure,
    /// What the handler may show to outside systems.
    pub token: FencingToken,
    /// The lease guard: nothing may start after it.
    pub not_after: Instant,
    /// When the request ends at its requester.
    pub deadline: Option<UnixMillis>,
    /// The message's id: an idempotency key.
    pub operation: OperationId,
    /// The node it came from.
    pub from_node: NodeFence,
    /// Who there sent it.
    pub sender: Sender,
    /// For a request: how to answer it later, from here or from wherever the object is then.
    pub reply_token: Option<ReplyToken>,
    /// The message.
    pub payload: Payload,
}

/// Answers one request, once, from any node that can reach its requester.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyToken {
    /// The requester.
    pub requester: PeerFence,
    /// The request.
    pub operation: OperationId,
    /// The requester's route.
    pub reply_route: crate::id::ReplyRoute,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// The handler ended. A request that it did not answer stays open for its [`ReplyToken`].
    Done {
        /// Its answer.
        reply: Option<Outcome>,
    },
    /// It was not started: the lease guard had passed. The message stays at the head of the queue.
    NotStarted,
}

/// What the embedding program can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserRequest {
    /// Create an object here.
    Create {
        /// The object.
        object: ObjectKey,
        /// Its type, which this node must offer.
        type_name: TypeName,
        /// Passed to its activation.
        arguments: Bytes,
        /// What to do if there is one.
        existing: Existing,
    },
    /// Take over an object whose owner's lease has ended, as a new incarnation. Refused while the lease is valid.
    Reclaim {
        /// The object.
        object: ObjectKey,
        /// Passed to its activation.
        arguments: Bytes,
    },
    /// Delete an object that lives here.
    Delete {
        /// The object.
        object: ObjectKey,
    },
    /// Send a message. It ends when the owner, or a hold that answers for it, has accepted it.
    Send {
        /// Who sends.
        from: Sender,
        /// To whom.
        to: ObjectKey,
        /// What.
        payload: Payload,
    },
    /// Send a request.
    Request {
        /// Who asks.
        from: Sender,
        /// Whom.
        to: ObjectKey,
        /// What.
        payload: Payload,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    /// Answer a request that its turn left open.
    Reply {
        /// The request.
        token: ReplyToken,
        /// The answer.
        outcome: Outcome,
    },
    /// Ask the store who owns an object.
    Locate {
        /// The object.
        object: ObjectKey,
    },
    /// Move an object that lives here.
    Relocate {
        /// The object.
        object: ObjectKey,
        /// The target node. It must be connected.
        target: RoutingId,
        /// How long the whole move may take; the configured operation deadline by default.
        timeout: Option<Duration>,
    },
    /// Ask a move to end, by the call that began it. It ends only if the target cannot have become ready yet.
    CancelMove {
        /// The call that began it.
        relocate: CallId,
    },
    /// End this node: moves reach their terminal, then the lease is released.
    Shutdown {
        /// Past it the node ends as in a crash.
        timeout: Duration,
    },
}

/// What [`UserRequest::Create`] does when the object exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Existing {
    /// Fail with [`CallError::AlreadyExists`].
    Refuse,
    /// Answer with the one that is there, wherever it lives.
    Use,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// Create or reclaim.
    Created(Result<Created, CallError>),
    /// Delete.
    Deleted(Result<(), CallError>),
    /// Send: accepted.
    Sent(Result<(), CallError>),
    /// Request: answered.
    Answered(Result<Payload, CallError>),
    /// Reply: on its way.
    Replied(Result<(), CallError>),
    /// Locate: `None` where there is no such object.
    Located(Result<Option<RouteFence>, CallError>),
    /// Relocate: the terminal.
    Moved(Result<MoveOutcome, CallError>),
    /// CancelMove: whether the move takes it into account.
    Cancelled(bool),
    /// Shutdown: the node is over.
    ShutDown,
}

/// What create and reclaim made or found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Created {
    /// Where it is.
    pub route: RouteFence,
    /// Whether this call made it.
    pub new: bool,
}

/// How a move ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MoveOutcome {
    /// The object lives at the target.
    Moved {
        /// The move.
        relocation: RelocationId,
        /// The owner that the settlement proved, where it was this move's target.
        route: Option<RouteFence>,
    },
    /// The source kept the object; it runs on.
    KeptSource {
        /// The move.
        relocation: RelocationId,
        /// Why.
        reason: KeptReason,
    },
    /// The object never stopped.
    Refused(RefusedReason),
    /// The source's lease ended before the settlement: the one documented loss.
    Lost {
        /// The move.
        relocation: RelocationId,
    },
}

/// Where a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The object still runs.
    Waiting,
    /// Its last turn ends.
    Sealing,
    /// Its state is on the way.
    Transferring,
    /// The target has restored it.
    Ready,
    /// The boundary batch and the cutover are being written.
    Cutover,
    /// The store decides.
    Settling,
}

/// Why a call failed. Each variant says whether the message may have run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallError {
    /// The message has not run and will not.
    #[error("not run: {0}")]
    NotRun(NotRun),
    /// The message may have run; nobody can tell.
    #[error("may have run: {0}")]
    MayHaveRun(MayHaveRun),
    /// The handler answered with a failure.
    #[error("the handler failed with code {failure}: {detail}")]
    Handler {
        /// Its code.
        failure: u32,
        /// What it said.
        detail: String,
    },
    /// The handler panicked.
    #[error("the handler panicked")]
    Panicked,
    /// The request's time was over. It may have run.
    #[error("no answer in time")]
    Timeout,
    /// A queue is full; try again later. The message has not run.
    #[error("busy")]
    Busy,
    /// The object exists.
    #[error("the object exists already")]
    AlreadyExists,
    /// This node does not offer the type.
    #[error("this node does not offer the type {0}")]
    UnknownType(TypeName),
    /// The object's activation failed.
    #[error("the activation failed: {0}")]
    ActivationFailed(String),
    /// The owner's lease is still valid.
    #[error("the owner's lease is still valid")]
    OwnerAlive,
    /// The object is being moved or deleted.
    #[error("the object is being moved or deleted")]
    InTransition,
    /// The store did not answer in time.
    #[error("the store did not answer")]
    StoreUnavailable,
    /// A record in the store cannot be read by this version.
    #[error("a store record cannot be read: {0}")]
    StoreRecord(String),
}

/// Why a message has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum NotRun {
    /// There is no such object.
    #[error("there is no such object")]
    NotFound,
    /// Its owner could not be reached in time.
    #[error("its owner could not be reached")]
    Unavailable,
    /// This node has no lease, or is shutting down.
    #[error("this node does not serve")]
    NotServing,
    /// It was forwarded too often.
    #[error("it was forwarded too often")]
    TooManyHops,
    /// It was addressed to another incarnation.
    #[error("it was addressed to another incarnation")]
    OtherIncarnation,
    /// Its payload is larger than the link takes. The core does not say so: whoever knows the link's settings does,
    /// before the message is handed in, for a record that cannot be sent leaves a hole in the order of its peer.
    #[error("its payload is too large")]
    TooLarge,
}

/// Why nobody can tell whether a message ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum MayHaveRun {
    /// The node that had it is gone.
    #[error("the node that had it is gone")]
    NodeGone,
    /// The owner's lease ended while it had the message.
    #[error("the owner's lease ended")]
    LeaseEnded,
}

/// Misuse by the embedding program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Misuse {
    /// The call id is in use.
    #[error("call {0:?} is in use")]
    CallInUse(CallId),
    /// Time went backwards.
    #[error("the monotonic clock went backwards")]
    ClockWentBack,
}
