//! The suite that every engine passes: one function per rule of the store contract, each on a store of its own. It
//! knows no engine and assumes nothing about how fast one is: whatever it says about time holds on a slow machine too.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

mod chains;
mod history;
mod races;
mod rules;

use crate::Engine;
use bytes::Bytes;
use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, Mutation, StoreCommand, StoreKey, StoreReply};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A time to live that no test outlasts.
const LONG: Duration = Duration::from_secs(3600);
/// A time to live that a test waits for.
const SHORT: Duration = Duration::from_millis(20);

/// One empty store under test.
pub struct Harness {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Lets at least this much time pass on the store's clock: by sleeping, or by moving a manual clock.
    pub pass: Box<dyn Fn(Duration) + Send + Sync>,
    /// The shortest time to live that the store's clock can tell; nothing where it is far below a millisecond. Rules
    /// that wait for the end of a lease many times do so a few times only where this is long.
    pub step: Duration,
    /// Whatever must live as long as the store, such as a folder.
    pub keep: Box<dyn std::any::Any + Send + Sync>,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

/// A rule of the contract: panics where the engine breaks it.
pub type Rule = fn(&Harness);

/// Every rule, by name. An engine's tests may run them one by one.
pub const RULES: &[(&str, Rule)] = &[
    ("a read finds what was written last", rules::read_finds_the_last_write),
    ("each condition on a key that is absent, present or expired", rules::conditions),
    ("a batch is done whole or not at all", rules::all_or_nothing),
    ("versions never recur", rules::versions_never_recur),
    ("remaining time only for a key with an end, and never more than it was given", rules::remaining_time),
    ("an expired key is missing in reads, batches and scans", rules::expired_is_missing),
    ("a renewal gives the key its time anew", rules::renewal),
    ("a deletion of an absent key is fine", rules::delete_of_absent),
    ("a batch without changes only checks", rules::only_conditions),
    ("what is over a bound is refused and changes nothing", rules::bounds),
    ("what is at a bound is done", rules::at_the_bounds),
    ("a scan has the keys of the prefix in order", rules::scan_order),
    ("a scan goes on where its page ended", rules::scan_pages),
    ("a page has at most four mebibytes", rules::scan_bytes),
    ("a key is gone when the remaining time that was read has passed", rules::remaining_time_is_kept),
    ("no update is lost among eight writers", races::no_lost_update),
    ("what sixteen writers were answered is one chain for each key", chains::one_chain_for_each_key),
    ("transfers among eight writers keep the sum, in every page of a scan too", races::bank),
    ("of two batches that exclude each other one is done", races::no_write_skew),
    ("the same where the keys have expired", races::no_write_skew_on_expired),
    ("each page of a scan is one snapshot while others write", races::pages_are_snapshots),
    ("a renewal and a reclaim at the end of a lease are never both done", races::renew_or_reclaim),
    ("an end that was read is final", races::an_end_is_final),
    ("a read sees every write that was acknowledged before it", races::linearizable_reads),
    ("whole histories of eight clients have a serial order", history::serial_order),
];

/// Runs every rule, each on a store that `make` makes, which must be empty.
///
/// # Panics
/// Where the engine breaks a rule. The rule's name is printed before.
pub fn run(make: impl Fn() -> Harness) {
    for (name, rule) in RULES {
        eprintln!("store conformance: {name}");
        rule(&make());
    }
}

fn key(name: impl Into<Bytes>) -> StoreKey {
    StoreKey(name.into())
}

fn put(name: &str, value: impl Into<Bytes>) -> Mutation {
    Mutation::Put { key: key(name.to_owned()), value: value.into(), ttl: None }
}

fn put_for(name: &str, value: impl Into<Bytes>, ttl: Duration) -> Mutation {
    Mutation::Put { key: key(name.to_owned()), value: value.into(), ttl: Some(ttl) }
}

fn delete(name: &str) -> Mutation {
    Mutation::Delete(key(name.to_owned()))
}

fn missing(name: &str) -> Condition {
    Condition::Missing(key(name.to_owned()))
}

fn present(name: &str) -> Condition {
    Condition::Present(key(name.to_owned()))
}

fn at(name: &str, version: &StoreVersion) -> Condition {
    Condition::Version(key(name.to_owned()), version.clone())
}

impl Harness {
    fn ask(&self, command: StoreCommand) -> StoreReply {
        block_on(self.engine.execute(command))
    }

    fn read(&self, name: &str) -> Option<Found> {
        match self.ask(StoreCommand::Read(key(name.to_owned()))) {
            StoreReply::Missing => None,
            StoreReply::Found(found) => Some(found),
            other => panic!("a read of {name:?} was answered {other:?}"),
        }
    }

    /// A read that may be asked again: under load an engine may not know.
    fn read_at_last(&self, name: &str) -> Option<Found> {
        loop {
            match self.ask(StoreCommand::Read(key(name.to_owned()))) {
                StoreReply::Missing => return None,
                StoreReply::Found(found) => return Some(found),
                StoreReply::Unknown => {}
                other => panic!("a read of {name:?} was answered {other:?}"),
            }
        }
    }

    fn write(&self, conditions: &[Condition], mutations: &[Mutation]) -> StoreReply {
        self.ask(StoreCommand::Write(Batch { conditions: conditions.to_vec(), mutations: mutations.to_vec() }))
    }

    /// Writes what must be applied.
    fn apply(&self, conditions: &[Condition], mutations: &[Mutation]) -> Vec<StoreVersion> {
        match self.write(conditions, mutations) {
            StoreReply::Applied(versions) => versions,
            other => panic!("a batch whose conditions hold was answered {other:?}: {conditions:?}"),
        }
    }

    fn conflicts(&self, conditions: &[Condition], mutations: &[Mutation]) {
        assert_eq!(self.write(conditions, mutations), StoreReply::Conflict, "{conditions:?}");
    }

    fn page(&self, prefix: &[u8], cursor: Option<Bytes>, limit: u16) -> (Vec<(StoreKey, Found)>, Option<Bytes>) {
        let prefix = Bytes::copy_from_slice(prefix);
        match self.ask(StoreCommand::Scan { prefix, cursor, limit }) {
            StoreReply::Page { entries, cursor } => (entries, cursor),
            other => panic!("a scan was answered {other:?}"),
        }
    }

    fn pass(&self, time: Duration) {
        (self.pass)(time);
    }

    /// How often a rule waits for the end of a lease, which takes long where the clock is coarse.
    fn rounds(&self, many: u32) -> u32 {
        if self.step > Duration::from_millis(100) { many.min(6) } else { many }
    }
}

/// The number in a value.
fn number(found: &Found) -> u64 {
    std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok()).expect("a number")
}
