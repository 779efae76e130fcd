//! The world: nodes, connections, a store, hosts, clients and a user, on one virtual clock. One event at a time; the
//! oracles look after each. It decides nothing that a node should decide.

mod hosting;
mod net;
mod rest;
mod script;
mod storing;
mod trace;
mod users;

pub use script::{HostFault, RecordFault, StoreFault, commits, reads_lease, reads_record};

use crate::chance::{Chance, Choice};
use crate::host::Thing;
use crate::oracle::{Hit, Oracle, Truth};
use crate::profile::Profile;
use crate::shrink::Script;
use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey, OwnerPair, PeerFence, Tenure};
use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
use rehome::node::{
    CallId, CallResult, Event, Existing, Limits, OverReason, SendId, Ticket, Timing, Turn, TypeConfig, UserRequest,
};
use rehome::store::{MemoryStore, StoreCommand};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::Record;
use rehome::{Config, Input, Node, Output};
use script::Rules;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use trace::Trace;

pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLI;

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
    /// Inputs handled.
    pub events: u64,
    /// Messages that ran out of order behind a counted gap.
    pub late: u64,
    /// Accepted messages that a documented loss took.
    pub taken: u64,
    /// Faults that were made, by name.
    pub made: BTreeMap<&'static str, u64>,
    /// A hash over everything that every node wanted done, in order.
    pub trace: u64,
    /// What the oracles found.
    pub faults: Vec<String>,
    /// The last inputs and outputs, for people.
    pub tail: String,
}

impl Summary {
    /// Adds what another history did: its counts, not its faults and not its trace.
    pub fn add(&mut self, one: &Self) {
        self.moved += one.moved;
        self.kept += one.kept;
        self.refused += one.refused;
        self.lost += one.lost;
        self.turns += one.turns;
        self.answered += one.answered;
        self.events += one.events;
        self.late += one.late;
        self.taken += one.taken;
        for (fault, count) in &one.made {
            *self.made.entry(fault).or_default() += count;
        }
    }
}

#[derive(Debug)]
enum Act {
    Input {
        node: usize,
        run: u64,
        input: Input,
    },
    Deliver {
        from: usize,
        to: usize,
        epoch: u64,
        record: Record,
    },
    Sent {
        node: usize,
        run: u64,
        to: usize,
        epoch: u64,
        send: SendId,
    },
    Apply {
        node: usize,
        run: u64,
        writer: Option<OwnerPair>,
        answer: Option<(Ticket, u64, u64)>,
        command: StoreCommand,
    },
    TurnStart {
        node: usize,
        run: u64,
        turn: Box<Turn>,
    },
    TurnEnd {
        node: usize,
        run: u64,
        turn: Box<Turn>,
        answer: Option<u64>,
        after: u64,
    },
    Cut {
        a: usize,
        b: usize,
    },
    Connect {
        a: usize,
        b: usize,
    },
    Resume {
        node: usize,
    },
    Restart {
        node: usize,
    },
    User,
    Recover {
        object: usize,
    },
    Relocate {
        object: usize,
        target: usize,
    },
    Back,
}

pub(crate) struct Place {
    pub(crate) node: Option<Node>,
    pub(crate) run: u64,
    paused: bool,
    /// When it last woke.
    awake: u64,
    inbox: VecDeque<Input>,
    peer: Option<PeerFence>,
    /// What each of its lease writes that are under way would allow, by ticket.
    renewals: BTreeMap<Ticket, u64>,
    /// Until when its last successful renewal lets it act: counted here, not believed.
    guard: u64,
    things: BTreeMap<Tenure, Thing>,
    skew: i64,
    client: u64,
    numbers: BTreeMap<usize, u64>,
}

#[derive(Clone, Debug, Default)]
struct Link {
    epoch: u64,
    up: bool,
    /// What the lower-numbered side sends, or the other, is lost without a word.
    deaf: [bool; 2],
}

struct Pending {
    hit: Hit,
    made: u64,
    by: Option<u64>,
}

/// A life of an object as a client: its number, and its last message to each object.
type Teller = (u64, BTreeMap<usize, u64>);

