//! The world: nodes, connections, a store, hosts, clients and a user, on one virtual clock. One event at a time; the
//! oracles look after each.

use crate::chance::Chance;
use crate::host::{Thing, message, read_message};
use crate::oracle::{Oracle, authority};
use crate::profile::Profile;
use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, PeerFence, Tenure};
use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::{
    CallError, CallId, CallResult, Conn, Event, Existing, HostCommand, HostReply, Limits, MoveOutcome, Output, SendId,
    Ticket, Timing, Turn, TurnEnd, TypeConfig, UserRequest,
};
use rehome::state::Captured;
use rehome::store::record::{authority_key, lease_key};
use rehome::store::{MemoryStore, Mutation, StoreCommand, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{FailureCode, Outcome, Payload, Record, Sender};
use rehome::{Config, Input, Node};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;

/// What one history was.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Moves that ended at their target.
    pub moved: u64,
    /// Moves whose object stayed.
    pub kept: u64,
    /// Moves refused before the object stopped.
    pub refused: u64,
    /// Moves lost with their source's lease.
    pub lost: u64,
    /// Turns that ran.
    pub turns: u64,
    /// Requests answered.
    pub answered: u64,
    /// Events handled.
    pub events: u64,
    /// Faults that were made, by name.
    pub made: BTreeMap<&'static str, u64>,
    /// A hash over every input of every node.
    pub trace: u64,
    /// What the oracles found.
    pub faults: Vec<String>,
    /// The last inputs and outputs, for people.
    pub tail: String,
}

#[derive(Debug)]
enum Act {
    Input { node: usize, run: u64, input: Input },
    Deliver { from: usize, to: usize, epoch: u64, record: Record, send: Option<SendId> },
    Apply { node: usize, run: u64, ticket: Option<Ticket>, command: StoreCommand },
    TurnEnd { node: usize, run: u64, turn: Box<Turn> },
    Connect { a: usize, b: usize },
    Resume { node: usize },
    Restart { node: usize },
    User,
    Recover { object: usize },
    Away { over: bool },
}

struct Place {
    node: Option<Node>,
    run: u64,
    paused: bool,
    inbox: VecDeque<Input>,
    peer: Option<PeerFence>,
    things: BTreeMap<Tenure, Thing>,
    skew: i64,
    client: u64,
    numbers: BTreeMap<usize, u64>,
}

struct Pending {
    object: usize,
    client: u64,
    number: u64,
    by: Option<u64>,
}

/// A cluster and everything around it.
pub struct World {
    profile: Profile,
    chance: Chance,
    now: u64,
    sequence: u64,
    acts: BTreeMap<(u64, u64), Act>,
    places: Vec<Place>,
    store: MemoryStore,
    away: bool,
    links: BTreeMap<(usize, usize), (u64, bool)>,
    last_delivery: BTreeMap<(usize, usize), u64>,
    objects: usize,
    calls: BTreeMap<(usize, u64, CallId), Pending>,
    moves: BTreeSet<(usize, u64, CallId)>,
    next_call: u64,
    next_client: u64,
    healing: bool,
    user_acts: u64,
    oracle: Oracle,
    summary: Summary,
    lines: VecDeque<String>,
    /// Lines of the trace that are kept for a failure.
    keep: usize,
}

fn payload(bytes: Bytes) -> Payload {
    let name = Text8::new("hit").expect("a valid name");
    Payload { content_type: name.clone(), name, bytes }
}

fn key(object: usize) -> ObjectKey {
    ObjectKey::actor(ObjectId::new(&format!("object-{object}")).expect("a valid id"))
}

fn rid(node: usize) -> RoutingId {
    RoutingId::new(format!("n{node}").into_bytes()).expect("a valid id")
}

/// Runs the history of `seed`: `acts` actions of the user, then everything heals and must come to rest.
pub fn run(profile: Profile, seed: u64, acts: u64) -> Summary {
    let mut world = World::new(profile, seed, acts);
    world.live();
    world.heal();
    world.finish()
}

