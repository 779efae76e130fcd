//! The writer: takes the write lock, does what waits in the queue in one transaction, and answers only once its end is
//! known. It must never try a transaction a second time.

use super::Job;
use super::file::{self, PAUSE, Patience, StoreClock};
use super::rows;
use crossbeam_channel::Receiver;
use rehome::store::{Batch, MAX_BATCH_BYTES, Mutation, StoreCommand, StoreReply};
use rusqlite::{Connection, TransactionBehavior, params};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Commands that share one transaction.
const GROUP: usize = 256;
/// No more commands are taken along once the values of those taken have so many bytes.
const GROUP_BYTES: usize = MAX_BATCH_BYTES;
/// How long a writer stands in line. It bounds what a process that was stopped there can do to the others.
const TURN: Duration = Duration::from_millis(50);

/// Whose turn it is to wait for the write lock. SQLite's lock goes to whoever asks at the right moment, and a writer
/// with a full queue asks at once after each commit; so it must stand in line here behind the one that waits already.
/// For fairness alone: without the file, all is as correct.
pub(super) struct Turn(Option<File>);

impl Turn {
    pub(super) fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push("-turn");
        Self(File::options().create(true).truncate(false).write(true).open(name).ok())
    }

    /// Waits for the turn, but not for long: it is only a courtesy.
    fn wait(&self) {
        let Some(file) = &self.0 else { return };
        let end = Instant::now() + TURN;
        while matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)) && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }

    /// Lets the next one wait for the write lock.
    fn pass(&self) {
        if let Some(file) = &self.0 {
            // It ends with the process at the latest.
            let _ = file.unlock();
        }
    }
}

pub(super) fn run(
    mut connection: Connection,
    patience: &Patience,
    clock: &StoreClock,
    turn: &Turn,
    jobs: &Receiver<Job>,
) {
    while let Ok(first) = jobs.recv() {
        // Behind a lock that nobody gives back, all that waits here ends in its own time and not one after another.
        if file::is_over(first.end) {
            let _ = first.answer.send(StoreReply::Unknown);
            continue;
        }
        turn.wait();
        patience.set(first.end);
        let mut group = vec![first];
        let replies = group_commit(&mut connection, clock, turn, jobs, &mut group);
        // A failed commit may have happened; everything before it has not, but nobody needs to know the difference.
        let mut replies = replies.unwrap_or_default().into_iter();
        for job in group {
            // Whoever asked may have given up. Its write is done all the same: it was as undecided as any.
            let _ = job.answer.send(replies.next().unwrap_or(StoreReply::Unknown));
        }
    }
}

/// Does the group, and what else waits once the lock is held.
fn group_commit(
    connection: &mut Connection,
    clock: &StoreClock,
    turn: &Turn,
    jobs: &Receiver<Job>,
    group: &mut Vec<Job>,
) -> rusqlite::Result<Vec<StoreReply>> {
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    turn.pass();
    let transaction = begun?;
    let mut bytes: usize = group.iter().map(weight).sum();
    while group.len() < GROUP
        && bytes < GROUP_BYTES
        && let Ok(job) = jobs.try_recv()
    {
        bytes += weight(&job);
        group.push(job);
    }
    if !rows::of_this_boot(&transaction, clock)? {
        return Ok(Vec::new());
    }
    // The lock is held: no other writer's view of time is older than this and still to be committed.
    let now = clock.now();
    let mut sequence: i64 =
        transaction.prepare_cached("SELECT sequence FROM store")?.query_row([], |row| row.get(0))?;
    let mut changed = rows::purge(&transaction, now)?;
    let mut replies = Vec::with_capacity(group.len());
    for job in group.iter() {
        let reply = match &job.command {
            StoreCommand::Write(batch) => write(&transaction, now, &mut sequence, batch)?,
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => rows::look(&transaction, now, &job.command)?.0,
        };
        changed |= matches!(reply, StoreReply::Applied(_));
        replies.push(reply);
    }
    if changed {
        transaction.prepare_cached("UPDATE store SET sequence = ?1, clock = ?2")?.execute(params![sequence, now])?;
        transaction.commit()?;
    } else {
        transaction.rollback()?;
    }
    Ok(replies)
}

/// The bytes of a job's values.
fn weight(job: &Job) -> usize {
    let StoreCommand::Write(batch) = &job.command else { return 0 };
    let values = batch.mutations.iter().map(|mutation| match mutation {
        Mutation::Put { value, .. } => value.len(),
        Mutation::Delete(_) => 0,
    });
    values.sum()
}

/// Does one batch, whole or not at all. An error ends the whole transaction only where SQLite has ended it itself:
/// then there is no savepoint to go back to.
fn write(connection: &Connection, now: i64, sequence: &mut i64, batch: &Batch) -> rusqlite::Result<StoreReply> {
    if !rows::hold(connection, now, &batch.conditions)? {
        return Ok(StoreReply::Conflict);
    }
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let reply = rows::change(connection, now, sequence, batch);
    if reply.is_err() {
        connection.prepare_cached("ROLLBACK TO batch")?.execute([])?;
    }
    connection.prepare_cached("RELEASE batch")?.execute([])?;
    Ok(reply.unwrap_or(StoreReply::Unknown))
}
