//! A deterministic world for the protocol core: real nodes, a store, objects, clients, one virtual clock and one seed.
//! Faults come at the rates of a [`Profile`]; the oracles look at everything after every step.

// The world looks at some events and answers and lets the others pass.
#![allow(clippy::wildcard_enum_match_arm)]

mod chance;
mod host;
pub mod model;
mod oracle;
mod profile;
mod world;

pub use chance::Chance;
pub use profile::Profile;
pub use world::{
    HostFault, RecordFault, StoreFault, Summary, World, commits, reads_lease, reads_record, run, run_schedule,
};
