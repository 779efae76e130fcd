//! What a user writes: an object, and what its handler can reach. Each object is a task of its own, so that a slow
//! handler stalls nobody else, and a panic is the error of one request.

use crate::driver::Handle;
use crate::{CallError, clock};
use bytes::Bytes;
use futures_util::FutureExt as _;
use rehome::fence::{FencingToken, NodeFence, ObjectKey, Tenure};
use rehome::id::{OperationId, RoutingId, Text8};
use rehome::node::{Activation, HostReply, Input, ReplyToken, Ticket, Turn, TurnEnd, UserRequest};
use rehome::state::{Captured, StateReader, StateWriter};
use rehome::time::UnixMillis;
use rehome::wire::{FailureCode, Outcome, Payload, Sender, TerminalResult};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// A live object: one address, one message at a time, state that can move.
pub trait Object: Send + Sized + 'static {
    /// What all objects of the type share on one node: pools, clients, settings. It is given at registration and never
    /// moves.
    type Shared: Send + Sync + 'static;

    /// Makes a new object, or a new incarnation of one whose owner died: then load what was persisted.
    fn activate(
        shared: &Arc<Self::Shared>,
        activation: Activate<'_>,
    ) -> impl Future<Output = Result<Self, ObjectError>> + Send;

    /// Runs one message. Messages of one object never run at once.
    fn handle(
        &mut self,
        turn: &mut TurnContext,
        message: Payload,
    ) -> impl Future<Output = Result<Reply, HandlerError>> + Send;

    /// About how many bytes [`Object::capture`] would write. Asked before the object stops for a move.
    fn size_hint(&self) -> u64 {
        0
    }

    /// Writes the state. It must change nothing: if the move ends at the source, the object runs on.
    fn capture(&self, writer: &mut StateWriter) -> Result<(), ObjectError>;

    /// Makes the object from a state that an application of version `version` captured. It must not act yet.
    fn restore(
        shared: &Arc<Self::Shared>,
        version: i64,
        state: StateReader,
    ) -> impl Future<Output = Result<Self, ObjectError>> + Send;

    /// The object serves after a move: here for the first time, or again because it stayed.
    fn resumed(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The object lives elsewhere now, was deleted, or is lost to this node.
    fn retired(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Why and as what an object is made.
#[derive(Clone, Copy, Debug)]
pub struct Activate<'a> {
    /// Its address.
    pub object: &'a ObjectKey,
    /// Whether it is new or a new incarnation.
    pub cause: Activation,
    /// What the caller passed.
    pub arguments: &'a Bytes,
    /// What to show to systems that refuse stale owners.
    pub token: FencingToken,
}

/// The answer of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing: right for a one-way message. A request without an answer gets an empty one.
    None,
    /// The answer.
    Answer(Payload),
    /// The answer comes later, by [`TurnContext::reply_token`] and [`Host::reply`](crate::Host::reply).
    Later,
}

/// A payload of bytes without a name of its own.
pub fn payload(name: &str, bytes: impl Into<Bytes>) -> Result<Payload, rehome::id::IdError> {
    Ok(Payload { name: Text8::new(name)?, content_type: Text8::new("application/octet-stream")?, bytes: bytes.into() })
}

/// A handler's failure, as the requester sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct HandlerError {
    /// A code of the application's choice; [`FailureCode::REQUEST_FAILED`] says nothing more.
    pub code: u32,
    /// What to show a person, at most 1,024 bytes; more is cut.
    pub detail: String,
}

impl HandlerError {
    /// A failure with a text.
    pub fn new(detail: impl Into<String>) -> Self {
        Self { code: FailureCode::REQUEST_FAILED.get(), detail: detail.into() }
    }
}

/// Why an object cannot be made or captured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ObjectError(pub String);

/// What a handler knows and can do during its turn.
#[derive(Debug)]
pub struct TurnContext {
    handle: Handle,
    tenure: Tenure,
    /// What the handler may show to outside systems: a database that remembers the greatest can refuse a stale owner.
    pub token: FencingToken,
    /// The message's id: the same however often it was relayed, so an idempotency key.
    pub operation: OperationId,
    /// The node it came from.
    pub from_node: NodeFence,
    /// Who there sent it.
    pub sender: Sender,
    /// When the request ends at its requester.
    pub deadline: Option<UnixMillis>,
    /// For a request: answers it later, from here or from wherever the object is then.
    pub reply_token: Option<ReplyToken>,
    stop: watch::Receiver<bool>,
}

impl TurnContext {
    /// The object's own address.
    pub const fn object(&self) -> &ObjectKey {
        &self.tenure.object
    }

    fn me(&self) -> Sender {
        Sender::Actor(self.tenure.object.id.clone(), self.tenure.generation)
    }

