//! The program as its user meets it: what it prints, how it ends, and that bad input costs nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn rehome(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rehome"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Ended with status 2 and one sentence that has `about` in it.
#[track_caller]
fn refused(output: &Output, about: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(about), "{said}");
    assert!(said.starts_with("rehome: ") || said.starts_with("error: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.starts_with("error: ") || said.trim_end().lines().count() == 1, "one sentence: {said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for (arguments, about) in [
        (&[][..], "Usage"),
        (&["juggle"], "juggle"),
        (&["demo", "--no-such-flag"], "--no-such-flag"),
        (&["demo", "--nodes", "1"], "2..=32"),
        (&["demo", "--moves", "many"], "many"),
        (&["demo", "--state-bytes", "-1"], "-1"),
        (&["demo", "--report", "/no/such/folder/report.html"], "/no/such/folder/report.html"),
        (&["node"], "--config"),
        (&["node", "--config", "/no/such/file.toml"], "/no/such/file.toml"),
        (&["decode", "xyz"], "hex"),
        (&["decode", "5a4d"], "byte"),
    ] {
        let output = rehome(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(about), "{arguments:?}: {said}");
    }
}

/// A configuration of `rehome node` in `folder`, with one thing changed by the caller.
fn config(folder: &Path, store: &str, listen: &str, more: &str) -> String {
    let path = folder.join("node.toml");
    std::fs::write(&path, format!("name = \"node-a\"\nstore = \"{store}\"\nlisten = \"{listen}\"\n{more}"))
        .expect("a file");
    path.display().to_string()
}

#[test]
fn a_node_that_cannot_start_says_why_and_touches_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let good = format!("sqlite:{}", place.join("store.sqlite").display());
    let node =
        |store: &str, listen: &str, more: &str| rehome(&["node", "--config", &config(place, store, listen, more)]);

    refused(&node(&good, "127.0.0.1:0", "colour = \"red\""), "colour");
    refused(&node(&good, "nowhere", ""), "node.toml");
    refused(&node("papyrus:x", "127.0.0.1:0", ""), "papyrus");
    refused(&node("sqlite:/no/such/folder/store", "127.0.0.1:0", ""), "/no/such/folder/store");

    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    refused(&node(&good, &address, ""), &address);

    let letter = place.join("letter.txt");
    std::fs::write(&letter, "Dear reader,").expect("a file");
    refused(&node(&format!("sqlite:{}", letter.display()), "127.0.0.1:0", ""), "letter.txt");
    assert_eq!(std::fs::read_to_string(&letter).expect("the file"), "Dear reader,");
}

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn node(config: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rehome"));
    command.args(["node", "--config", config]).stdin(Stdio::null()).stdout(Stdio::piped());
    Running(command.spawn().expect("the program starts"))
}

fn terminate(node: &Running) {
    let id = rustix::process::Pid::from_child(&node.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
}

#[test]
fn a_node_serves_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let mut node = node(&config(folder.path(), &store, "127.0.0.1:0", ""));
    let mut lines = BufReader::new(node.0.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("UTF-8");
    let first = line();
    assert!(first.starts_with("node node-a/") && first.contains(" serves on 127.0.0.1:"), "{first}");
    terminate(&node);
    let ends = [line(), line()];
    assert!(ends[0].ends_with(" shuts down") && ends[1].ends_with(" is over"), "{ends:?}");
    assert!(node.0.wait().expect("it ends").success());
}

#[test]
fn a_node_whose_reader_has_gone_still_shuts_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let mut node = node(&config(folder.path(), &store, "127.0.0.1:0", ""));
    let mut first = String::new();
    BufReader::new(node.0.stdout.take().expect("a pipe")).read_line(&mut first).expect("UTF-8");
    terminate(&node);
    assert!(node.0.wait().expect("it ends").success());
}

#[test]
fn a_record_is_shown_field_by_field_and_a_bad_one_with_the_place() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../core/tests/vectors/records.json")).expect("JSON");
    let records = vectors["records"].as_array().expect("a list");
    assert!(records.len() > 10);
    for record in records {
        let hex = record["hex"].as_str().expect("text");
        let shown = rehome(&["decode", hex]);
        // Some records have a second frame, which the vectors leave out.
        if shown.status.success() {
            assert!(text(&shown.stdout).contains("relocation") || text(&shown.stdout).lines().count() > 2);
        } else {
            refused(&shown, "byte");
        }
        refused(&rehome(&["decode", &hex[..hex.len() - 2]]), "byte");
    }
    // The same from standard input, a frame a line.
    let hex = records[0]["hex"].as_str().expect("text");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rehome"))
        .arg("decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    writeln!(child.stdin.take().expect("a pipe"), "{hex}").expect("it reads");
    assert_eq!(child.wait_with_output().expect("it ends").stdout, rehome(&["decode", hex]).stdout);
}

#[test]
fn a_small_demonstration_is_judged_good_and_draws_its_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.html").display().to_string();
    let output = rehome(&[
        "demo",
        "--objects",
        "20",
        "--clients",
        "2",
        "--moves",
        "40",
        "--seed",
        "3",
        "--json",
        "--report",
        &report,
    ]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    let verdict: serde_json::Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    for zero in ["lost", "duplicated", "reordered", "double_run", "unbalanced"] {
        assert_eq!(verdict[zero], 0, "{verdict}");
    }
    assert_eq!((verdict["moves"].as_u64(), verdict["objects"].as_u64()), (Some(40), Some(20)));
    assert!(verdict["moved"].as_u64() > Some(30) && verdict["requests"] == verdict["answered"], "{verdict}");
    let page = std::fs::read_to_string(&report).expect("the report");
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(!page.contains("http"), "it loads nothing");
}

/// A process that has ended and is not waited for yet is none any more.
#[cfg(target_os = "linux")]
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[cfg(target_os = "linux")]
#[test]
fn a_demonstration_that_is_killed_leaves_no_process_behind() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rehome"));
    command.args(["demo", "--moves", "1000000", "--objects", "5"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut demo = Running(command.spawn().expect("the program starts"));
    let id = demo.0.id();
    let nodes = || std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    while nodes().split_whitespace().count() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let nodes: Vec<String> = nodes().split_whitespace().map(str::to_owned).collect();
    // They have all begun, as far as asking to end with it; one is stopped and cannot hear of anything.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let stopped = rustix::process::Pid::from_raw(nodes[0].parse().expect("a number")).expect("a process");
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).expect("it is there");
    demo.0.kill().expect("it is there");
    demo.0.wait().expect("it ends");
    for _ in 0..1000 {
        if !nodes.iter().any(|node| lives(node)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("still there: {:?}", nodes.iter().filter(|node| lives(node)).collect::<Vec<_>>());
}

/// The anonymous memory of the processes that `parent` started, in bytes.
#[cfg(target_os = "linux")]
fn children_memory(parent: u32) -> u64 {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let anonymous = |pid: &str| {
        let status = read(format!("/proc/{pid}/status"));
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    read(format!("/proc/{parent}/task/{parent}/children")).split_whitespace().map(anonymous).sum()
}

/// The most memory that the two nodes of a demonstration had together while one object of this size moved.
#[cfg(target_os = "linux")]
fn most_memory(size: u64) -> u64 {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_rehome"))
        .args(["demo", "--nodes", "2", "--objects", "1", "--clients", "1", "--moves", "4", "--state-bytes"])
        .arg(size.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut most = 0;
    loop {
        most = most.max(children_memory(demo.id()));
        match demo.try_wait().expect("a child") {
            Some(status) => break assert!(status.success()),
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    most
}

#[cfg(target_os = "linux")]
#[test]
fn a_large_object_moves_with_little_more_memory_than_its_size() {
    const SIZE: u64 = 64 << 20;
    // The sample object makes its ballast when it is captured and drops it when it is restored: all of it is extra.
    let extra = most_memory(SIZE).saturating_sub(most_memory(1 << 10));
    assert!(extra > SIZE, "no move was seen: {extra} bytes");
    assert!(extra * 10 < SIZE * 22, "{:.2} times its size", extra as f64 / SIZE as f64);
}

#[test]
fn a_simulation_says_what_it_did_and_fails_if_that_is_too_little() {
    let small = ["simulate", "--seeds", "3..6", "--acts", "60", "--jobs", "2", "--twice", "--json"];
    let output = rehome(&small);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    assert!(json["histories"] == 27 && json["moved"].as_u64() > Some(10), "{json}");
    // The same seeds make the same histories, however many run at once.
    let again = rehome(&["simulate", "--seeds", "3..6", "--acts", "60", "--jobs", "1", "--json"]);
    let again: serde_json::Value =
        serde_json::from_str(text(&again.stdout).lines().last().expect("a line")).expect("JSON");
    for figure in ["moved", "kept_source", "turns", "answered", "inputs", "faults"] {
        assert_eq!(again[figure], json[figure], "{figure}");
    }
    for (least, too_few) in [("--least-moves", "moves are too few"), ("--least-kinds", "kinds of fault")] {
        let output = rehome(&["simulate", "--seeds", "3..4", "--profile", "calm", "--acts", "20", least, "1000000"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(too_few), "{}", text(&output.stderr));
    }
    refused(&rehome(&["simulate", "--profile", "stormy"]), "stormy");
    refused(&rehome(&["simulate", "--seeds", "7..7"]), "empty");
}

#[test]
fn a_written_history_is_shown_step_by_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.json").display().to_string();
    let history = r#"{"version":1,"profile":"calm","seed":1,"seed_acts":400,"fault":"promise 1: none","acts":5,"choices":[0,1,true,null,7]}"#;
    std::fs::write(&file, history).expect("a file");
    let whole = rehome(&["replay", &file]);
    assert!(whole.status.success());
    let lines: Vec<String> = text(&whole.stdout).lines().map(str::to_owned).collect();
    assert!(lines.len() > 100 && lines.iter().any(|line| line.contains("everything heals")));
    assert!(lines.last().is_some_and(|line| line.starts_with("no oracle speaks")));
    let end = rehome(&["replay", &file, "--last", "10"]);
    assert_eq!(text(&end.stdout).lines().count(), 11);
    // One step, and then no more input.
    let step = rehome(&["replay", &file, "--step"]);
    assert_eq!(text(&step.stdout).lines().collect::<Vec<_>>(), [&lines[0]]);
    std::fs::write(&file, history.replace("calm", "stormy")).expect("a file");
    refused(&rehome(&["replay", &file]), "stormy");
    std::fs::write(&file, history.replace("\"version\":1", "\"version\":9")).expect("a file");
    refused(&rehome(&["replay", &file]), "version 9");
    refused(&rehome(&["replay", "/no/such/history.json"]), "/no/such/history.json");
}

#[test]
fn a_store_is_looked_at_from_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let said = |arguments: &[&str]| {
        let output = rehome(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(said(&["store", "migrate", &store]).contains("needs no preparation"));
    let checked = said(&["store", "check", &store, "--writes", "20"]);
    assert!(checked.contains("engine     sqlite") && checked.contains("p50"), "{checked}");
    assert_eq!(said(&["store", "dump", &store]), "", "the check leaves nothing");
    let demo = ["demo", "--store", &store, "--objects", "5", "--clients", "1", "--moves", "10"];
    said(&demo);
    let dump = said(&["store", "dump", &store]);
    assert_eq!(dump.lines().filter(|line| line.starts_with("authority actor object-")).count(), 5, "{dump}");
    assert!(dump.contains("made by relocation") && dump.contains("mesh-node demo"), "{dump}");
    let one = said(&["store", "dump", &store, "--object", "object-3"]);
    assert!(one.starts_with("authority actor object-3 (version ") && one.lines().count() == 3, "{one}");
    refused(&rehome(&["store", "dump", &store, "--object", "nobody"]), "nobody");
    refused(&rehome(&["store", "check", "papyrus:x"]), "papyrus");
    refused(&rehome(&["demo", "--store", "memory:"]), "memory");
}

#[cfg(not(feature = "redis"))]
#[test]
fn an_engine_that_is_not_built_in_is_named() {
    refused(&rehome(&["store", "check", "redis://127.0.0.1:1"]), "feature 'redis'");
    refused(&rehome(&["demo", "--store", "redis://127.0.0.1:1"]), "feature 'redis'");
}
