//! The etcd engine against real servers.

#![cfg(feature = "etcd")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

mod servers;

use bytes::Bytes;
use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, MAX_VALUE, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::conformance::{Harness, run};
use rehome_stores::{Engine, Etcd, RemoteError, RemoteOptions, open};
use servers::certificates::Certificates;
use servers::etcd::{EtcdServer, STEP};
use servers::faults::{self, apply, key, patiently, put, put_for, read, write};
use servers::proxy::Proxy;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Waits until a lease has ended that began after this call: whatever was to end by now has, as etcd ends leases in turns.
fn let_leases_end(engine: &dyn Engine) {
    apply(engine, vec![put_for("probe", "1", STEP)]);
    while read(engine, "probe").is_some() {
        thread::sleep(Duration::from_millis(20));
    }
}

fn scan(engine: &dyn Engine, prefix: &'static str, cursor: Option<Bytes>, limit: u16) -> StoreReply {
    block_on(engine.execute(StoreCommand::Scan { prefix: prefix.into(), cursor, limit }))
}

#[test]
fn conformance() {
    let Some(server) = EtcdServer::start() else { return };
    let next = AtomicU32::new(0);
    run(|| {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let engine = Arc::new(server.open(&format!("rule{number}")));
        let probe = server.open("probes");
        let pass = move |time| {
            thread::sleep(time);
            let_leases_end(&probe);
        };
        Harness { engine, pass: Box::new(pass), step: STEP, keep: Box::new(()) }
    });
}

#[test]
fn harmed_connections() {
    let Some(server) = EtcdServer::start() else { return };
    let direct = server.open("rehome");
    let proxy = Proxy::start(server.port());
    let options = RemoteOptions { operation_timeout: Duration::from_millis(300), ..RemoteOptions::default() };
    let through = Etcd::open_with(&format!("etcd://127.0.0.1:{}", proxy.port), options).unwrap();
    faults::harmed_writes(&through, &direct, &proxy);
}

#[test]
fn a_killed_server_has_every_acknowledged_write() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = Arc::new(server.open("rehome"));
    let server = RefCell::new(server);
    faults::killed(engine, 4, || server.borrow_mut().kill(0), || server.borrow_mut().restart(0));
}

#[test]
fn a_cluster_of_which_one_member_after_another_is_killed_has_every_acknowledged_write() {
    let Some(server) = EtcdServer::start_with(3, "http", &[]) else { return };
    let engine = Arc::new(server.open("rehome"));
    let (server, turn) = (RefCell::new(server), AtomicU32::new(0));
    let member = || turn.load(Ordering::SeqCst) as usize % 3;
    let restart = || {
        server.borrow_mut().restart(member());
        turn.fetch_add(1, Ordering::SeqCst);
    };
    faults::killed(engine, 4, || server.borrow_mut().kill(member()), restart);
}

#[test]
fn a_restart_keeps_records_versions_and_ends() {
    let Some(mut server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let before = apply(&engine, vec![put("a", "1"), put_for("b", "1", HOUR), put_for("c", "1", STEP)]);
    apply(&engine, vec![put("gone", "1")]);
    write(&engine, vec![], vec![Mutation::Delete(key("gone"))]);
    server.kill(0);
    server.restart(0);
    assert_eq!(read(&engine, "a").unwrap().version, before[0]);
    assert!(read(&engine, "b").unwrap().ttl.unwrap() <= HOUR);
    patiently(|| if read(&engine, "c").is_none() { Ok(()) } else { Err("it does not end") });
    assert_eq!(read(&engine, "gone"), None);
    let after = apply(&engine, vec![put("a", "1"), put("gone", "1")]);
    assert!(after.iter().all(|version| !before.contains(version)));
}

#[test]
fn time_is_in_whole_seconds_and_never_less_than_was_asked() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let raw = server.raw();
    for (asked, granted) in
        [(Duration::from_millis(7001), 8), (Duration::from_secs(7), 7), (Duration::from_millis(1), 1)]
    {
        apply(&engine, vec![put_for("a", "1", asked)]);
        let seconds = raw.run(async |mut client| {
            let lease = client.get("rehome/a", None).await?.kvs()[0].lease();
            Ok(client.lease_time_to_live(lease, None).await?.granted_ttl())
        });
        assert_eq!(seconds, granted, "{asked:?}");
        let left = read(&engine, "a").unwrap().ttl.unwrap();
        assert!(left > Duration::ZERO && left <= asked.max(Duration::from_secs(granted.unsigned_abs())), "{left:?}");
    }
    // Keys of one batch and one time share a lease, and end together.
    apply(&engine, vec![put_for("b", "1", HOUR), put_for("c", "1", HOUR), put("d", "1")]);
    let leases: Vec<i64> = raw.run(async |mut client| {
        let options = etcd_client::GetOptions::new().with_prefix();
        Ok(client.get("rehome/", Some(options)).await?.kvs().iter().map(etcd_client::KeyValue::lease).collect())
    });
    assert!(leases.len() == 4 && leases[1] == leases[2] && leases[3] == 0, "{leases:?}");
    // A put without a time takes it away, and an end by somebody else's hand is an end.
    apply(&engine, vec![put("b", "2")]);
    raw.run(async |mut client| client.lease_revoke(leases[1]).await);
    assert_eq!(read(&engine, "b").unwrap().ttl, None);
    assert_eq!(read(&engine, "c"), None);
}

