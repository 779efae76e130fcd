//! The sender's side: one route per object that this node sends or forwards to. Everything that leaves this node for an
//! object, whoever sent it, goes through its one route in one order; the order holds across a flip of the route.

use super::event::Event;
use super::io::{CallError, CallId, CallResult, MayHaveRun, NotRun};
use super::{Node, Purpose, StoreAnswer, TimerKey};
use crate::fence::{NodeFence, ObjectKey, ObjectKind, RouteFence};
use crate::id::OperationId;
use crate::store::record::authority_key;
use crate::store::{StoreCommand, StoreReply};
use crate::wire::{Delivery, Destination, FailureCode, Marker, Ordered, Outcome, Refusal, TerminalResult};
use std::collections::VecDeque;

/// What travels a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parcel {
    Message { delivery: Box<Delivery>, origin: Origin },
    Marker(Marker),
}

/// Who answers for a message here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A call of this node.
    Call,
    /// It was accepted from elsewhere, and must not be lost.
    Accepted,
}

/// One object's route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    state: RouteState,
    /// Waits for the state to allow it.
    queue: VecDeque<Parcel>,
    /// Sent and not answered, in order.
    flight: VecDeque<(Box<Delivery>, Origin)>,
    /// Came back from the old route, in order: these go first on the new one.
    refused: VecDeque<Parcel>,
    /// Fruitless looks at the store since the last message was taken.
    attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RouteState {
    /// Nothing is known.
    Unknown,
    /// The store is asked.
    Locating,
    /// The store had nothing better than what was refused, or did not answer: ask again later.
    Backoff,
    /// The owner, and whether anything was sent there.
    At { fence: RouteFence, used: bool },
    /// A marker travels the old route. Nothing else is sent until it is back.
    Draining { old: RouteFence, next: Option<RouteFence>, marker: OperationId },
}

