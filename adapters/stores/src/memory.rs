//! The engine in memory, with a script of faults: for tests and single processes. It survives nothing.

use crate::{Answer, Engine, boot_nanos};
use futures_channel::oneshot;
use rehome::store::{MemoryStore, StoreCommand, StoreReply};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not done, and the answer is unknown.
    FailBefore,
    /// Done, and the answer is unknown.
    FailAfter,
    /// Not done, and the answer is a conflict that is none.
    Conflict,
    /// Done and answered only when [`Memory::release`] is called.
    Hold,
}

/// Which command a fault meets: the `nth` (from 0) that `matches`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which commands count.
    pub matches: fn(&StoreCommand) -> bool,
    /// How many of them pass before.
    pub nth: u32,
    /// What happens to the one after.
    pub fault: Fault,
}

/// A store in this process's memory.
#[derive(Clone, Default)]
pub struct Memory {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    store: MemoryStore,
    rules: Vec<Rule>,
    held: VecDeque<(StoreCommand, oneshot::Sender<StoreReply>)>,
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

    /// Adds a fault. Each meets one command.
    pub fn script(&self, rule: Rule) {
        self.inner().rules.push(rule);
    }

    /// Commands that are held.
    pub fn held(&self) -> usize {
        self.inner().held.len()
    }

    /// Does the oldest held command now. Says whether there was one.
    pub fn release(&self) -> bool {
        let mut inner = self.inner();
        let Some((command, answer)) = inner.held.pop_front() else { return false };
        let reply = inner.store.apply(self.clock.now(), &command);
        // Whoever asked may have given up.
        let _ = answer.send(reply);
        true
    }
}

impl Inner {
    fn fault(&mut self, command: &StoreCommand) -> Option<Fault> {
        let mut met = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if !(rule.matches)(command) {
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
}

impl Engine for Memory {
    fn execute(&self, command: StoreCommand) -> Answer {
        if command.check().is_err() {
            return Box::pin(std::future::ready(StoreReply::Invalid));
        }
        let mut inner = self.inner();
        let reply = match inner.fault(&command) {
            None => inner.store.apply(self.clock.now(), &command),
            Some(Fault::FailBefore) => StoreReply::Unknown,
            Some(Fault::Conflict) => StoreReply::Conflict,
            Some(Fault::FailAfter) => {
                inner.store.apply(self.clock.now(), &command);
                StoreReply::Unknown
            }
            Some(Fault::Hold) => {
                let (answer, reply) = oneshot::channel();
                inner.held.push_back((command, answer));
                return Box::pin(async move { reply.await.unwrap_or(StoreReply::Unknown) });
            }
        };
        Box::pin(std::future::ready(reply))
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn warnings(&self) -> Vec<String> {
        vec![String::from("the memory store survives nothing and is seen by this process alone")]
    }
}
