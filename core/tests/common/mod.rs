//! What the codec tests share: the vectors, their fields as values, and strategies for all values.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod fields;
pub mod strategies;
pub mod vectors;
