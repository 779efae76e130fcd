//! A TCP proxy that harms connections on purpose. It reads no protocol: it counts bytes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// What is done from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Nothing,
    /// That many more bytes go that way, then the connection is cut.
    Cut(Way, u64),
    /// That many more bytes go that way, then nothing more, and the connection stays open.
    Hole(Way, u64),
    /// Everything goes on, later.
    Delay(Duration),
}

struct Shared {
    server: u16,
    plan: Mutex<Plan>,
    up: AtomicU64,
    down: AtomicU64,
    connections: AtomicU64,
    over: AtomicBool,
}

struct Plan {
    harm: Harm,
    /// Connections made before it are held back once they have been in a hole.
    met: bool,
}

/// The proxy. It ends with its value.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    pub(crate) port: u16,
}

impl Proxy {
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            plan: Mutex::new(Plan { harm: Harm::Nothing, met: false }),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(("127.0.0.1", accepting.server)) else { continue };
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let (client_again, server_again) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (one, other) = (Arc::clone(&accepting), Arc::clone(&accepting));
                thread::spawn(move || pump(&one, Way::Up, client, server));
                thread::spawn(move || pump(&other, Way::Down, server_again, client_again));
            }
        });
        Self { shared, port }
    }

    /// Sets what is done to the bytes from now on.
    pub(crate) fn harm(&self, harm: Harm) {
        *self.shared.plan.lock().unwrap() = Plan { harm, met: false };
    }

    /// Whether the harm came to pass.
    pub(crate) fn met(&self) -> bool {
        self.shared.plan.lock().unwrap().met
    }

    /// Bytes that went up and down so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.shared.up.load(Ordering::SeqCst), self.shared.down.load(Ordering::SeqCst))
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

enum Then {
    GoOn,
    Cut,
    Hold,
}

/// How many of `len` bytes may go that way, after how long, and what comes then.
fn allow(shared: &Shared, way: Way, len: usize) -> (usize, Duration, Then) {
    let mut plan = shared.plan.lock().unwrap();
    let plan = &mut *plan;
    match &mut plan.harm {
        Harm::Cut(at, left) | Harm::Hole(at, left) if *at == way => {
            let now = (len as u64).min(*left);
            *left -= now;
            let ends = *left == 0;
            let cut = matches!(plan.harm, Harm::Cut(..));
            if !ends {
                return (len, Duration::ZERO, Then::GoOn);
            }
            plan.met = true;
            (usize::try_from(now).unwrap(), Duration::ZERO, if cut { Then::Cut } else { Then::Hold })
        }
        Harm::Delay(by) => {
            plan.met = true;
            (len, *by, Then::GoOn)
        }
        Harm::Nothing | Harm::Cut(..) | Harm::Hole(..) => (len, Duration::ZERO, Then::GoOn),
    }
}

fn pump(shared: &Shared, way: Way, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    let mut held = false;
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if held {
            continue;
        }
        let (now, after, then) = allow(shared, way, len);
        thread::sleep(after);
        let counter = if way == Way::Up { &shared.up } else { &shared.down };
        counter.fetch_add(now as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..now]).is_err() {
            break;
        }
        match then {
            Then::GoOn => {}
            Then::Cut => break,
            // Reads on and passes nothing on, until the other side gives up.
            Then::Hold => held = true,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
