//! The host: what an embedding program starts and talks to.

use crate::driver::{self, Handle, Life, Message, Parts, TimedEvent};
use crate::net::Dialing;
use crate::object::{Factory, Object, TypedFactory};
use crate::{CallError, clock};
use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, RouteFence};
use rehome::id::{NodeGeneration, OwnerId, RoutingId, Text8, TypeName};
use rehome::node::{
    CallId, CallResult, ConfigError, Counters, Created, Existing, Held, Limits, MoveOutcome, NotRun, Policy,
    ReplyToken, Stage, Timing, TypeConfig, UserRequest,
};
use rehome::wire::{Outcome, Payload, Sender};
use rehome::{Config, Node};
use rehome_stores::Engine;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Why a host did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A name is out of bounds.
    #[error(transparent)]
    Name(#[from] rehome::id::IdError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The lease could not be claimed, or was lost at once.
    #[error("the node ended before it served")]
    Over,
}

/// Collects what a host needs; [`HostBuilder::start`] starts it.
pub struct HostBuilder {
    rid: RoutingId,
    generation: Option<u64>,
    owner: OwnerId,
    mesh: Text8,
    application_version: i64,
    listener: Option<TcpListener>,
    peers: Vec<SocketAddr>,
    types: BTreeMap<TypeName, TypeConfig>,
    factories: HashMap<TypeName, Arc<dyn Factory>>,
    turn_limit: Option<Duration>,
    timing: Timing,
    limits: Limits,
}

impl HostBuilder {
    /// A host with the routing id and owner id `name`, in the mesh `mesh`.
    ///
    /// # Errors
    /// [`StartError::Name`].
    pub fn new(name: &str, mesh: &str) -> Result<Self, StartError> {
        Ok(Self {
            rid: RoutingId::new(name.as_bytes().to_vec())?,
            generation: None,
            owner: OwnerId::new(name)?,
            mesh: Text8::new(mesh)?,
            application_version: 1,
            listener: None,
            peers: Vec::new(),
            types: BTreeMap::new(),
            factories: HashMap::new(),
            turn_limit: None,
            timing: Timing::default(),
            limits: Limits::default(),
        })
    }

    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn listen(mut self, addr: SocketAddr) -> Result<Self, StartError> {
        let listener = TcpListener::bind(addr).await.map_err(|source| StartError::Listen { addr, source })?;
        self.listener = Some(listener);
        Ok(self)
    }

    /// Where the host listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Keeps a connection to a peer.
    #[must_use]
    pub fn peer(mut self, addr: SocketAddr) -> Self {
        self.peers.push(addr);
        self
    }

    /// The application's version of its state formats; 1 by default.
    #[must_use]
    pub const fn application_version(mut self, version: i64) -> Self {
        self.application_version = version;
        self
    }

    /// The most that a handler may take; without one, as long as it likes. A turn over the limit ends with
    /// [`CallError::Timeout`], its future dropped where it waited.
    #[must_use]
    pub const fn turn_limit(mut self, limit: Duration) -> Self {
        self.turn_limit = Some(limit);
        self
    }

    /// Times; the protocol's by default.
    #[must_use]
    pub const fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Bounds; the protocol's by default.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Offers a type of object. A handler that panics ends that request with [`CallError::Panicked`]; the object stays
    /// as the panic left it, and can ask for its own deletion.
    ///
    /// # Errors
    /// [`StartError::Name`].
    pub fn object<T: Object>(self, type_name: &str, config: TypeConfig, shared: T::Shared) -> Result<Self, StartError> {
        self.object_shared::<T>(type_name, config, Arc::new(shared))
    }

