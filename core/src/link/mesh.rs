//! The connections of one node: each one's life from the transport's connect to its end. Owns the order of hello,
//! claim, welcome and records, and the timers. Must never touch a socket, read a clock or judge a record's meaning.

use super::frame::{self, Content, Control};
use super::hello::{Agreed, CAPABILITIES_MAX, Hello, HelloError, Introduction, V13_CAPABILITY};
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::peers::{Peers, Verdict};
use super::reason::{DownReason, DropReason, Misbehaviour, Refused, Rejection};
use super::settings::{HANDSHAKE_LIMIT, LinkSettings, MeshError};
use super::{Class, Conn, SendId};
use crate::fence::{NodeFence, PeerFence};
use crate::id::RoutingId;
use crate::rope::Rope;
use crate::time::Instant;
use crate::wire::{EncodeError, Frames, Record};
use bytes::Bytes;
use bytestring::ByteString;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;

/// What happened on the connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "nearly all events are records: a box would be an allocation for each")]
pub enum MeshEvent {
    /// A connection is up. At most one is, for each peer generation; and one generation for each routing id.
    Up {
        /// The connection.
        conn: Conn,
        /// Who is there.
        peer: PeerFence,
        /// What both sides speak.
        agreed: Agreed,
    },
    /// A record came on a connection that is up.
    Record {
        /// The connection.
        conn: Conn,
        /// The record. It borrows the read buffer: what is kept of it must be detached.
        record: Record,
    },
    /// Exactly one for each [`Mesh::send`].
    Sent {
        /// The record.
        send: SendId,
        /// True: its last byte was handed to the transport, which does not mean that it arrived. False: it was not;
        /// a part may have been.
        ok: bool,
    },
    /// A connection is down; exactly one for each. Whatever was sent on it has been reported before.
    Down {
        /// The connection.
        conn: Conn,
        /// Who was there, if its hello was accepted. It may never have been up.
        peer: Option<PeerFence>,
        /// Why.
        reason: DownReason,
    },
}

/// Misuse by the transport that drives a [`Mesh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallError {
    /// There is no such connection, or its end was reported by [`Mesh::closed`].
    #[error("there is no connection {0:?}")]
    UnknownConn(Conn),
    /// More bytes were written than were offered.
    #[error("{count} bytes of {conn:?} were never offered")]
    NotOffered {
        /// The connection.
        conn: Conn,
        /// How many too many.
        count: usize,
    },
}

/// Why a record was not queued.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SendError {
    /// The connection is not up.
    #[error("{0:?} is not up")]
    NotUp(Conn),
    /// The record, or a field of it, needs a capability that is not common.
    #[error("{0} was not agreed with the peer")]
    NotAgreed(&'static str),
    /// The peer takes no record as long as this.
    #[error("the record has {len} bytes, the peer takes {limit}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The bound that the peer told, or the agreed chunk limit.
        limit: u32,
    },
    /// The record cannot be encoded.
    #[error(transparent)]
    Encode(EncodeError),
}

/// The peer of a connection whose hello was accepted.
#[derive(Clone, Debug)]
struct Peer {
    fence: PeerFence,
    agreed: Agreed,
    record_limit: u32,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing has come yet.
    Hello { until: Instant },
    /// The hello was accepted; the claim or the welcome has not come.
    Agreeing { peer: Peer, until: Instant },
    /// The claim waits for the answer to a probe on the connection that is up.
    Held { peer: Peer, token: u64, until: Instant },
    /// Records go both ways.
    Up { peer: Peer },
    /// It is down; what is queued is still written.
    Closing { until: Instant },
}

impl Phase {
    const fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Hello { .. } | Self::Closing { .. } => None,
            Self::Agreeing { peer, .. } | Self::Held { peer, .. } | Self::Up { peer } => Some(peer),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Dialed,
    Accepted,
}

