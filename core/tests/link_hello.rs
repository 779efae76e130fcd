//! The hello: what two nodes agree on, what is refused, and that the other side reads why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise"
)]

mod link_world;

use bytes::Bytes;
use link_world::{Pair, ack, at, drain, events, hello, mesh, peer, prepare, rid};
use rehome::id::{OwnerId, Text8};
use rehome::link::{
    Blame, Class, DownReason, Hello, LINK_CAPABILITY, LinkSettings, Mesh, MeshError, MeshEvent, Misbehaviour,
    Rejection, SendError, SendId, V13_CAPABILITY, V14_CAPABILITY,
};
use rehome::time::UnixMillis;

fn of(hello: Hello) -> Mesh {
    Mesh::new(hello, LinkSettings::default()).unwrap()
}

fn texts(names: &[&str]) -> Vec<Text8> {
    names.iter().map(|name| Text8::new(name).unwrap()).collect()
}

/// The reasons for which the connection went down on both sides.
fn downs(pair: &mut Pair) -> (DownReason, DownReason) {
    pair.exchange(at(0));
    let reason = |mesh: &mut Mesh| match events(mesh).as_slice() {
        [MeshEvent::Down { reason, .. }] => reason.clone(),
        other => panic!("{other:?}"),
    };
    let downs = (reason(&mut pair.a), reason(&mut pair.b));
    assert!(pair.a.should_close(pair.on_a) && pair.b.should_close(pair.on_b), "both close once all is written");
    downs
}

/// The acceptor `b` refuses the dialer `a`, which reads the reason.
fn refused_by_acceptor(a: Mesh, b: Mesh, rejection: Rejection) {
    let (at_a, at_b) = downs(&mut Pair::dialed(a, b));
    assert_eq!(at_b, DownReason::Rejected(rejection));
    assert!(matches!(&at_a, DownReason::Refused(refused) if refused.reason == rejection), "{at_a:?}");
}

#[test]
fn both_sides_agree_on_what_both_have() {
    let ours = Hello {
        capabilities: texts(&[V13_CAPABILITY, LINK_CAPABILITY, "x"]),
        application_version: -1,
        chunk_limit: 5000,
        ..hello("a", 1)
    };
    let theirs =
        Hello { capabilities: texts(&["y", LINK_CAPABILITY, V13_CAPABILITY, V14_CAPABILITY]), ..hello("b", 4) };
    let mut pair = Pair::dialed(of(ours), of(theirs));
    pair.exchange(at(0));
    let up = |mesh: &mut Mesh| match events(mesh).as_slice() {
        [MeshEvent::Up { peer, agreed, .. }] => (peer.clone(), agreed.clone()),
        other => panic!("{other:?}"),
    };
    let (peer_of_a, agreed_a) = up(&mut pair.a);
    let (peer_of_b, agreed_b) = up(&mut pair.b);
    assert_eq!((peer_of_a, peer_of_b), (peer("b", 4), peer("a", 1)));
    assert_eq!(agreed_a.capabilities, texts(&[V13_CAPABILITY, LINK_CAPABILITY]).into_iter().collect());
    assert_eq!(agreed_a.capabilities, agreed_b.capabilities);
    assert_eq!((agreed_a.chunk_limit, agreed_b.chunk_limit), (Some(5000), Some(5000)));
    assert_eq!((agreed_a.application_version, agreed_b.application_version), (7, -1));
    assert!(agreed_a.link && agreed_b.link && !agreed_a.v14 && !agreed_b.v14);
    assert_eq!(pair.a.connection(&rid("b")), Some(pair.on_a));
}

#[test]
fn a_limit_that_one_side_does_not_tell_is_the_others() {
    let quiet = || Hello { chunk_limit: 0, ..hello("a", 1) };
    for (b, expected) in [(hello("b", 1), Some(64 << 10)), (Hello { chunk_limit: 0, ..hello("b", 1) }, None)] {
        let mut pair = Pair::dialed(of(quiet()), of(b));
        pair.exchange(at(0));
        assert!(
            matches!(events(&mut pair.a).as_slice(), [MeshEvent::Up { agreed, .. }] if agreed.chunk_limit == expected)
        );
    }
}

