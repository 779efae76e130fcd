//! Runs a search to its end. One that stops before is no result: it fails.

use super::setup::Setup;
use super::steps::Model;
use stateright::{Checker, HasDiscoveries, Model as _};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rule that is broken.
    pub rule: &'static str,
    /// Steps to it.
    pub steps: usize,
    /// The steps, one a line.
    pub path: String,
}

/// A search that came to its end.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The setup's name.
    pub name: &'static str,
    /// States, each counted once.
    pub unique: usize,
    /// States with repeats.
    pub total: usize,
    /// The longest path.
    pub depth: usize,
    /// The time it took.
    pub took: Duration,
    /// Whether every state was seen: there was time enough and nothing was found.
    pub complete: bool,
    /// Broken rules.
    pub broken: Vec<Outcome>,
    /// What must be reachable and was not.
    pub unreached: Vec<&'static str>,
    /// Inputs in states of the machines that came up: machine, state, input.
    pub covered: BTreeSet<(&'static str, &'static str, &'static str)>,
    /// Distinct values: stores, commands, replies, sources, targets, steps.
    pub values: [usize; 6],
}

/// Depth first, to the end or until `limit` has passed.
pub fn search(setup: Setup, limit: Duration) -> Searched {
    let name = setup.name;
    let start = Instant::now();
    let checker = Model::new(setup)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(1)
        .timeout(limit)
        .spawn_dfs()
        .join();
    of_machines(name, &checker, start, limit)
}

/// Breadth first: the first counterexample is a shortest one. Only for searches that are meant to fail.
pub fn shortest(setup: Setup, limit: Duration) -> Searched {
    let name = setup.name;
    let start = Instant::now();
    let checker = Model::new(setup)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(1)
        .timeout(limit)
        .spawn_bfs()
        .join();
    of_machines(name, &checker, start, limit)
}

/// What a checker of whatever model has found.
pub(super) fn ended<M>(name: &'static str, checker: &impl Checker<M>, start: Instant, limit: Duration) -> Searched
where
    M: stateright::Model,
    M::State: Clone + PartialEq + std::fmt::Debug + std::hash::Hash,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let took = start.elapsed();
    let mut broken = Vec::new();
    let mut unreached = Vec::new();
    let mut found = checker.discoveries();
    for property in checker.model().properties() {
        match (property.expectation, found.remove(property.name)) {
            (stateright::Expectation::Always, Some(path)) => {
                let acts = path.into_actions();
                let text: Vec<String> = acts.iter().map(|act| format!("{act:?}")).collect();
                broken.push(Outcome { rule: property.name, steps: acts.len(), path: text.join("\n") });
            }
            (stateright::Expectation::Sometimes, None) => unreached.push(property.name),
            (
                stateright::Expectation::Always
                | stateright::Expectation::Sometimes
                | stateright::Expectation::Eventually,
                _,
            ) => {}
        }
    }
    Searched {
        name,
        unique: checker.unique_state_count(),
        total: checker.state_count(),
        depth: checker.max_depth(),
        took,
        // The checker says that it is done also when its time is over: the clock tells the two apart.
        complete: checker.is_done() && took < limit && broken.is_empty(),
        broken,
        unreached,
        covered: BTreeSet::new(),
        values: [0; 6],
    }
}

fn of_machines(name: &'static str, checker: &impl Checker<Model>, start: Instant, limit: Duration) -> Searched {
    let mut found = ended(name, checker, start, limit);
    let tables = checker.model().tables();
    found.covered.clone_from(&tables.covered);
    found.values = tables.sizes();
    found
}
