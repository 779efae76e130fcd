//! The node: a router. It owns the machines, the mailboxes and the routes, matches every reply to what asked for it,
//! and leaves every decision to a machine. It reads no clock, opens no socket and calls nobody.

mod carry;
mod config;
mod entropy;
mod event;
mod io;
mod lease;
mod lifecycle;
mod moves;
mod objects;
mod peers;
mod relays;
mod routes;
mod shutdown;
mod stages;
mod timers;
mod waiting;

pub use config::{Config, ConfigError, Limits, Policy, Timing, TypeConfig};
pub use event::{Event, OverReason, Point};
pub use io::*;

use crate::budget::Budget;
use crate::fence::{NodeFence, ObjectKey, OwnerPair, PeerFence, Tenure};
use crate::id::{ObjectGeneration, OperationId, OwnerGeneration, RelocationId, ReplyRoute};
use crate::machine::follow::Follow;
use crate::machine::settlement::LeaseSeen;
use crate::machine::source::{SourceInput, SourceTimer};
use crate::machine::target::{TargetInput, TargetTimer};
use crate::store::record::{Authority, AuthorityRecord, lease_key};
use crate::store::{Found, StoreCommand, StoreReply};
use crate::time::{Instant, Now};
use crate::wire::{Delivery, Message, Payload, Record, Sender, SourceIdentity};
use entropy::Entropy;
use lease::{LeaseQuery, LeaseTimer, Life};
use lifecycle::{Birth, BirthQuery, DeathQuery};
use moves::Move;
use objects::{Hosted, Work};
use peers::Peer;
use relays::Relay;
use routes::{Origin, Parcel, Request, Route};
use stages::{Stage as Staged, Terminals};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use timers::Timers;

/// One life of an object on this node, as a map key.
type TenureKey = (ObjectKey, ObjectGeneration, OwnerGeneration);

/// One node of a cluster: the whole protocol as a value.
///
/// It is driven by three methods, in any order: [`Node::handle`] takes what happened, [`Node::poll_output`] gives what
/// must be done, and [`Node::deadline`] says when to call `handle` with [`Input::Tick`] at the latest. The same inputs
/// give the same outputs, always. See the crate's documentation for a complete loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    config: Config,
    now: Now,
    entropy: Entropy,
    life: Life,
    outputs: VecDeque<Output>,
    timers: Timers<TimerKey>,
    tickets: BTreeMap<Ticket, Purpose>,
    next_ticket: u64,
    next_send: u64,
    next_turn: u64,
    next_reply_route: u64,
    attempts: u64,
    relay_sequence: u64,
    calls: BTreeSet<CallId>,
    peers: BTreeMap<NodeFence, Peer>,
    /// Peer generations whose leases have ended, the oldest first; bounded.
    gone: VecDeque<NodeFence>,
    conns: BTreeMap<Conn, NodeFence>,
    sends: BTreeMap<SendId, SendPurpose>,
    hosted: BTreeMap<TenureKey, Hosted>,
    /// The life that serves an object here.
    current: BTreeMap<ObjectKey, TenureKey>,
    turns: BTreeMap<TurnId, TenureKey>,
    held_replies: VecDeque<(Box<Work>, crate::wire::Outcome)>,
    births: BTreeMap<CallId, Birth>,
    deaths: BTreeMap<CallId, CallError>,
    deletes_paused: Vec<(TenureKey, CallId)>,
    /// Births that wait for the guard.
    births_paused: Vec<CallId>,
    /// The descriptor is being written once more.
    refreshing: bool,
    /// What is asked again about the own lease after a pause.
    lease_again: Option<LeaseQuery>,
    moves: BTreeMap<RelocationId, Move>,
    move_calls: BTreeMap<CallId, RelocationId>,
    waiting_moves: BTreeMap<CallId, waiting::WaitingMove>,
    stages: BTreeMap<RelocationId, Staged>,
    stage_keys: BTreeMap<TenureKey, Vec<RelocationId>>,
    terminals: Terminals,
    follows: BTreeMap<TenureKey, Follow>,
    routes: BTreeMap<ObjectKey, Route>,
    /// Messages that are on their way to another node.
    flights: BTreeMap<OperationId, ObjectKey>,
    /// Messages that are on their way along a follow route, by the node they were sent to: one that comes round may be sent
    /// there again before the first answer is here, and the answers come in the order of the sendings.
    forwarding: BTreeMap<(OperationId, NodeFence), VecDeque<Box<Delivery>>>,
    markers: BTreeMap<OperationId, ObjectKey>,
    requests: BTreeMap<OperationId, Request>,
    relays: BTreeMap<OperationId, Relay>,
    budget: Budget,
    shutdown: Option<Vec<CallId>>,
    counters: Counters,
}

