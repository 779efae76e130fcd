//! The search's view of the model.

use super::next::Act;
use super::rules;
use super::setup::Setup;
use super::state::{PROCS, State};
use super::tables::Tables;
use stateright::Property;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A setup with its tables.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) setup: Setup,
    tables: Mutex<Tables>,
    first: State,
}

impl Model {
    pub(super) fn new(setup: Setup) -> Self {
        assert!(setup.processes() <= PROCS && usize::from(setup.moves) <= super::state::MOVES, "too large a setup");
        let mut tables = Tables::new(setup.clone());
        let first = tables.first(&setup);
        Self { setup, tables: Mutex::new(tables), first }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        self.possible(&self.tables(), state, actions);
    }

    fn next_state(&self, state: &State, action: Act) -> Option<State> {
        self.after(&mut self.tables(), state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }
}