#[test]
fn a_mismatch_is_refused_with_a_reason_that_the_other_side_reads() {
    let other_mesh = Hello { mesh: Text8::new("other").unwrap(), ..hello("b", 1) };
    refused_by_acceptor(of(hello("a", 1)), of(other_mesh), Rejection::WrongMesh);
    refused_by_acceptor(mesh("a", 1), mesh("a", 1), Rejection::SelfConnection);
    refused_by_acceptor(mesh("a", 1), mesh("a", 2), Rejection::SelfConnection);
    // Every dialer has the required capability, so a peer without it is made from bytes.
    let mut b = mesh("b", 1);
    let conn = b.accept(at(0));
    let first = drain_hello(&Hello { capabilities: texts(&[V13_CAPABILITY]), ..hello("a", 1) });
    let text = V13_CAPABILITY;
    let changed = reseal(&replace(&first, text.as_bytes(), b"framework-service-v12"));
    b.receive(at(0), conn, changed.into()).unwrap();
    assert!(is_down(&mut b, &DownReason::Rejected(Rejection::NoCommonCapability)));
}

#[test]
fn a_dialer_refuses_another_node_than_it_expects() {
    let (mut a, mut b) = (mesh("a", 1), mesh("b", 1));
    let (on_a, on_b) = (a.connect(at(0), Some(rid("c"))), b.accept(at(0)));
    let (at_a, at_b) = downs(&mut Pair { a, b, on_a, on_b });
    assert_eq!(at_a, DownReason::Rejected(Rejection::NotExpected));
    assert!(matches!(at_b, DownReason::Refused(refused) if refused.reason == Rejection::NotExpected));
}

#[test]
fn a_hello_of_another_identity_than_the_authenticated_is_refused() {
    for identity in ["a", "aa", "A"] {
        let mut pair = Pair::dialed(mesh("a", 1), mesh("b", 1));
        pair.b.authenticate(pair.on_b, rid(identity)).unwrap();
        pair.exchange(at(0));
        let expected = identity == "a";
        assert_eq!(matches!(events(&mut pair.b).as_slice(), [MeshEvent::Up { .. }]), expected, "{identity}");
    }
    // The dialer checks the acceptor in the same way.
    let mut pair = Pair::dialed(mesh("a", 1), mesh("b", 1));
    pair.a.authenticate(pair.on_a, rid("x")).unwrap();
    assert_eq!(downs(&mut pair).0, DownReason::Rejected(Rejection::NotAuthenticated));
    // An identity that comes late ends what it contradicts.
    let mut pair = Pair::up();
    pair.a.authenticate(pair.on_a, rid("x")).unwrap();
    assert_eq!(downs(&mut pair).0, DownReason::Rejected(Rejection::NotAuthenticated));
}

#[test]
fn where_an_identity_is_required_a_hello_without_one_is_refused() {
    let strict = || {
        let settings = LinkSettings { require_identity: true, ..LinkSettings::default() };
        Mesh::new(hello("b", 1), settings).unwrap()
    };
    refused_by_acceptor(mesh("a", 1), strict(), Rejection::NotAuthenticated);
    let mut pair = Pair::dialed(mesh("a", 1), strict());
    pair.b.authenticate(pair.on_b, rid("a")).unwrap();
    pair.exchange(at(0));
    assert!(matches!(events(&mut pair.b).as_slice(), [MeshEvent::Up { .. }]));
}

fn drain_hello(hello: &Hello) -> Vec<u8> {
    let mut mesh = of(hello.clone());
    let conn = mesh.connect(at(0), None);
    drain(&mut mesh, conn)
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let place = bytes.windows(from.len()).position(|window| window == from).unwrap();
    [&bytes[..place], to, &bytes[place + from.len()..]].concat()
}

