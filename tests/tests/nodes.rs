//! One node alone, with a hand on everything that it asks: rules that whole histories meet too seldom.

// A test looks at one answer and lets the others pass.
#![allow(clippy::wildcard_enum_match_arm)]

use bytes::Bytes;
use rehome::fence::{
    CoordinatorFence, NodeFence, ObjectIdentity, ObjectKey, OwnerPair, PeerFence, RelocationIdentity, RouteFence,
};
use rehome::id::{
    AttemptGeneration, LeaseGeneration, NodeGeneration, ObjectId, OperationId, OwnerId, RelocationId, ReplyRoute,
    RoutingId, Text8, TypeName,
};
use rehome::link::Agreed;
use rehome::node::*;
use rehome::state::Captured;
use rehome::store::record::{AuthorityRecord, LeaseRecord, OwnerRecord, authority_key, lease_key, owner_key};
use rehome::store::{Batch, Condition, MemoryStore, Mutation, StoreCommand, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::{
    Delivery, Destination, Failed, FailureCode, LinkRecord, Message, Ordered, Outcome, Payload, Prepare, Ready, Record,
    Sender, SourceIdentity,
};
use std::collections::VecDeque;
use std::time::Duration;

const CONN: Conn = Conn(9);

fn name(text: &str) -> Text8 {
    Text8::new(text).expect("a name")
}

fn peer() -> PeerFence {
    PeerFence {
        node: NodeFence { rid: RoutingId::new("peer").expect("an id"), generation: NodeGeneration::FIRST },
        owner: OwnerPair { owner: OwnerId::new("peer").expect("an id"), lease: LeaseGeneration::FIRST },
    }
}

fn key() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("thing").expect("an id"))
}

/// A node whose store and host answer at once, and whose peer is the test.
struct Rig {
    node: Node,
    now: u64,
    store: MemoryStore,
    /// What the store says instead, in order, to commands that `meant` picks.
    lies: VecDeque<StoreReply>,
    meant: fn(&StoreCommand) -> bool,
    commands: Vec<StoreCommand>,
    sent: Vec<Record>,
    done: Vec<CallResult>,
    turns: Vec<Turn>,
    events: Vec<Event>,
    calls: u64,
    /// The host can make nothing.
    cannot_make: bool,
}

