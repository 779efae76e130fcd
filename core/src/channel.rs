//! The ordered layer between two node generations: records arrive once and in order, across any number of connections.
//! It numbers, keeps and acknowledges; it knows nothing of what it carries.

use crate::wire::{LinkRecord, Ordered};
use std::collections::VecDeque;

/// One end of an ordered channel to one peer generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The number of the first record that is not acknowledged.
    first: u64,
    unacknowledged: VecDeque<Ordered>,
    /// Records received.
    received: u64,
    /// Records received since the last acknowledgement was sent.
    unannounced: u32,
    link: Link,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Link {
    #[default]
    Down,
    /// Up, and the peer has not said yet what it has.
    Resuming,
    Up,
}

/// What became of a received record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// It is next: act on it.
    Next(Ordered),
    /// It was received before.
    Duplicate,
    /// Records before it are missing: the peer broke the rules.
    Gap,
}

/// An acknowledgement is sent at the latest after this many records; before, when the caller's timer says so.
pub const ACK_EVERY: u32 = 32;

impl Channel {
    /// A new channel, without a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// A connection is up: the record to send first.
    pub fn up(&mut self) -> LinkRecord {
        self.link = Link::Resuming;
        self.unannounced = 0;
        LinkRecord::Resume { received: self.received }
    }

    /// The connection is gone.
    pub fn down(&mut self) {
        self.link = Link::Down;
    }

    /// Queues `body`; the record to send now, if the connection is ready for it.
    pub fn push(&mut self, body: Ordered) -> Option<LinkRecord> {
        let sequence = self.first.saturating_add(count(&self.unacknowledged));
        let record = (self.link == Link::Up).then(|| LinkRecord::Ordered { sequence, body: body.clone() });
        self.unacknowledged.push_back(body);
        record
    }

    /// The peer said at the start of a connection what it has: the records to send again.
    pub fn resume(&mut self, received: u64) -> Vec<LinkRecord> {
        if self.link == Link::Down {
            return Vec::new();
        }
        self.acknowledged(received);
        self.link = Link::Up;
        (self.first..)
            .zip(&self.unacknowledged)
            .map(|(sequence, body)| LinkRecord::Ordered { sequence, body: body.clone() })
            .collect()
    }

    /// The peer has everything below `received`.
    pub fn acknowledged(&mut self, received: u64) {
        while self.first < received && self.unacknowledged.pop_front().is_some() {
            self.first = self.first.saturating_add(1);
        }
    }

    /// A record came.
    pub fn receive(&mut self, sequence: u64, body: Ordered) -> Arrival {
        match sequence.cmp(&self.received) {
            core::cmp::Ordering::Equal => {
                self.received = self.received.saturating_add(1);
                self.unannounced = self.unannounced.saturating_add(1);
                Arrival::Next(body)
            }
            core::cmp::Ordering::Less => {
                self.unannounced = self.unannounced.saturating_add(1);
                Arrival::Duplicate
            }
            core::cmp::Ordering::Greater => Arrival::Gap,
        }
    }

    /// Whether received records wait for an acknowledgement: some, or so many that it must go now.
    pub const fn ack_due(&self) -> (bool, bool) {
        (self.unannounced > 0, self.unannounced >= ACK_EVERY)
    }

    /// The acknowledgement to send.
    pub fn ack(&mut self) -> Option<LinkRecord> {
        if self.link == Link::Down {
            return None;
        }
        self.unannounced = 0;
        Some(LinkRecord::Ack { received: self.received })
    }

    /// Records that the peer has not acknowledged, in order.
    pub fn outstanding(&self) -> impl Iterator<Item = &Ordered> {
        self.unacknowledged.iter()
    }

    /// Whether a connection is up.
    pub fn is_up(&self) -> bool {
        self.link != Link::Down
    }
}

fn count(queue: &VecDeque<Ordered>) -> u64 {
    u64::try_from(queue.len()).unwrap_or(u64::MAX)
}