#[test]
fn a_lease_that_came_to_nothing_is_given_back() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let refused = write(&engine, vec![Condition::Present(key("a"))], vec![put_for("a", "1", HOUR)]);
    assert_eq!(refused, StoreReply::Conflict);
    let raw = server.raw();
    patiently(|| {
        let left = raw.run(async |mut client| Ok(client.leases().await?.leases().len()));
        if left == 0 { Ok(()) } else { Err(format!("{left} leases are left")) }
    });
}

#[test]
fn pages_are_of_one_revision_until_it_is_compacted() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let names: Vec<String> = (0..9).map(|number| format!("p\0{number}")).collect();
    apply(&engine, names.iter().map(|name| put(name, "old")).collect());
    let StoreReply::Page { entries, cursor: Some(cursor) } = scan(&engine, "p\0", None, 4) else { panic!() };
    assert_eq!(entries.len(), 4);
    apply(&engine, names.iter().map(|name| put(name, "new")).collect());
    apply(&engine, vec![put("p\x009", "new"), Mutation::Delete(key("p\x005"))]);
    let StoreReply::Page { entries, cursor: None } = scan(&engine, "p\0", Some(cursor.clone()), 100) else { panic!() };
    let seen: Vec<_> = entries.iter().map(|(key, found)| (key.0.clone(), found.value.clone())).collect();
    let old: Vec<_> = names[4..].iter().map(|name| (Bytes::from(name.clone()), Bytes::from("old"))).collect();
    assert_eq!(seen, old, "the second page is not of the first one's revision");
    server.raw().run(async |mut client| {
        let now = client.get("rehome/p\09", None).await?.kvs()[0].mod_revision();
        client.compact(now, None).await
    });
    assert_eq!(scan(&engine, "p\0", Some(cursor.clone()), 100), StoreReply::Expired);
    // A cursor of another prefix, and what is none.
    for (prefix, cursor) in
        [("q", cursor.clone()), ("p\0", cursor.slice(..8)), ("p\0", Bytes::from("p\0 is no cursor"))]
    {
        let reply = scan(&engine, prefix, Some(cursor), 100);
        assert!(matches!(reply, StoreReply::Invalid | StoreReply::Expired), "{reply:?}");
    }
}

#[test]
fn a_page_of_an_old_revision_leaves_out_what_has_ended_since() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    apply(&engine, vec![put("p0", "1"), put_for("p1", "1", STEP), put_for("p2", "1", HOUR)]);
    let StoreReply::Page { cursor: Some(cursor), .. } = scan(&engine, "p", None, 1) else { panic!() };
    let_leases_end(&engine);
    let StoreReply::Page { entries, .. } = scan(&engine, "p", Some(cursor), 100) else { panic!() };
    let keys: Vec<_> = entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [key("p2")]);
}

#[test]
fn a_request_is_as_large_as_etcd_takes_and_no_larger() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let large = |name: &str, bytes: usize| Mutation::Put {
        key: StoreKey(name.to_owned().into()),
        value: vec![0; bytes].into(),
        ttl: None,
    };
    let rest = (3 << 19) - MAX_VALUE - 3 * 64 - 2 * (1 + "rehome/".len());
    apply(&engine, vec![large("a", MAX_VALUE), large("b", rest)]);
    let over = write(&engine, vec![], vec![large("a", MAX_VALUE), large("b", rest + 1)]);
    assert_eq!(over, StoreReply::Invalid);
    // Many small keys come near the bound of the request too, and it still fits.
    let long = "k".repeat(1000);
    let many = (0..engine.max_batch_keys()).map(|number| large(&format!("{long}{number:03}"), 11_000)).collect();
    apply(&engine, many);
}

