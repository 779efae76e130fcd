//! How long a conditional write of one record of a kibibyte takes, through an engine and through its bare client, in
//! turns, so that both have the same machine.

use super::faults::key;
use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreReply};
use rehome_stores::Engine;
use std::time::{Duration, Instant};

/// The value that is written.
pub(crate) const RECORD: [u8; 1024] = [b'x'; 1024];
const TIMES: usize = 1500;

/// Says the medians, and their ratio. `bare` writes once, on a condition that holds.
pub(crate) fn compare(engine: &dyn Engine, mut bare: impl FnMut()) {
    let mut version: Option<StoreVersion> = None;
    let mut write = || {
        let conditions = version.take().map(|version| Condition::Version(key("pace"), version)).into_iter().collect();
        let mutations = vec![Mutation::Put { key: key("pace"), value: RECORD.to_vec().into(), ttl: None }];
        match block_on(engine.execute(StoreCommand::Write(Batch { conditions, mutations }))) {
            StoreReply::Applied(mut versions) => version = versions.pop(),
            other => panic!("{other:?}"),
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let begun = Instant::now();
        write();
        ours.push(begun.elapsed());
        let begun = Instant::now();
        bare();
        theirs.push(begun.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("{}: p50 {ours:?}, bare client {theirs:?}, {ratio:.2} times it, of {TIMES} each", engine.name());
}
