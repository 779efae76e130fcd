//! One state of the search: plain numbers, which stand for values in the tables. Nothing in it is a decision.

use std::hash::{Hash, Hasher};

/// The most processes.
pub(super) const PROCS: usize = 3;
/// The most attempts.
pub(super) const MOVES: usize = 4;
/// The most commands without an answer.
const OPS: usize = 10;
/// The most writes that were given up and may still happen.
const HELD: usize = 8;

/// A value as one word; different values are different words.
pub(super) trait Packed {
    fn packed(&self) -> u64;
}

const fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

const fn four(parts: [u16; 4]) -> u64 {
    parts[0] as u64 | (parts[1] as u64) << 16 | (parts[2] as u64) << 32 | (parts[3] as u64) << 48
}

/// A list in place: equal lists are equal states, whatever stood in them before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default + Ord, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self { len: 0, items: [T::default(); N] }
    }
}

impl<T: Copy + Default + Ord, const N: usize> List<T, N> {
    pub(super) fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    pub(super) fn items_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    /// Inserts in order: what happened first makes no difference.
    pub(super) fn insert(&mut self, item: T) {
        assert!(usize::from(self.len) < N, "a bound of the model is too small");
        let at = self.as_slice().partition_point(|other| *other <= item);
        self.items.copy_within(at..usize::from(self.len), at + 1);
        self.items[at] = item;
        self.len += 1;
    }

    pub(super) fn insert_once(&mut self, item: T) {
        if !self.as_slice().contains(&item) {
            self.insert(item);
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        let item = self.items[at];
        self.items.copy_within(at + 1..usize::from(self.len), at);
        self.len -= 1;
        self.items[usize::from(self.len)] = T::default();
        item
    }

    fn hash_into(&self, hasher: &mut impl Hasher)
    where
        T: Packed,
    {
        for item in self.as_slice() {
            hasher.write_u64(item.packed());
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut at = 0;
        while at < usize::from(self.len) {
            if keep(&self.items[at]) {
                at += 1;
            } else {
                self.remove(at);
            }
        }
    }
}

/// Whether the life of an object runs turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gate {
    /// If the guard allows it.
    #[default]
    Open,
    /// Stopped for this attempt.
    Captured(u8),
    /// Stopped for its deletion.
    Deleting,
}

/// One life of the object at one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Life {
    pub(super) process: u8,
    pub(super) incarnation: u8,
    pub(super) owner_generation: u8,
    pub(super) gate: Gate,
}

impl Packed for Life {
    fn packed(&self) -> u64 {
        let gate = match self.gate {
            Gate::Open => 0,
            Gate::Deleting => 1,
            Gate::Captured(attempt) => 2 + attempt,
        };
        word([self.process, self.incarnation, self.owner_generation, gate, 0, 0, 0, 0])
    }
}

/// Who asked the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Source(u8),
    Target(u8),
    Birth(u8),
    /// Of an incarnation at a process: one may be created while the one before is still being deleted.
    Death(u8, u8),
}

/// What about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Query {
    Record,
    OwnLease,
    SourceLease,
    Write,
}

/// A command without an answer. Replies find it by its place here, which stands for its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Op {
    pub(super) who: Who,
    pub(super) query: Query,
    pub(super) command: u16,
    /// What the store answered; 0 while it has not.
    pub(super) reply: u16,
}

impl Default for Op {
    fn default() -> Self {
        Self { who: Who::Source(0), query: Query::Record, command: 0, reply: 0 }
    }
}

impl Packed for Op {
    fn packed(&self) -> u64 {
        let (kind, of): (u8, u8) = match self.who {
            Who::Source(attempt) => (0, attempt),
            Who::Target(attempt) => (1, attempt),
            Who::Birth(process) => (2, process),
            Who::Death(process, incarnation) => (3, process << 4 | incarnation),
        };
        let who = u64::from(kind) << 40 | u64::from(of) << 48 | (self.query as u64) << 56;
        who | u64::from(self.command) | u64::from(self.reply) << 16
    }
}

/// A write that was given up; it may happen at any time, or several times, as its machine may have sent it so often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    pub(super) command: u16,
    /// 1 + the attempt whose commit it is; 0 for any other write.
    pub(super) commit: u8,
}

impl Packed for Held {
    fn packed(&self) -> u64 {
        u64::from(self.command) | u64::from(self.commit) << 16
    }
}

/// A reply that came after it was given up: only for [`super::Weakening::RepliesByKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Late {
    pub(super) process: u8,
    pub(super) at_target: bool,
    pub(super) query: u8,
    pub(super) reply: u16,
}

impl Packed for Late {
    fn packed(&self) -> u64 {
        let rest = word([0, 0, self.process, self.query, u8::from(self.at_target), 0, 0, 0]);
        rest | u64::from(self.reply)
    }
}

