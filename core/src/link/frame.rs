//! The form of one record of the stream: building it, and reading the bodies of the link's own control records.
//! Decides nothing about a record, and keeps no state.

use super::hello::{HelloError, Introduction};
use super::reason::{Misbehaviour, Refused, Rejection};
use crate::id::Text8;
use crate::rope::Rope;
use crate::wire::{self, DecodeError, EncodeError, Frames, Record};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use bytestring::ByteString;

/// Length, kind, checksum.
pub(super) const HEAD: usize = 9;
/// What the length field counts before the body: kind and checksum.
pub(super) const LENGTH_MIN: u32 = 5;
/// Bytes of the body that the checksum covers.
const COVERED: usize = 8192;
/// The most frames of a published record.
const FRAMES_MAX: usize = 2;
/// The most bytes of a refusal's detail.
const DETAIL_MAX: usize = 512;
/// Below it a piece is copied behind the head: a copy costs less than one more slice to write.
pub(super) const COPY_BELOW: usize = 1024;

/// The kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hello,
    Refusal,
    Claim,
    Welcome,
    Probe,
    ProbeAnswer,
    Published,
    Link,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Refusal => 2,
            Self::Claim => 3,
            Self::Welcome => 4,
            Self::Probe => 5,
            Self::ProbeAnswer => 6,
            Self::Published => 7,
            Self::Link => 8,
        }
    }

    pub(super) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Refusal,
            3 => Self::Claim,
            4 => Self::Welcome,
            5 => Self::Probe,
            6 => Self::ProbeAnswer,
            7 => Self::Published,
            8 => Self::Link,
            _ => return None,
        })
    }
}

/// A control record.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Refusal(Refused),
    Claim { number: u64, live: bool },
    Welcome { number: u64 },
    Probe { token: u64 },
    ProbeAnswer { token: u64 },
}

/// What a record of the stream holds.
#[derive(Debug)]
pub(super) enum Content {
    Hello(Box<Introduction>),
    Control(Control),
    /// A published record, or a link record.
    Record {
        link: bool,
        frames: Frames,
    },
}

/// The checksum of a record whose body is `parts`, one after another.
pub(super) fn checksum<'a>(length: u32, kind: u8, parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut sum = crc32c::crc32c_append(crc32c::crc32c(&length.to_be_bytes()), &[kind]);
    let mut left = COVERED;
    for part in parts {
        let part = part.get(..left).unwrap_or(part);
        sum = crc32c::crc32c_append(sum, part);
        left = left.saturating_sub(part.len());
        if left == 0 {
            break;
        }
    }
    sum
}

/// A record whose body is `lead` and then `frames`. `None` if the length field cannot tell its length.
fn assemble(kind: Kind, lead: &[u8], frames: &[Rope]) -> Option<Rope> {
    let len = frames.iter().fold(lead.len(), |sum, frame| sum.saturating_add(frame.len()));
    let length = u32::try_from(len).ok()?.checked_add(LENGTH_MIN)?;
    let pieces = || frames.iter().flat_map(Rope::pieces);
    let sum = checksum(length, kind.number(), core::iter::once(lead).chain(pieces().map(AsRef::as_ref)));
    let copied: usize =
        pieces().map(Bytes::len).filter(|len| *len < COPY_BELOW).fold(0, |sum, len| sum.saturating_add(len));
    let mut buf = BytesMut::with_capacity(HEAD.saturating_add(lead.len()).saturating_add(copied));
    buf.put_u32(length);
    buf.put_u8(kind.number());
    buf.put_u32(sum);
    buf.put_slice(lead);
    let mut record = Rope::new();
    for piece in pieces() {
        if piece.len() < COPY_BELOW {
            buf.put_slice(piece);
        } else {
            record.push(buf.split().freeze());
            record.push(piece.clone());
        }
    }
    record.push(buf.freeze());
    Some(record)
}

