//! The long searches, each to its end: `cargo run --release -p rehome-tests --features model --bin model [NAME...]`.
//! Without a name all of them, and those of the tests. Prints a table; a search that finds something or does not end fails
//! the run.

use rehome_tests::model::setups::{long, usual};
use rehome_tests::model::{Searched, search, whole};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// Of one search.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

fn main() -> ExitCode {
    let wanted: BTreeSet<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(name);
    let machines = usual().into_iter().chain(long()).filter(|setup| is_wanted(setup.name));
    let nodes = whole::setups::usual().into_iter().chain(whole::setups::long()).filter(|bounds| is_wanted(bounds.name));
    let mut searches: Vec<Box<dyn FnOnce() -> Searched>> = Vec::new();
    for setup in machines {
        searches.push(Box::new(|| search(setup, LIMIT)));
    }
    for bounds in nodes {
        searches.push(Box::new(move || whole::search(bounds, LIMIT)));
    }
    let mut failed = searches.is_empty();
    let mut covered = BTreeSet::new();
    let mut all = 0;
    println!("| search | unique states | with repeats | depth | seconds | result |\n|---|---|---|---|---|---|");
    for search in searches {
        let found = search();
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
