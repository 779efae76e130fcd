//! Two nodes, a store in memory, and a counter that moves between them under traffic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey};
use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::*;
use rehome::state::Captured;
use rehome::store::MemoryStore;
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{FailureCode, Outcome, Payload, Sender};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

struct World {
    nodes: Vec<Node>,
    store: MemoryStore,
    now: u64,
    wires: VecDeque<(usize, Input)>,
    peers: Vec<Option<rehome::fence::PeerFence>>,
    objects: BTreeMap<(usize, rehome::fence::Tenure), u64>,
    done: BTreeMap<(usize, CallId), CallResult>,
    next_call: u64,
}

fn payload(text: &str) -> Payload {
    Payload {
        name: Text8::new("n").unwrap(),
        content_type: Text8::new("t").unwrap(),
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn config(index: usize) -> Config {
    let rid = RoutingId::new(vec![b'a' + index as u8]).unwrap();
    Config {
        node: NodeFence { rid, generation: NodeGeneration::new(7 + index as u64).unwrap() },
        owner: OwnerId::new(&format!("owner-{index}")).unwrap(),
        mesh: Text8::new("m").unwrap(),
        endpoint: String::new(),
        application_version: 1,
        types: [(TypeName::new("counter").unwrap(), TypeConfig::default())].into(),
        seed: 1234 + index as u128,
        timing: Timing::default(),
        limits: Limits::default(),
    }
}

impl World {
    fn new(count: usize) -> Self {
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_000_000) };
        let mut world = Self {
            nodes: (0..count).map(|i| Node::new(now, config(i)).unwrap()).collect(),
            store: MemoryStore::new(),
            now: 0,
            wires: VecDeque::new(),
            peers: vec![None; count],
            objects: BTreeMap::new(),
            done: BTreeMap::new(),
            next_call: 0,
        };
        world.settle();
        for a in 0..count {
            for b in 0..count {
                if a != b {
                    let peer = world.peers[b].clone().unwrap();
                    let agreed = Agreed {
                        capabilities: BTreeSet::new(),
                        chunk_limit: Some(4096),
                        application_version: 1,
                        link: true,
                        v14: true,
                    };
                    world.feed(a, Input::PeerUp { conn: Conn(b as u64), peer, agreed });
                }
            }
        }
        world.settle();
        world
    }

    fn time(&self) -> Now {
        Now { mono: Instant::from_nanos(self.now), wall: UnixMillis(1_000_000 + self.now / 1_000_000) }
    }

    fn feed(&mut self, node: usize, input: Input) {
        let now = self.time();
        self.nodes[node].handle(now, input).unwrap();
    }

    fn user(&mut self, node: usize, request: UserRequest) -> CallId {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.feed(node, Input::User { call, request });
        call
    }

    fn outputs(&mut self) -> bool {
        let mut any = false;
        for node in 0..self.nodes.len() {
            while let Some(output) = self.nodes[node].poll_output() {
                any = true;
                match output {
                    Output::Send { conn, send, record, .. } => {
                        self.wires.push_back((conn.0 as usize, Input::Record { conn: Conn(node as u64), record }));
                        self.wires.push_back((node, Input::Sent { send, written: true }));
                    }
                    Output::Drop { .. } | Output::Progress { .. } => {}
                    Output::Store { ticket, command, .. } => {
                        let reply = self.store.apply(Instant::from_nanos(self.now), &command);
                        self.wires.push_back((node, Input::Store { ticket, reply }));
                    }
                    Output::Host { ticket, command } => {
                        let reply = self.host(node, command);
                        self.wires.push_back((node, Input::Host { ticket, reply }));
                    }
                    Output::Turn(turn) => {
                        let count = self.objects.get_mut(&(node, turn.tenure.clone())).expect("no such object");
                        *count += 1;
                        let reply = Some(Outcome::Answer(payload(&count.to_string())));
                        self.wires.push_back((node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply } }));
                    }
                    Output::Done { call, result } => {
                        assert!(self.done.insert((node, call), result).is_none());
                    }
                    Output::Event(event) => {
                        if let Event::Serving { peer } = &event {
                            self.peers[node] = Some(peer.clone());
                        }
                        assert!(!matches!(event, Event::Unbalanced { .. }), "{event:?}");
                    }
                }
            }
        }
        any
    }

    fn host(&mut self, node: usize, command: HostCommand) -> HostReply {
        match command {
            HostCommand::Activate { tenure, .. } => {
                self.objects.insert((node, tenure), 0);
                HostReply::Done
            }
            HostCommand::SizeHint { .. } => HostReply::Size(8),
            HostCommand::Capture { tenure } => {
                let count = self.objects[&(node, tenure)];
                HostReply::Captured(Some(Captured::from(Bytes::copy_from_slice(&count.to_be_bytes()))))
            }
            HostCommand::Restore { tenure, state, .. } => match state.map(|state| state.to_bytes().to_vec().try_into())
            {
                Some(Ok(bytes)) => {
                    self.objects.insert((node, tenure), u64::from_be_bytes(bytes));
                    HostReply::Done
                }
                _ => HostReply::Failed { code: FailureCode::DATA_LOST, detail: String::new() },
            },
            HostCommand::Open { .. } | HostCommand::Resume { .. } => HostReply::Done,
            HostCommand::Retire { tenure } | HostCommand::Discard { tenure } => {
                self.objects.remove(&(node, tenure));
                HostReply::Done
            }
        }
    }

    fn step(&mut self) -> bool {
        let outputs = self.outputs();
        match self.wires.pop_front() {
            Some((node, input)) => {
                self.feed(node, input);
                true
            }
            None => outputs,
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by.as_nanos() as u64;
        loop {
            self.settle();
            let next = self.nodes.iter().filter_map(Node::deadline).min().map(Instant::as_nanos);
            match next {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    for node in 0..self.nodes.len() {
                        self.feed(node, Input::Tick);
                    }
                }
                _ => break,
            }
        }
        self.now = end;
    }
}

