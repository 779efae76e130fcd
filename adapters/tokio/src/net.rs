//! Sockets: listening, dialing with back-off, reading. Writing is the driver's own, straight from its records.

use crate::driver::{Handle, Message};
use bytes::BytesMut;
use rehome::id::RoutingId;
use rehome::node::Conn;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);

/// What the dialers know of the connections: who is at which address, and who is connected.
#[derive(Debug, Default)]
pub(crate) struct Dialing {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<SocketAddr, RoutingId>,
    up: HashSet<RoutingId>,
    open: HashSet<SocketAddr>,
    stopped: bool,
}

impl Dialing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn up(&self, dialed: Option<SocketAddr>, rid: &RoutingId) {
        let mut state = self.state();
        state.up.insert(rid.detached());
        if let Some(addr) = dialed {
            state.known.insert(addr, rid.detached());
        }
    }

    pub(crate) fn down(&self, dialed: Option<SocketAddr>, rid: &RoutingId, still_up: bool) {
        let mut state = self.state();
        if let Some(addr) = dialed {
            state.known.insert(addr, rid.detached());
        }
        if !still_up {
            state.up.remove(rid);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn closed(&self, addr: SocketAddr) {
        self.state().open.remove(&addr);
        self.changed.notify_waiters();
    }

    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_waiters();
    }

    /// Whether a dialer of `addr` has nothing to do: its connection is open, or its node is connected otherwise.
    fn satisfied(&self, addr: SocketAddr) -> bool {
        let state = self.state();
        state.open.contains(&addr) || state.known.get(&addr).is_some_and(|rid| state.up.contains(rid))
    }
}

/// Accepts connections until the driver is gone.
pub(crate) async fn listen(listener: TcpListener, handle: Handle) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                if !handle.tell(Message::Connected { stream, dialed: None }).await {
                    return;
                }
            }
            // Too many open files, or a peer that was gone at once.
            Err(_) => tokio::time::sleep(FIRST_BACKOFF).await,
        }
    }
}

/// Keeps a connection to `addr`, unless its node is connected anyway.
pub(crate) async fn dial(addr: SocketAddr, dialing: Arc<Dialing>, handle: Handle) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        while dialing.satisfied(addr) {
            backoff = FIRST_BACKOFF;
            // A notification may come between the look and the wait: look again soon anyway.
            let _ = tokio::time::timeout(Duration::from_millis(200), dialing.changed.notified()).await;
            if dialing.state().stopped {
                return;
            }
        }
        if dialing.state().stopped {
            return;
        }
        if let Ok(stream) = TcpStream::connect(addr).await {
            let _ = stream.set_nodelay(true);
            dialing.state().open.insert(addr);
            if !handle.tell(Message::Connected { stream, dialed: Some(addr) }).await {
                return;
            }
            while dialing.state().open.contains(&addr) {
                let _ = tokio::time::timeout(Duration::from_millis(200), dialing.changed.notified()).await;
            }
        }
        // Nodes that lost each other at once should not dial each other at once for ever.
        let jitter = Duration::from_micros(u64::from(addr.port()) % 97 * 100);
        tokio::time::sleep(backoff + jitter).await;
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

/// Reads until the end. A driver that is busy stops the reading, and so in time the peer.
pub(crate) async fn read(stream: Arc<TcpStream>, conn: Conn, size: usize, handle: Handle) {
    let mut buffer = BytesMut::new();
    loop {
        if stream.readable().await.is_err() {
            break;
        }
        buffer.reserve(size.min(16 << 10));
        if buffer.capacity() < size && buffer.capacity() <= 16 << 10 {
            buffer.reserve(16 << 10);
        }
        match stream.try_read_buf(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                if count >= 16 << 10 {
                    buffer.reserve(size);
                }
                if !handle.tell(Message::Read { conn, bytes: buffer.split().freeze() }).await {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    handle.tell(Message::Closed { conn }).await;
}
