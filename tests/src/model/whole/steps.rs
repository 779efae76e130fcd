//! The states of whole nodes, what can happen in them, and the promises.

use super::super::run::{Searched, ended};
use super::table::{Emit, End, Table, clock};
use bytes::Bytes;
use rehome::fence::{NodeFence, ObjectKey};
use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
use rehome::link::Agreed;
use rehome::node::{CallId, Conn, Existing, Input, Limits, Ticket, Timing, TurnEnd, TurnId, TypeConfig, UserRequest};
use rehome::store::{MemoryStore, StoreReply};
use rehome::wire::{Outcome, Payload, Sender};
use rehome::{Config, Node};
use stateright::{Checker, HasDiscoveries, Model as _, Property};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What the search is called.
    pub name: &'static str,
    /// Moves.
    pub moves: u8,
    /// Requests to the object, at most 4.
    pub requests: u8,
    /// Times that a node's clock goes on to its next deadline.
    pub ticks: u8,
    /// Connections that end.
    pub cuts: u8,
    /// Store commands whose answer is given up.
    pub unknowns: u8,
    /// The node whose client asks.
    pub asker: usize,
    /// Whether a turn's end is a step of its own. Else it ends as soon as it has begun.
    pub slow_turns: bool,
    /// How long a move may take. Shorter than anything else, its end is the first deadline of all.
    pub operation: Duration,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Act {
    Deliver(usize),
    Happens(usize, usize),
    Answered(usize, usize),
    GivenUp(usize, usize),
    HeldHappens(usize),
    Tick(usize),
    Cut,
    Connect,
    Ask,
    Move(usize),
    TurnEnd(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    ticket: Ticket,
    command: u32,
    reply: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    moves: u8,
    requests: u8,
    ticks: u8,
    cuts: u8,
    unknowns: u8,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [u32; 2],
    clocks: [u64; 2],
    store: u32,
    /// What each node has sent and the other has not got.
    wires: [Vec<u32>; 2],
    conn: u64,
    up: bool,
    questions: [Vec<Question>; 2],
    held: Vec<u32>,
    /// Turns that run, with the requests that they run.
    turns: [Vec<(TurnId, u8)>; 2],
    slow_turns: bool,
    spent: Spent,
    /// How often each request ran.
    ran: [u8; 4],
    /// How each ended: 0 not yet, 1 answered, 2 not run, 3 may have run.
    ends: [u8; 4],
    moved: u8,
    /// A turn was started by a node that the store does not name.
    foreign: bool,
    /// A request ran before an earlier one of the same sender.
    overtaken: bool,
    /// A call ended twice.
    twice: bool,
}

/// Whole nodes within bounds.
#[derive(Debug)]
pub(super) struct Whole {
    bounds: Bounds,
    table: Mutex<Table>,
    first: State,
}

fn object() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("object").expect("an id"))
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn text(of: &str) -> Text8 {
    Text8::new(of).expect("a text")
}

fn thing() -> TypeName {
    TypeName::new("thing").expect("a name")
}

fn new_node(node: usize) -> Node {
    let config = Config {
        node: NodeFence {
            rid: RoutingId::new(name(node).into_bytes()).expect("an id"),
            generation: NodeGeneration::FIRST,
        },
        owner: OwnerId::new(&name(node)).expect("an id"),
        mesh: text("mesh"),
        endpoint: String::new(),
        application_version: 1,
        types: [(thing(), TypeConfig::default())].into(),
        seed: 1 + node as u128,
        // Leases live longer than any history here.
        timing: Timing { lease_ttl: DAY * 9, lease_renew: DAY * 2, ..Timing::default() },
        limits: Limits::default(),
    };
    Node::new(clock(0), config).expect("a configuration that works")
}

const DAY: Duration = Duration::from_secs(86_400);

/// The first call that is a move.
const MOVES: u64 = 100;

impl Bounds {
    /// Nothing but moves and the second node's requests.
    pub const fn new(name: &'static str, moves: u8, requests: u8) -> Self {
        Self {
            name,
            moves,
            requests,
            ticks: 0,
            cuts: 0,
            unknowns: 0,
            asker: 1,
            slow_turns: false,
            operation: Duration::from_millis(1500),
        }
    }
}

