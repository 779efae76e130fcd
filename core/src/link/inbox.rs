//! Received bytes until they make a whole record. Holds only bytes that have come, copies each at most once and only
//! where it came in a small piece. Knows the delimiting and nothing else.

use super::frame::{COPY_BELOW, HEAD, LENGTH_MIN, checksum};
use super::reason::Misbehaviour;
use crate::rope::Rope;
use bytes::{Buf, Bytes, BytesMut};

/// The bytes: `rope`, then `tail`.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    rope: Rope,
    /// Small pieces gather here: as slices, a stranger's single bytes would each pin a whole read buffer.
    tail: BytesMut,
}

impl Inbox {
    /// Takes what came.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < COPY_BELOW {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.flush();
            self.rope.push(bytes);
        }
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.rope.push(self.tail.split().freeze());
        }
    }

    fn len(&self) -> usize {
        self.rope.len().saturating_add(self.tail.len())
    }

    fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut array = [0; N];
        let bytes = self.rope.pieces().flat_map(|piece| piece.iter()).chain(self.tail.iter());
        for (slot, byte) in array.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        Some(array)
    }

    /// Takes the next record out as its kind and body, if it is whole. `limit` bounds its length field.
    ///
    /// # Errors
    /// A length outside the bounds, as soon as it is there; a checksum that does not match.
    pub(super) fn next(&mut self, limit: u32) -> Result<Option<(u8, Rope)>, Misbehaviour> {
        let Some(length) = self.peek().map(u32::from_be_bytes) else { return Ok(None) };
        if length < LENGTH_MIN || length > limit {
            return Err(Misbehaviour::Length { len: length, limit });
        }
        let total = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(4);
        if self.len() < total {
            return Ok(None);
        }
        let Some([_, _, _, _, kind, sum @ ..]) = self.peek::<HEAD>() else { return Ok(None) };
        if self.rope.len() < total {
            self.flush();
        }
        let mut body = self.rope.split_to(total);
        body.advance(HEAD);
        if checksum(length, kind, body.pieces().map(AsRef::as_ref)) != u32::from_be_bytes(sum) {
            return Err(Misbehaviour::Checksum);
        }
        Ok(Some((kind, body)))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
