//! Several processes on one file, and processes that are killed at any moment. The test binary runs itself: a child is
//! the test `child` with its part in the environment. A kill does not empty the system's cache, so what these tests
//! show is that no acknowledged commit waits in the process, and that a torn one is not seen.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

use futures_executor::block_on;
use rehome::store::{Batch, Condition, MAX_SCAN, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::{Engine as _, Sqlite};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const PART: &str = "REHOME_STORES_CHILD";
const FILE: &str = "REHOME_STORES_FILE";

fn spawn(part: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env(FILE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a child said it has done, in lines such as `done NAME`, whole lines only.
fn said(line: &str) -> Option<&str> {
    line.strip_suffix('\n')?.strip_prefix("done ")
}

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // The test runner has begun a line of its own.
    out.write_all(format!("\ndone {what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn key(name: &str) -> StoreKey {
    StoreKey(name.to_owned().into())
}

fn put(name: &str, value: String) -> Mutation {
    Mutation::Put { key: key(name), value: value.into(), ttl: None }
}

fn ask(store: &Sqlite, command: StoreCommand) -> StoreReply {
    block_on(store.execute(command))
}

fn read(store: &Sqlite, name: &str) -> Option<String> {
    match ask(store, StoreCommand::Read(key(name))) {
        StoreReply::Missing => None,
        StoreReply::Found(found) => Some(String::from_utf8(found.value.to_vec()).unwrap()),
        other => panic!("{name}: {other:?}"),
    }
}

/// Not a test of its own: what a child process does.
#[test]
fn child() {
    let (Ok(part), Ok(path)) = (std::env::var(PART), std::env::var(FILE)) else { return };
    let store = Sqlite::open(Path::new(&path)).unwrap();
    match part.split_once(' ') {
        Some(("triples", name)) => write_triples(&store, name),
        Some(("count", times)) => count(&store, times.parse().unwrap()),
        _ => panic!("{part}"),
    }
}

/// Writes batches of three equal values and a mark, from two threads, for ever.
fn write_triples(store: &Sqlite, name: &str) {
    thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                let series = format!("{name}{worker}");
                let mut n: u64 = read(store, &format!("{series}\0a")).map_or(0, |last| last.parse().unwrap());
                loop {
                    n += 1;
                    let mutations =
                        ["a", "b", "c"].map(|part| put(&format!("{series}\0{part}"), n.to_string())).into_iter();
                    let mutations = mutations.chain([put(&format!("mark\0{series}-{n}"), String::new())]).collect();
                    let batch = Batch { conditions: vec![], mutations };
                    match ask(store, StoreCommand::Write(batch)) {
                        StoreReply::Applied(_) => say(&format!("{series}-{n}")),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
}

/// Adds one to the counter so many times.
fn count(store: &Sqlite, times: u32) {
    let mut left = times;
    while left > 0 {
        let StoreReply::Found(found) = ask(store, StoreCommand::Read(key("counter"))) else { panic!() };
        let next = std::str::from_utf8(&found.value).unwrap().parse::<u64>().unwrap() + 1;
        let conditions = vec![Condition::Version(key("counter"), found.version)];
        let batch = Batch { conditions, mutations: vec![put("counter", next.to_string())] };
        match ask(store, StoreCommand::Write(batch)) {
            StoreReply::Applied(versions) => {
                say(&format!("{next} {}", versions[0].as_str()));
                left -= 1;
            }
            StoreReply::Conflict => {}
            other => panic!("{other:?}"),
        }
    }
}

fn marks(store: &Sqlite) -> BTreeSet<String> {
    let (mut marks, mut cursor) = (BTreeSet::new(), None);
    loop {
        let scan = StoreCommand::Scan { prefix: "mark\0".into(), cursor, limit: MAX_SCAN };
        let StoreReply::Page { entries, cursor: next } = ask(store, scan) else { panic!("no page") };
        marks.extend(entries.iter().map(|(key, _)| String::from_utf8(key.0[5..].to_vec()).unwrap()));
        match next {
            Some(next) => cursor = Some(next),
            None => return marks,
        }
    }
}

#[test]
fn two_hundred_kills_lose_no_acknowledged_commit_and_leave_no_half() {
    const ROUNDS: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut acknowledged = BTreeSet::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..ROUNDS {
        let hear = |mut child: Child, wanted: u64, then: Duration| {
            thread::spawn(move || {
                let mut out = BufReader::new(child.stdout.take().unwrap());
                let (mut heard, mut line) = (Vec::new(), String::new());
                let mut killed = false;
                loop {
                    if !killed && heard.len() as u64 >= wanted {
                        thread::sleep(then);
                        child.kill().unwrap();
                        killed = true;
                    }
                    line.clear();
                    // After the kill this goes on to the end of what was said before.
                    if out.read_line(&mut line).unwrap() == 0 {
                        child.wait().unwrap();
                        assert!(killed, "the child ended by itself");
                        return heard;
                    }
                    heard.extend(said(&line).map(str::to_owned));
                }
            })
        };
        let children: Vec<_> = ["x", "y"]
            .into_iter()
            .map(|name| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Some are killed while they open the file.
                let (wanted, then) = (random % 12, Duration::from_micros((random >> 20) % 3000));
                hear(spawn(&format!("triples {name}"), &path), wanted, then)
            })
            .collect();
        for child in children {
            acknowledged.extend(child.join().unwrap());
        }
        let store = Sqlite::open(&path).unwrap();
        for series in ["x0", "x1", "y0", "y1"] {
            let [a, b, c] = ["a", "b", "c"].map(|part| read(&store, &format!("{series}\0{part}")));
            assert!(a == b && b == c, "half a batch in round {round}: {a:?} {b:?} {c:?}");
            if let Some(last) = a {
                assert_eq!(read(&store, &format!("mark\0{series}-{last}")), Some(String::new()));
            }
        }
        // Everything now and then, what is new always.
        if round % 10 == 9 {
            let lost: Vec<_> = acknowledged.difference(&marks(&store)).cloned().collect();
            assert!(lost.is_empty(), "acknowledged and lost by round {round}: {lost:?}");
        }
    }
    assert!(acknowledged.len() > 500, "only {} commits: this run proves little", acknowledged.len());
}

#[test]
fn three_processes_lose_no_update() {
    const TIMES: u32 = 60;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    let batch = Batch { conditions: vec![], mutations: vec![put("counter", String::from("0"))] };
    assert!(matches!(ask(&store, StoreCommand::Write(batch)), StoreReply::Applied(_)));
    let children: Vec<_> = (0..3).map(|_| spawn(&format!("count {TIMES}"), &path)).collect();
    let (mut values, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        for line in String::from_utf8(output.stdout).unwrap().split_inclusive('\n').filter_map(said) {
            let (value, version) = line.split_once(' ').unwrap();
            assert!(values.insert(value.to_owned()), "{value} was counted twice");
            assert!(versions.insert(version.to_owned()), "version {version} recurred");
        }
    }
    assert_eq!(values.len(), 3 * TIMES as usize);
    assert_eq!(read(&store, "counter"), Some((3 * TIMES).to_string()));
}

#[test]
fn processes_that_make_the_file_at_once_all_open_it() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let children: Vec<_> = (0..6).map(|_| spawn("count 0", &path)).collect();
        for child in children {
            assert!(child.wait_with_output().unwrap().status.success());
        }
    }
}
