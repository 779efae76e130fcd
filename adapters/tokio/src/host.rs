//! A running host, as its embedding program sees it. Every call goes to the driver; nothing is decided here.

use crate::CallError;
use crate::driver::{Life, TimedEvent};
use crate::handle::{GONE, Handle, Message};
use crate::net::{Dialing, Security};
use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, RouteFence};
use rehome::id::{RoutingId, TypeName};
use rehome::node::{
    CallId, CallResult, Counters, Created, Existing, Held, MoveOutcome, ReplyToken, Stage, UserRequest,
};
use rehome::wire::{Outcome, Payload, Sender};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// A running host. Cheap to clone; the host runs until it is shut down or loses its lease.
#[derive(Clone)]
pub struct Host {
    pub(crate) handle: Handle,
    pub(crate) events: broadcast::Sender<TimedEvent>,
    pub(crate) life: watch::Receiver<Life>,
    pub(crate) node: NodeFence,
    pub(crate) dialing: Arc<Dialing>,
    pub(crate) security: Security,
}

impl Host {
    /// The node's identity.
    pub const fn node(&self) -> &NodeFence {
        &self.node
    }

    /// Creates an object here. A name that no type can have is told as a failed activation.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] and others.
    pub async fn create(&self, object: ObjectKey, type_name: &str, arguments: Bytes) -> Result<Created, CallError> {
        self.make(object, type_name, arguments, Existing::Refuse).await
    }

