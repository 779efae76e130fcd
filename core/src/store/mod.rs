//! The authority store as data: commands and replies, records, and the plans that turn decisions into batches.

mod command;
mod memory;
pub mod plan;
pub mod record;

pub use command::*;
pub use memory::MemoryStore;