impl Route {
    const fn new() -> Self {
        Self {
            state: RouteState::Unknown,
            queue: VecDeque::new(),
            flight: VecDeque::new(),
            refused: VecDeque::new(),
            attempts: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flight.is_empty() && self.refused.is_empty()
    }

    /// Messages that no other node has been sent, or that came back.
    pub(super) fn unsent(&self) -> impl Iterator<Item = OperationId> {
        self.queue.iter().chain(&self.refused).filter_map(|parcel| match parcel {
            Parcel::Message { delivery, .. } => Some(delivery.message.operation),
            Parcel::Marker(_) => None,
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len().saturating_add(self.flight.len()).saturating_add(self.refused.len())
    }
}

pub(super) fn address(key: &ObjectKey, fence: RouteFence) -> Destination {
    match key.kind {
        ObjectKind::Actor => Destination::Actor(fence),
        ObjectKind::Spot => Destination::Spot(fence),
    }
}

/// The object and the tenure that a destination names.
pub(super) fn addressed(to: &Destination) -> Option<(ObjectKey, &RouteFence)> {
    match to {
        Destination::Actor(fence) => Some((ObjectKey { kind: ObjectKind::Actor, id: fence.object.clone() }, fence)),
        Destination::Spot(fence) => Some((ObjectKey { kind: ObjectKind::Spot, id: fence.object.clone() }, fence)),
        Destination::Node | Destination::Channel(_) => None,
    }
}

/// How an unanswered message ends.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    NotRun(NotRun),
    MayHaveRun(MayHaveRun),
    Busy,
    Timeout,
}

impl Node {
    /// Hands a parcel to the object's route. Returns the parcel's operation when the route's queue is full.
    pub(super) fn route_push(&mut self, key: &ObjectKey, parcel: Parcel) {
        let route = self.routes.entry(key.clone()).or_insert_with(Route::new);
        let full = route.queue.len() >= self.config.limits.route_queue;
        if let (true, Parcel::Message { delivery, origin: Origin::Call }) = (full, &parcel) {
            let operation = delivery.message.operation;
            return self.end_call(operation, Fate::Busy);
        }
        route.queue.push_back(parcel);
        self.route_flush(key);
    }

    /// Sends what the route's state allows.
    pub(super) fn route_flush(&mut self, key: &ObjectKey) {
        loop {
            let Some(route) = self.routes.get_mut(key) else { return };
            if route.queue.is_empty() {
                return;
            }
            let fence = match &mut route.state {
                RouteState::At { fence, .. } => fence.clone(),
                RouteState::Unknown => return self.locate_route(key),
                RouteState::Locating | RouteState::Backoff | RouteState::Draining { .. } => return,
            };
            let here = fence.node == self.config.node;
            if !here && !self.peers.contains_key(&fence.node) {
                // The owner is not connected: it may come, or the object may move.
                return self.route_backoff(key);
            }
            let Some(route) = self.routes.get_mut(key) else { return };
            let Some(parcel) = route.queue.pop_front() else { return };
            if let RouteState::At { used, .. } = &mut route.state {
                *used = true;
            }
            match parcel {
                Parcel::Message { mut delivery, origin } => {
                    if self.expired(&delivery) {
                        self.end_message(key, &delivery, origin, Fate::Timeout);
                        continue;
                    }
                    // What was sent to an incarnation that has ended comes to the next one behind what was sent later.
                    let anew = addressed(&delivery.message.to)
                        .is_some_and(|(_, before)| before.generation != fence.generation);
                    if anew && !planted!("next_incarnation_without_gap") {
                        self.event(Event::OrderGap { object: key.clone() });
                    }
                    delivery.message.to = address(key, fence.clone());
                    let operation = delivery.message.operation;
                    if here {
                        match self.arrive(delivery, None) {
                            Ok(()) => self.route_taken_here(key, operation, origin),
                            Err((delivery, reason)) => self.route_refused_here(key, delivery, origin, reason),
                        }
                    } else {
                        let Some(route) = self.routes.get_mut(key) else { return };
                        route.flight.push_back((delivery.clone(), origin));
                        self.flights.insert(operation, key.clone());
                        self.ordered(&fence.node, Ordered::Deliver(delivery));
                    }
                }
                Parcel::Marker(mut marker) => {
                    marker.to = address(key, fence.clone());
                    if here {
                        self.arrive_marker(marker);
                    } else {
                        self.ordered(&fence.node, Ordered::Marker(marker));
                    }
                }
            }
        }
    }

    pub(super) fn expired(&self, delivery: &Delivery) -> bool {
        delivery.deadline.is_some_and(|deadline| deadline <= self.now.wall)
    }

    fn route_taken_here(&mut self, key: &ObjectKey, operation: OperationId, origin: Origin) {
        if let Some(route) = self.routes.get_mut(key) {
            route.attempts = 0;
        }
        if origin == Origin::Call {
            self.call_taken(operation);
        }
    }

    fn route_refused_here(&mut self, key: &ObjectKey, delivery: Box<Delivery>, origin: Origin, reason: Refusal) {
        self.refused(key, delivery, origin, reason);
    }

    /// The oldest sending of a message along its route to the node that now answers for it.
    fn flight_answered(
        &mut self,
        operation: OperationId,
        from: &NodeFence,
    ) -> Option<(ObjectKey, Box<Delivery>, Origin)> {
        let key = self.flights.get(&operation)?.clone();
        let route = self.routes.get_mut(&key)?;
        let sent = |delivery: &Delivery| delivery.message.operation == operation;
        let position = route.flight.iter().position(|(delivery, _)| {
            sent(delivery) && addressed(&delivery.message.to).is_some_and(|(_, fence)| fence.node == *from)
        })?;
        let (delivery, origin) = route.flight.remove(position)?;
        if !route.flight.iter().any(|(delivery, _)| sent(delivery)) {
            self.flights.remove(&operation);
        }
        Some((key, delivery, origin))
    }

    /// The oldest sending of a message along a follow route to the node that now answers for it.
    fn forwarding_answered(&mut self, operation: OperationId, from: &NodeFence) -> Option<Box<Delivery>> {
        let key = (operation, from.clone());
        let sent = self.forwarding.get_mut(&key)?;
        let first = sent.pop_front();
        if sent.is_empty() {
            self.forwarding.remove(&key);
        }
        first
    }

    /// The next hop is responsible for a message now.
    pub(super) fn route_taken(&mut self, operation: OperationId, from: &NodeFence) {
        match self.flight_answered(operation, from) {
            Some((key, _, origin)) => {
                if let Some(route) = self.routes.get_mut(&key) {
                    route.attempts = 0;
                }
                if origin == Origin::Call {
                    self.call_taken(operation);
                }
            }
            None if self.forwarding_answered(operation, from).is_some() => self.shutdown_step(),
            None => self.count_stale("Taken"),
        }
    }

    /// The next hop does not have the object.
    pub(super) fn route_refused(&mut self, operation: OperationId, reason: Refusal, from: &NodeFence) {
        match self.flight_answered(operation, from) {
            Some((key, delivery, origin)) => self.refused(&key, delivery, origin, reason),
            None => self.forward_refused(operation, reason, from),
        }
    }

    /// The next hop of a follow route does not have the object any more: it is looked for anew.
    fn forward_refused(&mut self, operation: OperationId, reason: Refusal, from: &NodeFence) {
        let Some(mut delivery) = self.forwarding_answered(operation, from) else { return self.count_stale("Refused") };
        let Some((key, _)) = addressed(&delivery.message.to) else { return };
        match reason {
            Refusal::TooManyHops => self.followed_too_far(&key, delivery),
            Refusal::NotHere => {
                delivery.hops = 1;
                self.event(Event::OrderGap { object: key.clone() });
                self.route_push(&key, Parcel::Message { delivery, origin: Origin::Accepted });
            }
            Refusal::Busy => self.end_message(&key, &delivery, Origin::Accepted, Fate::Busy),
            Refusal::Expired => self.end_message(&key, &delivery, Origin::Accepted, Fate::Timeout),
            Refusal::OtherIncarnation => {
                self.end_message(&key, &delivery, Origin::Accepted, Fate::NotRun(NotRun::OtherIncarnation));
            }
        }
    }

    /// A message that this node answers for has been forwarded as often as may be. A request ends; a one-way message
    /// starts anew, and its place in the order is gone.
    pub(super) fn followed_too_far(&mut self, key: &ObjectKey, mut delivery: Box<Delivery>) {
        if delivery.message.reply.is_some() {
            return self.end_message(key, &delivery, Origin::Accepted, Fate::NotRun(NotRun::TooManyHops));
        }
        delivery.hops = 1;
        self.event(Event::OrderGap { object: key.clone() });
        self.route_push(key, Parcel::Message { delivery, origin: Origin::Accepted });
    }

    /// Whether anything waits here for a route to the object.
    pub(super) fn route_waits(&self, key: &ObjectKey) -> bool {
        self.routes.get(key).is_some_and(|route| !route.is_idle())
    }

    fn refused(&mut self, key: &ObjectKey, mut delivery: Box<Delivery>, origin: Origin, reason: Refusal) {
        match reason {
            Refusal::NotHere => {}
            // A one-way message that was accepted is not given up because its object moved on faster than it could
            // follow: it starts anew, and its place in the order is gone.
            Refusal::TooManyHops if origin == Origin::Accepted && delivery.message.reply.is_none() => {
                delivery.hops = 1;
                self.event(Event::OrderGap { object: key.clone() });
            }
            Refusal::Busy => return self.end_message(key, &delivery, origin, Fate::Busy),
            Refusal::Expired => return self.end_message(key, &delivery, origin, Fate::Timeout),
            Refusal::TooManyHops => return self.end_message(key, &delivery, origin, Fate::NotRun(NotRun::TooManyHops)),
            Refusal::OtherIncarnation => {
                return self.end_message(key, &delivery, origin, Fate::NotRun(NotRun::OtherIncarnation));
            }
        }
        let used = addressed(&delivery.message.to).map(|(_, fence)| fence.clone());
        let Some(route) = self.routes.get_mut(key) else { return };
        let parcel = Parcel::Message { delivery, origin };
        match &route.state {
            RouteState::Draining { .. } => route.refused.push_back(parcel),
            RouteState::At { fence, .. } if Some(fence) == used.as_ref() => {
                let old = fence.clone();
                route.refused.push_back(parcel);
                // It has taken messages before, and nobody there can tell any more how far these have come.
                if route.attempts == 0 && !planted!("gap_not_counted") {
                    self.event(Event::OrderGap { object: key.clone() });
                }
                self.drain(key, old, None);
            }
            // The route did not wait for this answer, which it has counted as a gap: the message goes on where it leads.
            RouteState::At { .. } | RouteState::Unknown | RouteState::Locating | RouteState::Backoff => {
                if planted!("late_refusal_left_behind") {
                    return route.refused.push_back(parcel);
                }
                route.queue.push_back(parcel);
                self.route_flush(key);
            }
        }
    }

    /// Sends a marker down the old route; until it is back, nothing is sent.
    fn drain(&mut self, key: &ObjectKey, old: RouteFence, next: Option<RouteFence>) {
        let marker = OperationId(self.entropy.next_u128());
        let Some(route) = self.routes.get_mut(key) else { return };
        route.state = RouteState::Draining { old: old.clone(), next, marker };
        self.markers.insert(marker, key.clone());
        let at = self.now.mono.after(self.config.timing.operation);
        self.timers.arm(TimerKey::Marker(marker), at);
        let here = old.node == self.config.node;
        let node = old.node.clone();
        let record = Marker { marker, origin: self.config.node.clone(), to: address(key, old), hops: 0 };
        if here {
            self.arrive_marker(record);
        } else if self.peers.contains_key(&node) {
            self.ordered(&node, Ordered::Marker(record));
        } else {
            self.marker_back(marker, false);
        }
    }

    /// A marker is back, or will not come: the route flips.
    pub(super) fn marker_back(&mut self, marker: OperationId, kept_order: bool) {
        let Some(key) = self.markers.remove(&marker) else { return self.count_stale("MarkerBack") };
        self.timers.disarm(&TimerKey::Marker(marker));
        if !kept_order {
            self.event(Event::OrderGap { object: key.clone() });
        }
        let Some(route) = self.routes.get_mut(&key) else { return };
        let RouteState::Draining { old, next, .. } = &route.state else { return };
        let (old, next) = (old.clone(), next.clone());
        while let Some(parcel) = route.refused.pop_back() {
            route.queue.push_front(parcel);
        }
        match next.filter(|next| *next != old) {
            Some(fence) => {
                route.state = RouteState::At { fence, used: false };
                self.route_flush(&key);
            }
            // The first look is made at once; if what it finds refuses too, the next ones wait longer and longer.
            None if route.attempts == 0 => self.locate_route(&key),
            None => self.route_backoff(&key),
        }
    }

    /// This node learned where the object is now.
    pub(super) fn route_learned(&mut self, key: &ObjectKey, fence: RouteFence) {
        let route = self.routes.entry(key.clone()).or_insert_with(Route::new);
        match &mut route.state {
            RouteState::At { fence: old, .. } if *old == fence || !newer(&fence, old) => {}
            RouteState::At { fence: old, used: true } if !planted!("flip_without_marker") => {
                let old = old.clone();
                self.drain(key, old, Some(fence));
            }
            RouteState::Draining { next, old, .. } => {
                if newer(&fence, old) && next.as_ref().is_none_or(|next| newer(&fence, next)) {
                    *next = Some(fence);
                }
            }
            RouteState::At { .. } | RouteState::Unknown | RouteState::Locating | RouteState::Backoff => {
                route.state = RouteState::At { fence, used: false };
                self.timers.disarm(&TimerKey::Route(key.clone()));
                self.route_flush(key);
            }
        }
    }

    /// The object's tenure here has ended and all that it held has been handed to this route: what was sent to it has
    /// left in order already, so that no marker is needed now. But it may still be on its way: the next flip needs one.
    pub(super) fn route_moved(&mut self, key: &ObjectKey, ended: &RouteFence, next: Option<RouteFence>) {
        let route = self.routes.entry(key.clone()).or_insert_with(Route::new);
        if let RouteState::At { fence, used } = &route.state
            && fence == ended
        {
            let used = *used && !planted!("moved_route_is_unused");
            route.state = match next {
                Some(fence) => RouteState::At { fence, used },
                None => RouteState::Unknown,
            };
        }
    }

    /// The object has left this node, and its next owner is not connected: the store is asked, or a route that still led
    /// to the tenure that ended here would lead in a circle.
    pub(super) fn route_leaves_here(&mut self, key: &ObjectKey) {
        if let Some(route) = self.routes.get_mut(key)
            && let RouteState::At { fence, .. } = &route.state
            && fence.node == self.config.node
        {
            route.state = RouteState::Unknown;
        }
    }

    /// The route that is known, for messages that this node would send now.
    pub(super) fn known_route(&self, key: &ObjectKey) -> Option<&RouteFence> {
        match &self.routes.get(key)?.state {
            RouteState::At { fence, .. } => Some(fence),
            RouteState::Draining { next, .. } => next.as_ref(),
            RouteState::Unknown | RouteState::Locating | RouteState::Backoff => None,
        }
    }

    /// The object is gone. What waits for a route is not: whoever is asked about it already will tell.
    pub(super) fn route_forget(&mut self, key: &ObjectKey) {
        let Some(route) = self.routes.get_mut(key) else { return };
        match route.state {
            RouteState::At { .. } | RouteState::Unknown => route.state = RouteState::Unknown,
            RouteState::Locating | RouteState::Backoff if planted!("forgotten_route_keeps_its_queue") => {
                route.state = RouteState::Unknown;
            }
            RouteState::Locating | RouteState::Backoff | RouteState::Draining { .. } => return,
        }
        if route.is_idle() {
            self.routes.remove(key);
        }
    }

    fn locate_route(&mut self, key: &ObjectKey) {
        let Some(route) = self.routes.get_mut(key) else { return };
        if route.is_idle() {
            self.timers.disarm(&TimerKey::Route(key.clone()));
            self.routes.remove(key);
            return;
        }
        route.state = RouteState::Locating;
        self.timers.disarm(&TimerKey::Route(key.clone()));
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::Route(key.clone()), StoreCommand::Read(authority_key(key)), give_up);
    }

    pub(super) fn route_located(&mut self, key: &ObjectKey, reply: &StoreReply) {
        let Some(route) = self.routes.get_mut(key) else { return };
        if route.state != RouteState::Locating {
            return;
        }
        match StoreAnswer::authority(reply) {
            Err(()) => self.route_backoff(key),
            Ok(None) => {
                route.state = RouteState::Unknown;
                self.fail_route(key);
            }
            Ok(Some(found)) => {
                let record = found.record;
                let fence = RouteFence {
                    object: key.id.clone(),
                    generation: record.generation,
                    node: record.node,
                    owner_generation: record.owner_generation,
                    lease: record.owner.lease,
                };
                let known = fence.node == self.config.node || self.peers.contains_key(&fence.node);
                let Some(route) = self.routes.get_mut(key) else { return };
                route.attempts = route.attempts.saturating_add(1);
                if !known {
                    return self.route_backoff(key);
                }
                route.state = RouteState::At { fence, used: false };
                self.route_flush(key);
            }
        }
    }

    fn route_backoff(&mut self, key: &ObjectKey) {
        let Some(route) = self.routes.get_mut(key) else { return };
        route.state = RouteState::Backoff;
        let factor = 1u32.checked_shl(route.attempts.min(5)).unwrap_or(32);
        route.attempts = route.attempts.saturating_add(1);
        let delay = self.config.timing.target_poll.saturating_mul(factor);
        let at = self.now.mono.after(delay);
        self.timers.arm(TimerKey::Route(key.clone()), at);
    }

    pub(super) fn route_timer(&mut self, key: &ObjectKey) {
        let Some(route) = self.routes.get_mut(key) else { return };
        if route.state != RouteState::Backoff {
            return;
        }
        // Messages whose time is over do not keep the store busy.
        let now = self.now.wall;
        let mut over = Vec::new();
        route.queue.retain(|parcel| match parcel {
            Parcel::Message { delivery, origin } if delivery.deadline.is_some_and(|deadline| deadline <= now) => {
                over.push((delivery.clone(), *origin));
                false
            }
            Parcel::Message { .. } | Parcel::Marker(_) => true,
        });
        for (delivery, origin) in over {
            self.end_message(key, &delivery, origin, Fate::Timeout);
        }
        self.locate_route(key);
    }

    /// There is no such object: everything that waits ends.
    fn fail_route(&mut self, key: &ObjectKey) {
        let Some(route) = self.routes.get_mut(key) else { return };
        let queue = core::mem::take(&mut route.queue);
        for parcel in queue {
            match parcel {
                Parcel::Message { delivery, origin } => {
                    self.end_message(key, &delivery, origin, Fate::NotRun(NotRun::NotFound));
                }
                Parcel::Marker(marker) => self.send_marker_back(&marker),
            }
        }
        self.route_forget(key);
    }

    pub(super) fn send_marker_back(&mut self, marker: &Marker) {
        if marker.origin == self.config.node {
            self.marker_back(marker.marker, true);
        } else {
            self.ordered(&marker.origin.clone(), Ordered::MarkerBack { marker: marker.marker });
        }
    }

    /// A message that this node answers for ends without having been taken by an owner.
    pub(super) fn end_message(&mut self, key: &ObjectKey, delivery: &Delivery, origin: Origin, fate: Fate) {
        let message = &delivery.message;
        match (origin, message.reply) {
            (Origin::Call, _) => self.end_call(message.operation, fate),
            (Origin::Accepted, Some(reply_route)) => {
                let requester = message.source.node.clone();
                self.send_reply(&requester, message.operation, reply_route, fate.outcome());
            }
            (Origin::Accepted, None) => {
                self.event(Event::Undeliverable { object: key.clone(), operation: message.operation });
            }
        }
    }

    /// A peer generation is over: what it had, nobody can tell of.
    pub(super) fn routes_peer_gone(&mut self, peer: &NodeFence) {
        let lost: Vec<_> = self.forwarding.keys().filter(|(_, node)| node == peer).cloned().collect();
        for sent in lost {
            for delivery in self.forwarding.remove(&sent).unwrap_or_default() {
                if let Some((key, _)) = addressed(&delivery.message.to) {
                    self.end_message(&key, &delivery, Origin::Accepted, Fate::MayHaveRun(MayHaveRun::NodeGone));
                }
            }
        }
        let affected: Vec<ObjectKey> = self
            .routes
            .iter()
            .filter(|(_, route)| {
                let leads_there = match &route.state {
                    RouteState::At { fence, .. } => fence.node == *peer,
                    RouteState::Draining { old, next, .. } => {
                        old.node == *peer || next.as_ref().is_some_and(|next| next.node == *peer)
                    }
                    RouteState::Unknown | RouteState::Locating | RouteState::Backoff => false,
                };
                // Whatever the route is now, what is still in flight went where it led before.
                leads_there || !route.flight.is_empty()
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in affected {
            let Some(route) = self.routes.get_mut(&key) else { continue };
            let flight = core::mem::take(&mut route.flight);
            let (lost, stays): (VecDeque<_>, VecDeque<_>) = flight.into_iter().partition(|(delivery, _)| {
                addressed(&delivery.message.to).is_some_and(|(_, fence)| fence.node == *peer)
            });
            route.flight = stays;
            for (delivery, origin) in lost {
                self.flights.remove(&delivery.message.operation);
                self.end_message(&key, &delivery, origin, Fate::MayHaveRun(MayHaveRun::NodeGone));
            }
            let Some(route) = self.routes.get_mut(&key) else { continue };
            match &mut route.state {
                RouteState::At { fence, used } if fence.node == *peer => {
                    // What it had taken may still be on its way to a third node.
                    if *used {
                        self.event(Event::OrderGap { object: key.clone() });
                    }
                    self.locate_route(&key);
                }
                RouteState::Draining { old, next, marker } => {
                    if next.as_ref().is_some_and(|next| next.node == *peer) {
                        *next = None;
                    }
                    if old.node == *peer {
                        let marker = *marker;
                        self.marker_back(marker, false);
                    }
                }
                RouteState::At { .. } | RouteState::Unknown | RouteState::Locating | RouteState::Backoff => {}
            }
        }
    }

    /// A peer is connected: what waited for it can go.
    pub(super) fn routes_peer_up(&mut self) {
        let waiting: Vec<ObjectKey> = self
            .routes
            .iter()
            .filter(|(_, route)| route.state == RouteState::Backoff && !route.queue.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            self.locate_route(&key);
        }
    }

    pub(super) fn call_taken(&mut self, operation: OperationId) {
        if self.requests.get(&operation).is_some_and(|request| !request.wants_reply) {
            self.finish_request(operation, CallResult::Sent(Ok(())));
        } else if let Some(request) = self.requests.get_mut(&operation) {
            request.taken = true;
        }
    }

    pub(super) fn end_call(&mut self, operation: OperationId, fate: Fate) {
        let Some(request) = self.requests.get(&operation) else { return };
        let error = match fate {
            Fate::NotRun(reason) => CallError::NotRun(reason),
            Fate::MayHaveRun(reason) => CallError::MayHaveRun(reason),
            Fate::Busy => CallError::Busy,
            Fate::Timeout => CallError::Timeout,
        };
        let result = if request.wants_reply { CallResult::Answered(Err(error)) } else { CallResult::Sent(Err(error)) };
        self.finish_request(operation, result);
    }

    pub(super) fn finish_request(&mut self, operation: OperationId, result: CallResult) {
        if let Some(request) = self.requests.remove(&operation) {
            self.timers.disarm(&TimerKey::Request(operation));
            self.done(request.call, result);
        }
    }

    /// A call's time is over. What is on its way may still run; what waits here will not.
    pub(super) fn request_timer(&mut self, operation: OperationId) {
        let Some(request) = self.requests.get(&operation) else { return };
        let key = request.object.clone();
        if let Some(route) = self.routes.get_mut(&key) {
            let ours = |parcel: &Parcel| match parcel {
                Parcel::Message { delivery, .. } => delivery.message.operation == operation,
                Parcel::Marker(_) => false,
            };
            let before = route.queue.len().saturating_add(route.refused.len());
            route.queue.retain(|parcel| !ours(parcel));
            route.refused.retain(|parcel| !ours(parcel));
            if before != route.queue.len().saturating_add(route.refused.len()) {
                return self.end_call(operation, Fate::NotRun(NotRun::Unavailable));
            }
        }
        self.end_call(operation, Fate::Timeout);
    }
}

/// A call that waits to be accepted or answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) call: CallId,
    pub(super) object: ObjectKey,
    pub(super) reply_route: crate::id::ReplyRoute,
    pub(super) wants_reply: bool,
    pub(super) taken: bool,
}

/// Whether `fence` is a later tenure than `old`, or of another incarnation.
fn newer(fence: &RouteFence, old: &RouteFence) -> bool {
    fence.generation != old.generation || fence.owner_generation > old.owner_generation
}

impl Fate {
    /// The fate as a requester elsewhere reads it.
    pub(super) fn outcome(self) -> Outcome {
        let (result, failure) = match self {
            Self::NotRun(NotRun::NotFound) => (TerminalResult::NOT_FOUND, FailureCode::REQUEST_TARGET_NOT_FOUND),
            Self::NotRun(NotRun::OtherIncarnation) => {
                (TerminalResult::INVALID_STATE, FailureCode::ACTOR_LOCATION_STALE)
            }
            Self::NotRun(NotRun::TooManyHops) => (TerminalResult::NOT_CONNECTED, FailureCode::ACTOR_ROUTE_NOT_FOUND),
            Self::NotRun(NotRun::Unavailable | NotRun::NotServing | NotRun::TooLarge) => {
                (TerminalResult::NOT_CONNECTED, FailureCode::ROUTE_NOT_CONNECTED)
            }
            Self::MayHaveRun(_) => (TerminalResult::NOT_CONNECTED, FailureCode::DATA_LOST),
            Self::Busy => (TerminalResult::BUSY, FailureCode::WORKER_QUEUE_FULL),
            Self::Timeout => (TerminalResult::TIMED_OUT, FailureCode::WORKER_TIMED_OUT),
        };
        Outcome::Failure { result, failure: failure.get(), detail: bytestring::ByteString::new() }
    }
}

/// What a failure says to the caller of a request.
pub(super) fn call_error(result: TerminalResult, failure: u32, detail: &str) -> CallError {
    match (result, FailureCode::new(failure)) {
        (TerminalResult::NOT_FOUND, Some(FailureCode::REQUEST_TARGET_NOT_FOUND)) => CallError::NotRun(NotRun::NotFound),
        (TerminalResult::INVALID_STATE, Some(FailureCode::ACTOR_LOCATION_STALE)) => {
            CallError::NotRun(NotRun::OtherIncarnation)
        }
        (TerminalResult::NOT_CONNECTED, Some(FailureCode::ACTOR_ROUTE_NOT_FOUND)) => {
            CallError::NotRun(NotRun::TooManyHops)
        }
        (TerminalResult::NOT_CONNECTED, Some(FailureCode::ROUTE_NOT_CONNECTED)) => {
            CallError::NotRun(NotRun::Unavailable)
        }
        (TerminalResult::NOT_CONNECTED, Some(FailureCode::DATA_LOST)) => CallError::MayHaveRun(MayHaveRun::LeaseEnded),
        (TerminalResult::BUSY, Some(FailureCode::WORKER_QUEUE_FULL)) => CallError::Busy,
        (TerminalResult::TIMED_OUT, _) => CallError::Timeout,
        (TerminalResult::INTERNAL_ERROR, Some(FailureCode::WORKER_FAILED)) => CallError::Panicked,
        (_, _) => CallError::Handler { failure, detail: detail.to_owned() },
    }
}
