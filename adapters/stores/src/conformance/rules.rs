//! The rules that one client can test. Nothing here depends on other writers.

use super::{Harness, LONG, SHORT, at, delete, key, missing, present, put, put_for};
use bytes::Bytes;
use rehome::id::StoreVersion;
use rehome::store::{
    Batch, MAX_BATCH_BYTES, MAX_BATCH_KEYS, MAX_KEY, MAX_SCAN, MAX_VALUE, Mutation, StoreCommand, StoreKey, StoreReply,
};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn read_finds_the_last_write(h: &Harness) {
    assert_eq!(h.read("a"), None);
    let first = h.apply(&[], &[put("a", "1"), put("b", "")]);
    assert_eq!(first.len(), 2, "one version for each put");
    let a = h.read("a").expect("written");
    assert_eq!((&a.value[..], &a.version), (&b"1"[..], &first[0]));
    let b = h.read("b").expect("an empty value is a value");
    assert_eq!((&b.value[..], &b.version), (&b""[..], &first[1]));
    // Any byte may stand in a key or a value.
    let odd: Bytes = (0..=255u8).collect();
    let put = Mutation::Put { key: key(odd.clone()), value: odd.clone(), ttl: None };
    h.apply(&[], &[put]);
    match h.ask(StoreCommand::Read(key(odd.clone()))) {
        StoreReply::Found(found) => assert_eq!(found.value, odd),
        other => panic!("{other:?}"),
    }
}

pub(super) fn conditions(h: &Harness) {
    // A commit of its own for each: they may have one version in common otherwise.
    let mut versions = h.apply(&[], &[put("present", "1")]);
    versions.extend(h.apply(&[], &[put_for("expired", "1", SHORT)]));
    versions.extend(h.apply(&[], &[put("deleted", "1")]));
    h.apply(&[], &[delete("deleted")]);
    h.pass(SHORT);
    let (current, expired, deleted) = (&versions[0], &versions[1], &versions[2]);
    let never = StoreVersion::new("no version of this store").expect("short");
    let probe = [put("probe", "1")];
    for (gone, version) in [("absent", &never), ("expired", expired), ("deleted", deleted)] {
        h.apply(&[missing(gone)], &probe);
        h.conflicts(&[present(gone)], &probe);
        h.conflicts(&[at(gone, version)], &probe);
        h.conflicts(&[at(gone, current)], &probe);
    }
    h.conflicts(&[missing("present")], &probe);
    h.apply(&[present("present")], &probe);
    h.apply(&[at("present", current)], &probe);
    h.conflicts(&[at("present", &never)], &probe);
    h.conflicts(&[at("present", deleted)], &probe);
    // Versions are compared as bytes, not as numbers or prefixes.
    for near in [format!("0{}", current.as_str()), format!("{} ", current.as_str()), format!("+{}", current.as_str())] {
        h.conflicts(&[at("present", &StoreVersion::new(&near).expect("short"))], &probe);
    }
}

pub(super) fn all_or_nothing(h: &Harness) {
    let versions = h.apply(&[], &[put("a", "1"), put("b", "1"), put("c", "1")]);
    let changes = [put("a", "2"), delete("b"), put("d", "2")];
    // Each place of the one condition that fails.
    let holding = [at("a", &versions[0]), present("b"), missing("d"), at("c", &versions[2])];
    for place in 0..holding.len() {
        let mut conditions = holding.to_vec();
        conditions.insert(place, missing("e"));
        let failing = [present("e"), at("e", &versions[0])];
        for failing in failing {
            conditions[place] = failing;
            h.conflicts(&conditions, &changes);
            assert_eq!(h.read("a").map(|a| a.version).as_ref(), Some(&versions[0]));
            assert_eq!(h.read("b").map(|b| b.version).as_ref(), Some(&versions[1]));
            assert_eq!(h.read("d"), None);
        }
    }
    // Conditions are about the state before the batch.
    h.apply(&holding, &changes);
    assert_eq!(h.read("a").expect("put").value, "2");
    assert_eq!(h.read("b"), None);
    assert_eq!(h.read("d").expect("put").value, "2");
    assert_eq!(h.read("c").map(|c| c.version).as_ref(), Some(&versions[2]), "not in the batch");
}

