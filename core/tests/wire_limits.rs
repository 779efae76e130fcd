//! Bounds of single fields, kinds and codes that this version does not know, and lengths that lie.
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
use common::vectors::{Vectors, bytes_of, load};
use rehome::Rope;
use rehome::id::{OperationId, ReplyRoute};
use rehome::wire::{
    Data, DecodeErrorKind, Delivery, Destination, EncodeError, FailureCode, FollowNotice, Frames, FrozenRecord,
    LinkRecord, Message, Ordered, Outcome, Record, Reply, StreamDecoder, TerminalResult, decode, decode_frame, encode,
    encode_frozen, frozen_crc,
};

fn vector(name: &str) -> Bytes {
    Vectors::records().records.into_iter().find(|vector| vector.name == name).unwrap().bytes
}

fn data() -> Data {
    let Record::Data(data) = decode(vector("data").into()).unwrap() else { panic!() };
    data
}

fn message() -> Message {
    let FrozenRecord::Known(message) = data().record else { panic!() };
    *message
}

fn kind_of(bytes: impl Into<Bytes>) -> DecodeErrorKind {
    decode(Frames::from(bytes.into())).unwrap_err().kind
}

#[test]
fn the_first_two_bytes_tell_published_records_from_link_records() {
    let ack = encode(&Record::Link(LinkRecord::Ack { received: 258 })).unwrap();
    assert_eq!(ack.iter().next().unwrap().to_bytes(), &b"RH\x01\x02\0\0\0\0\0\0\x01\x02"[..]);
    assert_eq!(kind_of(&b"RH\x02\x02\0\0\0\0\0\0\x01\x02"[..]), DecodeErrorKind::InvalidHead);
    assert_eq!(kind_of(&b"RH\x01\x04\0\0\0\0\0\0\x01\x02"[..]), DecodeErrorKind::UnknownCommand);
    assert_eq!(kind_of(&b"RH\x01\x02\0\0\0\0\0\0\x01\x02\0"[..]), DecodeErrorKind::TrailingByte);
    assert_eq!(kind_of(&b"ZZ\x01\x02\0"[..]), DecodeErrorKind::InvalidHead);
    assert_eq!(kind_of(&b""[..]), DecodeErrorKind::TruncatedField);
}

#[test]
fn reserved_commands_are_refused() {
    let spoken = [30, 31, 33, 34, 40, 42, 43, 44, 46, 50, 52, 53];
    for command in (0..=255).filter(|command| !spoken.contains(command)) {
        assert_eq!(kind_of(vec![0x5A, 0x4D, 1, command, 0]), DecodeErrorKind::UnknownCommand, "{command}");
    }
}

#[test]
fn every_flag_is_refused_on_every_relocation_command() {
    for vector in Vectors::records().records {
        for flags in 1..=255 {
            let mut bytes = vector.bytes.to_vec();
            bytes[4] = flags;
            assert_eq!(kind_of(bytes), DecodeErrorKind::InvalidFlags, "{}", vector.name);
        }
    }
}

#[test]
fn only_a_reply_relay_has_a_second_frame() {
    assert_eq!(decode(Frames::new()).unwrap_err().kind, DecodeErrorKind::WrongFrames);
    for vector in Vectors::records().records {
        let mut frames = Frames::from(vector.bytes.clone());
        frames.push(Rope::from(vec![1, 2]));
        let error = decode(frames).unwrap_err();
        if vector.command == 33 {
            assert_eq!(error.field, "payload");
        } else {
            assert_eq!(error.kind, DecodeErrorKind::WrongFrames, "{}", vector.name);
        }
    }
    let Record::ReplyRelay(mut relay) = decode(vector("reply.relay").into()).unwrap() else { panic!() };
    relay.payload = Some(message().payload);
    let mut frames = encode(&Record::ReplyRelay(relay.clone())).unwrap();
    assert_eq!(frames.len(), 2);
    assert_eq!(decode(frames.clone()).unwrap(), Record::ReplyRelay(relay));
    let mut longer = Frames::from(vector("reply.relay"));
    longer.push([frames.iter().nth(1).unwrap().to_bytes(), Bytes::from_static(&[0])].into_iter().collect());
    assert_eq!(decode(longer).unwrap_err().kind, DecodeErrorKind::TrailingByte);
    frames.push(Rope::new());
    assert_eq!(decode(frames).unwrap_err().kind, DecodeErrorKind::WrongFrames);
}

