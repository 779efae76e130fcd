//! Nodes, inputs, records and store contents by number, and what each step of a node gave. A host that answers at once
//! and a transport that takes every record are part of the step.

use rehome::Node;
use rehome::node::{CallError, Conn};
use rehome::node::{CallId, CallResult, HostCommand, HostReply, Input, Output, Ticket, TurnId};
use rehome::state::Captured;
use rehome::store::record::{AuthorityRecord, authority_key};
use rehome::store::{MemoryStore, StoreCommand, StoreReply};
use rehome::time::{Instant, Now, UnixMillis};
use rehome::wire::Record;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Values by number, from 0.
#[derive(Debug)]
struct Ids<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T: Hash + Eq> Ids<T> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).expect("fewer values");
        let value = Arc::new(value);
        let number = *self.numbers.entry(Arc::clone(&value)).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        number
    }

    fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

/// How a call ended, as far as a promise speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The answer came.
    Answered,
    /// It has not run and will not.
    NotRun,
    /// Nobody can tell.
    MayHaveRun,
    /// Of a call that is no message.
    Other,
}

/// What a node did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emit {
    Send { conn: Conn, record: u32 },
    Ask { ticket: Ticket, command: u32 },
    Ran { turn: TurnId, message: u8, incarnation: u64, owner_generation: u64 },
    Done { call: CallId, end: End },
    Drop { conn: Conn },
}

type Step = (u32, Arc<[Emit]>);

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    nodes: Ids<Node>,
    inputs: Ids<Input>,
    records: Ids<Record>,
    commands: Ids<StoreCommand>,
    replies: Ids<StoreReply>,
    stores: Ids<MemoryStore>,
    steps: HashMap<(u32, u64, u32), Step>,
    applied: HashMap<(u32, u32), (u32, u32)>,
}

pub(super) fn clock(nanos: u64) -> Now {
    Now { mono: Instant::from_nanos(nanos), wall: UnixMillis(1_000_000 + nanos / 1_000_000) }
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            nodes: Ids::new(),
            inputs: Ids::new(),
            records: Ids::new(),
            commands: Ids::new(),
            replies: Ids::new(),
            stores: Ids::new(),
            steps: HashMap::new(),
            applied: HashMap::new(),
        }
    }

    pub(super) fn start(&mut self, mut node: Node) -> Step {
        let emits = self.settle(&mut node, clock(0));
        (self.nodes.number(node), emits)
    }

    pub(super) fn store(&mut self, store: MemoryStore) -> u32 {
        self.stores.number(store)
    }

    pub(super) fn node(&self, node: u32) -> &Node {
        self.nodes.get(node)
    }

    pub(super) fn record(&self, record: u32) -> &Record {
        self.records.get(record)
    }

    pub(super) fn reply(&self, reply: u32) -> &StoreReply {
        self.replies.get(reply)
    }

    pub(super) fn is_write(&self, command: u32) -> bool {
        matches!(self.commands.get(command), StoreCommand::Write(_))
    }

    pub(super) fn sizes(&self) -> [usize; 4] {
        [self.nodes.values.len(), self.steps.len(), self.records.values.len(), self.stores.values.len()]
    }

    pub(super) fn apply(&mut self, store: u32, command: u32) -> (u32, u32) {
        if let Some(known) = self.applied.get(&(store, command)) {
            return *known;
        }
        let mut value = self.stores.get(store).clone();
        let reply = value.apply(Instant::ZERO, self.commands.get(command));
        let result = (self.stores.number(value), self.replies.number(reply));
        self.applied.insert((store, command), result);
        result
    }

    /// Who owns the object: the owner id, the incarnation and the owner generation.
    pub(super) fn owner(&self, store: u32, object: &rehome::fence::ObjectKey) -> Option<(String, u64, u64)> {
        let mut value = self.stores.get(store).clone();
        match value.apply(Instant::ZERO, &StoreCommand::Read(authority_key(object))) {
            StoreReply::Found(found) => AuthorityRecord::decode(&found.value).ok().map(|record| {
                let owner = record.owner.owner.as_str().to_owned();
                (owner, record.generation.get(), record.owner_generation.get())
            }),
            _ => None,
        }
    }

    pub(super) fn step(&mut self, node: u32, at: u64, input: Input) -> Step {
        let input = self.inputs.number(input);
        if let Some((next, emits)) = self.steps.get(&(node, at, input)) {
            return (*next, Arc::clone(emits));
        }
        let mut value = self.nodes.get(node).clone();
        value.handle(clock(at), self.inputs.get(input).clone()).expect("no misuse");
        let emits = self.settle(&mut value, clock(at));
        let next = self.nodes.number(value);
        self.steps.insert((node, at, input), (next, Arc::clone(&emits)));
        (next, emits)
    }

    /// Carries out what the node can have at once, and collects the rest.
    fn settle(&mut self, node: &mut Node, now: Now) -> Arc<[Emit]> {
        let mut emits = Vec::new();
        while let Some(output) = node.poll_output() {
            let input = match output {
                Output::Send { conn, send, record, .. } => {
                    emits.push(Emit::Send { conn, record: self.records.number(record) });
                    Input::Sent { send, written: true }
                }
                Output::Store { ticket, command, .. } => {
                    emits.push(Emit::Ask { ticket, command: self.commands.number(command) });
                    continue;
                }
                Output::Host { ticket, command } => {
                    let reply = match command {
                        HostCommand::SizeHint { .. } => HostReply::Size(1),
                        HostCommand::Capture { .. } => HostReply::Captured(Some(Captured::default())),
                        HostCommand::Activate { .. }
                        | HostCommand::Restore { .. }
                        | HostCommand::Open { .. }
                        | HostCommand::Resume { .. }
                        | HostCommand::Retire { .. }
                        | HostCommand::Discard { .. } => HostReply::Done,
                    };
                    Input::Host { ticket, reply }
                }
                Output::Turn(turn) => {
                    emits.push(Emit::Ran {
                        turn: turn.turn,
                        message: turn.payload.bytes.first().copied().unwrap_or(u8::MAX),
                        incarnation: turn.tenure.generation.get(),
                        owner_generation: turn.tenure.owner_generation.get(),
                    });
                    continue;
                }
                Output::Done { call, result } => {
                    emits.push(Emit::Done { call, end: end_of(&result) });
                    continue;
                }
                Output::Drop { conn, .. } => {
                    emits.push(Emit::Drop { conn });
                    continue;
                }
                Output::Progress { .. } | Output::Event(_) => continue,
            };
            node.handle(now, input).expect("no misuse");
        }
        emits.into()
    }
}

fn end_of(result: &CallResult) -> End {
    match result {
        CallResult::Answered(Ok(_)) | CallResult::Sent(Ok(())) => End::Answered,
        CallResult::Answered(Err(CallError::NotRun(_))) | CallResult::Sent(Err(CallError::NotRun(_))) => End::NotRun,
        CallResult::Answered(Err(_)) | CallResult::Sent(Err(_)) => End::MayHaveRun,
        _ => End::Other,
    }
}
