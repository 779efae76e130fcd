//! Moves live stateful objects between nodes while messages keep arriving.

pub mod budget;
pub mod channel;
pub mod chunk;
pub mod fence;
pub mod id;
pub mod link;
pub mod machine;
pub mod node;
pub mod receipt;
mod rope;
pub mod state;
pub mod store;
pub mod time;
pub mod wire;

pub use node::{Config, Input, Node, Output};
pub use rope::Rope;
