//! Connections: pipes of records that keep their order, lose what is in flight when they are cut, and are made again.
//! Published records may also come twice, late or out of order.

use super::script::RecordFault;
use super::{Act, MILLI, SECOND, World};
use rehome::Input;
use rehome::fence::PeerFence;
use rehome::link::Agreed;
use rehome::node::{Conn, SendId};
use rehome::wire::{Record, decode, encode};
use std::collections::BTreeSet;

/// What of a record arrives: a node may only send what its bytes can say.
fn over_the_wire(record: &Record) -> Record {
    let frames = encode(record).unwrap_or_else(|error| panic!("{error}: {record:?}"));
    let arrived = decode(frames).unwrap_or_else(|error| panic!("{error}: {record:?}"));
    assert_eq!(arrived, *record, "the wire changed a record");
    arrived
}

impl World {
    pub(super) fn send(&mut self, node: usize, conn: Conn, send: SendId, record: Record) {
        let run = self.places[node].run;
        let other = (conn.0 % 100) as usize;
        let pair = (node.min(other), node.max(other));
        let link = self.links.get(&pair).cloned().unwrap_or_default();
        let epoch = link.epoch;
        if matches!(record, Record::Cutover(_)) {
            let guard = self.places[node].guard;
            self.oracle.one_owner.acts(&mut self.oracle.faults, self.now, guard, node, "sent a cutover");
        }
        if !link.up || conn.0 / 100 != epoch {
            return self.schedule(1, Act::Input { node, run, input: Input::Sent { send, written: false } });
        }
        let record = over_the_wire(&record);
        let at = self.now + 50_000 + self.chance.below(MILLI);
        let mut fifo = true;
        let mut lost = link.deaf[usize::from(node > other)];
        let published = !matches!(record, Record::Link(_));
        if published {
            self.trouble(node, other, &record, &mut fifo);
            lost |= self.scripted_record(node, other, &record);
        }
        let last = self.last_delivery.entry((node, other)).or_default();
        let mut due = at.max(*last + 1);
        if fifo {
            *last = due;
        } else {
            due += self.chance.below(5 * MILLI);
        }
        let written = self.chance.below(due - self.now);
        self.schedule(written, Act::Sent { node, run, to: other, epoch, send });
        if !lost {
            self.schedule(due - self.now, Act::Deliver { from: node, to: other, epoch, record });
        }
        let profile = self.profile;
        if self.fault(profile.cut, "connection cut") {
            self.cut(node, other);
        } else if self.fault(profile.cut_one_way, "one-way cut") {
            if let Some(link) = self.links.get_mut(&pair) {
                link.deaf[usize::from(node > other)] = true;
            }
            let delay = self.chance.below(600 * MILLI);
            self.schedule(delay, Act::Cut { a: node, b: other });
        }
    }

    /// Faults of published records.
    fn trouble(&mut self, node: usize, other: usize, record: &Record, fifo: &mut bool) {
        let profile = self.profile;
        let again = |record: &Record| Act::Deliver { from: node, to: other, epoch: 0, record: record.clone() };
        if self.fault(profile.duplicate, "duplicated record") {
            let delay = self.chance.below(50 * MILLI);
            self.schedule(delay, again(record));
        }
        if self.fault(profile.late, "late record") {
            let delay = self.chance.below(8 * SECOND);
            self.schedule(delay, again(record));
        }
        *fifo = !self.fault(profile.reorder, "reordered record");
    }

    /// What a script wants done with the record. True where it is lost.
    fn scripted_record(&mut self, node: usize, other: usize, record: &Record) -> bool {
        match self.rules.record(node, record) {
            None => false,
            Some(RecordFault::Lose) => true,
            Some(RecordFault::Cut) => {
                self.cut(node, other);
                true
            }
            Some(RecordFault::Again(delay)) => {
                let delay = delay.as_nanos() as u64;
                self.schedule(delay, Act::Deliver { from: node, to: other, epoch: 0, record: record.clone() });
                false
            }
            Some(RecordFault::Late(delay)) => {
                let delay = delay.as_nanos() as u64;
                self.schedule(delay, Act::Deliver { from: node, to: other, epoch: 0, record: record.clone() });
                true
            }
        }
    }

    pub(super) fn sent(&mut self, node: usize, run: u64, to: usize, epoch: u64, send: SendId) {
        let pair = (node.min(to), node.max(to));
        let written = self.links.get(&pair).is_some_and(|link| link.up && link.epoch == epoch);
        if self.places[node].run == run {
            self.feed(node, Input::Sent { send, written });
        }
    }

    pub(super) fn cut(&mut self, a: usize, b: usize) {
        let pair = (a.min(b), a.max(b));
        let Some(link) = self.links.get_mut(&pair) else { return };
        if !link.up {
            return;
        }
        link.up = false;
        link.deaf = [false; 2];
        let epoch = link.epoch;
        for (node, other) in [(pair.0, pair.1), (pair.1, pair.0)] {
            let run = self.places[node].run;
            let conn = Conn(epoch * 100 + other as u64);
            // One side may notice later than the other.
            let delay = 1 + self.chance.below(30 * MILLI);
            self.schedule(delay, Act::Input { node, run, input: Input::PeerDown { conn } });
        }
        let delay = 40 * MILLI + self.chance.below(300 * MILLI);
        self.schedule(delay, Act::Connect { a: pair.0, b: pair.1 });
    }

    pub(super) fn disconnect_all(&mut self, node: usize) {
        for other in 0..self.places.len() {
            if other != node {
                self.cut(node, other);
            }
        }
    }

    pub(super) fn connect(&mut self, a: usize, b: usize) {
        let (Some(peer_a), Some(peer_b)) = (self.places[a].peer.clone(), self.places[b].peer.clone()) else { return };
        if self.barred.contains(&(a, b)) || !self.running(a) || !self.running(b) {
            if self.places[a].node.is_some() && self.places[b].node.is_some() {
                self.schedule(300 * MILLI, Act::Connect { a, b });
            }
            return;
        }
        let link = self.links.entry((a, b)).or_default();
        if link.up {
            return;
        }
        link.epoch += 1;
        link.up = true;
        let epoch = link.epoch;
        let limit = if self.profile.tiny { 24 } else { 4096 };
        let agreed = |peer: &PeerFence| Agreed {
            capabilities: BTreeSet::new(),
            chunk_limit: peer.node.generation.get().is_multiple_of(2).then_some(limit),
            application_version: 1,
            link: true,
            v14: true,
        };
        let (to_a, to_b) = (agreed(&peer_b), agreed(&peer_a));
        self.feed(a, Input::PeerUp { conn: Conn(epoch * 100 + b as u64), peer: peer_b, agreed: to_a });
        self.feed(b, Input::PeerUp { conn: Conn(epoch * 100 + a as u64), peer: peer_a, agreed: to_b });
    }

    pub(super) fn running(&self, node: usize) -> bool {
        let place = &self.places[node];
        place.node.as_ref().is_some_and(|node| !node.is_over()) && !place.paused
    }

    /// A record arrives: `epoch` 0 on whatever connection there is now.
    pub(super) fn deliver(&mut self, from: usize, to: usize, epoch: u64, record: Record) {
        let pair = (from.min(to), from.max(to));
        let link = self.links.get(&pair).cloned().unwrap_or_default();
        if link.up && (epoch == 0 || epoch == link.epoch) {
            self.feed(to, Input::Record { conn: Conn(link.epoch * 100 + from as u64), record });
        }
    }
}