pub(super) fn versions_never_recur(h: &Harness) {
    let mut seen = BTreeSet::new();
    // One commit may give all its keys one version.
    let mut fresh = |name: &'static str, version: StoreVersion| {
        let new = seen.insert((name, version.as_str().to_owned()));
        assert!(new, "{version:?} was a version of {name} before");
    };
    for round in 0..h.rounds(4).min(4) {
        for _ in 0..3 {
            // Equal bytes move it all the same.
            let versions = h.apply(&[], &[put("a", "same"), put("b", "same")]);
            for (name, version) in ["a", "b"].into_iter().zip(versions) {
                fresh(name, version);
            }
        }
        // A key is re-created after its deletion, after its expiry, and after a put over an expired one.
        h.apply(&[], &[delete("a"), delete("b")]);
        fresh("a", h.apply(&[missing("a")], &[put_for("a", "same", SHORT)]).remove(0));
        h.pass(SHORT);
        if round % 2 == 0 {
            assert_eq!(h.read("a"), None);
        }
    }
}

pub(super) fn remaining_time(h: &Harness) {
    h.apply(&[], &[put("endless", "1"), put_for("ending", "1", LONG)]);
    assert_eq!(h.read("endless").expect("put").ttl, None);
    let first = h.read("ending").expect("put").ttl.expect("it ends");
    assert!(first <= LONG, "{first:?} is more than was given");
    h.pass(Duration::from_millis(5));
    let second = h.read("ending").expect("put").ttl.expect("it ends");
    assert!(
        second <= first.saturating_sub(Duration::from_millis(4)),
        "{second:?} of {first:?} after five milliseconds"
    );
    assert!(second > Duration::ZERO);
    let (entries, _) = h.page(b"end", None, 10);
    let ends: Vec<_> = entries.iter().map(|(_, found)| found.ttl.is_some()).collect();
    assert_eq!(ends, [true, false], "ending, then endless");
    // A put says the time anew, in both directions.
    h.apply(&[], &[put_for("endless", "1", LONG), put("ending", "1")]);
    assert!(h.read("endless").expect("put").ttl.is_some());
    assert_eq!(h.read("ending").expect("put").ttl, None);
}

pub(super) fn remaining_time_is_kept(h: &Harness) {
    for given in [SHORT, 5 * SHORT] {
        h.apply(&[], &[put_for("lease", "1", given)]);
        // On a slow machine it may be over by now.
        if let Some(left) = h.read("lease").map(|found| found.ttl.expect("it ends")) {
            assert!(left > Duration::ZERO && left <= given.max(h.step), "{left:?} of {given:?}");
            h.pass(left);
        }
        assert_eq!(h.read("lease"), None, "it outlived what was left of it");
    }
}

pub(super) fn expired_is_missing(h: &Harness) {
    // A batch may be the first that meets an end, before any read, scan or cleaning did.
    h.apply(&[], &[put_for("first", "1", SHORT)]);
    h.pass(SHORT);
    h.apply(&[missing("first")], &[put("first", "2")]);
    assert_eq!(h.read("first").expect("made again").ttl, None);
    h.apply(&[], &[put_for("second", "1", SHORT)]);
    h.pass(SHORT);
    h.conflicts(&[present("second")], &[put("first", "3")]);
    h.apply(&[], &[put_for("l\0one", "1", SHORT), put_for("l\0two", "1", LONG), put("l\0zero", "1")]);
    h.pass(SHORT);
    let (entries, cursor) = h.page(b"l\0", None, 10);
    let keys: Vec<_> = entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!((keys, cursor), (vec![key("l\0two"), key("l\0zero")], None));
    assert_eq!(h.read("l\0one"), None);
    h.conflicts(&[present("l\0one")], &[put("x", "1")]);
    h.apply(&[missing("l\0one")], &[put_for("l\0one", "2", LONG)]);
    assert_eq!(h.read("l\0one").expect("made again").value, "2");
}

pub(super) fn renewal(h: &Harness) {
    h.apply(&[missing("lease")], &[put_for("lease", "1", SHORT)]);
    let renewed = h.write(&[present("lease")], &[put_for("lease", "2", LONG)]);
    // On a slow machine the lease may have ended; then the renewal must say so.
    match renewed {
        StoreReply::Applied(_) => {
            h.pass(SHORT);
            let found = h.read("lease").expect("renewed");
            assert!(found.ttl.expect("it ends") > LONG / 2);
        }
        StoreReply::Conflict => assert_eq!(h.read("lease"), None),
        other => panic!("{other:?}"),
    }
    // The same value with a shorter time ends sooner.
    h.apply(&[], &[put_for("lease", "2", SHORT)]);
    h.pass(SHORT);
    h.conflicts(&[present("lease")], &[put_for("lease", "3", LONG)]);
    assert_eq!(h.read("lease"), None);
}