/// What the store's record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// 0 where there is none.
    pub(super) incarnation: u8,
    pub(super) owner_generation: u8,
    pub(super) owner: u8,
}

/// The creation or taking-over that a process has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Birth {
    /// 0 where there is none.
    pub(super) incarnation: u8,
    pub(super) command: u16,
    pub(super) reclaim: bool,
}

/// Bits by process or by attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(pub(super) u8);

impl Bits {
    pub(super) const fn has(self, at: u8) -> bool {
        self.0 >> at & 1 == 1
    }

    pub(super) const fn add(&mut self, at: u8) {
        self.0 |= 1 << at;
    }

    pub(super) const fn drop(&mut self, at: u8) {
        self.0 &= !(1 << at);
    }
}

/// How often what has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) moves: u8,
    pub(super) crashes: u8,
    pub(super) lapses: u8,
    pub(super) shutdowns: u8,
    pub(super) reclaims: u8,
    pub(super) deletes: u8,
    pub(super) creates: u8,
    pub(super) touches: u8,
    pub(super) incarnations: u8,
}

/// What truly happened, which no process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ghost {
    /// Attempts whose commit took effect.
    pub(super) committed: Bits,
    /// Attempts whose stage opened.
    pub(super) opened: Bits,
    /// Attempts that ended with the object kept.
    pub(super) kept: Bits,
    /// Attempts that a settlement called lost, although it could have told that they had committed, or before they did.
    pub(super) lost: Bits,
    /// What a single step did wrong.
    pub(super) wrong: Bits,
}

/// Wrong: a settlement that had read a committed move went on waiting.
pub(super) const WAITS: u8 = 0;
/// Wrong: a follow route was installed to a tenure that was not proved.
pub(super) const FOLLOWS: u8 = 1;
/// Wrong: a commit took effect for a state that the source had not stopped for this attempt.
pub(super) const STALE: u8 = 2;

/// One state of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) store: u16,
    /// What the store held before its last write; 0 unless reads may lag.
    pub(super) before: u16,
    pub(super) seen: Seen,
    /// Processes whose lease the store has.
    pub(super) leased: Bits,
    /// Processes that run.
    pub(super) running: Bits,
    /// Processes that end in order.
    pub(super) ending: Bits,
    /// Processes whose guard lets them act.
    pub(super) guarded: Bits,
    pub(super) lives: List<Life, 4>,
    /// Facts of each attempt; 0 before it began.
    pub(super) facts: [u16; MOVES],
    pub(super) sources: [u16; MOVES],
    pub(super) targets: [u16; MOVES],
    /// Ended stages that are remembered: 1 opened, 2 failed.
    pub(super) ended: [u8; MOVES],
    /// Frames that were ever sent.
    pub(super) frames: [u8; MOVES],
    pub(super) ops: List<Op, OPS>,
    pub(super) held: List<Held, HELD>,
    pub(super) late: List<Late, 2>,
    pub(super) births: [Birth; PROCS],
    pub(super) ghost: Ghost,
    pub(super) spent: Spent,
}

/// By hand, in few words: most of the time of a search goes into this.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (seen, ghost, spent) = (&self.seen, &self.ghost, &self.spent);
        let lists = [self.lives.len, self.ops.len, self.held.len, self.late.len];
        let [before, store] = [self.before.to_le_bytes(), self.store.to_le_bytes()];
        let births = self.births.map(|birth| birth.command);
        let born = self.births.map(|birth| birth.incarnation << 1 | u8::from(birth.reclaim));
        for part in [
            word([store[0], store[1], before[0], before[1], lists[0], lists[1], lists[2], lists[3]]),
            word([
                seen.incarnation,
                seen.owner_generation,
                seen.owner,
                self.leased.0,
                self.running.0,
                self.guarded.0,
                ghost.committed.0,
                ghost.opened.0,
            ]),
            word([ghost.kept.0, ghost.lost.0, ghost.wrong.0, born[0], born[1], born[2], 0, 0]),
            four([births[0], births[1], births[2], u16::from_le_bytes([self.ending.0, spent.shutdowns])]),
            word([
                spent.moves,
                spent.crashes,
                spent.lapses,
                spent.reclaims,
                spent.deletes,
                spent.creates,
                spent.touches,
                spent.incarnations,
            ]),
            four(self.facts),
            four(self.sources),
            four(self.targets),
            u64::from(u32::from_le_bytes(self.ended)) << 32 | u64::from(u32::from_le_bytes(self.frames)),
        ] {
            hasher.write_u64(part);
        }
        self.lives.hash_into(hasher);
        self.ops.hash_into(hasher);
        self.held.hash_into(hasher);
        self.late.hash_into(hasher);
    }
}
