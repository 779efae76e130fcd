//! The owner's side: objects that live here, their queues and their turns. Dispatch of an object opens in three places
//! only: when its creation is recorded, with a [`Committed`], and with a [`Kept`].

use super::event::Event;
use super::io::{CallId, CallResult, HostCommand, Output, ReplyToken, Turn, TurnEnd, TurnId};
use super::routes::{Fate, Origin, Parcel, addressed, call_error};
use super::{Node, Purpose, TenureKey};
use crate::fence::{NodeFence, ObjectKey, PeerFence, RelocationIdentity, RouteFence, Tenure};
use crate::id::{OperationId, RelocationId, ReplyRoute, TypeName};
use crate::machine::settlement::{Committed, Kept};
use crate::wire::{Delivery, Marker, Ordered, Outcome, Refusal, Reply};
use std::collections::VecDeque;

/// One life of an object on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hosted {
    pub(super) tenure: Tenure,
    pub(super) type_name: TypeName,
    pub(super) gate: Gate,
    /// Accepted and not run, in the order of acceptance. A move never reorders it: it only marks how far it got.
    pub(super) mailbox: VecDeque<Item>,
    pub(super) running: Option<Running>,
}

/// Whether turns may start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Gate {
    /// The host is making the object.
    Activating,
    /// Yes.
    Open,
    /// No more; the running one ends, for this move.
    Sealing(RelocationId),
    /// Captured: the first `saved` items went with the state, the next `relayed` with the boundary batch, once that was
    /// frozen.
    Captured { relocation: RelocationId, saved: usize, relayed: Option<usize> },
    /// No more: the object is being deleted.
    Deleting(CallId),
}

/// What waits in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Work(Box<Work>),
    Marker(Marker),
}

/// A message in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) delivery: Delivery,
    /// The move that brought it here: its answer is relayed.
    pub(super) relayed: Option<RelocationIdentity>,
}

/// The turn that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Running {
    pub(super) turn: TurnId,
    pub(super) work: Box<Work>,
}

impl Hosted {
    pub(super) fn new(tenure: Tenure, type_name: TypeName, gate: Gate) -> Self {
        Self { tenure, type_name, gate, mailbox: VecDeque::new(), running: None }
    }
}

pub(super) fn tenure_key(tenure: &Tenure) -> TenureKey {
    (tenure.object.clone(), tenure.generation, tenure.owner_generation)
}

fn fence_key(object: ObjectKey, fence: &RouteFence) -> TenureKey {
    (object, fence.generation, fence.owner_generation)
}

impl Node {
    /// The address of a life on this node.
    pub(super) fn fence_of(&self, key: &TenureKey) -> Option<RouteFence> {
        let lease = self.tenancy()?.pair.lease;
        Some(RouteFence {
            object: key.0.id.clone(),
            generation: key.1,
            node: self.config.node.clone(),
            owner_generation: key.2,
            lease,
        })
    }

    /// A message has come to the tenure that it names: into its queue, its hold, its stage's temporary queue, or on along
    /// its follow route. `from` is the peer that brought it; `None` for this node's own route. An error gives it back.
    pub(super) fn arrive(
        &mut self,
        delivery: Box<Delivery>,
        from: Option<&NodeFence>,
    ) -> Result<(), (Box<Delivery>, Refusal)> {
        let Some((object, fence)) = addressed(&delivery.message.to) else { return Err((delivery, Refusal::NotHere)) };
        if fence.node != self.config.node || self.fence_lease() != Some(fence.lease) {
            return Err((delivery, Refusal::NotHere));
        }
        let key = fence_key(object, fence);
        let limit = self.config.limits.mailbox;
        if let Some(hosted) = self.hosted.get_mut(&key) {
            match hosted.gate {
                Gate::Deleting(_) => return Err((delivery, Refusal::NotHere)),
                // A queue that runs has a bound; a move adds none, and what was accepted once is not refused later.
                Gate::Open | Gate::Activating
                    if hosted.mailbox.len() >= limit
                        && (delivery.hops == 0 || planted!("accepted_message_refused_busy")) =>
                {
                    return Err((delivery, Refusal::Busy));
                }
                Gate::Captured { relocation, .. } => {
                    if let Some(moving) = self.moves.get_mut(&relocation) {
                        moving.receipt.held = moving.receipt.held.saturating_add(1);
                    }
                }
                Gate::Open | Gate::Activating | Gate::Sealing(_) => {}
            }
            let operation = delivery.message.operation;
            hosted.mailbox.push_back(Item::Work(Box::new(Work { delivery: *delivery, relayed: None })));
            self.take(operation, from);
            self.try_turn(&key);
            return Ok(());
        }
        if let Some(stage) = self.stage_mut(&key) {
            stage.receipt.temporary = stage.receipt.temporary.saturating_add(1);
            let operation = delivery.message.operation;
            stage.temporary.push_back(Item::Work(Box::new(Work { delivery: *delivery, relayed: None })));
            self.take(operation, from);
            return Ok(());
        }
        self.follow_message(key, delivery, from)
    }

