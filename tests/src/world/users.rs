//! The users: clients that send and ask at every node, and an operator who moves, cancels, shuts down, kills and takes
//! over. What they are told goes to the oracles.

use super::{Act, MILLI, Pending, SECOND, World, key, rid};
use crate::host::message;
use crate::oracle::Truth;
use bytes::{Buf, Bytes};
use rehome::Input;
use rehome::fence::Tenure;
use rehome::id::{ObjectId, Text8};
use rehome::node::{CallError, CallId, CallResult, MoveOutcome, UserRequest};
use rehome::store::record::lease_key;
use rehome::wire::{Payload, Sender};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn payload(bytes: Bytes) -> Payload {
    let name = Text8::new("hit").expect("a valid name");
    Payload { content_type: name.clone(), name, bytes }
}

impl World {
    pub(super) fn user(&mut self, node: usize, request: UserRequest) -> CallId {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.feed(node, Input::User { call, request });
        call
    }

    pub(super) fn serving(&self, node: usize) -> bool {
        self.running(node) && self.places[node].peer.is_some()
    }

    /// One message of the node's client: a request where there is a time-out.
    pub(super) fn hit(&mut self, node: usize, object: usize, timeout: Option<Duration>) -> CallId {
        let place = &mut self.places[node];
        let client = place.client;
        let number = place.numbers.entry(object).or_default();
        *number += 1;
        let number = *number;
        self.say(node, Sender::Node, (client, number), object, timeout)
    }

    /// One message of an object to another. Each life of the sender is a client of its own: what it sent from the node
    /// where it lived before takes another way, and no order is promised between the two.
    pub(super) fn tell(&mut self, node: usize, from: &Tenure) {
        let object = self.chance.below(self.objects as u64) as usize;
        let timeout = self.chance.hits(500).then(|| Duration::from_millis(500 + self.chance.below(5_000)));
        let run = self.places[node].run;
        let Some(id) = (0..self.objects).find(|index| key(*index) == from.object) else { return };
        let sender = Sender::Actor(ObjectId::new(&format!("object-{id}")).expect("a valid id"), from.generation);
        let next_client = &mut self.next_client;
        let (client, numbers) = self.tellers.entry((node, run, from.clone())).or_insert_with(|| {
            *next_client += 1;
            (*next_client, BTreeMap::new())
        });
        let number = numbers.entry(object).or_default();
        *number += 1;
        let said = (*client, *number);
        self.say(node, sender, said, object, timeout);
    }

    fn say(
        &mut self,
        node: usize,
        from: Sender,
        (client, number): (u64, u64),
        object: usize,
        timeout: Option<Duration>,
    ) -> CallId {
        let run = self.places[node].run;
        let hit = (key(object), client, number);
        let body = payload(message(client, number));
        let request = match timeout {
            Some(timeout) => UserRequest::Request { from, to: key(object), payload: body, timeout },
            None => UserRequest::Send { from, to: key(object), payload: body },
        };
        self.next_call += 1;
        let call = CallId(self.next_call);
        let by = timeout.map(|timeout| self.now + timeout.as_nanos() as u64);
        if let Some(by) = by {
            self.deadlines.insert(hit.clone(), by);
        }
        self.oracle.order.made(&hit, self.now);
        self.calls.insert((node, run, call), Pending { hit, made: self.now, by });
        self.feed(node, Input::User { call, request });
        call
    }

    /// The node that serves an object, as far as the nodes that run say.
    pub(super) fn owner(&self, object: usize) -> Option<usize> {
        (0..self.places.len()).find(|node| {
            self.serving(*node)
                && self.places[*node].node.as_ref().is_some_and(|node| node.objects().any(|id| *id == key(object)))
        })
    }

    pub(super) fn move_from(&mut self, owner: usize, object: usize, target: usize, timeout: Duration) -> CallId {
        let run = self.places[owner].run;
        let request = UserRequest::Relocate { object: key(object), target: rid(target), timeout: Some(timeout) };
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.moves.insert((owner, run, call), (object, self.now + timeout.as_nanos() as u64));
        self.feed(owner, Input::User { call, request });
        call
    }

