//! Every value of the wire has bytes, and only those bytes are it.
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
use common::strategies::{frozen, record, rope};
use common::vectors::Vectors;
use proptest::prelude::*;
use rehome::Rope;
use rehome::wire::{Frames, FrozenRecord, Record, decode, decode_frame, encode, encode_frozen, frozen_crc};

/// The same frames in one piece each, as a connection's read buffer holds them.
fn flat(frames: &Frames) -> Frames {
    frames.iter().map(|frame| Rope::from(frame.to_bytes())).collect()
}

/// The same frames, cut into pieces of `size` bytes.
fn cut(frames: &Frames, size: usize) -> Frames {
    let pieces = |frame: &Rope| frame.to_bytes().chunks(size).map(Bytes::copy_from_slice).collect::<Rope>();
    frames.iter().map(pieces).collect()
}

/// The first vector of a command.
fn vector(command: u64) -> Record {
    let bytes = Vectors::records().records.into_iter().find(|vector| vector.command == command).unwrap().bytes;
    decode(Frames::from(bytes)).unwrap()
}

proptest! {
    #[test]
    fn every_record_comes_back(record in record()) {
        let frames = encode(&record).unwrap();
        let decoded = decode(frames.clone()).unwrap();
        prop_assert_eq!(&decoded, &record);
        prop_assert_eq!(&decode(flat(&frames)).unwrap(), &record);
        if let Some(frame) = frames.iter().next().filter(|_| frames.len() == 1) {
            prop_assert_eq!(&decode_frame(frame.to_bytes()).unwrap(), &record);
        }
        // The bytes are canonical: what decodes encodes to the same again.
        prop_assert_eq!(encode(&decoded).unwrap(), frames);
    }

    #[test]
    fn every_record_comes_back_from_any_pieces(record in record(), size in 1_usize..70) {
        let frames = encode(&record).unwrap();
        prop_assert_eq!(decode(cut(&frames, size)).unwrap(), record);
    }

    #[test]
    fn bytes_of_a_decoded_record_with_one_changed_byte_never_panic_and_stay_canonical(
        record in record(), at in any::<prop::sample::Index>(), bits in 1_u8..
    ) {
        let frames = flat(&encode(&record).unwrap());
        let mut bytes = frames.iter().next().unwrap().to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let len = bytes.len();
        let mut changed = Frames::from(Rope::from(bytes));
        for frame in frames.iter().skip(1) {
            changed.push(frame.clone());
        }
        match decode(changed.clone()) {
            Ok(other) => {
                prop_assert!(other != record);
                prop_assert_eq!(encode(&other).unwrap(), changed);
            }
            Err(error) => prop_assert!(error.offset <= len),
        }
    }

    #[test]
    fn a_truncated_record_is_refused_within_its_bytes(record in record(), at in any::<prop::sample::Index>()) {
        let frames = flat(&encode(&record).unwrap());
        let whole = frames.iter().next().unwrap().to_bytes();
        let len = at.index(whole.len());
        match decode(Frames::from(whole.slice(..len))) {
            Err(error) => prop_assert!(error.offset <= len),
            Ok(Record::Prepare(prepare)) => prop_assert!(prepare.deadline.is_none() && len == whole.len() - 8),
            // Bytes that nobody here reads have no end of their own.
            Ok(Record::Data(data)) => {
                let opaque = matches!(data.record, FrozenRecord::Opaque { .. });
                prop_assert!(opaque);
            }
            Ok(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_frozen_record_has_the_same_bytes_alone_and_as_the_last_of_a_data_record(frozen in frozen()) {
        let Record::Data(mut data) = vector(31) else { panic!() };
        data.record = frozen;
        let alone = encode_frozen(&data.record).unwrap().to_bytes();
        let frame = encode(&Record::Data(data)).unwrap().iter().next().unwrap().to_bytes();
        prop_assert!(frame.ends_with(&alone));
    }

    #[test]
    fn the_checksum_of_a_batch_is_that_of_its_canonical_bytes(batch in prop::collection::vec(frozen(), 0..5)) {
        let mut all = Vec::new();
        let mut crc = 0;
        for record in &batch {
            all.extend_from_slice(&encode_frozen(record).unwrap().to_bytes());
            crc = frozen_crc(crc, record).unwrap();
        }
        prop_assert_eq!(crc, crc32c::crc32c(&all));
    }

    #[test]
    fn large_payloads_are_not_copied(rope in rope()) {
        let Record::State(mut state) = vector(52) else { panic!() };
        state.data = rope.clone();
        let frames = encode(&Record::State(state)).unwrap();
        let written: Vec<*const u8> = frames.iter().next().unwrap().pieces().map(|piece| piece.as_ptr()).collect();
        for piece in rope.pieces().filter(|piece| piece.len() >= 1024) {
            prop_assert!(written.contains(&piece.as_ptr()));
        }
    }
}
