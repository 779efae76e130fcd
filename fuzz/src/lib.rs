//! The bodies of the fuzz targets. Each takes any bytes and panics only where the core breaks a promise.

use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, OwnerPair, PeerFence};
use rehome::id::{LeaseGeneration, NodeGeneration, ObjectId, OwnerId, RoutingId, StoreVersion, Text8, TypeName};
use rehome::link::{Agreed, Hello, LINK_CAPABILITY, LinkSettings, Mesh, V13_CAPABILITY, V14_CAPABILITY};
use rehome::node::{
    CallId, Conn, Event, Existing, HostCommand, HostReply, Limits, Output, Ticket, Timing, TurnEnd, TypeConfig,
    UserRequest,
};
use rehome::state::Captured;
use rehome::store::record::{AuthorityLayout, AuthorityRecord, DescriptorRecord, LeaseRecord, OwnerRecord};
use rehome::store::{Found, MemoryStore, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{
    Payload, Sender, StreamDecoder, decode as decode_record, encode, encode_stream, parse_authority_key,
};
use rehome::{Config, Input, Node};
use std::collections::VecDeque;
use std::time::Duration;

/// The first byte chooses a decoder. What decodes must encode to what decodes to the same value.
pub fn decode(data: &[u8]) {
    let Some((selector, rest)) = data.split_first() else { return };
    let bytes = Bytes::copy_from_slice(rest);
    match selector % 5 {
        0 => {
            if let Ok(record) = decode_record(bytes.into()) {
                let again = encode(&record).expect("what was decoded can be encoded");
                assert_eq!(decode_record(again).expect("and decoded again"), record);
            }
        }
        1 => stream(&bytes),
        2 => store_records(&bytes),
        3 => link(&bytes),
        _ => {
            if let Ok(text) = std::str::from_utf8(&bytes)
                && let Ok(key) = parse_authority_key(text)
            {
                assert_eq!(rehome::wire::authority_key(&key), text, "one key has one form");
            }
        }
    }
}

fn stream(bytes: &Bytes) {
    let Some((cut, rest)) = bytes.split_first() else { return };
    let rest = bytes.slice_ref(rest);
    let mut whole = StreamDecoder::new();
    let whole = whole.feed(rest.clone()).and_then(|()| whole.finish());
    let mut pieces = StreamDecoder::new();
    let size = usize::from(*cut).max(1);
    let fed = rest.chunks(size).try_for_each(|piece| pieces.feed(rest.slice_ref(piece)));
    let pieces = fed.and_then(|()| pieces.finish());
    assert_eq!(whole.is_ok(), pieces.is_ok(), "the cut decides nothing");
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
        let (again, crc) = encode_stream(&whole).expect("what was decoded can be encoded");
        assert_eq!(again.to_bytes(), rest);
        assert_eq!(crc, Captured::from(rest).crc);
    }
}

