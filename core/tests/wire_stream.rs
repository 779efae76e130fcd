//! The logical stream: whole at any cut, refused where it is not sorted, and never more in memory than was fed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "a test may fail"
)]

mod common;

use bytes::Bytes;
use common::fields::stream_of;
use common::strategies::stream;
use common::vectors::load;
use proptest::prelude::*;
use rehome::Rope;
use rehome::id::ParticipantId;
use rehome::wire::{
    ApplicationState, DecodeErrorKind, EncodeError, FrozenRecord, SavedState, SavedWork, StreamContents, StreamDecoder,
    encode_stream,
};

fn vector() -> StreamContents {
    stream_of(&load("stream.json")["fields"])
}

fn decode(bytes: &Bytes) -> Result<StreamContents, rehome::wire::DecodeError> {
    let mut decoder = StreamDecoder::new();
    decoder.feed(bytes.clone())?;
    decoder.finish()
}

proptest! {
    #[test]
    fn a_stream_comes_back_at_any_cut(contents in stream(), mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9)) {
        let (rope, crc) = encode_stream(&contents).unwrap();
        let bytes = rope.to_bytes();
        prop_assert_eq!(crc, crc32c::crc32c(&bytes));
        let mut places: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let mut decoder = StreamDecoder::new();
        for pair in places.windows(2) {
            decoder.feed(bytes.slice(pair[0]..pair[1])).unwrap();
            prop_assert_eq!(decoder.fed(), pair[1]);
        }
        prop_assert_eq!(decoder.finish().unwrap(), contents);
    }

    #[test]
    fn a_stream_comes_back_byte_by_byte_and_no_part_of_it_is_whole(contents in stream()) {
        let bytes = encode_stream(&contents).unwrap().0.to_bytes();
        let mut decoder = StreamDecoder::new();
        for at in 0..bytes.len() {
            decoder.feed(bytes.slice(at..at + 1)).unwrap();
            if at % 97 == 0 {
                let error = decode(&bytes.slice(..at)).unwrap_err();
                prop_assert_eq!((error.kind, error.offset), (DecodeErrorKind::TruncatedField, at));
            }
        }
        prop_assert_eq!(decoder.finish().unwrap(), contents);
    }

    #[test]
    fn a_changed_byte_is_refused_within_the_stream_or_is_another_stream(
        contents in stream(), at in any::<prop::sample::Index>(), bits in 1_u8..
    ) {
        let mut bytes = encode_stream(&contents).unwrap().0.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let bytes = Bytes::from(bytes);
        match decode(&bytes) {
            Ok(other) => {
                prop_assert!(other != contents);
                prop_assert_eq!(encode_stream(&other).unwrap().0.to_bytes(), bytes);
            }
            Err(error) => prop_assert!(error.offset <= bytes.len()),
        }
    }
}

#[test]
fn the_shared_stream_is_refused_at_every_truncation_and_with_a_byte_behind_it() {
    let bytes = encode_stream(&vector()).unwrap().0.to_bytes();
    for len in 0..bytes.len() {
        let error = decode(&bytes.slice(..len)).unwrap_err();
        assert_eq!((error.kind, error.offset), (DecodeErrorKind::TruncatedField, len));
    }
    let mut decoder = StreamDecoder::new();
    decoder.feed(bytes.clone()).unwrap();
    let error = decoder.feed(Bytes::from_static(&[0])).unwrap_err();
    assert_eq!((error.kind, error.offset), (DecodeErrorKind::TrailingByte, bytes.len()));
    // An error stays.
    assert_eq!(decoder.feed(Bytes::new()).unwrap_err(), error);
    assert_eq!(decoder.finish().unwrap_err(), error);
}