    /// Sends a message; it ends when it is accepted.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn send(&self, to: ObjectKey, payload: Payload) -> Result<(), CallError> {
        self.handle.send(self.me(), to, payload).await
    }

    /// Sends a request and waits for its answer. The object runs nothing else meanwhile: a request that comes back to
    /// it ends with its time-out.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request(&self, to: ObjectKey, payload: Payload, timeout: Duration) -> Result<Payload, CallError> {
        self.handle.request(self.me(), to, payload, timeout).await
    }

    /// Asks for this object to move, after this turn.
    pub fn move_me(&self, target: RoutingId) {
        let (handle, object) = (self.handle.clone(), self.tenure.object.clone());
        tokio::spawn(async move { drop(handle.relocate(object, target, None).await) });
    }

    /// Asks for this object to be deleted, after this turn.
    pub fn delete_me(&self) {
        let (handle, object) = (self.handle.clone(), self.tenure.object.clone());
        tokio::spawn(async move { handle.call(UserRequest::Delete { object }).await });
    }

    /// Whether the lease guard has run out: what the handler does now may be refused by systems that check the token.
    pub fn must_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends when the lease guard runs out.
    pub async fn stopped(&mut self) {
        // The sender lives as long as the driver; without it nothing serves either.
        let _ = self.stop.wait_for(|stop| *stop).await;
    }
}

/// What the driver tells an object's task.
pub(crate) enum Command {
    Turn(Box<Turn>),
    SizeHint(Ticket),
    Capture(Ticket),
    Opened(Ticket),
    Retire(Ticket),
}

/// How an object of one type is made; the type itself is forgotten here.
pub(crate) trait Factory: Send + Sync {
    fn spawn(&self, birth: Birth, commands: mpsc::UnboundedReceiver<Command>);
}

pub(crate) enum Cause {
    Activate { cause: Activation, arguments: Bytes },
    Restore { version: i64, state: Option<rehome::Rope> },
}

pub(crate) struct Birth {
    pub(crate) ticket: Ticket,
    pub(crate) tenure: Tenure,
    pub(crate) cause: Cause,
    pub(crate) handle: Handle,
    pub(crate) stop: watch::Receiver<bool>,
}

pub(crate) struct TypedFactory<T: Object> {
    pub(crate) shared: Arc<T::Shared>,
    pub(crate) turn_limit: Option<Duration>,
    /// Whether the type's policy moves its state.
    pub(crate) preserve: bool,
}

impl<T: Object> Factory for TypedFactory<T> {
    fn spawn(&self, birth: Birth, commands: mpsc::UnboundedReceiver<Command>) {
        let (shared, turn_limit, preserve) = (Arc::clone(&self.shared), self.turn_limit, self.preserve);
        tokio::spawn(async move {
            let (ticket, handle) = (birth.ticket, birth.handle.clone());
            match make::<T>(&shared, &birth).await {
                Ok(object) => {
                    handle.feed(Input::Host { ticket, reply: HostReply::Done }).await;
                    live(object, birth, commands, turn_limit, preserve).await;
                }
                Err(error) => {
                    let reply = HostReply::Failed { code: FailureCode::ACTOR_CREATE_FAILED, detail: error.0 };
                    handle.feed(Input::Host { ticket, reply }).await;
                    drain(&handle, commands).await;
                }
            }
        });
    }
}

async fn make<T: Object>(shared: &Arc<T::Shared>, birth: &Birth) -> Result<T, ObjectError> {
    let made = match &birth.cause {
        Cause::Activate { cause, arguments } => {
            let token = birth.tenure.token();
            let activate = Activate { object: &birth.tenure.object, cause: *cause, arguments, token };
            AssertUnwindSafe(T::activate(shared, activate)).catch_unwind().await
        }
        Cause::Restore { version, state: Some(state) } => {
            let state = StateReader::new(state.clone());
            AssertUnwindSafe(T::restore(shared, *version, state)).catch_unwind().await
        }
        // The policy moves no state: the target makes a fresh one.
        Cause::Restore { state: None, .. } => {
            let arguments = Bytes::new();
            let token = birth.tenure.token();
            let activate =
                Activate { object: &birth.tenure.object, cause: Activation::New, arguments: &arguments, token };
            AssertUnwindSafe(T::activate(shared, activate)).catch_unwind().await
        }
    };
    made.unwrap_or_else(|_| Err(ObjectError(String::from("panicked"))))
}

/// The object could not be made: what the node still asks of it gets an answer.
async fn drain(handle: &Handle, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Turn(turn) => handle.feed(Input::TurnEnd { turn: turn.turn, end: TurnEnd::NotStarted }).await,
            Command::SizeHint(ticket) | Command::Capture(ticket) => {
                let reply = HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: String::from("no object") };
                handle.feed(Input::Host { ticket, reply }).await;
            }
            Command::Opened(ticket) => handle.feed(Input::Host { ticket, reply: HostReply::Done }).await,
            Command::Retire(ticket) => {
                handle.feed(Input::Host { ticket, reply: HostReply::Done }).await;
                return;
            }
        }
    }
}