pub(super) fn delete_of_absent(h: &Harness) {
    assert_eq!(h.apply(&[], &[delete("absent")]), []);
    assert_eq!(h.apply(&[missing("absent")], &[delete("absent"), put("a", "1")]).len(), 1);
    assert!(h.read("a").is_some());
}

pub(super) fn only_conditions(h: &Harness) {
    let version = h.apply(&[], &[put("a", "1")]).remove(0);
    assert_eq!(h.apply(&[at("a", &version), missing("b")], &[]), []);
    h.conflicts(&[at("a", &version), present("b")], &[]);
    assert_eq!(h.apply(&[], &[]), []);
    assert_eq!(h.read("a").expect("put").version, version);
}

pub(super) fn bounds(h: &Harness) {
    let invalid = |command: StoreCommand, what: &str| {
        assert_eq!(h.ask(command), StoreReply::Invalid, "{what}");
    };
    let batch = |conditions: &[_], mutations: &[_]| {
        StoreCommand::Write(Batch { conditions: conditions.to_vec(), mutations: mutations.to_vec() })
    };
    let long = key(vec![b'k'; MAX_KEY + 1]);
    invalid(StoreCommand::Read(key("")), "an empty key");
    invalid(StoreCommand::Read(long.clone()), "a long key");
    invalid(batch(&[missing("")], &[put("mark", "1")]), "an empty key in a condition");
    invalid(batch(&[], &[Mutation::Delete(long), put("mark", "1")]), "a long key in a change");
    invalid(batch(&[], &[put("mark", vec![0; MAX_VALUE + 1])]), "a long value");
    invalid(batch(&[], &[put("mark", "1"), put_for("a", "1", Duration::ZERO)]), "no time to live");
    invalid(batch(&[], &[put("mark", "1"), put("mark", "2")]), "a key that is put twice");
    invalid(batch(&[], &[put("mark", "1"), delete("mark")]), "a key that is put and deleted");
    invalid(batch(&[missing("a"), missing("a")], &[put("mark", "1")]), "a key with two conditions");
    let many: Vec<_> = (0..=MAX_BATCH_KEYS).map(|n| put(&format!("mark{n}"), "1")).collect();
    invalid(batch(&[], &many), "many keys");
    let half: Vec<_> = (0..=MAX_BATCH_KEYS / 2).map(|n| missing(&format!("c{n}"))).collect();
    invalid(batch(&half, &many[..MAX_BATCH_KEYS / 2]), "many keys of conditions and changes");
    let heavy: Vec<_> = (0..5).map(|n| put(&format!("mark{n}"), vec![0; MAX_BATCH_BYTES / 5])).collect();
    invalid(batch(&[], &heavy), "many bytes");
    let scan = |prefix: Bytes, limit| StoreCommand::Scan { prefix, cursor: None, limit };
    invalid(scan(Bytes::new(), 0), "a page of nothing");
    invalid(scan(Bytes::new(), MAX_SCAN + 1), "a long page");
    invalid(scan(vec![b'k'; MAX_KEY + 1].into(), 1), "a long prefix");
    assert_eq!(h.page(b"", None, 10).0, [], "a refused batch changed something");
}

pub(super) fn at_the_bounds(h: &Harness) {
    let long = key(vec![b'k'; MAX_KEY]);
    let value = Bytes::from(vec![b'v'; MAX_VALUE]);
    let put_long = Mutation::Put { key: long.clone(), value: value.clone(), ttl: None };
    h.apply(&[], &[put_long]);
    match h.ask(StoreCommand::Read(long)) {
        StoreReply::Found(found) => assert_eq!(found.value, value),
        other => panic!("{other:?}"),
    }
    // An engine may have a lower bound on keys, but says so, and keeps it on both sides.
    let most = h.engine.max_batch_keys();
    assert!((1..=MAX_BATCH_KEYS).contains(&most), "{most} keys");
    let many: Vec<_> = (0..=most).map(|n| put(&format!("m\0{n:05}"), "1")).collect();
    assert_eq!(h.write(&[], &many), StoreReply::Invalid, "{most} keys and one more");
    assert_eq!(h.page(b"m\0", None, 1).0, []);
    assert_eq!(h.apply(&[], &many[1..]).len(), most);
    // The most bytes: done, or refused by an engine that takes less, but nothing in between.
    let heavy: Vec<_> = (0..4).map(|n| put(&format!("heavy{n}"), vec![0; MAX_BATCH_BYTES / 4 - 6])).collect();
    match h.write(&[], &heavy) {
        StoreReply::Applied(versions) => assert_eq!(versions.len(), 4),
        StoreReply::Invalid => assert_eq!(h.page(b"heavy", None, 1).0, []),
        other => panic!("{other:?}"),
    }
    // The longest time that a time can be must not wrap.
    h.apply(&[], &[put_for("ages", "1", Duration::MAX)]);
    assert!(h.read("ages").expect("it has ages").ttl.expect("it ends") > LONG);
}

