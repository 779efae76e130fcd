//! The last steps of a history, for people. It keeps nothing in a history that nobody wants to read.

use crate::host::read_message;
use rehome::node::{Event, UserRequest};
use rehome::store::{Condition, Mutation, StoreCommand, StoreReply};
use rehome::wire::{FrozenRecord, LinkRecord, Ordered, Payload, Record};
use rehome::{Input, Output};
use std::collections::VecDeque;

pub(super) struct Trace {
    keep: usize,
    lines: VecDeque<String>,
}

impl Trace {
    pub(super) const fn new(keep: usize) -> Self {
        Self { keep, lines: VecDeque::new() }
    }

    /// How many lines of a history that fails: `REHOME_TRACE`, 60 by default.
    pub(super) fn wanted() -> usize {
        std::env::var("REHOME_TRACE").ok().and_then(|lines| lines.parse().ok()).unwrap_or(60)
    }

    pub(super) fn note(&mut self, now: u64, line: impl FnOnce() -> String) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        let mut text = format!("{:>12.3} ms  {}", now as f64 / 1e6, line());
        text.truncate(text.floor_char_boundary(if self.keep > 5000 { 3000 } else { 260 }));
        self.lines.push_back(text);
    }

    pub(super) fn input(&mut self, now: u64, node: usize, input: &Input) {
        self.note(now, || format!("n{node} <- {}", read_input(input)));
    }

    pub(super) fn output(&mut self, now: u64, node: usize, output: &Output) {
        self.note(now, || format!("n{node} -> {}", read_output(output)));
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

fn said(payload: &Payload) -> String {
    read_message(payload.bytes.clone())
        .map_or_else(|| String::from("?"), |(client, number)| format!("{client}/{number}"))
}

fn read_record(record: &Record) -> String {
    match record {
        Record::Link(LinkRecord::Ordered { sequence, body: Ordered::Deliver(delivery) }) => {
            format!("#{sequence} Deliver {} to {:?}", said(&delivery.message.payload), delivery.message.to)
        }
        Record::Link(record) => format!("{record:?}"),
        Record::Prepare(prepare) => format!("40 Prepare {} x{}", prepare.identity.relocation, prepare.chunk_count),
        Record::State(state) => format!("52 State {} #{}", state.identity.relocation, state.ordinal),
        Record::Data(data) => match &data.record {
            FrozenRecord::Known(message) => format!("31 Data {} {}", data.identity.relocation, said(&message.payload)),
            FrozenRecord::Opaque { kind, .. } => format!("31 Data kind {kind}"),
        },
        Record::Cutover(cutover) => format!("34 Cutover {} x{}", cutover.identity.relocation, cutover.record_count),
        Record::Ready(ready) => format!("30 Ready {}", ready.identity.relocation),
        Record::Failed(failed) => format!("53 Failed {} {:?}", failed.identity.relocation, failed.code),
        Record::ReplyRelay(relay) => format!("33 Relay {:?}", relay.operation),
        Record::SessionSeal(_)
        | Record::SessionSealed(_)
        | Record::SessionRoute(_)
        | Record::ReplyRelayAck(_)
        | Record::FollowNotice(_) => format!("{record:?}"),
    }
}

fn read_command(command: &StoreCommand) -> String {
    match command {
        StoreCommand::Read(key) => format!("Read {key:?}"),
        StoreCommand::Write(batch) => {
            let conditions: Vec<_> = batch
                .conditions
                .iter()
                .map(|condition| match condition {
                    Condition::Missing(key) => format!("no {key:?}"),
                    Condition::Present(key) => format!("{key:?}"),
                    Condition::Version(key, version) => format!("{key:?}@{version:?}"),
                })
                .collect();
            let keys: Vec<_> = batch.mutations.iter().map(Mutation::key).collect();
            format!("Write {keys:?} if {}", conditions.join(", "))
        }
        StoreCommand::Scan { .. } => String::from("Scan"),
    }
}

fn read_reply(reply: &StoreReply) -> String {
    match (crate::oracle::authority(reply), reply) {
        (Some(found), _) => format!(
            "@{:?} owner generation {} of {:?} by {:?}",
            found.version, found.record.owner_generation, found.record.owner, found.record.slot.tenure_by
        ),
        (None, StoreReply::Found(found)) => format!("Found @{:?}", found.version),
        (None, reply) => format!("{reply:?}"),
    }
}

fn read_input(input: &Input) -> String {
    match input {
        Input::Record { conn, record } => format!("{} {}", conn.0, read_record(record)),
        Input::Store { ticket, reply } => format!("store {} {}", ticket.0, read_reply(reply)),
        Input::User { call, request: UserRequest::Send { to, payload, .. } } => {
            format!("{call:?} send {} to {to}", said(payload))
        }
        Input::User { call, request: UserRequest::Request { to, payload, timeout, .. } } => {
            format!("{call:?} request {} to {to} in {timeout:?}", said(payload))
        }
        Input::Tick
        | Input::PeerUp { .. }
        | Input::PeerDown { .. }
        | Input::Sent { .. }
        | Input::Host { .. }
        | Input::TurnEnd { .. }
        | Input::User { .. } => format!("{input:?}"),
    }
}

fn read_output(output: &Output) -> String {
    match output {
        Output::Send { conn, record, .. } => format!("{} {}", conn.0, read_record(record)),
        Output::Store { ticket, command, .. } => format!("store {} {}", ticket.0, read_command(command)),
        Output::Turn(turn) => {
            let tenure = &turn.tenure;
            format!("turn {} {} at {} of {}", turn.turn.0, said(&turn.payload), tenure.owner_generation, tenure.object)
        }
        Output::Event(Event::Serving { peer }) => format!("Serving {peer:?}"),
        Output::Drop { .. }
        | Output::Host { .. }
        | Output::Done { .. }
        | Output::Progress { .. }
        | Output::Event(_) => format!("{output:?}"),
    }
}
