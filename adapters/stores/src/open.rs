//! Engines by address.

use crate::Engine;
use std::sync::Arc;

/// Why a store cannot be opened: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is of no known form, or its engine is not built in.
    #[error("'{0}' is not a store address; known are memory: and sqlite:PATH")]
    Address(String),
    /// SQLite said no.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::SqliteError),
}

/// Opens `memory:` (a store of its own at each call) or `sqlite:PATH`.
///
/// # Errors
/// See [`OpenError`].
pub fn open(address: &str) -> Result<Arc<dyn Engine>, OpenError> {
    match address.split_once(':') {
        #[cfg(feature = "memory")]
        Some(("memory", "")) => Ok(Arc::new(crate::Memory::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.is_empty() => Ok(Arc::new(crate::Sqlite::open(path.as_ref())?)),
        Some(_) | None => Err(OpenError::Address(address.to_owned())),
    }
}