impl World {
    /// A world at its beginning.
    pub fn new(profile: Profile, seed: u64, acts: u64) -> Self {
        let mut chance = Chance::new(seed);
        let nodes = 2 + chance.below(2) as usize;
        let objects = 1 + chance.below(4) as usize;
        let mut world = Self {
            profile,
            chance,
            now: SECOND,
            sequence: 0,
            acts: BTreeMap::new(),
            places: Vec::new(),
            store: MemoryStore::new(),
            away: false,
            links: BTreeMap::new(),
            last_delivery: BTreeMap::new(),
            objects,
            calls: BTreeMap::new(),
            moves: BTreeSet::new(),
            next_call: 0,
            next_client: 0,
            // The beginning is calm: what is tried is what comes after it.
            healing: true,
            user_acts: acts,
            oracle: Oracle::default(),
            summary: Summary::default(),
            lines: VecDeque::new(),
            keep: std::env::var("REHOME_TRACE").ok().and_then(|lines| lines.parse().ok()).unwrap_or(40),
        };
        for node in 0..nodes {
            world.places.push(Place {
                node: None,
                run: 0,
                paused: false,
                inbox: VecDeque::new(),
                peer: None,
                things: BTreeMap::new(),
                skew: 0,
                client: 0,
                numbers: BTreeMap::new(),
            });
            world.start(node);
        }
        world.until(world.now + SECOND);
        for object in 0..objects {
            let node = object % nodes;
            let request = UserRequest::Create {
                object: key(object),
                type_name: TypeName::new("thing").expect("a valid name"),
                arguments: Bytes::new(),
                existing: Existing::Refuse,
            };
            world.user(node, request);
        }
        world.until(world.now + SECOND);
        world.healing = false;
        world.schedule(1, Act::User);
        world
    }

    fn config(&mut self, node: usize) -> Config {
        let mut limits = Limits::default();
        let mut timing =
            Timing { operation: Duration::from_secs(12), follow: Duration::from_secs(8), ..Timing::default() };
        if self.profile.tiny {
            limits = Limits { chunk: 24, peer_budget: 30, node_budget: 40, terminal_memory: 1, ..limits };
            timing.seal_limit = Duration::from_millis(300);
        }
        Config {
            node: NodeFence {
                rid: rid(node),
                generation: NodeGeneration::new(1 + self.places[node].run).expect("a valid generation"),
            },
            owner: OwnerId::new(&format!("owner-{node}")).expect("a valid id"),
            mesh: Text8::new("world").expect("a valid name"),
            endpoint: String::new(),
            application_version: 1,
            types: [(TypeName::new("thing").expect("a valid name"), TypeConfig::default())].into(),
            seed: u128::from(self.chance.next()) << 64 | u128::from(self.chance.next()),
            timing,
            limits,
        }
    }

    fn clock(&self, node: usize) -> Now {
        let wall = (1_700_000_000_000 + self.now / MILLI).saturating_add_signed(self.places[node].skew);
        Now { mono: Instant::from_nanos(self.now), wall: UnixMillis(wall) }
    }

    fn schedule(&mut self, delay: u64, act: Act) {
        self.sequence += 1;
        self.acts.insert((self.now + delay, self.sequence), act);
    }

    fn made(&mut self, fault: &'static str) {
        *self.summary.made.entry(fault).or_default() += 1;
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        let at = self.now as f64 / MILLI as f64;
        let mut text = format!("{at:>12.3} ms  ");
        text.push_str(&line());
        text.truncate(text.floor_char_boundary(if self.keep > 1000 { 3000 } else { 420 }));
        self.lines.push_back(text);
    }

    fn start(&mut self, node: usize) {
        let config = self.config(node);
        let clock = self.clock(node);
        self.next_client += 1;
        let place = &mut self.places[node];
        place.run += 1;
        place.node = Some(Node::new(clock, config).expect("a configuration that works"));
        place.paused = false;
        place.inbox.clear();
        place.things.clear();
        place.peer = None;
        place.client = self.next_client;
        place.numbers.clear();
        self.outputs(node);
    }

    /// One input of one node, then everything that follows from it.
    fn feed(&mut self, node: usize, input: Input) {
        if self.places[node].paused {
            self.places[node].inbox.push_back(input);
            return;
        }
        let clock = self.clock(node);
        self.note(|| format!("n{node} <- {input:?}"));
        let Some(core) = self.places[node].node.as_mut() else { return };
        core.handle(clock, input).expect("no misuse");
        self.summary.events += 1;
        self.outputs(node);
    }