#[derive(Clone, Debug)]
struct Link {
    side: Side,
    expect: Option<RoutingId>,
    identity: Option<RoutingId>,
    phase: Phase,
    inbox: Inbox,
    outbox: Outbox,
    /// When a byte came last.
    heard: Instant,
    /// When a probe was sent last.
    probed: Instant,
    /// The token of the last probe.
    probe: u64,
    /// Its entry in the ordered timers: never later than what it waits for.
    timer: Option<Instant>,
}

/// All connections of one node, without their sockets.
///
/// The transport's loop, for each connection: [`Mesh::connect`] or [`Mesh::accept`], [`Mesh::authenticate`] where TLS
/// is on, [`Mesh::receive`] what was read; while [`Mesh::wants_write`], write what [`Mesh::transmit`] offers and report
/// it by [`Mesh::transmitted`]; once [`Mesh::should_close`], shut the write side down, read and drop until the end of
/// the stream (else the last bytes may be lost on their way), and report [`Mesh::closed`]. After each call take
/// [`Mesh::poll_event`] and [`Mesh::poll_ready`] until they are empty; call [`Mesh::tick`] at [`Mesh::deadline`].
#[derive(Clone, Debug)]
pub struct Mesh {
    local: Hello,
    settings: LinkSettings,
    record_limit: u32,
    links: BTreeMap<Conn, Link>,
    peers: Peers,
    timers: BTreeSet<(Instant, Conn)>,
    ready: BTreeSet<Conn>,
    events: VecDeque<MeshEvent>,
    conns: u64,
    /// Welcomes given so far.
    welcomes: u64,
    /// The latest time that was told.
    now: Instant,
}

impl Mesh {
    /// A mesh without connections, for the node that `local` introduces.
    ///
    /// # Errors
    /// Settings that cannot work; a hello that every peer would refuse.
    pub fn new(local: Hello, settings: LinkSettings) -> Result<Self, MeshError> {
        settings.check()?;
        if local.capabilities.len() > CAPABILITIES_MAX {
            return Err(MeshError::TooManyCapabilities { count: local.capabilities.len() });
        }
        if !local.capabilities.iter().any(|capability| capability.as_str() == V13_CAPABILITY) {
            return Err(MeshError::MissingCapability(V13_CAPABILITY));
        }
        let record_limit = settings.record_limit(local.chunk_limit);
        let len = frame::hello(&local.encode(record_limit)).len().saturating_sub(4);
        if u32::try_from(len).map_or(true, |len| len > HANDSHAKE_LIMIT) {
            return Err(MeshError::HelloTooLong { len });
        }
        Ok(Self {
            local,
            settings,
            record_limit,
            links: BTreeMap::new(),
            peers: Peers::default(),
            timers: BTreeSet::new(),
            ready: BTreeSet::new(),
            events: VecDeque::new(),
            conns: 0,
            welcomes: 0,
            now: Instant::ZERO,
        })
    }

    /// The transport has dialed a peer, which must be `expect` where that is given.
    pub fn connect(&mut self, now: Instant, expect: Option<RoutingId>) -> Conn {
        let conn = self.open(now, Side::Dialed, expect);
        self.control(conn, frame::hello(&self.local.encode(self.record_limit)));
        conn
    }

    /// The transport has accepted a connection.
    pub fn accept(&mut self, now: Instant) -> Conn {
        self.open(now, Side::Accepted, None)
    }

    fn open(&mut self, now: Instant, side: Side, expect: Option<RoutingId>) -> Conn {
        self.now = self.now.max(now);
        self.conns = self.conns.saturating_add(1);
        let conn = Conn(self.conns);
        let link = Link {
            side,
            expect,
            identity: None,
            phase: Phase::Hello { until: self.now.after(self.settings.hello_timeout) },
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            heard: self.now,
            probed: self.now,
            probe: 0,
            timer: None,
        };
        self.links.insert(conn, link);
        self.schedule(conn);
        conn
    }

