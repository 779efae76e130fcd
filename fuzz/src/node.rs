//! Schedules of a small cluster: two nodes, a store, two objects, and whatever order the bytes say for records, store
//! replies, host replies, turns, time, connections and restarts.
//!
//! Faults, besides panics: a receipt that does not balance, a call that ends twice, and, while the store names one
//! owner generation of an incarnation, turns of two tenures of it. Where the schedule damages a record (which the
//! link's checksum prevents, and a hostile peer can do) only panics count from there on.

use arbitrary::{Arbitrary, Unstructured};
use rehome::fence::{NodeFence, ObjectKey, PeerFence, Tenure};
use rehome::id::{NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::{
    CallId, Config, Conn, Event, Existing, HostCommand, HostReply, Input, Limits, Node, Output, Ticket, Timing,
    TurnEnd, TurnId, TypeConfig, UserRequest,
};
use rehome::state::{Captured, StateWriter};
use rehome::store::record::{AuthorityRecord, authority_key};
use rehome::store::{MemoryStore, StoreCommand, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{FailureCode, Outcome, Payload, Record, Sender, TerminalResult, decode, encode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::LazyLock;
use std::time::Duration;

/// The most steps of one schedule.
pub const STEPS_MAX: usize = 600;

/// One step of a schedule. `node` is 0 or 1; an `at` names one of what waits, counted around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A record arrives; `keep` leaves a copy that arrives again.
    Deliver {
        /// Which.
        at: u8,
        /// Whether a copy stays.
        keep: bool,
    },
    /// A record is lost.
    Lose {
        /// Which.
        at: u8,
    },
    /// A record arrives with one byte changed, if it still decodes.
    Damage {
        /// Which record.
        at: u8,
        /// Which byte.
        byte: u8,
        /// The bits to flip.
        bits: u8,
    },
    /// The store carries a command out, or does not, and its answer arrives, or not.
    Store {
        /// Which.
        at: u8,
        /// What becomes of it.
        fate: StoreFate,
    },
    /// A command that was answered as unknown is carried out after all.
    LateWrite {
        /// Which.
        at: u8,
    },
    /// The host answers.
    Host {
        /// Which.
        at: u8,
        /// Whether it fails.
        fails: bool,
    },
    /// A turn ends.
    Turn {
        /// Which.
        at: u8,
        /// How: answered, failed, left open, not started.
        end: u8,
    },
    /// A call of the embedding program.
    Call {
        /// On which node.
        node: bool,
        /// What.
        call: u8,
        /// About which object.
        object: bool,
    },
    /// Time passes: to the next deadline, or so many times 1/8 second.
    Time {
        /// Eighths of a second; 0 for the next deadline.
        eighths: u8,
    },
    /// The connection is cut; what is on its way is lost from the first record on that `keep` does not count.
    Cut {
        /// Records of each direction that still arrive.
        keep: u8,
    },
    /// The connection comes up.
    Connect,
    /// A node dies and starts again with nothing but its owner id.
    Restart {
        /// Which.
        node: bool,
    },
    /// Everything that waits is answered in order, without faults.
    Settle {
        /// At most so many answers.
        most: u8,
    },
}

/// What becomes of a store command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFate {
    /// Carried out and answered.
    Answered,
    /// Carried out, answered as unknown.
    AppliedUnknown,
    /// Not carried out, answered as unknown.
    Dropped,
    /// Answered as unknown; a write may be carried out later.
    Late,
}

impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let kind: u8 = u.arbitrary()?;
        let at: u8 = u.arbitrary()?;
        let (low, high) = (at & 0x1F, at >> 5);
        Ok(match kind % 32 {
            0..=5 => Self::Deliver { at: low, keep: high == 7 },
            6 => Self::Lose { at: low },
            7 => Self::Damage { at: low, byte: u.arbitrary()?, bits: u.arbitrary()? },
            8..=12 => {
                let fate = match high {
                    0..=4 => StoreFate::Answered,
                    5 => StoreFate::AppliedUnknown,
                    6 => StoreFate::Dropped,
                    _ => StoreFate::Late,
                };
                Self::Store { at: low, fate }
            }
            13 => Self::LateWrite { at },
            14..=16 => Self::Host { at: low, fails: high == 7 },
            17..=18 => Self::Turn { at: low, end: high },
            19..=23 => Self::Call { node: high & 1 == 1, object: high & 2 == 2, call: low },
            24..=25 => Self::Time { eighths: at },
            26 => Self::Cut { keep: low },
            27 => Self::Connect,
            28 => Self::Restart { node: high & 1 == 1 },
            _ => Self::Settle { most: at },
        })
    }
}

