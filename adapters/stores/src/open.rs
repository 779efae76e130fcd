//! Engines by address.

use crate::Engine;
use std::sync::Arc;

/// Why a store cannot be opened: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is of no known form.
    #[error(
        "'{0}' is not a store address; known are memory:, sqlite:PATH, redis://, rediss://, postgres:// and etcd://"
    )]
    Address(String),
    /// The engine is known and not part of this program.
    #[error("this program has no {feature} engine: build it with the feature '{feature}' of rehome-stores")]
    NotBuiltIn {
        /// The feature of this crate.
        feature: &'static str,
    },
    /// SQLite said no.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::SqliteError),
    /// A server said no, or none was there.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Remote(#[from] crate::RemoteError),
}

/// Opens `memory:` (a store of its own at each call), `sqlite:PATH`, `redis://`, `rediss://`, `postgres://` or
/// `etcd://`, where the engine is built in. Those over a network wait for their first connection.
///
/// # Errors
/// See [`OpenError`].
pub fn open(address: &str) -> Result<Arc<dyn Engine>, OpenError> {
    let Some((scheme, rest)) = address.split_once(':') else { return Err(OpenError::Address(shown(address))) };
    match scheme {
        "memory" if rest.is_empty() => memory(),
        "sqlite" if !rest.is_empty() => sqlite(rest),
        "redis" | "rediss" if rest.starts_with("//") => redis(address),
        "postgres" | "postgresql" if rest.starts_with("//") => postgres(address),
        "etcd" if rest.starts_with("//") => etcd(address),
        _ => Err(OpenError::Address(shown(address))),
    }
}

/// The address without what may be a password.
fn shown(address: &str) -> String {
    match (address.find("//"), address.rfind('@')) {
        (Some(start), Some(end)) if start + 2 < end => {
            let (before, after) = (address.get(..start + 2), address.get(end..));
            format!("{}...{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => address.to_owned(),
    }
}

macro_rules! engine {
    ($name:ident, $feature:literal, |$address:ident| $open:expr) => {
        #[cfg(feature = $feature)]
        fn $name($address: &str) -> Result<Arc<dyn Engine>, OpenError> {
            Ok(Arc::new($open))
        }

        #[cfg(not(feature = $feature))]
        fn $name(_: &str) -> Result<Arc<dyn Engine>, OpenError> {
            Err(OpenError::NotBuiltIn { feature: $feature })
        }
    };
}

engine!(sqlite, "sqlite", |path| crate::Sqlite::open(path.as_ref())?);
engine!(redis, "redis", |address| crate::Redis::open(address)?);
engine!(postgres, "postgres", |address| crate::Postgres::open(address)?);
engine!(etcd, "etcd", |address| crate::Etcd::open(address)?);

#[cfg(feature = "memory")]
fn memory() -> Result<Arc<dyn Engine>, OpenError> {
    Ok(Arc::new(crate::Memory::new()))
}

#[cfg(not(feature = "memory"))]
fn memory() -> Result<Arc<dyn Engine>, OpenError> {
    Err(OpenError::NotBuiltIn { feature: "memory" })
}