/// The record of a hello whose body is `body`.
pub(super) fn hello(body: &[u8]) -> Rope {
    assemble(Kind::Hello, body, &[]).unwrap_or_default()
}

/// A control record.
pub(super) fn control(control: &Control) -> Rope {
    let mut body = BytesMut::with_capacity(16);
    let kind = match control {
        Control::Refusal(refused) => {
            // Our own details are short ASCII: none is ever longer.
            let detail = refused.detail.get(..DETAIL_MAX).unwrap_or(&refused.detail);
            body.put_u8(refused.reason.number());
            body.put_u16(u16::try_from(detail.len()).unwrap_or(u16::MAX));
            body.put_slice(detail.as_bytes());
            Kind::Refusal
        }
        Control::Claim { number, live } => {
            body.put_u64(*number);
            body.put_u8(u8::from(*live));
            Kind::Claim
        }
        Control::Welcome { number } => {
            body.put_u64(*number);
            Kind::Welcome
        }
        Control::Probe { token } => {
            body.put_u64(*token);
            Kind::Probe
        }
        Control::ProbeAnswer { token } => {
            body.put_u64(*token);
            Kind::ProbeAnswer
        }
    };
    assemble(kind, &body, &[]).unwrap_or_default()
}

/// The record of the stream that carries `record`.
pub(super) fn record(record: &Record) -> Result<Rope, EncodeError> {
    let frames = wire::encode(record)?;
    let len = frames.byte_len();
    let frames: smallvec::SmallVec<[Rope; FRAMES_MAX]> = frames.into_iter().collect();
    let limit = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
    let too_long = EncodeError::TooLong { field: "record", len, limit };
    if matches!(record, Record::Link(_)) {
        return assemble(Kind::Link, &[], &frames).ok_or(too_long);
    }
    let mut lead = smallvec::SmallVec::<[u8; 16]>::new();
    lead.push(u8::try_from(frames.len()).unwrap_or(u8::MAX));
    for frame in &frames {
        lead.extend_from_slice(&u32::try_from(frame.len()).map_err(|_| too_long)?.to_be_bytes());
    }
    assemble(Kind::Published, &lead, &frames).ok_or(too_long)
}

/// Reads a body. The record has been delimited and its checksum was right.
pub(super) fn content(kind: u8, mut body: Rope) -> Result<Content, HelloError> {
    let Some(kind) = Kind::from_number(kind) else { return Err(Misbehaviour::UnknownKind(kind).into()) };
    let control = match kind {
        Kind::Hello => return Introduction::decode(&body).map(|hello| Content::Hello(Box::new(hello))),
        Kind::Link => return Ok(Content::Record { link: true, frames: body.into() }),
        Kind::Published => return Ok(Content::Record { link: false, frames: frames(&mut body)? }),
        Kind::Refusal => {
            let mut body = BodyReader::new(body.to_bytes());
            let reason = Rejection::from_number(body.u8("refusal")?);
            let len = usize::from(u16::from_be_bytes(body.array().ok_or(Misbehaviour::Field("refusal"))?));
            let detail = body.take(len.min(DETAIL_MAX.saturating_add(1)), "refusal")?;
            body.done("refusal")?;
            let detail = ByteString::try_from(Bytes::copy_from_slice(&detail));
            let detail = detail.map_err(|_| Misbehaviour::Field("refusal"))?;
            return Ok(Content::Control(Control::Refusal(Refused { reason, detail })));
        }
        Kind::Claim => {
            let mut body = BodyReader::new(body.to_bytes());
            let number = body.u64("claim")?;
            let live = match body.u8("claim")? {
                0 => false,
                1 => true,
                _ => return Err(Misbehaviour::Field("claim").into()),
            };
            body.done("claim")?;
            return Ok(Content::Control(Control::Claim { number, live }));
        }
        Kind::Welcome | Kind::Probe | Kind::ProbeAnswer => {
            let mut body = BodyReader::new(body.to_bytes());
            let number = body.u64("number")?;
            body.done("number")?;
            (kind, number)
        }
    };
    Ok(Content::Control(match control {
        (Kind::Welcome, number) => Control::Welcome { number },
        (Kind::Probe, token) => Control::Probe { token },
        (_, token) => Control::ProbeAnswer { token },
    }))
}

