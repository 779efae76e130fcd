//! Records as frames: the head, and the bodies of the published relocation commands. Decides nothing about a record
//! beyond the bounds of its fields; which node speaks which capability is agreed elsewhere.

use super::error::{DecodeError, DecodeErrorKind, EncodeError};
use super::reader::{Read, Reader};
use super::record::{
    Cutover, Data, Failed, FailureCode, FollowNotice, Prepare, Ready, Record, RelayStatus, ReplyRelay, ReplyRelayAck,
    Role, RouteChange, SessionRoute, SessionSeal, SessionSealed, State, TerminalResult,
};
use super::writer::Writer;
use crate::fence::{OwnerPair, PeerFence};
use crate::id::{OperationId, ParticipantId, ReplyRoute};
use crate::rope::Rope;
use crate::time::UnixMillis;
use bytes::Bytes;
use core::num::NonZeroU32;
use smallvec::{SmallVec, smallvec};

/// The most chunks of a logical stream.
pub const CHUNKS_MAX: u32 = 4096;
/// The most hops of a message that follows a moved object.
pub const HOPS_MAX: u8 = 8;

pub(super) const PUBLISHED_MAGIC: u16 = 0x5A4D;
const PUBLISHED_MAJOR: u8 = 1;
const FOLLOW_VERSION: u8 = 1;
/// The union case of a reply relay's move.
const RELAY_CASE: u8 = 2;

mod command {
    pub(super) const READY: u8 = 30;
    pub(super) const DATA: u8 = 31;
    pub(super) const REPLY_RELAY: u8 = 33;
    pub(super) const CUTOVER: u8 = 34;
    pub(super) const PREPARE: u8 = 40;
    pub(super) const SESSION_SEAL: u8 = 42;
    pub(super) const SESSION_SEALED: u8 = 43;
    pub(super) const SESSION_ROUTE: u8 = 44;
    pub(super) const REPLY_RELAY_ACK: u8 = 46;
    pub(super) const FOLLOW_NOTICE: u8 = 50;
    pub(super) const STATE: u8 = 52;
    pub(super) const FAILED: u8 = 53;
}

/// The frames of one record: one, or two for a reply relay that has a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frames(SmallVec<[Rope; 2]>);

impl Frames {
    /// No frame yet.
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Appends a frame. Decoding refuses more than a record has; whoever collects frames bounds them before.
    pub fn push(&mut self, frame: Rope) {
        self.0.push(frame);
    }

    /// The frames in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Rope> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all frames.
    pub fn byte_len(&self) -> usize {
        self.0.iter().fold(0, |sum, frame| sum.saturating_add(frame.len()))
    }
}

impl From<Rope> for Frames {
    fn from(frame: Rope) -> Self {
        Self(smallvec![frame])
    }
}

impl From<Bytes> for Frames {
    fn from(frame: Bytes) -> Self {
        Rope::from(frame).into()
    }
}

impl FromIterator<Rope> for Frames {
    fn from_iter<I: IntoIterator<Item = Rope>>(frames: I) -> Self {
        Self(frames.into_iter().collect())
    }
}

