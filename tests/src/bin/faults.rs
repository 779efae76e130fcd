//! Negative controls: plants each deliberate fault in the core and shows which test catches it. A fault that nothing
//! catches fails the run. The tests are built once, with all faults in them; which one is on is chosen at run time.
//!
//! `cargo run -p rehome-tests --bin faults [NAME...]`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

/// The tests that try, in the order in which they are tried: the last ones take their time, and run only where the
/// others see nothing.
const GATES: [&[&str]; 3] =
    [&["machines", "nodes", "promises", "traps", "attempts", "births"], &["simulation"], &["model"]];

/// Every name that stands in a `planted!("...")` of the core.
fn planted(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            planted(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            for rest in text.split("planted!(\"").skip(1) {
                found.extend(rest.split('"').next().map(str::to_owned));
            }
        }
    }
}

/// Builds the tests and returns the programs by name.
fn build(root: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("faults");
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["test", "--locked", "--no-run", "--message-format", "json", "-p", "rehome-tests"]);
    command.arg("--target-dir").arg(target).env("RUSTFLAGS", "--cfg rehome_faults");
    for gate in GATES.iter().flat_map(|gates| gates.iter()) {
        command.args(["--test", gate]);
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from("the tests do not build"));
    }
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let (Some(name), Some(program)) = (message["target"]["name"].as_str(), message["executable"].as_str()) {
            programs.insert(name.to_owned(), PathBuf::from(program));
        }
    }
    Ok(programs)
}

/// What became of one fault.
struct Tried {
    /// The tests that fail with it.
    gates: Vec<String>,
    /// The first thing that one of them said.
    reason: String,
    seconds: f64,
}

/// Runs the tests with a fault; with none where `name` is empty.
fn try_fault(root: &Path, programs: &BTreeMap<String, PathBuf>, name: &str) -> Tried {
    let began = Instant::now();
    let mut tried = Tried { gates: Vec::new(), reason: String::from("-"), seconds: 0.0 };
    for gates in GATES {
        let mut text = String::new();
        for gate in gates {
            let Some(program) = programs.get(*gate) else { continue };
            let mut command = Command::new(program);
            command.current_dir(root.join("tests")).env("REHOME_PLANTED_FAULT", name).env("RUST_BACKTRACE", "0");
            // Which seeds catch it must not be luck.
            command.env("REHOME_FRESH", "0");
            match command.output() {
                Ok(output) => text += &String::from_utf8_lossy(&output.stdout),
                Err(error) => text += &format!("---- {gate} stdout ----\n{error}"),
            }
        }
        let failed = |line: &str| {
            line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")).map(str::to_owned)
        };
        tried.gates.extend(text.lines().filter_map(failed));
        let said =
            |line: &&str| ["promise ", "model: ", "liveness", "assertion"].iter().any(|start| line.starts_with(start));
        if let Some(reason) = text.lines().find(said) {
            reason[..reason.floor_char_boundary(100)].replace('|', "/").clone_into(&mut tried.reason);
        }
        if !tried.gates.is_empty() {
            break;
        }
    }
    tried.seconds = began.elapsed().as_secs_f64();
    tried
}

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = BTreeSet::new();
    planted(&root.join("core/src"), &mut names);
    let wanted: BTreeSet<String> = std::env::args().skip(1).collect();
    if !wanted.is_empty() {
        names.retain(|name| wanted.contains(name));
    }
    let programs = match build(&root) {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // A test that fails anyway catches nothing.
    let sound = try_fault(&root, &programs, "");
    if !sound.gates.is_empty() {
        println!("without a fault these fail: {}", sound.gates.join(", "));
        return ExitCode::FAILURE;
    }
    println!("| planted fault | seconds | caught by | as |\n|---|---|---|---|");
    let left = Mutex::new(names.iter());
    let missed = Mutex::new(BTreeSet::new());
    let jobs = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let Some(name) = left.lock().ok().and_then(|mut left| left.next()) else { return };
                    let Tried { gates, reason, seconds } = try_fault(&root, &programs, name);
                    let caught = match gates.as_slice() {
                        [] => String::from("**nothing**"),
                        [first] => first.clone(),
                        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
                    };
                    println!("| {name} | {seconds:.1} | {caught} | {reason} |");
                    if gates.is_empty()
                        && let Ok(mut missed) = missed.lock()
                    {
                        missed.insert(name.as_str());
                    }
                }
            });
        }
    });
    match missed.into_inner() {
        Ok(missed) if missed.is_empty() && !names.is_empty() => {
            println!("\nall {} are caught", names.len());
            ExitCode::SUCCESS
        }
        Ok(missed) => {
            println!("\nnot caught: {}", missed.into_iter().collect::<Vec<_>>().join(", "));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}
