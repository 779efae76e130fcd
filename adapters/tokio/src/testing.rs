//! A cluster for tests of programs that use this crate: the same hosts on the runtime's paused clock, with pipes for
//! sockets and a store in memory. Nothing of the world outside is in it, so a test runs the same way each time, and an
//! hour of leases takes no time.
//!
//! The clock stands still while any task can run, and then goes on to the next timer. So a test must not wait for
//! anything outside of the runtime: no socket, file or thread.
//!
//! ```
//! use bytes::Bytes;
//! use rehome::fence::ObjectKey;
//! use rehome::id::{ObjectId, RoutingId};
//! use rehome::node::{MoveOutcome, TypeConfig};
//! use rehome::state::{StateReader, StateWriter};
//! use rehome::wire::Payload;
//! use rehome_tokio::testing::{self, Cluster};
//! use rehome_tokio::{Activate, HandlerError, Object, ObjectError, Reply, TurnContext, payload};
//! use std::{io::Read as _, sync::Arc, time::Duration};
//!
//! struct Counter(u8);
//!
//! impl Object for Counter {
//!     type Shared = ();
//!     async fn activate(_: &Arc<()>, _: Activate<'_>) -> Result<Self, ObjectError> {
//!         Ok(Self(0))
//!     }
//!     async fn handle(&mut self, _: &mut TurnContext, _: Payload) -> Result<Reply, HandlerError> {
//!         self.0 += 1;
//!         Ok(Reply::Answer(payload("count", vec![self.0])?))
//!     }
//!     fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
//!         state.write(&[self.0]);
//!         Ok(())
//!     }
//!     async fn restore(_: &Arc<()>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
//!         let mut count = [0];
//!         state.read_exact(&mut count)?;
//!         Ok(Self(count[0]))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! testing::run(async {
//!     let cluster = Cluster::new(1);
//!     let host = async |name| cluster.host(name, |host| host.object::<Counter>("counter", TypeConfig::default(), ())).await;
//!     let (left, right) = (host("left").await?, host("right").await?);
//!     cluster.connected().await;
//!
//!     let counter = ObjectKey::actor(ObjectId::new("hits")?);
//!     left.create(counter.clone(), "counter", Bytes::new()).await?;
//!     right.send(counter.clone(), payload("hit", "")?).await?;
//!     let moved = left.relocate(counter.clone(), RoutingId::new("right")?, None).await.outcome().await?;
//!     assert!(matches!(moved, MoveOutcome::Moved { .. }));
//!
//!     // The host dies with the counter; once its lease has ended, another takes it over.
//!     cluster.crash("right").await;
//!     tokio::time::sleep(Duration::from_secs(20)).await;
//!     left.reclaim(counter.clone(), Bytes::new()).await?;
//!     let count = left.request(counter, payload("hit", "")?, Duration::from_secs(5)).await?;
//!     assert_eq!(count.bytes, [1].as_slice());
//!     Ok(())
//! })
//! # }
//! ```

use crate::handle::{Message, Origin};
use crate::wire::Wire;
use crate::{Host, HostBuilder, StartError};
use rehome::store::StoreCommand;
use rehome_stores::{Answer, Clock, Engine, Memory};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The bytes that one direction of a pipe holds before its writer waits.
const PIPE: usize = 64 << 10;
/// How long a cut pipe stays away before it is made again, unless the hosts are kept apart.
const RECONNECT: Duration = Duration::from_millis(20);

/// Runs a test on a runtime of its own, with one thread and a paused clock.
///
/// # Panics
/// Where there is a runtime already, or none can be made.
pub fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing of the system")
        .block_on(test)
}

/// Hosts that are all connected with each other. See the [module](self).
pub struct Cluster {
    seed: u64,
    origin: tokio::time::Instant,
    store: Memory,
    engine: Arc<dyn Engine>,
    apart: watch::Sender<BTreeSet<(String, String)>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, Host>,
    started: u64,
}

