//! The byte stream: cut anywhere, cut off, damaged, and too long.
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
use link_world::{Pair, ack, at, drain, events, hello, mesh, peer, prepare, records, relay, send_all, state};
use proptest::prelude::*;
use rehome::link::{
    DownReason, HANDSHAKE_LIMIT, LinkSettings, Mesh, MeshEvent, Misbehaviour, RECORD_SLACK, SendError, SendId,
};
use rehome::time::UnixMillis;
use rehome::wire::Record;

fn sample() -> Vec<Record> {
    vec![
        ack(3),
        prepare(Some(UnixMillis(9))),
        state(0, 9000),
        relay(3000),
        state(1, 10),
        relay(0),
        ack(4),
        state(2, 64 << 10),
    ]
}

/// Both directions of a whole conversation: the bytes that each side wrote, handshake included.
fn conversation(list: &[Record]) -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair::dialed(mesh("a", 1), mesh("b", 1));
    let (mut from_a, mut from_b) = (Vec::new(), Vec::new());
    let mut sent = false;
    loop {
        let a = drain(&mut pair.a, pair.on_a);
        let b = drain(&mut pair.b, pair.on_b);
        let quiet = a.is_empty() && b.is_empty();
        pair.b.receive(at(0), pair.on_b, a.clone().into()).unwrap();
        pair.a.receive(at(0), pair.on_a, b.clone().into()).unwrap();
        from_a.extend(a);
        from_b.extend(b);
        if quiet && sent {
            return (from_a, from_b);
        }
        if quiet {
            sent = true;
            send_all(&mut pair.a, pair.on_a, list);
        }
    }
}

/// Feeds `bytes`, cut after each of `cuts` in turn, to a node `b` that accepts.
fn accept(bytes: &[u8], cuts: &[usize]) -> (Mesh, Vec<MeshEvent>) {
    let mut b = mesh("b", 1);
    let conn = b.accept(at(0));
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(*cuts.next().unwrap()));
        b.receive(at(0), conn, piece).unwrap();
    }
    let seen = events(&mut b);
    (b, seen)
}