fn store_records(bytes: &Bytes) {
    if let Ok(record) = AuthorityRecord::decode(bytes) {
        assert_eq!(AuthorityRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(record) = AuthorityLayout::decode(bytes) {
        assert_eq!(AuthorityLayout::decode(&record.encode()), Ok(record));
    }
    if let Ok(record) = LeaseRecord::decode(bytes) {
        assert_eq!(LeaseRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(record) = OwnerRecord::decode(bytes) {
        assert_eq!(OwnerRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(record) = DescriptorRecord::decode(bytes) {
        assert_eq!(DescriptorRecord::decode(&record.encode()), Ok(record));
    }
}

fn peer(name: &str) -> PeerFence {
    PeerFence {
        node: NodeFence {
            rid: RoutingId::new(name.as_bytes().to_vec()).expect("an id"),
            generation: NodeGeneration::FIRST,
        },
        owner: OwnerPair { owner: OwnerId::new(name).expect("an id"), lease: LeaseGeneration::FIRST },
    }
}

fn mesh(name: &str) -> Mesh {
    let capability = |text| Text8::new(text).expect("a name");
    let hello = Hello {
        peer: peer(name),
        application_version: 1,
        capabilities: vec![capability(V13_CAPABILITY), capability(V14_CAPABILITY), capability(LINK_CAPABILITY)],
        chunk_limit: 1 << 16,
        mesh: Text8::new("fuzz").expect("a name"),
    };
    Mesh::new(hello, LinkSettings::default()).expect("settings that work")
}

/// Two meshes come up; then the bytes come instead of what the peer would have said.
fn link(bytes: &Bytes) {
    let (mut ours, mut theirs) = (mesh("ours"), mesh("theirs"));
    let now = Instant::from_millis(1);
    let (dialed, accepted) = (ours.connect(now, None), theirs.accept(now));
    for _ in 0..6 {
        pass(&mut ours, dialed, &mut theirs, accepted, now);
        pass(&mut theirs, accepted, &mut ours, dialed, now);
    }
    let cut = bytes.first().map_or(1, |first| usize::from(*first).max(1));
    for piece in bytes.chunks(cut) {
        let _ = ours.receive(now, dialed, bytes.slice_ref(piece));
    }
    while ours.poll_event().is_some() {}
    ours.tick(Instant::from_millis(100_000));
    while ours.poll_event().is_some() {}
}

fn pass(from: &mut Mesh, from_conn: rehome::link::Conn, to: &mut Mesh, to_conn: rehome::link::Conn, now: Instant) {
    let mut slices = Vec::new();
    from.transmit(from_conn, &mut slices);
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    drop(slices);
    from.transmitted(now, from_conn, bytes.len()).expect("what was offered");
    if !bytes.is_empty() {
        let _ = to.receive(now, to_conn, bytes.into());
    }
}

/// Reads choices from the input; zeros follow its end.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// A node under any sequence of inputs, sensible or not: it never panics, its receipts balance, and every call ends at
/// most once.
pub fn node(data: &[u8]) {
    let mut choices = Choices(data);
    let mut now = Now { mono: Instant::from_millis(1000), wall: UnixMillis(1_000_000) };
    let config = Config {
        node: peer("ours").node,
        owner: OwnerId::new("ours").expect("an id"),
        mesh: Text8::new("fuzz").expect("a name"),
        endpoint: String::new(),
        application_version: 1,
        types: [(TypeName::new("thing").expect("a name"), TypeConfig::default())].into(),
        seed: 3,
        timing: Timing::default(),
        limits: Limits { terminal_memory: 2, mailbox: 4, route_queue: 4, ..Limits::default() },
    };
    let mut node = Node::new(now, config).expect("a configuration that works");
    let mut store = MemoryStore::new();
    let mut pending: VecDeque<Input> = VecDeque::new();
    let mut open = std::collections::BTreeSet::new();
    let mut calls = 0;
    while let Some(choice) = choices.byte() {
        let input = match choice % 12 {
            0..=3 => match pending.pop_front() {
                Some(input) => input,
                None => Input::Tick,
            },
            4 => {
                let millis = u64::from(choices.byte().unwrap_or(0)).pow(2);
                now.mono = now.mono.after(Duration::from_millis(millis));
                now.wall = now.wall.after(Duration::from_millis(millis));
                Input::Tick
            }
            5 => {
                let count = usize::from(choices.byte().unwrap_or(0));
                let bytes = Bytes::copy_from_slice(choices.take(count));
                match decode_record(bytes.into()) {
                    Ok(record) => Input::Record { conn: Conn(1), record },
                    Err(_) => Input::Tick,
                }
            }
            6 => Input::PeerUp {
                conn: Conn(1),
                peer: peer("theirs"),
                agreed: Agreed {
                    capabilities: Default::default(),
                    chunk_limit: Some(64),
                    application_version: 1,
                    link: choice & 64 == 0,
                    v14: choice & 128 == 0,
                },
            },
            7 => Input::PeerDown { conn: Conn(1) },
            8 => Input::Store {
                ticket: Ticket(u64::from(choices.byte().unwrap_or(0))),
                reply: match choices.byte().unwrap_or(0) % 5 {
                    0 => StoreReply::Missing,
                    1 => StoreReply::Conflict,
                    2 => StoreReply::Applied(vec![StoreVersion::new("9").expect("a version")]),
                    3 => StoreReply::Found(Found {
                        value: Bytes::from_static(b"{}"),
                        version: StoreVersion::new("8").expect("a version"),
                        ttl: None,
                    }),
                    _ => StoreReply::Unknown,
                },
            },
            // The answer of a command is lost.
            9 => match pending.pop_front() {
                Some(Input::Store { ticket, .. }) => Input::Store { ticket, reply: StoreReply::Unknown },
                Some(input) => input,
                None => Input::Tick,
            },
            // The answers change places.
            10 => {
                pending.rotate_left(1.min(pending.len()));
                Input::Tick
            }
            _ => {
                calls += 1;
                let call = CallId(calls);
                open.insert(call);
                Input::User { call, request: request(choices.byte().unwrap_or(0), calls) }
            }
        };
        node.handle(now, input).expect("no misuse");
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { send, .. } => pending.push_back(Input::Sent { send, written: choice & 32 == 0 }),
                Output::Store { ticket, command, .. } => {
                    pending.push_back(Input::Store { ticket, reply: store.apply(now.mono, &command) });
                }
                Output::Host { ticket, command } => {
                    let reply = match command {
                        HostCommand::SizeHint { .. } => HostReply::Size(u64::from(choice)),
                        HostCommand::Capture { .. } => HostReply::Captured(Some(Captured::default())),
                        HostCommand::Activate { .. }
                        | HostCommand::Restore { .. }
                        | HostCommand::Open { .. }
                        | HostCommand::Resume { .. }
                        | HostCommand::Retire { .. }
                        | HostCommand::Discard { .. } => HostReply::Done,
                    };
                    pending.push_back(Input::Host { ticket, reply });
                }
                Output::Turn(turn) => {
                    pending.push_back(Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: None } });
                }
                Output::Done { call, .. } => assert!(open.remove(&call), "a call ended twice"),
                Output::Event(Event::Unbalanced { relocation }) => panic!("{relocation} does not balance"),
                Output::Drop { .. } | Output::Progress { .. } | Output::Event(_) => {}
            }
        }
    }
}

fn request(choice: u8, calls: u64) -> UserRequest {
    let object = ObjectKey::actor(ObjectId::new(if choice & 64 == 0 { "one" } else { "two" }).expect("an id"));
    let name = Text8::new("hit").expect("a name");
    let payload = Payload { name: name.clone(), content_type: name, bytes: Bytes::new() };
    match choice % 8 {
        0 => UserRequest::Create {
            object,
            type_name: TypeName::new("thing").expect("a name"),
            arguments: Bytes::new(),
            existing: if choice & 32 == 0 { Existing::Refuse } else { Existing::Use },
        },
        1 => UserRequest::Send { from: Sender::Node, to: object, payload },
        2 => UserRequest::Request { from: Sender::Node, to: object, payload, timeout: Duration::from_millis(900) },
        3 => UserRequest::Relocate { object, target: peer("theirs").node.rid, timeout: None },
        4 => UserRequest::Delete { object },
        5 => UserRequest::Reclaim { object, arguments: Bytes::new() },
        6 => UserRequest::CancelMove { relocate: CallId(calls.saturating_sub(u64::from(choice >> 4))) },
        _ => {
            if choice > 250 {
                UserRequest::Shutdown { timeout: Duration::from_secs(5) }
            } else {
                UserRequest::Locate { object }
            }
        }
    }
}