    /// The transport has authenticated the peer of `conn` as `identity`: a hello of another routing id is refused.
    /// Call it before the first [`Mesh::receive`].
    ///
    /// # Errors
    /// [`CallError::UnknownConn`].
    pub fn authenticate(&mut self, conn: Conn, identity: RoutingId) -> Result<(), CallError> {
        let link = self.links.get_mut(&conn).ok_or(CallError::UnknownConn(conn))?;
        let wrong = link.phase.peer().is_some_and(|peer| peer.fence.node.rid != identity);
        link.identity = Some(identity);
        if wrong {
            self.close(conn, DownReason::Rejected(Rejection::NotAuthenticated));
        }
        Ok(())
    }

    /// Bytes came, cut anywhere. Payloads of records are slices of them, where a piece has 1 KiB or more: hand in slices
    /// that fill their buffers, for each keeps its whole buffer alive. Smaller pieces are copied.
    ///
    /// # Errors
    /// [`CallError::UnknownConn`]. Whatever is wrong with the bytes ends the connection and is told by
    /// [`MeshEvent::Down`].
    pub fn receive(&mut self, now: Instant, conn: Conn, bytes: Bytes) -> Result<(), CallError> {
        self.now = self.now.max(now);
        let link = self.links.get_mut(&conn).ok_or(CallError::UnknownConn(conn))?;
        if matches!(link.phase, Phase::Closing { .. }) || bytes.is_empty() {
            return Ok(());
        }
        link.heard = self.now;
        link.inbox.push(bytes);
        while let Some(link) = self.links.get_mut(&conn) {
            let limit = match link.phase {
                Phase::Closing { .. } => break,
                Phase::Up { .. } => self.record_limit,
                Phase::Hello { .. } | Phase::Agreeing { .. } | Phase::Held { .. } => HANDSHAKE_LIMIT,
            };
            let content = match link.inbox.next(limit) {
                Ok(None) => break,
                Ok(Some((kind, body))) => frame::content(kind, body),
                Err(misbehaviour) => Err(misbehaviour.into()),
            };
            let done = content.and_then(|content| self.content(conn, content));
            match done {
                Ok(()) => {}
                Err(HelloError::Rejected(rejection)) => self.close(conn, DownReason::Rejected(rejection)),
                Err(HelloError::Misbehaved(misbehaviour)) => self.close(conn, DownReason::Misbehaved(misbehaviour)),
            }
        }
        Ok(())
    }

    fn content(&mut self, conn: Conn, content: Content) -> Result<(), HelloError> {
        let Some(link) = self.links.get_mut(&conn) else { return Ok(()) };
        let unexpected = |what| Err(HelloError::Misbehaved(Misbehaviour::Unexpected(what)));
        match (content, &link.phase) {
            (Content::Control(Control::Refusal(refused)), _) => self.close(conn, DownReason::Refused(refused)),
            (Content::Hello(introduction), Phase::Hello { until }) => {
                let until = *until;
                self.introduced(conn, *introduction, until)?;
            }
            (Content::Control(Control::Claim { number, live }), Phase::Agreeing { peer, .. })
                if self.local.peer.node < peer.fence.node =>
            {
                self.claimed(conn, number, live)?;
            }
            (Content::Control(Control::Welcome { number }), Phase::Agreeing { peer, .. })
                if self.local.peer.node > peer.fence.node =>
            {
                if number <= self.peers.get(&peer.fence.node).number {
                    // A newer one was read on another connection, and the peer has closed this one.
                    return Err(HelloError::Rejected(Rejection::Duplicate));
                }
                self.bring_up(conn, Some(number));
            }
            (Content::Control(Control::Probe { token }), Phase::Up { .. }) => {
                link.outbox.push_answer(frame::control(&Control::ProbeAnswer { token }));
                self.ready.insert(conn);
            }
            (Content::Control(Control::ProbeAnswer { token }), Phase::Up { peer }) => {
                if token > link.probe {
                    return unexpected("probe answer");
                }
                let node = peer.fence.node.clone();
                self.refuse_held(&node, |held| held <= token);
            }
            (Content::Record { link: form, frames }, Phase::Up { .. }) => self.record(conn, form, frames)?,
            (Content::Hello(_), _) => return unexpected("hello"),
            (Content::Control(Control::Claim { .. }), _) => return unexpected("claim"),
            (Content::Control(Control::Welcome { .. }), _) => return unexpected("welcome"),
            (Content::Control(Control::Probe { .. }), _) => return unexpected("probe"),
            (Content::Control(Control::ProbeAnswer { .. }), _) => return unexpected("probe answer"),
            (Content::Record { .. }, _) => return unexpected("record before the connection is up"),
        }
        Ok(())
    }

