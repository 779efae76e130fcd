//! The file and its clock: what a store file looks like, how it is made and opened, and what store time is. It must
//! never change a file that is no store.

use crate::boot_nanos;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// "rhom": marks a file as a rehome store.
const APPLICATION_ID: i32 = 0x7268_6f6d;
const SCHEMA: i32 = 1;
/// Between two attempts to get a lock that another process has.
pub(super) const PAUSE: Duration = Duration::from_micros(50);

/// `store` has one row. `clock` is the latest store time at which anything was committed. `rehome_records` is for
/// people: key parts are joined by slashes there. It goes by JSON because SQLite's `replace` finds no NUL.
const TABLES: &str = r"
    CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL, boot TEXT NOT NULL,
        clock INTEGER NOT NULL);
    CREATE TABLE records (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, ttl INTEGER,
        expires INTEGER);
    CREATE INDEX records_expiry ON records (expires) WHERE expires IS NOT NULL;
    CREATE VIEW rehome_records AS SELECT replace(json_quote(CAST(key AS TEXT)), '\u0000', '/') ->> '$' AS key,
        CAST(value AS TEXT) AS value,
        version, ttl / 1e9 AS ttl_seconds, expires / 1e9 AS expires_at_boot_seconds FROM records ORDER BY records.key;";

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
    /// The place cannot be shared by several connections (a name such as `:memory:`, or a file system without shared
    /// memory).
    #[error("{path}: several processes cannot share a store here, journal mode is '{mode}' and not 'wal'")]
    NotShared {
        /// The file.
        path: PathBuf,
        /// What SQLite uses instead.
        mode: String,
    },
    /// SQLite cannot open or read it.
    #[error("{path}: the store cannot be opened: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The machine gives no thread.
    #[error("{path}: the store's threads cannot be started: {source}")]
    Thread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The machine does not tell its boot id.
    #[error("the boot id of this machine cannot be read: {0}")]
    BootId(std::io::Error),
}

/// Store time: nanoseconds of the machine's boot-time clock, and which boot they belong to.
#[derive(Clone, Debug)]
pub(super) struct StoreClock {
    boot: String,
    /// What this process's time namespace adds to the machine's clock: containers that share a file must agree.
    offset: i128,
}

impl StoreClock {
    pub(super) fn of_this_machine() -> Result<Self, SqliteError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(SqliteError::BootId)?;
        // A kernel without time namespaces has no such file, and no offset.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(Self { boot: boot.trim().to_owned(), offset: boot_offset(&offsets).unwrap_or(0) })
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    /// Store time now, in SQLite's integers.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(i128::from(boot_nanos()) - self.offset).unwrap_or(i64::MAX)
    }
}

