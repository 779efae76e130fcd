//! What the codec tests share: the vectors, their fields as values, and strategies for all values.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod fields;
pub mod strategies;
pub mod vectors;
