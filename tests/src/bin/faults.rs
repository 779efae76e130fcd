//! Plants each deliberate fault of the core, one after the other, and shows which test catches it. A fault that nothing
//! catches is a hole in the tests, and makes this program fail.
//!
//! The faults stand at the decisions of the core as `cfg!(rehome_fault = "name")`, and are off in every other build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Test binaries, cheapest first.
const GATES: [&str; 3] = ["machines", "nodes", "simulation"];

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default();
    let only: Vec<String> = std::env::args().skip(1).collect();
    let mut names = BTreeSet::new();
    collect(&root.join("core/src"), &mut names);
    if names.is_empty() {
        eprintln!("no planted fault was found under {}", root.display());
        return ExitCode::FAILURE;
    }
    let mut missed = 0;
    for name in names.iter().filter(|name| only.is_empty() || only.contains(name)) {
        let started = Instant::now();
        let verdict = GATES.iter().find_map(|gate| caught(&root, name, gate));
        let seconds = started.elapsed().as_secs();
        match verdict {
            Some(test) => println!("{name:36} caught in {seconds:3} s by {test}"),
            None => {
                missed += 1;
                println!("{name:36} NOT CAUGHT in {seconds} s");
            }
        }
    }
    println!("{} planted faults, {missed} not caught", names.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All names in `cfg!(rehome_fault = "name")` below a folder.
fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let parts = text.split("rehome_fault = \"").skip(1);
            names.extend(parts.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}

/// The first test of `gate` that fails with the fault planted.
fn caught(root: &Path, fault: &str, gate: &str) -> Option<String> {
    let target: PathBuf = root.join("target/faults");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["test", "--quiet", "--package", "rehome-tests", "--test", gate])
        // With a target named, the flags stay away from build scripts and macros, which need not be built again.
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", format!("--cfg rehome_fault=\"{fault}\""))
        .env("RUST_BACKTRACE", "0")
        .output()
        .ok()?;
    if output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("could not compile") {
        eprintln!("{errors}");
        return None;
    }
    let failed =
        text.lines().find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----").map(str::to_owned));
    Some(format!("{gate}::{}", failed.unwrap_or_else(|| String::from("(the process died)"))))
}