    /// Creates an object here, or answers with the one that is there, wherever it lives.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn get_or_create(
        &self,
        object: ObjectKey,
        type_name: &str,
        arguments: Bytes,
    ) -> Result<Created, CallError> {
        self.make(object, type_name, arguments, Existing::Use).await
    }

    async fn make(
        &self,
        object: ObjectKey,
        type_name: &str,
        arguments: Bytes,
        existing: Existing,
    ) -> Result<Created, CallError> {
        let type_name =
            TypeName::new(type_name).map_err(|error| CallError::ActivationFailed(format!("type name: {error}")))?;
        match self.handle.call(UserRequest::Create { object, type_name, arguments, existing }).await {
            Some(CallResult::Created(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    /// Takes over an object whose owner's lease has ended, as a new incarnation.
    ///
    /// # Errors
    /// [`CallError::OwnerAlive`] while the lease is valid.
    pub async fn reclaim(&self, object: ObjectKey, arguments: Bytes) -> Result<Created, CallError> {
        match self.handle.call(UserRequest::Reclaim { object, arguments }).await {
            Some(CallResult::Created(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    /// Deletes an object that lives here.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn delete(&self, object: ObjectKey) -> Result<(), CallError> {
        self.handle.delete(object).await
    }

    /// Sends a message to an object, wherever it lives. `Ok` means that its owner, or a hold that answers for it, has
    /// accepted it. A payload has at most 16 MiB.
    ///
    /// # Errors
    /// The error says whether the message may have run.
    pub async fn send(&self, to: ObjectKey, payload: Payload) -> Result<(), CallError> {
        self.handle.send(Sender::Node, to, payload).await
    }

    /// Sends a request and waits for its answer, at most `timeout`.
    ///
    /// # Errors
    /// The error says whether the message may have run.
    pub async fn request(&self, to: ObjectKey, payload: Payload, timeout: Duration) -> Result<Payload, CallError> {
        self.handle.request(Sender::Node, to, payload, timeout).await
    }

    /// Answers a request that its turn left open.
    ///
    /// # Errors
    /// [`CallError::NotRun`] where this host is over.
    pub async fn reply(&self, token: ReplyToken, outcome: Outcome) -> Result<(), CallError> {
        if let Outcome::Answer(payload) = &outcome {
            self.handle.fits(payload)?;
        }
        match self.handle.call(UserRequest::Reply { token, outcome }).await {
            Some(CallResult::Replied(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    /// Begins to move an object that lives here. Dropping the handle cancels nothing.
    pub async fn relocate(&self, object: ObjectKey, target: RoutingId, timeout: Option<Duration>) -> MoveHandle {
        let (progress, stages) = mpsc::unbounded_channel();
        let request = UserRequest::Relocate { object, target, timeout };
        let (call, result) = self.handle.start(request, Some(progress)).await;
        MoveHandle { call, stages, result, handle: self.handle.clone() }
    }

    /// Asks the store who owns an object.
    ///
    /// # Errors
    /// [`CallError::StoreUnavailable`].
    pub async fn locate(&self, object: ObjectKey) -> Result<Option<RouteFence>, CallError> {
        match self.handle.call(UserRequest::Locate { object }).await {
            Some(CallResult::Located(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    /// The objects that live here.
    pub async fn objects(&self) -> Vec<ObjectKey> {
        let (answer, objects) = oneshot::channel();
        self.handle.tell(Message::Objects(answer)).await;
        objects.await.unwrap_or_default()
    }

    /// What the node holds and has counted; `None` where it is over.
    pub async fn inspect(&self) -> Option<(Held, Counters)> {
        let (answer, inspected) = oneshot::channel();
        self.handle.tell(Message::Inspect(answer)).await;
        inspected.await.ok()
    }

    /// What happens from now on. A listener that is more than 16,384 events behind misses the oldest, and is told how
    /// many by [`RecvError::Lagged`](broadcast::error::RecvError::Lagged).
    pub fn events(&self) -> broadcast::Receiver<TimedEvent> {
        self.events.subscribe()
    }

    /// Keeps a connection to another peer from now on. Once for each address; again, it does nothing.
    pub fn add_peer(&self, addr: SocketAddr) {
        if self.dialing.begin(addr) {
            let (security, dialing) = (self.security.clone(), Arc::clone(&self.dialing));
            tokio::spawn(crate::net::dial(addr, security, dialing, self.handle.clone()));
        }
    }

    /// The nodes that are connected, in no order.
    pub fn peers(&self) -> Vec<RoutingId> {
        self.dialing.peers()
    }

    /// Waits for a connection with the node `peer`; false where this host is over. An object can be moved to a node
    /// only when both are connected, and answers reach a node only from nodes that it has met.
    pub async fn met(&self, peer: &RoutingId) -> bool {
        self.dialing.met(peer).await
    }

    /// Cuts every connection to a peer, as a network would: they are made again by themselves. For tests of programs
    /// that must live with it.
    pub async fn cut_connections(&self) {
        self.handle.tell(Message::CutConnections).await;
    }

    /// Ends the host: moves reach their terminal, the lease goes back, objects that are left are retired. Past
    /// `timeout` it ends as in a crash. Either way hooks and turns that still run then have two seconds more.
    pub async fn shutdown(&self, timeout: Duration) {
        self.handle.call(UserRequest::Shutdown { timeout }).await;
        self.over().await;
    }

    /// Waits until the host is over.
    pub async fn over(&self) {
        let mut life = self.life.clone();
        // Without a sender the driver is gone, which is the same.
        let _ = life.wait_for(|life| *life == Life::Over).await;
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A move that has begun. Dropping it cancels nothing.
#[derive(Debug)]
pub struct MoveHandle {
    call: CallId,
    stages: mpsc::UnboundedReceiver<Stage>,
    result: oneshot::Receiver<CallResult>,
    handle: Handle,
}

impl MoveHandle {
    /// The next stage that the move reaches; `None` when it is over.
    pub async fn stage(&mut self) -> Option<Stage> {
        self.stages.recv().await
    }

    /// Asks for the move to end. Says whether the object can still be kept: not once the target was ready.
    pub async fn cancel(&self) -> bool {
        let request = UserRequest::CancelMove { relocate: self.call };
        matches!(self.handle.call(request).await, Some(CallResult::Cancelled(true)))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`CallError::NotRun`] where the host is over.
    pub async fn outcome(self) -> Result<MoveOutcome, CallError> {
        match self.result.await {
            Ok(CallResult::Moved(result)) => result,
            Ok(_) | Err(_) => Err(GONE),
        }
    }
}