    fn introduced(&mut self, conn: Conn, introduction: Introduction, until: Instant) -> Result<(), HelloError> {
        let Some(link) = self.links.get_mut(&conn) else { return Ok(()) };
        let Introduction { hello, record_limit } = introduction;
        let node = &hello.peer.node;
        let reject = |rejection| Err(HelloError::Rejected(rejection));
        match &link.identity {
            Some(identity) if *identity != node.rid => return reject(Rejection::NotAuthenticated),
            None if self.settings.require_identity => return reject(Rejection::NotAuthenticated),
            Some(_) | None => {}
        }
        if hello.mesh != self.local.mesh {
            return reject(Rejection::WrongMesh);
        }
        if node.rid == self.local.peer.node.rid {
            return reject(Rejection::SelfConnection);
        }
        if link.expect.as_ref().is_some_and(|expect| *expect != node.rid) {
            return reject(Rejection::NotExpected);
        }
        let Some(agreed) = self.local.agree(&hello) else { return reject(Rejection::NoCommonCapability) };
        if self.peers.newer_is_live(node) {
            return reject(Rejection::OlderGeneration);
        }
        let known = self.peers.get(node);
        let decides = self.local.peer.node < *node;
        let side = link.side;
        link.phase = Phase::Agreeing { peer: Peer { fence: hello.peer, agreed, record_limit }, until };
        if side == Side::Accepted {
            self.control(conn, frame::hello(&self.local.encode(self.record_limit)));
        }
        if !decides {
            let claim = Control::Claim { number: known.number, live: known.live.is_some() };
            self.control(conn, frame::control(&claim));
        }
        Ok(())
    }

    fn claimed(&mut self, conn: Conn, number: u64, live: bool) -> Result<(), HelloError> {
        let Some(link) = self.links.get_mut(&conn) else { return Ok(()) };
        let Some(peer) = link.phase.peer().cloned() else { return Ok(()) };
        match self.peers.get(&peer.fence.node).judge(number, live) {
            Verdict::Welcome => self.bring_up(conn, None),
            Verdict::Duplicate => return Err(HelloError::Rejected(Rejection::Duplicate)),
            Verdict::Hold(other) => {
                let Some(token) = self.probe(other) else { return Ok(()) };
                let until = self.now.after(self.settings.hello_timeout.checked_div(2).unwrap_or_default());
                if let Some(link) = self.links.get_mut(&conn) {
                    link.phase = Phase::Held { peer, token, until };
                    self.schedule(conn);
                }
            }
        }
        Ok(())
    }

    /// Sends a probe and returns its token.
    fn probe(&mut self, conn: Conn) -> Option<u64> {
        let link = self.links.get_mut(&conn)?;
        link.probed = self.now;
        link.probe = link.probe.saturating_add(1);
        let token = link.probe;
        self.control(conn, frame::control(&Control::Probe { token }));
        Some(token)
    }

