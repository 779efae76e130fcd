//! The Redis engine against real servers.

#![cfg(feature = "redis")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

mod servers;

use futures_executor::block_on;
use rehome::store::{Condition, StoreCommand, StoreReply};
use rehome_stores::conformance::{Harness, run};
use rehome_stores::{Engine as _, Redis, RemoteError, RemoteOptions, open};
use servers::certificates::Certificates;
use servers::faults::{self, apply, key, patiently, put, put_for, read, write};
use servers::proxy::Proxy;
use servers::redis::{RedisServer, SAFE};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Does something to the server behind the engine's back.
fn raw<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> T {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let mut connection = patiently(|| client.get_connection());
    let (first, rest) = words.split_first().unwrap();
    patiently(|| redis::cmd(first).arg(rest).query(&mut connection))
}

#[test]
fn conformance() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let next = AtomicU32::new(0);
    run(|| {
        let engine = Arc::new(server.open(&format!("rule{}", next.fetch_add(1, Ordering::SeqCst))));
        Harness { engine, pass: Box::new(thread::sleep), step: Duration::ZERO, keep: Box::new(()) }
    });
}

#[test]
fn harmed_connections() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let proxy = Proxy::start(server.port);
    let options = RemoteOptions { operation_timeout: Duration::from_millis(300), ..RemoteOptions::default() };
    let through = Redis::open_with(&format!("redis://127.0.0.1:{}", proxy.port), options).unwrap();
    faults::harmed_writes(&through, &server.open("rehome"), &proxy);
}

#[test]
fn a_killed_server_has_every_acknowledged_write() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = Arc::new(server.open("rehome"));
    let server = RefCell::new(server);
    faults::killed(engine, 6, || server.borrow_mut().kill(), || server.borrow_mut().restart());
}

#[test]
fn a_restart_keeps_records_versions_and_ends() {
    let Some(mut server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    let before =
        apply(&engine, vec![put("a", "1"), put_for("b", "1", HOUR), put_for("c", "1", Duration::from_millis(50))]);
    apply(&engine, vec![put("gone", "1")]);
    write(&engine, vec![], vec![rehome::store::Mutation::Delete(key("gone"))]);
    server.kill();
    thread::sleep(Duration::from_millis(60));
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
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    let before = apply(&engine, vec![put("a", "1")]);
    let _: () = raw(server.port, &["SET", "{rehome}sequence", "0"]);
    let after = apply(&engine, vec![put("a", "1")]);
    assert_eq!(before[0].as_str().split_once('-').unwrap().0, after[0].as_str().split_once('-').unwrap().0);
    assert_ne!(before, after);
}

#[test]
fn an_end_is_decided_by_the_record_and_final() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put_for("a", "1", Duration::from_millis(30)), put_for("b", "1", HOUR)]);
    // The server's own expiry is later, and never decides.
    let own: i64 = raw(server.port, &["PTTL", "{rehome}:a"]);
    assert!(own > 30_000, "{own}");
    thread::sleep(Duration::from_millis(40));
    let there: bool = raw(server.port, &["EXISTS", "{rehome}:a"]);
    assert!(there, "it is the record's own time that has passed");
    assert_eq!(read(&engine, "a"), None);
    // Whoever was told of the end is never told otherwise, wherever the clock goes.
    let there: bool = raw(server.port, &["EXISTS", "{rehome}:a"]);
    assert!(!there);
    // What the server's expiry took away is missing, and its name goes at the next change.
    let _: bool = raw(server.port, &["DEL", "{rehome}:b"]);
    let _: () = raw(server.port, &["ZADD", "{rehome}ends", "1", "b"]);
    assert_eq!(read(&engine, "b"), None);
    apply(&engine, vec![put("c", "1")]);
    let names: Vec<String> = raw(server.port, &["ZRANGE", "{rehome}keys", "0", "-1"]);
    assert_eq!(names, ["c"]);
    // A put without a time takes an old one away.
    apply(&engine, vec![put_for("c", "1", HOUR)]);
    apply(&engine, vec![put("c", "2")]);
    let own: i64 = raw(server.port, &["PTTL", "{rehome}:c"]);
    assert_eq!(own, -1);
}

