//! Builds an encoded record: small fields in one buffer, large payloads as the slices that they are, so that a
//! vectored write needs no copy. Knows integers, lengths and text, but no record.

use super::error::EncodeError;
use crate::id::{StoreVersion, Text8};
use crate::rope::Rope;
use bytes::{BufMut, Bytes, BytesMut};

/// From this many bytes on, a payload is a piece of its own; below it, a copy costs less than one more piece.
pub(super) const BORROW_FROM: usize = 1024;

/// What a head takes in nearly all cases.
const HEAD: usize = 320;

/// The builder.
#[derive(Debug)]
pub(super) struct Writer {
    buf: BytesMut,
    rope: Rope,
}

/// The place of a length that is written when its case is complete.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct OpenCase(usize);

impl Writer {
    /// A builder for a record whose payload has about `payload` bytes.
    #[inline]
    pub(super) fn new(payload: usize) -> Self {
        let inline = if payload < BORROW_FROM { payload } else { 0 };
        Self { buf: BytesMut::with_capacity(HEAD.saturating_add(inline)), rope: Rope::new() }
    }

    /// What was written.
    #[inline]
    pub(super) fn finish(mut self) -> Rope {
        if !self.buf.is_empty() {
            self.rope.push(self.buf.freeze());
        }
        self.rope
    }

    /// What was written since the last call; the builder goes on in the same buffer.
    pub(super) fn take(&mut self) -> Rope {
        self.flush();
        core::mem::take(&mut self.rope)
    }

    fn flush(&mut self) {
        if !self.buf.is_empty() {
            self.rope.push(self.buf.split().freeze());
        }
    }

    #[inline]
    pub(super) fn u8(&mut self, value: u8) {
        self.buf.put_u8(value);
    }

    #[inline]
    pub(super) fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(super) fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(super) fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(super) fn u128(&mut self, value: u128) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// A payload without its length.
    #[inline]
    pub(super) fn payload(&mut self, bytes: &Bytes) {
        if bytes.len() < BORROW_FROM {
            self.raw(bytes);
        } else {
            self.flush();
            self.rope.push(bytes.clone());
        }
    }

    /// The same in pieces.
    pub(super) fn payload_rope(&mut self, rope: &Rope) {
        for piece in rope.pieces() {
            self.payload(piece);
        }
    }

    /// u8 length, then bytes. The ids that come here have at most 255 bytes by their types.
    #[inline]
    pub(super) fn short_bytes(&mut self, bytes: &[u8]) {
        self.u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
        self.raw(bytes.get(..usize::from(u8::MAX)).unwrap_or(bytes));
    }

    #[inline]
    pub(super) fn text8(&mut self, text: &Text8) {
        self.short_bytes(text.as_str().as_bytes());
    }

    /// u16 length, then the text, of at most 4,096 bytes by its type.
    #[inline]
    pub(super) fn version(&mut self, version: &StoreVersion) {
        let bytes = version.as_str().as_bytes();
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        self.raw(bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes));
    }

    /// u32 length or count.
    #[inline]
    pub(super) fn length32(&mut self, len: usize, limit: usize, field: &'static str) -> Result<(), EncodeError> {
        match u32::try_from(len) {
            Ok(value) if len <= limit => {
                self.u32(value);
                Ok(())
            }
            Ok(_) | Err(_) => {
                let most = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
                Err(EncodeError::TooLong { field, len, limit: limit.min(most) })
            }
        }
    }

    /// u8 tag, then the place of the u16 length. No payload may be written before the case is closed.
    #[inline]
    pub(super) fn open(&mut self, tag: u8) -> OpenCase {
        self.u8(tag);
        let place = OpenCase(self.buf.len());
        self.u16(0);
        place
    }

    /// Writes the length of a case. Cases hold ids, numbers and one store version: under 8 KiB.
    #[inline]
    pub(super) fn close(&mut self, place: OpenCase) {
        let begin = place.0.saturating_add(2);
        let len = u16::try_from(self.buf.len().saturating_sub(begin)).unwrap_or(u16::MAX);
        if let Some(slot) = self.buf.get_mut(place.0..begin) {
            slot.copy_from_slice(&len.to_be_bytes());
        }
    }
}
