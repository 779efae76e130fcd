//! The embedded engine: one SQLite file that several processes of one machine share, durable on commit.
//!
//! One thread writes: what waits in its queue shares one transaction and so one sync, each batch's conditions looked at
//! in order. Another thread reads, so that a read does not wait for a sync. Store time is the machine's boot-time
//! clock with its boot id: the wall clock's jumps end no lease. After a reboot no process of before is alive, so a key
//! that had a time to live has ended.

use crate::{Answer, Engine, boot_nanos};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use futures_channel::oneshot;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, MAX_BATCH_BYTES, Mutation, StoreCommand, StoreKey, StoreReply};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// "rhom": marks a file as a rehome store.
const APPLICATION_ID: i32 = 0x7268_6f6d;
const SCHEMA: i32 = 1;
/// How long a write waits for other processes before its end is unknown.
const BUSY_LIMIT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_micros(200);
/// Batches that share one transaction.
const GROUP: usize = 256;

/// Why a file cannot be a store: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// The file is a store of another version.
    #[error("{path}: the store has version {found}, this program knows version {SCHEMA}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i32,
    },
    /// The file holds something else.
    #[error("{path}: not a rehome store")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// SQLite cannot open or read it.
    #[error("{path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The machine does not tell its boot id.
    #[error("the boot id of this machine cannot be read: {0}")]
    BootId(std::io::Error),
}

type Job = (StoreCommand, oneshot::Sender<StoreReply>);

/// A store in a SQLite file. The threads end when it is dropped.
#[derive(Debug)]
pub struct Sqlite {
    writes: Sender<Job>,
    reads: Sender<Job>,
}

impl Sqlite {
    /// Opens the store at `path`, and makes it where there is none.
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub fn open(path: &Path) -> Result<Self, SqliteError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(SqliteError::BootId)?;
        let boot = boot.trim().to_owned();
        let writer = connect(path)?;
        prepare(&writer, path)?;
        let reader = connect(path)?;
        let (writes, write_jobs) = unbounded();
        let (reads, read_jobs) = unbounded();
        let write_boot = boot.clone();
        thread::spawn(move || write_loop(writer, &write_boot, &write_jobs));
        thread::spawn(move || read_loop(&reader, &boot, &read_jobs));
        Ok(Self { writes, reads })
    }
}

impl Engine for Sqlite {
    fn execute(&self, command: StoreCommand) -> Answer {
        if command.check().is_err() {
            return Box::pin(std::future::ready(StoreReply::Invalid));
        }
        let (answer, reply) = oneshot::channel();
        let queue = match &command {
            StoreCommand::Write(_) => &self.writes,
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => &self.reads,
        };
        if queue.send((command, answer)).is_err() {
            return Box::pin(std::future::ready(StoreReply::Unknown));
        }
        Box::pin(async move { reply.await.unwrap_or(StoreReply::Unknown) })
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }
}

