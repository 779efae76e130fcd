//! The PostgreSQL engine against real servers.

#![cfg(feature = "postgres")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

mod servers;

use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreReply};
use rehome_stores::conformance::{Harness, run};
use rehome_stores::{Engine as _, Postgres, RemoteError, RemoteOptions, open};
use servers::certificates::Certificates;
use servers::faults::{self, apply, key, patiently, put, put_for, read, write};
use servers::postgres::{PostgresServer, address};
use servers::proxy::Proxy;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(60);

/// The statement that takes the lock that the key's stripe is, for the rest of the transaction.
fn lock(name: &str) -> String {
    format!(
        "SELECT pg_advisory_xact_lock('rehome.records'::regclass::oid::bigint::bit(32)::integer, rehome.stripe('{name}'))"
    )
}

/// Waits until so many sessions wait for a stripe. Asks in a session of its own: one transaction sees one moment only.
fn waiting(server: &PostgresServer, sessions: u32) {
    let raw = server.raw();
    patiently(|| {
        let now = raw.run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'");
        if now == [sessions.to_string()] { Ok(()) } else { Err(format!("{now:?} wait")) }
    });
}

#[test]
fn conformance() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let next = AtomicU32::new(0);
    run(|| {
        let engine = Arc::new(server.open(&format!("rule{}", next.fetch_add(1, Ordering::SeqCst))));
        Harness { engine, pass: Box::new(thread::sleep), step: Duration::ZERO, keep: Box::new(()) }
    });
}

#[test]
fn harmed_connections() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let direct = server.open("rehome");
    let proxy = Proxy::start(server.port);
    let options = RemoteOptions { operation_timeout: Duration::from_millis(300), ..RemoteOptions::default() };
    let through = Postgres::open_with(&address(proxy.port), options).unwrap();
    faults::harmed_writes(&through, &direct, &proxy);
}

#[test]
fn a_killed_server_has_every_acknowledged_write() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = Arc::new(server.open("rehome"));
    let server = RefCell::new(server);
    faults::killed(engine, 4, || server.borrow_mut().kill(), || server.borrow_mut().restart());
}

#[test]
fn a_restart_keeps_records_versions_and_ends() {
    let Some(mut server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    let before = apply(&engine, vec![put("a", "1"), put_for("b", "1", HOUR), put_for("c", "1", SHORT)]);
    apply(&engine, vec![put("gone", "1")]);
    write(&engine, vec![], vec![Mutation::Delete(key("gone"))]);
    server.kill();
    thread::sleep(SHORT);
    server.restart();
    assert_eq!(read(&engine, "a").unwrap().version, before[0]);
    assert!(read(&engine, "b").unwrap().ttl.unwrap() < HOUR);
    assert_eq!(read(&engine, "c"), None);
    assert_eq!(read(&engine, "gone"), None);
    let after = apply(&engine, vec![put("a", "1"), put("gone", "1")]);
    assert!(after.iter().all(|version| !before.contains(version)));
}

#[test]
fn a_sequence_that_was_set_back_issues_no_version_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    let before = apply(&engine, vec![put("a", "1")]);
    server.raw().run("SELECT setval('rehome.issues', 1, false)");
    let after = apply(&engine, vec![put("a", "1")]);
    assert_eq!(before[0].as_str().split_once('-').unwrap().0, after[0].as_str().split_once('-').unwrap().0);
    assert_ne!(before, after);
}

#[test]
fn nothing_is_migrated_silently() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let address = server.address();
    let unfit = |error: RemoteError| match error {
        RemoteError::Unfit { reason, .. } => reason,
        other => panic!("{other}"),
    };
    let raw = server.raw();
    let reason = unfit(Postgres::open(&address).unwrap_err());
    assert_eq!(reason, "there is no store in the schema rehome: run its migration first");
    assert_eq!(raw.run("SELECT to_regnamespace('rehome')"), ["NULL"]);
    // Several at once make it once, and later ones leave it alone.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Postgres::migrate(&address).unwrap());
        }
    });
    let engine = Postgres::open(&address).unwrap();
    apply(&engine, vec![put("owner\0one", "{\"a\":1}")]);
    Postgres::migrate(&address).unwrap();
    assert!(read(&engine, "owner\0one").is_some());
    assert_eq!(raw.run("SELECT key || ' ' || value FROM rehome.readable"), ["owner/one {\"a\":1}"]);
    // Another layout, and somebody else's table.
    raw.run("COMMENT ON TABLE rehome.records IS 'rehome store, layout 2'");
    for error in [Postgres::open(&address).unwrap_err(), Postgres::migrate(&address).unwrap_err()] {
        assert_eq!(unfit(error), "the schema rehome holds 'rehome store, layout 2', which this program does not know");
    }
    raw.run("CREATE SCHEMA mine; CREATE TABLE mine.records (x integer)");
    let mine = RemoteOptions { namespace: String::from("mine"), ..RemoteOptions::default() };
    unfit(Postgres::migrate_with(&address, mine).unwrap_err());
    assert_eq!(raw.run("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'mine'"), ["1"]);
}

