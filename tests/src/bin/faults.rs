//! Negative controls: builds the core with each planted fault and shows which test catches it. A fault that nothing
//! catches fails the run. It is its own compiler wrapper, so that only this project's crates are built again.
//!
//! `cargo run -p rehome-tests --bin faults [NAME...]`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const FAULT: &str = "REHOME_PLANTED_FAULT";

fn main() -> ExitCode {
    match std::env::var(FAULT) {
        Ok(fault) => compile(&fault),
        Err(_) => run(),
    }
}

/// As cargo's wrapper: the compiler and its arguments, with the fault's flag.
fn compile(fault: &str) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(compiler) = arguments.next() else { return ExitCode::FAILURE };
    let status = Command::new(compiler).args(arguments).args(["--cfg", &format!("rehome_fault=\"{fault}\"")]).status();
    if status.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every name that stands in a `rehome_fault = "..."` of the core.
fn planted(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            planted(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            for rest in text.split("rehome_fault = \"").skip(1) {
                found.extend(rest.split('"').next().map(str::to_owned));
            }
        }
    }
}

fn run() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = BTreeSet::new();
    planted(&root.join("core/src"), &mut names);
    let wanted: BTreeSet<String> = std::env::args().skip(1).collect();
    if !wanted.is_empty() {
        names.retain(|name| wanted.contains(name));
    }
    let Ok(wrapper) = std::env::current_exe() else { return ExitCode::FAILURE };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("faults");
    let mut missed = Vec::new();
    println!("| planted fault | caught by | as |\n|---|---|---|");
    for name in &names {
        let (gates, reason) = try_fault(&root, &wrapper, &target, name);
        let caught = if gates.is_empty() { String::from("**nothing**") } else { gates.join(", ") };
        println!("| {name} | {caught} | {reason} |");
        if gates.is_empty() {
            missed.push(name.as_str());
        }
    }
    if missed.is_empty() && !names.is_empty() {
        println!("\nall {} are caught", names.len());
        ExitCode::SUCCESS
    } else {
        println!("\nnot caught: {}", missed.join(", "));
        ExitCode::FAILURE
    }
}

/// The tests that fail with the fault, and the first thing that an oracle said.
fn try_fault(root: &Path, wrapper: &Path, target: &Path, name: &str) -> (Vec<String>, String) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cargo does not know about the flag: what was built for the last fault must go.
    let cleaned = Command::new(&cargo)
        .current_dir(root)
        .args(["clean", "--quiet", "-p", "rehome", "-p", "rehome-tests", "--target-dir"])
        .arg(target)
        .status();
    if !cleaned.is_ok_and(|status| status.success()) {
        return (Vec::new(), String::from("cargo clean failed"));
    }
    // The scenarios take a second; the histories run where these see nothing, and then the searches.
    let mut text = String::new();
    for tests in [["machines", "nodes", "promises", "traps", "attempts"].as_slice(), &["simulation"], &["model"]] {
        let mut command = Command::new(&cargo);
        command.current_dir(root).args(["test", "--quiet", "--no-fail-fast", "-p", "rehome-tests", "--target-dir"]);
        command.arg(target).env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(FAULT, name).env("RUST_BACKTRACE", "0");
        // Which seeds catch it must not be luck.
        command.env("REHOME_FRESH", "0");
        for test in tests {
            command.args(["--test", test]);
        }
        let Ok(output) = command.output() else { return (Vec::new(), String::from("cargo did not start")) };
        text += &String::from_utf8_lossy(&output.stdout);
        text += &String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            break;
        }
    }
    let mut gates = Vec::new();
    for line in text.lines() {
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            gates.push(test.to_owned());
        }
    }
    let said =
        |line: &&str| ["promise ", "model: ", "liveness", "assertion"].iter().any(|start| line.starts_with(start));
    let mut reason = text.lines().find(said).unwrap_or("-").to_owned();
    reason.truncate(reason.floor_char_boundary(110));
    (gates, reason.replace('|', "/"))
}
