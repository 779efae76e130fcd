//! Commands on rows, inside a transaction or snapshot that somebody else holds. It must never begin, commit or wait.

use super::file::StoreClock;
use bytes::Bytes;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, MAX_BATCH_BYTES, Mutation, StoreCommand, StoreKey, StoreReply};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::time::Duration;

/// What a reader without the write lock can say.
pub(super) enum Seen {
    /// The answer.
    Decided(StoreReply),
    /// A row has ended by the clock, but a writer that looked at it before that may be about to commit its renewal:
    /// only the write lock shows whether the end was final.
    NeedsLock,
}

/// A row at one moment.
enum Row {
    Live(Found),
    Ended,
}

/// The row whose value, version and expiry are the columns 0 to 2.
fn row(row: &rusqlite::Row<'_>, now: i64) -> rusqlite::Result<Row> {
    let expires: Option<i64> = row.get(2)?;
    let ttl = match expires {
        None => None,
        Some(at) if at <= now => return Ok(Row::Ended),
        Some(at) => Some(Duration::from_nanos(u64::try_from(at.saturating_sub(now)).unwrap_or(0))),
    };
    let value: Vec<u8> = row.get(0)?;
    Ok(Row::Live(Found { value: Bytes::from(value), version: version(row.get(1)?)?, ttl }))
}

fn version(sequence: i64) -> rusqlite::Result<StoreVersion> {
    StoreVersion::new(&sequence.to_string()).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Answers a read or a scan from one snapshot, without the write lock.
pub(super) fn observe(connection: &Connection, clock: &StoreClock, command: &StoreCommand) -> rusqlite::Result<Seen> {
    // Deferred: the snapshot begins with the first statement, which is before the time is taken.
    let snapshot = connection.unchecked_transaction()?;
    if !of_this_boot(&snapshot, clock)? {
        return Ok(Seen::Decided(StoreReply::Unknown));
    }
    let (reply, ended) = look(&snapshot, clock.now(), command)?;
    Ok(if ended { Seen::NeedsLock } else { Seen::Decided(reply) })
}

/// Whether store time is this machine's.
pub(super) fn of_this_boot(connection: &Connection, clock: &StoreClock) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT boot = ?1 FROM store")?.query_row([clock.boot()], |row| row.get(0))
}

/// Answers a read or a scan at `now`, and says whether a row that has ended mattered.
pub(super) fn look(connection: &Connection, now: i64, command: &StoreCommand) -> rusqlite::Result<(StoreReply, bool)> {
    match command {
        StoreCommand::Read(key) => Ok(match get(connection, now, key)? {
            None => (StoreReply::Missing, false),
            Some(Row::Ended) => (StoreReply::Missing, true),
            Some(Row::Live(found)) => (StoreReply::Found(found), false),
        }),
        StoreCommand::Scan { prefix, cursor, limit } => scan(connection, now, prefix, cursor.as_ref(), *limit),
        StoreCommand::Write(_) => Ok((StoreReply::Invalid, false)),
    }
}

fn get(connection: &Connection, now: i64, key: &StoreKey) -> rusqlite::Result<Option<Row>> {
    connection
        .prepare_cached("SELECT value, version, expires FROM records WHERE key = ?1")?
        .query_row([&key.0[..]], |found| row(found, now))
        .optional()
}

fn scan(
    connection: &Connection,
    now: i64,
    prefix: &Bytes,
    cursor: Option<&Bytes>,
    limit: u16,
) -> rusqlite::Result<(StoreReply, bool)> {
    let mut statement =
        connection.prepare_cached("SELECT value, version, expires, key FROM records WHERE key >= ?1 ORDER BY key")?;
    let mut rows = statement.query([&cursor.unwrap_or(prefix)[..]])?;
    let (mut entries, mut bytes, mut ended) = (Vec::new(), 0usize, false);
    while let Some(next) = rows.next()? {
        let key: Vec<u8> = next.get(3)?;
        if !key.starts_with(prefix) {
            break;
        }
        let found = match row(next, now)? {
            Row::Live(found) => found,
            Row::Ended => {
                ended = true;
                continue;
            }
        };
        bytes = bytes.saturating_add(key.len()).saturating_add(found.value.len());
        if entries.len() >= usize::from(limit) || (bytes > MAX_BATCH_BYTES && !entries.is_empty()) {
            return Ok((StoreReply::Page { entries, cursor: Some(key.into()) }, ended));
        }
        entries.push((StoreKey(key.into()), found));
    }
    Ok((StoreReply::Page { entries, cursor: None }, ended))
}

/// Removes rows that have ended, though not very many at once. Says whether there were any.
pub(super) fn purge(connection: &Connection, now: i64) -> rusqlite::Result<bool> {
    Ok(connection
        .prepare_cached("DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires <= ?1 LIMIT 500)")?
        .execute([now])?
        > 0)
}

/// Whether all conditions hold.
pub(super) fn hold(connection: &Connection, now: i64, conditions: &[Condition]) -> rusqlite::Result<bool> {
    for condition in conditions {
        let found = match get(connection, now, condition.key())? {
            Some(Row::Live(found)) => Some(found),
            Some(Row::Ended) | None => None,
        };
        let holds = match condition {
            Condition::Missing(_) => found.is_none(),
            Condition::Present(_) => found.is_some(),
            Condition::Version(_, version) => found.is_some_and(|found| found.version == *version),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies the mutations, taking versions from `sequence`.
pub(super) fn change(
    connection: &Connection,
    now: i64,
    sequence: &mut i64,
    batch: &Batch,
) -> rusqlite::Result<StoreReply> {
    let mut versions = Vec::new();
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Delete(key) => {
                connection.prepare_cached("DELETE FROM records WHERE key = ?1")?.execute([&key.0[..]])?;
            }
            Mutation::Put { key, value, ttl } => {
                *sequence += 1;
                let ttl = ttl.map(|ttl| i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX));
                let expires = ttl.map(|ttl| now.saturating_add(ttl));
                connection
                    .prepare_cached(
                        "INSERT INTO records (key, value, version, ttl, expires) VALUES (?1, ?2, ?3, ?4, ?5)
                         ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version,
                             ttl = excluded.ttl, expires = excluded.expires",
                    )?
                    .execute(params![&key.0[..], &value[..], *sequence, ttl, expires])?;
                versions.push(version(*sequence)?);
            }
        }
    }
    Ok(StoreReply::Applied(versions))
}
