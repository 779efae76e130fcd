//! rehome-benches