    pub(super) fn relocate_to(&mut self, object: usize, target: usize) {
        let Some(owner) = self.owner(object) else { return };
        let timeout = Duration::from_millis(1_000 + self.chance.below(11_000));
        let run = self.places[owner].run;
        let call = self.move_from(owner, object, target, timeout);
        if self.fault(self.profile.cancel, "cancel") {
            self.next_call += 1;
            let cancel = CallId(self.next_call);
            let delay = self.chance.below(8 * MILLI);
            let input = Input::User { call: cancel, request: UserRequest::CancelMove { relocate: call } };
            self.schedule(delay, Act::Input { node: owner, run, input });
        }
    }

    /// One action of the user, and perhaps a fault of a whole node.
    pub(super) fn act(&mut self) {
        if self.user_acts == 0 {
            return;
        }
        self.user_acts -= 1;
        let delay = self.chance.below(self.pace);
        self.schedule(delay, Act::User);
        let node = self.chance.below(self.places.len() as u64) as usize;
        let object = self.chance.below(self.objects as u64) as usize;
        if self.chance.hits(self.profile.moves) {
            // Mostly somewhere else.
            let away = (self.owner(object).unwrap_or(0) as u64 + 1 + self.chance.below(self.places.len() as u64 - 1))
                % self.places.len() as u64;
            let target = if self.chance.hits(50) { self.chance.below(self.places.len() as u64) } else { away };
            self.relocate_to(object, target as usize);
        } else if self.serving(node) {
            for _ in 0..=self.chance.below(3) {
                let timeout = if self.chance.hits(600) {
                    Some(Duration::from_millis(500 + self.chance.below(9_000)))
                } else {
                    None
                };
                self.hit(node, object, timeout);
            }
        }
        self.trouble_nodes(node);
        if self.profile.owners_end() && self.chance.hits(30) {
            self.schedule(1, Act::Recover { object });
        }
    }

    fn trouble_nodes(&mut self, node: usize) {
        let profile = self.profile;
        if self.serving(node) && self.fault(profile.pause, "paused") {
            let long = self.fault(profile.pause_past_lease, "paused past its lease");
            self.places[node].paused = true;
            let delay = if long { 16 * SECOND } else { 0 } + self.chance.below(4 * SECOND);
            self.schedule(delay, Act::Resume { node });
        }
        if self.serving(node) && self.fault(profile.kill, "killed") {
            self.end_process(node);
            let delay = 100 * MILLI + self.chance.below(3 * SECOND);
            self.schedule(delay, Act::Restart { node });
        }
        if self.serving(node) && self.fault(profile.shutdown, "shut down") {
            let timeout = Duration::from_millis(self.chance.below(8_000));
            self.oracle.lost.ended(self.now);
            self.user(node, UserRequest::Shutdown { timeout });
        }
        if !self.away && self.fault(profile.store_away, "store away") {
            self.away = true;
            let delay = self.chance.below(18 * SECOND);
            self.schedule(delay, Act::Back);
        }
        if self.serving(node)
            && let Some(peer) = self.places[node].peer.clone()
            && self.fault(profile.lease_lost, "lease lost")
        {
            self.store.expire(&lease_key(&peer.owner));
            self.oracle.lost.ended(self.now);
            // A lease that ends early is an operator's mistake that no guard can see. Either nobody takes over until
            // the guard has passed, or the node sleeps until then.
            if self.chance.hits(500) || !self.reclaims.is_empty() {
                self.places[node].paused = true;
                self.schedule(16 * SECOND, Act::Resume { node });
            } else {
                self.no_reclaim = self.now + 16 * SECOND;
            }
        }
        if self.fault(profile.clock_jump, "wall clock jump") {
            self.places[node].skew += 2_000 - self.chance.below(4_000) as i64;
        }
    }

    /// The process is gone at once, and all that it knew.
    pub(super) fn end_process(&mut self, node: usize) {
        self.disconnect_all(node);
        self.places[node].node = None;
        self.places[node].paused = false;
        self.forget_calls(node);
        self.oracle.lost.ended(self.now);
    }

    pub(super) fn forget_calls(&mut self, node: usize) {
        let run = self.places[node].run;
        self.calls.retain(|(of, its, _), _| (*of, *its) != (node, run));
        self.moves.retain(|(of, its, _), _| (*of, *its) != (node, run));
        self.reclaims.retain(|(of, its, _)| (*of, *its) != (node, run));
    }