impl Rig {
    fn config() -> Config {
        Config {
            node: NodeFence { rid: RoutingId::new("me").expect("an id"), generation: NodeGeneration::FIRST },
            owner: OwnerId::new("me").expect("an id"),
            mesh: name("mesh"),
            endpoint: String::new(),
            application_version: 1,
            types: [(TypeName::new("thing").expect("a name"), TypeConfig::default())].into(),
            seed: 42,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    fn unstarted() -> Self {
        let config = Self::config();
        let now = Now { mono: Instant::from_millis(1000), wall: UnixMillis(1_000_000) };
        Self {
            node: Node::new(now, config).expect("a configuration that works"),
            now: 1000,
            store: MemoryStore::new(),
            lies: VecDeque::new(),
            meant: |_| true,
            commands: Vec::new(),
            sent: Vec::new(),
            done: Vec::new(),
            turns: Vec::new(),
            events: Vec::new(),
            calls: 0,
            cannot_make: false,
        }
    }

    /// Serving, connected to the peer, whose lease is live.
    fn new() -> Self {
        let mut rig = Self::unstarted();
        rig.pump();
        rig.put_lease(&peer().owner, 7);
        rig.connect(CONN, peer());
        rig
    }

    /// A peer connects, which has received nothing yet.
    fn connect(&mut self, conn: Conn, peer: PeerFence) {
        let agreed = Agreed {
            capabilities: Default::default(),
            chunk_limit: Some(1 << 16),
            application_version: 1,
            link: true,
            v14: true,
        };
        self.feed(Input::PeerUp { conn, peer, agreed });
        self.feed(Input::Record { conn, record: Record::Link(LinkRecord::Resume { received: 0 }) });
    }

    /// The first ordered record on a connection: a request of `from` to the object.
    fn deliver(&mut self, conn: Conn, from: PeerFence) {
        let read = StoreCommand::Read(authority_key(&key()));
        let StoreReply::Found(found) = self.store.apply(Instant::from_millis(self.now), &read) else {
            panic!("the object has no record");
        };
        let record = AuthorityRecord::decode(&found.value).expect("a record");
        let message = Message {
            source: SourceIdentity { node: from, sender: Sender::Node },
            metadata: None,
            operation: OperationId(77),
            reply: Some(ReplyRoute(5)),
            to: Destination::Actor(RouteFence {
                object: key().id,
                generation: record.generation,
                node: record.node,
                owner_generation: record.owner_generation,
                lease: record.owner.lease,
            }),
            payload: Payload { name: name("hit"), content_type: name("none"), bytes: Bytes::new() },
        };
        let deadline = Some(self.clock().wall.after(Duration::from_secs(3000)));
        let body = Ordered::Deliver(Box::new(Delivery { message, deadline, hops: 1 }));
        self.feed(Input::Record { conn, record: Record::Link(LinkRecord::Ordered { sequence: 0, body }) });
    }

    /// Ends the turn that runs, with an answer.
    fn end_turn(&mut self) {
        let turn = self.turns.last().expect("a turn").turn;
        let payload = Payload { name: name("done"), content_type: name("none"), bytes: Bytes::new() };
        self.feed(Input::TurnEnd { turn, end: TurnEnd::Done { reply: Some(Outcome::Answer(payload)) } });
    }

    fn replies(&self) -> usize {
        let reply =
            |record: &&Record| matches!(record, Record::Link(LinkRecord::Ordered { body: Ordered::Reply(_), .. }));
        self.sent.iter().filter(reply).count()
    }

    fn with_object() -> Self {
        let mut rig = Self::new();
        rig.user(UserRequest::Create {
            object: key(),
            type_name: TypeName::new("thing").expect("a name"),
            arguments: Bytes::new(),
            existing: Existing::Refuse,
        });
        assert!(matches!(rig.done.pop(), Some(CallResult::Created(Ok(_)))));
        rig
    }

    fn put_lease(&mut self, pair: &OwnerPair, nonce: u128) {
        let lease = LeaseRecord { node: peer().node, nonce, renewed_unix_ms: 0 };
        let put = |key, value, ttl| Mutation::Put { key, value, ttl };
        let mutations = vec![
            put(owner_key(&pair.owner), OwnerRecord { lease: pair.lease }.encode(), None),
            put(lease_key(pair), lease.encode(), Some(Duration::from_secs(3600))),
        ];
        let batch = Batch { conditions: Vec::<Condition>::new(), mutations };
        self.store.apply(Instant::from_millis(self.now), &StoreCommand::Write(batch));
    }

    fn clock(&self) -> Now {
        Now { mono: Instant::from_millis(self.now), wall: UnixMillis(1_000_000 + self.now) }
    }

    fn feed(&mut self, input: Input) {
        self.node.handle(self.clock(), input).expect("no misuse");
        self.pump();
    }

    fn user(&mut self, request: UserRequest) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        self.feed(Input::User { call, request });
        call
    }

    fn wait(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some(at) = self.node.deadline().map(|at| at.as_nanos().div_ceil(1_000_000))
            && at <= end
        {
            self.now = self.now.max(at);
            self.feed(Input::Tick);
        }
        self.now = end;
        self.feed(Input::Tick);
    }

    fn pump(&mut self) {
        while let Some(output) = self.node.poll_output() {
            let clock = self.clock();
            let input = match output {
                Output::Store { ticket, command, .. } => {
                    let lie = (self.meant)(&command).then(|| self.lies.pop_front()).flatten();
                    let reply = lie.unwrap_or_else(|| self.store.apply(clock.mono, &command));
                    self.commands.push(command);
                    Input::Store { ticket, reply }
                }
                Output::Host { ticket, command } => {
                    let reply = match command {
                        HostCommand::SizeHint { .. } => HostReply::Size(10),
                        HostCommand::Activate { .. } if self.cannot_make => {
                            HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: String::new() }
                        }
                        HostCommand::Capture { .. } => HostReply::Captured(Some(Captured::default())),
                        _ => HostReply::Done,
                    };
                    Input::Host { ticket, reply }
                }
                Output::Send { send, record, .. } => {
                    self.sent.push(record);
                    Input::Sent { send, written: true }
                }
                Output::Turn(turn) => {
                    self.turns.push(turn);
                    continue;
                }
                Output::Done { result, .. } => {
                    self.done.push(result);
                    continue;
                }
                Output::Event(event) => {
                    self.events.push(event);
                    continue;
                }
                Output::Drop { .. } | Output::Progress { .. } => continue,
            };
            self.node.handle(clock, input).expect("no misuse");
        }
    }

