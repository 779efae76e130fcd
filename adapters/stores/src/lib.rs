//! rehome-stores
