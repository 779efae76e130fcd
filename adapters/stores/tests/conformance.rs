//! Every engine here passes the suite.

use rehome_stores::conformance::{Harness, run};
use rehome_stores::{Clock, Memory, Sqlite};
use std::sync::Arc;
use std::thread;

#[test]
fn memory_on_the_boot_clock() {
    run(|| Harness { engine: Arc::new(Memory::new()), pass: Box::new(thread::sleep), keep: Box::new(()) });
}

#[test]
fn memory_on_a_manual_clock() {
    run(|| {
        let clock = Clock::manual();
        let engine = Arc::new(Memory::with_clock(clock.clone()));
        Harness { engine, pass: Box::new(move |time| clock.advance(time)), keep: Box::new(()) }
    });
}

#[test]
fn sqlite() {
    run(|| {
        let folder = tempfile::tempdir().unwrap();
        let engine = Arc::new(Sqlite::open(&folder.path().join("store.db")).unwrap());
        Harness { engine, pass: Box::new(thread::sleep), keep: Box::new(folder) }
    });
}
