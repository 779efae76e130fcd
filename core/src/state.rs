//! An application's state as bytes: written once when an object is captured, read once when it is restored. The
//! writer keeps the checksum while it writes, so that nobody runs over the bytes again; the reader frees what it has
//! read.

use crate::rope::Rope;
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of a full piece.
const PIECE: usize = 64 * 1024;
/// The first buffer.
const FIRST: usize = 512;
/// From this many bytes on, a pushed slice is kept as a piece of its own.
const KEEP_FROM: usize = 4 * 1024;

/// A captured state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Captured {
    /// Its bytes.
    pub rope: Rope,
    /// Their CRC-32C; 0 for none.
    pub crc: u32,
}

impl From<Bytes> for Captured {
    fn from(bytes: Bytes) -> Self {
        let mut writer = StateWriter::new();
        writer.push(bytes);
        writer.finish()
    }
}

/// Collects a state in pieces of 64 KiB. Writing cannot fail.
#[derive(Debug, Default)]
pub struct StateWriter {
    buf: BytesMut,
    done: Captured,
}

impl StateWriter {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.done.rope.len().saturating_add(self.buf.len())
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy of `bytes`.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = PIECE.saturating_sub(self.buf.len());
            let (part, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            let needed = self.buf.len().saturating_add(part.len());
            if needed > self.buf.capacity() {
                // As much again as there is: a small state takes little, and a large one whole pieces.
                let aim = needed.max(self.len().min(PIECE)).next_power_of_two().clamp(FIRST, PIECE);
                self.buf.reserve(aim.saturating_sub(self.buf.len()));
            }
            self.buf.extend_from_slice(part);
            bytes = rest;
            if self.buf.len() >= PIECE {
                self.seal();
            }
        }
    }

    /// Appends `bytes`, without a copy where they are 4 KiB or more.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() < KEEP_FROM {
            self.write(&bytes);
        } else {
            self.seal();
            self.keep(bytes);
        }
    }

    /// The state.
    #[must_use]
    pub fn finish(mut self) -> Captured {
        self.seal();
        self.done
    }

    fn seal(&mut self) {
        let piece = self.buf.split().freeze();
        self.keep(piece);
    }

    fn keep(&mut self, piece: Bytes) {
        self.done.crc = crc32c::crc32c_append(self.done.crc, &piece);
        self.done.rope.push(piece);
    }
}

impl std::io::Write for StateWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Self::write(self, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads a state from its start. What has been read is freed piece by piece.
#[derive(Debug, Default)]
pub struct StateReader {
    rope: Rope,
}

impl StateReader {
    /// A reader of `rope`.
    pub const fn new(rope: Rope) -> Self {
        Self { rope }
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.rope.len()
    }

    /// Takes the next piece out whole, without a copy; `None` at the end.
    pub fn chunk(&mut self) -> Option<Bytes> {
        self.rope.pop()
    }

    /// The bytes not read yet.
    pub fn into_rope(self) -> Rope {
        self.rope
    }
}

impl From<Rope> for StateReader {
    fn from(rope: Rope) -> Self {
        Self::new(rope)
    }
}

impl std::io::Read for StateReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let piece = Buf::chunk(&self.rope);
        let count = piece.len().min(out.len());
        if let (Some(out), Some(piece)) = (out.get_mut(..count), piece.get(..count)) {
            out.copy_from_slice(piece);
        }
        self.rope.advance(count);
        Ok(count)
    }
}