#[test]
fn a_version_is_a_revision_as_it_is_written_and_nothing_near_it() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    for odd in ["0", "-1", "x", "99999999999999999999"] {
        let condition = Condition::Version(key("absent"), StoreVersion::new(odd).unwrap());
        assert_eq!(write(&engine, vec![condition], vec![put("a", "1")]), StoreReply::Conflict, "{odd}");
    }
    assert_eq!(read(&engine, "a"), None);
}

#[test]
fn a_dropped_answer_undoes_nothing_and_a_dropped_store_finishes() {
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    for number in 0..100 {
        let batch = Batch { conditions: vec![], mutations: vec![put(&format!("n{number:03}"), "1")] };
        drop(engine.execute(StoreCommand::Write(batch)));
    }
    drop(engine);
    let engine = server.open("rehome");
    patiently(|| {
        let StoreReply::Page { entries, .. } = scan(&engine, "n", None, 1000) else { return Err(0) };
        if entries.len() == 100 { Ok(()) } else { Err(entries.len()) }
    });
}

#[test]
fn names_and_passwords_are_the_addresss_and_tls_verifies_both_sides() {
    let certificates = Certificates::make();
    let path = |name: &str| certificates.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let settings = ["--trusted-ca-file", &ca, "--cert-file", &cert, "--key-file", &key, "--client-cert-auth"];
    let Some(server) = EtcdServer::start_with(1, "https", &settings) else { return };
    let files = |ca: &str| format!("ca={}&cert={}&key={}", path(ca), path("client.pem"), path("client.key"));
    let place = format!("localhost:{}", server.port());
    let store = patiently(|| open(&format!("etcd://{place}?{}", files("ca.pem"))));
    assert!(matches!(write(&*store, vec![], vec![put("a", "1")]), StoreReply::Applied(_)));
    for refused in [format!("ca={ca}"), files("other.pem"), String::from("tls=true"), String::new()] {
        let Err(error) = open(&format!("etcd://{place}?{refused}")) else { panic!("{refused} was accepted") };
        assert!(error.to_string().starts_with(&format!("etcd at {place}: ")), "{error}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = |file: &str| std::fs::read(certificates.path(file)).unwrap();
    runtime.block_on(async {
        let tls = etcd_client::TlsOptions::new()
            .ca_certificate(etcd_client::Certificate::from_pem(read("ca.pem")))
            .identity(etcd_client::Identity::from_pem(read("client.pem"), read("client.key")));
        let options = etcd_client::ConnectOptions::new().with_tls(tls);
        let mut client = etcd_client::Client::connect([format!("https://{place}")], Some(options)).await.unwrap();
        client.user_add("root", "s:e/c@r", None).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
    });
    let store = open(&format!("etcd://root:s%3Ae%2Fc%40r@{place}?{}", files("ca.pem"))).unwrap();
    assert!(matches!(write(&*store, vec![], vec![put("a", "2")]), StoreReply::Applied(_)));
    let Err(error) = open(&format!("etcd://root:wrong-one@{place}?{}", files("ca.pem"))) else {
        panic!("it took any password")
    };
    assert!(error.to_string().starts_with(&format!("etcd at {place}: ")), "{error}");
    assert!(!error.to_string().contains("wrong-one"), "{error}");
}

#[test]
fn a_place_of_nothing_fails_at_the_start() {
    let error = Etcd::open(&format!("etcd://127.0.0.1:{}", servers::free_port())).unwrap_err();
    assert!(matches!(error, RemoteError::Connect { .. }), "{error}");
    for wrong in ["etcd://h?namespace=A", "etcd://h:1/path", "etcd://h:1?what=1"] {
        let error = Etcd::open(wrong).unwrap_err();
        assert!(matches!(error, RemoteError::Address { .. }), "{error}");
    }
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn pace() {
    use etcd_client::{Compare, CompareOp, Txn, TxnOp};
    let Some(server) = EtcdServer::start() else { return };
    let engine = server.open("rehome");
    let raw = server.raw();
    let mut revision = 0;
    servers::pace::compare(&engine, || {
        revision = raw.run(async |mut client| {
            let expected = Compare::mod_revision("bare", CompareOp::Equal, revision);
            let put = TxnOp::put("bare", &servers::pace::RECORD[..], None);
            let done = client.txn(Txn::new().when([expected]).and_then([put])).await?;
            assert!(done.succeeded());
            Ok(done.header().unwrap().revision())
        });
    });
}
