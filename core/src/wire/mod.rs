//! Bytes between nodes: the published record layout, and this project's own link records.

mod record;

pub use record::*;
