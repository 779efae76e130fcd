//! A deterministic world for the protocol core: real nodes, a store, objects, clients, one virtual clock and one seed.
//! Faults come at the rates of a [`Profile`]; the oracles look at everything after every step.

// The world looks at some events and answers and lets the others pass.
#![allow(clippy::wildcard_enum_match_arm)]

mod chance;
mod host;
#[cfg(feature = "model")]
pub mod model;
mod oracle;
mod profile;
mod shrink;
mod world;

pub use chance::{Chance, Choice};
pub use profile::Profile;
pub use shrink::{Script, shrink};
pub use world::{
    HostFault, RecordFault, StoreFault, Summary, World, commits, key, reads_lease, reads_record, rid, run,
    run_schedule, run_script, script_of,
};