fn connect(path: &Path) -> Result<Connection, SqliteError> {
    let open = |source| SqliteError::Open { path: path.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(open)?;
    connection.busy_handler(Some(|_| {
        thread::sleep(BUSY_PAUSE);
        true
    }))
    .map_err(open)?;
    Ok(connection)
}

/// How long an open waits for another process that is making or changing the file.
const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// Looks at what the file is before anything is changed in it.
fn prepare(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let started = Instant::now();
    loop {
        match try_prepare(connection, path) {
            // Not every lock asks the busy handler: the change to write-ahead logging, for one.
            Err(SqliteError::Open { source, .. })
                if source.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && started.elapsed() < OPEN_LIMIT =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

fn try_prepare(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let open = |source: rusqlite::Error| {
        if source.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
            SqliteError::Foreign { path: path.to_owned() }
        } else {
            SqliteError::Open { path: path.to_owned(), source }
        }
    };
    if !is_store(connection, path, &open)? {
        // Two processes may make the file at once: one of them waits here and then finds it made.
        let transaction =
            rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(open)?;
        if !is_store(connection, path, &open)? {
            connection.execute_batch(&schema()).map_err(open)?;
        }
        transaction.commit().map_err(open)?;
    }
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(open)?;
    if mode != "wal" {
        connection.execute_batch("PRAGMA journal_mode = WAL").map_err(open)?;
    }
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(open)
}

/// Whether the file is a store of this version; `false` where it is empty.
fn is_store(
    connection: &Connection,
    path: &Path,
    open: &impl Fn(rusqlite::Error) -> SqliteError,
) -> Result<bool, SqliteError> {
    let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(open)?;
    let version = pragma("user_version").map_err(open)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).map_err(open)?;
    match (application, version, tables) {
        (APPLICATION_ID, SCHEMA, _) => Ok(true),
        (APPLICATION_ID, found, _) => Err(SqliteError::Version { path: path.to_owned(), found }),
        (0, 0, 0) => Ok(false),
        (_, _, _) => Err(SqliteError::Foreign { path: path.to_owned() }),
    }
}

fn schema() -> String {
    format!(
        "PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {SCHEMA};
         CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,
             boot TEXT, expires INTEGER) WITHOUT ROWID;
         CREATE INDEX records_expiry ON records (expires) WHERE expires IS NOT NULL;
         CREATE TABLE sequence (last INTEGER NOT NULL);
         INSERT INTO sequence VALUES (0);
         CREATE VIEW rehome_records AS SELECT replace(CAST(key AS TEXT), char(0), '/') AS key,
             CAST(value AS TEXT) AS value, version, expires FROM records;"
    )
}

fn read_loop(connection: &Connection, boot: &str, jobs: &Receiver<Job>) {
    while let Ok((command, answer)) = jobs.recv() {
        let reply = match &command {
            StoreCommand::Read(key) => read(connection, boot, key),
            StoreCommand::Scan { prefix, cursor, limit } => scan(connection, boot, prefix, cursor.as_ref(), *limit),
            StoreCommand::Write(_) => Ok(StoreReply::Invalid),
        };
        // Whoever asked may have given up.
        let _ = answer.send(reply.unwrap_or(StoreReply::Unknown));
    }
}

/// A row as a reader at `now` sees it; `None` where it has expired.
fn found(row: &rusqlite::Row<'_>, boot: &str, now: u64) -> rusqlite::Result<Option<Found>> {
    let (value, version): (Vec<u8>, i64) = (row.get(0)?, row.get(1)?);
    let expires: Option<i64> = row.get(3)?;
    let ttl = match expires {
        None => None,
        Some(at) => {
            let same_boot = row.get_ref(2)?.as_str_or_null()?.is_some_and(|of| of == boot);
            let left = u64::try_from(at).unwrap_or(0).saturating_sub(now);
            if !same_boot || left == 0 {
                return Ok(None);
            }
            Some(Duration::from_nanos(left))
        }
    };
    let version = StoreVersion::new(&version.to_string());
    Ok(version.ok().map(|version| Found { value: Bytes::from(value), version, ttl }))
}

fn read(connection: &Connection, boot: &str, key: &StoreKey) -> rusqlite::Result<StoreReply> {
    let mut statement =
        connection.prepare_cached("SELECT value, version, boot, expires FROM records WHERE key = ?1")?;
    let row = statement.query_row([&key.0[..]], |row| found(row, boot, boot_nanos())).optional()?;
    Ok(row.flatten().map_or(StoreReply::Missing, StoreReply::Found))
}

fn scan(
    connection: &Connection,
    boot: &str,
    prefix: &Bytes,
    cursor: Option<&Bytes>,
    limit: u16,
) -> rusqlite::Result<StoreReply> {
    // One statement is one snapshot.
    let mut statement =
        connection.prepare_cached("SELECT value, version, boot, expires, key FROM records WHERE key >= ?1 ORDER BY key")?;
    let mut rows = statement.query([&cursor.unwrap_or(prefix)[..]])?;
    let (mut entries, mut bytes, now) = (Vec::new(), 0usize, boot_nanos());
    while let Some(row) = rows.next()? {
        let key: Vec<u8> = row.get(4)?;
        if !key.starts_with(prefix) {
            break;
        }
        let Some(found) = found(row, boot, now)? else { continue };
        bytes += key.len() + found.value.len();
        if entries.len() >= usize::from(limit) || (bytes > MAX_BATCH_BYTES && !entries.is_empty()) {
            return Ok(StoreReply::Page { entries, cursor: Some(key.into()) });
        }
        entries.push((StoreKey(key.into()), found));
    }
    Ok(StoreReply::Page { entries, cursor: None })
}

fn write_loop(mut connection: Connection, boot: &str, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        // A caller that has given up is told nothing, but its write is as undecided as any: it is done.
        match write_group(&mut connection, boot, &group) {
            Ok(replies) => {
                for ((_, answer), reply) in group.into_iter().zip(replies) {
                    let _ = answer.send(reply);
                }
            }
            Err(_) => {
                for (_, answer) in group {
                    let _ = answer.send(StoreReply::Unknown);
                }
            }
        }
    }
}