impl Whole {
    fn new(bounds: Bounds) -> Self {
        let mut table = Table::new();
        let store = table.store(MemoryStore::new());
        let mut state = State {
            nodes: [0; 2],
            clocks: [0; 2],
            store,
            wires: [Vec::new(), Vec::new()],
            conn: 0,
            up: false,
            questions: [Vec::new(), Vec::new()],
            held: Vec::new(),
            turns: [Vec::new(), Vec::new()],
            slow_turns: bounds.slow_turns,
            spent: Spent::default(),
            ran: [0; 4],
            ends: [0; 4],
            moved: 0,
            foreign: false,
            overtaken: false,
            twice: false,
        };
        for node in 0..2 {
            let (number, emits) = table.start(new_node(node));
            state.nodes[node] = number;
            take(&mut table, &mut state, node, &emits);
        }
        quiet(&mut table, &mut state);
        connect(&mut table, &mut state);
        let create = UserRequest::Create {
            object: object(),
            type_name: thing(),
            arguments: Bytes::new(),
            existing: Existing::Refuse,
        };
        feed(&mut table, &mut state, 0, Input::User { call: CallId(99), request: create });
        quiet(&mut table, &mut state);
        assert!(table.owner(state.store, &object()).is_some(), "the object is there");
        Self { bounds, table: Mutex::new(table), first: state }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One input of a node, and what it emits.
fn feed(table: &mut Table, state: &mut State, node: usize, input: Input) {
    let (next, emits) = table.step(state.nodes[node], state.clocks[node], input);
    state.nodes[node] = next;
    take(table, state, node, &emits);
}

fn take(table: &mut Table, state: &mut State, node: usize, emits: &[Emit]) {
    for emit in emits {
        match *emit {
            Emit::Send { conn, record } => {
                if state.up && conn == Conn(state.conn) {
                    state.wires[node].push(record);
                }
            }
            Emit::Ask { ticket, command } => state.questions[node].push(Question { ticket, command, reply: None }),
            Emit::Ran { turn, message, incarnation, owner_generation } => {
                let owner = table.owner(state.store, &object());
                state.foreign |= owner != Some((name(node), incarnation, owner_generation));
                let at = usize::from(message);
                state.overtaken |= state.ran[at + 1..].iter().any(|ran| *ran > 0);
                state.ran[at] = state.ran[at].saturating_add(1);
                state.turns[node].push((turn, message));
                if !state.slow_turns {
                    end_turn(table, state, node);
                }
            }
            Emit::Done { call, end } => {
                let at = usize::try_from(call.0).unwrap_or(usize::MAX);
                if let Some(was) = at.checked_sub(1).and_then(|at| state.ends.get_mut(at)) {
                    state.twice |= *was != 0;
                    *was = match end {
                        End::Answered => 1,
                        End::NotRun => 2,
                        End::MayHaveRun | End::Other => 3,
                    };
                } else if call.0 >= MOVES {
                    state.moved += 1;
                }
            }
            Emit::Drop { conn } => {
                if state.up && conn == Conn(state.conn) {
                    cut(table, state);
                }
            }
        }
    }
}

/// The node's oldest turn ends with its answer.
fn end_turn(table: &mut Table, state: &mut State, node: usize) {
    let (turn, message) = state.turns[node].remove(0);
    let end = TurnEnd::Done { reply: Some(Outcome::Answer(payload(message))) };
    feed(table, state, node, Input::TurnEnd { turn, end });
}

fn payload(message: u8) -> Payload {
    Payload { name: text("hit"), content_type: text("none"), bytes: Bytes::copy_from_slice(&[message]) }
}

fn cut(table: &mut Table, state: &mut State) {
    let conn = Conn(state.conn);
    state.up = false;
    state.wires = [Vec::new(), Vec::new()];
    for node in 0..2 {
        feed(table, state, node, Input::PeerDown { conn });
    }
}

fn connect(table: &mut Table, state: &mut State) {
    state.conn += 1;
    state.up = true;
    for node in 0..2 {
        let peer = table.node(state.nodes[1 - node]).peer_identity().expect("a lease");
        let agreed = Agreed {
            capabilities: Default::default(),
            chunk_limit: Some(1 << 16),
            application_version: 1,
            link: true,
            v14: true,
        };
        feed(table, state, node, Input::PeerUp { conn: Conn(state.conn), peer, agreed });
    }
}

/// Everything that is under way happens, in order.
fn quiet(table: &mut Table, state: &mut State) {
    loop {
        if let Some(node) = (0..2).find(|node| !state.questions[*node].is_empty()) {
            happens(table, state, node, 0);
            answered(table, state, node, 0);
        } else if let Some(node) = (0..2).find(|node| !state.wires[*node].is_empty()) {
            deliver(table, state, node);
        } else if let Some(node) = (0..2).find(|node| !state.turns[*node].is_empty()) {
            end_turn(table, state, node);
        } else {
            return;
        }
    }
}

fn happens(table: &mut Table, state: &mut State, node: usize, at: usize) {
    let (store, reply) = table.apply(state.store, state.questions[node][at].command);
    state.store = store;
    state.questions[node][at].reply = Some(reply);
}

fn answered(table: &mut Table, state: &mut State, node: usize, at: usize) {
    let question = state.questions[node].remove(at);
    let reply = question.reply.map_or(StoreReply::Unknown, |reply| table.reply(reply).clone());
    feed(table, state, node, Input::Store { ticket: question.ticket, reply });
}

fn given_up(table: &mut Table, state: &mut State, node: usize, at: usize) {
    let question = state.questions[node].remove(at);
    if question.reply.is_none() && table.is_write(question.command) {
        state.held.push(question.command);
        state.held.sort_unstable();
    }
    feed(table, state, node, Input::Store { ticket: question.ticket, reply: StoreReply::Unknown });
}

fn deliver(table: &mut Table, state: &mut State, node: usize) {
    let record = table.record(state.wires[node].remove(0)).clone();
    let conn = Conn(state.conn);
    feed(table, state, 1 - node, Input::Record { conn, record });
}

/// How long a request may take.
const ASKS: Duration = Duration::from_secs(5);

/// How many times clocks go on, at most, until everything has come to rest.
const PATIENCE: u32 = 400;

impl Whole {
    /// Whether nothing is under way and only time can bring anything on.
    fn rests(&self, state: &State) -> bool {
        let (bounds, spent) = (&self.bounds, &state.spent);
        let empty = state.wires.iter().all(Vec::is_empty) && state.questions.iter().all(Vec::is_empty);
        empty
            && state.up
            && state.held.is_empty()
            && state.turns.iter().all(Vec::is_empty)
            && spent.moves == bounds.moves
            && spent.requests == bounds.requests
    }

    /// Left alone from here, with a store and a connection that work: does every move end, and every request, with its
    /// answer if its time is not over?
    fn comes_to_rest(&self, state: &State) -> bool {
        let table = &mut *self.table();
        // A node whose clock is ahead may refuse a request too early.
        let in_time = state.clocks.iter().all(|clock| Duration::from_nanos(*clock) < ASKS);
        let before = state.ends;
        let mut state = state.clone();
        for _ in 0..PATIENCE {
            let moves = state.nodes.iter().any(|node| {
                let held = table.node(*node).held();
                held.moves + held.stages > 0
            });
            let mut ends = before.iter().zip(&state.ends).take(usize::from(self.bounds.requests));
            if !moves && state.moved == self.bounds.moves && ends.all(|(_, end)| *end != 0) {
                let mut ends = before.iter().zip(&state.ends).take(usize::from(self.bounds.requests));
                return ends.all(|(before, end)| *end == 1 || *before != 0 || !in_time);
            }
            let next = (0..2).filter_map(|node| Some((table.node(state.nodes[node]).deadline()?, node))).min();
            let Some((at, node)) = next else { return false };
            state.clocks[node] = state.clocks[node].max(at.as_nanos());
            feed(table, &mut state, node, Input::Tick);
            quiet(table, &mut state);
        }
        false
    }
}

impl stateright::Model for Whole {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        let (bounds, spent) = (&self.bounds, &state.spent);
        let table = self.table();
        for node in 0..2 {
            if !state.wires[node].is_empty() {
                acts.push(Act::Deliver(node));
            }
            for (at, question) in state.questions[node].iter().enumerate() {
                acts.push(if question.reply.is_none() { Act::Happens(node, at) } else { Act::Answered(node, at) });
                if spent.unknowns < bounds.unknowns {
                    acts.push(Act::GivenUp(node, at));
                }
            }
            if !state.turns[node].is_empty() {
                acts.push(Act::TurnEnd(node));
            }
            let value = table.node(state.nodes[node]);
            // A renewal of the lease is days away: nothing else waits then.
            let waits = value.deadline().is_some_and(|at| Duration::from_nanos(at.as_nanos()) < DAY);
            if spent.ticks < bounds.ticks && waits {
                acts.push(Act::Tick(node));
            }
            if spent.moves < bounds.moves && value.objects().next().is_some() && value.held().moves == 0 {
                acts.push(Act::Move(node));
            }
        }
        acts.extend((0..state.held.len()).map(Act::HeldHappens));
        if state.up && spent.cuts < bounds.cuts {
            acts.push(Act::Cut);
        }
        if !state.up {
            acts.push(Act::Connect);
        }
        if spent.requests < bounds.requests {
            acts.push(Act::Ask);
        }
    }

    fn next_state(&self, state: &State, act: Act) -> Option<State> {
        let table = &mut *self.table();
        let mut next = state.clone();
        match act {
            Act::Deliver(node) => deliver(table, &mut next, node),
            Act::Happens(node, at) => happens(table, &mut next, node, at),
            Act::Answered(node, at) => answered(table, &mut next, node, at),
            Act::GivenUp(node, at) => {
                next.spent.unknowns += 1;
                given_up(table, &mut next, node, at);
            }
            Act::HeldHappens(at) => {
                let command = next.held.remove(at);
                next.store = table.apply(next.store, command).0;
            }
            Act::Tick(node) => {
                next.spent.ticks += 1;
                let at = table.node(next.nodes[node]).deadline()?.as_nanos();
                next.clocks[node] = next.clocks[node].max(at);
                feed(table, &mut next, node, Input::Tick);
            }
            Act::TurnEnd(node) => end_turn(table, &mut next, node),
            Act::Cut => {
                next.spent.cuts += 1;
                cut(table, &mut next);
            }
            Act::Connect => connect(table, &mut next),
            Act::Ask => {
                let payload = payload(next.spent.requests);
                next.spent.requests += 1;
                let call = CallId(u64::from(next.spent.requests));
                let request = UserRequest::Request { from: Sender::Node, to: object(), payload, timeout: ASKS };
                feed(table, &mut next, self.bounds.asker, Input::User { call, request });
            }
            Act::Move(node) => {
                let call = CallId(MOVES + u64::from(next.spent.moves));
                next.spent.moves += 1;
                let target = RoutingId::new(name(1 - node).into_bytes()).expect("an id");
                let timeout = Some(self.bounds.operation);
                let request = UserRequest::Relocate { object: object(), target, timeout };
                feed(table, &mut next, node, Input::User { call, request });
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("promise 1: only the owner that the store names starts a turn", |_, s: &State| !s.foreign),
            Property::always("promise 3: a request runs once", |_, s: &State| s.ran.iter().all(|ran| *ran <= 1)),
            Property::always("promise 4: one sender's requests run in order", |_, s: &State| !s.overtaken),
            Property::always("promise 5: a call ends once", |_, s: &State| !s.twice),
            Property::always(
                "promise 5: what is answered has run, what is said not to run does not",
                |_, s: &State| {
                    s.ends.iter().zip(&s.ran).all(|(end, ran)| match end {
                        1 => *ran == 1,
                        2 => *ran == 0,
                        _ => true,
                    })
                },
            ),
            Property::always(
                "liveness: what is left alone comes to rest, every request answered in its time",
                |m: &Self, s| !m.rests(s) || m.comes_to_rest(s),
            ),
            Property::sometimes("every request may be answered and every move may end", |m: &Self, s: &State| {
                let answered = s.ends.iter().filter(|end| **end == 1).count();
                answered == usize::from(m.bounds.requests) && s.moved == m.bounds.moves
            }),
        ]
    }
}

/// Depth first, to the end or until `limit` has passed.
pub fn search(bounds: Bounds, limit: Duration) -> Searched {
    let start = Instant::now();
    let checker = Whole::new(bounds)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(1)
        .timeout(limit)
        .spawn_dfs()
        .join();
    let [nodes, steps, records, stores] = checker.model().table().sizes();
    let mut found = ended(bounds.name, &checker, start, limit);
    found.values = [stores, 0, records, nodes, 0, steps];
    found
}
