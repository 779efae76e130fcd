//! The one policy for connections: how long to wait, when to connect again, and what a fault means for the answer. It
//! decides nothing about a command's content.
//!
//! - A command waits for a connection until its time is over. Once it may have left this process it is never sent again,
//!   whatever happens, unless the server said that it did nothing and which other server would.
//! - Past its time, or with its connection broken, its answer is unknown, and the connection is not used again: a later
//!   command must not wait behind one that hangs.
//! - After a failure the next attempt to connect waits, twice as long each time up to a second, by a random part of it,
//!   so that the nodes of a cluster do not come back in step.

use rehome::store::{StoreCommand, StoreReply};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answered with an error. The connection is as good as before.
    Answered,
    /// The connection is not to be used again.
    Broken,
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "other servers do not say so"))]
    /// The server did nothing, and another one is in charge; the next connection goes there.
    Elsewhere,
}

/// Why the first connection was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unopened {
    Connect(String),
    Unfit(String),
}

/// A client of one kind of server.
pub(crate) trait Server: Send + Sync + 'static {
    /// A connection that several commands may use at once. Dropping its last clone ends it.
    type Connection: Clone + Send + Sync + 'static;

    /// Makes a connection, ready for commands, to a server that is fit: never a replica.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Unopened>> + Send;

    /// What endangers the promises at this server.
    fn warnings(&self, connection: Self::Connection) -> impl Future<Output = Vec<String>> + Send;

    /// Carries out a command, sending a write at most once.
    fn ask(
        &self,
        connection: Self::Connection,
        command: StoreCommand,
    ) -> impl Future<Output = Result<StoreReply, Fault>> + Send;
}

/// The times of the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) connect: Duration,
    pub(crate) operation: Duration,
    /// How many connections there are.
    pub(crate) width: usize,
}

/// The connections to one server.
pub(crate) struct Links<S: Server> {
    server: S,
    policy: Policy,
    lanes: Vec<Lane<S::Connection>>,
}

struct Lane<C> {
    /// Commands that use it or wait for it.
    busy: AtomicUsize,
    state: Mutex<State<C>>,
}

struct State<C> {
    connection: Option<C>,
    /// Which connection it is, so that a late fault of an old one does not end a new one.
    number: u64,
    failures: u32,
    not_before: Option<Instant>,
}

/// Counts a command on a lane, also if its future is dropped.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Server> Links<S> {
    pub(crate) fn new(server: S, policy: Policy) -> Self {
        let lanes = (0..policy.width.max(1))
            .map(|_| Lane {
                busy: AtomicUsize::new(0),
                state: Mutex::new(State { connection: None, number: 0, failures: 0, not_before: None }),
            })
            .collect();
        Self { server, policy, lanes }
    }

    /// One attempt, for the start.
    pub(crate) async fn open(&self) -> Result<Vec<String>, Unopened> {
        let late = || Unopened::Connect(format!("no connection in {:?}", self.policy.connect));
        let connection = timeout(self.policy.connect, self.server.connect()).await.map_err(|_| late())??;
        let warnings =
            timeout(self.policy.operation, self.server.warnings(connection.clone())).await.map_err(|_| late())?;
        if let Some(lane) = self.lanes.first() {
            lane.state.lock().await.connection = Some(connection);
        }
        Ok(warnings)
    }

    pub(crate) async fn execute(&self, command: StoreCommand) -> StoreReply {
        let end = Instant::now() + self.policy.operation;
        let least = self.lanes.iter().min_by_key(|lane| lane.busy.load(Ordering::Relaxed));
        let Some(lane) = least else { return StoreReply::Unknown };
        lane.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&lane.busy);
        // A server that did nothing and named another one is believed once.
        let mut moved = false;
        loop {
            let Ok((number, connection)) = timeout_at(end, self.connection(lane)).await else {
                return StoreReply::Unknown;
            };
            match timeout_at(end, self.server.ask(connection, command.clone())).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(Fault::Answered)) => return StoreReply::Unknown,
                Ok(Err(Fault::Elsewhere)) if !moved => {
                    moved = true;
                    lane.discard(number).await;
                }
                Ok(Err(Fault::Broken | Fault::Elsewhere)) | Err(_) => {
                    lane.discard(number).await;
                    return StoreReply::Unknown;
                }
            }
        }
    }

    /// The lane's connection, made anew where there is none. Waits for ever.
    async fn connection(&self, lane: &Lane<S::Connection>) -> (u64, S::Connection) {
        // Held while connecting: one attempt at a time, and the others wait for its outcome.
        let mut state = lane.state.lock().await;
        loop {
            if let Some(connection) = &state.connection {
                return (state.number, connection.clone());
            }
            if let Some(moment) = state.not_before {
                sleep_until(moment).await;
            }
            // Before the attempt, so that one that is given up with its command counts too.
            state.not_before = Some(Instant::now() + pause(state.failures));
            state.failures = state.failures.saturating_add(1);
            if let Ok(Ok(connection)) = timeout(self.policy.connect, self.server.connect()).await {
                state.number = state.number.wrapping_add(1);
                state.failures = 0;
                state.not_before = None;
                state.connection = Some(connection);
            }
        }
    }
}

impl<C> Lane<C> {
    async fn discard(&self, number: u64) {
        let mut state = self.state.lock().await;
        if state.number == number {
            state.connection = None;
        }
    }
}

/// The pause after so many failures: between half of it and all of it.
fn pause(failures: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    whole.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PAUSE, LONGEST_PAUSE, pause};

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        for failures in 0..40 {
            let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(6)).min(LONGEST_PAUSE);
            for _ in 0..50 {
                let pause = pause(failures);
                assert!(pause >= whole / 2 && pause <= whole, "{pause:?} after {failures} failures");
            }
        }
        let pauses: std::collections::BTreeSet<_> = (0..50).map(|_| pause(3)).collect();
        assert!(pauses.len() > 10, "the pauses do not differ");
    }
}
