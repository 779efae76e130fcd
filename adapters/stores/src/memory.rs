//! The engine in memory, with a script of faults: for tests and single processes. It survives nothing.
//!
//! The store itself is the core's [`MemoryStore`], a plain value; simulations without async use that one directly.

use crate::{Answer, Engine, boot_nanos, in_bounds, ready};
use bytes::Bytes;
use futures_channel::oneshot;
use rehome::store::{Condition, MemoryStore, Mutation, StoreCommand, StoreReply};
use rehome::time::Instant;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The clock of a memory engine.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's boot time.
    #[default]
    Boot,
    /// Nanoseconds that a test sets.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands still until [`Clock::advance`].
    pub fn manual() -> Self {
        Self::Manual(Arc::new(AtomicU64::new(0)))
    }

    /// Moves a manual clock on. The boot clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(nanos) = self {
            nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(match self {
            Self::Boot => boot_nanos(),
            Self::Manual(nanos) => nanos.load(Ordering::SeqCst),
        })
    }
}

/// What goes wrong with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not done, and the answer is unknown.
    FailBefore,
    /// Done, and the answer is unknown.
    FailAfter,
    /// Not done, and the answer is a conflict that is none.
    Conflict,
    /// Not done, and the answer is that the command is out of bounds.
    Refuse,
    /// Done and answered only when [`Memory::release`] is called.
    Hold,
    /// Done at once, answered only when [`Memory::release`] is called.
    HoldAnswer,
}

/// The kind of a command, for a [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A read.
    Read,
    /// A batch.
    Write,
    /// A page of a scan.
    Scan,
}

/// A fault and the one command that it meets: the `nth` (from 0) of `kind` that touches a key under `prefix`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Which kind of command counts; `None` for all.
    pub kind: Option<Kind>,
    /// A command counts if one of its keys, or the prefix it scans, begins with these bytes.
    pub prefix: Bytes,
    /// How many of them pass before.
    pub nth: u32,
    /// What happens to the one after.
    pub fault: Fault,
}

impl Rule {
    /// `fault` for the `nth` (from 0) command of any kind.
    pub const fn nth(nth: u32, fault: Fault) -> Self {
        Self { kind: None, prefix: Bytes::new(), nth, fault }
    }

    /// The same, counting only commands of `kind`.
    #[must_use]
    pub fn of(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// The same, counting only commands that touch a key under `prefix`.
    #[must_use]
    pub fn under(self, prefix: impl Into<Bytes>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    fn counts(&self, command: &StoreCommand) -> bool {
        let under = |key: &Bytes| key.starts_with(&self.prefix);
        let (kind, touches) = match command {
            StoreCommand::Read(key) => (Kind::Read, under(&key.0)),
            StoreCommand::Write(batch) => {
                let mut keys =
                    batch.conditions.iter().map(Condition::key).chain(batch.mutations.iter().map(Mutation::key));
                (Kind::Write, self.prefix.is_empty() || keys.any(|key| under(&key.0)))
            }
            StoreCommand::Scan { prefix, .. } => (Kind::Scan, under(prefix)),
        };
        touches && self.kind.is_none_or(|of| of == kind)
    }
}

/// A store in this process's memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    store: MemoryStore,
    rules: Vec<Rule>,
    held: VecDeque<(Held, oneshot::Sender<StoreReply>)>,
}

#[derive(Debug)]
enum Held {
    Command(StoreCommand),
    Reply(StoreReply),
}

impl Memory {
    /// An empty store on the boot clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store on `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock, inner: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fault. Each meets one command; where two would meet the same one, the earlier rule does and the later
    /// one meets the next that counts for it.
    pub fn script(&self, rule: Rule) {
        self.inner().rules.push(rule);
    }

    /// Rules that have met no command yet.
    pub fn unmet(&self) -> usize {
        self.inner().rules.len()
    }

    /// Answers that are held.
    pub fn held(&self) -> usize {
        self.inner().held.len()
    }

    /// Goes on with the oldest held answer, doing its command first where that was held too. Says whether there was one.
    pub fn release(&self) -> bool {
        let mut inner = self.inner();
        let Some((held, answer)) = inner.held.pop_front() else { return false };
        let reply = match held {
            Held::Command(command) => inner.store.apply(self.clock.now(), &command),
            Held::Reply(reply) => reply,
        };
        // Whoever asked may have given up.
        let _ = answer.send(reply);
        true
    }

    /// The store as it is now.
    pub fn snapshot(&self) -> MemoryStore {
        self.inner().store.clone()
    }
}

impl Inner {
    fn fault(&mut self, command: &StoreCommand) -> Option<Fault> {
        let mut met = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if !rule.counts(command) {
                continue;
            }
            match rule.nth.checked_sub(1) {
                Some(left) => rule.nth = left,
                None if met.is_none() => met = Some(index),
                None => {}
            }
        }
        met.map(|index| self.rules.remove(index).fault)
    }

    fn hold(&mut self, held: Held) -> Answer {
        let (answer, reply) = oneshot::channel();
        self.held.push_back((held, answer));
        Box::pin(async move { reply.await.unwrap_or(StoreReply::Unknown) })
    }
}

impl Engine for Memory {
    fn execute(&self, command: StoreCommand) -> Answer {
        if !in_bounds(&command) {
            return ready(StoreReply::Invalid);
        }
        let mut inner = self.inner();
        match inner.fault(&command) {
            None => ready(inner.store.apply(self.clock.now(), &command)),
            Some(Fault::FailBefore) => ready(StoreReply::Unknown),
            Some(Fault::Conflict) => ready(StoreReply::Conflict),
            Some(Fault::Refuse) => ready(StoreReply::Invalid),
            Some(Fault::FailAfter) => {
                inner.store.apply(self.clock.now(), &command);
                ready(StoreReply::Unknown)
            }
            Some(Fault::Hold) => inner.hold(Held::Command(command)),
            Some(Fault::HoldAnswer) => {
                let reply = inner.store.apply(self.clock.now(), &command);
                inner.hold(Held::Reply(reply))
            }
        }
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn warnings(&self) -> Vec<String> {
        vec![String::from("the memory store survives nothing and is seen by this process alone")]
    }
}
