//! rehome-cli
