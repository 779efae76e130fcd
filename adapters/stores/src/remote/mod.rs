//! What the engines over a network share: their options, the runtime thread that their clients need, and the one policy
//! for connections. It knows no engine, and it must never send a command twice that a server may have seen.

mod address;
mod link;

pub(crate) use address::Address;
pub(crate) use link::{Fault, Policy, Server, Unopened};

use crate::{Answer, ready};
use futures_channel::oneshot;
use link::Links;
use rehome::store::{StoreCommand, StoreReply};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Options of an engine over a network. In an address they are query parameters of the same names, times in
/// milliseconds with `_ms` after the name; what stands there wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Keeps several stores on one server apart: 1 to 32 of `a-z`, `0-9` and `_`, a letter first. `rehome` unless set.
    pub namespace: String,
    /// How long one attempt to connect may take, log-in included. Two seconds unless set.
    pub connect_timeout: Duration,
    /// How long a command may take, waiting for a connection included. Past it the answer is unknown. Three seconds
    /// unless set.
    pub operation_timeout: Duration,
    /// How many connections are held, where the engine's client does not share one among all commands (PostgreSQL).
    /// Eight unless set.
    pub connections: usize,
    /// The authorities that a server's certificate must come from: a PEM file. The system's unless set.
    pub ca: Option<PathBuf>,
    /// This client's certificate chain, for servers that ask for one: a PEM file, together with `key`.
    pub cert: Option<PathBuf>,
    /// The key of `cert`: a PEM file.
    pub key: Option<PathBuf>,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            namespace: String::from("rehome"),
            connect_timeout: Duration::from_secs(2),
            operation_timeout: Duration::from_secs(3),
            connections: 8,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

/// Why a store over a network cannot be opened. No sentence holds a password.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address or an option cannot be used.
    #[error("{engine}: {reason}")]
    Address {
        /// The engine's name.
        engine: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the options cannot be read.
    #[error("{engine}: {}: {source}", path.display())]
    File {
        /// The engine's name.
        engine: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No connection, or not in time.
    #[error("{engine} at {place}: {reason}")]
    Connect {
        /// The engine's name.
        engine: &'static str,
        /// Hosts and ports.
        place: String,
        /// What the client or the server said.
        reason: String,
    },
    /// The server is there and cannot be used as a store: too old, a replica, not migrated, or another version.
    #[error("{engine} at {place}: {reason}")]
    Unfit {
        /// The engine's name.
        engine: &'static str,
        /// Hosts and ports.
        place: String,
        /// What it lacks.
        reason: String,
    },
    /// No thread for the client.
    #[error("{engine}: no thread: {source}")]
    Thread {
        /// The engine's name.
        engine: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// PEM files of the options, read.
#[derive(Clone, Default)]
pub(crate) struct Pem {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pem {
    pub(crate) fn read(engine: &'static str, options: &RemoteOptions) -> Result<Self, RemoteError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| RemoteError::File { engine, path: path.clone(), source })
        };
        let identity = match (&options.cert, &options.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let reason = String::from("a certificate and its key come together, or neither");
                return Err(RemoteError::Address { engine, reason });
            }
        };
        Ok(Self { ca: options.ca.as_ref().map(read).transpose()?, identity })
    }

    #[cfg(feature = "redis")]
    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }
}

struct Job {
    command: StoreCommand,
    answer: oneshot::Sender<StoreReply>,
}

/// A thread with the runtime that a client needs, so that whoever asks needs none. Once it is dropped, what was sent is
/// still carried out, and then the thread ends.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Worker {
    /// Connects once, so that an address of nothing fails at the start, and says what endangers the promises there.
    pub(crate) fn start<S: Server>(
        engine: &'static str,
        place: String,
        server: S,
        policy: Policy,
    ) -> Result<(Self, Vec<String>), RemoteError> {
        let thread = |source| RemoteError::Thread { engine, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread)?;
        let (jobs, queue) = mpsc::unbounded_channel();
        let (opened, first) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name(format!("rehome-{engine}"))
            .spawn(move || {
                let links = Arc::new(Links::new(server, policy));
                runtime.block_on(async move {
                    let outcome = links.open().await;
                    let fit = outcome.is_ok();
                    if opened.send(outcome).is_ok() && fit {
                        serve(links, queue).await;
                    }
                });
            })
            .map_err(thread)?;
        match first.recv() {
            Ok(Ok(warnings)) => Ok((Self { jobs }, warnings)),
            Ok(Err(Unopened::Connect(reason))) => Err(RemoteError::Connect { engine, place, reason }),
            Ok(Err(Unopened::Unfit(reason))) => Err(RemoteError::Unfit { engine, place, reason }),
            Err(_) => Err(RemoteError::Connect { engine, place, reason: String::from("its thread ended") }),
        }
    }

    /// Begins a command that is within the bounds.
    pub(crate) fn send(&self, command: StoreCommand) -> Answer {
        let (answer, reply) = oneshot::channel();
        if self.jobs.send(Job { command, answer }).is_err() {
            return ready(StoreReply::Unknown);
        }
        // The thread drops the sender only if it failed.
        Box::pin(async move { reply.await.unwrap_or(StoreReply::Unknown) })
    }
}

async fn serve<S: Server>(links: Arc<Links<S>>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let mut running = JoinSet::new();
    while let Some(job) = queue.recv().await {
        while running.try_join_next().is_some() {}
        let links = Arc::clone(&links);
        running.spawn(async move {
            let reply = links.execute(job.command).await;
            // Whoever asked may have given up; what was begun is carried out all the same.
            let _ = job.answer.send(reply);
        });
    }
    while running.join_next().await.is_some() {}
}