/// A cluster and everything around it.
pub struct World {
    profile: Profile,
    chance: Chance,
    now: u64,
    sequence: u64,
    acts: BTreeMap<(u64, u64), Act>,
    pub(crate) places: Vec<Place>,
    store: MemoryStore,
    away: bool,
    links: BTreeMap<(usize, usize), Link>,
    barred: BTreeSet<(usize, usize)>,
    last_delivery: BTreeMap<(usize, usize), u64>,
    objects: usize,
    calls: BTreeMap<(usize, u64, CallId), Pending>,
    moves: BTreeMap<(usize, u64, CallId), (usize, u64)>,
    ended: BTreeSet<(usize, u64, CallId)>,
    /// Takings-over that have not ended.
    reclaims: BTreeSet<(usize, u64, CallId)>,
    results: BTreeMap<CallId, CallResult>,
    deadlines: BTreeMap<Hit, u64>,
    next_call: u64,
    next_client: u64,
    /// Objects that send.
    tellers: BTreeMap<(usize, u64, Tenure), Teller>,
    no_reclaim: u64,
    /// No fault is made.
    healing: bool,
    user_acts: u64,
    /// The longest time between two actions of the user.
    pace: u64,
    tune: fn(&mut Config),
    rules: Rules,
    pub(crate) oracle: Oracle,
    summary: Summary,
    trace: Trace,
}

/// The object that schedules call `object`.
pub fn key(object: usize) -> ObjectKey {
    ObjectKey::actor(ObjectId::new(&format!("object-{object}")).expect("a valid id"))
}

/// The node that schedules call `node`.
pub fn rid(node: usize) -> RoutingId {
    RoutingId::new(format!("n{node}").into_bytes()).expect("a valid id")
}

fn thing_type() -> TypeName {
    TypeName::new("thing").expect("a valid name")
}

/// Runs the history of `seed`: `acts` actions of the user, then everything heals and must come to rest. A history that
/// fails runs once more to print its end.
pub fn run(profile: Profile, seed: u64, acts: u64) -> Summary {
    let once = |keep| history(profile, Chance::new(seed), acts, keep).0;
    let summary = once(0);
    if summary.faults.is_empty() { summary } else { once(Trace::wanted()) }
}

/// The history of `seed` as the choices that make it.
pub fn script_of(profile: Profile, seed: u64, acts: u64) -> Script {
    Script { acts, choices: history(profile, Chance::new(seed).recorded(), acts, 0).1 }
}

/// Runs the history of a script and keeps the last `keep` lines of its trace.
pub fn run_script(profile: Profile, script: &Script, keep: usize) -> Summary {
    history(profile, Chance::again(script.choices.clone()), script.acts, keep).0
}

fn history(profile: Profile, mut chance: Chance, acts: u64, keep: usize) -> (Summary, Vec<Choice>) {
    let nodes = 2 + chance.below(2) as usize;
    let objects = 1 + chance.below(4) as usize;
    let mut world = World::begin(profile, chance, (nodes, objects), |_| {}, keep);
    world.live_through(acts);
    let choices = core::mem::replace(&mut world.chance, Chance::new(0)).choices();
    (world.finish(), choices)
}

/// Runs the history whose choices stand in `schedule`: the size of the cluster, delays, faults and what the user does, in
/// the order in which they come up. Any bytes are a history; the same bytes are the same one. For fuzzers and searches.
pub fn run_schedule(profile: Profile, schedule: &[u8], acts: u64) -> Summary {
    let once = |keep| {
        let mut chance = Chance::given(schedule);
        let nodes = 2 + chance.below(2) as usize;
        let objects = 1 + chance.below(4) as usize;
        // How the cluster comes up is no choice: it would use the bytes up.
        let mut world = World::begin(profile, Chance::new(0), (nodes, objects), |_| {}, keep);
        world.chance = chance;
        world.live_through(acts);
        world.finish()
    };
    let summary = once(0);
    if summary.faults.is_empty() { summary } else { once(Trace::wanted()) }
}