    /// Makes `conn` the connection with its peer: by the welcome that was read, or by one that is given now.
    fn bring_up(&mut self, conn: Conn, welcome: Option<u64>) {
        let Some(peer) = self.links.get(&conn).and_then(|link| link.phase.peer()).cloned() else { return };
        let node = peer.fence.node.clone();
        if self.peers.newer_is_live(&node) {
            return self.close(conn, DownReason::Rejected(Rejection::OlderGeneration));
        }
        let number = welcome.unwrap_or_else(|| {
            self.welcomes = self.welcomes.saturating_add(1);
            self.welcomes
        });
        let before = self.peers.get(&node).live;
        // From here on the others are beside the point: closing them promotes none that was held.
        self.peers.set(&node, conn, number);
        let older = self.conns_of(|other| other.rid == node.rid && other.generation < node.generation);
        for other in older {
            self.close(other, DownReason::Rejected(Rejection::Superseded));
        }
        self.peers.forget_older(&node);
        if let Some(before) = before {
            self.close(before, DownReason::Rejected(Rejection::Duplicate));
        }
        if let Some(link) = self.links.get_mut(&conn) {
            link.phase = Phase::Up { peer: peer.clone() };
        }
        if welcome.is_none() {
            self.control(conn, frame::control(&Control::Welcome { number }));
        }
        self.events.push_back(MeshEvent::Up { conn, peer: peer.fence, agreed: peer.agreed });
        self.refuse_held(&node, |_| true);
        self.schedule(conn);
    }

    fn conns_of(&self, which: impl Fn(&NodeFence) -> bool) -> Vec<Conn> {
        let of = |link: &Link| link.phase.peer().is_some_and(|peer| which(&peer.fence.node));
        self.links.iter().filter(|(_, link)| of(link)).map(|(conn, _)| *conn).collect()
    }

    /// The claims of `node` that wait, oldest first, each with the token that it waits for.
    fn held(&self, node: &NodeFence) -> Vec<(Conn, u64)> {
        let waits = |(conn, link): (&Conn, &Link)| match &link.phase {
            Phase::Held { peer, token, .. } if peer.fence.node == *node => Some((*conn, *token)),
            Phase::Held { .. }
            | Phase::Hello { .. }
            | Phase::Agreeing { .. }
            | Phase::Up { .. }
            | Phase::Closing { .. } => None,
        };
        self.links.iter().filter_map(waits).collect()
    }

    fn refuse_held(&mut self, node: &NodeFence, which: impl Fn(u64) -> bool) {
        for (conn, token) in self.held(node) {
            if which(token) {
                self.close(conn, DownReason::Rejected(Rejection::Duplicate));
            }
        }
    }

    fn record(&mut self, conn: Conn, form: bool, frames: Frames) -> Result<(), HelloError> {
        let Some(Phase::Up { peer }) = self.links.get(&conn).map(|link| &link.phase) else { return Ok(()) };
        if form && !peer.agreed.link {
            return Err(Misbehaviour::Unexpected("link record that was not agreed on").into());
        }
        let record = frame::decode(form, frames)?;
        let limit = self.local.chunk_limit;
        if let Record::State(state) = &record
            && limit != 0
            && state.data.len() > usize::try_from(limit).unwrap_or(usize::MAX)
        {
            return Err(Misbehaviour::Chunk { len: state.data.len(), limit }.into());
        }
        if has_deadline(&record) && !peer.agreed.v14 {
            return Err(Misbehaviour::Unexpected("deadline that was not agreed on").into());
        }
        self.events.push_back(MeshEvent::Record { conn, record });
        Ok(())
    }

    /// Queues a record. The record is encoded now: small parts are copied, payloads of 1 KiB and more are borrowed.
    /// Whatever it returns, one [`MeshEvent::Sent`] tells what became of `send`.
    ///
    /// # Errors
    /// The record was not queued, and `Sent { ok: false }` follows.
    pub fn send(&mut self, conn: Conn, send: SendId, class: Class, record: &Record) -> Result<(), SendError> {
        let queued = self.encode(conn, record).and_then(|bytes| {
            let link = self.links.get_mut(&conn).ok_or(SendError::NotUp(conn))?;
            link.outbox.push(class, send, bytes);
            Ok(())
        });
        match queued {
            Ok(()) => _ = self.ready.insert(conn),
            Err(_) => self.events.push_back(MeshEvent::Sent { send, ok: false }),
        }
        queued
    }