fn all(h: &Harness, prefix: &[u8], limit: u16) -> Vec<StoreKey> {
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let (entries, next) = h.page(prefix, cursor, limit);
        assert!(entries.len() <= usize::from(limit));
        keys.extend(entries.into_iter().map(|(key, _)| key));
        match next {
            Some(next) => cursor = Some(next),
            None => return keys,
        }
    }
}

pub(super) fn scan_order(h: &Harness) {
    let names: [&[u8]; 9] = [b"a", b"a\0", b"a\0\0", b"a\0b", b"a\0b\xff", b"a\x01", b"b", b"\xff", b"\xff\xff"];
    let puts: Vec<_> =
        names.iter().rev().map(|name| Mutation::Put { key: key(*name), value: "1".into(), ttl: None }).collect();
    h.apply(&[], &puts);
    for limit in [1, 2, 100] {
        assert_eq!(all(h, b"", limit), names.map(key), "all");
        assert_eq!(all(h, b"a\0", limit), names[1..5].iter().map(|name| key(*name)).collect::<Vec<_>>());
        assert_eq!(all(h, b"\xff", limit), names[7..].iter().map(|name| key(*name)).collect::<Vec<_>>());
        assert_eq!(all(h, b"c", limit), []);
    }
    let (entries, _) = h.page(b"b", None, 10);
    assert_eq!(h.read("b").as_ref(), Some(&entries[0].1), "a scan says what a read says");
}

pub(super) fn scan_pages(h: &Harness) {
    let names: Vec<_> = (0..25).map(|n| format!("p\0{n:02}")).collect();
    let puts: Vec<_> = names.iter().map(|name| put(name, "1")).collect();
    h.apply(&[], &puts);
    h.apply(&[], &[put("q", "1")]);
    for limit in [1, 7, 25, MAX_SCAN] {
        assert_eq!(all(h, b"p\0", limit), names.iter().map(|name| key(name.clone())).collect::<Vec<_>>());
    }
    // Changes between pages disturb nothing that was not changed.
    let (first, cursor) = h.page(b"p\0", None, 10);
    let cursor = cursor.expect("there is more");
    h.apply(&[], &[delete(&names[9]), delete(&names[10]), delete(&names[12]), put("p\0995", "1")]);
    match h.ask(StoreCommand::Scan { prefix: Bytes::from_static(b"p\0"), cursor: Some(cursor), limit: MAX_SCAN }) {
        StoreReply::Page { entries, .. } => {
            let keys: BTreeSet<_> = first.into_iter().chain(entries).map(|(key, _)| key).collect();
            for (n, name) in names.iter().enumerate() {
                assert!([9, 10, 12].contains(&n) || keys.contains(&key(name.clone())), "{name:?} was lost");
            }
        }
        // The snapshot of the first page may be gone; then the scan begins again.
        StoreReply::Expired => {}
        other => panic!("{other:?}"),
    }
}

pub(super) fn scan_bytes(h: &Harness) {
    let names: Vec<_> = (0..9).map(|n| format!("big\0{n}")).collect();
    for name in &names {
        h.apply(&[], &[put(name, vec![0; MAX_VALUE - 1000])]);
    }
    let (mut keys, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let (entries, next) = h.page(b"big\0", cursor, MAX_SCAN);
        let bytes: usize = entries.iter().map(|(key, found)| key.0.len() + found.value.len()).sum();
        assert!(bytes <= MAX_BATCH_BYTES, "a page of {bytes} bytes");
        keys.extend(entries.into_iter().map(|(key, _)| key));
        pages += 1;
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert!(pages >= 3);
    assert_eq!(keys, names.into_iter().map(key).collect::<Vec<_>>());
}