    fn hit(&mut self) {
        let payload = Payload { name: name("hit"), content_type: name("none"), bytes: Bytes::new() };
        self.user(UserRequest::Send { from: Sender::Node, to: key(), payload });
    }

    /// Moves the object to the peer as far as its prepare, which is returned.
    fn prepare_out(&mut self) -> Prepare {
        self.user(UserRequest::Relocate { object: key(), target: peer().node.rid, timeout: None });
        let found = self.sent.iter().rev().find_map(|record| match record {
            Record::Prepare(prepare) => Some(prepare.clone()),
            _ => None,
        });
        found.expect("a prepare")
    }

    fn ready(&mut self, prepare: &Prepare) {
        let Prepare { identity, target, object, .. } = prepare.clone();
        self.feed(Input::Record { conn: CONN, record: Record::Ready(Ready { identity, target, object }) });
    }

    /// A prepare from the peer for an object that it owns.
    fn prepare_in(&self, relocation: u128) -> Prepare {
        let me = self.node.peer_identity().expect("a lease");
        let total_length = 40;
        Prepare {
            identity: RelocationIdentity {
                relocation: RelocationId::new(relocation).expect("not zero"),
                attempt: AttemptGeneration::FIRST,
                coordinator: CoordinatorFence {
                    owner: peer().owner,
                    node: peer().node,
                    version: rehome::id::StoreVersion::new("1").expect("a version"),
                },
            },
            target: me,
            object: ObjectIdentity::Actor {
                id: ObjectId::new("other").expect("an id"),
                generation: rehome::id::ObjectGeneration::FIRST,
                owner_generation: rehome::id::OwnerGeneration::FIRST,
            },
            source: peer().node,
            total_length,
            chunk_count: 1,
            checksum: 1,
            application_version: 1,
            deadline: None,
        }
    }

    fn failures(&self) -> Vec<FailureCode> {
        let code = |record: &Record| match record {
            Record::Failed(Failed { code, .. }) => Some(*code),
            _ => None,
        };
        self.sent.iter().filter_map(code).collect()
    }
}

#[test]
fn an_unknown_claim_is_adopted_only_if_its_nonce_is_ours() {
    let mut rig = Rig::unstarted();
    // We saw no owner record; then another process with our owner id claimed the first generation; our own claim of it
    // was not done, and its answer was lost.
    rig.lies = vec![StoreReply::Missing, StoreReply::Unknown].into();
    rig.put_lease(&OwnerPair { owner: OwnerId::new("me").expect("an id"), lease: LeaseGeneration::FIRST }, 99);
    rig.pump();
    let lease = rig.node.peer_identity().expect("a lease").owner.lease;
    assert_ne!(lease, LeaseGeneration::FIRST, "the lease of another process was adopted");
}

#[test]
fn trap_06_an_object_is_not_reclaimed_on_an_unreadable_lease() {
    let mut rig = Rig::with_object();
    let owner = rig.node.peer_identity().expect("a lease").owner;
    rig.meant = |command| matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"lease"));
    rig.lies = vec![StoreReply::Unknown; 3].into();
    rig.commands.clear();
    rig.user(UserRequest::Reclaim { object: key(), arguments: Bytes::new() });
    rig.wait(200);
    assert!(rig.commands.iter().all(|command| matches!(command, StoreCommand::Read(_))), "{:?}", rig.commands);
    assert_eq!(rig.done.pop(), Some(CallResult::Created(Err(CallError::OwnerAlive))), "{owner:?}");
}

#[test]
fn trap_14_a_repeated_prepare_is_answered_and_another_one_touches_nothing() {
    let mut rig = Rig::new();
    let prepare = rig.prepare_in(5);
    rig.meant = |command| matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"authority"));
    rig.lies = vec![StoreReply::Unknown; 100].into();
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare.clone()) });
    assert_eq!(rig.node.held().stages, 1);
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare.clone()) });
    assert_eq!((rig.node.held().stages, rig.failures().len()), (1, 0));
    let other = Prepare { total_length: 41, ..prepare.clone() };
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(other) });
    assert_eq!((rig.node.held().stages, rig.failures()), (1, vec![FailureCode::DATA_LOST]));
    // A newer attempt stands beside it.
    let newer = rig.prepare_in(6);
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(newer) });
    assert_eq!(rig.node.held().stages, 2);
}