/// What an answer with a ticket belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Lease(LeaseQuery),
    PeerLease(NodeFence),
    Route(ObjectKey),
    Locate(CallId, ObjectKey),
    Birth(CallId, BirthQuery),
    Activate(CallId),
    Death(TenureKey, CallId, DeathQuery),
    Source(RelocationId, SourceQuery),
    Target(RelocationId, TargetQuery),
    Restore(RelocationId),
    Hook(Tenure, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SourceQuery {
    Size,
    Record,
    Capture,
    OwnLease,
    Preserve,
    Retire,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TargetQuery {
    Record,
    Commit,
    OwnLease,
    SourceLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SendPurpose {
    None,
    Chunk { relocation: RelocationId, bytes: u64 },
    Cutover(RelocationId),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TimerKey {
    Lease(LeaseTimer),
    Source(RelocationId, SourceTimer),
    Target(RelocationId, TargetTimer),
    Request(OperationId),
    Relay(OperationId),
    Route(ObjectKey),
    Marker(OperationId),
    WaitingMove(CallId),
    Birth(CallId),
    Death(TenureKey, CallId),
    PeerCheck(NodeFence),
    Ack(NodeFence),
    Shutdown,
}

/// What a node has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Moves away that ended at their target.
    pub moved: u64,
    /// Moves away whose object stayed.
    pub kept_source: u64,
    /// Moves away that were refused before the object stopped.
    pub refused: u64,
    /// Moves away whose object was lost with the lease.
    pub lost: u64,
    /// Bytes of logical streams of moves away.
    pub bytes: u64,
    /// Cutovers that did not come within the cutover wait.
    pub cutover_timeout: u64,
    /// Frames and replies that changed nothing: late, repeated, or of something that ended.
    pub stale_frames: u64,
    /// Inputs that a machine ignored in its state.
    pub ignored: u64,
    /// Answers that were relayed again.
    pub retransmits: u64,
    /// Messages forwarded to a later owner.
    pub follow_forwarded: u64,
    /// Replies to store or host commands whose ticket is not, or no longer, known.
    pub stale_tickets: u64,
}

/// What a node holds at the moment. When every move has ended and every call is done, all of it is zero but for what
/// the objects themselves need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// Objects that serve or are in a move here.
    pub objects: usize,
    /// Moves away that have not ended, message follow not counted.
    pub moves: usize,
    /// Ended moves that still forward.
    pub follows: usize,
    /// Moves to this node that have not ended.
    pub stages: usize,
    /// Bytes of the in-flight budget in use.
    pub budget_bytes: u64,
    /// Answers that are relayed.
    pub relays: usize,
    /// Calls of the embedding program that have not ended.
    pub calls: usize,
    /// Messages that wait for a route or for the next hop's answer.
    pub routed: usize,
    /// Messages in mailboxes.
    pub queued: usize,
    /// Turns that run.
    pub turns: usize,
    /// Commands without an answer.
    pub tickets: usize,
    /// Armed timers.
    pub timers: usize,
}

/// What a store reply says about one kind of question. An answer of the wrong form says nothing.
enum StoreAnswer {
    Applied,
    Conflict,
    Unknown,
}

impl StoreAnswer {
    fn of_write(reply: &StoreReply) -> Self {
        match reply {
            StoreReply::Applied(_) => Self::Applied,
            StoreReply::Conflict => Self::Conflict,
            StoreReply::Missing
            | StoreReply::Found(_)
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => Self::Unknown,
        }
    }

    /// The authority record of a read; `Err` where nothing is known.
    fn authority(reply: &StoreReply) -> Result<Option<Authority>, ()> {
        match reply {
            StoreReply::Missing => Ok(None),
            StoreReply::Found(Found { value, version, .. }) => match AuthorityRecord::decode(value) {
                Ok(record) => Ok(Some(Authority { record, version: version.clone() })),
                Err(_) => Err(()),
            },
            StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => Err(()),
        }
    }

    /// A lease key: ended only if the read says that it is missing. One without an end is corruption, not an end.
    fn lease(reply: &StoreReply) -> LeaseSeen {
        match reply {
            StoreReply::Missing => LeaseSeen::Missing,
            StoreReply::Found(Found { ttl: Some(_), .. }) => LeaseSeen::Live,
            StoreReply::Unknown if planted!("unreadable_lease_has_ended") => LeaseSeen::Missing,
            StoreReply::Found(Found { ttl: None, .. })
            | StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => LeaseSeen::Unknown,
        }
    }
}

impl Node {
    /// A node at the start of its life: its first output claims a lease.
    ///
    /// # Errors
    /// [`ConfigError`] where the times and bounds do not fit together.
    pub fn new(now: Now, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let entropy = Entropy::new(config.seed);
        let budget = Budget::new(config.limits.peer_budget, config.limits.node_budget);
        let mut node = Self {
            config,
            now,
            entropy,
            life: Life::Over,
            outputs: VecDeque::new(),
            timers: Timers::new(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
            next_send: 0,
            next_turn: 0,
            next_reply_route: 0,
            attempts: 0,
            relay_sequence: 0,
            calls: BTreeSet::new(),
            peers: BTreeMap::new(),
            gone: VecDeque::new(),
            conns: BTreeMap::new(),
            sends: BTreeMap::new(),
            hosted: BTreeMap::new(),
            current: BTreeMap::new(),
            turns: BTreeMap::new(),
            held_replies: VecDeque::new(),
            births: BTreeMap::new(),
            deaths: BTreeMap::new(),
            deletes_paused: Vec::new(),
            births_paused: Vec::new(),
            refreshing: false,
            lease_again: None,
            moves: BTreeMap::new(),
            move_calls: BTreeMap::new(),
            waiting_moves: BTreeMap::new(),
            stages: BTreeMap::new(),
            stage_keys: BTreeMap::new(),
            terminals: Terminals::default(),
            follows: BTreeMap::new(),
            routes: BTreeMap::new(),
            flights: BTreeMap::new(),
            forwarding: BTreeMap::new(),
            markers: BTreeMap::new(),
            requests: BTreeMap::new(),
            relays: BTreeMap::new(),
            budget,
            shutdown: None,
            counters: Counters::default(),
        };
        node.begin_claim();
        Ok(node)
    }

    /// Takes what happened. Outputs wait until they are polled.
    ///
    /// # Errors
    /// [`Misuse`] by the caller; nothing has changed then.
    pub fn handle(&mut self, now: Now, input: Input) -> Result<(), Misuse> {
        if now.mono < self.now.mono {
            return Err(Misuse::ClockWentBack);
        }
        if let Input::User { call, .. } = &input
            && (self.births.contains_key(call) || !self.calls.insert(*call))
        {
            return Err(Misuse::CallInUse(*call));
        }
        self.now = now;
        self.run_timers();
        match input {
            Input::Tick => {}
            Input::PeerUp { conn, peer, agreed } => {
                if matches!(self.life, Life::Over) {
                    self.outputs.push_back(Output::Drop { conn, reason: DropReason::NodeOver });
                } else {
                    self.peer_up(conn, peer, agreed);
                }
            }
            Input::PeerDown { conn } => self.peer_down(conn),
            Input::Record { conn, record } => self.record(conn, record),
            Input::Sent { send, written: _ } => match self.sends.remove(&send) {
                Some(SendPurpose::Chunk { relocation, bytes }) => self.chunk_sent(relocation, bytes),
                Some(SendPurpose::Cutover(relocation)) => self.cutover_sent(relocation, send),
                Some(SendPurpose::None) | None => {}
            },
            Input::Store { ticket, reply } => match self.tickets.remove(&ticket) {
                Some(purpose) => self.store_reply(purpose, reply),
                None => self.stale_ticket(),
            },
            Input::Host { ticket, reply } => match self.tickets.remove(&ticket) {
                Some(purpose) => self.host_reply(purpose, reply),
                None => self.stale_ticket(),
            },
            Input::TurnEnd { turn, end } => {
                self.turn_ended(turn, end);
                self.shutdown_step();
            }
            Input::User { call, request } => self.user(call, request),
        }
        Ok(())
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Node::handle`] with [`Input::Tick`] at the latest; `None` where nothing waits for time.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        Held {
            objects: self.hosted.len(),
            moves: self.moves.values().filter(|moving| !moving.is_following()).count(),
            follows: self.moves.values().filter(|moving| moving.is_following()).count(),
            stages: self.stages.len(),
            budget_bytes: self.budget.used(),
            relays: self.relays.len(),
            calls: self
                .births
                .keys()
                .filter(|call| !self.calls.contains(call))
                .count()
                .saturating_add(self.calls.len()),
            routed: self.routes.values().fold(
                self.forwarding.values().fold(0, |sum: usize, sent| sum.saturating_add(sent.len())),
                |sum, route| sum.saturating_add(route.waiting()),
            ),
            queued: self.hosted.values().fold(0usize, |sum, hosted| sum.saturating_add(hosted.mailbox.len())),
            turns: self.turns.len(),
            tickets: self.tickets.len(),
            timers: self.timers.len(),
        }
    }

    /// Who this node is, once it has a lease.
    pub fn peer_identity(&self) -> Option<PeerFence> {
        self.identity()
    }

    /// The objects that serve here.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.current.keys()
    }

    /// Whether the node will never do anything again.
    pub const fn is_over(&self) -> bool {
        matches!(self.life, Life::Over)
    }

    fn run_timers(&mut self) {
        while let Some(key) = self.timers.pop(self.now.mono) {
            match key {
                TimerKey::Lease(timer) => self.lease_timer(timer),
                TimerKey::Source(relocation, timer) => self.source(relocation, SourceInput::Timer(timer)),
                TimerKey::Target(relocation, timer) => self.target(relocation, TargetInput::Timer(timer)),
                TimerKey::Request(operation) => self.request_timer(operation),
                TimerKey::Relay(operation) => self.relay_timer(operation),
                TimerKey::Route(object) => self.route_timer(&object),
                TimerKey::Marker(marker) => self.marker_back(marker, false),
                TimerKey::Birth(call) => self.birth_timer(call),
                TimerKey::Death(key, call) => self.delete_turns_ended(&key, call),
                TimerKey::WaitingMove(call) => {
                    self.give_up_waiting(call, RefusedReason::DeadlineExceeded);
                }
                TimerKey::PeerCheck(node) => self.peer_check(&node),
                TimerKey::Ack(node) => self.send_ack(&node),
                TimerKey::Shutdown => self.end(OverReason::ShutdownDeadline),
            }
        }
    }

    fn record(&mut self, conn: Conn, record: Record) {
        let Some(from) = self.conns.get(&conn).and_then(|node| self.peers.get(node)).map(|peer| peer.fence.clone())
        else {
            return self.count_stale("Record");
        };
        match record {
            Record::Prepare(prepare) => self.prepare(conn, &from, prepare),
            Record::State(state) => {
                let input = TargetInput::Chunk { ordinal: state.ordinal, data: state.data };
                self.target_frame(conn, &from, &state.identity, &state.object, input);
            }
            Record::Data(data) => {
                let input = TargetInput::Data { conn, record: data.record };
                self.target_frame(conn, &from, &data.identity, &data.object, input);
            }
            Record::Cutover(cutover) => {
                let input = TargetInput::Cutover { conn, count: cutover.record_count, checksum: cutover.checksum };
                self.target_frame(conn, &from, &cutover.identity, &cutover.object, input);
            }
            Record::Ready(ready) => self.source_answer(&from, &ready.identity, &ready.target, SourceInput::Ready),
            Record::Failed(failed) => {
                let input = SourceInput::Failed(failed.code.mapped());
                self.source_answer(&from, &failed.identity, &failed.target, input);
            }
            Record::ReplyRelay(relay) => self.relay_arrived(conn, relay),
            Record::ReplyRelayAck(ack) => self.relay_acknowledged(&from, &ack),
            Record::FollowNotice(notice) => self.notice_arrived(notice),
            Record::Link(record) => self.link_record(conn, &from, record),
            // This node holds no client sessions.
            Record::SessionSeal(_) | Record::SessionSealed(_) | Record::SessionRoute(_) => self.count_stale("session"),
        }
    }

    fn store_reply(&mut self, purpose: Purpose, reply: StoreReply) {
        match purpose {
            Purpose::Lease(query) => self.lease_reply(query, reply),
            Purpose::PeerLease(node) => self.peer_checked(&node, &reply),
            Purpose::Route(object) => self.route_located(&object, &reply),
            Purpose::Locate(call, object) => self.located(call, &object, &reply),
            Purpose::Birth(call, query) => self.birth_reply(call, query, &reply),
            Purpose::Death(key, call, query) => self.death_reply(&key, call, query, &reply),
            Purpose::Source(relocation, query) => self.source_store_reply(relocation, query, &reply),
            Purpose::Target(relocation, query) => self.target_store_reply(relocation, query, &reply),
            Purpose::Activate(_) | Purpose::Restore(_) | Purpose::Hook(..) => self.stale_ticket(),
        }
    }

    fn host_reply(&mut self, purpose: Purpose, reply: HostReply) {
        match purpose {
            Purpose::Activate(call) => self.activated(call, reply),
            Purpose::Restore(relocation) => self.restored(relocation, reply),
            Purpose::Hook(tenure, command) => self.hook_ended(tenure, command, reply),
            Purpose::Source(relocation, query) => self.source_host_reply(relocation, query, reply),
            Purpose::Lease(_)
            | Purpose::PeerLease(_)
            | Purpose::Route(_)
            | Purpose::Locate(..)
            | Purpose::Birth(..)
            | Purpose::Death(..)
            | Purpose::Target(..) => self.stale_ticket(),
        }
    }

    fn user(&mut self, call: CallId, request: UserRequest) {
        match request {
            UserRequest::Create { object, type_name, arguments, existing } => {
                self.create(call, object, type_name, arguments, existing);
            }
            UserRequest::Reclaim { object, arguments } => self.reclaim(call, object, arguments),
            UserRequest::Delete { object } => self.delete(call, &object),
            UserRequest::Send { from, to, payload } => self.post(call, from, to, payload, None),
            UserRequest::Request { from, to, payload, timeout } => self.post(call, from, to, payload, Some(timeout)),
            UserRequest::Reply { token, outcome } => {
                self.send_reply(&token.requester, token.operation, token.reply_route, outcome);
                self.done(call, CallResult::Replied(Ok(())));
            }
            UserRequest::Locate { object } => self.locate(call, object),
            UserRequest::Relocate { object, target, timeout } => self.relocate(call, &object, &target, timeout),
            UserRequest::CancelMove { relocate } => self.cancel_move(call, relocate),
            UserRequest::Shutdown { timeout } => self.begin_shutdown(call, timeout),
        }
    }

    /// A new message of this node.
    fn post(
        &mut self,
        call: CallId,
        from: Sender,
        to: ObjectKey,
        payload: Payload,
        timeout: Option<core::time::Duration>,
    ) {
        let wants_reply = timeout.is_some();
        let (Some(node), true) = (self.identity(), self.is_serving() && self.shutdown.is_none()) else {
            let error = CallError::NotRun(NotRun::NotServing);
            let result = if wants_reply { CallResult::Answered(Err(error)) } else { CallResult::Sent(Err(error)) };
            return self.done(call, result);
        };
        let operation = OperationId(self.entropy.next_u128().max(1));
        self.next_reply_route = self.next_reply_route.saturating_add(1);
        let reply_route = ReplyRoute(self.next_reply_route);
        let deadline = timeout.map(|timeout| self.now.wall.after(timeout));
        let at = self.now.mono.after(timeout.unwrap_or(self.config.timing.operation));
        self.timers.arm(TimerKey::Request(operation), at);
        let request = Request { call, object: to.clone(), reply_route, wants_reply, taken: false };
        self.requests.insert(operation, request);
        let message = Message {
            source: SourceIdentity { node, sender: from },
            metadata: None,
            operation,
            reply: wants_reply.then_some(reply_route),
            // The route fills it in.
            to: crate::wire::Destination::Node,
            payload,
        };
        let delivery = Box::new(Delivery { message, deadline, hops: 0 });
        self.route_push(&to, Parcel::Message { delivery, origin: Origin::Call });
    }

    fn store(&mut self, purpose: Purpose, command: StoreCommand, give_up: Instant) -> Ticket {
        let ticket = self.ticket(purpose);
        self.outputs.push_back(Output::Store { ticket, command, give_up });
        ticket
    }

    fn host(&mut self, purpose: Purpose, command: HostCommand) -> Ticket {
        let ticket = self.ticket(purpose);
        self.outputs.push_back(Output::Host { ticket, command });
        ticket
    }

    fn ticket(&mut self, purpose: Purpose) -> Ticket {
        self.next_ticket = self.next_ticket.saturating_add(1);
        let ticket = Ticket(self.next_ticket);
        self.tickets.insert(ticket, purpose);
        ticket
    }

    fn done(&mut self, call: CallId, result: CallResult) {
        if self.calls.remove(&call) {
            self.outputs.push_back(Output::Done { call, result });
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn ignored(&mut self, machine: &'static str, state: &'static str, input: &'static str) {
        self.counters.ignored = self.counters.ignored.saturating_add(1);
        self.event(Event::Ignored { machine, state, input });
    }

    const fn count_stale(&mut self, _what: &'static str) {
        self.counters.stale_frames = self.counters.stale_frames.saturating_add(1);
    }

    const fn stale_ticket(&mut self) {
        self.counters.stale_tickets = self.counters.stale_tickets.saturating_add(1);
    }

    const fn count_move(&mut self, outcome: &MoveOutcome, bytes: u64) {
        let counters = &mut self.counters;
        counters.bytes = counters.bytes.saturating_add(bytes);
        let counter = match outcome {
            MoveOutcome::Moved { .. } => &mut counters.moved,
            MoveOutcome::KeptSource { .. } => &mut counters.kept_source,
            MoveOutcome::Refused(_) => &mut counters.refused,
            MoveOutcome::Lost { .. } => &mut counters.lost,
        };
        *counter = counter.saturating_add(1);
    }

    /// The owner pair, while there is a lease.
    fn life_pair(&self) -> Option<OwnerPair> {
        self.tenancy().map(|tenancy| tenancy.pair.clone())
    }

    /// Something read that our lease is gone: look for ourselves.
    fn check_lease(&mut self) {
        if let Some(pair) = self.life_pair() {
            let give_up = self.now.mono.after(self.config.timing.lease_timeout);
            self.store(Purpose::Lease(LeaseQuery::Check), StoreCommand::Read(lease_key(&pair)), give_up);
        }
    }

    fn end_births(&mut self) {
        for (call, birth) in core::mem::take(&mut self.births) {
            let error =
                if birth.may_stand() { CallError::StoreUnavailable } else { CallError::NotRun(NotRun::NotServing) };
            self.done(call, CallResult::Created(Err(error)));
        }
        self.births_paused.clear();
        for call in core::mem::take(&mut self.deaths).into_keys() {
            self.done(call, CallResult::Created(Err(CallError::NotRun(NotRun::NotServing))));
        }
        self.deletes_paused.clear();
        // What is left: deletions, and questions to the store.
        for call in self.calls.clone() {
            if self.shutdown.as_ref().is_none_or(|calls| !calls.contains(&call)) {
                let purposes: Vec<&Purpose> = self.tickets.values().collect();
                let located = purposes.iter().any(|purpose| matches!(purpose, Purpose::Locate(of, _) if *of == call));
                let result = if located {
                    CallResult::Located(Err(CallError::StoreUnavailable))
                } else {
                    CallResult::Deleted(Err(CallError::NotRun(NotRun::NotServing)))
                };
                self.done(call, result);
            }
        }
    }
}