#[test]
fn frozen_records_of_kinds_not_run_here_pass_through_unchanged() {
    for kind in [7, 8].into_iter().chain(11..=255) {
        let bytes = Bytes::from(vec![kind, 0, 255, 3]);
        let record = FrozenRecord::Opaque { kind, bytes: bytes.clone() };
        let sent = Record::Data(Data { record: record.clone(), ..data() });
        let frames = encode(&sent).unwrap();
        assert!(frames.iter().next().unwrap().to_bytes().ends_with(&bytes));
        assert_eq!(decode(frames).unwrap(), sent);
        assert_eq!(encode_frozen(&record).unwrap().to_bytes(), bytes);
        assert_eq!(frozen_crc(5, &record).unwrap(), crc32c::crc32c_append(5, &bytes));
    }
    // No record has kind 0, and kept bytes are not a way around the checks of a message.
    for kind in [0, 1, 2, 3, 4, 5, 6, 9, 10] {
        let record = FrozenRecord::Opaque { kind, bytes: Bytes::from(vec![kind]) };
        assert_eq!(encode_frozen(&record).unwrap_err(), EncodeError::Invalid { field: "record kind" });
    }
    let record = FrozenRecord::Opaque { kind: 8, bytes: Bytes::from_static(&[11]) };
    assert!(encode_frozen(&record).is_err());
}

#[test]
fn metadata_has_at_most_1024_bytes() {
    let with = |len: usize| {
        let metadata = Some(Bytes::from(vec![7; len]));
        encode_frozen(&FrozenRecord::Known(Box::new(Message { metadata, ..message() })))
    };
    assert!(with(1024).is_ok());
    assert_eq!(with(1025).unwrap_err(), EncodeError::TooLong { field: "metadata", len: 1025, limit: 1024 });
    // In the vector the byte after the source says that there is none.
    let bytes = vector("data");
    let source = 14 + b"request-source".len() + 2 + 8;
    let at = bytes.windows(14).position(|window| window == b"request-source").unwrap() - 14 - 2 + source;
    assert_eq!(bytes[at], 0);
    let metadata = [&bytes[..at], &[1, 0, 0, 4, 1], &[7; 1025], &bytes[at + 1..]].concat();
    assert_eq!(kind_of(metadata), DecodeErrorKind::TooLong);
    assert_eq!(kind_of([&bytes[..at], &[2], &bytes[at + 1..]].concat()), DecodeErrorKind::InvalidField);
}

#[test]
fn a_request_has_an_operation_and_a_reply_route() {
    let zero = Message { operation: OperationId::NONE, ..message() };
    let error = encode_frozen(&FrozenRecord::Known(Box::new(zero))).unwrap_err();
    assert_eq!(error, EncodeError::Invalid { field: "operation id" });
    let bytes = vector("data");
    let at = bytes.windows(8).position(|window| window == [0, 0, 0, 3, 0, 8, 0, 0]).unwrap();
    let patch = |at: usize, to: &[u8]| [&bytes[..at], to, &bytes[at + to.len()..]].concat();
    // Operation zero; the operation kind of another request; a reply route of no byte; a send with a route.
    assert_eq!(kind_of(patch(at - 1, &[0])), DecodeErrorKind::InvalidField);
    assert_eq!(kind_of(patch(at + 3, &[4])), DecodeErrorKind::InvalidField);
    assert_eq!(kind_of(patch(at + 5, &[0])), DecodeErrorKind::InvalidField);
    assert_eq!(kind_of(patch(at + 3, &[0])), DecodeErrorKind::InvalidField);
}

#[test]
fn unknown_failure_codes_are_kept_and_read_as_request_failed() {
    let known: Vec<u32> = FailureCode::ALL.iter().map(|code| code.get()).collect();
    assert_eq!(known, (1..=22).chain(33..=35).collect::<Vec<_>>());
    for number in 1..100 {
        let code = FailureCode::new(number).unwrap();
        let expected = if known.contains(&number) { code } else { FailureCode::REQUEST_FAILED };
        assert_eq!(code.mapped(), expected);
        assert_eq!(code.name().is_some(), known.contains(&number));
        let Record::Failed(mut failed) = decode(vector("failed").into()).unwrap() else { panic!() };
        failed.code = code;
        let record = Record::Failed(failed);
        assert_eq!(decode(encode(&record).unwrap()).unwrap(), record);
    }
    assert_eq!(FailureCode::REQUEST_FAILED.get(), 17);
    assert_eq!(FailureCode::new(0), None);
    assert_eq!(FailureCode::DATA_LOST.to_string(), "data lost (35)");
    let results: Vec<u32> = TerminalResult::ALL.iter().map(|result| result.0).collect();
    assert_eq!(results, [0].into_iter().chain(101..=113).collect::<Vec<_>>());
}

