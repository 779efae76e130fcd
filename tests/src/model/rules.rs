//! The rules that hold in every state, and what must be reachable for the search to mean anything. They look at all
//! processes, the store and what truly happened at once; no process could.

use super::state::{FOLLOWS, Gate, STALE, State, WAITS};
use super::steps::Model;
use super::tables::Tables;
use stateright::Property;

pub(super) const ONE_OWNER: &str = "promise 1: one node has dispatch open";
pub(super) const RECORD: &str = "promise 1: an object that is open is the record's tenure";
pub(super) const STRANDED: &str = "never stranded";
pub(super) const LOST: &str = "never called lost when it moved";
pub(super) const ATTEMPT: &str = "opened by the attempt that committed";
pub(super) const FROZEN: &str = "only the state that the source stopped for is committed";
pub(super) const KEPT: &str = "promise 6: what was kept never commits";
pub(super) const WAITING: &str = "a settlement that read a committed move ends";
pub(super) const FOLLOW: &str = "a follow route leads to a proved tenure";

pub(super) const ALL_OPEN: &str = "every move may open";
pub(super) const AGAIN: &str = "a second incarnation may open";
pub(super) const FENCED: &str = "a fence may keep the object";

pub(super) fn properties() -> Vec<Property<Model>> {
    vec![
        Property::always(ONE_OWNER, |_, state: &State| open(state).count() <= 1),
        Property::always(RECORD, |_, state: &State| {
            open(state).all(|life| {
                let seen = &state.seen;
                (life.process, life.incarnation, life.owner_generation)
                    == (seen.owner, seen.incarnation, seen.owner_generation)
            })
        }),
        Property::always(STRANDED, |model: &Model, state: &State| !stranded(&model.tables(), state)),
        Property::always(LOST, |_, state: &State| state.ghost.lost.0 & state.ghost.committed.0 == 0),
        Property::always(ATTEMPT, |_, state: &State| state.ghost.opened.0 & !state.ghost.committed.0 == 0),
        Property::always(FROZEN, |_, state: &State| !state.ghost.wrong.has(STALE)),
        Property::always(KEPT, |_, state: &State| state.ghost.kept.0 & state.ghost.committed.0 == 0),
        Property::always(WAITING, |_, state: &State| !state.ghost.wrong.has(WAITS)),
        Property::always(FOLLOW, |_, state: &State| !state.ghost.wrong.has(FOLLOWS)),
        Property::sometimes(ALL_OPEN, |model: &Model, state: &State| {
            state.ghost.opened.0 == (1 << model.setup.moves) - 1
        }),
        Property::sometimes(AGAIN, |model: &Model, state: &State| {
            model.setup.reclaims + model.setup.recreates == 0 || open(state).any(|life| life.incarnation > 1)
        }),
        Property::sometimes(FENCED, |_, state: &State| {
            state.ghost.kept.0 != 0 && state.frames.iter().any(|sent| sent & 16 != 0)
        }),
    ]
}

/// Lives that run turns.
fn open(state: &State) -> impl Iterator<Item = &super::state::Life> {
    state
        .lives
        .as_slice()
        .iter()
        .filter(|life| life.gate == Gate::Open && state.running.has(life.process) && state.guarded.has(life.process))
}

/// The record names a process that lives and knows nothing of the object.
fn stranded(tables: &Tables, state: &State) -> bool {
    let seen = &state.seen;
    if seen.incarnation == 0 || !state.running.has(seen.owner) || !state.leased.has(seen.owner) {
        return false;
    }
    let lives = state.lives.as_slice().iter().any(|life| {
        (life.process, life.incarnation, life.owner_generation) == (seen.owner, seen.incarnation, seen.owner_generation)
    });
    let born = state.births[usize::from(seen.owner)].incarnation == seen.incarnation;
    let staged = || {
        (0..usize::from(state.spent.moves)).any(|at| {
            let facts = tables.facts(state.facts[at]);
            state.targets[at] != 0
                && state.ghost.committed.has(facts.attempt)
                && (facts.target, facts.incarnation, facts.owner_generation + 1)
                    == (seen.owner, seen.incarnation, seen.owner_generation)
        })
    };
    !lives && !born && !staged()
}
