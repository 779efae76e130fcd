//! The embedded engine: one SQLite file that several processes of one machine share, durable on commit.
//!
//! One thread writes: what waits in its queue shares one transaction and so one sync. Another thread reads, so that a
//! read does not wait for a sync; what it cannot decide without the write lock it hands to the writer. This file owns
//! the engine's front; it must never touch a row.
//!
//! ## Time
//! The store's clock is the machine's boot-time clock: it goes on in suspend and nobody can set it, so the wall clock's
//! jumps end no lease. It means nothing after a reboot, so the file holds the boot id too. The first process that opens
//! the file in another boot gives every key with a time to live its full time anew, counted from that moment: never
//! shorter than what was left. Keys that had ended before the last commit of the old boot stay ended. From then on a
//! process of the old boot (which can only be one on another machine: a misuse) gets nothing but unknown answers.

mod file;
mod rows;
mod writer;

pub use file::SqliteError;

use crate::{Answer, Engine, in_bounds, ready};
use crossbeam_channel::{Receiver, Sender, unbounded};
use file::{Patience, StoreClock};
use futures_channel::oneshot;
use rehome::store::{StoreCommand, StoreReply};
use rusqlite::Connection;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long an operation waits until it is its turn.
const LIMIT: Duration = Duration::from_secs(10);

struct Job {
    command: StoreCommand,
    answer: oneshot::Sender<StoreReply>,
    /// When it stops to wait, in the queue or for a lock; `None` if never.
    end: Option<Instant>,
}

/// A store in a SQLite file. Once it is dropped, what is queued is still done, and then its threads end.
#[derive(Debug)]
pub struct Sqlite {
    writes: Sender<Job>,
    reads: Sender<Job>,
    limit: Duration,
    warnings: Vec<String>,
}

impl Sqlite {
    /// Opens the store at `path`, and makes it where there is none. A write waits at most ten seconds for what is
    /// before it, in this process and in others; past that it is [`StoreReply::Unknown`].
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub fn open(path: &Path) -> Result<Self, SqliteError> {
        Self::open_with(path, LIMIT)
    }

    /// The same, where a write (and opening) waits at most `limit`.
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub fn open_with(path: &Path, limit: Duration) -> Result<Self, SqliteError> {
        let clock = StoreClock::of_this_machine()?;
        let write_patience = Patience::until(file::end_of(limit));
        let writer = file::open(path, &write_patience, &clock)?;
        let read_patience = Patience::until(file::end_of(limit));
        let reader = file::connect(path, &read_patience)?;
        let (writes, write_jobs) = unbounded();
        let (reads, read_jobs) = unbounded();
        let turn = writer::Turn::beside(path);
        let read_clock = clock.clone();
        let undecided = writes.clone();
        let thread = |source| SqliteError::Thread { path: path.to_owned(), source };
        thread::Builder::new()
            .name(String::from("rehome-sqlite-write"))
            .spawn(move || writer::run(writer, &write_patience, &clock, &turn, &write_jobs))
            .map_err(thread)?;
        thread::Builder::new()
            .name(String::from("rehome-sqlite-read"))
            .spawn(move || read_loop(&reader, &read_patience, &read_clock, &read_jobs, &undecided))
            .map_err(thread)?;
        Ok(Self { writes, reads, limit, warnings: file::warnings(path) })
    }
}

impl Engine for Sqlite {
    fn execute(&self, command: StoreCommand) -> Answer {
        if !in_bounds(&command) {
            return ready(StoreReply::Invalid);
        }
        let (answer, reply) = oneshot::channel();
        let queue = match &command {
            StoreCommand::Write(_) => &self.writes,
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => &self.reads,
        };
        if queue.send(Job { command, answer, end: file::end_of(self.limit) }).is_err() {
            return ready(StoreReply::Unknown);
        }
        Box::pin(async move { reply.await.unwrap_or(StoreReply::Unknown) })
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

fn read_loop(
    connection: &Connection,
    patience: &Patience,
    clock: &StoreClock,
    jobs: &Receiver<Job>,
    writer: &Sender<Job>,
) {
    while let Ok(job) = jobs.recv() {
        patience.set(job.end);
        let reply = match rows::observe(connection, clock, &job.command) {
            Ok(rows::Seen::Decided(reply)) => reply,
            Ok(rows::Seen::NeedsLock) => {
                if let Err(job) = writer.send(job) {
                    let _ = job.0.answer.send(StoreReply::Unknown);
                }
                continue;
            }
            Err(_) => StoreReply::Unknown,
        };
        // Whoever asked may have given up.
        let _ = job.answer.send(reply);
    }
}
