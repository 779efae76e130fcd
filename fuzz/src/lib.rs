//! The bodies of the fuzz targets, without an engine: what a target does with its bytes, and what it calls a fault.
//! A fault is a panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a target reports a fault")]

pub use arbitrary;

pub mod decode;
pub mod lone;
pub mod node;