/// Writes the right length and checksum into a single short record.
fn reseal(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len() - 4).unwrap().to_be_bytes();
    let sum = crc32c::crc32c(&[&length, &record[4..5], &record[9..]].concat());
    [&length, &record[4..5], &sum.to_be_bytes(), &record[9..]].concat()
}

fn is_down(mesh: &mut Mesh, expected: &DownReason) -> bool {
    matches!(events(mesh).as_slice(), [MeshEvent::Down { reason, .. }] if reason == expected)
}

#[test]
fn a_stranger_is_refused_by_magic_and_another_version_by_its_number() {
    let good = drain_hello(&hello("a", 1));
    for (from, to, rejection) in [
        (&b"RHLK\0\x01"[..], &b"RHLJ\0\x01"[..], Rejection::BadMagic),
        (b"RHLK\0\x01", b"RHLK\0\x02", Rejection::Version),
    ] {
        let mut b = mesh("b", 1);
        let conn = b.accept(at(0));
        b.receive(at(0), conn, reseal(&replace(&good, from, to)).into()).unwrap();
        assert!(is_down(&mut b, &DownReason::Rejected(rejection)));
        assert!(!b.should_close(conn), "the refusal is written first");
        // A dialer that waits for a hello reads it.
        let mut a = mesh("a", 1);
        let on_a = a.connect(at(0), None);
        a.receive(at(0), on_a, drain(&mut b, conn).into()).unwrap();
        let down = events(&mut a);
        assert!(
            matches!(down.as_slice(), [MeshEvent::Down { reason: DownReason::Refused(r), .. }] if r.reason == rejection),
            "{down:?}"
        );
        assert!(b.should_close(conn));
    }
}

#[test]
fn what_is_not_a_hello_ends_the_connection_and_says_how() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 40], &[255; 40]] {
        let mut b = mesh("b", 1);
        let conn = b.accept(at(0));
        b.receive(at(0), conn, Bytes::copy_from_slice(bytes)).unwrap();
        let down = events(&mut b);
        let [MeshEvent::Down { peer: None, reason, .. }] = down.as_slice() else { panic!("{down:?}") };
        assert_eq!(reason.blame(), Blame::PeerMisbehaved);
        assert!(b.wants_write(conn), "a refusal");
    }
}

#[test]
fn a_record_before_the_connection_is_up_ends_it() {
    let mut other = Pair::up();
    other.a.send(other.on_a, SendId(1), Class::Small, &ack(1)).unwrap();
    let record = drain(&mut other.a, other.on_a);
    for greeting in [Vec::new(), drain_hello(&hello("a", 1))] {
        let mut b = mesh("b", 1);
        let conn = b.accept(at(0));
        b.receive(at(0), conn, [greeting, record.clone()].concat().into()).unwrap();
        let down = events(&mut b);
        let [MeshEvent::Down { reason: DownReason::Misbehaved(Misbehaviour::Unexpected(_)), .. }] = down.as_slice()
        else {
            panic!("{down:?}")
        };
    }
}

#[test]
fn a_second_hello_ends_the_connection() {
    let mut pair = Pair::up();
    pair.b.receive(at(0), pair.on_b, drain_hello(&hello("c", 1)).into()).unwrap();
    assert!(is_down(&mut pair.b, &DownReason::Misbehaved(Misbehaviour::Unexpected("hello"))));
    assert_eq!(pair.b.connection(&rid("c")), None);
}

