//! Exhaustive search over whole nodes: two of them, one object, one connection, requests with their answers. Everything
//! between the borders of a node is the core's own, timers included: a node's time goes on to its next deadline, each
//! node's on its own. What makes it finite are bounds on how often time goes on, connections end and store replies are
//! given up; so it reaches less far than the search over the machines, and sees what that cannot: queues, order, tickets,
//! links.
//!
//! Leases do not end here, the host answers at once, and the transport says at once that a record was written.

pub mod setups;
mod steps;
mod table;

pub use steps::{Act, Bounds, State, search};
