//! A payload in the pieces in which it came, so that no large copy is ever made of it.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;

/// A sequence of byte slices that reads as one. Equality and hashing are by content, not by how it is cut.
#[derive(Clone, Default)]
pub struct Rope {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    /// An empty rope.
    pub const fn new() -> Self {
        Self { pieces: VecDeque::new(), len: 0 }
    }

    /// Bytes in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece. An empty piece is dropped.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len = self.len.saturating_add(piece.len());
            self.pieces.push_back(piece);
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, other: Self) {
        for piece in other.pieces {
            self.push(piece);
        }
    }

    /// The pieces in order; none is empty.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// Takes the first piece out: a reader that works through a rope this way frees it as it reads.
    pub fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?;
        self.len = self.len.saturating_sub(piece.len());
        Some(piece)
    }

    /// Takes the first `count` bytes out, or all where there are fewer. Pieces are sliced, not copied.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        let mut head = Self::new();
        while head.len < count {
            let Some(mut piece) = self.pop() else { break };
            let want = count.saturating_sub(head.len);
            if piece.len() > want {
                let part = piece.split_to(want);
                self.len = self.len.saturating_add(piece.len());
                self.pieces.push_front(piece);
                head.push(part);
            } else {
                head.push(piece);
            }
        }
        head
    }

    /// All bytes as one slice: the piece itself where there is one, else a copy.
    pub fn to_bytes(&self) -> Bytes {
        match (self.pieces.front(), self.pieces.len()) {
            (None, _) => Bytes::new(),
            (Some(piece), 1) => piece.clone(),
            (Some(_), _) => {
                let mut all = Vec::with_capacity(self.len);
                for piece in &self.pieces {
                    all.extend_from_slice(piece);
                }
                all.into()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.pieces.iter().flat_map(|piece| piece.iter().copied())
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece.as_ref())
    }

    /// Drops the first `count` bytes; beyond the end it empties the rope.
    fn advance(&mut self, count: usize) {
        drop(self.split_to(count));
    }
}

impl From<Bytes> for Rope {
    fn from(piece: Bytes) -> Self {
        let mut rope = Self::new();
        rope.push(piece);
        rope
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl FromIterator<Bytes> for Rope {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut rope = Self::new();
        for piece in pieces {
            rope.push(piece);
        }
        rope
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Rope {}

impl core::hash::Hash for Rope {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write_usize(self.len);
        for byte in self.iter() {
            state.write_u8(byte);
        }
    }
}

impl core::fmt::Debug for Rope {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Rope({} bytes in {} pieces)", self.len, self.pieces.len())
    }
}
