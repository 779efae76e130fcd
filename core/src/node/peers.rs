//! Peers: their connections, their ordered channels, and finding out that a generation of one is over. A closed
//! connection proves nothing, nor does a newer generation; only a lease that has ended does.

use super::event::Event;
use super::io::{Class, Conn, DropReason, NotRun, Output, SendId};
use super::routes::Fate;
use super::{Node, Purpose, SendPurpose, StoreAnswer, TimerKey};
use crate::channel::{Arrival, Channel};
use crate::fence::{NodeFence, ObjectKey, PeerFence};
use crate::id::OperationId;
use crate::link::Agreed;
use crate::machine::follow::{Follow, FollowVerdict};
use crate::machine::settlement::LeaseSeen;
use crate::machine::source::SourceInput;
use crate::machine::target::TargetInput;
use crate::store::record::lease_key;
use crate::store::{StoreCommand, StoreReply};
use crate::wire::{Delivery, FollowNotice, LinkRecord, Ordered, Outcome, Record, Refusal, ReplyRelay, TerminalResult};
use core::time::Duration;
use std::collections::BTreeSet;

/// One generation of a peer that was connected, or that waits to be told something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) fence: PeerFence,
    pub(super) conn: Option<Conn>,
    pub(super) agreed: Option<Agreed>,
    channel: Channel,
}

impl Peer {
    fn new(fence: PeerFence) -> Self {
        Self { fence, conn: None, agreed: None, channel: Channel::new() }
    }
}

/// How many peer generations that are over a node remembers. One is forgotten only after so many others have ended, long
/// after its process must have found out.
const GONE_MEMORY: usize = 1024;

/// How long received records may wait for their acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(20);

impl Node {
    pub(super) fn peer_up(&mut self, conn: Conn, peer: PeerFence, agreed: Agreed) {
        let peer = peer.detached();
        // Its process has woken and does not know yet. What it had of us, and we of it, is forgotten: with a new channel
        // it would say again what has run already.
        if self.gone.contains(&peer.node) {
            self.count_stale("PeerUp");
            return self.outputs.push_back(Output::Drop { conn, reason: DropReason::PeerGone });
        }
        let older: Vec<NodeFence> = self
            .peers
            .keys()
            .filter(|node| node.rid == peer.node.rid && node.generation != peer.node.generation)
            .cloned()
            .collect();
        for old in older {
            if planted!("displaced_peer_is_forgotten") {
                self.peer_gone(&old);
            }
            // Two runs of one routing id, and the later connection is likely the later run. That proves nothing of the
            // older one, which may have stopped only for a while: its lease will tell.
            if let Some(conn) = self.peers.get(&old).and_then(|peer| peer.conn) {
                self.outputs.push_back(Output::Drop { conn, reason: DropReason::Displaced });
                self.peer_down(conn);
            }
        }
        if let Some(old) = self.peers.get(&peer.node).and_then(|known| known.conn) {
            self.peer_down(old);
        }
        let node = peer.node.clone();
        let known = self.peers.entry(node.clone()).or_insert_with(|| Peer::new(peer.clone()));
        known.fence = peer.clone();
        known.conn = Some(conn);
        let link = agreed.link;
        known.agreed = Some(agreed);
        let resume = link.then(|| known.channel.up());
        self.conns.insert(conn, node.clone());
        self.timers.disarm(&TimerKey::PeerCheck(node.clone()));
        self.event(Event::PeerUp { peer, conn });
        if let Some(resume) = resume {
            self.send(conn, Class::Small, Record::Link(resume), SendPurpose::None);
        }
        self.sources_of(&node, &SourceInput::PeerUp);
        self.routes_peer_up();
    }

    pub(super) fn peer_down(&mut self, conn: Conn) {
        let Some(node) = self.conns.remove(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if peer.conn != Some(conn) {
            return;
        }
        peer.conn = None;
        peer.channel.down();
        let fence = peer.fence.clone();
        self.event(Event::PeerDown { peer: fence });
        self.sources_of(&node, &SourceInput::PeerDown);
        self.stages_of(&node, Some(conn), &TargetInput::PeerDown);
        let at = self.now.mono.after(self.config.timing.peer_check);
        self.timers.arm(TimerKey::PeerCheck(node), at);
    }

    pub(super) fn peer_check(&mut self, node: &NodeFence) {
        let Some(peer) = self.peers.get(node) else { return };
        if peer.conn.is_some() {
            return;
        }
        let command = StoreCommand::Read(lease_key(&peer.fence.owner));
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::PeerLease(node.clone()), command, give_up);
    }

    pub(super) fn peer_checked(&mut self, node: &NodeFence, reply: &StoreReply) {
        let Some(peer) = self.peers.get(node) else { return };
        if peer.conn.is_some() {
            return;
        }
        match StoreAnswer::lease(reply) {
            LeaseSeen::Missing => {
                if !planted!("peer_that_is_over_comes_back") {
                    if self.gone.len() >= GONE_MEMORY {
                        self.gone.pop_front();
                    }
                    self.gone.push_back(node.clone());
                }
                self.peer_gone(node);
            }
            LeaseSeen::Live | LeaseSeen::Unknown => {
                let at = self.now.mono.after(self.config.timing.peer_check);
                self.timers.arm(TimerKey::PeerCheck(node.clone()), at);
            }
        }
    }

