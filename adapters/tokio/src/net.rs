//! Listening and dialing: how connections come about. Knows who is connected, and nothing of what they say.

use crate::handle::{Handle, Message, Origin};
use crate::wire::Wire;
use rehome::id::RoutingId;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);
/// How long a connection may take to be made, before its hello.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Connections whose authentication has not ended; more wait to be accepted.
#[cfg(feature = "tls")]
const HANDSHAKES: usize = 256;

/// What protects the connections.
#[derive(Clone)]
pub(crate) enum Security {
    /// Nothing: any peer is who it says it is.
    Plain,
    /// Certificates on both sides.
    #[cfg(feature = "tls")]
    Tls(crate::tls::Tls),
}

impl Security {
    /// Whether a peer's identity is proved before its hello.
    pub(crate) const fn authenticates(&self) -> bool {
        match self {
            Self::Plain => false,
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }

    async fn dialed(&self, stream: TcpStream) -> io::Result<(Wire, Option<RoutingId>)> {
        match self {
            Self::Plain => Ok((Wire::Tcp(stream), None)),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.dialed(stream).await.map(|(wire, rid)| (wire, Some(rid))),
        }
    }
}

/// What the dialers know of the connections.
#[derive(Debug)]
pub(crate) struct Dialing(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// The addresses that a dialer cares for.
    dialed: HashSet<SocketAddr>,
    /// Who was met at an address.
    known: HashMap<SocketAddr, RoutingId>,
    /// Who is connected, by whatever connection.
    up: HashSet<RoutingId>,
    /// The addresses with an open connection of their dialer.
    open: HashSet<SocketAddr>,
    /// Those of them whose connection came up, until their dialer has seen it.
    came_up: HashSet<SocketAddr>,
    stopped: bool,
}

impl State {
    /// Whether a dialer of `addr` has nothing to do: its connection is open, or its node is connected otherwise.
    fn satisfied(&self, addr: SocketAddr) -> bool {
        self.open.contains(&addr) || self.known.get(&addr).is_some_and(|rid| self.up.contains(rid))
    }
}

impl Default for Dialing {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Dialing {
    pub(crate) fn up(&self, dialed: Option<SocketAddr>, rid: &RoutingId) {
        self.0.send_modify(|state| {
            state.up.insert(rid.detached());
            if let Some(addr) = dialed {
                state.known.insert(addr, rid.detached());
                state.came_up.insert(addr);
            }
        });
    }

    pub(crate) fn down(&self, dialed: Option<SocketAddr>, rid: &RoutingId, still_up: bool) {
        self.0.send_modify(|state| {
            if let Some(addr) = dialed {
                state.known.insert(addr, rid.detached());
            }
            if !still_up {
                state.up.remove(rid);
            }
        });
    }

    pub(crate) fn closed(&self, addr: SocketAddr) {
        self.0.send_modify(|state| _ = state.open.remove(&addr));
    }

    /// Who is connected, in no order.
    pub(crate) fn peers(&self) -> Vec<RoutingId> {
        self.0.borrow().up.iter().cloned().collect()
    }

    /// Waits for a connection with `rid`; false where the host is over.
    pub(crate) async fn met(&self, rid: &RoutingId) -> bool {
        let mut state = self.0.subscribe();
        state.wait_for(|state| state.stopped || state.up.contains(rid)).await.is_ok_and(|state| !state.stopped)
    }

    pub(crate) fn stop(&self) {
        self.0.send_modify(|state| state.stopped = true);
    }

    /// Whether nobody dials `addr` yet.
    pub(crate) fn begin(&self, addr: SocketAddr) -> bool {
        self.0.send_if_modified(|state| state.dialed.insert(addr))
    }
}

/// Accepts connections until the driver is gone.
pub(crate) async fn listen(listener: TcpListener, security: Security, dialing: Arc<Dialing>, handle: Handle) {
    let mut stopped = dialing.0.subscribe();
    #[cfg(feature = "tls")]
    let handshakes = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|state| state.stopped) => return,
        };
        let Ok((stream, _)) = accepted else {
            // Too many open files, or a peer that was gone at once.
            tokio::time::sleep(FIRST_BACKOFF).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        match &security {
            Security::Plain => {
                let wire = Wire::Tcp(stream);
                if !handle.tell(Message::Connected { wire, origin: Origin::Accepted, identity: None }).await {
                    return;
                }
            }
            #[cfg(feature = "tls")]
            Security::Tls(tls) => {
                let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
                let (tls, handle) = (tls.clone(), handle.clone());
                tokio::spawn(async move {
                    match tokio::time::timeout(CONNECT_LIMIT, tls.accepted(stream)).await {
                        Ok(Ok((wire, rid))) => {
                            let identity = Some(rid);
                            handle.tell(Message::Connected { wire, origin: Origin::Accepted, identity }).await;
                        }
                        Ok(Err(error)) => refused(&error),
                        Err(_) => refused(&io::ErrorKind::TimedOut.into()),
                    }
                    drop(permit);
                });
            }
        }
    }
}

fn refused(error: &io::Error) {
    metrics::counter!("rehome_connections_refused_total").increment(1);
    tracing::warn!(%error, "a connection was refused before its hello");
}

/// Keeps a connection to `addr`, unless its node is connected anyway.
pub(crate) async fn dial(addr: SocketAddr, security: Security, dialing: Arc<Dialing>, handle: Handle) {
    let mut state = dialing.0.subscribe();
    let mut backoff = FIRST_BACKOFF;
    loop {
        match state.wait_for(|state| state.stopped || !state.satisfied(addr)).await {
            Ok(now) if !now.stopped => {}
            Ok(_) | Err(_) => return,
        }
        let connected = tokio::time::timeout(CONNECT_LIMIT, async {
            let stream = TcpStream::connect(addr).await?;
            let _ = stream.set_nodelay(true);
            security.dialed(stream).await
        });
        match connected.await {
            Ok(Ok((wire, identity))) => {
                dialing.0.send_modify(|state| _ = state.open.insert(addr));
                if !handle.tell(Message::Connected { wire, origin: Origin::Dialed(addr), identity }).await {
                    return;
                }
                match state.wait_for(|state| state.stopped || !state.open.contains(&addr)).await {
                    Ok(now) if !now.stopped => {}
                    Ok(_) | Err(_) => return,
                }
                if dialing.0.send_if_modified(|state| state.came_up.remove(&addr)) {
                    backoff = FIRST_BACKOFF;
                }
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => refused(&error),
            Ok(Err(error)) => tracing::debug!(%addr, %error, "cannot connect"),
            Err(_) => tracing::debug!(%addr, "cannot connect in time"),
        }
        let wait = tokio::time::timeout(jittered(backoff), state.wait_for(|state| state.stopped)).await;
        if wait.is_ok() {
            return;
        }
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

/// Half to one and a half of `backoff`: nodes that lost each other at once should not dial each other at once for ever.
fn jittered(backoff: Duration) -> Duration {
    let chance = RandomState::new().hash_one(backoff) % 1000;
    backoff / 2 + backoff.mul_f64(f64::from(u32::try_from(chance).unwrap_or(0)) / 1000.0)
}