fn key() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("c").unwrap())
}

fn request() -> UserRequest {
    UserRequest::Request { from: Sender::Node, to: key(), payload: payload("x"), timeout: Duration::from_secs(5) }
}

#[test]
fn an_object_moves_there_and_back_while_requests_arrive() {
    let mut world = World::new(2);
    let create = UserRequest::Create {
        object: key(),
        type_name: TypeName::new("counter").unwrap(),
        arguments: Bytes::new(),
        existing: Existing::Refuse,
    };
    let call = world.user(0, create);
    world.settle();
    assert!(matches!(world.done[&(0, call)], CallResult::Created(Ok(Created { new: true, .. }))));
    let mut calls = Vec::new();
    for round in 0..10usize {
        let (source, target) = (round % 2, (round + 1) % 2);
        let target_rid = RoutingId::new(vec![b'a' + target as u8]).unwrap();
        calls.push((0, world.user(0, request())));
        let relocate = world.user(source, UserRequest::Relocate { object: key(), target: target_rid, timeout: None });
        for _ in 0..60 {
            world.step();
            calls.push((1, world.user(1, request())));
            calls.push((0, world.user(0, request())));
        }
        world.advance(Duration::from_secs(1));
        let moved = &world.done[&(source, relocate)];
        assert!(matches!(moved, CallResult::Moved(Ok(MoveOutcome::Moved { route: Some(_), .. }))), "{moved:?}");
    }
    world.advance(Duration::from_secs(10));
    let mut answers = [Vec::new(), Vec::new()];
    for (node, call) in &calls {
        match &world.done[&(*node, *call)] {
            CallResult::Answered(Ok(payload)) => {
                answers[*node].push(std::str::from_utf8(&payload.bytes).unwrap().parse::<u64>().unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    for node in &answers {
        assert!(node.is_sorted(), "one sender's messages were reordered: {node:?}");
    }
    let mut all: Vec<u64> = answers.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=calls.len() as u64).collect::<Vec<_>>());
    world.advance(Duration::from_secs(60));
    for node in &world.nodes {
        let held = node.held();
        assert_eq!(
            (
                held.moves,
                held.follows,
                held.stages,
                held.budget_bytes,
                held.relays,
                held.calls,
                held.routed,
                held.queued
            ),
            (0, 0, 0, 0, 0, 0, 0, 0),
            "{held:?}"
        );
    }
    assert_eq!(world.objects.len(), 1);
}