#[test]
fn trap_15_an_ended_identity_does_not_begin_again() {
    let mut rig = Rig::new();
    let prepare = rig.prepare_in(5);
    // There is no such record: the stage fails at once, and is remembered.
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare.clone()) });
    assert_eq!(rig.failures(), [FailureCode::ACTOR_LOCATION_STALE]);
    rig.commands.clear();
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare) });
    assert_eq!(rig.failures(), [FailureCode::ACTOR_LOCATION_STALE; 2], "the same answer again");
    assert!(rig.commands.is_empty(), "nothing began: {:?}", rig.commands);
}

#[test]
fn a_frame_of_another_peer_or_for_another_target_is_ignored() {
    let mut rig = Rig::new();
    let prepare = rig.prepare_in(5);
    let mut foreign = prepare.clone();
    foreign.target.owner.lease = LeaseGeneration::new(77).expect("a lease");
    let mut forged = prepare;
    forged.source.rid = RoutingId::new("somebody else").expect("an id");
    for prepare in [foreign, forged] {
        rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare) });
    }
    assert_eq!((rig.node.held().stages, rig.failures().len()), (0, 0));
    assert_eq!(rig.node.counters().stale_frames, 2);
}

#[test]
fn trap_27_a_node_in_shutdown_takes_no_prepare() {
    let mut rig = Rig::with_object();
    rig.hit();
    assert_eq!(rig.turns.len(), 1, "a turn runs, so that the shutdown waits");
    rig.user(UserRequest::Shutdown { timeout: Duration::from_secs(10) });
    let prepare = rig.prepare_in(5);
    rig.feed(Input::Record { conn: CONN, record: Record::Prepare(prepare) });
    assert_eq!((rig.node.held().stages, rig.failures()), (0, vec![FailureCode::REJECTED]));
}

#[test]
fn trap_26_the_lease_goes_back_only_after_the_settlement() {
    let mut rig = Rig::with_object();
    let prepare = rig.prepare_out();
    rig.ready(&prepare);
    rig.user(UserRequest::Shutdown { timeout: Duration::from_secs(60) });
    rig.wait(2000);
    let released = |rig: &Rig| {
        rig.commands.iter().any(|command| {
            matches!(command, StoreCommand::Write(batch) if batch.mutations.iter().any(|m| matches!(m, Mutation::Delete(_))))
        })
    };
    assert!(!released(&rig), "the store has not decided yet");
    // The target gives up; the source fences it out and then ends.
    let Prepare { identity, target, object, .. } = prepare;
    let code = FailureCode::REJECTED;
    rig.feed(Input::Record { conn: CONN, record: Record::Failed(Failed { identity, target, object, code }) });
    rig.wait(2000);
    assert!(released(&rig));
    assert!(rig.done.iter().any(|result| matches!(result, CallResult::Moved(Ok(MoveOutcome::KeptSource { .. })))));
    assert_eq!(rig.done.last(), Some(&CallResult::ShutDown));
}

#[test]
fn trap_16_a_settling_source_sends_the_whole_batch_again() {
    let mut rig = Rig::with_object();
    let prepare = rig.prepare_out();
    for _ in 0..4 {
        rig.hit();
    }
    rig.ready(&prepare);
    let count = |rig: &Rig| {
        let data = rig.sent.iter().filter(|record| matches!(record, Record::Data(_))).count();
        (data, rig.sent.iter().filter(|record| matches!(record, Record::Cutover(_))).count())
    };
    assert_eq!(count(&rig), (4, 1));
    // What comes after the cutover is held, not sent as data.
    rig.hit();
    rig.wait(1100);
    assert_eq!(count(&rig), (8, 2));
}

