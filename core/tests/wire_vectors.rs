//! The bytes that other runtimes of the protocol agree on, and those that an independent encoder made: every record
//! decodes to the fields that the vector names and encodes to its bytes again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "a test may fail"
)]

mod common;

use common::fields::{record_of, stream_of};
use common::vectors::{Vectors, bytes_of, load};
use rehome::Rope;
use rehome::fence::{ObjectKey, ObjectKind};
use rehome::id::ObjectId;
use rehome::wire::{
    DecodeErrorKind, Frames, Record, StreamDecoder, authority_key, decode, encode, encode_stream, parse_authority_key,
};

#[test]
fn every_vector_decodes_to_its_fields_and_encodes_to_its_bytes() {
    let vectors = Vectors::records();
    assert_eq!(vectors.records.len(), 52);
    assert_eq!(vectors.records.iter().filter(|vector| vector.shared).count(), 13);
    for vector in &vectors.records {
        let name = &vector.name;
        let expected = record_of(vector.command, &vector.fields);
        let decoded = decode(Frames::from(vector.bytes.clone())).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded, expected, "{name}");
        let encoded = encode(&expected).unwrap();
        assert_eq!(encoded.len(), 1, "{name}");
        assert_eq!(encoded.iter().next().unwrap().to_bytes(), vector.bytes, "{name}");
    }
}

#[test]
fn every_malformed_record_is_refused_for_its_reason() {
    let vectors = Vectors::records();
    assert_eq!(vectors.refused.len(), 12);
    for (name, error, bytes) in &vectors.refused {
        let kind = match error.as_str() {
            "invalid-head" => DecodeErrorKind::InvalidHead,
            "invalid-flags" => DecodeErrorKind::InvalidFlags,
            "unknown-command" => DecodeErrorKind::UnknownCommand,
            "truncated-field" => DecodeErrorKind::TruncatedField,
            "invalid-field" => DecodeErrorKind::InvalidField,
            "trailing-byte" => DecodeErrorKind::TrailingByte,
            other => panic!("{other}"),
        };
        assert_eq!(decode(Frames::from(bytes.clone())).unwrap_err().kind, kind, "{name}");
    }
}

#[test]
fn every_truncation_of_a_vector_is_refused_within_its_bytes() {
    for vector in &Vectors::records().records {
        for len in 0..vector.bytes.len() {
            match decode(Frames::from(vector.bytes.slice(..len))) {
                Err(error) => assert!(error.offset <= len, "{} cut at {len}: {error}", vector.name),
                // Without its last field a prepare is one of a peer that sends no deadline.
                Ok(Record::Prepare(prepare)) => {
                    assert_eq!((vector.name.as_str(), len), ("prepare.deadline", vector.bytes.len() - 8));
                    assert_eq!(prepare.deadline, None);
                }
                Ok(other) => panic!("{} cut at {len} is {other:?}", vector.name),
            }
        }
    }
}

#[test]
fn every_vector_refuses_a_byte_behind_it() {
    for vector in &Vectors::records().records {
        let longer: Vec<u8> = vector.bytes.iter().copied().chain([0]).collect();
        let error = decode(Frames::from(Rope::from(longer))).unwrap_err();
        // A prepare may go on with a deadline, which one byte is not.
        let kind = if vector.command == 40 && vector.name != "prepare.deadline" {
            DecodeErrorKind::TruncatedField
        } else {
            DecodeErrorKind::TrailingByte
        };
        assert_eq!((error.kind, error.offset), (kind, vector.bytes.len()), "{}", vector.name);
    }
}

#[test]
fn a_vector_decodes_the_same_from_any_pieces() {
    for vector in &Vectors::records().records {
        let whole = decode(Frames::from(vector.bytes.clone())).unwrap();
        let single: Rope = (0..vector.bytes.len()).map(|at| vector.bytes.slice(at..at + 1)).collect();
        assert_eq!(decode(Frames::from(single)).unwrap(), whole, "{}", vector.name);
    }
}

#[test]
fn the_logical_stream_is_the_shared_one() {
    let vector = load("stream.json");
    let bytes = bytes_of(&vector["hex"]);
    let crc = u32::try_from(vector["crc32c"].as_u64().unwrap()).unwrap();
    let contents = stream_of(&vector["fields"]);
    let (rope, checksum) = encode_stream(&contents).unwrap();
    assert_eq!(rope.to_bytes(), bytes);
    assert_eq!(checksum, crc);
    let mut decoder = StreamDecoder::new();
    decoder.feed(bytes).unwrap();
    assert_eq!(decoder.finish().unwrap(), contents);
}

#[test]
fn authority_keys_are_the_shared_ones() {
    for case in load("keys.json")["keys"].as_array().unwrap() {
        let kind = if case["kind"] == "actor" { ObjectKind::Actor } else { ObjectKind::Spot };
        let key = ObjectKey { kind, id: ObjectId::new(case["id"].as_str().unwrap()).unwrap() };
        let text = case["key"].as_str().unwrap();
        assert_eq!(authority_key(&key), text);
        assert_eq!(parse_authority_key(text).unwrap(), key);
    }
}