#[test]
fn a_known_checksum_is_combined_and_a_wrong_one_shows() {
    let state = Bytes::from(vec![0x5A; 700_000]);
    let with = |crc| {
        let state = Some(SavedState { rope: state.clone().into(), crc });
        let states = vec![ApplicationState { participant: ParticipantId::FIRST, state }];
        encode_stream(&StreamContents { states, ..vector() }).unwrap()
    };
    let (rope, crc) = with(None);
    assert_eq!(crc, crc32c::crc32c(&rope.to_bytes()));
    assert_eq!(with(Some(crc32c::crc32c(&state))), (rope.clone(), crc));
    // The state's own bytes are trusted to the writer that made the checksum: nobody read them again.
    let (same, other) = with(Some(1));
    assert_eq!(same, rope);
    assert_ne!(other, crc);
}

#[test]
fn a_states_bytes_come_out_as_the_slices_that_were_fed() {
    let states =
        vec![ApplicationState { participant: ParticipantId::FIRST, state: Some(Rope::from(vec![1; 100_000]).into()) }];
    let bytes = encode_stream(&StreamContents { states, ..vector() }).unwrap().0.to_bytes();
    let mut decoder = StreamDecoder::new();
    let pieces: Vec<Bytes> = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect();
    for piece in &pieces {
        decoder.feed(piece.clone()).unwrap();
    }
    let contents = decoder.finish().unwrap();
    let state = contents.states[0].state.as_ref().unwrap();
    for piece in state.rope.pieces() {
        let inside = |fed: &&Bytes| fed.as_ptr_range().contains(&piece.as_ptr());
        assert!(pieces.iter().any(|fed| inside(&fed)));
    }
    assert_eq!(state.rope.pieces().len(), 11);
}

#[test]
fn vectors_out_of_order_are_not_encoded() {
    let unsorted = |change: &dyn Fn(&mut StreamContents)| {
        let mut contents = vector();
        change(&mut contents);
        matches!(encode_stream(&contents), Err(EncodeError::Unsorted { .. }))
    };
    assert!(!unsorted(&|_| ()));
    assert!(unsorted(&|c| c.states.swap(0, 1)));
    assert!(unsorted(&|c| c.work.push(c.work[0].clone())));
    assert!(unsorted(&|c| c.timers.push(c.timers[0].clone())));
    assert!(unsorted(&|c| c.ticks.push(c.ticks[0].clone())));
    // Work and ticks of one participant share one order.
    assert!(unsorted(&|c| (c.ticks[0].participant, c.ticks[0].order) = (c.work[0].participant, c.work[0].order)));
}

/// The bytes of the shared stream with `from` replaced at its only place.
fn patched(from: &[u8], to: &[u8]) -> Bytes {
    let bytes = encode_stream(&vector()).unwrap().0.to_bytes();
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!(places.len(), 1);
    let (head, tail) = (&bytes[..places[0]], &bytes[places[0] + from.len()..]);
    [head, to, tail].concat().into()
}

#[test]
fn vectors_out_of_order_are_not_decoded() {
    let two_states = [&[0; 7][..], &[2, 1, 0, 0, 0, 0, 0, 0, 0, 10]].concat();
    for (from, to) in [
        // The second state is of participant 1 again.
        (two_states.clone(), [&[0; 7][..], &[1, 1, 0, 0, 0, 0, 0, 0, 0, 10]].concat()),
        // The tick takes the place of the saved work: participant 2, order 1.
        (
            [&[0; 7][..], &[3], &[0; 7], &[2, 9], b"heartbeat"].concat(),
            [&[0; 7][..], &[2], &[0; 7], &[1, 9], b"heartbeat"].concat(),
        ),
    ] {
        assert_eq!(decode(&patched(&from, &to)).unwrap_err().kind, DecodeErrorKind::InvalidField);
    }
    // A state's two lengths must agree, and no state has no bytes.
    let lengths = [&[0; 7][..], &[10], &[0; 7], &[2], b"{}"].concat();
    let longer = [&[0; 7][..], &[11], &[0; 7], &[2], b"{}"].concat();
    assert_eq!(decode(&patched(&lengths, &longer)).unwrap_err().field, "state length");
    // Participant 3 has none.
    let none = [&[0; 7][..], &[3, 0], &[0; 8], &[0, 0, 0, 1]].concat();
    let some = [&[0; 7][..], &[3, 0], &[0; 7], &[1, 0, 0, 0, 1]].concat();
    assert_eq!(decode(&patched(&none, &some)).unwrap_err().field, "state case length");
    let maybe = [&[0; 7][..], &[3, 2], &[0; 8], &[0, 0, 0, 1]].concat();
    assert_eq!(decode(&patched(&none, &maybe)).unwrap_err().field, "has state");
    // A timer's policy and its flag.
    let timer = [&b"HeartbeatTimer\0\0\0\0\0\0\x03\xE8"[..], &[1], &[0; 7], &[1, 0]].concat();
    for (at, value, field) in [(22, 0, "overrun policy"), (22, 4, "overrun policy"), (31, 2, "stop on error")] {
        let mut other = timer.clone();
        other[at] = value;
        assert_eq!(decode(&patched(&timer, &other)).unwrap_err().field, field);
    }
}