fn write_group(connection: &mut Connection, boot: &str, group: &[Job]) -> rusqlite::Result<Vec<StoreReply>> {
    let started = Instant::now();
    let transaction = loop {
        match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => break transaction,
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == ErrorCode::DatabaseBusy && started.elapsed() < BUSY_LIMIT =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    };
    // The store's time is taken once the lock is held.
    let now = boot_nanos();
    transaction.prepare_cached("DELETE FROM records WHERE expires < ?1 AND boot = ?2")?.execute(params![
        i64::try_from(now).unwrap_or(i64::MAX),
        boot
    ])?;
    let mut replies = Vec::with_capacity(group.len());
    let mut changed = false;
    for (command, _) in group {
        let reply = match command {
            StoreCommand::Write(batch) => write(&transaction, boot, now, batch)?,
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => StoreReply::Invalid,
        };
        changed |= matches!(reply, StoreReply::Applied(_));
        replies.push(reply);
    }
    if changed { transaction.commit()? } else { transaction.rollback()? }
    Ok(replies)
}

fn write(connection: &Connection, boot: &str, now: u64, batch: &Batch) -> rusqlite::Result<StoreReply> {
    let mut select =
        connection.prepare_cached("SELECT value, version, boot, expires FROM records WHERE key = ?1")?;
    for condition in &batch.conditions {
        let row = select.query_row([&condition.key().0[..]], |row| found(row, boot, now)).optional()?.flatten();
        let holds = match condition {
            Condition::Missing(_) => row.is_none(),
            Condition::Present(_) => row.is_some(),
            Condition::Version(_, version) => row.is_some_and(|found| found.version == *version),
        };
        if !holds {
            return Ok(StoreReply::Conflict);
        }
    }
    let mut versions = Vec::new();
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Delete(key) => {
                connection.prepare_cached("DELETE FROM records WHERE key = ?1")?.execute([&key.0[..]])?;
            }
            Mutation::Put { key, value, ttl } => {
                let version: i64 = connection
                    .prepare_cached("UPDATE sequence SET last = last + 1 RETURNING last")?
                    .query_row([], |row| row.get(0))?;
                let expires = ttl.map(|ttl| {
                    let nanos = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
                    i64::try_from(now.saturating_add(nanos)).unwrap_or(i64::MAX)
                });
                connection
                    .prepare_cached("INSERT OR REPLACE INTO records (key, value, version, boot, expires) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![&key.0[..], &value[..], version, expires.map(|_| boot), expires])?;
                versions.extend(StoreVersion::new(&version.to_string()));
            }
        }
    }
    Ok(StoreReply::Applied(versions))
}