#[test]
fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    let version = apply(&engine, vec![put("a", "1")]).remove(0);
    for value in ["2", "3"] {
        let _: () = raw(server.port, &["SCRIPT", "FLUSH"]);
        assert!(matches!(
            write(&engine, vec![Condition::Present(key("a"))], vec![put("a", value)]),
            StoreReply::Applied(_)
        ));
        let _: () = raw(server.port, &["SCRIPT", "FLUSH"]);
        assert_eq!(read(&engine, "a").unwrap().value, value);
    }
    let stale = write(&engine, vec![Condition::Version(key("a"), version)], vec![put("a", "4")]);
    assert_eq!(stale, StoreReply::Conflict);
}

#[test]
fn a_batch_that_cannot_be_whole_is_not_begun() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put("a", "1")]);
    let _: bool = raw(server.port, &["DEL", "{rehome}ends"]);
    let _: () = raw(server.port, &["SET", "{rehome}ends", "not a set"]);
    assert_eq!(write(&engine, vec![], vec![put("a", "2"), put_for("b", "2", HOUR)]), StoreReply::Unknown);
    assert_eq!(read(&engine, "a").unwrap().value, "1");
    assert_eq!(read(&engine, "b"), None);
    // The same when the memory is full: reads go on.
    let _: bool = raw(server.port, &["DEL", "{rehome}ends"]);
    let _: () = raw(server.port, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(write(&engine, vec![], vec![put("a", "2"), put("b", "2")]), StoreReply::Unknown);
    assert_eq!(read(&engine, "a").unwrap().value, "1");
    let _: () = raw(server.port, &["CONFIG", "SET", "maxmemory", "0"]);
    apply(&engine, vec![put("a", "2")]);
}

#[test]
fn a_dropped_answer_undoes_nothing_and_a_dropped_store_finishes() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let engine = server.open("rehome");
    for number in 0..200 {
        let batch = rehome::store::Batch { conditions: vec![], mutations: vec![put(&format!("n{number:03}"), "1")] };
        drop(engine.execute(StoreCommand::Write(batch)));
    }
    drop(engine);
    let engine = server.open("rehome");
    patiently(|| read(&engine, "n199").ok_or("not there"));
    for number in 0..200 {
        assert!(read(&engine, &format!("n{number:03}")).is_some());
    }
}