impl World {
    fn begin(profile: Profile, chance: Chance, size: (usize, usize), tune: fn(&mut Config), keep: usize) -> Self {
        let (nodes, objects) = size;
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
            barred: BTreeSet::new(),
            last_delivery: BTreeMap::new(),
            objects,
            calls: BTreeMap::new(),
            moves: BTreeMap::new(),
            ended: BTreeSet::new(),
            reclaims: BTreeSet::new(),
            results: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            next_call: 0,
            next_client: 0,
            tellers: BTreeMap::new(),
            no_reclaim: 0,
            // The beginning is calm: what is tried is what comes after it.
            healing: true,
            user_acts: 0,
            pace: 6 * MILLI,
            tune,
            rules: Rules::default(),
            oracle: Oracle::default(),
            summary: Summary::default(),
            trace: Trace::new(keep),
        };
        for node in 0..nodes {
            world.places.push(Place {
                node: None,
                run: 0,
                paused: false,
                awake: 0,
                inbox: VecDeque::new(),
                peer: None,
                renewals: BTreeMap::new(),
                guard: 0,
                things: BTreeMap::new(),
                skew: 0,
                client: 0,
                numbers: BTreeMap::new(),
            });
            world.start(node);
        }
        world.until(world.now + SECOND);
        for object in 0..objects {
            let request = UserRequest::Create {
                object: key(object),
                type_name: thing_type(),
                arguments: Bytes::new(),
                existing: Existing::Refuse,
            };
            world.user(object % nodes, request);
        }
        world.until(world.now + SECOND);
        world
    }

    fn config(&mut self, node: usize) -> Config {
        let mut limits = Limits::default();
        let mut timing =
            Timing { operation: Duration::from_secs(12), follow: Duration::from_secs(8), ..Timing::default() };
        if self.profile.tiny {
            limits = Limits {
                chunk: 24,
                peer_budget: 30,
                node_budget: 40,
                terminal_memory: 1,
                mailbox: self.profile.mailbox,
                ..limits
            };
            timing.seal_limit = Duration::from_millis(300);
        }
        let mut config = Config {
            node: NodeFence {
                rid: rid(node),
                generation: NodeGeneration::new(1 + self.places[node].run).expect("a valid generation"),
            },
            owner: OwnerId::new(&format!("owner-{node}")).expect("a valid id"),
            mesh: Text8::new("world").expect("a valid name"),
            endpoint: String::new(),
            application_version: 1,
            types: [(thing_type(), TypeConfig::default())].into(),
            seed: u128::from(self.chance.bits()) << 64 | u128::from(self.chance.bits()),
            timing,
            limits,
        };
        if self.profile.is_fair() {
            // Nothing outlasts a follow here: no order may be given up.
            config.timing.follow = Duration::from_secs(30);
        }
        (self.tune)(&mut config);
        config
    }

    fn clock(&self, node: usize) -> Now {
        let wall = (1_700_000_000_000 + self.now / MILLI).saturating_add_signed(self.places[node].skew);
        Now { mono: Instant::from_nanos(self.now), wall: UnixMillis(wall) }
    }

    fn schedule(&mut self, delay: u64, act: Act) {
        self.sequence += 1;
        self.acts.insert((self.now + delay, self.sequence), act);
    }

    /// Whether a fault of this rate is made now; it is counted under `name`.
    fn fault(&mut self, rate: u64, name: &'static str) -> bool {
        let made = !self.healing && rate > 0 && self.chance.hits(rate);
        if made {
            self.made(name);
        }
        made
    }

    fn made(&mut self, name: &'static str) {
        *self.summary.made.entry(name).or_default() += 1;
        self.trace.note(self.now, || format!("   -- {name}"));
    }

    fn start(&mut self, node: usize) {
        let config = self.config(node);
        let clock = self.clock(node);
        self.next_client += 1;
        let place = &mut self.places[node];
        place.run += 1;
        place.node = Some(Node::new(clock, config).expect("a configuration that works"));
        place.paused = false;
        place.awake = self.now;
        place.inbox.clear();
        place.things.clear();
        place.peer = None;
        place.renewals.clear();
        place.guard = 0;
        place.client = self.next_client;
        place.numbers.clear();
        self.trace.note(self.now, || format!("n{node} starts"));
        self.outputs(node);
    }

    /// One input of one node, then everything that follows from it.
    fn feed(&mut self, node: usize, input: Input) {
        if self.places[node].paused {
            if !matches!(input, Input::Tick) {
                self.places[node].inbox.push_back(input);
            }
            return;
        }
        let clock = self.clock(node);
        if self.places[node].node.is_none() {
            return;
        }
        self.trace.input(self.now, node, &input);
        self.seen(node, &input);
        let Some(core) = self.places[node].node.as_mut() else { return };
        core.handle(clock, input).expect("no misuse");
        self.summary.events += 1;
        self.outputs(node);
    }

    /// What the oracles learn from an input.
    fn seen(&mut self, node: usize, input: &Input) {
        let at = (node, self.places[node].run);
        match input {
            Input::Record { conn, record: Record::Data(data) } => {
                self.oracle.early.data(at, data.identity.relocation, *conn, &data.record);
            }
            Input::Record { conn, record: Record::Cutover(cutover) } => {
                let (count, sum) = (cutover.record_count, cutover.checksum);
                self.oracle.early.cutover(at, cutover.identity.relocation, *conn, count, sum);
            }
            Input::Store { ticket, reply } => {
                let place = &mut self.places[node];
                if let Some(allows) = place.renewals.remove(ticket) {
                    // An unknown claim may be adopted later: it allows no more than it would have.
                    let adopted = place.peer.is_none() && *reply == rehome::store::StoreReply::Unknown;
                    if adopted || matches!(reply, rehome::store::StoreReply::Applied(_)) {
                        place.guard = place.guard.max(allows);
                    }
                }
                if let Some(found) = crate::oracle::authority(reply) {
                    self.oracle.early.read(at, &found);
                }
            }
            Input::Record { .. }
            | Input::Tick
            | Input::PeerUp { .. }
            | Input::PeerDown { .. }
            | Input::Sent { .. }
            | Input::Host { .. }
            | Input::TurnEnd { .. }
            | Input::User { .. } => {}
        }
    }

    fn outputs(&mut self, node: usize) {
        while let Some(output) = self.places[node].node.as_mut().and_then(Node::poll_output) {
            self.trace.output(self.now, node, &output);
            let mut hasher = DefaultHasher::new();
            (self.summary.trace, self.now, node, &output).hash(&mut hasher);
            self.summary.trace = hasher.finish();
            self.output(node, output);
        }
    }

    fn output(&mut self, node: usize, output: Output) {
        match output {
            Output::Send { conn, send, record, .. } => self.send(node, conn, send, record),
            Output::Drop { conn, .. } => {
                let other = (conn.0 % 100) as usize;
                let pair = (node.min(other), node.max(other));
                if self.links.get(&pair).is_some_and(|link| link.up && link.epoch == conn.0 / 100) {
                    self.cut(node, other);
                }
            }
            Output::Store { ticket, command, give_up } => self.store_command(node, ticket, command, give_up),
            Output::Host { ticket, command } => self.host(node, ticket, command),
            Output::Turn(turn) => self.turn(node, turn),
            Output::Done { call, result } => self.done(node, call, result),
            Output::Progress { .. } => {}
            Output::Event(event) => self.event(node, event),
        }
    }

    fn event(&mut self, node: usize, event: Event) {
        let mut truth = Truth { store: &mut self.store, now: self.now };
        let oracle = &mut self.oracle;
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
            Event::Over { reason } => {
                if let (OverReason::LeaseLost, Some(peer)) = (reason, &self.places[node].peer) {
                    oracle.unknown.lease_lost(&mut oracle.faults, &mut truth, &peer.owner);
                }
                oracle.lost.ended(self.now);
                self.disconnect_all(node);
                self.schedule(200 * MILLI, Act::Restart { node });
            }
            Event::PeerGone { peer } => {
                oracle.unknown.peer_gone(&mut oracle.faults, &mut truth, &peer);
                oracle.lost.ended(self.now);
            }
            Event::SourceEnded { receipt, .. } if !receipt.balances() => {
                oracle.faults.promise(3, format!("a receipt does not balance: {receipt:?}"));
            }
            Event::TargetEnded { receipt, .. } if !receipt.balances() => {
                oracle.faults.promise(3, format!("a receipt does not balance: {receipt:?}"));
            }
            Event::Unbalanced { relocation } => oracle.faults.promise(3, format!("{relocation} does not balance")),
            Event::OrderGap { object } => {
                let fair = self.profile.is_fair() && !self.healing;
                oracle.order.gap(&mut oracle.faults, &object, self.now, fair);
                self.made("order gap");
            }
            Event::Undeliverable { object, operation } => {
                let what = format!("{operation:?} to {object}");
                let over = self.some_lease_ended();
                let known = Truth { store: &mut self.store, now: self.now }.record(&object).is_some();
                let oracle = &mut self.oracle;
                oracle.lost.gave_up(&mut oracle.faults, self.now, over, &what, None);
                if !known {
                    oracle.lost.no_object(&object, self.now);
                }
            }
            Event::SourceEnded { .. }
            | Event::TargetEnded { .. }
            | Event::GuardPassed
            | Event::GuardRestored
            | Event::PeerUp { .. }
            | Event::PeerDown { .. }
            | Event::Opened { .. }
            | Event::Closed { .. }
            | Event::Point { .. }
            | Event::CutoverLate { .. }
            | Event::Ignored { .. } => {}
            Event::HostFailed { .. } => self.made("host failure reported"),
        }
    }

    /// Whether the lease of a node that still runs has ended at the store.
    fn some_lease_ended(&mut self) -> bool {
        let mut truth = Truth { store: &mut self.store, now: self.now };
        self.places.iter().filter_map(|place| place.peer.as_ref()).any(|peer| !truth.lease_live(&peer.owner))
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

    /// One event. `false` when nothing is left before `end`, or an oracle has spoken.
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
                self.oracle.faults.0.is_empty()
            }
            _ => {
                self.now = self.now.max(end);
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
            Act::Deliver { from, to, epoch, record } => self.deliver(from, to, epoch, record),
            Act::Sent { node, run, to, epoch, send } => self.sent(node, run, to, epoch, send),
            Act::Apply { node, run, writer, answer, command } => {
                self.apply(node, run, writer.as_ref(), answer, &command);
            }
            Act::TurnStart { node, run, turn } => self.turn_start(node, run, *turn),
            Act::TurnEnd { node, run, turn, answer, after } => self.turn_end(node, run, *turn, answer, after),
            Act::Cut { a, b } => self.cut(a, b),
            Act::Connect { a, b } => self.connect(a, b),
            Act::Resume { node } => self.wake(node),
            Act::Restart { node } => {
                if self.places[node].node.as_ref().is_none_or(Node::is_over) {
                    self.forget_calls(node);
                    self.start(node);
                }
            }
            Act::User => self.act(),
            Act::Recover { object } => self.recover(object),
            Act::Relocate { object, target } => self.relocate_to(object, target),
            Act::Back => self.away = false,
        }
    }

    fn wake(&mut self, node: usize) {
        if !self.places[node].paused {
            return;
        }
        self.places[node].paused = false;
        self.places[node].awake = self.now;
        let inbox = core::mem::take(&mut self.places[node].inbox);
        self.trace.note(self.now, || format!("n{node} wakes"));
        self.feed(node, Input::Tick);
        for input in inbox {
            self.feed(node, input);
        }
    }

    fn until(&mut self, end: u64) {
        while self.step(end) {}
    }

    /// The faults begin, the user acts, everything heals.
    fn live_through(&mut self, acts: u64) {
        self.healing = false;
        self.user_acts = acts;
        self.pace = [2, 6, 20, 60][self.chance.below(4) as usize] * MILLI;
        self.schedule(1, Act::User);
        self.live();
        self.heal();
    }

    fn live(&mut self) {
        while self.user_acts > 0 && self.oracle.faults.0.is_empty() {
            let end = self.now + SECOND;
            self.until(end);
        }
    }

    fn finish(mut self) -> Summary {
        self.summary.faults = core::mem::take(&mut self.oracle.faults.0);
        self.summary.late = self.oracle.order.late;
        self.summary.taken = self.oracle.lost.taken;
        self.summary.tail = self.trace.text();
        self.summary
    }
}
