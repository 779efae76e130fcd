//! Records on their way out: order, fairness, what "sent" means; and the silence of a peer.
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

use link_world::{Pair, ack, at, drain, events, hello, mesh, rid, send_all, state, write};
use rehome::link::{
    Class, DownReason, DropReason, LinkSettings, Mesh, MeshEvent, Misbehaviour, Rejection, SendError, SendId,
};
use rehome::wire::{LinkRecord, Record};
use std::time::Duration;

const CHUNK: usize = 64 << 10;

fn sent(events: &[MeshEvent]) -> Vec<(u64, bool)> {
    let sent = |event: &MeshEvent| match event {
        MeshEvent::Sent { send, ok } => Some((send.0, *ok)),
        MeshEvent::Up { .. } | MeshEvent::Record { .. } | MeshEvent::Down { .. } => None,
    };
    events.iter().filter_map(sent).collect()
}

/// What came, by class: the ordinal of a chunk or the number of an ack.
fn order(events: &[MeshEvent]) -> Vec<(Class, u64)> {
    let name = |record: Record| match record {
        Record::State(state) => (Class::Bulk, u64::from(state.ordinal)),
        Record::Link(LinkRecord::Ack { received }) => (Class::Small, received),
        other => panic!("{other:?}"),
    };
    link_world::records(events).into_iter().map(name).collect()
}

#[test]
fn a_small_record_waits_for_no_more_than_one_bulk_record() {
    for written in [0, 1, 1000, CHUNK, CHUNK + 2000, 3 * CHUNK] {
        let mut pair = Pair::up();
        for ordinal in 0..8 {
            pair.a.send(pair.on_a, SendId(ordinal.into()), Class::Bulk, &state(ordinal, CHUNK)).unwrap();
        }
        let mut before = Vec::new();
        while before.len() < written {
            before.extend(write(&mut pair.a, pair.on_a, written - before.len()));
        }
        pair.b.receive(at(0), pair.on_b, before.into()).unwrap();
        let whole = order(&events(&mut pair.b)).len();
        pair.a.send(pair.on_a, SendId(100), Class::Small, &ack(1)).unwrap();
        pair.exchange(at(0));
        let rest = order(&events(&mut pair.b));
        let place = rest.iter().position(|(class, _)| *class == Class::Small).unwrap();
        assert!(place <= 1, "{written} bytes written, {whole} whole, then {rest:?}");
        assert_eq!(whole + rest.len(), 9);
    }
}

#[test]
fn each_class_keeps_its_order_and_bulk_is_not_starved() {
    let mut pair = Pair::up();
    let mut records: Vec<_> = (0..4).map(|ordinal| state(ordinal, CHUNK)).collect();
    records.extend((0..60_000).map(ack));
    send_all(&mut pair.a, pair.on_a, &records);
    pair.exchange(at(0));
    let came = order(&events(&mut pair.b));
    assert_eq!(came.len(), records.len());
    for (class, count) in [(Class::Bulk, 4), (Class::Small, 60_000)] {
        let of: Vec<u64> = came.iter().filter(|(of, _)| *of == class).map(|(_, number)| *number).collect();
        assert_eq!(of, (0..count).collect::<Vec<_>>());
    }
    let bulk: Vec<usize> = (0..came.len()).filter(|place| came[*place].0 == Class::Bulk).collect();
    assert!(came.len() - bulk[3] > 1000, "bulk passed while small records still waited");
    assert!(bulk.windows(2).all(|pair| pair[1] - pair[0] > 1000), "small records went first: {bulk:?}");
}

#[test]
fn sent_means_that_the_last_byte_was_written() {
    let mut pair = Pair::up();
    let records = [ack(1), ack(2), state(0, 5000)];
    send_all(&mut pair.a, pair.on_a, &records);
    let total = pair.a.queued_bytes(pair.on_a);
    let mut ends = Vec::new();
    for written in 1..=total {
        assert!(pair.a.wants_write(pair.on_a));
        pair.b.receive(at(0), pair.on_b, write(&mut pair.a, pair.on_a, 1).into()).unwrap();
        assert_eq!(pair.a.queued_bytes(pair.on_a), total - written);
        // What was sent to its last byte is what the other side can read.
        let sent = sent(&events(&mut pair.a));
        assert_eq!(sent.len(), link_world::records(&events(&mut pair.b)).len());
        ends.extend(sent);
    }
    assert_eq!(ends, [(0, true), (1, true), (2, true)]);
    assert!(!pair.a.wants_write(pair.on_a));
}