#[test]
fn bytes_that_repeat_a_place_are_not_decoded() {
    for repeat in [1, 2, 3] {
        let whole = encode_stream(&vector()).unwrap().0.to_bytes();
        // The count of the vector goes from 1 to 2, and its only element comes twice.
        let (mut work, mut timers, mut ticks) = (vector(), vector(), vector());
        (work.work, timers.timers, ticks.ticks) = (vec![], vec![], vec![]);
        let (shorter, name) = match repeat {
            1 => (work, "work"),
            2 => (timers, "timers"),
            _ => (ticks, "ticks"),
        };
        let shorter = encode_stream(&shorter).unwrap().0.to_bytes();
        let element = whole.len() - shorter.len();
        let common = whole.iter().zip(&shorter).take_while(|(a, b)| a == b).count();
        // The first differing byte is the last of the count.
        let begin = common + 1;
        let twice = [&whole[..common], &[2], &whole[begin..begin + element], &whole[begin..]].concat();
        let error = decode(&twice.into()).unwrap_err();
        assert_eq!((error.kind, error.offset), (DecodeErrorKind::InvalidField, begin + element), "{name}");
    }
}

#[test]
fn kinds_without_an_end_of_their_own_are_refused() {
    for kind in [0_u8, 8, 11, 12, 13, 14, 15, 255] {
        let record = FrozenRecord::Opaque { kind, bytes: Bytes::copy_from_slice(&[kind, 1, 2]) };
        let work = vec![SavedWork { participant: ParticipantId::FIRST, order: 1, record }];
        let error = encode_stream(&StreamContents { work, ..vector() }).unwrap_err();
        assert_eq!(error, EncodeError::Invalid { field: "record kind" });
        // The shared stream's spot request, as that kind.
        let error = decode(&patched(&[1, 6, 1, 0, 0x21], &[1, kind, 1, 0, 0x21])).unwrap_err();
        assert_eq!((error.kind, error.field), (DecodeErrorKind::InvalidField, "record kind"));
    }
}

#[test]
fn huge_counts_and_lengths_take_no_memory() {
    let bytes = encode_stream(&vector()).unwrap().0.to_bytes();
    let head = 16 + 3 + 0x15 + 8;
    // Four thousand million states are announced, and one comes.
    let mut many = bytes[..head + 4 + 25].to_vec();
    many[head..head + 4].fill(0xFF);
    let error = decode(&many.into()).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TruncatedField);
    // A state of 2^63 bytes, and three come.
    let mut long = bytes[..head + 4 + 9].to_vec();
    let len = 1_u64 << 63;
    long.extend_from_slice(&(len + 8).to_be_bytes());
    long.extend_from_slice(&len.to_be_bytes());
    long.extend_from_slice(b"abc");
    let error = decode(&long.into()).unwrap_err();
    assert_eq!((error.kind, error.field), (DecodeErrorKind::TruncatedField, "state"));
}
