//! The logical stream in chunks: how it is cut, and how the other side checks that exactly the announced bytes came.
//! Never looks into the bytes, and keeps none of them.

use crate::rope::Rope;
use crate::wire::CHUNKS_MAX;

/// Why a stream cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChunkError {
    /// A stream has at least a head.
    #[error("a logical stream is never empty")]
    Empty,
    /// Chunks of no byte.
    #[error("a chunk has at least one byte")]
    ZeroLimit,
    /// The size of chunks was negotiated, and too many would be needed.
    #[error("{total} bytes need more than 4,096 chunks of {limit} bytes")]
    TooMany {
        /// Bytes of the stream.
        total: u64,
        /// Bytes of a chunk.
        limit: usize,
    },
    /// A chunk would have more bytes than its length can say, or than this machine can address.
    #[error("a stream of {total} bytes cannot be sent in 4,096 chunks")]
    TooLong {
        /// Bytes of the stream.
        total: u64,
    },
    /// The stream to be cut is not the one that was planned for.
    #[error("the stream has {actual} bytes, the plan is for {planned}")]
    Length {
        /// Bytes planned for.
        planned: u64,
        /// Bytes given.
        actual: u64,
    },
}

/// How a stream is cut: `count` chunks of `size` bytes, the last of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkPlan {
    total: u64,
    size: usize,
    count: u32,
}

impl ChunkPlan {
    /// A plan for `total` bytes in chunks of at most `limit` bytes. A limit that was not `negotiated` with the target
    /// gives way where more than 4,096 chunks would be needed; one that was does not.
    ///
    /// # Errors
    /// See [`ChunkError`]; never [`ChunkError::Length`].
    pub fn new(total: u64, limit: usize, negotiated: bool) -> Result<Self, ChunkError> {
        if total == 0 {
            return Err(ChunkError::Empty);
        }
        if limit == 0 {
            return Err(ChunkError::ZeroLimit);
        }
        // A chunk is a field with a u32 length.
        let too_long = ChunkError::TooLong { total };
        let longest = u64::from(u32::MAX);
        let mut size = (limit as u64).min(longest);
        let mut count = total.div_ceil(size);
        if count > u64::from(CHUNKS_MAX) {
            if negotiated {
                return Err(ChunkError::TooMany { total, limit });
            }
            size = total.div_ceil(u64::from(CHUNKS_MAX));
            if size > longest {
                return Err(too_long);
            }
            count = total.div_ceil(size);
        }
        let size = usize::try_from(size).map_err(|_| too_long)?;
        let count = u32::try_from(count).map_err(|_| too_long)?;
        Ok(Self { total, size, count })
    }

    /// Bytes of the stream.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of every chunk but the last.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Chunks, 1 to 4,096.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Cuts `stream`; no byte is copied.
    ///
    /// # Errors
    /// [`ChunkError::Length`] for a stream of another length than the plan's.
    pub fn cut(&self, stream: Rope) -> Result<Chunks, ChunkError> {
        let actual = stream.len() as u64;
        if actual != self.total {
            return Err(ChunkError::Length { planned: self.total, actual });
        }
        Ok(Chunks { rest: stream, size: self.size, next: 0 })
    }
}

/// The chunks of a stream with their ordinals, in order.
#[derive(Clone, Debug)]
pub struct Chunks {
    rest: Rope,
    size: usize,
    next: u32,
}

impl Iterator for Chunks {
    type Item = (u32, Rope);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let ordinal = self.next;
        self.next = ordinal.saturating_add(1);
        Some((ordinal, self.rest.split_to(self.size)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = if self.size == 0 { 0 } else { self.rest.len().div_ceil(self.size) };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Chunks {}

/// Why a chunk, or the stream that it completes, is not what was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AssemblyError {
    /// What was announced is not a stream: no byte, no chunk, or more than 4,096.
    #[error("{count} chunks for {total} bytes cannot be a stream")]
    Announcement {
        /// Bytes announced.
        total: u64,
        /// Chunks announced.
        count: u32,
    },
    /// Chunks come in order, each once.
    #[error("chunk {ordinal} came where {expected} of {count} was due")]
    Ordinal {
        /// The one due; equal to `count` after the last.
        expected: u32,
        /// The one that came.
        ordinal: u32,
        /// Chunks announced.
        count: u32,
    },
    /// More bytes came than were announced.
    #[error("more than the {total} bytes announced")]
    Overlong {
        /// Bytes announced.
        total: u64,
    },
    /// The last chunk came, and bytes are missing.
    #[error("the last chunk came after {received} of {total} bytes")]
    Incomplete {
        /// Bytes received.
        received: u64,
        /// Bytes announced.
        total: u64,
    },
    /// All bytes came, and they are not those announced.
    #[error("the checksum is {actual:08x}, {expected:08x} was announced")]
    Mismatch {
        /// The checksum announced.
        expected: u32,
        /// That of the bytes that came.
        actual: u32,
    },
}

/// A chunk that belongs to the stream, and whether it is complete. The bytes are those that were pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More chunks are to come.
    More(Rope),
    /// All bytes came, and their checksum is that announced.
    Complete(Rope),
}

/// Checks the chunks of one stream as they come. Hands every chunk back at once, so that it can be read while the next
/// one is on its way; what was read may be used only after [`Progress::Complete`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Assembly {
    total: u64,
    count: u32,
    expected: u32,
    received: u64,
    next: u32,
    crc: u32,
}

impl Assembly {
    /// An assembly of `total` bytes in `count` chunks with the CRC-32C `crc`.
    ///
    /// # Errors
    /// [`AssemblyError::Announcement`].
    pub const fn new(total: u64, count: u32, crc: u32) -> Result<Self, AssemblyError> {
        if total == 0 || count == 0 || count > CHUNKS_MAX {
            return Err(AssemblyError::Announcement { total, count });
        }
        Ok(Self { total, count, expected: crc, received: 0, next: 0, crc: 0 })
    }

    /// Bytes received so far.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// The ordinal of the chunk that is due; the count after the last.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Whether all chunks came and their checksum is right.
    pub const fn is_complete(&self) -> bool {
        self.next == self.count
    }

    /// Takes chunk `ordinal`. After an error the assembly is as it was before.
    ///
    /// # Errors
    /// See [`AssemblyError`].
    pub fn push(&mut self, ordinal: u32, chunk: Rope) -> Result<Progress, AssemblyError> {
        let Self { total, count, expected, .. } = *self;
        if ordinal != self.next || self.is_complete() {
            return Err(AssemblyError::Ordinal { expected: self.next, ordinal, count });
        }
        let received = self.received.saturating_add(chunk.len() as u64);
        if received > total {
            return Err(AssemblyError::Overlong { total });
        }
        let next = ordinal.saturating_add(1);
        if next == count && received < total {
            return Err(AssemblyError::Incomplete { received, total });
        }
        let crc = chunk.pieces().fold(self.crc, |crc, piece| crc32c::crc32c_append(crc, piece));
        if next == count && crc != expected {
            return Err(AssemblyError::Mismatch { expected, actual: crc });
        }
        (self.received, self.next, self.crc) = (received, next, crc);
        Ok(if next == count { Progress::Complete(chunk) } else { Progress::More(chunk) })
    }
}