/// Nanoseconds in the line `boottime SECONDS NANOSECONDS`.
fn boot_offset(offsets: &str) -> Option<i128> {
    let mut words = offsets.lines().find(|line| line.starts_with("boottime"))?.split_whitespace().skip(1);
    let (seconds, nanos): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// The end of a wait of `limit` that begins now; `None` if it has none.
pub(super) fn end_of(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// Whether the end of a wait has come.
pub(super) fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// Until when a connection waits for a lock: the end of the operation that it works on, which may have waited in a
/// queue before, and not a time that begins anew with each attempt.
#[derive(Clone, Debug)]
pub(super) struct Patience(Arc<Mutex<Option<Instant>>>);

impl Patience {
    pub(super) fn until(end: Option<Instant>) -> Self {
        Self(Arc::new(Mutex::new(end)))
    }

    pub(super) fn set(&self, end: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn is_over(&self) -> bool {
        is_over(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection that waits for a lock as long as `patience` says.
pub(super) fn connect(path: &Path, patience: &Patience) -> Result<Connection, SqliteError> {
    let open = |source| SqliteError::Open { path: path.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(open)?;
    let patience = patience.clone();
    let handler = move |_tried| {
        thread::sleep(PAUSE);
        !patience.is_over()
    };
    connection.busy_handler(Some(handler)).map_err(open)?;
    Ok(connection)
}

/// Opens the file for the writer, makes the store where there is none, and takes it into this boot.
pub(super) fn open(path: &Path, patience: &Patience, clock: &StoreClock) -> Result<Connection, SqliteError> {
    let mut connection = connect(path, patience)?;
    loop {
        match settle(&mut connection, path, clock) {
            // Not every lock asks the busy handler: the one to turn on the write-ahead log does not.
            Err(SqliteError::Open { source, .. })
                if source.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && !patience.is_over() =>
            {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(connection),
        }
    }
}

/// What a file is.
enum Content {
    /// Nothing yet.
    Nothing,
    /// A store of this boot.
    Current,
    /// A store of another boot.
    OtherBoot,
}

fn settle(connection: &mut Connection, path: &Path, clock: &StoreClock) -> Result<(), SqliteError> {
    let open = |source| failed(path, source);
    // Most often there is nothing to do, and then no process at work has to wait for this one, or this one for it.
    let found = content(&connection.transaction().map_err(open)?, path, clock)?;
    match found {
        Content::Current => {}
        Content::Nothing | Content::OtherBoot => {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(open)?;
            // Two processes may come here at once: one of them has waited, and looks at what the other one made.
            match content(&transaction, path, clock)? {
                Content::Current => {}
                Content::Nothing => make(&transaction, clock).map_err(open)?,
                Content::OtherBoot => enter_boot(&transaction, clock).map_err(open)?,
            }
            transaction.commit().map_err(open)?;
        }
    }
    let ask = |pragma| connection.query_row(pragma, [], |row| row.get::<_, String>(0)).map_err(open);
    if ask("PRAGMA journal_mode")? != "wal" {
        let mode = ask("PRAGMA journal_mode = WAL")?;
        if mode != "wal" {
            return Err(SqliteError::NotShared { path: path.to_owned(), mode });
        }
    }
    // Full: an acknowledged commit has been synced. Normal would lose the latest ones in a power cut.
    connection.pragma_update(None, "synchronous", "FULL").map_err(open)
}

fn failed(path: &Path, source: rusqlite::Error) -> SqliteError {
    let path = path.to_owned();
    if source.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        SqliteError::Foreign { path }
    } else {
        SqliteError::Open { path, source }
    }
}

fn content(transaction: &Transaction<'_>, path: &Path, clock: &StoreClock) -> Result<Content, SqliteError> {
    let open = |source| failed(path, source);
    let number = |sql| transaction.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(open);
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let things = number("SELECT count(*) FROM sqlite_master")?;
    match (application, version, things) {
        (APPLICATION_ID, SCHEMA, _) => {
            let boot: String = transaction.query_row("SELECT boot FROM store", [], |row| row.get(0)).map_err(open)?;
            Ok(if boot == clock.boot() { Content::Current } else { Content::OtherBoot })
        }
        (APPLICATION_ID, found, _) => Err(SqliteError::Version { path: path.to_owned(), found }),
        (0, 0, 0) => Ok(Content::Nothing),
        (_, _, _) => Err(SqliteError::Foreign { path: path.to_owned() }),
    }
}

fn make(transaction: &Transaction<'_>, clock: &StoreClock) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO store VALUES (1, 0, ?1, ?2)", params![clock.boot(), clock.now()])?;
    Ok(())
}

/// In a new boot, gives every key its full time to live anew, except those known to have ended before: whoever acted
/// on such an end committed something after it, and `clock` is the time of the last commit.
fn enter_boot(transaction: &Transaction<'_>, clock: &StoreClock) -> rusqlite::Result<()> {
    let now = clock.now();
    transaction.execute("DELETE FROM records WHERE expires <= (SELECT clock FROM store)", [])?;
    // Capped before the addition: SQLite would turn an overflow into a real.
    transaction
        .execute("UPDATE records SET expires = ?1 + min(ttl, ?2) WHERE expires IS NOT NULL", [now, i64::MAX - now])?;
    transaction.execute("UPDATE store SET boot = ?1, clock = ?2", params![clock.boot(), now])?;
    Ok(())
}

/// What endangers the promises at this place.
pub(super) fn warnings(path: &Path) -> Vec<String> {
    // Numbers of linux/magic.h.
    const REMOTE: [u64; 7] = [0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997, 0x6573_5546, 0x00c3_6400];
    const TMPFS: u64 = 0x0102_1994;
    let Ok(place) = rustix::fs::statfs(path) else { return Vec::new() };
    let path = path.display();
    match u64::try_from(place.f_type).unwrap_or_default() & 0xffff_ffff {
        TMPFS => vec![format!("{path}: this file system is in memory, the store does not survive a reboot")],
        kind if REMOTE.contains(&kind) => vec![format!(
            "{path}: this file system may be remote; a SQLite store is safe only on a local disk of one machine"
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::boot_offset;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_from_its_line() {
        assert_eq!(
            boot_offset("monotonic           3         0\nboottime         -86400        500\n"),
            Some(-86_399_999_999_500)
        );
        assert_eq!(boot_offset("monotonic  0  0\n"), None);
        assert_eq!(boot_offset(""), None);
    }
}
