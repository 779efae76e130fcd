//! The long searches, each to its end: `cargo run --release -p rehome-tests --bin model [NAME...]`. Without a name all of
//! them, and those of the tests. Prints a table; a search that finds something or does not end fails the run.

use rehome_tests::model::setups::{long, usual};
use rehome_tests::model::{Setup, search};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let wanted: BTreeSet<String> = std::env::args().skip(1).collect();
    let mut setups: Vec<Setup> = usual().into_iter().chain(long()).collect();
    if !wanted.is_empty() {
        setups.retain(|setup| wanted.contains(setup.name));
    }
    let mut failed = setups.is_empty();
    let mut covered = BTreeSet::new();
    let mut all = 0;
    println!("| search | unique states | with repeats | depth | seconds | result |\n|---|---|---|---|---|---|");
    for setup in setups {
        let found = search(setup, Duration::from_secs(6 * 3600));
        let result = match found.broken.first() {
            Some(broken) => format!("**{}** in {} steps", broken.rule, broken.steps),
            None if !found.complete => String::from("**not over**"),
            None if !found.unreached.is_empty() => format!("**never reached: {:?}**", found.unreached),
            None => String::from("complete"),
        };
        let seconds = found.took.as_secs_f64();
        println!("| {} | {} | {} | {} | {seconds:.1} | {result} |", found.name, found.unique, found.total, found.depth);
        if let Some(broken) = found.broken.first() {
            println!("{}", broken.path);
        }
        failed |= result != "complete";
        all += found.unique;
        covered.extend(found.covered);
    }
    println!("\n{all} states, {} inputs in states of the machines", covered.len());
    for (machine, state, input) in covered {
        println!("{machine} {state} {input}");
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