#[test]
fn trap_02_a_lost_submission_settles_by_the_store_and_keeps_every_message() {
    let mut rig = Rig::with_object();
    let prepare = rig.prepare_out();
    rig.hit();
    rig.ready(&prepare);
    rig.feed(Input::PeerDown { conn: CONN });
    rig.wait(500);
    assert!(rig.turns.is_empty(), "dispatch stays shut");
    // The operation's deadline passes: the source fences, and the read after it says that the object stayed.
    rig.wait(31_000);
    assert_eq!(rig.turns.len(), 1);
    assert!(rig.events.iter().any(|event| matches!(
        event,
        Event::SourceEnded { outcome: MoveOutcome::KeptSource { reason: KeptReason::Fenced, .. }, .. }
    )));
}

#[test]
fn trap_11_a_store_reply_counts_only_for_its_own_ticket() {
    let mut rig = Rig::with_object();
    let before = rig.node.clone();
    let reply = StoreReply::Missing;
    rig.feed(Input::Store { ticket: Ticket(1), reply: reply.clone() });
    rig.feed(Input::Store { ticket: Ticket(u64::MAX), reply });
    assert_eq!(rig.node.counters().stale_tickets, before.counters().stale_tickets + 2);
    assert_eq!(rig.node.held(), before.held());
}

#[test]
fn trap_20_an_answer_ends_a_request_once() {
    let mut rig = Rig::with_object();
    let payload = Payload { name: name("hit"), content_type: name("none"), bytes: Bytes::new() };
    let timeout = Duration::from_secs(5);
    rig.user(UserRequest::Request { from: Sender::Node, to: key(), payload: payload.clone(), timeout });
    let turn = rig.turns.pop().expect("a turn");
    let token = turn.reply_token.clone().expect("a request");
    let reply = Some(Outcome::Answer(payload.clone()));
    rig.feed(Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: reply.clone() } });
    rig.feed(Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply } });
    rig.user(UserRequest::Reply { token, outcome: Outcome::Answer(payload) });
    let answered = rig.done.iter().filter(|result| matches!(result, CallResult::Answered(_))).count();
    assert_eq!(answered, 1);
    rig.wait(6000);
    assert_eq!(rig.done.iter().filter(|result| matches!(result, CallResult::Answered(_))).count(), 1);
}

#[test]
fn trap_25_every_refusal_gives_the_budget_back() {
    let mut rig = Rig::with_object();
    rig.meant = |command| matches!(command, StoreCommand::Read(key) if *key == authority_key(&self::key()));
    rig.lies = vec![StoreReply::Missing].into();
    rig.user(UserRequest::Relocate { object: key(), target: peer().node.rid, timeout: None });
    assert!(matches!(
        rig.done.pop(),
        Some(CallResult::Moved(Ok(MoveOutcome::Refused(RefusedReason::StoreUnavailable))))
    ));
    let prepare = rig.prepare_out();
    let Prepare { identity, target, object, .. } = prepare;
    let failed = Failed { identity, target, object, code: FailureCode::REJECTED };
    rig.feed(Input::Record { conn: CONN, record: Record::Failed(failed) });
    let held = rig.node.held();
    assert_eq!((held.moves, held.budget_bytes, held.tickets), (0, 0, 0));
    rig.hit();
    assert_eq!(rig.turns.len(), 1, "the object runs on");
}

#[test]
fn the_guard_stops_turns_and_a_renewal_lets_them_go_on() {
    let mut rig = Rig::with_object();
    rig.meant = |command| matches!(command, StoreCommand::Write(_));
    rig.lies = vec![StoreReply::Unknown; 12].into();
    rig.wait(11_000);
    assert!(rig.events.iter().any(|event| matches!(event, Event::GuardPassed)));
    rig.hit();
    assert!(rig.turns.is_empty(), "no turn starts past the guard");
    rig.lies.clear();
    rig.wait(2000);
    assert!(rig.events.iter().any(|event| matches!(event, Event::GuardRestored)));
    assert_eq!(rig.turns.len(), 1);
}

#[test]
fn early_and_spurious_ticks_do_nothing() {
    let mut rig = Rig::with_object();
    let before = rig.node.clone();
    for _ in 0..3 {
        rig.feed(Input::Tick);
    }
    assert_eq!(rig.node, before);
}

