//! What SQLite's engine promises beyond the contract: about its file, its boot, its group commit and its locks.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

use futures_executor::block_on;
use rehome::store::{Batch, Condition, Found, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::{Answer, Engine as _, Sqlite, SqliteError};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

fn key(name: &'static str) -> StoreKey {
    StoreKey(name.into())
}

fn put(name: &'static str, value: &'static str, ttl: Option<Duration>) -> Mutation {
    Mutation::Put { key: key(name), value: value.into(), ttl }
}

fn send(store: &Sqlite, conditions: Vec<Condition>, mutations: Vec<Mutation>) -> Answer {
    store.execute(StoreCommand::Write(Batch { conditions, mutations }))
}

fn write(store: &Sqlite, mutations: Vec<Mutation>) -> StoreReply {
    block_on(send(store, vec![], mutations))
}

fn read(store: &Sqlite, name: &'static str) -> StoreReply {
    block_on(store.execute(StoreCommand::Read(key(name))))
}

fn found(store: &Sqlite, name: &'static str) -> Found {
    match read(store, name) {
        StoreReply::Found(found) => found,
        other => panic!("{name}: {other:?}"),
    }
}

/// Does something to the file behind the engine's back.
fn raw(path: &Path, sql: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch(sql).unwrap();
    connection
}

#[test]
fn what_was_written_is_there_after_reopening_and_versions_go_on() {
    let (_folder, path) = place();
    let before = write(&Sqlite::open(&path).unwrap(), vec![put("a", "1", None), put("b", "1", Some(HOUR))]);
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(found(&store, "a").value, "1");
    assert!(found(&store, "b").ttl.unwrap() <= HOUR);
    write(&store, vec![Mutation::Delete(key("a")), Mutation::Delete(key("b"))]);
    drop(store);
    let after = write(&Sqlite::open(&path).unwrap(), vec![put("a", "1", None)]);
    let (StoreReply::Applied(before), StoreReply::Applied(after)) = (before, after) else { panic!() };
    assert!(!before.contains(&after[0]));
}

#[test]
fn an_operator_can_read_the_records() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    write(&store, vec![put("owner\0one", "{\"generation\":\"7\"}", None)]);
    let row: (String, String) = raw(&path, "")
        .query_row("SELECT key, value FROM rehome_records", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(row, (String::from("owner/one"), String::from("{\"generation\":\"7\"}")));
}

#[test]
fn the_file_has_a_write_ahead_log() {
    let (_folder, path) = place();
    let _store = Sqlite::open(&path).unwrap();
    let mode: String = raw(&path, "").query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let (folder, path) = place();
    let text = folder.path().join("text");
    std::fs::write(&text, "not a database, but long enough to be looked at as if it were one".repeat(20)).unwrap();
    raw(&path, "CREATE TABLE mine (x); INSERT INTO mine VALUES (1);");
    let other = folder.path().join("other");
    raw(&other, "PRAGMA application_id = 7");
    for path in [text, path, other] {
        let before = std::fs::read(&path).unwrap();
        let error = Sqlite::open(&path).unwrap_err();
        assert!(matches!(error, SqliteError::Foreign { .. }), "{error}");
        assert_eq!(error.to_string(), format!("{}: not a rehome store", path.display()));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_store_of_another_version_is_refused_and_left_alone() {
    let (_folder, path) = place();
    drop(Sqlite::open(&path).unwrap());
    drop(raw(&path, "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)"));
    let before = std::fs::read(&path).unwrap();
    let error = Sqlite::open(&path).unwrap_err();
    assert!(matches!(error, SqliteError::Version { found: 99, .. }), "{error}");
    assert!(error.to_string().ends_with("the store has version 99, this program knows version 1"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_place_that_cannot_be_opened_or_shared_says_so() {
    let (folder, _) = place();
    let error = Sqlite::open(folder.path()).unwrap_err();
    assert!(matches!(error, SqliteError::Open { .. }), "{error}");
    let error = Sqlite::open(&folder.path().join("no/such/folder/store.db")).unwrap_err();
    assert!(matches!(error, SqliteError::Open { .. }), "{error}");
    let error = Sqlite::open(Path::new(":memory:")).unwrap_err();
    assert!(matches!(error, SqliteError::NotShared { .. }), "{error}");
}

#[test]
fn a_reboot_gives_each_lease_its_full_time_and_revives_none() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    write(
        &store,
        vec![put("live", "1", Some(HOUR)), put("ended", "1", Some(HOUR)), put("ages", "1", Some(Duration::MAX))],
    );
    let version = found(&store, "live").version;
    drop(store);
    // In the other boot the clock stood at 100 at the last commit. "live" was to end at 101.
    raw(
        &path,
        "UPDATE store SET boot = 'another', clock = 100;
         UPDATE records SET expires = 101 WHERE CAST(key AS TEXT) = 'live';
         UPDATE records SET expires = 100 WHERE CAST(key AS TEXT) = 'ended';",
    );
    let store = Sqlite::open(&path).unwrap();
    let live = found(&store, "live");
    assert_eq!(live.version, version);
    assert!(live.ttl.unwrap() > HOUR / 2 && live.ttl.unwrap() <= HOUR);
    assert_eq!(read(&store, "ended"), StoreReply::Missing);
    assert!(found(&store, "ages").ttl.unwrap() > HOUR);
    // A second opening in the same boot gives nothing again.
    let left = found(&store, "live").ttl.unwrap();
    assert!(found(&Sqlite::open(&path).unwrap(), "live").ttl.unwrap() <= left);
}

#[test]
fn a_process_of_another_boot_learns_and_changes_nothing() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    write(&store, vec![put("a", "1", Some(HOUR))]);
    raw(&path, "UPDATE store SET boot = 'another'");
    assert_eq!(read(&store, "a"), StoreReply::Unknown);
    assert_eq!(write(&store, vec![put("a", "2", None)]), StoreReply::Unknown);
    let scan = StoreCommand::Scan { prefix: "".into(), cursor: None, limit: 1 };
    assert_eq!(block_on(store.execute(scan)), StoreReply::Unknown);
    let value: Vec<u8> = raw(&path, "").query_row("SELECT value FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(value, b"1");
}

#[test]
fn a_lock_held_too_long_makes_a_write_unknown_and_a_read_none_the_slower() {
    let (_folder, path) = place();
    let store = Sqlite::open_with(&path, Duration::from_millis(30)).unwrap();
    write(&store, vec![put("a", "1", None)]);
    let lock = raw(&path, "BEGIN IMMEDIATE");
    assert_eq!(write(&store, vec![put("a", "2", None)]), StoreReply::Unknown);
    assert_eq!(found(&store, "a").value, "1");
    lock.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(write(&store, vec![put("b", "1", None)]), StoreReply::Applied(_)));
    assert_eq!(found(&store, "a").value, "1", "a write that was given up is not tried again");
}

#[test]
fn what_waits_behind_a_lock_held_too_long_is_given_up_together() {
    const LIMIT: Duration = Duration::from_millis(100);
    let (_folder, path) = place();
    let store = Sqlite::open_with(&path, LIMIT).unwrap();
    let lock = raw(&path, "BEGIN IMMEDIATE");
    let answers: Vec<_> = (0..20).map(|_| send(&store, vec![], vec![put("a", "1", None)])).collect();
    // The time of every one of them has passed after this, though not twenty times that of one.
    std::thread::sleep(2 * LIMIT);
    lock.execute_batch("ROLLBACK").unwrap();
    for answer in answers {
        assert_eq!(block_on(answer), StoreReply::Unknown, "it waited longer than it may");
    }
    assert_eq!(read(&store, "a"), StoreReply::Missing);
}

/// What is sent while the lock is held elsewhere shares one transaction once it is free.
fn group(store: &Sqlite, path: &Path, batches: Vec<(Vec<Condition>, Vec<Mutation>)>) -> Vec<StoreReply> {
    let lock = raw(path, "BEGIN IMMEDIATE");
    let answers: Vec<_> =
        batches.into_iter().map(|(conditions, mutations)| send(store, conditions, mutations)).collect();
    lock.execute_batch("ROLLBACK").unwrap();
    answers.into_iter().map(block_on).collect()
}

#[test]
fn batches_of_one_commit_see_each_other_in_their_order() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    let replies = group(
        &store,
        &path,
        vec![
            (vec![Condition::Missing(key("a"))], vec![put("a", "1", None)]),
            (vec![Condition::Missing(key("a"))], vec![put("a", "2", None)]),
            (vec![Condition::Present(key("a"))], vec![Mutation::Delete(key("a")), put("b", "3", None)]),
            (vec![Condition::Present(key("a"))], vec![put("b", "4", None)]),
        ],
    );
    let applied: Vec<_> = replies.iter().map(|reply| matches!(reply, StoreReply::Applied(_))).collect();
    assert_eq!(applied, [true, false, true, false], "{replies:?}");
    assert_eq!(found(&store, "b").value, "3");
}

/// Makes SQLite fail at the value "poison", in the given way.
fn poison(path: &Path, way: &str) {
    raw(
        path,
        &format!(
            "CREATE TRIGGER poison BEFORE INSERT ON records WHEN CAST(new.value AS TEXT) = 'poison'
             BEGIN SELECT RAISE({way}, 'poison'); END"
        ),
    );
}

fn around_poison() -> Vec<(Vec<Condition>, Vec<Mutation>)> {
    vec![
        (vec![], vec![put("before", "1", None)]),
        (vec![], vec![put("half", "1", None), put("other half", "poison", None)]),
        (vec![], vec![put("after", "1", None)]),
    ]
}

#[test]
fn a_batch_that_fails_is_undone_alone() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    poison(&path, "FAIL");
    let replies = group(&store, &path, around_poison());
    assert!(
        matches!(&replies[..], [StoreReply::Applied(_), StoreReply::Unknown, StoreReply::Applied(_)]),
        "{replies:?}"
    );
    assert_eq!(read(&store, "half"), StoreReply::Missing);
    assert!(matches!(read(&store, "before"), StoreReply::Found(_)));
    assert!(matches!(read(&store, "after"), StoreReply::Found(_)));
}

#[test]
fn a_transaction_that_fails_is_unknown_to_all_in_it() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    poison(&path, "ROLLBACK");
    let replies = group(&store, &path, around_poison());
    assert_eq!(replies, [StoreReply::Unknown, StoreReply::Unknown, StoreReply::Unknown]);
    for name in ["before", "half", "after"] {
        assert_eq!(read(&store, name), StoreReply::Missing);
    }
    assert!(matches!(write(&store, vec![put("later", "1", None)]), StoreReply::Applied(_)));
}

#[test]
fn what_is_queued_is_done_though_the_store_is_dropped() {
    let (_folder, path) = place();
    let store = Sqlite::open(&path).unwrap();
    let lock = raw(&path, "BEGIN IMMEDIATE");
    let answers: Vec<_> = (0..600).map(|_| send(&store, vec![], vec![put("a", "1", None)])).collect();
    drop(store);
    lock.execute_batch("ROLLBACK").unwrap();
    for answer in answers {
        assert!(matches!(block_on(answer), StoreReply::Applied(_)));
    }
}

#[test]
fn a_store_that_is_made_opens_while_another_process_writes() {
    let (_folder, path) = place();
    let _store = Sqlite::open(&path).unwrap();
    let _lock = raw(&path, "BEGIN IMMEDIATE");
    let second = Sqlite::open_with(&path, Duration::from_millis(30)).unwrap();
    assert_eq!(read(&second, "a"), StoreReply::Missing);
}

#[test]
fn a_log_cut_at_any_byte_leaves_whole_batches_only() {
    const BATCHES: usize = 6;
    let (folder, path) = place();
    let log = folder.path().join("store.db-wal");
    let store = Sqlite::open(&path).unwrap();
    // Values over several pages of the file, so that a batch is several frames of the log.
    let values: Vec<&'static str> =
        (1..=BATCHES).map(|n| &*Box::leak(n.to_string().repeat(9000).into_boxed_str())).collect();
    let mut ends = vec![0];
    for value in &values {
        write(&store, vec![put("a", value, None), put("b", value, Some(HOUR))]);
        ends.push(std::fs::metadata(&log).unwrap().len());
    }
    let whole = ends[BATCHES];
    let cuts = (0..whole).step_by(usize::try_from(whole / 40).unwrap()).chain(ends.iter().copied());
    for cut in cuts {
        let (other, copy) = place();
        // A process of its own copies: closing the file in this one would drop SQLite's locks on it.
        let copied = std::process::Command::new("cp").args([&path, &log]).arg(other.path()).status().unwrap();
        assert!(copied.success());
        let cut_log = std::fs::File::options().write(true).open(other.path().join("store.db-wal")).unwrap();
        cut_log.set_len(cut).unwrap();
        drop(cut_log);
        let store = match Sqlite::open(&copy) {
            Ok(store) => store,
            Err(error) => panic!("cut at {cut} of {whole}: {error}"),
        };
        let due = ends.iter().filter(|end| **end <= cut).count() - 1;
        for name in ["a", "b"] {
            let left = match read(&store, name) {
                StoreReply::Missing => 0,
                StoreReply::Found(found) => {
                    values.iter().position(|value| found.value == value.as_bytes()).unwrap() + 1
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(left, due, "{name} after a cut at {cut} of {whole}");
        }
    }
}