#[test]
fn settings_that_endanger_the_promises_are_told() {
    let Some(safe) = RedisServer::start(SAFE) else { return };
    assert_eq!(safe.open("rehome").warnings(), [] as [String; 0]);
    let replica_of = safe.port.to_string();
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &replica_of]) else { return };
    patiently(|| {
        let warnings = safe.open("rehome").warnings();
        if warnings.iter().any(|text| text.contains("replicas")) { Ok(()) } else { Err("no warning") }
    });
    let refused = patiently(|| match Redis::open(&format!("redis://127.0.0.1:{}", replica.port)) {
        Err(RemoteError::Unfit { reason, .. }) => Ok(reason),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(refused, "it is a replica, whose reads may lag");
    let settings = ["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"];
    let Some(unsafe_) = RedisServer::start(&settings) else { return };
    let warnings = unsafe_.open("rehome").warnings().join("\n");
    assert!(warnings.contains("appendonly is not yes") && warnings.contains("maxmemory-policy"), "{warnings}");
    let Some(everysec) = RedisServer::start(&["--appendonly", "yes"]) else { return };
    let warnings = everysec.open("rehome").warnings().join("\n");
    assert!(warnings.contains("appendfsync is not always"), "{warnings}");
}

#[test]
fn a_primary_that_became_a_replica_answers_nothing() {
    let Some(first) = RedisServer::start(SAFE) else { return };
    let Some(second) = RedisServer::start(SAFE) else { return };
    let engine = first.open("rehome");
    apply(&engine, vec![put("a", "1")]);
    let _: () = raw(first.port, &["REPLICAOF", "127.0.0.1", &second.port.to_string()]);
    for _ in 0..3 {
        assert_eq!(block_on(engine.execute(StoreCommand::Read(key("a")))), StoreReply::Unknown);
    }
    let _: () = raw(first.port, &["REPLICAOF", "NO", "ONE"]);
    apply(&engine, vec![put("a", "2")]);
}

#[test]
fn a_cluster_is_followed_to_the_server_that_has_the_slot() {
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", "BUS", "--appendonly", "yes"];
    let Some(asked) = RedisServer::start(&cluster) else { return };
    let Some(owner) = RedisServer::start(&cluster) else { return };
    let _: () = raw(owner.port, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let (port, bus) = (owner.port.to_string(), owner.bus.to_string());
    let _: () = raw(asked.port, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    for server in [&asked, &owner] {
        patiently(|| {
            let info: String = raw(server.port, &["CLUSTER", "INFO"]);
            let ready = info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2");
            if ready { Ok(()) } else { Err(info) }
        });
    }
    let engine = asked.open("rehome");
    assert!(engine.warnings().join("\n").contains("cluster"));
    let version = apply(&engine, vec![put("a", "1"), put("b", "1")]).remove(0);
    let done = write(&engine, vec![Condition::Version(key("a"), version)], vec![put("a", "2")]);
    assert!(matches!(done, StoreReply::Applied(_)));
    assert_eq!(read(&engine, "a").unwrap().value, "2");
    let names: Vec<String> = raw(owner.port, &["ZRANGE", "{rehome}keys", "0", "-1"]);
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn names_passwords_and_databases_are_the_addresss() {
    let Some(server) = RedisServer::start(&["--requirepass", "s:e/c@r"]) else { return };
    let place = format!("127.0.0.1:{}", server.port);
    let store = open(&format!("redis://:s%3Ae%2Fc%40r@{place}/3?namespace=other")).unwrap();
    assert_eq!(store.name(), "redis");
    assert!(matches!(write(&*store, vec![], vec![put("a", "1")]), StoreReply::Applied(_)));
    let Err(error) = open(&format!("redis://:wrong-one@{place}")) else { panic!("it took any password") };
    assert!(error.to_string().starts_with(&format!("redis at {place}: ")), "{error}");
    assert!(!error.to_string().contains("wrong-one"), "{error}");
}

#[test]
fn a_place_of_nothing_fails_at_the_start() {
    let port = servers::free_port();
    let error = Redis::open(&format!("redis://127.0.0.1:{port}")).unwrap_err();
    assert!(matches!(error, RemoteError::Connect { .. }), "{error}");
    let error = Redis::open("redis://h?namespace=A").unwrap_err();
    assert!(matches!(error, RemoteError::Address { .. }), "{error}");
}

#[test]
fn tls_verifies_both_sides() {
    let certificates = Certificates::make();
    let path = |name: &str| certificates.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let settings = [
        "--port",
        "0",
        "--tls-port",
        "PORT",
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
    ];
    let Some(server) = RedisServer::start(&settings) else { return };
    let place = format!("rediss://localhost:{}", server.port);
    let with = |ca: &str, identity: Option<(&str, &str)>| RemoteOptions {
        ca: Some(certificates.path(ca)),
        cert: identity.map(|(cert, _)| certificates.path(cert)),
        key: identity.map(|(_, key)| certificates.path(key)),
        ..RemoteOptions::default()
    };
    let engine = Redis::open_with(&place, with("ca.pem", Some(("client.pem", "client.key")))).unwrap();
    apply(&engine, vec![put("a", "1")]);
    for refused in [
        with("ca.pem", None),
        with("other.pem", Some(("client.pem", "client.key"))),
        RemoteOptions { ca: None, ..with("ca.pem", Some(("client.pem", "client.key"))) },
    ] {
        let error = Redis::open_with(&place, refused).unwrap_err();
        assert!(matches!(error, RemoteError::Connect { .. }), "{error}");
    }
    let half = RemoteOptions { key: None, ..with("ca.pem", Some(("client.pem", "client.key"))) };
    assert!(matches!(Redis::open_with(&place, half).unwrap_err(), RemoteError::Address { .. }));
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn pace() {
    let Some(server) = RedisServer::start(SAFE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut connection = runtime.block_on(client.get_multiplexed_async_connection()).unwrap();
    // What anybody would write: a value that is set if its version is the expected one.
    let script = redis::Script::new(
        "if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return false end
         local version = tostring(redis.call('INCR', KEYS[2]))
         redis.call('HSET', KEYS[1], 'value', ARGV[2], 'version', version)
         return version",
    );
    let _: () = raw(server.port, &["HSET", "{bare}a", "version", "0"]);
    let mut version = String::from("0");
    servers::pace::compare(&server.open("rehome"), || {
        let mut call = script.key("{bare}a");
        call.key("{bare}n").arg(&version).arg(&servers::pace::RECORD[..]);
        version = runtime.block_on(call.invoke_async(&mut connection)).unwrap();
    });
}
