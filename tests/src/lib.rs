//! rehome-tests
