//! rehome-tokio