#[test]
fn the_time_is_taken_after_the_locks_are_held() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put_for("lease", "1", SHORT)]);
    let raw = server.raw();
    raw.run(&format!("BEGIN; {}", lock("lease")));
    // A renewal that was sent in time, and stalls until the lease has ended.
    let batch =
        Batch { conditions: vec![Condition::Present(key("lease"))], mutations: vec![put_for("lease", "2", HOUR)] };
    let renewal = engine.execute(StoreCommand::Write(batch));
    waiting(&server, 1);
    thread::sleep(SHORT);
    // Nobody may be told of the end either while somebody may have seen it live.
    let mut end = engine.execute(StoreCommand::Read(key("lease")));
    waiting(&server, 2);
    assert!(futures_util::FutureExt::now_or_never(&mut end).is_none());
    raw.run("COMMIT");
    assert_eq!(block_on(renewal), StoreReply::Conflict);
    assert_eq!(block_on(end), StoreReply::Missing);
    // The end is final, wherever the clock goes.
    assert_eq!(raw.run("SELECT count(*) FROM rehome.records"), ["0"]);
}

#[test]
fn looking_shares_and_changing_does_not() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put("lease", "1")]);
    let raw = server.raw();
    raw.run(&format!("BEGIN; {}", lock("lease").replace("xact_lock", "xact_lock_shared")));
    let done = write(&engine, vec![Condition::Present(key("lease"))], vec![put("object", "1")]);
    assert!(matches!(done, StoreReply::Applied(_)), "{done:?}");
    let mut renewal = engine.execute(StoreCommand::Write(Batch {
        conditions: vec![Condition::Present(key("lease"))],
        mutations: vec![put("lease", "2")],
    }));
    waiting(&server, 1);
    assert!(futures_util::FutureExt::now_or_never(&mut renewal).is_none());
    raw.run("COMMIT");
    assert!(matches!(block_on(renewal), StoreReply::Applied(_)));
}

#[test]
fn a_write_that_waited_too_long_is_not_done_later() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let direct = server.open("rehome");
    let options = RemoteOptions { operation_timeout: Duration::from_millis(150), ..RemoteOptions::default() };
    let engine = Postgres::open_with(&server.address(), options).unwrap();
    apply(&direct, vec![put("a", "1")]);
    let raw = server.raw();
    raw.run(&format!("BEGIN; {}", lock("a")));
    assert_eq!(write(&engine, vec![], vec![put("a", "2")]), StoreReply::Unknown);
    assert_eq!(read(&engine, "a").unwrap().value, "1", "a read waits for no lock");
    waiting(&server, 0);
    raw.run("COMMIT");
    assert_eq!(read(&direct, "a").unwrap().value, "1");
    apply(&engine, vec![put("a", "3")]);
}

#[test]
fn the_databases_own_isolation_changes_nothing() {
    let Some(server) = PostgresServer::start(&["default_transaction_isolation=serializable"]) else { return };
    let engine = server.open("rehome");
    let version = apply(&engine, vec![put("a", "1")]).remove(0);
    let raw = server.raw();
    raw.run(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", lock("a")));
    let late = engine.execute(StoreCommand::Write(Batch {
        conditions: vec![Condition::Version(key("a"), version)],
        mutations: vec![put("a", "late")],
    }));
    waiting(&server, 1);
    raw.run("UPDATE rehome.records SET version = 'moved on'; COMMIT");
    assert_eq!(block_on(late), StoreReply::Conflict, "it looked at a snapshot from before its lock");
    // Called with a snapshot of before, the function refuses.
    let refused = server.raw().try_run(
        "BEGIN ISOLATION LEVEL SERIALIZABLE;
         SELECT * FROM rehome.write('{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    );
    assert!(refused.is_err());
}

#[test]
fn ended_records_are_cleaned_away() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    let many = (0..10).map(|number| put_for(&format!("lease{number}"), "1", SHORT)).collect();
    apply(&engine, many);
    thread::sleep(SHORT);
    for _ in 0..3 {
        apply(&engine, vec![put("a", "1")]);
    }
    assert_eq!(server.raw().run("SELECT count(*) FROM rehome.records"), ["1"]);
}

#[test]
fn a_version_of_any_text_is_compared_and_nothing_else() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put("a", "1")]);
    for odd in ["\0", "a\0b", "'; DROP TABLE rehome.records; --", "\u{10ffff}"] {
        let condition = Condition::Version(key("a"), StoreVersion::new(odd).unwrap());
        assert_eq!(write(&engine, vec![condition], vec![put("a", "2")]), StoreReply::Conflict, "{odd:?}");
    }
}