#[test]
fn values_out_of_their_bounds_are_not_encoded() {
    let Record::Prepare(prepare) = decode(vector("prepare").into()).unwrap() else { panic!() };
    for (total_length, chunk_count) in [(0, 1), (1, 0), (1, 4097)] {
        let record = Record::Prepare(rehome::wire::Prepare { total_length, chunk_count, ..prepare.clone() });
        assert!(encode(&record).is_err());
    }
    let reply = |result, detail: &str| {
        let outcome = Outcome::Failure { result: TerminalResult(result), failure: 0, detail: detail.into() };
        let (operation, reply_route) = (OperationId(1), ReplyRoute(1));
        let body = Ordered::Reply(Reply { operation, reply_route, outcome });
        encode(&Record::Link(LinkRecord::Ordered { sequence: 0, body }))
    };
    assert!(reply(101, &"d".repeat(1024)).is_ok());
    assert!(reply(101, &"d".repeat(1025)).is_err());
    assert_eq!(reply(0, "").unwrap_err(), EncodeError::Invalid { field: "terminal result" });
}

/// The bytes of `record`, which has one frame, with `to` at `at` bytes from the start or, if negative, from the end.
fn patched(record: &Record, at: isize, to: &[u8]) -> Vec<u8> {
    let mut bytes = encode(record).unwrap().iter().next().unwrap().to_bytes().to_vec();
    let at = if at < 0 { bytes.len() - at.unsigned_abs() } else { at.unsigned_abs() };
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

/// Kind and field of the refusal.
fn refusal(bytes: Vec<u8>) -> (DecodeErrorKind, &'static str) {
    let error = decode_frame(bytes.into()).unwrap_err();
    (error.kind, error.field)
}

#[test]
fn a_prepare_announces_a_stream() {
    let prepare = decode(vector("prepare").into()).unwrap();
    let invalid = |field| (DecodeErrorKind::InvalidField, field);
    assert_eq!(refusal(patched(&prepare, -24, &[0; 8])), invalid("total length"));
    assert_eq!(refusal(patched(&prepare, -16, &[0; 4])), invalid("chunk count"));
    assert_eq!(refusal(patched(&prepare, -16, &4097_u32.to_be_bytes())), invalid("chunk count"));
    assert!(decode_frame(patched(&prepare, -16, &4096_u32.to_be_bytes()).into()).is_ok());
}

#[test]
fn a_relay_answers_an_operation() {
    for (name, at) in [("reply.relay", 5), ("reply.relay.ack", -54)] {
        let relay = decode(vector(name).into()).unwrap();
        let bytes = patched(&relay, at, &[0; 16]);
        assert_eq!(refusal(bytes), (DecodeErrorKind::InvalidField, "operation id"), "{name}");
    }
    // The union case of a relayed reply is 2, and no other.
    let relay = decode(vector("reply.relay").into()).unwrap();
    assert_eq!(refusal(patched(&relay, 29, &[1])), (DecodeErrorKind::InvalidField, "relay"));
}

#[test]
fn a_follow_notice_has_one_to_eight_hops() {
    let Destination::Spot(route) = message().to else { panic!() };
    let notice = |hops, operation, reply_route| FollowNotice {
        source: route.clone(),
        target: route.clone(),
        hops,
        queued_messages: u32::MAX,
        queued_bytes: 0,
        operation: OperationId(operation),
        reply_route: ReplyRoute(reply_route),
    };
    let good = Record::FollowNotice(notice(8, 1, 2));
    assert_eq!(decode(encode(&good).unwrap()).unwrap(), good);
    assert!(encode(&Record::FollowNotice(notice(1, 0, 0))).is_ok());
    for bad in [notice(0, 1, 2), notice(9, 1, 2), notice(1, 0, 2)] {
        assert!(encode(&Record::FollowNotice(bad)).is_err());
    }
    let invalid = |field| (DecodeErrorKind::InvalidField, field);
    assert_eq!(refusal(patched(&good, -33, &[0])), invalid("hop count"));
    assert_eq!(refusal(patched(&good, -33, &[9])), invalid("hop count"));
    assert_eq!(refusal(patched(&good, -24, &[0; 16])), invalid("operation id"));
    // The envelope's version and length.
    assert_eq!(refusal(patched(&good, 5, &[2])), invalid("notice"));
    let len = u32::try_from(patched(&good, 0, &[]).len() - 10).unwrap();
    assert_eq!(refusal(patched(&good, 6, &(len - 1).to_be_bytes())), (DecodeErrorKind::TruncatedField, "reply route"));
    assert_eq!(refusal(patched(&good, 6, &(len + 1).to_be_bytes())), (DecodeErrorKind::TruncatedField, "notice"));
}

#[test]
fn a_case_is_read_to_its_end_and_no_further() {
    let ready = decode(vector("ready").into()).unwrap();
    // Before the role: the object's case of 0x17 bytes. One less cuts its last field, one more takes the role in.
    assert_eq!(refusal(patched(&ready, -25, &[0x16])), (DecodeErrorKind::TruncatedField, "owner generation"));
    assert_eq!(refusal(patched(&ready, -25, &[0x18])), (DecodeErrorKind::TrailingByte, "object"));
    assert_eq!(refusal(patched(&ready, -26, &[0xFF])), (DecodeErrorKind::TruncatedField, "object"));
}

#[test]
fn a_store_version_has_one_to_4096_bytes() {
    let ready = vector("ready");
    let at = ready.windows(9).position(|window| window == b"\0\x07store-3").unwrap();
    let with = |len: usize| {
        let version = "v".repeat(len);
        let len = u16::try_from(len).unwrap().to_be_bytes();
        [&ready[..at], &len, version.as_bytes(), &ready[at + 9..]].concat()
    };
    assert!(decode_frame(with(4096).into()).is_ok());
    assert_eq!(refusal(with(4097)), (DecodeErrorKind::TooLong, "expected store version"));
    assert_eq!(refusal(with(0)), (DecodeErrorKind::InvalidField, "expected store version"));
}

#[test]
fn link_records_keep_their_bounds() {
    let link = |body| Record::Link(LinkRecord::Ordered { sequence: 0, body });
    let actor = |message: Message| {
        let Destination::Spot(route) = message.to else { panic!() };
        Message { to: Destination::Actor(route), ..message }
    };
    let deliver = |message, hops| link(Ordered::Deliver(Box::new(Delivery { message, deadline: None, hops })));
    let good = deliver(actor(message()), 8);
    assert_eq!(decode(encode(&good).unwrap()).unwrap(), good);
    assert!(encode(&deliver(actor(message()), 9)).is_err());
    let invalid = |field| (DecodeErrorKind::InvalidField, field);
    // Head 4, sequence 8, kind 1, then hops.
    assert_eq!(refusal(patched(&good, 13, &[9])), invalid("hops"));
    assert_eq!(refusal(patched(&good, 12, &[7])), (DecodeErrorKind::UnknownCommand, "ordered kind"));
    // Only actors and spots have messages delivered; kinds that are not run here do not travel this way.
    let node = Message { to: Destination::Node, ..message() };
    assert_eq!(encode(&deliver(node.clone(), 0)).unwrap_err(), EncodeError::Invalid { field: "destination" });
    let node = encode_frozen(&FrozenRecord::Known(Box::new(node))).unwrap().to_bytes();
    let head = patched(&good, 13, &[0])[..15].to_vec();
    assert_eq!(refusal([&head[..], &node].concat()), invalid("destination"));
    assert_eq!(refusal([&head[..], &[7, 1, 2]].concat()), invalid("record kind"));

    let outcome = Outcome::Failure { result: TerminalResult(101), failure: 0, detail: "d".repeat(1024).into() };
    let reply = link(Ordered::Reply(Reply { operation: OperationId(1), reply_route: ReplyRoute(1), outcome }));
    let detail = -1024 - 2;
    assert_eq!(refusal(patched(&reply, detail - 8, &[0; 4])), invalid("terminal result"));
    assert_eq!(refusal(patched(&reply, detail, &[4, 1])), (DecodeErrorKind::TooLong, "detail"));
    assert_eq!(refusal(patched(&reply, -1, &[0xFF])), invalid("detail"));
    let taken = link(Ordered::Taken { operation: OperationId(1) });
    assert_eq!(refusal(patched(&taken, -16, &[0; 16])), invalid("operation id"));
    assert!(encode(&link(Ordered::MarkerBack { marker: OperationId::NONE })).is_err());
}

/// The most address space that this process had so far, in KiB: an allocation shows there even if it is never used.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn lengths_that_lie_take_no_memory() {
    let before = peak();
    let huge = [0xFF; 4];
    let lie = |name: &str, from_end: usize| {
        let mut bytes = vector(name).to_vec();
        let at = bytes.len() - from_end;
        bytes[at..at + 4].copy_from_slice(&huge);
        kind_of(bytes)
    };
    // A chunk, a payload, and a payload envelope of 4 GiB.
    assert_eq!(lie("state.0", 20), DecodeErrorKind::TruncatedField);
    assert_eq!(lie("data", 12), DecodeErrorKind::TruncatedField);
    assert_eq!(lie("data", 45), DecodeErrorKind::TruncatedField);
    // In a stream, where the rest may still come: a payload of 4 GiB, and as many states, messages, timers and ticks.
    let stream = bytes_of(&load("stream.json")["hex"]);
    let payload = stream.windows(8).position(|window| window == b"{\"id\":1}").unwrap() - 4;
    for count in [0x30, payload] {
        let mut bytes = stream.to_vec();
        bytes[count..count + 4].copy_from_slice(&huge);
        let mut decoder = StreamDecoder::new();
        // A count that lies makes the next vector's count part of an element; what counts is that nothing was reserved.
        let _ = decoder.feed(bytes.into());
        assert!(decoder.finish().is_err());
    }
    let grown = peak() - before;
    assert!(grown < 1 << 20, "{grown} KiB");
}
