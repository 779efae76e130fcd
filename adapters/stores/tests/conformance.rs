//! Every engine here passes the suite.

use rehome::store::StoreCommand;
use rehome_stores::conformance::{Harness, run};
use rehome_stores::{Answer, Clock, Engine, Memory, Sqlite};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn memory_on_the_boot_clock() {
    run(|| Harness {
        engine: Arc::new(Memory::new()),
        pass: Box::new(thread::sleep),
        step: Duration::ZERO,
        keep: Box::new(()),
    });
}

#[test]
fn memory_on_a_manual_clock() {
    run(|| {
        let clock = Clock::manual();
        let engine = Arc::new(Memory::with_clock(clock.clone()));
        Harness { engine, pass: Box::new(move |time| clock.advance(time)), step: Duration::ZERO, keep: Box::new(()) }
    });
}

#[test]
fn sqlite() {
    run(|| {
        let folder = tempfile::tempdir().unwrap();
        let engine = Arc::new(Sqlite::open(&folder.path().join("store.db")).unwrap());
        Harness { engine, pass: Box::new(thread::sleep), step: Duration::ZERO, keep: Box::new(folder) }
    });
}

/// Two openings of one file, as two processes have them, taken in turn: the promises hold across them too.
struct Both {
    openings: [Sqlite; 2],
    next: AtomicUsize,
}

impl Engine for Both {
    fn execute(&self, command: StoreCommand) -> Answer {
        self.openings[self.next.fetch_add(1, Ordering::SeqCst) % 2].execute(command)
    }

    fn name(&self) -> &'static str {
        "sqlite, opened twice"
    }
}

#[test]
fn sqlite_through_two_openings() {
    run(|| {
        let folder = tempfile::tempdir().unwrap();
        let openings = [(); 2].map(|()| Sqlite::open(&folder.path().join("store.db")).unwrap());
        let engine = Arc::new(Both { openings, next: AtomicUsize::new(0) });
        Harness { engine, pass: Box::new(thread::sleep), step: Duration::ZERO, keep: Box::new(folder) }
    });
}