fn sorted(mut records: Vec<Record>) -> Vec<String> {
    records.sort_by_key(|record| format!("{record:?}"));
    records.iter().map(|record| format!("{record:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_reads_the_same_however_it_is_cut(cuts in prop::collection::vec(1_usize..5000, 1..20)) {
        let list = sample();
        let (from_a, _) = conversation(&list);
        let (_, seen) = accept(&from_a, &cuts);
        let came = records(&seen);
        prop_assert_eq!(came.len(), list.len());
        for record in &list {
            prop_assert!(came.contains(record));
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_gives_a_begin_of_its_records(cut in 0_usize..90_000) {
        let (from_a, _) = conversation(&sample());
        let whole = records(&accept(&from_a, &[1 << 20]).1);
        let begin = &from_a[..cut.min(from_a.len())];
        let came = records(&accept(begin, &[1000]).1);
        prop_assert_eq!(&came[..], &whole[..came.len()]);
    }

    #[test]
    fn damage_never_makes_another_record_or_another_peer(flips in prop::collection::vec((0_usize..20_000, 0_u32..8), 1..3)) {
        let (from_a, _) = conversation(&sample()[..4]);
        let whole = records(&accept(&from_a, &[1 << 20]).1);
        let mut damaged = from_a.clone();
        for (place, bit) in &flips {
            let place = place % damaged.len();
            damaged[place] ^= 1 << bit;
        }
        prop_assume!(damaged != from_a);
        let (_, seen) = accept(&damaged, &[1500]);
        for event in &seen {
            if let MeshEvent::Up { peer: up, .. } = event {
                prop_assert_eq!(up, &peer("a", 1));
            }
        }
        let came = records(&seen);
        // Beyond the part that the checksum covers there is state only, which a move's own checksum covers.
        for (came, whole) in came.iter().zip(&whole) {
            match (came, whole) {
                (Record::State(came), Record::State(whole)) => {
                    prop_assert_eq!((&came.identity, &came.object, came.ordinal, came.data.len()),
                        (&whole.identity, &whole.object, whole.ordinal, whole.data.len()));
                }
                _ => prop_assert_eq!(came, whole),
            }
        }
        prop_assert!(came.len() <= whole.len());
    }

    #[test]
    fn noise_never_panics_and_never_connects(noise in prop::collection::vec(any::<u8>(), 0..6000), cut in 1_usize..4000) {
        let (_, seen) = accept(&noise, &[cut]);
        let connected = seen.iter().any(|event| matches!(event, MeshEvent::Up { .. }));
        prop_assert!(!connected);
        // The same behind a good handshake.
        let mut pair = Pair::up();
        pair.b.receive(at(0), pair.on_b, noise.into()).unwrap();
        prop_assert!(records(&events(&mut pair.b)).is_empty());
    }
}

#[test]
fn every_single_flip_of_the_handshake_and_a_small_record_is_found() {
    let (from_a, _) = conversation(&[ack(3)]);
    for place in 0..from_a.len() * 8 {
        let mut damaged = from_a.clone();
        damaged[place / 8] ^= 1 << (place % 8);
        let (_, seen) = accept(&damaged, &[1 << 20]);
        let wrong = |event: &MeshEvent| match event {
            MeshEvent::Up { peer: up, .. } => *up != peer("a", 1),
            MeshEvent::Record { .. } => true,
            MeshEvent::Sent { .. } | MeshEvent::Down { .. } => false,
        };
        assert!(!seen.iter().any(wrong), "bit {place}: {seen:?}");
    }
}

#[test]
fn single_bytes_make_the_same_records() {
    let list = sample();
    let (from_a, _) = conversation(&list);
    let (_, seen) = accept(&from_a, &[1]);
    assert_eq!(sorted(records(&seen)), sorted(list));
}

/// A head of a record of `length` bytes after the length field.
fn head(length: u32) -> Bytes {
    let mut head = length.to_be_bytes().to_vec();
    head.extend([7, 0, 0, 0, 0]);
    head.into()
}

fn is_length(seen: &[MeshEvent], len: u32, limit: u32) -> bool {
    let expected = DownReason::Misbehaved(Misbehaviour::Length { len, limit });
    matches!(seen, [MeshEvent::Down { reason, .. }] if *reason == expected)
}

#[test]
fn a_length_above_the_limit_ends_the_connection_before_the_bytes_come() {
    // Before the hello.
    for (length, refused) in
        [(HANDSHAKE_LIMIT, false), (HANDSHAKE_LIMIT + 1, true), (4, true), (0, true), (u32::MAX, true)]
    {
        let mut b = mesh("b", 1);
        let conn = b.accept(at(0));
        b.receive(at(0), conn, head(length).slice(..4)).unwrap();
        let seen = events(&mut b);
        assert_eq!(is_length(&seen, length, HANDSHAKE_LIMIT), refused, "{length}: {seen:?}");
        assert_eq!(seen.is_empty(), !refused);
    }
    // On a connection that is up.
    let settings = LinkSettings { payload_limit: 1000, ..LinkSettings::default() };
    let limit = (64 << 10) + RECORD_SLACK;
    let mut pair = Pair::up_of(mesh("a", 1), Mesh::new(hello("b", 1), settings).unwrap());
    pair.b.receive(at(0), pair.on_b, head(limit)).unwrap();
    assert!(events(&mut pair.b).is_empty(), "a chunk fits although the payload limit is less");
    let limit = LinkSettings::default().payload_limit + RECORD_SLACK;
    for (length, refused) in [(limit, false), (limit + 1, true)] {
        let mut pair = Pair::up();
        pair.b.receive(at(0), pair.on_b, head(length)).unwrap();
        assert_eq!(is_length(&events(&mut pair.b), length, limit), refused);
    }
}

#[test]
fn a_record_that_the_peer_would_refuse_is_not_sent() {
    let settings = LinkSettings { payload_limit: 1000, ..LinkSettings::default() };
    let small = rehome::link::Hello { chunk_limit: 0, ..hello("b", 1) };
    let mut pair = Pair::up_of(mesh("a", 1), Mesh::new(small, settings).unwrap());
    let limit = 1000 + RECORD_SLACK;
    let refused = pair.a.send(pair.on_a, SendId(0), rehome::link::Class::Small, &relay(20_000));
    assert!(matches!(refused, Err(SendError::TooLong { limit: told, .. }) if told == limit), "{refused:?}");
    pair.a.send(pair.on_a, SendId(1), rehome::link::Class::Small, &relay(1000)).unwrap();
    pair.exchange(at(0));
    assert_eq!(records(&events(&mut pair.b)), [relay(1000)]);
}

#[test]
fn a_chunk_above_the_limit_that_was_told_ends_the_connection() {
    // A peer that told more lets the sender send it; the receiver told less.
    let wide = |name| {
        Mesh::new(rehome::link::Hello { chunk_limit: 1 << 20, ..hello(name, 1) }, LinkSettings::default()).unwrap()
    };
    let mut pair = Pair::up_of(wide("a"), wide("b"));
    send_all(&mut pair.a, pair.on_a, &[state(0, 70_000)]);
    let stream = drain(&mut pair.a, pair.on_a);
    let mut narrow = Pair::up();
    narrow.b.receive(at(0), narrow.on_b, stream.into()).unwrap();
    let seen = events(&mut narrow.b);
    let expected = DownReason::Misbehaved(Misbehaviour::Chunk { len: 70_000, limit: 64 << 10 });
    assert!(matches!(seen.as_slice(), [MeshEvent::Down { reason, .. }] if *reason == expected), "{seen:?}");
}

#[test]
fn a_record_that_does_not_decode_ends_the_connection_and_the_peer_reads_where() {
    let mut pair = Pair::up();
    // Kind 7, one frame of two bytes that are no record.
    let length = 5 + 1 + 4 + 2_u32;
    let body = [1, 0, 0, 0, 2, 0xAA, 0xBB];
    let sum = crc32c::crc32c(&[&length.to_be_bytes()[..], &[7], &body].concat());
    let record = [&length.to_be_bytes()[..], &[7], &sum.to_be_bytes(), &body].concat();
    pair.b.receive(at(0), pair.on_b, record.into()).unwrap();
    let seen = events(&mut pair.b);
    assert!(
        matches!(seen.as_slice(), [MeshEvent::Down { reason: DownReason::Misbehaved(Misbehaviour::Record(_)), .. }]),
        "{seen:?}"
    );
    pair.exchange(at(0));
    let seen = events(&mut pair.a);
    let [MeshEvent::Down { reason: DownReason::Refused(refused), .. }] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(refused.detail.contains("at byte"), "{}", refused.detail);
}

#[test]
fn frame_lengths_that_do_not_fill_the_record_end_the_connection() {
    for body in [
        &[][..],
        &[0],
        &[1],
        &[1, 0, 0, 0, 3, 1, 2],
        &[1, 0, 0, 0, 1, 1, 2],
        &[3, 0, 0, 0, 0],
        &[2, 255, 255, 255, 255, 0, 0, 0, 3, 1, 2],
    ] {
        let mut pair = Pair::up();
        let length = 5 + u32::try_from(body.len()).unwrap();
        let sum = crc32c::crc32c(&[&length.to_be_bytes()[..], &[7], body].concat());
        let record = [&length.to_be_bytes()[..], &[7], &sum.to_be_bytes(), body].concat();
        pair.b.receive(at(0), pair.on_b, record.into()).unwrap();
        let seen = events(&mut pair.b);
        let expected = DownReason::Misbehaved(Misbehaviour::Field("frame lengths"));
        assert!(
            matches!(seen.as_slice(), [MeshEvent::Down { reason, .. }] if *reason == expected),
            "{body:?}: {seen:?}"
        );
    }
}