/// What a host of a cluster has that others take from the machine.
#[derive(Clone, Debug)]
pub(crate) struct Paused {
    pub(crate) origin: tokio::time::Instant,
    pub(crate) generation: u64,
    pub(crate) seed: u128,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Cluster {
    /// An empty cluster; `seed` gives all ids of its hosts. Call it inside of [`run`], or of a test on a runtime whose
    /// clock is paused and that has one thread, such as `#[tokio::test(start_paused = true)]`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(seed: u64) -> Self {
        let origin = tokio::time::Instant::now();
        let nanos = Arc::new(AtomicU64::new(0));
        let store = Memory::with_clock(Clock::Manual(Arc::clone(&nanos)));
        let engine = Arc::new(PausedStore { store: store.clone(), nanos, origin });
        Self { seed, origin, store, engine, apart: watch::Sender::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a host, or another run of one that is over, and connects it with all others. `configure` offers types and
    /// sets what else is to be set.
    ///
    /// # Errors
    /// What `configure` says, and [`StartError`].
    pub async fn host(
        &self,
        name: &str,
        configure: impl FnOnce(HostBuilder) -> Result<HostBuilder, StartError>,
    ) -> Result<Host, StartError> {
        let mut builder = configure(HostBuilder::new(name, "testing")?)?;
        let generation = {
            let mut state = self.state();
            state.started += 1;
            state.started
        };
        let seed = u128::from(self.seed) << 64 | u128::from(generation);
        builder.paused = Some(Paused { origin: self.origin, generation, seed });
        let host = builder.start(Arc::clone(&self.engine)).await?;
        let others: Vec<(String, Host)> = {
            let mut state = self.state();
            state.hosts.insert(name.to_owned(), host.clone());
            state.hosts.iter().filter(|(other, _)| *other != name).map(|(n, h)| (n.clone(), h.clone())).collect()
        };
        for (other, there) in others {
            let pair = pair(name, &other);
            tokio::spawn(link(host.clone(), there, pair, self.apart.subscribe()));
        }
        Ok(host)
    }

    /// The store, with its script of faults.
    pub const fn store(&self) -> &Memory {
        &self.store
    }

    /// Cuts the connection of two hosts, and keeps them apart until [`Cluster::heal`].
    pub fn part(&self, one: &str, other: &str) {
        self.apart.send_modify(|apart| _ = apart.insert(pair(one, other)));
    }

    /// Lets two hosts connect again.
    pub fn heal(&self, one: &str, other: &str) {
        self.apart.send_modify(|apart| _ = apart.remove(&pair(one, other)));
    }

    /// Ends a host as a killed process ends: its objects are gone, its peers see their connections end, and its lease
    /// lives on until its time is over. Its [`Host`] answers nothing any more.
    pub async fn crash(&self, name: &str) {
        let host = self.state().hosts.remove(name);
        if let Some(host) = host {
            host.handle.tell(Message::Crash).await;
            host.over().await;
        }
    }

    /// Waits until every two hosts that are not kept apart are connected. Hosts that are over meet nobody.
    pub async fn connected(&self) {
        let hosts: Vec<(String, Host)> =
            self.state().hosts.iter().map(|(name, host)| (name.clone(), host.clone())).collect();
        for (name, host) in &hosts {
            for (other, there) in &hosts {
                if name != other && !self.apart.borrow().contains(&pair(name, other)) {
                    host.met(&there.node().rid).await;
                }
            }
        }
    }
}

fn pair(one: &str, other: &str) -> (String, String) {
    let (less, greater) = if one < other { (one, other) } else { (other, one) };
    (less.to_owned(), greater.to_owned())
}

/// Keeps a pipe between two hosts while both live and nobody keeps them apart.
async fn link(one: Host, other: Host, pair: (String, String), mut apart: watch::Receiver<BTreeSet<(String, String)>>) {
    loop {
        if apart.wait_for(|apart| !apart.contains(&pair)).await.is_err() {
            return;
        }
        let (here, there) = tokio::io::duplex(PIPE);
        let (here_alive, here_closed) = oneshot::channel();
        let (there_alive, there_closed) = oneshot::channel();
        let (cut_here, here) = cuttable(here);
        for (host, wire, dialed, alive) in [(&one, here, true, here_alive), (&other, there, false, there_alive)] {
            let wire = Wire::Stream(Box::new(wire));
            let origin = Origin::Piped { dialed, alive };
            if !host.handle.tell(Message::Connected { wire, origin, identity: None }).await {
                return;
            }
        }
        tokio::select! {
            biased;
            _ = here_closed => {}
            _ = there_closed => {}
            parted = apart.wait_for(|apart| apart.contains(&pair)) => if parted.is_err() { return },
        }
        drop(cut_here);
        tokio::time::sleep(RECONNECT).await;
    }
}

/// A pipe's end that another task can cut: dropping the first value does.
fn cuttable(stream: tokio::io::DuplexStream) -> (oneshot::Sender<()>, tokio::io::DuplexStream) {
    let (mut far, near) = tokio::io::duplex(PIPE);
    let (cut, until) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let mut stream = stream;
        tokio::select! {
            biased;
            _ = until => {}
            _ = tokio::io::copy_bidirectional(&mut stream, &mut far) => {}
        }
    });
    (cut, near)
}

/// The memory store with the paused clock as its own.
struct PausedStore {
    store: Memory,
    nanos: Arc<AtomicU64>,
    origin: tokio::time::Instant,
}

impl Engine for PausedStore {
    fn execute(&self, command: StoreCommand) -> Answer {
        let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(elapsed, Ordering::SeqCst);
        self.store.execute(command)
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
