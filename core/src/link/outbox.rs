//! Records on their way out of one connection: which goes next, and what has been written. Knows no bytes' meaning.

use super::{Class, SendId};
use crate::rope::Rope;
use bytes::Buf;
use std::collections::VecDeque;
use std::io::IoSlice;

#[derive(Clone, Debug)]
struct Outgoing {
    bytes: Rope,
    class: Class,
    send: Option<SendId>,
}

/// The queues. A record is *committed* once some of it may have been handed to the transport: its place is fixed.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    committed: VecDeque<Outgoing>,
    control: VecDeque<Rope>,
    /// The answer to the newest probe. One is enough for all before it, so a peer that asks and does not read cannot
    /// make answers pile up.
    answer: Option<Rope>,
    small: VecDeque<Outgoing>,
    bulk: VecDeque<Outgoing>,
    /// Bytes of small records committed in a row while bulk records waited.
    burst: usize,
    /// Bytes in all queues.
    queued: usize,
}

impl Outbox {
    /// Bytes in all queues.
    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    /// Queues a control record: before every record that is not committed.
    pub(super) fn push_control(&mut self, bytes: Rope) {
        self.queued = self.queued.saturating_add(bytes.len());
        self.control.push_back(bytes);
    }

    /// Queues the answer to a probe, in place of an older one that still waits.
    pub(super) fn push_answer(&mut self, bytes: Rope) {
        let before = self.answer.as_ref().map_or(0, Rope::len);
        self.queued = self.queued.saturating_sub(before).saturating_add(bytes.len());
        self.answer = Some(bytes);
    }

    /// Queues a record.
    pub(super) fn push(&mut self, class: Class, send: SendId, bytes: Rope) {
        self.queued = self.queued.saturating_add(bytes.len());
        let outgoing = Outgoing { bytes, class, send: Some(send) };
        match class {
            Class::Small => self.small.push_back(outgoing),
            Class::Bulk => self.bulk.push_back(outgoing),
        }
    }

    /// The record that goes next. At most one bulk record is committed at a time, so that a small record waits for no
    /// more than one; and `burst` bytes of small records let one waiting bulk record pass.
    fn pick(&mut self, burst: usize) -> Option<Outgoing> {
        if let Some(bytes) = self.control.pop_front().or_else(|| self.answer.take()) {
            return Some(Outgoing { bytes, class: Class::Small, send: None });
        }
        let bulk_turn = self.small.is_empty() || self.burst >= burst;
        if bulk_turn && !self.bulk.is_empty() {
            if self.committed.iter().any(|outgoing| outgoing.class == Class::Bulk) {
                return None;
            }
            self.burst = 0;
            return self.bulk.pop_front();
        }
        let outgoing = self.small.pop_front()?;
        self.burst = if self.bulk.is_empty() { 0 } else { self.burst.saturating_add(outgoing.bytes.len()) };
        Some(outgoing)
    }

    /// Offers up to `bytes` bytes in up to `count` slices.
    pub(super) fn offer<'a>(&'a mut self, bytes: usize, count: usize, burst: usize, slices: &mut Vec<IoSlice<'a>>) {
        let mut total = self.committed.iter().fold(0_usize, |sum, outgoing| sum.saturating_add(outgoing.bytes.len()));
        let mut pieces = self.committed.iter().fold(0_usize, |sum, o| sum.saturating_add(o.bytes.pieces().len()));
        while total < bytes && pieces < count {
            let Some(outgoing) = self.pick(burst) else { break };
            total = total.saturating_add(outgoing.bytes.len());
            pieces = pieces.saturating_add(outgoing.bytes.pieces().len());
            self.committed.push_back(outgoing);
        }
        let mut left = bytes;
        for piece in self.committed.iter().flat_map(|outgoing| outgoing.bytes.pieces()).take(count) {
            if left == 0 {
                break;
            }
            let part = piece.get(..left).unwrap_or(piece);
            left = left.saturating_sub(part.len());
            slices.push(IoSlice::new(part));
        }
    }

    /// Takes out what was written; `sent` hears of each record whose last byte is among it. Returns how many of the
    /// bytes had never been offered.
    pub(super) fn written(&mut self, count: usize, mut sent: impl FnMut(SendId)) -> usize {
        let mut left = count;
        while left > 0 {
            let Some(front) = self.committed.front_mut() else { break };
            let part = front.bytes.len().min(left);
            left = left.saturating_sub(part);
            self.queued = self.queued.saturating_sub(part);
            if part < front.bytes.len() {
                front.bytes.advance(part);
            } else if let Some(outgoing) = self.committed.pop_front()
                && let Some(send) = outgoing.send
            {
                sent(send);
            }
        }
        left
    }

    /// Drops what is not committed. `failed` hears of every record whose last byte was not written; committed ones
    /// stay, for the stream to remain whole, and are reported no more.
    pub(super) fn abandon(&mut self, mut failed: impl FnMut(SendId)) {
        let sends = self.committed.iter_mut().chain(&mut self.small).chain(&mut self.bulk);
        for send in sends.filter_map(|outgoing| outgoing.send.take()) {
            failed(send);
        }
        self.control.clear();
        self.answer = None;
        self.small.clear();
        self.bulk.clear();
        self.queued = self.committed.iter().fold(0, |sum, outgoing| sum.saturating_add(outgoing.bytes.len()));
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
