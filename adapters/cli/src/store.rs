//! `rehome store`: looks at a store from outside. It reads records and says what stands in them; `check` writes only
//! under a key of its own, and removes it.

use crate::Failure;
use bytes::Bytes;
use hdrhistogram::Histogram;
use rehome::store::record::AuthorityRecord;
use rehome::store::{Batch, Condition, Found, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::Engine;
use std::time::Instant;

#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum StoreArgs {
    /// Reaches the store, says which of its settings endanger the promises, and times conditional writes.
    Check {
        /// The store: sqlite:PATH, or redis://, rediss://, postgres://, etcd:// where they are built in.
        store: String,
        /// Conditional writes of 1 KiB, one after the other.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        writes: u64,
    },
    /// Prints every record: key, version, what is left of its time, and value.
    Dump {
        /// The store.
        store: String,
        /// Only the record of this object.
        #[arg(long, value_name = "ID")]
        object: Option<String>,
    },
    /// Makes the layout that PostgreSQL needs; the other engines need none.
    Migrate {
        /// The store.
        store: String,
    },
}

pub(crate) async fn run(arguments: StoreArgs) -> Result<(), Failure> {
    match arguments {
        StoreArgs::Check { store, writes } => check(&store, writes).await,
        StoreArgs::Dump { store, object } => dump(&store, object.as_deref()).await,
        StoreArgs::Migrate { store } => migrate(&store),
    }
}

fn unexpected(reply: &StoreReply) -> Failure {
    match reply {
        StoreReply::Unknown => Failure::run("the store did not answer"),
        other => Failure::run(format!("the store answered {other:?}")),
    }
}

async fn check(store: &str, writes: u64) -> Result<(), Failure> {
    let engine = rehome_stores::open(store).map_err(Failure::usage)?;
    say!("engine     {}", engine.name());
    let warnings = engine.warnings();
    for warning in &warnings {
        say!("warning    {warning}");
    }
    if warnings.is_empty() {
        say!("settings   nothing that endangers the promises");
    }
    let key = StoreKey(Bytes::from(format!("check\0{}", std::process::id())));
    let result = time_writes(&*engine, &key, writes).await;
    let removed =
        engine.execute(StoreCommand::Write(Batch { conditions: Vec::new(), mutations: vec![Mutation::Delete(key)] }));
    let removed = removed.await;
    let times = result?;
    if !matches!(removed, StoreReply::Applied(_)) {
        return Err(unexpected(&removed));
    }
    let micros = |quantile| times.value_at_quantile(quantile);
    say!("write      p50 {} us, p99 {} us, max {} us", micros(0.5), micros(0.99), times.max());
    Ok(())
}

/// The times in microseconds of conditional writes of 1 KiB, each on condition of the version before.
async fn time_writes(engine: &dyn Engine, key: &StoreKey, writes: u64) -> Result<Histogram<u64>, Failure> {
    let mut times = Histogram::new(3).map_err(Failure::run)?;
    let mut batch = Batch::default();
    for _ in 0..=writes {
        batch.mutations = vec![Mutation::Put { key: key.clone(), value: vec![b'x'; 1024].into(), ttl: None }];
        let batch_was_first = batch.conditions.is_empty();
        let began = Instant::now();
        let reply = engine.execute(StoreCommand::Write(batch)).await;
        let StoreReply::Applied(versions) = &reply else { return Err(unexpected(&reply)) };
        // The first one makes the key, and is no conditional write.
        if !batch_was_first {
            times.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)).map_err(Failure::run)?;
        }
        let version = versions.first().cloned().ok_or_else(|| Failure::run("the store issued no version"))?;
        batch = Batch { conditions: vec![Condition::Version(key.clone(), version)], mutations: Vec::new() };
    }
    Ok(times)
}

async fn dump(store: &str, object: Option<&str>) -> Result<(), Failure> {
    let engine = rehome_stores::open(store).map_err(Failure::usage)?;
    let prefix = object.map_or_else(Bytes::new, |_| Bytes::from_static(b"authority\0"));
    let wanted =
        |key: &StoreKey| object.is_none_or(|object| key.0.rsplit(|byte| *byte == 0).next() == Some(object.as_bytes()));
    let (mut cursor, mut shown) = (None, 0u64);
    loop {
        let reply = engine.execute(StoreCommand::Scan { prefix: prefix.clone(), cursor, limit: 500 }).await;
        let StoreReply::Page { entries, cursor: next } = reply else { return Err(unexpected(&reply)) };
        for (key, found) in entries.iter().filter(|(key, _)| wanted(key)) {
            show(key, found);
            shown += 1;
        }
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    match (object, shown) {
        (Some(object), 0) => Err(Failure::usage(format!("there is no record of '{object}'"))),
        _ => Ok(()),
    }
}

fn show(key: &StoreKey, found: &Found) {
    let parts: Vec<String> = key.0.split(|byte| *byte == 0).map(|part| part.escape_ascii().to_string()).collect();
    let left = found.ttl.map_or_else(String::new, |left| format!(", {:.1} s left", left.as_secs_f64()));
    say!("{} (version {}{left})", parts.join(" "), found.version.as_str());
    say!("    {}", String::from_utf8_lossy(&found.value));
    if key.0.starts_with(b"authority\0")
        && let Ok(record) = AuthorityRecord::decode(&found.value)
    {
        let made = record.slot.tenure_by.map_or_else(|| String::from("no move"), |id| format!("relocation {id}"));
        say!("    owned by {} on {}, made by {made}", record.owner.owner, record.node);
    }
}

/// Whether the store needs [`migrate`].
fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

fn migrate(store: &str) -> Result<(), Failure> {
    if is_postgres(store) {
        make_layout(store)?;
        say!("the layout is there");
        return Ok(());
    }
    // Opening it says what is wrong with the address.
    let engine = rehome_stores::open(store).map_err(Failure::usage)?;
    say!("{} needs no preparation", engine.name());
    Ok(())
}

#[cfg(feature = "postgres")]
fn make_layout(store: &str) -> Result<(), Failure> {
    rehome_stores::Postgres::migrate(store).map_err(Failure::usage)
}

/// Opening it says that it is not built in.
#[cfg(not(feature = "postgres"))]
fn make_layout(store: &str) -> Result<(), Failure> {
    rehome_stores::open(store).map(drop).map_err(Failure::usage)
}

/// A demonstration's place in a store over a network: what an earlier one left there is not its own.
pub(crate) fn own_namespace(store: &str) -> String {
    if !store.contains("://") || store.contains("namespace=") {
        return store.to_owned();
    }
    let unique =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let joint = if store.contains('?') { '&' } else { '?' };
    format!("{store}{joint}namespace=demo{unique}")
}

/// Makes a store ready for a demonstration, says what endangers its promises, and names its engine.
pub(crate) fn prepare(store: &str) -> Result<&'static str, Failure> {
    if store.starts_with("memory:") {
        return Err(Failure::usage("a store in memory is not shared by processes"));
    }
    if is_postgres(store) {
        make_layout(store)?;
    }
    let engine = rehome_stores::open(store).map_err(Failure::usage)?;
    for warning in engine.warnings() {
        eprintln!("rehome: warning: {warning}");
    }
    Ok(engine.name())
}