impl IntoIterator for Frames {
    type Item = Rope;
    type IntoIter = smallvec::IntoIter<[Rope; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Frames {
    type Item = &'a Rope;
    type IntoIter = core::slice::Iter<'a, Rope>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The frames of `record`. Payloads of 1 KiB and more are slices of the record's own bytes.
///
/// # Errors
/// A record that is outside the documented bounds of its fields, so that every receiver would refuse it.
pub fn encode(record: &Record) -> Result<Frames, EncodeError> {
    let mut writer = Writer::new(payload_len(record));
    let mut second = None;
    match record {
        Record::Prepare(record) => writer.prepare(record)?,
        Record::State(record) => writer.state(record)?,
        Record::Ready(record) => writer.ready(record),
        Record::Failed(record) => writer.failed(record),
        Record::Data(record) => writer.data(record)?,
        Record::Cutover(record) => writer.cutover(record),
        Record::SessionSeal(record) => writer.session_seal(record),
        Record::SessionSealed(record) => writer.session_sealed(record),
        Record::SessionRoute(record) => writer.session_route(record),
        Record::ReplyRelay(record) => {
            writer.reply_relay(record)?;
            if let Some(payload) = &record.payload {
                let mut frame = Writer::new(payload.bytes.len());
                frame.envelope(payload)?;
                second = Some(frame.finish());
            }
        }
        Record::ReplyRelayAck(record) => writer.reply_relay_ack(record)?,
        Record::FollowNotice(record) => writer.follow_notice(record)?,
        Record::Link(record) => writer.link(record)?,
    }
    let mut frames = Frames::from(writer.finish());
    if let Some(second) = second {
        frames.push(second);
    }
    Ok(frames)
}

/// The record that `frames` hold. Its ids, texts and payloads are slices of the frames: what outlives the frames'
/// use should be kept in its `detached` form.
///
/// # Errors
/// Where the bytes are not exactly one record. Offsets count from the start of the frame; fields of the second frame
/// are `payload` and below.
pub fn decode(frames: Frames) -> Result<Record, DecodeError> {
    let mut frames = frames.into_iter();
    let first = frames.next().ok_or(WRONG_FRAMES)?;
    let payload = frames.next();
    if frames.next().is_some() {
        return Err(WRONG_FRAMES);
    }
    any_record(Reader::new(first), payload)
}

/// The record that one frame in one piece holds: [`decode`] without a list of frames and pieces, for the records of
/// every message.
///
/// # Errors
/// As [`decode`].
pub fn decode_frame(frame: Bytes) -> Result<Record, DecodeError> {
    any_record(Reader::of_piece(frame), None)
}

const WRONG_FRAMES: DecodeError = DecodeError { kind: DecodeErrorKind::WrongFrames, offset: 0, field: "frames" };

#[inline]
fn any_record(mut reader: Reader, payload: Option<Rope>) -> Result<Record, DecodeError> {
    match reader.u16("magic")? {
        PUBLISHED_MAGIC => published(reader, payload),
        super::link::LINK_MAGIC if payload.is_some() => Err(WRONG_FRAMES),
        super::link::LINK_MAGIC => reader.link().map(Record::Link),
        _ => Err(Reader::error(0, DecodeErrorKind::InvalidHead, "magic")),
    }
}

fn published(mut reader: Reader, payload: Option<Rope>) -> Read<Record> {
    let at = reader.offset();
    if reader.u8("major version")? != PUBLISHED_MAJOR {
        return Err(Reader::error(at, DecodeErrorKind::InvalidHead, "major version"));
    }
    let at = reader.offset();
    let command = reader.u8("command")?;
    let body = body(command).ok_or(Reader::error(at, DecodeErrorKind::UnknownCommand, "command"))?;
    let at = reader.offset();
    // Flags 1, 2, 4 and 8 are defined, and no relocation command allows any of them.
    if reader.u8("flags")? != 0 {
        return Err(Reader::error(at, DecodeErrorKind::InvalidFlags, "flags"));
    }
    if payload.is_some() && command != command::REPLY_RELAY {
        return Err(WRONG_FRAMES);
    }
    let mut record = body(&mut reader)?;
    reader.done()?;
    if let (Record::ReplyRelay(relay), Some(frame)) = (&mut record, payload) {
        let mut reader = Reader::new(frame);
        relay.payload = Some(reader.envelope()?);
        reader.done()?;
    }
    Ok(record)
}

type Body = fn(&mut Reader) -> Read<Record>;

/// How the body of a command is read; `None` for one that is reserved or not spoken here.
fn body(command: u8) -> Option<Body> {
    Some(match command {
        command::READY => |r| r.ready().map(Record::Ready),
        command::DATA => |r| r.data().map(Record::Data),
        command::REPLY_RELAY => |r| r.reply_relay().map(Record::ReplyRelay),
        command::CUTOVER => |r| r.cutover().map(Record::Cutover),
        command::PREPARE => |r| r.prepare().map(Record::Prepare),
        command::SESSION_SEAL => |r| r.session_seal().map(Record::SessionSeal),
        command::SESSION_SEALED => |r| r.session_sealed().map(Record::SessionSealed),
        command::SESSION_ROUTE => |r| r.session_route().map(Record::SessionRoute),
        command::REPLY_RELAY_ACK => |r| r.reply_relay_ack().map(Record::ReplyRelayAck),
        command::FOLLOW_NOTICE => |r| r.follow_notice().map(Record::FollowNotice),
        command::STATE => |r| r.state().map(Record::State),
        command::FAILED => |r| r.failed().map(Record::Failed),
        _ => return None,
    })
}

/// About how many bytes of payload the first frame has, so that its buffer is allocated once.
fn payload_len(record: &Record) -> usize {
    match record {
        Record::State(state) => state.data.len(),
        Record::Data(data) => data.record.payload_len(),
        Record::Link(link) => super::link::payload_len(link),
        Record::Prepare(_)
        | Record::Ready(_)
        | Record::Failed(_)
        | Record::Cutover(_)
        | Record::SessionSeal(_)
        | Record::SessionSealed(_)
        | Record::SessionRoute(_)
        | Record::ReplyRelay(_)
        | Record::ReplyRelayAck(_)
        | Record::FollowNotice(_) => 0,
    }
}

impl Reader {
    fn prepare(&mut self) -> Read<Prepare> {
        let identity = self.identity()?;
        let target = self.peer()?;
        self.role(Role::Source)?;
        let object = self.object()?;
        let source = self.node()?;
        let total_length = self.checked("total length", |n| if n == 0 { Err(()) } else { Ok(n) })?;
        let at = self.offset();
        let chunk_count = self.u32("chunk count")?;
        if !(1..=CHUNKS_MAX).contains(&chunk_count) {
            return Err(Self::invalid(at, "chunk count"));
        }
        let checksum = self.u32("checksum")?;
        let application_version = self.u64("application version")?.cast_signed();
        // The last field came with capability v14; a peer of v13 sends none.
        let deadline = if self.is_done() { None } else { Some(UnixMillis(self.u64("deadline")?)) };
        Ok(Prepare {
            identity,
            target,
            object,
            source,
            total_length,
            chunk_count,
            checksum,
            application_version,
            deadline,
        })
    }

    fn state(&mut self) -> Read<State> {
        let identity = self.identity()?;
        self.role(Role::Source)?;
        let object = self.object()?;
        let ordinal = self.u32("ordinal")?;
        let len = self.length32(usize::MAX, "chunk")?;
        Ok(State { identity, object, ordinal, data: self.take_rope(len, "chunk")? })
    }

    fn ready(&mut self) -> Read<Ready> {
        let identity = self.identity()?;
        let target = self.peer()?;
        let object = self.object()?;
        self.role(Role::Target)?;
        Ok(Ready { identity, target, object })
    }

    fn failed(&mut self) -> Read<Failed> {
        let Ready { identity, target, object } = self.ready()?;
        let at = self.offset();
        let code = NonZeroU32::new(self.u32("failure code")?).ok_or(Self::invalid(at, "failure code"))?;
        Ok(Failed { identity, target, object, code: FailureCode(code) })
    }

    fn data(&mut self) -> Read<Data> {
        let identity = self.identity()?;
        self.role(Role::Source)?;
        let object = self.object()?;
        Ok(Data { identity, object, record: self.last_frozen()? })
    }

    fn cutover(&mut self) -> Read<Cutover> {
        let identity = self.identity()?;
        self.role(Role::Source)?;
        let object = self.object()?;
        let record_count = self.u64("record count")?;
        Ok(Cutover { identity, object, record_count, checksum: self.u32("checksum")? })
    }

    fn session_seal(&mut self) -> Read<SessionSeal> {
        let relocation = self.relocation()?;
        let coordinator = self.coordinator()?;
        self.role(Role::Source)?;
        let actor = self.route()?;
        Ok(SessionSeal { relocation, coordinator, actor, session: self.session()? })
    }

    fn session_sealed(&mut self) -> Read<SessionSealed> {
        let relocation = self.relocation()?;
        let coordinator = self.coordinator()?;
        let actor = self.route()?;
        Ok(SessionSealed { relocation, coordinator, actor, session: self.session()? })
    }

    fn session_route(&mut self) -> Read<SessionRoute> {
        let relocation = self.relocation()?;
        let coordinator = self.coordinator()?;
        let role = self.any_role()?;
        let actor = self.object_id()?;
        let generation = self.object_generation()?;
        let session = self.session()?;
        let case = self.enter("route")?;
        let route = match case.tag {
            1 => RouteChange::Commit {
                previous: self.owner_generation("previous owner generation")?,
                current: self.owner_generation("target owner generation")?,
                target: self.node()?,
                lease: self.lease()?,
            },
            2 => RouteChange::Abort { current: self.owner_generation("current owner generation")? },
            _ => return Err(Self::invalid(case.at, "route")),
        };
        self.leave(case, "route")?;
        Ok(SessionRoute { relocation, coordinator, role, actor, generation, session, route })
    }

    fn reply_relay(&mut self) -> Read<ReplyRelay> {
        let operation = self.some_operation()?;
        let reply_route = ReplyRoute(self.u64("reply route")?);
        let case = self.enter("relay")?;
        if case.tag != RELAY_CASE {
            return Err(Self::invalid(case.at, "relay"));
        }
        let identity = self.identity()?;
        let participant = ParticipantId(self.u64("participant")?);
        let sequence = self.u64("sequence")?;
        self.leave(case, "relay")?;
        let result = TerminalResult(self.u32("terminal result")?);
        let failure = self.u32("failure code")?;
        Ok(ReplyRelay { operation, reply_route, identity, participant, sequence, result, failure, payload: None })
    }

    fn reply_relay_ack(&mut self) -> Read<ReplyRelayAck> {
        let relocation = self.relocation()?;
        let coordinator = self.coordinator()?;
        let operation = self.some_operation()?;
        let reply_route = ReplyRoute(self.u64("reply route")?);
        let owner: OwnerPair = self.owner()?;
        let requester = PeerFence { node: self.node()?, owner };
        let at = self.offset();
        let status = match self.u8("status")? {
            1 => RelayStatus::Received,
            2 => RelayStatus::AlreadyTerminal,
            _ => return Err(Self::invalid(at, "status")),
        };
        Ok(ReplyRelayAck { relocation, coordinator, operation, reply_route, requester, status })
    }

    fn follow_notice(&mut self) -> Read<FollowNotice> {
        let case = self.enter_envelope(FOLLOW_VERSION, "notice")?;
        let source = self.route()?;
        let target = self.route()?;
        let at = self.offset();
        let hops = self.u8("hop count")?;
        if !(1..=HOPS_MAX).contains(&hops) {
            return Err(Self::invalid(at, "hop count"));
        }
        let queued_messages = self.u32("queued messages")?;
        let queued_bytes = self.u32("queued bytes")?;
        let at = self.offset();
        let operation = self.operation()?;
        let reply_route = ReplyRoute(self.u64("reply route")?);
        if operation == OperationId::NONE && reply_route.0 != 0 {
            return Err(Self::invalid(at, "operation id"));
        }
        self.leave(case, "notice")?;
        Ok(FollowNotice { source, target, hops, queued_messages, queued_bytes, operation, reply_route })
    }
}

impl Writer {
    #[inline]
    fn head(&mut self, command: u8) {
        self.u16(PUBLISHED_MAGIC);
        self.u8(PUBLISHED_MAJOR);
        self.u8(command);
        self.u8(0);
    }

    fn prepare(&mut self, record: &Prepare) -> Result<(), EncodeError> {
        if record.total_length == 0 {
            return Err(EncodeError::Invalid { field: "total length" });
        }
        if !(1..=CHUNKS_MAX).contains(&record.chunk_count) {
            return Err(EncodeError::Invalid { field: "chunk count" });
        }
        self.head(command::PREPARE);
        self.identity(&record.identity);
        self.peer(&record.target);
        self.role(Role::Source);
        self.object(&record.object);
        self.node(&record.source);
        self.u64(record.total_length);
        self.u32(record.chunk_count);
        self.u32(record.checksum);
        self.u64(record.application_version.cast_unsigned());
        if let Some(deadline) = record.deadline {
            self.u64(deadline.0);
        }
        Ok(())
    }

    fn state(&mut self, record: &State) -> Result<(), EncodeError> {
        self.head(command::STATE);
        self.identity(&record.identity);
        self.role(Role::Source);
        self.object(&record.object);
        self.u32(record.ordinal);
        self.length32(record.data.len(), usize::MAX, "chunk")?;
        self.payload_rope(&record.data);
        Ok(())
    }

    fn ready(&mut self, record: &Ready) {
        self.head(command::READY);
        self.identity(&record.identity);
        self.peer(&record.target);
        self.object(&record.object);
        self.role(Role::Target);
    }

    fn failed(&mut self, record: &Failed) {
        self.head(command::FAILED);
        self.identity(&record.identity);
        self.peer(&record.target);
        self.object(&record.object);
        self.role(Role::Target);
        self.u32(record.code.0.get());
    }

    fn data(&mut self, record: &Data) -> Result<(), EncodeError> {
        self.head(command::DATA);
        self.identity(&record.identity);
        self.role(Role::Source);
        self.object(&record.object);
        self.frozen(&record.record)
    }

    fn cutover(&mut self, record: &Cutover) {
        self.head(command::CUTOVER);
        self.identity(&record.identity);
        self.role(Role::Source);
        self.object(&record.object);
        self.u64(record.record_count);
        self.u32(record.checksum);
    }

    fn session_seal(&mut self, record: &SessionSeal) {
        self.head(command::SESSION_SEAL);
        self.u128(record.relocation.get());
        self.coordinator(&record.coordinator);
        self.role(Role::Source);
        self.route(&record.actor);
        self.session(&record.session);
    }

    fn session_sealed(&mut self, record: &SessionSealed) {
        self.head(command::SESSION_SEALED);
        self.u128(record.relocation.get());
        self.coordinator(&record.coordinator);
        self.route(&record.actor);
        self.session(&record.session);
    }

    fn session_route(&mut self, record: &SessionRoute) {
        self.head(command::SESSION_ROUTE);
        self.u128(record.relocation.get());
        self.coordinator(&record.coordinator);
        self.role(record.role);
        self.text8(record.actor.text());
        self.u64(record.generation.get());
        self.session(&record.session);
        let case = match &record.route {
            RouteChange::Commit { previous, current, target, lease } => {
                let case = self.open(1);
                self.u64(previous.get());
                self.u64(current.get());
                self.node(target);
                self.u64(lease.get());
                case
            }
            RouteChange::Abort { current } => {
                let case = self.open(2);
                self.u64(current.get());
                case
            }
        };
        self.close(case);
    }

    fn reply_relay(&mut self, record: &ReplyRelay) -> Result<(), EncodeError> {
        self.head(command::REPLY_RELAY);
        self.some_operation(record.operation)?;
        self.u64(record.reply_route.0);
        let case = self.open(RELAY_CASE);
        self.identity(&record.identity);
        self.u64(record.participant.0);
        self.u64(record.sequence);
        self.close(case);
        self.u32(record.result.0);
        self.u32(record.failure);
        Ok(())
    }

    fn reply_relay_ack(&mut self, record: &ReplyRelayAck) -> Result<(), EncodeError> {
        self.head(command::REPLY_RELAY_ACK);
        self.u128(record.relocation.get());
        self.coordinator(&record.coordinator);
        self.some_operation(record.operation)?;
        self.u64(record.reply_route.0);
        self.owner(&record.requester.owner);
        self.node(&record.requester.node);
        self.u8(match record.status {
            RelayStatus::Received => 1,
            RelayStatus::AlreadyTerminal => 2,
        });
        Ok(())
    }

    fn follow_notice(&mut self, record: &FollowNotice) -> Result<(), EncodeError> {
        if !(1..=HOPS_MAX).contains(&record.hops) {
            return Err(EncodeError::Invalid { field: "hop count" });
        }
        if record.operation == OperationId::NONE && record.reply_route.0 != 0 {
            return Err(EncodeError::Invalid { field: "operation id" });
        }
        let route = |route: &crate::fence::RouteFence| {
            route.object.as_str().len().saturating_add(route.node.rid.as_bytes().len()).saturating_add(34)
        };
        self.head(command::FOLLOW_NOTICE);
        self.u8(FOLLOW_VERSION);
        // Two routes; then hop count 1, queued 4 and 4, operation 16, reply route 8.
        let len = route(&record.source).saturating_add(route(&record.target)).saturating_add(33);
        self.length32(len, usize::MAX, "notice")?;
        self.route(&record.source);
        self.route(&record.target);
        self.u8(record.hops);
        self.u32(record.queued_messages);
        self.u32(record.queued_bytes);
        self.operation(record.operation);
        self.u64(record.reply_route.0);
        Ok(())
    }
}
