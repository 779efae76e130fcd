//! The bytes of this project's own link records, spoken between nodes that agreed on them. Sequence numbers are
//! carried here and kept elsewhere.
//!
//! One frame: head `52 48 01 form`, then the body; integers are big-endian, text and unions as in the published
//! records.
//!
//! | form | body |
//! |---|---|
//! | 1 resume | received u64 |
//! | 2 ack | received u64 |
//! | 3 ordered | sequence u64, kind u8, body by kind |
//!
//! | kind | body |
//! |---|---|
//! | 1 deliver | hops u8 0..8, has-deadline u8 \[deadline unix ms u64\], one frozen record that is a message to an actor or a spot |
//! | 2 taken | operation id |
//! | 3 refused | operation id, reason u8: 1 not here, 2 busy, 3 too many hops, 4 other incarnation, 5 expired |
//! | 4 marker | operation id, origin rid and node generation, hops u8 0..8, destination u8: 1 node, 2 channel (text8), 3 spot (route fence), 4 actor (route fence) |
//! | 5 marker back | operation id |
//! | 6 reply | operation id, reply route u64, outcome u8: 1 payload envelope, 2 terminal result u32 (nonzero), failure code u32, detail text16 of at most 1,024 bytes |
//!
//! Operation ids here are never zero, except that of a delivered one-way message.

use super::control::HOPS_MAX;
use super::error::{DecodeErrorKind, EncodeError};
use super::reader::{Read, Reader};
use super::record::{Delivery, Destination, LinkRecord, Marker, Ordered, Outcome, Refusal, Reply, TerminalResult};
use super::writer::Writer;
use crate::id::ReplyRoute;
use crate::time::UnixMillis;
use bytestring::ByteString;

/// The first two bytes of a link record.
pub(super) const LINK_MAGIC: u16 = 0x5248;
const LINK_VERSION: u8 = 1;

/// The most bytes of [`Outcome::Failure`]'s detail.
pub const DETAIL_MAX: usize = 1024;

/// About how many bytes of payload the record has.
pub(super) fn payload_len(record: &LinkRecord) -> usize {
    match record {
        LinkRecord::Ordered { body: Ordered::Deliver(delivery), .. } => delivery.message.payload.bytes.len(),
        LinkRecord::Ordered { body: Ordered::Reply(Reply { outcome: Outcome::Answer(payload), .. }), .. } => {
            payload.bytes.len()
        }
        LinkRecord::Ordered { .. } | LinkRecord::Resume { .. } | LinkRecord::Ack { .. } => 0,
    }
}

impl Reader {
    /// The rest of a link record after its magic.
    #[inline(always)]
    pub(super) fn link(&mut self) -> Read<LinkRecord> {
        let at = self.offset();
        if self.u8("link version")? != LINK_VERSION {
            return Err(Self::error(at, DecodeErrorKind::InvalidHead, "link version"));
        }
        let at = self.offset();
        let record = match self.u8("link form")? {
            1 => LinkRecord::Resume { received: self.u64("received")? },
            2 => LinkRecord::Ack { received: self.u64("received")? },
            3 => LinkRecord::Ordered { sequence: self.u64("sequence")?, body: self.ordered()? },
            _ => return Err(Self::error(at, DecodeErrorKind::UnknownCommand, "link form")),
        };
        self.done()?;
        Ok(record)
    }

    #[inline(always)]
    fn ordered(&mut self) -> Read<Ordered> {
        let at = self.offset();
        Ok(match self.u8("ordered kind")? {
            1 => Ordered::Deliver(self.delivery()?),
            2 => Ordered::Taken { operation: self.some_operation()? },
            3 => Ordered::Refused { operation: self.some_operation()?, reason: self.refusal()? },
            4 => Ordered::Marker(self.marker()?),
            5 => Ordered::MarkerBack { marker: self.some_operation()? },
            6 => Ordered::Reply(self.reply()?),
            _ => return Err(Self::error(at, DecodeErrorKind::UnknownCommand, "ordered kind")),
        })
    }

    fn hops(&mut self) -> Read<u8> {
        let at = self.offset();
        let hops = self.u8("hops")?;
        if hops > HOPS_MAX { Err(Self::invalid(at, "hops")) } else { Ok(hops) }
    }

    #[inline(always)]
    fn delivery(&mut self) -> Read<Box<Delivery>> {
        let hops = self.hops()?;
        let deadline = if self.flag("deadline")? { Some(UnixMillis(self.u64("deadline")?)) } else { None };
        let at = self.offset();
        let message = self.message()?;
        match message.to {
            Destination::Spot(_) | Destination::Actor(_) => Ok(Box::new(Delivery { message, deadline, hops })),
            Destination::Node | Destination::Channel(_) => Err(Self::invalid(at, "destination")),
        }
    }

    fn refusal(&mut self) -> Read<Refusal> {
        let at = self.offset();
        match self.u8("reason")? {
            1 => Ok(Refusal::NotHere),
            2 => Ok(Refusal::Busy),
            3 => Ok(Refusal::TooManyHops),
            4 => Ok(Refusal::OtherIncarnation),
            5 => Ok(Refusal::Expired),
            _ => Err(Self::invalid(at, "reason")),
        }
    }