    fn outputs(&mut self, node: usize) {
        while let Some(output) = self.places[node].node.as_mut().and_then(Node::poll_output) {
            self.note(|| format!("n{node} -> {output:?}"));
            let tag = format!("{node}{output:?}");
            for byte in tag.as_bytes().iter().step_by(7) {
                self.summary.trace = self.summary.trace.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9E37_79B9);
            }
            self.output(node, output);
        }
    }

    fn output(&mut self, node: usize, output: Output) {
        let run = self.places[node].run;
        match output {
            Output::Send { conn, send, record, .. } => self.send(node, conn, send, record),
            Output::Drop { conn, .. } => {
                let other = (conn.0 % 100) as usize;
                self.cut(node, other);
            }
            Output::Store { ticket, command, give_up } => self.store_command(node, ticket, command, give_up),
            Output::Host { ticket, command } => {
                let reply = self.host(node, command);
                let delay = self.chance.below(2 * MILLI);
                self.schedule(delay, Act::Input { node, run, input: Input::Host { ticket, reply } });
            }
            Output::Turn(turn) => {
                let slow = !self.healing && self.chance.hits(self.profile.slow_turn);
                let delay = if slow { 3 * SECOND } else { self.chance.below(MILLI) };
                if slow {
                    self.made("slow turn");
                }
                self.schedule(delay, Act::TurnEnd { node, run, turn: Box::new(turn) });
            }
            Output::Done { call, result } => self.done(node, call, result),
            Output::Progress { .. } => {}
            Output::Event(event) => self.event(node, event),
        }
    }

    fn event(&mut self, node: usize, event: Event) {
        match event {
            Event::Serving { peer } => {
                self.places[node].peer = Some(peer);
                for other in 0..self.places.len() {
                    if other != node {
                        let delay = 1 + self.chance.below(20 * MILLI);
                        self.schedule(delay, Act::Connect { a: node.min(other), b: node.max(other) });
                    }
                }
            }
            Event::Over { .. } => {
                self.disconnect_all(node);
                self.schedule(200 * MILLI, Act::Restart { node });
            }
            Event::SourceEnded { receipt, .. } => self.oracle.source_receipt(&receipt),
            Event::TargetEnded { receipt, .. } => self.oracle.target_receipt(&receipt),
            Event::OrderGap { object } => {
                self.made("order gap");
                self.oracle.gaps.insert(object);
            }
            Event::Unbalanced { relocation } => self.oracle.fault(format!("unbalanced {relocation}")),
            _ => {}
        }
    }

    // --- connections ---

    fn send(&mut self, node: usize, conn: Conn, send: SendId, record: Record) {
        let run = self.places[node].run;
        let other = (conn.0 % 100) as usize;
        let pair = (node.min(other), node.max(other));
        let (epoch, up) = self.links.get(&pair).copied().unwrap_or((0, false));
        let written = up && conn.0 / 100 == epoch;
        if !written {
            self.schedule(1, Act::Input { node, run, input: Input::Sent { send, written: false } });
            return;
        }
        let published = !matches!(record, Record::Link(_));
        if published && !self.healing {
            if self.chance.hits(self.profile.duplicate) {
                self.made("duplicated record");
                let delay = self.chance.below(50 * MILLI);
                self.schedule(
                    delay,
                    Act::Deliver { from: node, to: other, epoch: 0, record: record.clone(), send: None },
                );
            }
            if self.chance.hits(self.profile.late) {
                self.made("late record");
                let delay = self.chance.below(8 * SECOND);
                self.schedule(
                    delay,
                    Act::Deliver { from: node, to: other, epoch: 0, record: record.clone(), send: None },
                );
            }
        }
        let at = self.now + 50_000 + self.chance.below(MILLI);
        let last = self.last_delivery.entry((node, other)).or_default();
        *last = at.max(*last + 1);
        let delay = *last - self.now;
        self.schedule(delay, Act::Deliver { from: node, to: other, epoch, record, send: Some(send) });
        if !self.healing && self.chance.hits(self.profile.cut) {
            self.made("connection cut");
            self.cut(node, other);
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        let pair = (a.min(b), a.max(b));
        let Some(link) = self.links.get_mut(&pair) else { return };
        if !link.1 {
            return;
        }
        link.1 = false;
        let epoch = link.0;
        for (node, other) in [(pair.0, pair.1), (pair.1, pair.0)] {
            let run = self.places[node].run;
            let conn = Conn(epoch * 100 + other as u64);
            // One side may notice later than the other.
            let delay = 1 + self.chance.below(30 * MILLI);
            self.schedule(delay, Act::Input { node, run, input: Input::PeerDown { conn } });
        }
        let delay = 40 * MILLI + self.chance.below(300 * MILLI);
        self.schedule(delay, Act::Connect { a: pair.0, b: pair.1 });
    }

    fn disconnect_all(&mut self, node: usize) {
        for other in 0..self.places.len() {
            if other != node {
                self.cut(node, other);
            }
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        let (Some(peer_a), Some(peer_b)) = (self.places[a].peer.clone(), self.places[b].peer.clone()) else { return };
        if self.places[a].node.is_none()
            || self.places[b].node.is_none()
            || self.places[a].paused
            || self.places[b].paused
        {
            self.schedule(300 * MILLI, Act::Connect { a, b });
            return;
        }
        let link = self.links.entry((a, b)).or_default();
        if link.1 {
            return;
        }
        link.0 += 1;
        link.1 = true;
        let epoch = link.0;
        let limit = if self.profile.tiny { 24 } else { 4096 };
        let agreed = |peer: &PeerFence| Agreed {
            capabilities: BTreeSet::new(),
            chunk_limit: (peer.node.generation.get() % 2 == 1).then_some(limit),
            application_version: 1,
            link: true,
            v14: true,
        };
        let (to_a, to_b) = (agreed(&peer_b), agreed(&peer_a));
        self.feed(a, Input::PeerUp { conn: Conn(epoch * 100 + b as u64), peer: peer_b, agreed: to_a });
        self.feed(b, Input::PeerUp { conn: Conn(epoch * 100 + a as u64), peer: peer_a, agreed: to_b });
    }

    fn deliver(&mut self, from: usize, to: usize, epoch: u64, record: Record, send: Option<SendId>) {
        let pair = (from.min(to), from.max(to));
        let (now_epoch, up) = self.links.get(&pair).copied().unwrap_or((0, false));
        let current = up && (epoch == 0 || epoch == now_epoch);
        if let Some(send) = send {
            let run = self.places[from].run;
            self.schedule(0, Act::Input { node: from, run, input: Input::Sent { send, written: current } });
        }
        if current {
            self.feed(to, Input::Record { conn: Conn(now_epoch * 100 + from as u64), record });
        }
    }

    // --- store ---

    fn store_command(&mut self, node: usize, ticket: Ticket, command: StoreCommand, give_up: Instant) {
        let run = self.places[node].run;
        let unknown = |world: &mut Self| {
            let delay = give_up.as_nanos().saturating_sub(world.now).max(1);
            world.schedule(delay, Act::Input { node, run, input: Input::Store { ticket, reply: StoreReply::Unknown } });
        };
        if self.away {
            return unknown(self);
        }
        let delay = 20_000 + self.chance.below(400_000);
        if !self.healing {
            let write = matches!(command, StoreCommand::Write(_));
            if self.chance.hits(self.profile.store_lost_before) {
                self.made("store command lost");
                return unknown(self);
            }
            if self.chance.hits(self.profile.store_lost_after) {
                self.made("store reply lost");
                self.schedule(delay, Act::Apply { node, run, ticket: None, command });
                return unknown(self);
            }
            if write && self.chance.hits(self.profile.store_late) {
                self.made("store write applied late");
                let late = self.chance.below(9 * SECOND);
                self.schedule(late, Act::Apply { node, run, ticket: None, command });
                return unknown(self);
            }
            if write && self.chance.hits(self.profile.store_conflict) {
                self.made("store conflict");
                let input = Input::Store { ticket, reply: StoreReply::Conflict };
                self.schedule(delay, Act::Input { node, run, input });
                return;
            }
        }
        self.schedule(delay, Act::Apply { node, run, ticket: Some(ticket), command });
    }

    fn apply(&mut self, node: usize, run: u64, ticket: Option<Ticket>, command: &StoreCommand) {
        let now = Instant::from_nanos(self.now);
        let keys: Vec<_> = match command {
            StoreCommand::Write(batch) => batch
                .mutations
                .iter()
                .map(Mutation::key)
                .filter(|key| key.0.starts_with(b"authority"))
                .cloned()
                .collect(),
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => Vec::new(),
        };
        let read = |store: &mut MemoryStore, key| authority(store.apply(now, &StoreCommand::Read(key)));
        let before: Vec<_> = keys.iter().map(|key| read(&mut self.store, key.clone())).collect();
        let reply = self.store.apply(now, command);
        for (key, before) in keys.iter().zip(before) {
            let after = read(&mut self.store, key.clone());
            self.oracle.wrote(&mut self.store, now, key, before.as_ref(), after.as_ref());
        }
        if let Some(ticket) = ticket {
            let delay = 20_000 + self.chance.below(400_000);
            self.schedule(delay, Act::Input { node, run, input: Input::Store { ticket, reply } });
        }
    }

    // --- host ---

    fn host(&mut self, node: usize, command: HostCommand) -> HostReply {
        let failed = HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: String::from("made") };
        let fails = !self.healing && self.chance.hits(self.profile.host_fails);
        let things = &mut self.places[node].things;
        match command {
            HostCommand::Activate { tenure, .. } => {
                things.insert(tenure, Thing::default());
                HostReply::Done
            }
            HostCommand::SizeHint { .. } => HostReply::Size(64),
            HostCommand::Capture { tenure } => {
                if fails {
                    self.made("capture fails");
                    return failed;
                }
                match things.get(&tenure) {
                    Some(thing) => HostReply::Captured(Some(Captured::from(thing.encode()))),
                    None => failed,
                }
            }
            HostCommand::Restore { tenure, state, .. } => {
                if fails {
                    self.made("restore fails");
                    return failed;
                }
                match state.and_then(|state| Thing::decode(state.to_bytes())) {
                    Some(thing) => {
                        things.insert(tenure, thing);
                        HostReply::Done
                    }
                    None => failed,
                }
            }
            HostCommand::Open { .. } | HostCommand::Resume { .. } => HostReply::Done,
            HostCommand::Retire { tenure } | HostCommand::Discard { tenure } => {
                things.remove(&tenure);
                if fails {
                    self.made("retire fails");
                    return failed;
                }
                HostReply::Done
            }
        }
    }

    fn turn_end(&mut self, node: usize, run: u64, turn: Turn) {
        if self.places[node].run != run || self.places[node].node.is_none() {
            return;
        }
        if self.places[node].paused {
            self.schedule(50 * MILLI, Act::TurnEnd { node, run, turn: Box::new(turn) });
            return;
        }
        // The last look before user code runs.
        if self.now >= turn.not_after.as_nanos() {
            self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::NotStarted });
            return;
        }
        let Some(mut thing) = self.places[node].things.get(&turn.tenure).cloned() else {
            // The object was lost while the turn waited for its host: nothing runs.
            self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: None } });
            return;
        };
        let Some(pair) = self.places[node].peer.as_ref().map(|peer| peer.owner.clone()) else { return };
        let now = Instant::from_nanos(self.now);
        self.oracle.turn(&mut self.store, now, &turn.tenure, &pair, turn.operation, &thing);
        if let Some((client, number)) = read_message(turn.payload.bytes.clone()) {
            thing.turn += 1;
            thing.chain = thing.chain.rotate_left(7) ^ (client << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let last = thing.clients.insert(client, number);
            self.oracle.ran(&turn.tenure, &thing, last, client, number);
        }
        let count = thing.turn.to_be_bytes().to_vec();
        self.places[node].things.insert(turn.tenure.clone(), thing);
        self.summary.turns += 1;
        let reply = Some(Outcome::Answer(payload(count.into())));
        self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply } });
    }

    // --- user ---

    fn user(&mut self, node: usize, request: UserRequest) -> CallId {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.feed(node, Input::User { call, request });
        call
    }

    fn serving(&self, node: usize) -> bool {
        let place = &self.places[node];
        place.node.as_ref().is_some_and(|node| !node.is_over()) && !place.paused && place.peer.is_some()
    }

    fn hit(&mut self, node: usize, object: usize) {
        let wants_reply = self.chance.hits(600);
        let place = &mut self.places[node];
        let (client, run) = (place.client, place.run);
        let number = place.numbers.entry(object).or_default();
        *number += 1;
        let number = *number;
        let timeout = Duration::from_millis(500 + self.chance.below(9_000));
        let body = payload(message(client, number));
        let request = if wants_reply {
            UserRequest::Request { from: Sender::Node, to: key(object), payload: body, timeout }
        } else {
            UserRequest::Send { from: Sender::Node, to: key(object), payload: body }
        };
        self.next_call += 1;
        let call = CallId(self.next_call);
        let by = wants_reply.then(|| self.now + timeout.as_nanos() as u64);
        self.calls.insert((node, run, call), Pending { object, client, number, by });
        self.feed(node, Input::User { call, request });
    }

    fn relocate(&mut self, object: usize) {
        let owner = (0..self.places.len()).find(|node| {
            self.serving(*node)
                && self.places[*node].node.as_ref().is_some_and(|node| node.objects().any(|o| *o == key(object)))
        });
        let Some(owner) = owner else { return };
        let target = self.chance.below(self.places.len() as u64) as usize;
        let timeout = Some(Duration::from_millis(1_000 + self.chance.below(11_000)));
        let run = self.places[owner].run;
        let request = UserRequest::Relocate { object: key(object), target: rid(target), timeout };
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.moves.insert((owner, run, call));
        self.feed(owner, Input::User { call, request });
        if !self.healing && self.chance.hits(self.profile.cancel) {
            self.made("cancel");
            self.next_call += 1;
            let cancel = CallId(self.next_call);
            let delay = self.chance.below(8 * MILLI);
            let input = Input::User { call: cancel, request: UserRequest::CancelMove { relocate: call } };
            self.schedule(delay, Act::Input { node: owner, run, input });
        }
    }

    fn act(&mut self) {
        if self.user_acts == 0 {
            return;
        }
        self.user_acts -= 1;
        let delay = self.chance.below(6 * MILLI);
        self.schedule(delay, Act::User);
        let node = self.chance.below(self.places.len() as u64) as usize;
        let object = self.chance.below(self.objects as u64) as usize;
        if self.chance.hits(100) {
            self.relocate(object);
        } else if self.serving(node) {
            for _ in 0..=self.chance.below(3) {
                self.hit(node, object);
            }
        }
        let profile = self.profile;
        if self.chance.hits(profile.pause) && self.serving(node) {
            let long = self.chance.hits(profile.pause_past_lease);
            self.made(if long { "paused past its lease" } else { "paused" });
            self.places[node].paused = true;
            let delay = if long { 16 * SECOND } else { 0 } + self.chance.below(4 * SECOND);
            self.schedule(delay, Act::Resume { node });
        }
        if self.chance.hits(profile.kill) && self.serving(node) {
            self.made("killed");
            self.kill(node);
        }
        if self.chance.hits(profile.store_away) && !self.away {
            self.made("store away");
            self.away = true;
            let delay = self.chance.below(18 * SECOND);
            self.schedule(delay, Act::Away { over: true });
        }
        if self.chance.hits(profile.lease_lost)
            && self.serving(node)
            && let Some(peer) = self.places[node].peer.clone()
        {
            self.made("lease lost");
            self.store.expire(&lease_key(&peer.owner));
            // A lease that ends early is an operator's mistake that no guard can see: the node must not act until it
            // has found out. The world gives it that time by stopping it.
            self.places[node].paused = true;
            self.schedule(16 * SECOND, Act::Resume { node });
        }
        if self.chance.hits(profile.clock_jump) {
            self.made("wall clock jump");
            self.places[node].skew += 2_000 - self.chance.below(4_000) as i64;
        }
        if profile.owners_end() && self.chance.hits(30) {
            self.schedule(1, Act::Recover { object });
        }
    }

    fn kill(&mut self, node: usize) {
        let run = self.places[node].run;
        self.disconnect_all(node);
        self.places[node].node = None;
        self.calls.retain(|(of, its, _), _| (*of, *its) != (node, run));
        self.moves.retain(|(of, its, _)| (*of, *its) != (node, run));
        let delay = 100 * MILLI + self.chance.below(3 * SECOND);
        self.schedule(delay, Act::Restart { node });
    }

    fn recover(&mut self, object: usize) {
        let node = self.chance.below(self.places.len() as u64) as usize;
        if self.serving(node) {
            self.user(node, UserRequest::Reclaim { object: key(object), arguments: Bytes::new() });
        }
    }

    fn done(&mut self, node: usize, call: CallId, result: CallResult) {
        let run = self.places[node].run;
        if let CallResult::Moved(Ok(outcome)) = &result {
            self.moves.remove(&(node, run, call));
            match outcome {
                MoveOutcome::Moved { .. } => self.summary.moved += 1,
                MoveOutcome::KeptSource { .. } => self.summary.kept += 1,
                MoveOutcome::Refused(_) => self.summary.refused += 1,
                MoveOutcome::Lost { .. } => self.summary.lost += 1,
            }
        }
        let Some(pending) = self.calls.remove(&(node, run, call)) else { return };
        // Promise 5: within its own deadline, if the node was awake.
        if let Some(by) = pending.by
            && self.now > by + 5 * MILLI
            && self.profile.pause == 0
            && self.profile.lease_lost == 0
        {
            self.oracle.fault(format!("promise 5: a request ended {} us after its deadline", (self.now - by) / 1000));
        }
        let error = match result {
            CallResult::Sent(Ok(())) => None,
            CallResult::Answered(Ok(_)) => {
                self.summary.answered += 1;
                None
            }
            CallResult::Sent(Err(error)) | CallResult::Answered(Err(error)) => Some(error),
            _ => return,
        };
        let object = key(pending.object);
        match error {
            None => self.oracle.accepted(&object, pending.client, pending.number),
            Some(CallError::NotRun(_) | CallError::Busy) => {
                self.oracle.refused(&object, pending.client, pending.number);
            }
            Some(_) => {}
        }
    }

    // --- time ---

    fn next_time(&self) -> Option<(u64, Option<usize>)> {
        let act = self.acts.first_key_value().map(|((at, _), _)| (*at, None));
        let node = (0..self.places.len())
            .filter(|node| !self.places[*node].paused)
            .filter_map(|node| Some((self.places[node].node.as_ref()?.deadline()?.as_nanos(), Some(node))))
            .min_by_key(|(at, _)| *at);
        match (act, node) {
            (Some(act), Some(node)) => Some(if act.0 <= node.0 { act } else { node }),
            (act, node) => act.or(node),
        }
    }

    /// One event. `false` when nothing is left before `end`.
    fn step(&mut self, end: u64) -> bool {
        match self.next_time() {
            Some((at, who)) if at <= end => {
                self.now = self.now.max(at);
                match who {
                    Some(node) => self.feed(node, Input::Tick),
                    None => {
                        if let Some((_, act)) = self.acts.pop_first() {
                            self.perform(act);
                        }
                    }
                }
                self.oracle.faults.is_empty()
            }
            _ => {
                self.now = end;
                false
            }
        }
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Input { node, run, input } => {
                if self.places[node].run == run {
                    self.feed(node, input);
                }
            }
            Act::Deliver { from, to, epoch, record, send } => self.deliver(from, to, epoch, record, send),
            Act::Apply { node, run, ticket, command } => self.apply(node, run, ticket, &command),
            Act::TurnEnd { node, run, turn } => self.turn_end(node, run, *turn),
            Act::Connect { a, b } => self.connect(a, b),
            Act::Resume { node } => {
                self.places[node].paused = false;
                let inbox = core::mem::take(&mut self.places[node].inbox);
                self.feed(node, Input::Tick);
                for input in inbox {
                    self.feed(node, input);
                }
            }
            Act::Restart { node } => {
                if self.places[node].node.as_ref().is_none_or(Node::is_over) {
                    let run = self.places[node].run;
                    self.calls.retain(|(of, its, _), _| (*of, *its) != (node, run));
                    self.start(node);
                }
            }
            Act::User => self.act(),
            Act::Recover { object } => self.recover(object),
            Act::Away { over } => self.away = !over,
        }
    }

    fn until(&mut self, end: u64) {
        while self.step(end) {}
    }

    fn live(&mut self) {
        while self.user_acts > 0 && self.oracle.faults.is_empty() {
            let end = self.now + SECOND;
            self.until(end);
        }
    }

    /// Everything heals. Within 90 seconds of virtual time all must have come to rest.
    fn heal(&mut self) {
        self.healing = true;
        self.away = false;
        for node in 0..self.places.len() {
            self.places[node].skew = 0;
        }
        for _ in 0..30 {
            for object in 0..self.objects {
                if self.oracle.faults.is_empty() && self.profile.owners_end() {
                    self.recover(object);
                }
            }
            let end = self.now + 3 * SECOND;
            self.until(end);
            if !self.oracle.faults.is_empty() {
                return;
            }
        }
        self.rest();
    }

    /// Promises 5, 9 and 10, and liveness.
    fn rest(&mut self) {
        for (node, _, call) in self.calls.keys() {
            self.oracle.faults.push(format!("promise 5: call {call:?} of n{node} never ended"));
        }
        for (node, _, call) in &self.moves {
            self.oracle.faults.push(format!("promise 9: move {call:?} of n{node} never ended"));
        }
        for (index, place) in self.places.iter().enumerate() {
            let Some(node) = &place.node else {
                self.oracle.faults.push(format!("n{index} did not come back"));
                continue;
            };
            let held = node.held();
            let rest = [
                held.moves as u64,
                held.follows as u64,
                held.stages as u64,
                held.budget_bytes,
                held.relays as u64,
                held.calls as u64,
                held.routed as u64,
                held.queued as u64,
                held.turns as u64,
            ];
            if rest.iter().any(|count| *count != 0) {
                self.oracle.faults.push(format!("promise 10, all released: n{index} holds {held:?}"));
            }
        }
        if !self.oracle.faults.is_empty() {
            return;
        }
        if !self.profile.owners_end() {
            self.oracle.nothing_lost();
        }
        let answered = self.summary.answered;
        for object in 0..self.objects {
            let before: usize =
                self.places.iter().map(|place| place.things.keys().filter(|t| t.object == key(object)).count()).sum();
            if before != 1 {
                let found: Vec<_> = self.places.iter().flat_map(|place| place.things.keys()).collect();
                self.oracle.faults.push(format!("promise 1: object {object} lives {before} times: {found:?}"));
            }
            let node = object % self.places.len();
            self.hit_request(node, object);
        }
        let end = self.now + 10 * SECOND;
        self.until(end);
        if self.oracle.faults.is_empty() && self.summary.answered != answered + self.objects as u64 {
            let now = Instant::from_nanos(self.now);
            for object in 0..self.objects {
                let reply = self.store.apply(now, &StoreCommand::Read(authority_key(&key(object))));
                self.note(|| format!("object {object}: {reply:?}"));
            }
            self.oracle.faults.push(String::from("liveness: an object does not answer at the end"));
        }
    }

    fn hit_request(&mut self, node: usize, object: usize) {
        let place = &mut self.places[node];
        let (client, run) = (place.client, place.run);
        let number = place.numbers.entry(object).or_default();
        *number += 1;
        let number = *number;
        let timeout = Duration::from_secs(9);
        let body = payload(message(client, number));
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.calls.insert((node, run, call), Pending { object, client, number, by: None });
        let request = UserRequest::Request { from: Sender::Node, to: key(object), payload: body, timeout };
        self.feed(node, Input::User { call, request });
    }

    fn finish(mut self) -> Summary {
        self.summary.faults = core::mem::take(&mut self.oracle.faults);
        if !self.summary.faults.is_empty() {
            for line in &self.lines {
                let _ = writeln!(self.summary.tail, "{line}");
            }
        }
        self.summary
    }
}