    pub(super) fn recover(&mut self, object: usize) {
        let node = self.chance.below(self.places.len() as u64) as usize;
        if self.serving(node) && self.now >= self.no_reclaim {
            let truth = Truth { store: &mut self.store, now: self.now }.record(&key(object));
            let request = match truth {
                Some(_) => UserRequest::Reclaim { object: key(object), arguments: Bytes::new() },
                // An activation failed, and its record went: the object is made anew.
                None => UserRequest::Create {
                    object: key(object),
                    type_name: super::thing_type(),
                    arguments: Bytes::new(),
                    existing: rehome::node::Existing::Use,
                },
            };
            self.next_call += 1;
            let call = CallId(self.next_call);
            self.reclaims.insert((node, self.places[node].run, call));
            self.feed(node, Input::User { call, request });
        }
    }

    pub(super) fn done(&mut self, node: usize, call: CallId, result: CallResult) {
        let run = self.places[node].run;
        if !self.ended.insert((node, run, call)) {
            self.oracle.requests.ended_twice(&mut self.oracle.faults, &format!("{call:?} of n{node}"));
        }
        if self.rules.keep_results() {
            self.results.insert(call, result.clone());
        }
        self.reclaims.remove(&(node, run, call));
        match result {
            CallResult::Moved(Ok(outcome)) => self.move_ended(node, call, &outcome),
            CallResult::Sent(result) => self.hit_ended(node, call, result.map(|()| None)),
            CallResult::Answered(result) => {
                let answer =
                    result.map(|payload| Some((payload.bytes.len() == 8).then(|| payload.bytes.clone().get_u64())));
                self.hit_ended(node, call, answer);
            }
            CallResult::Created(_)
            | CallResult::Deleted(_)
            | CallResult::Replied(_)
            | CallResult::Located(_)
            | CallResult::Moved(Err(_))
            | CallResult::Cancelled(_)
            | CallResult::ShutDown => {}
        }
    }

    fn move_ended(&mut self, node: usize, call: CallId, outcome: &MoveOutcome) {
        let run = self.places[node].run;
        let faults = &mut self.oracle.faults;
        self.oracle.rollback.reported(faults, outcome);
        if let Some((object, by)) = self.moves.remove(&(node, run, call)) {
            self.oracle.bounded.ended(faults, self.now, by, self.profile.is_fair() && !self.rules.keep_results());
            // The user may want it elsewhere, or back, at once.
            if matches!(outcome, MoveOutcome::Moved { .. }) && self.fault(self.profile.again, "moved on at once") {
                let target = self.chance.below(self.places.len() as u64) as usize;
                let delay = self.chance.below(3 * MILLI);
                self.schedule(delay, Act::Relocate { object, target });
            }
        }
        match outcome {
            MoveOutcome::Moved { .. } => self.summary.moved += 1,
            MoveOutcome::KeptSource { .. } => self.summary.kept += 1,
            MoveOutcome::Refused(_) => self.summary.refused += 1,
            MoveOutcome::Lost { .. } => {
                self.summary.lost += 1;
                let over = self.places[node].node.as_ref().is_none_or(rehome::Node::is_over);
                if let (Some(peer), false) = (self.places[node].peer.clone(), over) {
                    let mut truth = Truth { store: &mut self.store, now: self.now };
                    self.oracle.unknown.move_lost(&mut self.oracle.faults, &mut truth, &peer.owner);
                }
            }
        }
    }

    /// A message's call ended: `None` for one that was accepted, the turn for one that was answered.
    fn hit_ended(&mut self, node: usize, call: CallId, result: Result<Option<Option<u64>>, CallError>) {
        let run = self.places[node].run;
        let Some(Pending { hit, made, by }) = self.calls.remove(&(node, run, call)) else { return };
        let over = self.some_lease_ended();
        let oracle = &mut self.oracle;
        if let Some(by) = by {
            oracle.requests.ended(&mut oracle.faults, self.now, by, self.places[node].awake);
        }
        match result {
            Ok(None) => oracle.lost.accepted(&hit, made),
            Ok(Some(turn)) => {
                self.summary.answered += 1;
                oracle.requests.answered(&mut oracle.faults, &hit, turn.unwrap_or(0));
            }
            Err(CallError::NotRun(_) | CallError::Busy) => oracle.requests.refused(&mut oracle.faults, &hit),
            Err(CallError::MayHaveRun(reason)) => {
                let what = format!("{hit:?} ({reason})");
                oracle.lost.gave_up(&mut oracle.faults, self.now, over, &what, Some(made));
            }
            Err(_) => {}
        }
    }
}