#[test]
fn an_ordered_record_counts_once() {
    let mut rig = Rig::new();
    let record = LinkRecord::Ordered { sequence: 0, body: Ordered::MarkerBack { marker: rehome::id::OperationId(3) } };
    for _ in 0..2 {
        rig.feed(Input::Record { conn: CONN, record: Record::Link(record.clone()) });
    }
    assert_eq!(rig.node.counters().stale_frames, 2, "one for the unknown marker, one for the repetition");
    let ahead = LinkRecord::Ordered { sequence: 5, body: Ordered::MarkerBack { marker: rehome::id::OperationId(3) } };
    rig.feed(Input::Record { conn: CONN, record: Record::Link(ahead) });
    assert!(rig.events.iter().any(|event| matches!(event, Event::PeerDown { .. })), "a gap breaks the connection");
}

/// Another process, with a lease of its own.
fn stranger() -> PeerFence {
    PeerFence {
        node: NodeFence { rid: RoutingId::new("stranger").expect("an id"), generation: NodeGeneration::FIRST },
        owner: OwnerPair { owner: OwnerId::new("stranger").expect("an id"), lease: LeaseGeneration::FIRST },
    }
}

#[test]
fn the_answer_to_a_node_that_was_never_connected_waits_for_it() {
    let mut rig = Rig::with_object();
    rig.put_lease(&stranger().owner, 8);
    rig.deliver(CONN, stranger());
    rig.end_turn();
    assert_eq!(rig.replies(), 0, "there is nowhere to send it yet");
    rig.wait(5000);
    rig.connect(Conn(10), stranger());
    assert_eq!(rig.replies(), 1);
}

#[test]
fn what_waits_for_a_node_that_ended_unseen_goes_with_it() {
    let mut rig = Rig::with_object();
    rig.deliver(CONN, stranger());
    rig.end_turn();
    // It has no lease: the first look at the store finds that out, and it is not asked for again.
    rig.wait(5000);
    assert!(rig.events.iter().any(|event| matches!(event, Event::PeerGone { peer } if *peer == stranger())));
    rig.connect(Conn(10), stranger());
    assert_eq!(rig.replies(), 0);
}

#[test]
fn a_run_that_another_one_displaced_says_nothing_twice() {
    let mut rig = Rig::with_object();
    rig.deliver(CONN, peer());
    rig.end_turn();
    rig.feed(Input::PeerDown { conn: CONN });
    // Another process has the same routing id. The first one still lives and comes back without having heard that its
    // message has arrived.
    let mut other = peer();
    other.node.generation = NodeGeneration::new(2).expect("a generation");
    other.owner.lease = LeaseGeneration::new(2).expect("a lease");
    rig.connect(Conn(10), other);
    rig.connect(Conn(11), peer());
    rig.deliver(Conn(11), peer());
    assert_eq!(rig.turns.len(), 1, "the same message ran again");
}

#[test]
fn more_hops_than_a_message_can_count_are_refused_at_the_start() {
    let rig = Rig::unstarted();
    let mut config = Rig::config();
    config.limits.follow_hops = 9;
    assert_eq!(Node::new(rig.clock(), config).err(), Some(ConfigError::Hops(9)));
}

#[test]
fn a_store_that_fails_at_once_is_not_asked_at_once_again() {
    let asked = |rig: &mut Rig, meant: fn(&StoreCommand) -> bool| {
        rig.meant = meant;
        rig.lies = vec![StoreReply::Unknown; 10_000].into();
        rig.commands.clear();
    };
    // Nothing here takes its own pause of 25 ms more often than that within a second.
    let few = |rig: &mut Rig| {
        assert!(rig.commands.len() < 10, "{} at once", rig.commands.len());
        rig.wait(1000);
        assert!((10..200).contains(&rig.commands.len()), "{} in a second", rig.commands.len());
        rig.lies.clear();
        rig.wait(5000);
    };
    let of_authority: fn(&StoreCommand) -> bool =
        |command| matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"authority"));
    // A claim whose answer is lost.
    let mut rig = Rig::unstarted();
    let meant: fn(&StoreCommand) -> bool = |command| match command {
        StoreCommand::Write(batch) => batch.mutations.len() == 2,
        StoreCommand::Read(key) => key.0.starts_with(b"lease"),
        StoreCommand::Scan { .. } => false,
    };
    asked(&mut rig, meant);
    rig.pump();
    few(&mut rig);
    assert!(rig.node.peer_identity().is_some());
    // A descriptor that is not written.
    let mut rig = Rig::unstarted();
    let descriptor: fn(&StoreCommand) -> bool = |command| match command {
        StoreCommand::Write(batch) => batch.mutations.iter().any(|put| put.key().0.starts_with(b"mesh-node")),
        StoreCommand::Read(key) => key.0.starts_with(b"mesh-node"),
        StoreCommand::Scan { .. } => false,
    };
    asked(&mut rig, descriptor);
    rig.pump();
    few(&mut rig);
    // A birth and a death.
    let mut rig = Rig::new();
    asked(&mut rig, of_authority);
    rig.user(UserRequest::Create {
        object: key(),
        type_name: TypeName::new("thing").expect("a name"),
        arguments: Bytes::new(),
        existing: Existing::Refuse,
    });
    few(&mut rig);
    assert!(matches!(rig.done.pop(), Some(CallResult::Created(Ok(_)))));
    asked(&mut rig, of_authority);
    rig.user(UserRequest::Delete { object: key() });
    few(&mut rig);
    assert_eq!(rig.done.pop(), Some(CallResult::Deleted(Ok(()))));
    // A message without a route, and a move that has to be settled.
    let mut rig = Rig::with_object();
    let prepare = rig.prepare_out();
    asked(&mut rig, of_authority);
    rig.ready(&prepare);
    few(&mut rig);
}