#[test]
fn a_newer_run_of_a_node_takes_over_and_an_older_one_is_refused() {
    for name in ["a", "c"] {
        let mut pair = Pair::up_of(mesh(name, 2), mesh("b", 1));
        // The newer run.
        let mut newer = mesh(name, 3);
        let on_newer = newer.connect(at(0), None);
        let on_b = pair.b.accept(at(0));
        let old = (pair.on_a, pair.on_b);
        let old_mesh = std::mem::replace(&mut pair.a, newer);
        (pair.on_a, pair.on_b) = (on_newer, on_b);
        pair.exchange(at(0));
        let seen = events(&mut pair.b);
        let superseded = DownReason::Rejected(Rejection::Superseded);
        assert!(
            matches!(seen.as_slice(), [
                MeshEvent::Down { conn, peer: Some(down), reason },
                MeshEvent::Up { peer: up, .. },
            ] if *conn == old.1 && *down == peer(name, 2) && *reason == superseded && *up == peer(name, 3)),
            "{seen:?}"
        );
        // The old run reads why.
        pair.a = old_mesh;
        pair.a.receive(at(0), old.0, drain(&mut pair.b, old.1).into()).unwrap();
        assert!(matches!(events(&mut pair.a).as_slice(),
            [MeshEvent::Down { reason: DownReason::Refused(r), .. }] if r.reason == Rejection::Superseded));
        // And is refused when it comes again.
        let b = std::mem::replace(&mut pair.b, mesh("x", 1));
        refused_by_acceptor(mesh(name, 2), b, Rejection::OlderGeneration);
    }
}

#[test]
fn a_connection_that_does_not_come_up_in_time_ends() {
    let mut b = mesh("b", 1);
    let conn = b.accept(at(0));
    b.tick(at(4999));
    assert!(events(&mut b).is_empty());
    // Trickling bytes do not help.
    b.receive(at(4999), conn, Bytes::from_static(&[0])).unwrap();
    assert_eq!(b.deadline(), Some(at(5000)));
    b.tick(at(5000));
    assert!(is_down(&mut b, &DownReason::HelloTimeout));
    // The refusal has its own limit.
    assert!(!b.should_close(conn));
    b.tick(at(6000));
    assert!(b.should_close(conn));
    assert_eq!(b.deadline(), None);
    b.closed(at(6000), conn);
    assert!(b.receive(at(6000), conn, Bytes::new()).is_err());
    assert!(events(&mut b).is_empty(), "its end was told once");
}

#[test]
fn what_was_not_agreed_is_not_sent_and_not_taken() {
    let plain = || of(Hello { capabilities: texts(&[V13_CAPABILITY]), ..hello("b", 1) });
    let mut pair = Pair::up_of(mesh("a", 1), plain());
    for record in [ack(1), prepare(Some(UnixMillis(5)))] {
        let refused = pair.a.send(pair.on_a, SendId(8), Class::Small, &record);
        assert!(matches!(refused, Err(SendError::NotAgreed(_))));
        assert_eq!(events(&mut pair.a), [MeshEvent::Sent { send: SendId(8), ok: false }]);
        // A peer that sends it all the same misbehaves.
        let mut both = Pair::up();
        both.a.send(both.on_a, SendId(1), Class::Small, &record).unwrap();
        let mut strict = Pair::up_of(mesh("a", 1), plain());
        strict.b.receive(at(0), strict.on_b, drain(&mut both.a, both.on_a).into()).unwrap();
        let down = events(&mut strict.b);
        assert!(
            matches!(down.as_slice(), [MeshEvent::Down { reason, .. }] if reason.blame() == Blame::PeerMisbehaved),
            "{down:?}"
        );
    }
    pair.a.send(pair.on_a, SendId(9), Class::Small, &prepare(None)).unwrap();
    pair.exchange(at(0));
    assert_eq!(link_world::records(&events(&mut pair.b)), [prepare(None)]);
}

#[test]
fn a_hello_that_every_peer_would_refuse_is_refused_at_home() {
    let new = |hello| Mesh::new(hello, LinkSettings::default()).map(drop);
    let without = Hello { capabilities: texts(&[LINK_CAPABILITY]), ..hello("a", 1) };
    assert_eq!(new(without), Err(MeshError::MissingCapability(V13_CAPABILITY)));
    let long = "x".repeat(255);
    let mut capabilities = texts(&[V13_CAPABILITY]);
    capabilities.extend(std::iter::repeat_n(Text8::new(&long).unwrap(), 15));
    let mut large = Hello { capabilities, ..hello("a", 1) };
    assert_eq!(new(large.clone()), Ok(()));
    large.peer.owner.owner = OwnerId::new(&long).unwrap();
    assert!(matches!(new(large), Err(MeshError::HelloTooLong { .. })));
    let many = (0..65).map(|n| Text8::new(&format!("c{n}")).unwrap()).collect();
    let many = Hello { capabilities: many, ..hello("a", 1) };
    assert_eq!(new(many), Err(MeshError::TooManyCapabilities { count: 65 }));
}