async fn live<T: Object>(
    mut object: T,
    birth: Birth,
    mut commands: mpsc::UnboundedReceiver<Command>,
    turn_limit: Option<Duration>,
    preserve: bool,
) {
    let Birth { tenure, handle, stop, cause, .. } = birth;
    drop(cause);
    while let Some(command) = commands.recv().await {
        match command {
            Command::Turn(turn) => {
                let id = turn.turn;
                let end = run(&mut object, *turn, &tenure, &handle, &stop, turn_limit).await;
                handle.feed(Input::TurnEnd { turn: id, end }).await;
            }
            Command::SizeHint(ticket) => {
                let size = std::panic::catch_unwind(AssertUnwindSafe(|| object.size_hint()));
                let reply = size.map_or_else(|_| failed("size_hint panicked"), HostReply::Size);
                handle.feed(Input::Host { ticket, reply }).await;
            }
            Command::Capture(ticket) => {
                let reply = capture(&object, preserve);
                handle.feed(Input::Host { ticket, reply }).await;
            }
            Command::Opened(ticket) => {
                let hook = AssertUnwindSafe(object.resumed()).catch_unwind().await;
                let reply = hook.map_or_else(|_| failed("resumed panicked"), |()| HostReply::Done);
                handle.feed(Input::Host { ticket, reply }).await;
            }
            Command::Retire(ticket) => {
                let hook = AssertUnwindSafe(object.retired()).catch_unwind().await;
                let reply = hook.map_or_else(|_| failed("retired panicked"), |()| HostReply::Done);
                handle.feed(Input::Host { ticket, reply }).await;
                return;
            }
        }
    }
}

fn capture<T: Object>(object: &T, preserve: bool) -> HostReply {
    if !preserve {
        return HostReply::Captured(None);
    }
    let captured = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut writer = StateWriter::new();
        object.capture(&mut writer).map(|()| writer.finish())
    }));
    match captured {
        Ok(Ok(Captured { rope, crc })) => HostReply::Captured(Some(Captured { rope, crc })),
        Ok(Err(error)) => failed(&error.0),
        Err(_) => failed("capture panicked"),
    }
}

fn failed(detail: &str) -> HostReply {
    HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: detail.to_owned() }
}

async fn run<T: Object>(
    object: &mut T,
    turn: Turn,
    tenure: &Tenure,
    handle: &Handle,
    stop: &watch::Receiver<bool>,
    turn_limit: Option<Duration>,
) -> TurnEnd {
    // A process that was stopped may wake past its lease: this is the last look before user code runs.
    if clock::now().mono >= turn.not_after {
        return TurnEnd::NotStarted;
    }
    let wants_reply = turn.reply_token.is_some();
    let mut context = TurnContext {
        handle: handle.clone(),
        tenure: tenure.clone(),
        token: turn.token,
        operation: turn.operation,
        from_node: turn.from_node,
        sender: turn.sender,
        deadline: turn.deadline,
        reply_token: turn.reply_token,
        stop: stop.clone(),
    };
    let handler = AssertUnwindSafe(object.handle(&mut context, turn.payload)).catch_unwind();
    let ended = match turn_limit {
        None => Some(handler.await),
        Some(limit) => tokio::time::timeout(limit, handler).await.ok(),
    };
    let outcome = match ended {
        Some(Ok(Ok(Reply::None))) if wants_reply => Text8::new("empty").ok().map(|name| {
            let content_type = name.clone();
            Outcome::Answer(Payload { name, content_type, bytes: Bytes::new() })
        }),
        Some(Ok(Ok(Reply::None | Reply::Later))) => None,
        Some(Ok(Ok(Reply::Answer(payload)))) => Some(Outcome::Answer(payload)),
        Some(Ok(Err(error))) => {
            let end = error.detail.floor_char_boundary(error.detail.len().min(1024));
            Some(failure(TerminalResult::REJECTED, error.code, &error.detail[..end]))
        }
        Some(Err(_)) => Some(failure(TerminalResult::INTERNAL_ERROR, FailureCode::WORKER_FAILED.get(), "panicked")),
        None => Some(failure(TerminalResult::TIMED_OUT, FailureCode::WORKER_TIMED_OUT.get(), "turn limit")),
    };
    TurnEnd::Done { reply: outcome.filter(|_| wants_reply) }
}

fn failure(result: TerminalResult, failure: u32, detail: &str) -> Outcome {
    Outcome::Failure { result, failure, detail: bytestring::ByteString::from(detail) }
}
