//! A cursor over received bytes. Checks every length against what is there before it allocates anything; hands out
//! slices of the input and copies only where a field crosses the border of two pieces. Knows integers, lengths and
//! text, but no record.

use super::error::{DecodeError, DecodeErrorKind};
use crate::id::{StoreVersion, Text8};
use crate::rope::Rope;
use bytes::{Buf, Bytes};

/// The cursor. `end` is the border of the innermost case; `available` is where the bytes at hand end, which is sooner
/// while a stream still arrives.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    piece: Bytes,
    rest: Rope,
    offset: usize,
    end: usize,
    available: usize,
    want: Option<usize>,
}

/// A union's case that was entered: [`Reader::leave`] checks that it was read to its end.
#[derive(Debug)]
#[must_use]
pub(super) struct Case {
    /// Which case.
    pub(super) tag: u8,
    /// Where the tag stands.
    pub(super) at: usize,
    outer: usize,
}

pub(super) type Read<T> = Result<T, DecodeError>;

impl Reader {
    /// Reads `input`, which is whole.
    pub(super) fn new(input: Rope) -> Self {
        let available = input.len();
        Self { end: available, ..Self::partial(input) }
    }

    /// Reads one whole piece.
    #[inline]
    pub(super) fn of_piece(piece: Bytes) -> Self {
        let available = piece.len();
        Self { piece, rest: Rope::new(), offset: 0, end: available, available, want: None }
    }

    /// Reads `input`, of which more may come: [`Reader::want`] tells a field that is not there yet from one that is
    /// cut off.
    pub(super) fn partial(mut input: Rope) -> Self {
        let available = input.len();
        let piece = input.pop().unwrap_or_default();
        Self { piece, rest: input, offset: 0, end: usize::MAX, available, want: None }
    }

    /// Bytes read so far.
    #[inline]
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// After an error: how many bytes from the start there must be before it is worth trying again; `None` if more
    /// bytes do not help.
    pub(super) const fn want(&self) -> Option<usize> {
        self.want
    }

    /// The bytes not read yet.
    pub(super) fn into_rest(self) -> Rope {
        let mut rest = Rope::from(self.piece);
        rest.append(self.rest);
        rest
    }

    /// An error at `at`.
    #[cold]
    pub(super) const fn error(at: usize, kind: DecodeErrorKind, field: &'static str) -> DecodeError {
        DecodeError { kind, offset: at, field }
    }

    /// An invalid field that began at `at`.
    #[cold]
    pub(super) const fn invalid(at: usize, field: &'static str) -> DecodeError {
        Self::error(at, DecodeErrorKind::InvalidField, field)
    }

    /// Checks that `count` bytes are there, before anything is allocated for them.
    #[inline(always)]
    fn need(&mut self, count: usize, field: &'static str) -> Read<()> {
        if count <= self.end.min(self.available).saturating_sub(self.offset) {
            Ok(())
        } else {
            self.short(count, field)
        }
    }

    #[cold]
    fn short(&mut self, count: usize, field: &'static str) -> Read<()> {
        if count <= self.end.saturating_sub(self.offset) {
            self.want = self.offset.checked_add(count);
        }
        Err(Self::error(self.offset, DecodeErrorKind::TruncatedField, field))
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self, field: &'static str) -> Read<[u8; N]> {
        self.need(N, field)?;
        let array = match self.piece.first_chunk::<N>() {
            Some(array) => {
                let array = *array;
                self.piece.advance(N);
                array
            }
            None => self.array_across(),
        };
        self.offset = self.offset.saturating_add(N);
        Ok(array)
    }