#[test]
fn a_lost_connection_reports_every_record_once_and_before_its_end() {
    for written in [0, 1, 30, 70, 40_000] {
        let mut pair = Pair::up();
        send_all(&mut pair.a, pair.on_a, &[ack(1), ack(2), state(0, CHUNK), state(1, CHUNK)]);
        write(&mut pair.a, pair.on_a, written);
        pair.a.closed(at(1), pair.on_a);
        let seen = events(&mut pair.a);
        assert!(matches!(seen.last(), Some(MeshEvent::Down { reason: DownReason::Closed, .. })));
        let mut ids: Vec<_> = sent(&seen).into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
        assert_eq!(pair.a.connection(&rid("b")), None);
        let late = pair.a.send(pair.on_a, SendId(9), Class::Small, &ack(3));
        assert_eq!(late, Err(SendError::NotUp(pair.on_a)));
        assert_eq!(sent(&events(&mut pair.a)), [(9, false)]);
    }
}

#[test]
fn a_dropped_connection_ends_with_a_whole_record_and_a_reason() {
    let mut pair = Pair::up();
    send_all(&mut pair.a, pair.on_a, &[state(0, CHUNK), state(1, CHUNK)]);
    let mut stream = write(&mut pair.a, pair.on_a, 1000);
    pair.a.drop_conn(pair.on_a, DropReason::NodeOver);
    assert_eq!(sent(&events(&mut pair.a)), [(0, false), (1, false)]);
    assert!(!pair.a.should_close(pair.on_a));
    stream.extend(drain(&mut pair.a, pair.on_a));
    assert!(pair.a.should_close(pair.on_a));
    assert!(events(&mut pair.a).is_empty(), "no record is reported twice");
    pair.b.receive(at(0), pair.on_b, stream.into()).unwrap();
    let seen = events(&mut pair.b);
    assert_eq!(order(&seen), [(Class::Bulk, 0)], "what was begun is whole, what was not is gone");
    assert!(matches!(seen.last(),
        Some(MeshEvent::Down { reason: DownReason::Refused(r), .. }) if r.reason == Rejection::Dropped));
    // A second end is none.
    pair.a.drop_conn(pair.on_a, DropReason::Program);
    pair.a.closed(at(0), pair.on_a);
    assert!(events(&mut pair.a).is_empty());
}

#[test]
fn writing_more_than_was_offered_is_misuse() {
    let mut pair = Pair::up();
    pair.a.send(pair.on_a, SendId(0), Class::Small, &ack(1)).unwrap();
    assert!(pair.a.transmitted(at(0), pair.on_a, 1).is_err(), "nothing was offered yet");
    assert!(sent(&events(&mut pair.a)).is_empty());
}

#[test]
fn one_write_offers_no_more_than_it_may() {
    let mut pair = Pair::up();
    let records: Vec<_> = (0..200)
        .map(ack)
        .chain([link_world::relay(2 << 20)])
        .chain((0..4).map(|ordinal| state(ordinal, CHUNK)))
        .collect();
    send_all(&mut pair.a, pair.on_a, &records);
    while pair.a.wants_write(pair.on_a) {
        let mut slices = Vec::new();
        pair.a.transmit(pair.on_a, &mut slices);
        assert!(!slices.is_empty() && slices.len() <= 64);
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        assert!((1..=512 << 10).contains(&bytes));
        pair.a.transmitted(at(0), pair.on_a, bytes).unwrap();
    }
    assert_eq!(sent(&events(&mut pair.a)).len(), records.len());
}

#[test]
fn a_payload_is_borrowed_on_both_ways() {
    let mut pair = Pair::up();
    let record = state(0, CHUNK);
    let Record::State(sent) = &record else { panic!() };
    let data = sent.data.pieces().next().unwrap().as_ptr();
    pair.a.send(pair.on_a, SendId(0), Class::Bulk, &record).unwrap();
    let mut slices = Vec::new();
    pair.a.transmit(pair.on_a, &mut slices);
    assert!(slices.iter().any(|slice| slice.as_ptr() == data), "the slice is the record's own");
    assert!(slices.len() <= 3);
    drop(slices);
    let stream = bytes::Bytes::from(drain(&mut pair.a, pair.on_a));
    let range = stream.as_ptr() as usize..stream.as_ptr() as usize + stream.len();
    pair.b.receive(at(0), pair.on_b, stream).unwrap();
    let came = link_world::records(&events(&mut pair.b));
    let [Record::State(state)] = came.as_slice() else { panic!("{came:?}") };
    assert!(range.contains(&(state.data.pieces().next().unwrap().as_ptr() as usize)), "a slice of the read buffer");
}

#[test]
fn a_chunk_above_the_agreed_limit_is_not_sent() {
    let mut pair = Pair::up();
    let refused = pair.a.send(pair.on_a, SendId(0), Class::Bulk, &state(0, CHUNK + 1));
    assert!(matches!(refused, Err(SendError::TooLong { len, limit: 65_536 }) if len == CHUNK + 1));
    assert_eq!(sent(&events(&mut pair.a)), [(0, false)]);
}