    fn encode(&self, conn: Conn, record: &Record) -> Result<Rope, SendError> {
        let Some(Phase::Up { peer }) = self.links.get(&conn).map(|link| &link.phase) else {
            return Err(SendError::NotUp(conn));
        };
        if matches!(record, Record::Link(_)) && !peer.agreed.link {
            return Err(SendError::NotAgreed(super::LINK_CAPABILITY));
        }
        if has_deadline(record) && !peer.agreed.v14 {
            return Err(SendError::NotAgreed(super::V14_CAPABILITY));
        }
        if let Record::State(state) = record {
            within(state.data.len(), peer.agreed.chunk_limit.unwrap_or(u32::MAX))?;
        }
        let bytes = frame::record(record).map_err(SendError::Encode)?;
        within(bytes.len().saturating_sub(4), peer.record_limit)?;
        Ok(bytes)
    }

    /// Offers bytes to write, in order, as slices appended to `slices`; bounded by
    /// [`LinkSettings::write_bytes`] and [`LinkSettings::write_slices`]. Nothing is appended for an unknown connection.
    pub fn transmit<'a>(&'a mut self, conn: Conn, slices: &mut Vec<IoSlice<'a>>) {
        if let Some(link) = self.links.get_mut(&conn) {
            let settings = &self.settings;
            link.outbox.offer(settings.write_bytes, settings.write_slices, settings.small_burst, slices);
        }
    }

    /// The transport took the first `count` of the bytes that were offered.
    ///
    /// # Errors
    /// [`CallError::UnknownConn`]; [`CallError::NotOffered`] if they were more than offered.
    pub fn transmitted(&mut self, now: Instant, conn: Conn, count: usize) -> Result<(), CallError> {
        self.now = self.now.max(now);
        let link = self.links.get_mut(&conn).ok_or(CallError::UnknownConn(conn))?;
        let events = &mut self.events;
        let over = link.outbox.written(count, |send| events.push_back(MeshEvent::Sent { send, ok: true }));
        if link.outbox.queued() > 0 || matches!(link.phase, Phase::Closing { .. }) {
            self.ready.insert(conn);
        }
        if over > 0 { Err(CallError::NotOffered { conn, count: over }) } else { Ok(()) }
    }

    /// Whether there is anything to write.
    pub fn wants_write(&self, conn: Conn) -> bool {
        self.queued_bytes(conn) > 0
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self, conn: Conn) -> usize {
        self.links.get(&conn).map_or(0, |link| link.outbox.queued())
    }

    /// Whether the transport must close the connection now: it is down and nothing is left to write.
    pub fn should_close(&self, conn: Conn) -> bool {
        let closing = |link: &Link| matches!(link.phase, Phase::Closing { .. }) && link.outbox.queued() == 0;
        self.links.get(&conn).is_some_and(closing)
    }

    /// The next connection that may have something to write, or to close, since it was last returned here.
    pub fn poll_ready(&mut self) -> Option<Conn> {
        self.ready.pop_first()
    }

    /// The connection with the newest run of `rid`, if one is up.
    pub fn connection(&self, rid: &RoutingId) -> Option<Conn> {
        self.peers.live_run(rid)
    }

    /// The transport has lost or closed the connection. It is unknown from now on.
    pub fn closed(&mut self, now: Instant, conn: Conn) {
        self.now = self.now.max(now);
        self.close(conn, DownReason::Closed);
        if let Some(link) = self.links.remove(&conn)
            && let Some(at) = link.timer
        {
            self.timers.remove(&(at, conn));
        }
        self.ready.remove(&conn);
    }

    /// Ends a connection; the peer is told. Nothing happens if it is down already.
    pub fn drop_conn(&mut self, conn: Conn, reason: DropReason) {
        self.close(conn, DownReason::Dropped(reason));
    }

    /// Takes a connection down: reports what was not sent, then the end; queues what the peer is told; lets a claim
    /// that waited for it in.
    fn close(&mut self, conn: Conn, reason: DownReason) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if matches!(link.phase, Phase::Closing { .. }) {
            return;
        }
        let peer = link.phase.peer().map(|peer| peer.fence.clone());
        link.phase = Phase::Closing { until: self.now.after(self.settings.close_timeout) };
        link.inbox.clear();
        let events = &mut self.events;
        link.outbox.abandon(|send| events.push_back(MeshEvent::Sent { send, ok: false }));
        match reason.told() {
            Some(rejection) => {
                let detail = match &reason {
                    DownReason::Misbehaved(misbehaviour) => ByteString::from(misbehaviour.to_string()),
                    DownReason::Closed
                    | DownReason::Silent
                    | DownReason::HelloTimeout
                    | DownReason::Rejected(_)
                    | DownReason::Refused(_)
                    | DownReason::Dropped(_) => ByteString::new(),
                };
                let refused = Refused { reason: rejection, detail };
                link.outbox.push_control(frame::control(&Control::Refusal(refused)));
            }
            // Nobody is left to read what is queued.
            None => link.outbox.clear(),
        }
        self.events.push_back(MeshEvent::Down { conn, peer: peer.clone(), reason });
        self.ready.insert(conn);
        self.schedule(conn);
        if let Some(peer) = peer
            && self.peers.lost(&peer.node, conn, self.settings.peer_memory)
            && let Some((waiting, _)) = self.held(&peer.node).last()
        {
            self.bring_up(*waiting, None);
        }
    }

    fn control(&mut self, conn: Conn, bytes: Rope) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.outbox.push_control(bytes);
            self.ready.insert(conn);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MeshEvent> {
        self.events.pop_front()
    }

    /// When to call [`Mesh::tick`] next. It may turn out that nothing is due then.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time passed. Hand in what was received before, else a node that was stopped for a while takes its peers for dead.
    pub fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let due: Vec<_> = self.timers.range(..=(self.now, Conn(u64::MAX))).copied().collect();
        for (at, conn) in due {
            // An action before this one may have moved the entry.
            if self.timers.remove(&(at, conn)) {
                if let Some(link) = self.links.get_mut(&conn) {
                    link.timer = None;
                }
                self.fire(conn);
                self.schedule(conn);
            }
        }
    }

    fn fire(&mut self, conn: Conn) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        match link.phase {
            Phase::Hello { until } | Phase::Agreeing { until, .. } if until <= self.now => {
                self.close(conn, DownReason::HelloTimeout);
            }
            // No answer on the connection that is up: its far end counts as dead.
            Phase::Held { until, .. } if until <= self.now => self.bring_up(conn, None),
            Phase::Up { .. } if link.heard.after(self.settings.dead_after) <= self.now => {
                self.close(conn, DownReason::Silent);
            }
            Phase::Up { .. } if link.heard.max(link.probed).after(self.settings.probe_after) <= self.now => {
                self.probe(conn);
            }
            Phase::Closing { until } if until <= self.now => {
                link.outbox.clear();
                self.ready.insert(conn);
            }
            Phase::Hello { .. }
            | Phase::Agreeing { .. }
            | Phase::Held { .. }
            | Phase::Up { .. }
            | Phase::Closing { .. } => {}
        }
    }

    /// Sees to it that the connection's timer is no later than what it waits for.
    fn schedule(&mut self, conn: Conn) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let due = match link.phase {
            Phase::Hello { until } | Phase::Agreeing { until, .. } | Phase::Held { until, .. } => until,
            Phase::Up { .. } => {
                let probe = link.heard.max(link.probed).after(self.settings.probe_after);
                probe.min(link.heard.after(self.settings.dead_after))
            }
            Phase::Closing { .. } if link.outbox.queued() == 0 => return,
            Phase::Closing { until } => until,
        };
        if let Some(at) = link.timer {
            if at <= due {
                return;
            }
            self.timers.remove(&(at, conn));
        }
        link.timer = Some(due);
        self.timers.insert((due, conn));
    }
}

/// Whether the record has the field that only nodes of capability v14 understand.
const fn has_deadline(record: &Record) -> bool {
    matches!(record, Record::Prepare(prepare) if prepare.deadline.is_some())
}

fn within(len: usize, limit: u32) -> Result<(), SendError> {
    if len > usize::try_from(limit).unwrap_or(usize::MAX) { Err(SendError::TooLong { len, limit }) } else { Ok(()) }
}