/// A schedule: steps until the bytes end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(pub Vec<Op>);

impl<'a> Arbitrary<'a> for Schedule {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut ops = Vec::new();
        while !u.is_empty() && ops.len() < STEPS_MAX {
            ops.push(u.arbitrary()?);
        }
        Ok(Self(ops))
    }
}

/// Runs the schedule that `data` says.
///
/// # Panics
/// At a fault.
pub fn run(data: &[u8]) {
    if let Ok(schedule) = Schedule::arbitrary(&mut Unstructured::new(data)) {
        run_schedule(&schedule);
    }
}

/// Runs a schedule from a cluster whose nodes serve and are connected, with one object on each.
///
/// # Panics
/// At a fault.
pub fn run_schedule(schedule: &Schedule) -> World {
    let mut world = START.clone();
    for op in &schedule.0 {
        world.step(*op);
    }
    world
}

static START: LazyLock<World> = LazyLock::new(World::start);

#[derive(Clone, Debug)]
struct Pending<T> {
    node: usize,
    what: T,
}

/// The cluster, and what waits in it.
#[derive(Clone, Debug)]
pub struct World {
    nodes: [Node; 2],
    runs: [u64; 2],
    peers: [Option<PeerFence>; 2],
    store: MemoryStore,
    now: u64,
    /// The connection, if it is up, and its number.
    up: bool,
    conn: u64,
    /// Records on their way to `node`.
    records: VecDeque<Pending<Record>>,
    stores: VecDeque<Pending<(Ticket, StoreCommand, Instant)>>,
    late: VecDeque<StoreCommand>,
    hosts: VecDeque<Pending<(Ticket, HostCommand)>>,
    turns: VecDeque<Pending<TurnId>>,
    calls: BTreeSet<(usize, CallId)>,
    next_call: u64,
    /// Moves that may be cancelled.
    moves: [Option<CallId>; 2],
    /// Which tenure ran while the store named an owner generation of an incarnation.
    ran: BTreeMap<(ObjectKey, ObjectGeneration, OwnerGeneration), (usize, u64, Tenure)>,
    /// A record was damaged: what the nodes do to each other says nothing from here on.
    damaged: bool,
    /// Moves that ended at their target.
    moved: u64,
}

fn object(second: bool) -> ObjectKey {
    ObjectKey::actor(ObjectId::new(if second { "y" } else { "x" }).unwrap())
}

fn rid(node: usize) -> RoutingId {
    RoutingId::new(if node == 0 { b"a".to_vec() } else { b"b".to_vec() }).unwrap()
}

fn payload() -> Payload {
    Payload { name: Text8::new("n").unwrap(), content_type: Text8::new("t").unwrap(), bytes: b"x".to_vec().into() }
}

fn type_name() -> TypeName {
    TypeName::new("thing").unwrap()
}

fn config(node: usize, run: u64) -> Config {
    Config {
        node: NodeFence { rid: rid(node), generation: NodeGeneration::new(run).unwrap() },
        owner: OwnerId::new(if node == 0 { "owner-a" } else { "owner-b" }).unwrap(),
        mesh: Text8::new("m").unwrap(),
        endpoint: String::new(),
        application_version: 1,
        types: [(type_name(), TypeConfig::default())].into(),
        seed: u128::from(run) << 64 | node as u128,
        timing: Timing::default(),
        limits: Limits { chunk: 256, mailbox: 8, route_queue: 8, ..Limits::default() },
    }
}