#[test]
fn what_was_held_for_an_incarnation_that_ended_comes_to_the_next_one_behind_a_gap() {
    let mut rig = Rig::with_object();
    let prepare = rig.prepare_out();
    rig.ready(&prepare);
    rig.hit();
    // The move committed, its target died, and the object was made anew at the peer: nobody can tell how many messages
    // of this node have come there by another way.
    let read = StoreCommand::Read(authority_key(&key()));
    let StoreReply::Found(found) = rig.store.apply(Instant::from_millis(rig.now), &read) else {
        panic!("the object has no record");
    };
    let mut record = AuthorityRecord::decode(&found.value).expect("a record");
    record.generation = rehome::id::ObjectGeneration::new(99).expect("a generation");
    (record.owner, record.node) = (peer().owner, peer().node);
    let put = Mutation::Put { key: authority_key(&key()), value: record.encode(), ttl: None };
    let batch = Batch { conditions: Vec::new(), mutations: vec![put] };
    rig.store.apply(Instant::from_millis(rig.now), &StoreCommand::Write(batch));
    rig.wait(1000);
    let gaps = rig.events.iter().filter(|event| matches!(event, Event::OrderGap { .. })).count();
    let delivered = rig.sent.iter().any(|record| {
        matches!(record, Record::Link(LinkRecord::Ordered { body: Ordered::Deliver(delivery), .. })
            if matches!(&delivery.message.to, Destination::Actor(fence) if fence.generation.get() == 99))
    });
    assert_eq!((gaps, delivered), (1, true));
}

#[test]
fn what_waits_for_a_route_is_not_forgotten_with_an_object_that_could_not_be_made() {
    let mut rig = Rig::with_object();
    // The store names an owner that is over and was never a peer: a message waits for another one.
    let read = StoreCommand::Read(authority_key(&key()));
    let StoreReply::Found(found) = rig.store.apply(Instant::from_millis(rig.now), &read) else {
        panic!("the object has no record");
    };
    let mut record = AuthorityRecord::decode(&found.value).expect("a record");
    (record.owner, record.node) = (stranger().owner, stranger().node);
    let mut rig = Rig::new();
    let put = Mutation::Put { key: authority_key(&key()), value: record.encode(), ttl: None };
    let batch = Batch { conditions: Vec::new(), mutations: vec![put] };
    rig.store.apply(Instant::from_millis(rig.now), &StoreCommand::Write(batch));
    rig.hit();
    assert_eq!((rig.node.held().routed, rig.done.len()), (1, 0));
    // This node takes the object over and cannot make it: the record goes again.
    rig.cannot_make = true;
    rig.user(UserRequest::Reclaim { object: key(), arguments: Bytes::new() });
    assert!(matches!(rig.done.pop(), Some(CallResult::Created(Err(CallError::ActivationFailed(_))))));
    rig.wait(2000);
    assert_eq!(rig.node.held().routed, 0);
    assert_eq!(rig.done.pop(), Some(CallResult::Sent(Err(CallError::NotRun(NotRun::NotFound)))));
}
