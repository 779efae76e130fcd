//! The way to a driver: what can be said to it, and the calls of the embedding program. Holds no state of the node.

use crate::clock::Clock;
use crate::wire::Wire;
use bytes::Bytes;
use rehome::fence::{ObjectKey, Tenure};
use rehome::id::RoutingId;
use rehome::node::{
    CallError, CallId, CallResult, Conn, Counters, Held, Input, MoveOutcome, NotRun, Stage, Ticket, UserRequest,
};
use rehome::time::Now;
use rehome::wire::{Payload, Sender};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// What a call ends with where the driver is gone.
pub(crate) const GONE: CallError = CallError::NotRun(NotRun::NotServing);

/// Messages that wait for the driver before their senders wait.
const QUEUE: usize = 4096;

/// What reaches the driver.
pub(crate) enum Message {
    Input(Input),
    /// An object could not be made; its task is over.
    Stillborn {
        tenure: Tenure,
        ticket: Ticket,
        detail: String,
    },
    Call {
        call: CallId,
        request: UserRequest,
        answer: oneshot::Sender<CallResult>,
        progress: Option<Progress>,
    },
    Connected {
        wire: Wire,
        origin: Origin,
        /// Whom the transport has authenticated.
        identity: Option<RoutingId>,
    },
    Read {
        conn: Conn,
        bytes: Bytes,
    },
    Writable {
        conn: Conn,
    },
    Closed {
        conn: Conn,
    },
    CutConnections,
    /// End as a killed process does.
    #[cfg(feature = "testing")]
    Crash,
    Objects(oneshot::Sender<Vec<ObjectKey>>),
    Inspect(oneshot::Sender<(Held, Counters)>),
}

/// How a connection came about.
pub(crate) enum Origin {
    Accepted,
    Dialed(SocketAddr),
    /// One end of a pipe between two hosts of a test, of whom one dialed. The sender is dropped with the connection.
    #[cfg(feature = "testing")]
    Piped {
        dialed: bool,
        alive: oneshot::Sender<()>,
    },
}

pub(crate) type Progress = mpsc::UnboundedSender<Stage>;

/// The way to a driver. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    messages: mpsc::Sender<Message>,
    calls: Arc<AtomicU64>,
    clock: Clock,
    /// The most bytes of a payload that peers take.
    payload_limit: usize,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

pub(crate) fn channel(clock: Clock, payload_limit: usize) -> (Handle, mpsc::Receiver<Message>) {
    let (messages, inbox) = mpsc::channel(QUEUE);
    (Handle { messages, calls: Arc::new(AtomicU64::new(1)), clock, payload_limit }, inbox)
}

impl Handle {
    /// Both clocks of the host.
    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Refuses what no peer would take: the object may be anywhere by the time that the message gets there.
    pub(crate) fn fits(&self, payload: &Payload) -> Result<(), CallError> {
        if payload.bytes.len() > self.payload_limit { Err(CallError::NotRun(NotRun::TooLarge)) } else { Ok(()) }
    }

    /// Hands an input in. A driver that is gone needs none.
    pub(crate) async fn feed(&self, input: Input) {
        self.tell(Message::Input(input)).await;
    }

    /// Says whether the driver is still there.
    pub(crate) async fn tell(&self, message: Message) -> bool {
        self.messages.send(message).await.is_ok()
    }

    pub(crate) async fn start(
        &self,
        request: UserRequest,
        progress: Option<Progress>,
    ) -> (CallId, oneshot::Receiver<CallResult>) {
        let call = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        let (answer, result) = oneshot::channel();
        self.tell(Message::Call { call, request, answer, progress }).await;
        (call, result)
    }

    /// `None` where the driver is gone.
    pub(crate) async fn call(&self, request: UserRequest) -> Option<CallResult> {
        let (_, result) = self.start(request, None).await;
        result.await.ok()
    }

    pub(crate) async fn send(&self, from: Sender, to: ObjectKey, payload: Payload) -> Result<(), CallError> {
        self.fits(&payload)?;
        match self.call(UserRequest::Send { from, to, payload }).await {
            Some(CallResult::Sent(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    pub(crate) async fn request(
        &self,
        from: Sender,
        to: ObjectKey,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Payload, CallError> {
        self.fits(&payload)?;
        match self.call(UserRequest::Request { from, to, payload, timeout }).await {
            Some(CallResult::Answered(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    pub(crate) async fn delete(&self, object: ObjectKey) -> Result<(), CallError> {
        match self.call(UserRequest::Delete { object }).await {
            Some(CallResult::Deleted(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    pub(crate) async fn relocate(
        &self,
        object: ObjectKey,
        target: RoutingId,
        timeout: Option<Duration>,
    ) -> Result<MoveOutcome, CallError> {
        match self.call(UserRequest::Relocate { object, target, timeout }).await {
            Some(CallResult::Moved(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }
}
