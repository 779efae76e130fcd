//! Exhaustive search over the real machines: every order of frames, store steps, timers, crashes and ended leases within
//! the bounds of a [`Setup`]. The machines, the store plans, the records and the store are the core's own; only what a
//! node does with their effects is written again here, thinly. It must never decide what a machine decides.
//!
//! What a step of a machine gives depends on nothing but the machine and its input. So machines, store contents,
//! commands and replies stand in tables, a state holds their numbers, and each step of the core runs once, however many
//! states it is part of.
//!
//! Abstracted: time (a timer may fire whenever it is armed; the store ends a lease only after its holder's guard has
//! passed), payload (one small state, one chunk, an empty boundary batch), the link (any frame that was ever sent may
//! come, at any later time, any number of times, or never), the host (answers at once), the search for a route.

mod engine;
mod names;
mod next;
mod router;
mod rules;
mod run;
mod setup;
pub mod setups;
mod state;
mod steps;
mod stores;
mod tables;
mod wants;
pub mod whole;

pub use next::Act;
pub use run::{Outcome, Searched, search, shortest};
pub use setup::{Setup, Weakening};
pub use state::State;