    /// The same with what the program shares with its objects itself.
    ///
    /// # Errors
    /// [`StartError::Name`].
    pub fn object_shared<T: Object>(
        mut self,
        type_name: &str,
        config: TypeConfig,
        shared: Arc<T::Shared>,
    ) -> Result<Self, StartError> {
        let name = TypeName::new(type_name)?;
        let preserve = config.policy == Policy::Preserve;
        let factory = TypedFactory::<T> { shared, turn_limit: self.turn_limit, preserve };
        self.types.insert(name.clone(), config);
        self.factories.insert(name, Arc::new(factory));
        Ok(self)
    }

    /// Starts the host: claims a lease, then listens and dials. Returns when it serves.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(self, engine: Arc<dyn Engine>) -> Result<Host, StartError> {
        let now = clock::now();
        // A later run of the same host has a later wall clock, or at least another one.
        let generation = self.generation.unwrap_or(now.wall.0.max(1));
        let endpoint = self.local_addr().map_or_else(String::new, |addr| addr.to_string());
        let config = Config {
            node: NodeFence { rid: self.rid, generation: NodeGeneration::new(generation)? },
            owner: self.owner,
            mesh: self.mesh,
            endpoint,
            application_version: self.application_version,
            types: self.types,
            seed: seed(),
            timing: self.timing,
            limits: self.limits,
        };
        let node = Node::new(now, config.clone())?;
        let (handle, inbox) = driver::channel();
        let (events, _) = broadcast::channel(16 << 10);
        let (serving, mut life) = watch::channel(Life::Starting);
        let fence = config.node.clone();
        let dialing = Arc::new(Dialing::default());
        let parts = Parts {
            config,
            node,
            engine,
            factories: self.factories,
            listener: self.listener,
            peers: self.peers,
            events: events.clone(),
            serving,
            dialing: Arc::clone(&dialing),
        };
        tokio::spawn(driver::run(parts, handle.clone(), inbox));
        match life.wait_for(|life| *life != Life::Starting).await.map(|life| *life) {
            Ok(Life::Serving) => Ok(Host { handle, events, life, node: fence, dialing }),
            Ok(Life::Starting | Life::Over) | Err(_) => Err(StartError::Over),
        }
    }
}

/// 128 random bits from the process: the hasher's keys are from the system's entropy.
fn seed() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let half = |salt: u64| u128::from(RandomState::new().hash_one(salt));
    half(1) << 64 | half(2)
}

/// A running host. Cheap to clone; the host runs until it is shut down or loses its lease.
#[derive(Clone, Debug)]
pub struct Host {
    handle: Handle,
    events: broadcast::Sender<TimedEvent>,
    life: watch::Receiver<Life>,
    node: NodeFence,
    dialing: Arc<Dialing>,
}

const GONE: CallError = CallError::NotRun(NotRun::NotServing);

impl Host {
    /// The node's identity.
    pub const fn node(&self) -> &NodeFence {
        &self.node
    }

    /// Creates an object here.
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
        let Ok(type_name) = TypeName::new(type_name) else { return Err(GONE) };
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
        match self.handle.call(UserRequest::Delete { object }).await {
            Some(CallResult::Deleted(result)) => result,
            Some(_) | None => Err(GONE),
        }
    }

    /// Sends a message to an object, wherever it lives. `Ok` means that its owner, or a hold that answers for it, has
    /// accepted it.
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

    /// What happens from now on. A listener that is too slow misses events, and is told how many.
    pub fn events(&self) -> broadcast::Receiver<TimedEvent> {
        self.events.subscribe()
    }

    /// Keeps a connection to another peer from now on.
    pub fn add_peer(&self, addr: SocketAddr) {
        tokio::spawn(crate::net::dial(addr, Arc::clone(&self.dialing), self.handle.clone()));
    }

    /// Cuts every connection to a peer, as a network would: they are made again by themselves. For tests of programs
    /// that must live with it.
    pub async fn cut_connections(&self) {
        self.handle.tell(Message::CutConnections).await;
    }

    /// Ends the host: moves reach their terminal, objects that are left are dropped, the lease goes back. Past
    /// `timeout` it ends as in a crash.
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

/// A move that has begun.
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