    /// A generation is over: nothing will come from it, and what it had, nobody can tell of.
    fn peer_gone(&mut self, node: &NodeFence) {
        let Some(peer) = self.peers.remove(node) else { return };
        if let Some(conn) = peer.conn {
            self.conns.remove(&conn);
            self.outputs.push_back(Output::Drop { conn, reason: DropReason::PeerGone });
        }
        self.timers.disarm(&TimerKey::PeerCheck(node.clone()));
        self.timers.disarm(&TimerKey::Ack(node.clone()));
        self.event(Event::PeerGone { peer: peer.fence });
        self.sources_of(node, &SourceInput::PeerDown);
        self.sources_of(node, &SourceInput::TargetGone);
        self.stages_of(node, None, &TargetInput::SourceGone);
        self.relays_requester_gone(node);
        self.routes_peer_gone(node);
    }

    /// Sends one record on a connection.
    pub(super) fn send(&mut self, conn: Conn, class: Class, record: Record, purpose: SendPurpose) -> SendId {
        self.next_send = self.next_send.saturating_add(1);
        let send = SendId(self.next_send);
        match purpose {
            SendPurpose::None => {}
            SendPurpose::Chunk { .. } | SendPurpose::Cutover(_) => {
                self.sends.insert(send, purpose);
            }
        }
        self.outputs.push_back(Output::Send { conn, send, class, record });
        send
    }

    /// Sends an ordered record to a peer generation that may never have been connected: then the record waits for its
    /// connection, or for its end.
    pub(super) fn ordered_to(&mut self, fence: &PeerFence, body: Ordered) {
        let node = &fence.node;
        if !self.peers.contains_key(node) && !self.gone.contains(node) && !planted!("stranger_gets_no_answer") {
            self.peers.insert(node.clone(), Peer::new(fence.detached()));
            let at = self.now.mono.after(self.config.timing.peer_check);
            self.timers.arm(TimerKey::PeerCheck(node.clone()), at);
        }
        self.ordered(node, body);
    }

    /// Sends an ordered record to a peer generation, now or when it is connected. To one that is gone, nothing.
    pub(super) fn ordered(&mut self, node: &NodeFence, body: Ordered) {
        let Some(peer) = self.peers.get_mut(node) else { return self.count_stale("ordered") };
        let record = peer.channel.push(body);
        if let (Some(record), Some(conn)) = (record, peer.conn) {
            self.send(conn, Class::Small, Record::Link(record), SendPurpose::None);
        }
    }

    pub(super) fn link_record(&mut self, conn: Conn, from: &PeerFence, record: LinkRecord) {
        let Some(peer) = self.peers.get_mut(&from.node) else { return };
        match record {
            LinkRecord::Resume { received } => {
                for again in peer.channel.resume(received) {
                    self.send(conn, Class::Small, Record::Link(again), SendPurpose::None);
                }
            }
            LinkRecord::Ack { received } => peer.channel.acknowledged(received),
            LinkRecord::Ordered { sequence, body } => {
                let arrival = peer.channel.receive(sequence, body);
                let (_, now) = peer.channel.ack_due();
                if now {
                    self.send_ack(&from.node);
                } else if !self.timers.is_armed(&TimerKey::Ack(from.node.clone())) {
                    let at = self.now.mono.after(ACK_DELAY);
                    self.timers.arm(TimerKey::Ack(from.node.clone()), at);
                }
                match arrival {
                    Arrival::Next(body) => self.ordered_arrived(from, body),
                    Arrival::Duplicate => self.count_stale("Ordered"),
                    Arrival::Gap => {
                        self.outputs.push_back(Output::Drop { conn, reason: DropReason::Protocol });
                        self.peer_down(conn);
                    }
                }
            }
        }
    }

    pub(super) fn send_ack(&mut self, node: &NodeFence) {
        self.timers.disarm(&TimerKey::Ack(node.clone()));
        let Some(peer) = self.peers.get_mut(node) else { return };
        let (due, _) = peer.channel.ack_due();
        if let (true, Some(conn)) = (due, peer.conn)
            && let Some(record) = peer.channel.ack()
        {
            self.send(conn, Class::Small, Record::Link(record), SendPurpose::None);
        }
    }

    fn ordered_arrived(&mut self, from: &PeerFence, body: Ordered) {
        match body {
            Ordered::Deliver(delivery) => {
                let operation = delivery.message.operation;
                if let Err((_, reason)) = self.arrive(delivery, Some(&from.node)) {
                    self.ordered(&from.node, Ordered::Refused { operation, reason });
                }
            }
            Ordered::Taken { operation } => self.route_taken(operation, &from.node),
            Ordered::Refused { operation, reason } => self.route_refused(operation, reason, &from.node),
            Ordered::Marker(marker) => self.arrive_marker(marker),
            Ordered::MarkerBack { marker } => self.marker_back(marker, true),
            Ordered::Reply(reply) => {
                self.reply_arrived(reply.operation, reply.reply_route, reply.outcome);
            }
        }
    }