    fn marker(&mut self) -> Read<Marker> {
        let marker = self.some_operation()?;
        let origin = self.node()?;
        let hops = self.hops()?;
        let at = self.offset();
        let to = match self.u8("destination")? {
            1 => Destination::Node,
            2 => Destination::Channel(self.text8("channel")?),
            3 => Destination::Spot(self.route()?),
            4 => Destination::Actor(self.route()?),
            _ => return Err(Self::invalid(at, "destination")),
        };
        Ok(Marker { marker, origin, to, hops })
    }

    fn reply(&mut self) -> Read<Reply> {
        let operation = self.some_operation()?;
        let reply_route = ReplyRoute(self.u64("reply route")?);
        let at = self.offset();
        let outcome = match self.u8("outcome")? {
            1 => Outcome::Answer(self.envelope()?),
            2 => {
                let at = self.offset();
                let result = self.u32("terminal result")?;
                if result == 0 {
                    return Err(Self::invalid(at, "terminal result"));
                }
                let failure = self.u32("failure code")?;
                Outcome::Failure { result: TerminalResult(result), failure, detail: self.detail()? }
            }
            _ => return Err(Self::invalid(at, "outcome")),
        };
        Ok(Reply { operation, reply_route, outcome })
    }

    fn detail(&mut self) -> Read<ByteString> {
        let at = self.offset();
        let len = usize::from(self.u16("detail")?);
        if len > DETAIL_MAX {
            return Err(Self::error(at, DecodeErrorKind::TooLong, "detail"));
        }
        ByteString::try_from(self.take(len, "detail")?).map_err(|_| Self::invalid(at, "detail"))
    }
}

impl Writer {
    #[inline]
    pub(super) fn link(&mut self, record: &LinkRecord) -> Result<(), EncodeError> {
        self.u16(LINK_MAGIC);
        self.u8(LINK_VERSION);
        match record {
            LinkRecord::Resume { received } => {
                self.u8(1);
                self.u64(*received);
                Ok(())
            }
            LinkRecord::Ack { received } => {
                self.u8(2);
                self.u64(*received);
                Ok(())
            }
            LinkRecord::Ordered { sequence, body } => {
                self.u8(3);
                self.u64(*sequence);
                self.ordered(body)
            }
        }
    }

    #[inline]
    fn ordered(&mut self, body: &Ordered) -> Result<(), EncodeError> {
        match body {
            Ordered::Deliver(delivery) => {
                self.u8(1);
                self.delivery(delivery)
            }
            Ordered::Taken { operation } => {
                self.u8(2);
                self.some_operation(*operation)
            }
            Ordered::Refused { operation, reason } => {
                self.u8(3);
                self.some_operation(*operation)?;
                self.u8(match reason {
                    Refusal::NotHere => 1,
                    Refusal::Busy => 2,
                    Refusal::TooManyHops => 3,
                    Refusal::OtherIncarnation => 4,
                    Refusal::Expired => 5,
                });
                Ok(())
            }
            Ordered::Marker(marker) => {
                self.u8(4);
                self.marker(marker)
            }
            Ordered::MarkerBack { marker } => {
                self.u8(5);
                self.some_operation(*marker)
            }
            Ordered::Reply(reply) => {
                self.u8(6);
                self.reply(reply)
            }
        }
    }

    fn hops(&mut self, hops: u8) -> Result<(), EncodeError> {
        if hops > HOPS_MAX {
            return Err(EncodeError::Invalid { field: "hops" });
        }
        self.u8(hops);
        Ok(())
    }

    #[inline]
    fn delivery(&mut self, delivery: &Delivery) -> Result<(), EncodeError> {
        match delivery.message.to {
            Destination::Spot(_) | Destination::Actor(_) => {}
            Destination::Node | Destination::Channel(_) => return Err(EncodeError::Invalid { field: "destination" }),
        }
        self.hops(delivery.hops)?;
        match delivery.deadline {
            Some(deadline) => {
                self.u8(1);
                self.u64(deadline.0);
            }
            None => self.u8(0),
        }
        self.message(&delivery.message)
    }

    fn marker(&mut self, marker: &Marker) -> Result<(), EncodeError> {
        self.some_operation(marker.marker)?;
        self.node(&marker.origin);
        self.hops(marker.hops)?;
        match &marker.to {
            Destination::Node => self.u8(1),
            Destination::Channel(channel) => {
                self.u8(2);
                self.text8(channel);
            }
            Destination::Spot(route) => {
                self.u8(3);
                self.route(route);
            }
            Destination::Actor(route) => {
                self.u8(4);
                self.route(route);
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), EncodeError> {
        self.some_operation(reply.operation)?;
        self.u64(reply.reply_route.0);
        match &reply.outcome {
            Outcome::Answer(payload) => {
                self.u8(1);
                self.envelope(payload)
            }
            Outcome::Failure { result, failure, detail } => {
                if result.0 == 0 {
                    return Err(EncodeError::Invalid { field: "terminal result" });
                }
                self.u8(2);
                self.u32(result.0);
                self.u32(*failure);
                match u16::try_from(detail.len()) {
                    Ok(len) if detail.len() <= DETAIL_MAX => self.u16(len),
                    Ok(_) | Err(_) => {
                        return Err(EncodeError::TooLong { field: "detail", len: detail.len(), limit: DETAIL_MAX });
                    }
                }
                self.raw(detail.as_bytes());
                Ok(())
            }
        }
    }
}