/// The frames of a published record: their lengths must fill the body exactly.
fn frames(body: &mut Rope) -> Result<Frames, Misbehaviour> {
    const BAD: Misbehaviour = Misbehaviour::Field("frame lengths");
    let mut lead = body.pieces().flat_map(|piece| piece.iter().copied()).take(1 + 4 * FRAMES_MAX);
    let count = usize::from(lead.next().ok_or(BAD)?);
    if count == 0 || count > FRAMES_MAX {
        return Err(BAD);
    }
    let mut lengths = smallvec::SmallVec::<[usize; FRAMES_MAX]>::new();
    for _ in 0..count {
        let mut bytes = [0; 4];
        for slot in &mut bytes {
            *slot = lead.next().ok_or(BAD)?;
        }
        lengths.push(usize::try_from(u32::from_be_bytes(bytes)).map_err(|_| BAD)?);
    }
    drop(lead);
    body.advance(lengths.len().saturating_mul(4).saturating_add(1));
    let sum = lengths.iter().try_fold(0_usize, |sum, len| sum.checked_add(*len)).ok_or(BAD)?;
    if sum != body.len() {
        return Err(BAD);
    }
    if let [_] = lengths.as_slice() {
        return Ok(core::mem::take(body).into());
    }
    Ok(lengths.into_iter().map(|len| body.split_to(len)).collect())
}

/// The record in `frames`, which came as a link record or not.
pub(super) fn decode(link: bool, frames: Frames) -> Result<Record, Misbehaviour> {
    let record = wire::decode(frames).map_err(|error: DecodeError| Misbehaviour::Record(error))?;
    if matches!(record, Record::Link(_)) == link { Ok(record) } else { Err(Misbehaviour::Unexpected("record kind")) }
}

/// u8 length, then bytes: ids of at most 255 bytes by their types.
pub(super) fn put_short(body: &mut BytesMut, bytes: &[u8]) {
    body.put_u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    body.put_slice(bytes.get(..usize::from(u8::MAX)).unwrap_or(bytes));
}

/// Reads the body of a record that has at most [`super::HANDSHAKE_LIMIT`] bytes.
#[derive(Debug)]
pub(super) struct BodyReader(Bytes);

impl BodyReader {
    pub(super) const fn new(body: Bytes) -> Self {
        Self(body)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.0.first_chunk::<N>()?;
        self.0.advance(N);
        Some(array)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Misbehaviour> {
        self.array::<1>().map(|[byte]| byte).ok_or(Misbehaviour::Field(field))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Misbehaviour> {
        self.array().map(u32::from_be_bytes).ok_or(Misbehaviour::Field(field))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Misbehaviour> {
        self.array().map(u64::from_be_bytes).ok_or(Misbehaviour::Field(field))
    }

    pub(super) fn take(&mut self, count: usize, field: &'static str) -> Result<Bytes, Misbehaviour> {
        if count > self.0.len() { Err(Misbehaviour::Field(field)) } else { Ok(self.0.split_to(count)) }
    }

    pub(super) fn short(&mut self, field: &'static str) -> Result<Bytes, Misbehaviour> {
        let len = usize::from(self.u8(field)?);
        self.take(len, field)
    }

    pub(super) fn text8(&mut self, field: &'static str) -> Result<Text8, Misbehaviour> {
        Text8::from_bytes(self.short(field)?).map_err(|_| Misbehaviour::Field(field))
    }

    pub(super) fn done(&self, field: &'static str) -> Result<(), Misbehaviour> {
        if self.0.is_empty() { Ok(()) } else { Err(Misbehaviour::Field(field)) }
    }
}
