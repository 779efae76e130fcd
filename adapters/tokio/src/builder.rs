//! What a host is made of, and its start. Owns no running part.

use crate::clock::Clock;
use crate::driver::{self, Life, Parts};
use crate::handle;
use crate::host::Host;
use crate::net::{Dialing, Security};
use crate::object::Object;
use crate::task::{Factory, OnPanic, TurnRules, TypedFactory};
use rehome::fence::NodeFence;
use rehome::id::{NodeGeneration, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::LinkSettings;
use rehome::node::{ConfigError, Limits, Policy, Timing, TypeConfig};
use rehome::{Config, Node};
use rehome_stores::Engine;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tracing::Instrument as _;

/// Events that wait for a slow listener before it misses some.
const EVENTS: usize = 16 << 10;

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
    #[cfg(feature = "testing")]
    pub(crate) paused: Option<crate::testing::Paused>,
    owner: OwnerId,
    mesh: Text8,
    application_version: i64,
    listener: Option<TcpListener>,
    peers: Vec<SocketAddr>,
    types: BTreeMap<TypeName, TypeConfig>,
    factories: HashMap<TypeName, Arc<dyn Factory>>,
    rules: TurnRules,
    security: Security,
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
            #[cfg(feature = "testing")]
            paused: None,
            owner: OwnerId::new(name)?,
            mesh: Text8::new(mesh)?,
            application_version: 1,
            listener: None,
            peers: Vec::new(),
            types: BTreeMap::new(),
            factories: HashMap::new(),
            rules: TurnRules::default(),
            security: Security::Plain,
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
    /// [`CallError::Timeout`](crate::CallError::Timeout), its future dropped where it waited.
    #[must_use]
    pub const fn turn_limit(mut self, limit: Duration) -> Self {
        self.rules.limit = Some(limit);
        self
    }

    /// What becomes of an object whose handler panicked; it stays by default.
    #[must_use]
    pub const fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.rules.on_panic = on_panic;
        self
    }

    /// Protects all connections: the host proves that it is the node of its name, and talks to nobody who does not
    /// prove the same. All hosts of a mesh must do it, or none.
    ///
    /// # Errors
    /// [`TlsError::OtherNode`](crate::TlsError::OtherNode) where the certificate is not of this host.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Result<Self, crate::TlsError> {
        if *tls.node() != self.rid {
            return Err(crate::TlsError::OtherNode { certificate: tls.node().clone(), host: self.rid });
        }
        self.security = Security::Tls(tls);
        Ok(self)
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

    /// Offers a type of object; `shared` is what its objects on this host have in common, and stays here. A handler
    /// that panics ends its request with [`CallError::Panicked`](crate::CallError::Panicked), and nothing else; see
    /// [`HostBuilder::on_panic`].
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
        let factory = TypedFactory::<T> { shared, preserve };
        self.types.insert(name.clone(), config);
        self.factories.insert(name, Arc::new(factory));
        Ok(self)
    }

    /// Starts the host: claims a lease, then listens and dials. Returns when it serves.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(self, engine: Arc<dyn Engine>) -> Result<Host, StartError> {
        let (clock, run) = self.run();
        let now = clock.now();
        let endpoint = self.local_addr().map_or_else(String::new, |addr| addr.to_string());
        let config = Config {
            // A later run of the same host has a later wall clock, or at least another one.
            node: NodeFence {
                rid: self.rid,
                generation: NodeGeneration::new(run.generation.unwrap_or(now.wall.0.max(1)))?,
            },
            owner: self.owner,
            mesh: self.mesh,
            endpoint,
            application_version: self.application_version,
            types: self.types,
            seed: run.seed,
            timing: self.timing,
            limits: self.limits,
        };
        let node = Node::new(now, config.clone())?;
        let link = LinkSettings::default();
        let (handle, inbox) = handle::channel(clock, usize::try_from(link.payload_limit).unwrap_or(usize::MAX));
        let (events, _) = broadcast::channel(EVENTS);
        let (life_sender, mut life) = watch::channel(Life::Starting);
        let (fence, dialing) = (config.node.clone(), Arc::new(Dialing::default()));
        let parts = Parts {
            config,
            node,
            link,
            clock,
            engine,
            factories: self.factories,
            rules: self.rules,
            listener: self.listener,
            peers: self.peers,
            security: self.security.clone(),
            events: events.clone(),
            life: life_sender,
            dialing: Arc::clone(&dialing),
        };
        let span = tracing::info_span!("rehome", node = %fence);
        tokio::spawn(driver::run(parts, handle.clone(), inbox).instrument(span));
        match life.wait_for(|life| *life != Life::Starting).await.map(|life| *life) {
            Ok(Life::Serving) => Ok(Host { handle, events, life, node: fence, dialing, security: self.security }),
            Ok(Life::Starting | Life::Over) | Err(_) => Err(StartError::Over),
        }
    }

    /// The clock, the generation where it is given, and the entropy of this run.
    fn run(&self) -> (Clock, Run) {
        #[cfg(feature = "testing")]
        if let Some(paused) = &self.paused {
            let run = Run { generation: Some(paused.generation), seed: paused.seed };
            return (Clock::Paused { origin: paused.origin }, run);
        }
        (Clock::Machine, Run { generation: None, seed: seed() })
    }
}

struct Run {
    generation: Option<u64>,
    seed: u128,
}

/// 128 random bits from the process: the hasher's keys are from the system's entropy.
fn seed() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let half = |salt: u64| u128::from(RandomState::new().hash_one(salt));
    half(1) << 64 | half(2)
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuilder").field("rid", &self.rid).field("types", &self.types).finish_non_exhaustive()
    }
}