    /// An array that crosses the border of two pieces, or begins at one. The bytes are known to be there.
    #[cold]
    fn array_across<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let mut slots = array.iter_mut();
        while slots.len() > 0 {
            if self.piece.is_empty() {
                match self.rest.pop() {
                    Some(piece) => self.piece = piece,
                    None => break,
                }
            }
            let count = self.piece.len().min(slots.len());
            for (byte, slot) in self.piece.iter().zip(slots.by_ref().take(count)) {
                *slot = *byte;
            }
            self.piece.advance(count);
        }
        array
    }

    #[inline(always)]
    pub(super) fn u8(&mut self, field: &'static str) -> Read<u8> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    #[inline(always)]
    pub(super) fn u16(&mut self, field: &'static str) -> Read<u16> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self, field: &'static str) -> Read<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    #[inline(always)]
    pub(super) fn u64(&mut self, field: &'static str) -> Read<u64> {
        self.array(field).map(u64::from_be_bytes)
    }

    #[inline]
    pub(super) fn u128(&mut self, field: &'static str) -> Read<u128> {
        self.array(field).map(u128::from_be_bytes)
    }

    /// The next byte, which stays where it is.
    #[inline]
    pub(super) fn peek(&mut self, field: &'static str) -> Read<u8> {
        self.need(1, field)?;
        if self.piece.is_empty() {
            self.piece = self.rest.pop().unwrap_or_default();
        }
        Ok(self.piece.first().copied().unwrap_or(0))
    }

    /// 0 or 1.
    #[inline]
    pub(super) fn flag(&mut self, field: &'static str) -> Read<bool> {
        let at = self.offset;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Self::invalid(at, field)),
        }
    }

    /// A u64 that `check` accepts.
    #[inline(always)]
    pub(super) fn checked<T, E>(&mut self, field: &'static str, check: impl FnOnce(u64) -> Result<T, E>) -> Read<T> {
        let at = self.offset;
        check(self.u64(field)?).map_err(|_| Self::invalid(at, field))
    }

    /// `count` bytes as one slice.
    #[inline]
    pub(super) fn take(&mut self, count: usize, field: &'static str) -> Read<Bytes> {
        self.need(count, field)?;
        let bytes = if self.piece.len() >= count { self.piece.split_to(count) } else { self.take_across(count) };
        self.offset = self.offset.saturating_add(count);
        Ok(bytes)
    }

    /// A slice that begins in another piece or crosses a border. The bytes are known to be there.
    #[cold]
    fn take_across(&mut self, count: usize) -> Bytes {
        let mut gathered = self.split(count);
        // `split` took no more than `count`, and all pieces of it: one piece is handed out as it is.
        if gathered.pieces().len() == 1 { gathered.pop().unwrap_or_default() } else { gathered.to_bytes() }
    }

    fn split(&mut self, count: usize) -> Rope {
        let mut head = Rope::new();
        if self.piece.len() >= count {
            head.push(self.piece.split_to(count));
        } else {
            head.push(core::mem::take(&mut self.piece));
            let left = count.saturating_sub(head.len());
            head.append(self.rest.split_to(left));
        }
        head
    }

    /// `count` bytes in the pieces in which they came.
    pub(super) fn take_rope(&mut self, count: usize, field: &'static str) -> Read<Rope> {
        self.need(count, field)?;
        self.offset = self.offset.saturating_add(count);
        Ok(self.split(count))
    }

    /// All bytes up to the border.
    pub(super) fn take_rest(&mut self, field: &'static str) -> Read<Bytes> {
        self.take(self.end.min(self.available).saturating_sub(self.offset), field)
    }

    /// u8 length, then bytes. The ids that they become refuse none.
    #[inline]
    pub(super) fn short_bytes(&mut self, field: &'static str) -> Read<Bytes> {
        let len = self.u8(field)?;
        self.take(usize::from(len), field)
    }

    /// The same as text without NUL.
    #[inline]
    pub(super) fn text8(&mut self, field: &'static str) -> Read<Text8> {
        let at = self.offset;
        let bytes = self.short_bytes(field)?;
        Text8::from_bytes(bytes).map_err(|_| Self::invalid(at, field))
    }

    /// u16 length, then the text of a store version.
    #[inline]
    pub(super) fn version(&mut self, field: &'static str) -> Read<StoreVersion> {
        let at = self.offset;
        let len = usize::from(self.u16(field)?);
        if len > StoreVersion::MAX {
            return Err(Self::error(at, DecodeErrorKind::TooLong, field));
        }
        let bytes = self.take(len, field)?;
        StoreVersion::from_bytes(bytes).map_err(|_| Self::invalid(at, field))
    }

    /// u32 length of at most `limit`, as a count of bytes.
    #[inline]
    pub(super) fn length32(&mut self, limit: usize, field: &'static str) -> Read<usize> {
        let at = self.offset;
        let len = usize::try_from(self.u32(field)?).unwrap_or(usize::MAX);
        if len > limit { Err(Self::error(at, DecodeErrorKind::TooLong, field)) } else { Ok(len) }
    }

    /// Enters a union: u8 tag, u16 length of the case, the case.
    #[inline]
    pub(super) fn enter(&mut self, field: &'static str) -> Read<Case> {
        let at = self.offset;
        let tag = self.u8(field)?;
        let len = self.u16(field)?;
        self.border(at, tag, usize::from(len), field)
    }

    /// Enters a versioned envelope: u8 version, u32 length, the body.
    #[inline]
    pub(super) fn enter_envelope(&mut self, version: u8, field: &'static str) -> Read<Case> {
        let at = self.offset;
        let tag = self.u8(field)?;
        if tag != version {
            return Err(Self::invalid(at, field));
        }
        let len = self.length32(usize::MAX, field)?;
        self.border(at, tag, len, field)
    }

    #[inline]
    fn border(&mut self, at: usize, tag: u8, len: usize, field: &'static str) -> Read<Case> {
        self.need(len, field)?;
        let outer = self.end;
        self.end = self.offset.saturating_add(len);
        Ok(Case { tag, at, outer })
    }

    /// Leaves a case, which must have been read to its end.
    #[inline]
    pub(super) fn leave(&mut self, case: Case, field: &'static str) -> Read<()> {
        if self.offset != self.end {
            return Err(Self::error(self.offset, DecodeErrorKind::TrailingByte, field));
        }
        self.end = case.outer;
        Ok(())
    }

    /// Whether the input has been read to its end.
    #[inline]
    pub(super) const fn is_done(&self) -> bool {
        self.offset >= self.available
    }

    /// Checks that the input has been read to its end.
    #[inline]
    pub(super) fn done(&self) -> Read<()> {
        if self.is_done() { Ok(()) } else { Err(Self::error(self.offset, DecodeErrorKind::TrailingByte, "end")) }
    }
}