    /// Takes the responsibility for a message, and says so to whoever had it, before anything else is done with it: it
    /// may come back here, and that must not be taken for the answer to an earlier sending.
    pub(super) fn take(&mut self, operation: OperationId, from: Option<&NodeFence>) {
        if let Some(from) = from {
            self.ordered(from, Ordered::Taken { operation });
        }
    }

    fn fence_lease(&self) -> Option<crate::id::LeaseGeneration> {
        self.tenancy().map(|tenancy| tenancy.pair.lease)
    }

    pub(super) fn arrive_marker(&mut self, mut marker: Marker) {
        let Some((object, fence)) = addressed(&marker.to) else { return self.send_marker_back(&marker) };
        if fence.node != self.config.node || self.fence_lease() != Some(fence.lease) {
            return self.send_marker_back(&marker);
        }
        let key = fence_key(object, fence);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            match hosted.gate {
                // What came before it is in this queue already, and nothing overtakes a queue.
                Gate::Open | Gate::Activating | Gate::Deleting(_) => return self.send_marker_back(&marker),
                Gate::Sealing(_) | Gate::Captured { .. } => return hosted.mailbox.push_back(Item::Marker(marker)),
            }
        }
        if let Some(stage) = self.stage_mut(&key) {
            return stage.temporary.push_back(Item::Marker(marker));
        }
        let within = marker.hops < self.config.limits.follow_hops;
        marker.hops = marker.hops.saturating_add(1);
        match self.follows.get(&key) {
            Some(follow) if within => {
                let target = follow.target.clone();
                self.forward_marker(&key.0, target, marker);
            }
            // What came before it and waits here for a route still has to go first; of our own marker it is what waits.
            None if within && marker.origin != self.config.node && self.route_waits(&key.0) => {
                self.route_push(&key.0.clone(), Parcel::Marker(marker))
            }
            Some(_) | None => self.send_marker_back(&marker),
        }
    }

    /// Sends a message on along its follow route, past what this node itself holds back for the object: the order of
    /// those who sent it is the order in which it came.
    pub(super) fn forward(&mut self, key: &ObjectKey, target: RouteFence, mut delivery: Box<Delivery>) {
        if self.expired(&delivery) {
            return self.end_message(key, &delivery, Origin::Accepted, Fate::Timeout);
        }
        if !self.peers.contains_key(&target.node) || planted!("forward_through_own_route") {
            // What went that way before may come back by other nodes, behind this one.
            self.event(Event::OrderGap { object: key.clone() });
            self.route_leaves_here(key);
            return self.route_push(key, Parcel::Message { delivery, origin: Origin::Accepted });
        }
        let node = target.node.clone();
        delivery.message.to = super::routes::address(key, target);
        let sent = (delivery.message.operation, node.clone());
        self.forwarding.entry(sent).or_default().push_back(delivery.clone());
        self.ordered(&node, Ordered::Deliver(delivery));
    }

    fn forward_marker(&mut self, key: &ObjectKey, target: RouteFence, mut marker: Marker) {
        if !self.peers.contains_key(&target.node) {
            self.event(Event::OrderGap { object: key.clone() });
            if marker.origin == self.config.node {
                return self.send_marker_back(&marker);
            }
            self.route_leaves_here(key);
            return self.route_push(key, Parcel::Marker(marker));
        }
        let node = target.node.clone();
        marker.to = super::routes::address(key, target);
        self.ordered(&node, Ordered::Marker(marker));
    }

    /// Starts the next turn of an object, if it may.
    pub(super) fn try_turn(&mut self, key: &TenureKey) {
        loop {
            let guard_live = self.guard_live();
            let Some(not_after) = self.not_after() else { return };
            let Some(hosted) = self.hosted.get_mut(key) else { return };
            if hosted.gate != Gate::Open || hosted.running.is_some() || !guard_live {
                return;
            }
            let work = match hosted.mailbox.pop_front() {
                None => return,
                Some(Item::Marker(marker)) => {
                    self.send_marker_back(&marker);
                    continue;
                }
                Some(Item::Work(work)) => work,
            };
            if work.delivery.deadline.is_some_and(|deadline| deadline <= self.now.wall) {
                self.answer(&work, Fate::Timeout.outcome());
                continue;
            }
            self.next_turn = self.next_turn.saturating_add(1);
            let turn = TurnId(self.next_turn);
            let message = &work.delivery.message;
            let output = Turn {
                turn,
                tenure: hosted.tenure.clone(),
                token: hosted.tenure.token(),
                not_after,
                deadline: work.delivery.deadline,
                operation: message.operation,
                from_node: message.source.node.node.clone(),
                sender: message.source.sender.clone(),
                reply_token: message.reply.map(|reply_route| ReplyToken {
                    requester: message.source.node.clone(),
                    operation: message.operation,
                    reply_route,
                }),
                payload: message.payload.clone(),
            };
            hosted.running = Some(Running { turn, work });
            self.turns.insert(turn, key.clone());
            self.outputs.push_back(Output::Turn(output));
            return;
        }
    }

    pub(super) fn turn_ended(&mut self, turn: TurnId, end: TurnEnd) {
        let Some(key) = self.turns.remove(&turn) else { return self.count_stale("TurnEnd") };
        let Some(hosted) = self.hosted.get_mut(&key) else { return };
        let Some(running) = hosted.running.take() else { return };
        match end {
            TurnEnd::NotStarted => hosted.mailbox.push_front(Item::Work(running.work)),
            TurnEnd::Done { reply: Some(outcome) } => {
                if self.guard_live() {
                    self.answer(&running.work, outcome);
                } else {
                    // Whether the turn's owner was still the owner is not sure until a renewal succeeds.
                    self.held_replies.push_back((running.work, outcome));
                }
            }
            TurnEnd::Done { reply: None } => {}
        }
        self.after_turn(&key);
    }

    fn after_turn(&mut self, key: &TenureKey) {
        match self.hosted.get(key).map(|hosted| hosted.gate.clone()) {
            Some(Gate::Sealing(relocation)) => self.source_turns_ended(relocation),
            Some(Gate::Deleting(call)) => self.delete_turns_ended(key, call),
            Some(Gate::Open | Gate::Activating | Gate::Captured { .. }) | None => self.try_turn(key),
        }
    }

    /// The guard allows work again.
    pub(super) fn guard_restored(&mut self) {
        for (work, outcome) in core::mem::take(&mut self.held_replies) {
            self.answer(&work, outcome);
        }
        for (key, call) in core::mem::take(&mut self.deletes_paused) {
            self.delete_turns_ended(&key, call);
        }
        self.births_go_on();
        self.refresh_goes_on();
        let waiting: Vec<TenureKey> = self
            .hosted
            .iter()
            .filter(|(_, hosted)| hosted.gate == Gate::Open && hosted.running.is_none() && !hosted.mailbox.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            self.try_turn(&key);
        }
        self.sources_guard_live();
    }

    /// Answers a request on its original route. A one-way message has no answer.
    pub(super) fn answer(&mut self, work: &Work, outcome: Outcome) {
        let message = &work.delivery.message;
        let Some(reply_route) = message.reply else { return };
        let requester = message.source.node.clone();
        match &work.relayed {
            Some(identity) if requester.node != self.config.node => {
                self.relay_reply(identity.clone(), requester, message.operation, reply_route, outcome);
            }
            Some(_) | None => self.send_reply(&requester, message.operation, reply_route, outcome),
        }
    }

    pub(super) fn send_reply(
        &mut self,
        requester: &PeerFence,
        operation: OperationId,
        reply_route: ReplyRoute,
        outcome: Outcome,
    ) {
        if requester.node == self.config.node {
            self.reply_arrived(operation, reply_route, outcome);
        } else {
            self.ordered_to(requester, Ordered::Reply(Reply { operation, reply_route, outcome }));
        }
    }

    /// The first answer ends a request; any other changes nothing. Says whether it was the first.
    pub(super) fn reply_arrived(&mut self, operation: OperationId, reply_route: ReplyRoute, outcome: Outcome) -> bool {
        match self.requests.get(&operation) {
            Some(request) if request.wants_reply && request.reply_route == reply_route => {
                let result = match outcome {
                    Outcome::Answer(payload) => Ok(payload),
                    Outcome::Failure { result, failure, detail } => Err(call_error(result, failure, &detail)),
                };
                self.finish_request(operation, CallResult::Answered(result));
                true
            }
            Some(_) | None => {
                self.count_stale("Reply");
                false
            }
        }
    }

    /// Opens an object whose creation is recorded and whose host has made it.
    pub(super) fn open_created(&mut self, key: &TenureKey) {
        let Some(hosted) = self.hosted.get_mut(key) else { return };
        hosted.gate = Gate::Open;
        let tenure = hosted.tenure.clone();
        self.serve(key, tenure);
    }

    /// Opens an object that moved here.
    pub(super) fn open_moved(&mut self, _proof: Committed, hosted: Hosted) {
        let tenure = hosted.tenure.clone();
        let key = tenure_key(&tenure);
        self.hosted.insert(key.clone(), hosted);
        self.host(Purpose::Hook(tenure.clone(), "Open"), HostCommand::Open { tenure: tenure.clone() });
        self.serve(&key, tenure);
    }

    /// Opens an object again that was stopped for a move and stays.
    pub(super) fn open_kept(&mut self, _proof: Kept, key: &TenureKey) {
        let Some(hosted) = self.hosted.get_mut(key) else { return };
        let was_captured = matches!(hosted.gate, Gate::Captured { .. });
        hosted.gate = Gate::Open;
        let tenure = hosted.tenure.clone();
        if was_captured {
            self.host(Purpose::Hook(tenure.clone(), "Resume"), HostCommand::Resume { tenure });
        }
        self.try_turn(key);
    }

    fn serve(&mut self, key: &TenureKey, tenure: Tenure) {
        self.current.insert(key.0.clone(), key.clone());
        self.event(Event::Opened { tenure });
        if let Some(fence) = self.fence_of(key) {
            self.route_learned(&key.0, fence);
        }
        self.try_turn(key);
    }

    /// Takes a life off this node. What waits in it is the caller's.
    pub(super) fn close(&mut self, key: &TenureKey) -> Option<Hosted> {
        let hosted = self.hosted.remove(key)?;
        if self.current.get(&key.0) == Some(key) {
            self.current.remove(&key.0);
        }
        if let Some(running) = &hosted.running {
            self.turns.remove(&running.turn);
        }
        self.event(Event::Closed { tenure: hosted.tenure.clone() });
        Some(hosted)
    }

    /// Ends everything that waited in a life that is lost, once each.
    pub(super) fn end_items(&mut self, key: &ObjectKey, items: impl IntoIterator<Item = Item>, fate: Fate) -> u64 {
        let mut ended = 0u64;
        for item in items {
            match item {
                Item::Work(work) => {
                    ended = ended.saturating_add(1);
                    if work.delivery.message.reply.is_some() {
                        self.answer(&work, fate.outcome());
                    } else {
                        let operation = work.delivery.message.operation;
                        self.event(Event::Undeliverable { object: key.clone(), operation });
                    }
                }
                Item::Marker(marker) => self.send_marker_back(&marker),
            }
        }
        ended
    }

    /// Sends on what was accepted here: to the tenure that is known to follow, else along the object's route.
    pub(super) fn forward_items(
        &mut self,
        key: &ObjectKey,
        target: Option<&RouteFence>,
        items: impl IntoIterator<Item = Item>,
    ) -> u64 {
        let mut forwarded = 0u64;
        let limit = self.config.limits.follow_hops;
        for item in items {
            match item {
                Item::Work(work) if work.delivery.hops >= limit => {
                    forwarded = forwarded.saturating_add(1);
                    self.followed_too_far(key, Box::new(work.delivery));
                }
                // It has no way on, as where it arrives with so many hops: a record with more is none of the wire's, and
                // without it the channel would have a hole.
                Item::Marker(marker) if marker.hops >= limit => self.send_marker_back(&marker),
                Item::Work(work) => {
                    forwarded = forwarded.saturating_add(1);
                    let mut delivery = Box::new(work.delivery);
                    delivery.hops = delivery.hops.saturating_add(1);
                    match target {
                        Some(target) => self.forward(key, target.clone(), delivery),
                        None => self.route_push(key, Parcel::Message { delivery, origin: Origin::Accepted }),
                    }
                }
                Item::Marker(mut marker) => {
                    marker.hops = marker.hops.saturating_add(1);
                    match target {
                        Some(target) => self.forward_marker(key, target.clone(), marker),
                        None => self.route_push(key, Parcel::Marker(marker)),
                    }
                }
            }
        }
        forwarded
    }
}