#[test]
fn a_silent_peer_is_probed_and_answers() {
    let mut pair = Pair::up();
    assert_eq!(pair.a.deadline(), Some(at(5000)));
    for round in 1..20 {
        let now = at(round * 5000);
        pair.a.tick(now);
        pair.b.tick(now);
        assert!(pair.a.wants_write(pair.on_a), "a probe");
        pair.exchange(now);
    }
    assert!(events(&mut pair.a).is_empty() && events(&mut pair.b).is_empty(), "both are well");
}

#[test]
fn a_peer_of_whom_nothing_is_heard_is_dead() {
    let mut pair = Pair::up();
    // Any byte counts.
    pair.b.send(pair.on_b, SendId(0), Class::Small, &ack(1)).unwrap();
    pair.a.receive(at(1000), pair.on_a, write(&mut pair.b, pair.on_b, 1).into()).unwrap();
    let mut probes = 0;
    for millis in (1000..16_000).step_by(100) {
        pair.a.tick(at(millis));
        probes += usize::from(!drain(&mut pair.a, pair.on_a).is_empty());
        assert!(events(&mut pair.a).is_empty(), "after {millis} ms");
    }
    assert_eq!(probes, 2, "at 6 and 11 seconds");
    pair.a.tick(at(16_000));
    assert!(matches!(events(&mut pair.a).as_slice(), [MeshEvent::Down { reason: DownReason::Silent, .. }]));
}

#[test]
fn an_answer_to_no_probe_ends_the_connection() {
    let mut pair = Pair::up();
    let mut asked = Pair::up();
    asked.a.tick(at(5000));
    let probe = drain(&mut asked.a, asked.on_a);
    asked.b.receive(at(5000), asked.on_b, probe.into()).unwrap();
    let answer = drain(&mut asked.b, asked.on_b);
    pair.a.receive(at(0), pair.on_a, answer.into()).unwrap();
    let seen = events(&mut pair.a);
    assert!(
        matches!(
            seen.as_slice(),
            [MeshEvent::Down { reason: DownReason::Misbehaved(Misbehaviour::Unexpected("probe answer")), .. }]
        ),
        "{seen:?}"
    );
}

#[test]
fn a_connection_that_is_not_up_sends_nothing() {
    let mut a = mesh("a", 1);
    let conn = a.connect(at(0), None);
    assert_eq!(a.send(conn, SendId(3), Class::Small, &ack(0)), Err(SendError::NotUp(conn)));
    assert_eq!(sent(&events(&mut a)), [(3, false)]);
}

#[test]
fn a_peer_that_probes_and_does_not_read_makes_no_answers_pile_up() {
    let mut asking = Pair::up();
    asking.a.tick(at(5000));
    let probe = drain(&mut asking.a, asking.on_a);
    let mut pair = Pair::up();
    pair.b.receive(at(0), pair.on_b, probe.clone().into()).unwrap();
    let one = pair.b.queued_bytes(pair.on_b);
    assert!(one > 0);
    pair.b.receive(at(0), pair.on_b, probe.repeat(1000).into()).unwrap();
    assert_eq!(pair.b.queued_bytes(pair.on_b), one);
    assert_eq!(drain(&mut pair.b, pair.on_b).len(), one);
}

#[test]
fn death_does_not_wait_for_the_next_probe() {
    let settings = LinkSettings { probe_after: Duration::from_secs(4), ..LinkSettings::default() };
    let mut pair = Pair::up_of(Mesh::new(hello("a", 1), settings).unwrap(), mesh("b", 1));
    for probe in [4000, 8000, 12_000] {
        assert_eq!(pair.a.deadline(), Some(at(probe)));
        pair.a.tick(at(probe));
    }
    assert_eq!(pair.a.deadline(), Some(at(15_000)));
    pair.a.tick(at(15_000));
    assert!(matches!(events(&mut pair.a).as_slice(), [MeshEvent::Down { reason: DownReason::Silent, .. }]));
}

#[test]
fn a_refusal_that_nobody_reads_is_given_up() {
    let mut pair = Pair::up();
    pair.a.drop_conn(pair.on_a, DropReason::Program);
    assert_eq!(pair.a.deadline(), Some(at(1000)));
    pair.a.tick(at(999));
    assert!(!pair.a.should_close(pair.on_a));
    pair.a.tick(at(1000));
    assert!(pair.a.should_close(pair.on_a));
}

#[test]
fn after_the_peers_refusal_nothing_is_left_to_write() {
    let mut pair = Pair::up();
    send_all(&mut pair.a, pair.on_a, &[state(0, CHUNK)]);
    write(&mut pair.a, pair.on_a, 10);
    pair.b.drop_conn(pair.on_b, DropReason::Program);
    pair.a.receive(at(0), pair.on_a, drain(&mut pair.b, pair.on_b).into()).unwrap();
    assert!(pair.a.should_close(pair.on_a));
    let ready: Vec<_> = std::iter::from_fn(|| pair.a.poll_ready()).collect();
    assert_eq!(ready, [pair.on_a], "the transport hears of it");
}