impl World {
    fn start() -> Self {
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_000_000) };
        let mut world = Self {
            nodes: [0, 1].map(|node| Node::new(now, config(node, 1)).unwrap()),
            runs: [1, 1],
            peers: [None, None],
            store: MemoryStore::new(),
            now: 0,
            up: false,
            conn: 0,
            records: VecDeque::new(),
            stores: VecDeque::new(),
            late: VecDeque::new(),
            hosts: VecDeque::new(),
            turns: VecDeque::new(),
            calls: BTreeSet::new(),
            next_call: 0,
            moves: [None, None],
            ran: BTreeMap::new(),
            damaged: false,
            moved: 0,
        };
        world.outputs(0);
        world.outputs(1);
        world.settle(usize::MAX);
        world.connect();
        world.settle(usize::MAX);
        for node in 0..2 {
            world.call(node, create(node == 1, Existing::Refuse));
            world.settle(usize::MAX);
        }
        assert!(world.up && world.calls.is_empty());
        assert!(world.nodes.iter().all(|node| node.held().objects == 1));
        world
    }

    /// Moves that ended at their target, in the whole schedule.
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    fn time(&self) -> Now {
        Now { mono: Instant::from_nanos(self.now), wall: UnixMillis((self.now / 1_000_000).saturating_add(1_000_000)) }
    }

    fn feed(&mut self, node: usize, input: Input) {
        let now = self.time();
        self.nodes[node].handle(now, input).unwrap();
        self.outputs(node);
    }

    fn outputs(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].poll_output() {
            match output {
                Output::Send { conn, send, record, .. } => {
                    let written = self.up && conn == Conn(self.conn);
                    if written {
                        self.records.push_back(Pending { node: 1 - node, what: record });
                    }
                    self.feed(node, Input::Sent { send, written });
                }
                Output::Drop { conn, .. } => {
                    if self.up && conn == Conn(self.conn) {
                        self.cut(usize::MAX);
                    }
                }
                Output::Store { ticket, command, give_up } => {
                    self.stores.push_back(Pending { node, what: (ticket, command, give_up) });
                }
                Output::Host { ticket, command } => self.hosts.push_back(Pending { node, what: (ticket, command) }),
                Output::Turn(turn) => {
                    self.turn(node, turn.tenure);
                    self.turns.push_back(Pending { node, what: turn.turn });
                }
                Output::Done { call, .. } => {
                    assert!(self.calls.remove(&(node, call)), "{call:?} ended twice, or was never made");
                }
                Output::Progress { .. } => {}
                Output::Event(event) => self.event(node, &event),
            }
        }
    }

    fn event(&mut self, node: usize, event: &Event) {
        if let Event::Serving { peer } = event {
            self.peers[node] = Some(peer.clone());
        }
        if let Event::Over { .. } = event {
            self.peers[node] = None;
        }
        if let Event::TargetEnded { opened: true, .. } = event {
            self.moved = self.moved.saturating_add(1);
        }
        assert!(self.damaged || !matches!(event, Event::Unbalanced { .. }), "{event:?} at node {node}");
    }

    /// Two tenures must not both run while the store names one owner generation.
    fn turn(&mut self, node: usize, tenure: Tenure) {
        if self.damaged {
            return;
        }
        let read = StoreCommand::Read(authority_key(&tenure.object));
        let StoreReply::Found(found) = self.store.apply(Instant::from_nanos(self.now), &read) else { return };
        let record = AuthorityRecord::decode(&found.value).unwrap();
        if record.generation != tenure.generation {
            return;
        }
        let named = (tenure.object.clone(), record.generation, record.owner_generation);
        let runs = (node, self.runs[node], tenure);
        let first = self.ran.entry(named).or_insert_with(|| runs.clone());
        assert_eq!(
            (first.0, first.1, first.2.owner_generation),
            (runs.0, runs.1, runs.2.owner_generation),
            "two owners"
        );
        assert_eq!(record.owner_generation, first.2.owner_generation, "the store does not name who runs: {runs:?}");
    }

    fn call(&mut self, node: usize, request: UserRequest) -> CallId {
        self.next_call = self.next_call.saturating_add(1);
        let call = CallId(self.next_call);
        self.calls.insert((node, call));
        self.feed(node, Input::User { call, request });
        call
    }

    fn connect(&mut self) {
        let [Some(a), Some(b)] = self.peers.clone() else { return };
        if self.up {
            return;
        }
        self.up = true;
        self.conn = self.conn.saturating_add(1);
        let conn = Conn(self.conn);
        for (node, peer) in [(0, b), (1, a)] {
            let agreed = Agreed {
                capabilities: BTreeSet::new(),
                chunk_limit: Some(256),
                application_version: 1,
                link: true,
                v14: true,
            };
            if self.up && self.conn == conn.0 {
                self.feed(node, Input::PeerUp { conn, peer, agreed });
            }
        }
    }

    /// Ends the connection; the first `keep` records still arrive before.
    fn cut(&mut self, keep: usize) {
        if !self.up {
            return;
        }
        let conn = Conn(self.conn);
        if keep != usize::MAX {
            for _ in 0..keep {
                if let Some(Pending { node, what }) = self.records.pop_front() {
                    self.feed(node, Input::Record { conn, record: what });
                }
            }
        }
        if self.up && conn == Conn(self.conn) {
            self.up = false;
            self.records.clear();
            self.feed(0, Input::PeerDown { conn });
            self.feed(1, Input::PeerDown { conn });
        }
    }

    fn apply(&mut self, command: &StoreCommand) -> StoreReply {
        self.store.apply(Instant::from_nanos(self.now), command)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Deliver { at, keep } => {
                let Some(at) = index(at, self.records.len()) else { return };
                if keep {
                    let copy = self.records[at].clone();
                    self.records.push_back(copy);
                }
                self.deliver(at);
            }
            Op::Lose { at } => {
                if let Some(at) = index(at, self.records.len()) {
                    self.records.remove(at);
                }
            }
            Op::Damage { at, byte, bits } => {
                let Some(at) = index(at, self.records.len()) else { return };
                let Some(Pending { node, what }) = self.records.remove(at) else { return };
                if let Some(record) = damage(&what, byte, bits) {
                    self.damaged = true;
                    self.feed(node, Input::Record { conn: Conn(self.conn), record });
                }
            }
            Op::Store { at, fate } => {
                if let Some(at) = index(at, self.stores.len()) {
                    self.answer_store(at, fate);
                }
            }
            Op::LateWrite { at } => {
                if let Some(command) = index(at, self.late.len()).and_then(|at| self.late.remove(at)) {
                    self.apply(&command);
                }
            }
            Op::Host { at, fails } => {
                if let Some(at) = index(at, self.hosts.len()) {
                    self.answer_host(at, fails);
                }
            }
            Op::Turn { at, end } => {
                if let Some(at) = index(at, self.turns.len()) {
                    self.end_turn(at, end);
                }
            }
            Op::Call { node, call, object } => self.user(usize::from(node), call, object),
            Op::Time { eighths } => self.pass(eighths),
            Op::Cut { keep } => self.cut(usize::from(keep)),
            Op::Connect => self.connect(),
            Op::Restart { node } => self.restart(usize::from(node)),
            Op::Settle { most } => self.settle(usize::from(most)),
        }
    }

    fn deliver(&mut self, at: usize) {
        if let Some(Pending { node, what }) = self.records.remove(at) {
            self.feed(node, Input::Record { conn: Conn(self.conn), record: what });
        }
    }

    fn answer_store(&mut self, at: usize, fate: StoreFate) {
        let Some(Pending { node, what: (ticket, command, _) }) = self.stores.remove(at) else { return };
        let reply = match fate {
            StoreFate::Answered => self.apply(&command),
            StoreFate::AppliedUnknown => {
                self.apply(&command);
                StoreReply::Unknown
            }
            StoreFate::Dropped => StoreReply::Unknown,
            StoreFate::Late => {
                if matches!(command, StoreCommand::Write(_)) {
                    self.late.push_back(command);
                }
                StoreReply::Unknown
            }
        };
        self.feed(node, Input::Store { ticket, reply });
    }

    fn answer_host(&mut self, at: usize, fails: bool) {
        let Some(Pending { node, what: (ticket, command) }) = self.hosts.remove(at) else { return };
        let reply = match command {
            _ if fails => HostReply::Failed { code: FailureCode::DATA_LOST, detail: "no".to_owned() },
            HostCommand::SizeHint { .. } => HostReply::Size(600),
            HostCommand::Capture { .. } => HostReply::Captured(Some(state())),
            HostCommand::Activate { .. }
            | HostCommand::Restore { .. }
            | HostCommand::Open { .. }
            | HostCommand::Resume { .. }
            | HostCommand::Retire { .. }
            | HostCommand::Discard { .. } => HostReply::Done,
        };
        self.feed(node, Input::Host { ticket, reply });
    }

    fn end_turn(&mut self, at: usize, end: u8) {
        let Some(Pending { node, what: turn }) = self.turns.remove(at) else { return };
        let failure = Outcome::Failure { result: TerminalResult(1), failure: 1, detail: String::from("no").into() };
        let end = match end {
            0..=4 => TurnEnd::Done { reply: Some(Outcome::Answer(payload())) },
            5 => TurnEnd::Done { reply: Some(failure) },
            6 => TurnEnd::Done { reply: None },
            _ => TurnEnd::NotStarted,
        };
        self.feed(node, Input::TurnEnd { turn, end });
    }

    fn user(&mut self, node: usize, call: u8, second: bool) {
        let to = object(second);
        let request = match call {
            0..=8 => {
                let timeout = (call > 6).then(|| Duration::from_millis(500));
                UserRequest::Relocate { object: to, target: rid(1 - node), timeout }
            }
            9..=14 => UserRequest::Send { from: Sender::Node, to, payload: payload() },
            15..=20 => {
                let timeout = Duration::from_secs(if call > 18 { 1 } else { 10 });
                UserRequest::Request { from: Sender::Node, to, payload: payload(), timeout }
            }
            21 | 22 => create(second, if call == 21 { Existing::Use } else { Existing::Refuse }),
            23 | 24 => UserRequest::Reclaim { object: to, arguments: Vec::new().into() },
            25 => UserRequest::Delete { object: to },
            26 | 27 => UserRequest::Locate { object: to },
            28 | 29 => match self.moves[node] {
                Some(relocate) => UserRequest::CancelMove { relocate },
                None => return,
            },
            30 => UserRequest::Shutdown { timeout: Duration::from_secs(5) },
            _ => UserRequest::Relocate { object: to, target: rid(node), timeout: None },
        };
        let relocates = matches!(request, UserRequest::Relocate { .. });
        let call = self.call(node, request);
        if relocates {
            self.moves[node] = Some(call);
        }
    }

    /// Time passes; commands of the store that are due are given up, and may still be carried out.
    fn pass(&mut self, eighths: u8) {
        self.now = match eighths {
            0 => match self.nodes.iter().filter_map(Node::deadline).min() {
                Some(deadline) => self.now.max(deadline.as_nanos()),
                None => return,
            },
            _ => self.now.saturating_add(u64::from(eighths).saturating_mul(125_000_000)),
        };
        let due = |pending: &Pending<(Ticket, StoreCommand, Instant)>| pending.what.2.as_nanos() <= self.now;
        let due: Vec<usize> = (0..self.stores.len()).filter(|at| self.stores.get(*at).is_some_and(due)).collect();
        for at in due.into_iter().rev() {
            self.answer_store(at, StoreFate::Late);
        }
        self.feed(0, Input::Tick);
        self.feed(1, Input::Tick);
    }

    fn restart(&mut self, node: usize) {
        self.cut(usize::MAX);
        self.runs[node] = self.runs[node].saturating_add(1);
        self.calls.retain(|(of, _)| *of != node);
        self.moves[node] = None;
        self.peers[node] = None;
        self.hosts.retain(|pending| pending.node != node);
        self.turns.retain(|pending| pending.node != node);
        // What it asked of the store may still happen.
        let (gone, kept) = std::mem::take(&mut self.stores).into_iter().partition(|pending| pending.node == node);
        self.stores = kept;
        let gone: VecDeque<Pending<(Ticket, StoreCommand, Instant)>> = gone;
        self.late.extend(gone.into_iter().map(|pending| pending.what.1));
        self.nodes[node] = Node::new(self.time(), config(node, self.runs[node])).unwrap();
        self.outputs(node);
    }

    /// Answers what waits, in order and without faults.
    fn settle(&mut self, most: usize) {
        for _ in 0..most.min(2000) {
            if !self.records.is_empty() {
                self.deliver(0);
            } else if !self.stores.is_empty() {
                self.answer_store(0, StoreFate::Answered);
            } else if !self.hosts.is_empty() {
                self.answer_host(0, false);
            } else if !self.turns.is_empty() {
                self.end_turn(0, 0);
            } else {
                break;
            }
        }
    }
}

fn create(second: bool, existing: Existing) -> UserRequest {
    UserRequest::Create { object: object(second), type_name: type_name(), arguments: Vec::new().into(), existing }
}

/// More than two chunks.
fn state() -> Captured {
    let mut writer = StateWriter::new();
    writer.write(&[7; 600]);
    writer.finish()
}

fn index(at: u8, len: usize) -> Option<usize> {
    usize::from(at).checked_rem(len)
}

/// The record with one byte changed, if that decodes to another one.
fn damage(record: &Record, byte: u8, bits: u8) -> Option<Record> {
    let frames = encode(record).ok()?;
    let mut first = true;
    // Of the first frame.
    let frames = frames.into_iter().map(|frame| {
        let mut bytes = frame.to_bytes().to_vec();
        if let Some(at) = index(byte, bytes.len()).filter(|_| std::mem::take(&mut first)) {
            bytes[at] ^= bits;
        }
        rehome::Rope::from(bytes)
    });
    decode(frames.collect()).ok().filter(|damaged| damaged != record)
}