    /// A message has come to a tenure that ended here.
    pub(super) fn follow_message(
        &mut self,
        key: super::TenureKey,
        mut delivery: Box<Delivery>,
        from: Option<&NodeFence>,
    ) -> Result<(), (Box<Delivery>, Refusal)> {
        let limit = self.config.limits.follow_hops;
        let me = self.config.node.clone();
        let Some((_, to)) = super::routes::addressed(&delivery.message.to) else {
            return Err((delivery, Refusal::NotHere));
        };
        let to = to.clone();
        let Some(follow) = self.follows.get_mut(&key) else { return Err((delivery, Refusal::NotHere)) };
        match follow.decide(&to, delivery.hops, limit, from.unwrap_or(&me)) {
            FollowVerdict::TooManyHops => Err((delivery, Refusal::TooManyHops)),
            FollowVerdict::OtherIncarnation => Err((delivery, Refusal::OtherIncarnation)),
            FollowVerdict::Forward { hops, notice } => {
                let follow = follow.clone();
                delivery.hops = hops;
                self.counters.follow_forwarded = self.counters.follow_forwarded.saturating_add(1);
                if let (true, Some(from)) = (notice, from) {
                    self.notice(&key, &follow, &delivery, from);
                }
                self.take(delivery.message.operation, from);
                self.forward(&key.0, follow.target.clone(), delivery);
                if from.is_none() {
                    // This node's own route is what led here.
                    self.route_learned(&key.0, follow.target);
                }
                Ok(())
            }
        }
    }

    /// Tells a sender about the new address.
    fn notice(&mut self, key: &super::TenureKey, follow: &Follow, delivery: &Delivery, to: &NodeFence) {
        let waiting = self.routes.get(&key.0).map_or(0, super::routes::Route::waiting);
        let message = &delivery.message;
        let record = FollowNotice {
            source: follow.source.clone(),
            target: follow.target.clone(),
            hops: delivery.hops.max(1),
            queued_messages: u32::try_from(waiting).unwrap_or(u32::MAX),
            queued_bytes: 0,
            operation: message.operation,
            reply_route: message.reply.unwrap_or(crate::id::ReplyRoute(0)),
        };
        match self.peers.get(to).and_then(|peer| peer.conn) {
            Some(conn) => {
                self.send(conn, Class::Small, Record::FollowNotice(record), SendPurpose::None);
            }
            None => {
                if let Some(follow) = self.follows.get_mut(key) {
                    follow.notice_failed(to);
                }
            }
        }
    }

    /// 50 came. Both fences name the object's id; its kind follows from the route that is known here.
    pub(super) fn notice_arrived(&mut self, notice: FollowNotice) {
        let key = ObjectKey::actor(notice.source.object.detached());
        if self.known_route(&key) == Some(&notice.source) {
            self.route_learned(&key, notice.target.detached());
        } else {
            self.count_stale("FollowNotice");
        }
    }

    /// 33 came: the first answer counts, and every one is acknowledged.
    pub(super) fn relay_arrived(&mut self, conn: Conn, relay: ReplyRelay) {
        let Some(requester) = self.identity() else { return };
        let outcome = match relay.payload {
            Some(payload) if relay.result == TerminalResult::OK => Outcome::Answer(payload),
            Some(_) | None => Outcome::Failure {
                result: relay.result,
                failure: relay.failure,
                detail: relay
                    .payload
                    .and_then(|payload| bytestring::ByteString::try_from(payload.bytes).ok())
                    .unwrap_or_default(),
            },
        };
        let first = self.reply_arrived(relay.operation, relay.reply_route, outcome);
        let status = if first { crate::wire::RelayStatus::Received } else { crate::wire::RelayStatus::AlreadyTerminal };
        let record = Record::ReplyRelayAck(crate::wire::ReplyRelayAck {
            relocation: relay.identity.relocation,
            coordinator: relay.identity.coordinator,
            operation: relay.operation,
            reply_route: relay.reply_route,
            requester,
            status,
        });
        self.send(conn, Class::Small, record, SendPurpose::None);
    }

    /// Ends what nobody answers for any more: for a node that is over. Only what never left this node has not run.
    pub(super) fn end_all_routes(&mut self, fate: Fate) {
        let waiting: BTreeSet<OperationId> = self.routes.values().flat_map(super::routes::Route::unsent).collect();
        let operations: Vec<_> = self.requests.keys().copied().collect();
        for operation in operations {
            let unsent = waiting.contains(&operation) || planted!("shutdown_says_not_run");
            self.end_call(operation, if unsent { Fate::NotRun(NotRun::NotServing) } else { fate });
        }
        self.routes.clear();
        self.flights.clear();
        self.forwarding.clear();
        self.markers.clear();
    }
}
