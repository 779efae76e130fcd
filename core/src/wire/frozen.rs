//! Frozen records and payload envelopes: messages in the form in which they travel with a move, and in which the
//! cutover counts them. The canonical bytes of a record are the only ones that decode to it.
//!
//! Kinds 1 to 6, 9 and 10 are messages. Kinds 7 (spot multicast), 8 (spot control), 11 (completion), 12 (send ready),
//! 13 (relocation control) and 14 (instance activation) are not run here. Where a record is the last field, as in
//! command 31, they and all later kinds keep their bytes. In the logical stream nothing says where a record ends, so
//! there only kind 7 can be kept, whose body is that of the spot messages; the bodies of 8 and 11 to 14 are not known
//! here, and they are refused like a kind above 14.

use super::error::EncodeError;
use super::reader::{Read, Reader};
use super::record::{Destination, FrozenRecord, Message, Payload, Sender, SourceIdentity};
use super::writer::Writer;
use crate::id::ReplyRoute;
use crate::rope::Rope;

/// The most bytes of a metadata frame.
pub const METADATA_MAX: usize = 1024;

const SPOT_MULTICAST: u8 = 7;
const ENVELOPE: u8 = 1;

/// The form of a message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Node,
    Channel,
    Spot,
    Actor,
}

/// The form and whether it is a request, for the kinds that are messages.
const fn message_kind(kind: u8) -> Option<(Way, bool)> {
    match kind {
        1 => Some((Way::Node, false)),
        2 => Some((Way::Node, true)),
        3 => Some((Way::Channel, false)),
        4 => Some((Way::Channel, true)),
        5 => Some((Way::Spot, false)),
        6 => Some((Way::Spot, true)),
        9 => Some((Way::Actor, false)),
        10 => Some((Way::Actor, true)),
        _ => None,
    }
}

/// The kind byte and the operation kind of a request this way.
const fn numbers(way: Way) -> (u8, u8, u32) {
    match way {
        Way::Node => (1, 2, 1),
        Way::Channel => (3, 4, 2),
        Way::Spot => (5, 6, 3),
        Way::Actor => (9, 10, 4),
    }
}

/// The canonical bytes of `record`: what the checksum of a cutover covers. A large payload is a slice of its own.
///
/// # Errors
/// A record that is outside the documented bounds of its fields.
pub fn encode_frozen(record: &FrozenRecord) -> Result<Rope, EncodeError> {
    let mut writer = Writer::new(record.payload_len());
    writer.frozen(record)?;
    Ok(writer.finish())
}

/// The CRC-32C of the records before and `record`; `state` is that of the records before, 0 for none.
///
/// # Errors
/// As [`encode_frozen`].
pub fn frozen_crc(state: u32, record: &FrozenRecord) -> Result<u32, EncodeError> {
    Ok(encode_frozen(record)?.pieces().fold(state, |crc, piece| crc32c::crc32c_append(crc, piece)))
}

impl FrozenRecord {
    pub(super) fn payload_len(&self) -> usize {
        match self {
            Self::Known(message) => message.payload.bytes.len(),
            Self::Opaque { bytes, .. } => bytes.len(),
        }
    }

    /// The record's kind byte.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Known(message) => message.kind(),
            Self::Opaque { kind, .. } => *kind,
        }
    }
}

impl Message {
    fn way(&self) -> Way {
        match self.to {
            Destination::Node => Way::Node,
            Destination::Channel(_) => Way::Channel,
            Destination::Spot(_) => Way::Spot,
            Destination::Actor(_) => Way::Actor,
        }
    }

    /// The kind byte of the message's frozen record.
    pub fn kind(&self) -> u8 {
        let (send, request, _) = numbers(self.way());
        if self.reply.is_some() { request } else { send }
    }
}

impl Reader {
    /// A record that is the last field.
    pub(super) fn last_frozen(&mut self) -> Read<FrozenRecord> {
        let kind = self.peek("record kind")?;
        match message_kind(kind) {
            Some(_) => self.message().map(|message| FrozenRecord::Known(Box::new(message))),
            None if kind == 0 => Err(Self::invalid(self.offset(), "record kind")),
            None => Ok(FrozenRecord::Opaque { kind, bytes: self.take_rest("frozen record")? }),
        }
    }

    /// A record that others follow.
    pub(super) fn inner_frozen(&mut self) -> Read<FrozenRecord> {
        if self.peek("record kind")? != SPOT_MULTICAST {
            return self.message().map(|message| FrozenRecord::Known(Box::new(message)));
        }
        let mut begin = self.clone();
        let kind = self.u8("record kind")?;
        self.message_body(Way::Spot, false)?;
        let len = self.offset().saturating_sub(begin.offset());
        Ok(FrozenRecord::Opaque { kind, bytes: begin.take(len, "frozen record")? })
    }

    /// A record that must be a message.
    #[inline(always)]
    pub(super) fn message(&mut self) -> Read<Message> {
        let at = self.offset();
        match message_kind(self.u8("record kind")?) {
            Some((way, request)) => self.message_body(way, request),
            None => Err(Self::invalid(at, "record kind")),
        }
    }

