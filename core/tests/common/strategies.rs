//! Strategies for all values of the wire.
