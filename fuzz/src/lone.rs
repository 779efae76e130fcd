//! One node under any sequence of inputs, sensible or not: answers that no store gives, records that no peer sends.
//!
//! Faults, besides panics: a receipt that does not balance, and a call that ends twice.

use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, OwnerPair, PeerFence};
use rehome::id::{LeaseGeneration, NodeGeneration, ObjectId, OwnerId, RoutingId, StoreVersion, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::{
    CallId, Conn, Event, Existing, HostCommand, HostReply, Limits, Output, Ticket, Timing, TurnEnd, TypeConfig,
    UserRequest,
};
use rehome::state::Captured;
use rehome::store::{Found, MemoryStore, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{Payload, Sender, decode};
use rehome::{Config, Input, Node};
use std::collections::VecDeque;
use std::time::Duration;

fn peer(name: &str) -> PeerFence {
    PeerFence {
        node: NodeFence {
            rid: RoutingId::new(name.as_bytes().to_vec()).expect("an id"),
            generation: NodeGeneration::FIRST,
        },
        owner: OwnerPair { owner: OwnerId::new(name).expect("an id"), lease: LeaseGeneration::FIRST },
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
pub fn run(data: &[u8]) {
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
                match decode(bytes.into()) {
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
