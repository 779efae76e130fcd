//! How long writes to a SQLite store take, next to a bare sync of the same disk: `measure [FOLDER]`. The numbers are
//! worth something on a quiet machine and a folder on a real disk only.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::{Answer, Engine as _, Sqlite};
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TIMES: usize = 1000;
const SPAN: Duration = Duration::from_secs(4);
const RECORD: usize = 1024;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| String::from("."));
    if let Some(part) = arguments.next() {
        return child(Path::new(&folder), &part);
    }
    let folder = tempfile::tempdir_in(folder).expect("a folder that can be written");
    let path = folder.path().join("store.db");

    let mut file = std::fs::File::create(folder.path().join("raw")).expect("a file");
    let raw = times(TIMES, || {
        file.write_all(&[7; RECORD]).expect("written");
        file.sync_data().expect("synced");
    });
    show("append 1 KiB and sync, no store", raw);

    let store = Sqlite::open(&path).expect("a store");
    println!("warnings: {:?}", store.warnings());
    let mut version = write(&store, "one", None);
    let sequential = times(TIMES, || version = write(&store, "one", Some(&version)));
    show("conditional write of 1 KiB, one at a time", sequential);
    let reads = times(TIMES, || {
        block_on(store.execute(StoreCommand::Read(StoreKey("one".into()))));
    });
    show("read of 1 KiB", reads);
    drop(store);

    for parts in [["one", "one", "one"], ["many", "one", "one"]] {
        println!("three processes at once ({}):", parts.join(", "));
        let children: Vec<_> = parts
            .iter()
            .map(|part| {
                Command::new(std::env::current_exe().expect("this program"))
                    .args([path.to_str().expect("a name in UTF-8"), part])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("a process")
            })
            .collect();
        for child in children {
            print!("  {}", String::from_utf8_lossy(&child.wait_with_output().expect("its output").stdout));
        }
    }
}

/// Writes for a while: one at a time, or with 64 in flight.
fn child(path: &Path, part: &str) {
    let store = Sqlite::open(path).expect("a store");
    let key = format!("process {}", std::process::id());
    let (started, mut waits) = (Instant::now(), Vec::new());
    let mut flight: VecDeque<(Instant, Answer)> = VecDeque::new();
    let most = if part == "many" { 64 } else { 1 };
    while started.elapsed() < SPAN || !flight.is_empty() {
        while flight.len() < most && started.elapsed() < SPAN {
            flight.push_back((Instant::now(), send(&store, &format!("{key} {}", flight.len()), None)));
        }
        let Some((sent, answer)) = flight.pop_front() else { break };
        match block_on(answer) {
            StoreReply::Applied(_) => waits.push(sent.elapsed()),
            other => panic!("{other:?}"),
        }
    }
    show(part, waits);
}

fn send(store: &Sqlite, key: &str, version: Option<&StoreVersion>) -> Answer {
    let key = StoreKey(key.to_owned().into());
    let conditions = version.map(|version| Condition::Version(key.clone(), version.clone())).into_iter().collect();
    let mutations = vec![Mutation::Put { key, value: vec![b'x'; RECORD].into(), ttl: None }];
    store.execute(StoreCommand::Write(Batch { conditions, mutations }))
}

fn write(store: &Sqlite, key: &str, version: Option<&StoreVersion>) -> StoreVersion {
    match block_on(send(store, key, version)) {
        StoreReply::Applied(mut versions) => versions.remove(0),
        other => panic!("{other:?}"),
    }
}

fn times(count: usize, mut act: impl FnMut()) -> Vec<Duration> {
    (0..count)
        .map(|_| {
            let since = Instant::now();
            act();
            since.elapsed()
        })
        .collect()
}

fn show(what: &str, mut waits: Vec<Duration>) {
    waits.sort_unstable();
    let at = |part: usize| waits.get(waits.len() * part / 100).or(waits.last()).copied().unwrap_or_default();
    let most = waits.last().copied().unwrap_or_default();
    println!("{what}: {} times, p50 {:?}, p99 {:?}, most {most:?}", waits.len(), at(50), at(99));
}
