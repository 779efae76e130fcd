//! Two nodes and a store in one loop, for the benches: an object is moved between them again and again.

use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey};
use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::{
    CallId, CallResult, Conn, Existing, HostCommand, HostReply, Limits, MoveOutcome, Output, Timing, TypeConfig,
    UserRequest,
};
use rehome::state::Captured;
use rehome::store::MemoryStore;
use rehome::time::{Instant, Now, UnixMillis};
use rehome::{Config, Input, Node};
use std::collections::VecDeque;

/// A pair of nodes whose records are handed over as values.
#[derive(Debug)]
pub struct Pair {
    nodes: [Node; 2],
    store: MemoryStore,
    state: Bytes,
    inputs: VecDeque<(usize, Input)>,
    calls: u64,
    owner: usize,
    clock: u64,
    /// Inputs handled so far.
    pub events: u64,
}

fn id<T>(made: Result<T, rehome::id::IdError>) -> T {
    made.unwrap_or_else(|error| panic!("a constant id: {error}"))
}

fn key() -> ObjectKey {
    ObjectKey::actor(id(ObjectId::new("moving")))
}

fn rid(index: usize) -> RoutingId {
    id(RoutingId::new(vec![b'a' + u8::try_from(index).unwrap_or(0)]))
}

impl Pair {
    /// Two connected nodes; the first has an object with `state_bytes` of state.
    pub fn new(state_bytes: usize) -> Self {
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_760_000_000_000) };
        let node = |index: usize| {
            let config = Config {
                node: NodeFence { rid: rid(index), generation: NodeGeneration::FIRST },
                owner: id(OwnerId::new(&format!("owner-{index}"))),
                mesh: id(Text8::new("bench")),
                endpoint: String::new(),
                application_version: 1,
                types: [(id(TypeName::new("thing")), TypeConfig { state_limit: u64::MAX, ..TypeConfig::default() })]
                    .into(),
                seed: 7 + index as u128,
                timing: Timing { follow: std::time::Duration::ZERO, ..Timing::default() },
                limits: Limits::default(),
            };
            Node::new(now, config).unwrap_or_else(|error| panic!("{error}"))
        };
        let mut pair = Self {
            nodes: [node(0), node(1)],
            store: MemoryStore::new(),
            state: vec![7; state_bytes].into(),
            inputs: VecDeque::new(),
            calls: 0,
            owner: 0,
            clock: 0,
            events: 0,
        };
        pair.run();
        for me in 0..2 {
            let peer = pair.nodes[1 - me].peer_identity().unwrap_or_else(|| panic!("no lease"));
            let agreed = Agreed {
                capabilities: Default::default(),
                chunk_limit: Some(256 << 10),
                application_version: 1,
                link: true,
                v14: true,
            };
            let now = pair.now();
            let up = Input::PeerUp { conn: Conn(0), peer, agreed };
            pair.nodes[me].handle(now, up).unwrap_or_else(|error| panic!("{error}"));
        }
        pair.run();
        pair.user(
            0,
            UserRequest::Create {
                object: key(),
                type_name: id(TypeName::new("thing")),
                arguments: Bytes::new(),
                existing: Existing::Refuse,
            },
        );
        pair.run();
        pair
    }

    fn now(&self) -> Now {
        Now { mono: Instant::from_nanos(self.clock), wall: UnixMillis(1_760_000_000_000 + self.clock / 1_000_000) }
    }

    fn user(&mut self, node: usize, request: UserRequest) {
        self.calls += 1;
        self.inputs.push_back((node, Input::User { call: CallId(self.calls), request }));
    }

    /// Moves the object to the other node and back to rest.
    pub fn relocate(&mut self) {
        let target = 1 - self.owner;
        self.user(self.owner, UserRequest::Relocate { object: key(), target: rid(target), timeout: None });
        assert!(self.run(), "the object did not move");
        self.owner = target;
    }

    /// Says whether a move ended at its target.
    fn run(&mut self) -> bool {
        let mut moved = false;
        loop {
            for me in 0..2 {
                while let Some(output) = self.nodes[me].poll_output() {
                    moved |= self.output(me, output);
                }
            }
            self.clock += 100;
            let now = self.now();
            match self.inputs.pop_front() {
                Some((node, input)) => {
                    self.events += 1;
                    self.nodes[node].handle(now, input).unwrap_or_else(|error| panic!("{error}"));
                }
                None => return moved,
            }
        }
    }

    fn output(&mut self, me: usize, output: Output) -> bool {
        match output {
            Output::Send { conn, send, record, .. } => {
                self.inputs.push_back((1 - me, Input::Record { conn, record }));
                self.inputs.push_back((me, Input::Sent { send, written: true }));
            }
            Output::Store { ticket, command, .. } => {
                let reply = self.store.apply(self.now().mono, &command);
                self.inputs.push_back((me, Input::Store { ticket, reply }));
            }
            Output::Host { ticket, command } => {
                let reply = match command {
                    HostCommand::SizeHint { .. } => HostReply::Size(self.state.len() as u64),
                    HostCommand::Capture { .. } => HostReply::Captured(Some(Captured::from(self.state.clone()))),
                    HostCommand::Activate { .. }
                    | HostCommand::Restore { .. }
                    | HostCommand::Open { .. }
                    | HostCommand::Resume { .. }
                    | HostCommand::Retire { .. }
                    | HostCommand::Discard { .. } => HostReply::Done,
                };
                self.inputs.push_back((me, Input::Host { ticket, reply }));
            }
            Output::Done { result, .. } => {
                return matches!(result, CallResult::Moved(Ok(MoveOutcome::Moved { .. })));
            }
            Output::Drop { .. } | Output::Turn(_) | Output::Progress { .. } | Output::Event(_) => {}
        }
        false
    }
}