/// Cuts a stream into its records.
fn cut(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some((length, _)) = stream.split_first_chunk::<4>() {
        let (record, rest) = stream.split_at(4 + usize::try_from(u32::from_be_bytes(*length)).unwrap());
        records.push(record.to_vec());
        stream = rest;
    }
    records
}

#[test]
fn only_the_node_that_decides_takes_a_claim_and_only_the_other_a_welcome() {
    // A good conversation gives the records: hello of a; hello and claim of b; welcome of a.
    let mut good = Pair::dialed(mesh("a", 1), mesh("b", 1));
    let hello_a = drain(&mut good.a, good.on_a);
    good.b.receive(at(0), good.on_b, hello_a.clone().into()).unwrap();
    let from_b = cut(&drain(&mut good.b, good.on_b));
    let [hello_b, claim] = from_b.as_slice() else { panic!("{from_b:?}") };
    good.a.receive(at(0), good.on_a, from_b.concat().into()).unwrap();
    let welcome = drain(&mut good.a, good.on_a);

    let mut b = mesh("b", 1);
    let conn = b.accept(at(0));
    b.receive(at(0), conn, [hello_a, claim.clone()].concat().into()).unwrap();
    assert!(is_down(&mut b, &DownReason::Misbehaved(Misbehaviour::Unexpected("claim"))));
    let mut a = mesh("a", 1);
    let conn = a.connect(at(0), None);
    a.receive(at(0), conn, [hello_b.clone(), welcome].concat().into()).unwrap();
    assert!(is_down(&mut a, &DownReason::Misbehaved(Misbehaviour::Unexpected("welcome"))));
}

#[test]
fn a_hello_with_trailing_bytes_or_too_many_capabilities_ends_the_connection() {
    let good = drain_hello(&hello("a", 1));
    let trailing = [&good[..], &[0]].concat();
    let names: Vec<u8> = (0..62_u8).flat_map(|n| [1, b'0' + n]).collect();
    // Its count of three stands before the first capability.
    let place = good.windows(9).position(|window| window == b"framework").unwrap() - 2;
    let with = |names: &[u8], count: u8| {
        let mut hello = [&good[..], names].concat();
        hello[place] = count;
        hello
    };
    let cases = [
        (trailing, Some("hello")),
        (with(&names, 65), Some("capability count")),
        (with(&names[..122], 64), None),
        (with(&names[..2], 5), Some("capability")),
    ];
    for (bytes, field) in cases {
        let mut b = mesh("b", 1);
        let conn = b.accept(at(0));
        b.receive(at(0), conn, reseal(&bytes).into()).unwrap();
        match field {
            Some(field) => assert!(is_down(&mut b, &DownReason::Misbehaved(Misbehaviour::Field(field))), "{field}"),
            None => assert_eq!(events(&mut b), []),
        }
    }
}

#[test]
fn a_link_record_in_the_published_form_ends_the_connection() {
    let mut other = Pair::up();
    other.a.send(other.on_a, SendId(1), Class::Small, &ack(1)).unwrap();
    let link = drain(&mut other.a, other.on_a);
    let frame = &link[9..];
    let mut published = link[..9].to_vec();
    published[4] = 7;
    published.push(1);
    published.extend(u32::try_from(frame.len()).unwrap().to_be_bytes());
    published.extend(frame);
    let mut pair = Pair::up();
    pair.b.receive(at(0), pair.on_b, reseal(&published).into()).unwrap();
    assert!(is_down(&mut pair.b, &DownReason::Misbehaved(Misbehaviour::Unexpected("record kind"))));
}
