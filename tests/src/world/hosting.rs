//! The host of objects: makes, captures, restores and drops them, and runs their turns. The last look at the lease guard
//! before user code runs is here, as in a real driver.

use super::script::HostFault;
use super::{Act, MILLI, SECOND, World};
use crate::host::{Thing, read_message};
use crate::oracle::{Truth, TurnSeen};
use rehome::Input;
use rehome::node::{HostCommand, HostReply, Ticket, Turn, TurnEnd, UserRequest};
use rehome::state::Captured;
use rehome::wire::{FailureCode, Outcome};

impl World {
    pub(super) fn host(&mut self, node: usize, ticket: Ticket, command: HostCommand) {
        let run = self.places[node].run;
        let mut delay = self.chance.below(2 * MILLI);
        let scripted = self.rules.host(node, &command);
        let fails = match scripted {
            Some(HostFault::Fail) => true,
            Some(HostFault::Slow(slow)) => {
                delay = slow.as_nanos() as u64;
                false
            }
            None => false,
        };
        let reply = self.host_reply(node, command, fails);
        self.schedule(delay, Act::Input { node, run, input: Input::Host { ticket, reply } });
    }

    fn host_reply(&mut self, node: usize, command: HostCommand, fails: bool) -> HostReply {
        let failed = || HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: String::from("made") };
        let rate = self.profile.host_fails;
        let at = (node, self.places[node].run);
        match command {
            HostCommand::Activate { tenure, .. } => {
                if fails || self.fault(rate * 5, "activate fails") {
                    return failed();
                }
                self.oracle.early.activated(&tenure);
                let pad = self.chance.below(64) as usize;
                self.places[node].things.insert(tenure, Thing { pad, ..Thing::default() });
                HostReply::Done
            }
            HostCommand::SizeHint { tenure } => match self.places[node].things.get(&tenure) {
                Some(thing) => HostReply::Size(thing.encode().len() as u64),
                None => failed(),
            },
            HostCommand::Capture { tenure } => {
                if fails || self.fault(rate, "capture fails") {
                    return failed();
                }
                match self.places[node].things.get(&tenure) {
                    Some(thing) => HostReply::Captured(Some(Captured::from(thing.encode()))),
                    None => failed(),
                }
            }
            HostCommand::Restore { tenure, state, .. } => {
                if fails || self.fault(rate, "restore fails") {
                    return failed();
                }
                match state.and_then(|state| Thing::decode(state.to_bytes())) {
                    Some(thing) => {
                        self.oracle.early.restored(at, &tenure);
                        self.places[node].things.insert(tenure, thing);
                        HostReply::Done
                    }
                    None => failed(),
                }
            }
            HostCommand::Open { tenure } => {
                self.oracle.early.opens(&mut self.oracle.faults, at, &tenure);
                HostReply::Done
            }
            HostCommand::Resume { .. } => HostReply::Done,
            HostCommand::Retire { tenure } => {
                self.places[node].things.remove(&tenure);
                if fails || self.fault(rate, "retire fails") { failed() } else { HostReply::Done }
            }
            HostCommand::Discard { tenure } => {
                self.places[node].things.remove(&tenure);
                if fails { failed() } else { HostReply::Done }
            }
        }
    }

    pub(super) fn turn(&mut self, node: usize, turn: Turn) {
        let guard = self.places[node].guard;
        self.oracle.one_owner.acts(&mut self.oracle.faults, self.now, guard, node, "handed a turn out");
        if let Some((client, number)) = read_message(turn.payload.bytes.clone()) {
            let hit = (turn.tenure.object.clone(), client, number);
            // Wall clocks that jump move a deadline with them.
            if self.profile.clock_jump == 0
                && let Some(by) = self.deadlines.get(&hit)
            {
                self.oracle.requests.started(&mut self.oracle.faults, &hit, self.now, *by);
            }
        }
        let run = self.places[node].run;
        // Now and then a host is slow to start: the lease guard may pass in between.
        let slow = self.profile.pause > 0 && self.chance.hits(30);
        let delay = self.chance.below(if slow { 300 * MILLI } else { MILLI / 2 });
        self.schedule(delay, Act::TurnStart { node, run, turn: Box::new(turn) });
    }

    pub(super) fn turn_start(&mut self, node: usize, run: u64, turn: Turn) {
        if self.places[node].run != run || self.places[node].node.is_none() {
            return;
        }
        if self.places[node].paused {
            return self.schedule(50 * MILLI, Act::TurnStart { node, run, turn: Box::new(turn) });
        }
        // The last look before user code runs.
        if self.now >= turn.not_after.as_nanos() {
            self.made("turn not started");
            return self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::NotStarted });
        }
        let Some(mut thing) = self.places[node].things.get(&turn.tenure).cloned() else {
            // The object was lost while the turn waited for its host: nothing runs.
            return self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: None } });
        };
        let Some(pair) = self.places[node].peer.as_ref().map(|peer| peer.owner.clone()) else { return };
        let Some((client, number)) = read_message(turn.payload.bytes.clone()) else { return };
        let before = (thing.turn, thing.chain);
        thing.take(client, number);
        let hit = (turn.tenure.object.clone(), client, number);
        let after = (thing.turn, thing.chain);
        let seen =
            TurnSeen { tenure: &turn.tenure, pair: &pair, guard: self.places[node].guard, hit: &hit, before, after };
        let mut truth = Truth { store: &mut self.store, now: self.now };
        self.oracle.turn(&mut truth, &seen);
        let tenure = turn.tenure.clone();
        self.places[node].things.insert(tenure.clone(), thing);
        self.summary.turns += 1;
        let slow = self.fault(self.profile.slow_turn, "slow turn");
        let mut delay = if slow { 3 * SECOND } else { self.chance.below(MILLI) };
        if let Some(scripted) = self.rules.turn() {
            delay = scripted.as_nanos() as u64;
        }
        let later = turn.reply_token.is_some() && self.fault(self.profile.late_answer, "answered after its turn");
        let later = if later { 1 + self.chance.below(20 * MILLI) } else { 0 };
        let end = Act::TurnEnd { node, run, turn: Box::new(turn), answer: Some(after.0), after: later };
        self.schedule(delay, end);
        if self.fault(self.profile.tells, "object tells object") {
            self.tell(node, &tenure);
        }
    }

    pub(super) fn turn_end(&mut self, node: usize, run: u64, turn: Turn, answer: Option<u64>, later: u64) {
        if self.places[node].run != run {
            return;
        }
        let outcome = answer.map(|turn| Outcome::Answer(super::users::payload(turn.to_be_bytes().to_vec().into())));
        if later > 0
            && let (Some(token), Some(outcome)) = (turn.reply_token.clone(), outcome.clone())
        {
            self.next_call += 1;
            let call = rehome::node::CallId(self.next_call);
            let input = Input::User { call, request: UserRequest::Reply { token, outcome } };
            self.schedule(later, Act::Input { node, run, input });
            return self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: None } });
        }
        self.feed(node, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: outcome } });
    }
}