#[test]
fn a_dropped_answer_undoes_nothing_and_a_dropped_store_finishes() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    for number in 0..100 {
        let batch = Batch { conditions: vec![], mutations: vec![put(&format!("n{number:03}"), "1")] };
        drop(engine.execute(StoreCommand::Write(batch)));
    }
    drop(engine);
    let raw = server.raw();
    patiently(|| {
        let there = raw.run("SELECT count(*) FROM rehome.records");
        if there == ["100"] { Ok(()) } else { Err(there[0].clone()) }
    });
}

#[test]
fn settings_that_endanger_the_promises_are_told() {
    let Some(safe) = PostgresServer::start(&[]) else { return };
    assert_eq!(safe.open("rehome").warnings(), [] as [String; 0]);
    let settings = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"];
    let Some(unsafe_) = PostgresServer::start(&settings) else { return };
    let warnings = unsafe_.open("rehome").warnings().join("\n");
    for setting in ["fsync is off", "synchronous_commit is off", "full_page_writes is off"] {
        assert!(warnings.contains(setting), "{warnings}");
    }
}

#[test]
fn a_standby_is_refused() {
    let Some(mut server) = PostgresServer::start(&[]) else { return };
    drop(server.open("rehome"));
    server.kill();
    server.put_file("standby.signal", b"");
    server.restart();
    let raw = server.raw();
    assert_eq!(raw.run("SELECT pg_is_in_recovery()"), ["t"]);
    let error = Postgres::open(&server.address()).unwrap_err().to_string();
    assert!(error.contains("does not allow writes") || error.contains("read-only"), "{error}");
}

#[test]
fn names_and_passwords_are_the_addresss_and_tls_verifies_both_sides() {
    let Some(mut server) = PostgresServer::start(&[]) else { return };
    drop(server.open("rehome"));
    server.raw().run("ALTER ROLE rehome PASSWORD 's:e/c@r'");
    server.kill();
    let certificates = Certificates::make();
    let file = |name: &str| std::fs::read(certificates.path(name)).unwrap();
    for (name, from) in [("server.crt", "server.pem"), ("server.key", "server.key"), ("root.crt", "ca.pem")] {
        server.put_file(name, &file(from));
    }
    server.put_file("pg_hba.conf", b"hostssl all all all scram-sha-256 clientcert=verify-ca\n");
    server.put_file("postgresql.auto.conf", b"ssl = on\nssl_ca_file = 'root.crt'\n");
    server.restart();
    let place = format!("localhost:{}", server.port);
    let address = |password: &str, files: &[(&str, &str)]| {
        let files: String =
            files.iter().map(|(name, file)| format!("&{name}={}", certificates.path(file).display())).collect();
        format!("postgres://rehome:{password}@{place}/postgres?sslmode=require{files}")
    };
    let all = [("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")];
    let store = patiently(|| open(&address("s%3Ae%2Fc%40r", &all)));
    assert_eq!(store.name(), "postgres");
    assert!(matches!(write(&*store, vec![], vec![put("a", "1")]), StoreReply::Applied(_)));
    for (password, files) in [
        ("wrong-one", &all[..]),
        ("s%3Ae%2Fc%40r", &all[..1]),
        ("s%3Ae%2Fc%40r", &all[1..]),
        ("s%3Ae%2Fc%40r", &[("ca", "other.pem"), ("cert", "client.pem"), ("key", "client.key")]),
    ] {
        let Err(error) = open(&address(password, files)) else { panic!("{password} with {files:?} was accepted") };
        let error = error.to_string();
        assert!(error.starts_with(&format!("postgres at {place}: ")), "{error}");
        assert!(!error.contains("wrong-one") && !error.contains("s:e"), "{error}");
    }
}

#[test]
fn a_place_of_nothing_fails_at_the_start() {
    let error = Postgres::open(&address(servers::free_port())).unwrap_err();
    assert!(matches!(error, RemoteError::Connect { .. }), "{error}");
    let error = Postgres::open("postgres://u@h?namespace=A").unwrap_err();
    assert!(matches!(error, RemoteError::Address { .. }), "{error}");
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn pace() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let engine = server.open("rehome");
    server.raw().run(
        "CREATE TABLE bare (key bytea PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL);
         CREATE SEQUENCE bare_versions; INSERT INTO bare VALUES ('a', '', 0)",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, update) = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.address(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        // What anybody would write: a row that is changed if its version is the expected one.
        let sql = "UPDATE bare SET value = $1, version = nextval('bare_versions')
            WHERE key = 'a' AND version = $2 RETURNING version";
        let update = client.prepare(sql).await.unwrap();
        (client, update)
    });
    let mut version = 0i64;
    servers::pace::compare(&engine, || {
        let row = runtime.block_on(client.query_one(&update, &[&&servers::pace::RECORD[..], &version])).unwrap();
        version = row.get(0);
    });
}