    #[inline(always)]
    fn message_body(&mut self, way: Way, request: bool) -> Read<Message> {
        let source = self.source()?;
        let metadata = if self.flag("metadata")? {
            let len = self.length32(METADATA_MAX, "metadata")?;
            Some(self.take(len, "metadata")?)
        } else {
            None
        };
        let operation = if request { self.some_operation()? } else { self.operation()? };
        let (_, _, request_kind) = numbers(way);
        let at = self.offset();
        if self.u32("operation kind")? != if request { request_kind } else { 0 } {
            return Err(Self::invalid(at, "operation kind"));
        }
        let at = self.offset();
        let reply = match (self.u16("reply route")?, request) {
            (0, false) => None,
            (8, true) => Some(ReplyRoute(self.u64("reply route")?)),
            _ => return Err(Self::invalid(at, "reply route")),
        };
        let to = match way {
            Way::Node => Destination::Node,
            Way::Channel => Destination::Channel(self.text8("channel")?),
            Way::Spot => Destination::Spot(self.route()?),
            Way::Actor => Destination::Actor(self.route()?),
        };
        Ok(Message { source, metadata, operation, reply, to, payload: self.envelope()? })
    }

    #[inline(always)]
    fn source(&mut self) -> Read<SourceIdentity> {
        let case = self.enter("source")?;
        let node = self.peer()?;
        let sender = match case.tag {
            1 => Sender::Node,
            2 => Sender::Spot(self.object_id()?),
            3 => Sender::Actor(self.object_id()?, self.object_generation()?),
            4 => Sender::BoundSession {
                actor: self.object_id()?,
                generation: self.object_generation()?,
                session: self.rid("session rid")?,
                binding: self.binding()?,
                sequence: self.u64("session sequence")?,
            },
            _ => return Err(Self::invalid(case.at, "source")),
        };
        self.leave(case, "source")?;
        Ok(SourceIdentity { node, sender })
    }

    #[inline(always)]
    pub(super) fn envelope(&mut self) -> Read<Payload> {
        let case = self.enter_envelope(ENVELOPE, "payload")?;
        let name = self.text8("packet name")?;
        let content_type = self.text8("content type")?;
        let len = self.length32(usize::MAX, "payload bytes")?;
        let bytes = self.take(len, "payload bytes")?;
        self.leave(case, "payload")?;
        Ok(Payload { name, content_type, bytes })
    }
}

impl Writer {
    pub(super) fn frozen(&mut self, record: &FrozenRecord) -> Result<(), EncodeError> {
        match record {
            FrozenRecord::Known(message) => self.message(message),
            FrozenRecord::Opaque { kind, bytes } => {
                // Bytes of a message would come back as one, and so as another value.
                if *kind == 0 || message_kind(*kind).is_some() || bytes.first() != Some(kind) {
                    return Err(EncodeError::Invalid { field: "record kind" });
                }
                self.payload(bytes);
                Ok(())
            }
        }
    }

    /// A record that others follow: see [`Reader::inner_frozen`].
    pub(super) fn inner_frozen(&mut self, record: &FrozenRecord) -> Result<(), EncodeError> {
        match record {
            FrozenRecord::Known(message) => self.message(message),
            FrozenRecord::Opaque { kind, bytes } => {
                let mut reader = Reader::new(bytes.clone().into());
                let whole = *kind == SPOT_MULTICAST
                    && reader.inner_frozen().is_ok_and(|inner| inner == *record)
                    && reader.is_done();
                if !whole {
                    return Err(EncodeError::Invalid { field: "record kind" });
                }
                self.payload(bytes);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn message(&mut self, message: &Message) -> Result<(), EncodeError> {
        let (send, request, request_kind) = numbers(message.way());
        self.u8(if message.reply.is_some() { request } else { send });
        self.source(&message.source);
        match &message.metadata {
            Some(metadata) => {
                self.u8(1);
                self.length32(metadata.len(), METADATA_MAX, "metadata")?;
                self.raw(metadata);
            }
            None => self.u8(0),
        }
        match message.reply {
            Some(route) => {
                self.some_operation(message.operation)?;
                self.u32(request_kind);
                self.u16(8);
                self.u64(route.0);
            }
            None => {
                self.operation(message.operation);
                self.u32(0);
                self.u16(0);
            }
        }
        match &message.to {
            Destination::Node => {}
            Destination::Channel(channel) => self.text8(channel),
            Destination::Spot(route) | Destination::Actor(route) => self.route(route),
        }
        self.envelope(&message.payload)
    }

    #[inline]
    fn source(&mut self, source: &SourceIdentity) {
        let case = self.open(match &source.sender {
            Sender::Node => 1,
            Sender::Spot(_) => 2,
            Sender::Actor(_, _) => 3,
            Sender::BoundSession { .. } => 4,
        });
        self.peer(&source.node);
        match &source.sender {
            Sender::Node => {}
            Sender::Spot(spot) => self.text8(spot.text()),
            Sender::Actor(actor, generation) => {
                self.text8(actor.text());
                self.u64(generation.get());
            }
            Sender::BoundSession { actor, generation, session, binding, sequence } => {
                self.text8(actor.text());
                self.u64(generation.get());
                self.rid(session);
                self.u64(binding.get());
                self.u64(*sequence);
            }
        }
        self.close(case);
    }

    #[inline]
    pub(super) fn envelope(&mut self, payload: &Payload) -> Result<(), EncodeError> {
        // Two texts with a length byte each, and the u32 length of the bytes.
        let texts = payload.name.as_str().len().saturating_add(payload.content_type.as_str().len()).saturating_add(6);
        self.u8(ENVELOPE);
        self.length32(payload.bytes.len().saturating_add(texts), usize::MAX, "payload")?;
        self.text8(&payload.name);
        self.text8(&payload.content_type);
        self.length32(payload.bytes.len(), usize::MAX, "payload bytes")?;
        self.payload(&payload.bytes);
        Ok(())
    }
}
