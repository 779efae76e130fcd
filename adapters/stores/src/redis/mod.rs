//! The engine on Redis 7 or newer: one server, or the one slot of a cluster that its hash tag belongs to. This file owns
//! the engine's front and what it says of the server's settings; it must never decide a condition, which is the scripts'.
//!
//! ## What it promises, and what not
//! - A command is one script: Redis runs nothing else in between, so batches are serializable and a page of a scan is one
//!   snapshot. A script that was sent is never sent again. Only a server that says it knows no such script is sent its
//!   text, and only where a cluster's server names another one is the command sent there: both say that nothing was done.
//! - An acknowledged write survives a kill of the server with `appendonly yes`, and a loss of power with `appendfsync
//!   always` only. With replicas an acknowledged write can be lost at a failover, and while a network is split an old
//!   primary may answer reads: Redis cannot promise more. [`Engine::warnings`] says each of these aloud.
//! - A version never recurs, also after such a loss: it holds the time of its issue.
//! - Time is the server's clock (`TIME`), taken inside the script. It must be slewed, never stepped: a step forward ends
//!   leases early, a step back makes them last longer. An end that somebody was told is final all the same.
//! - A server whose memory is full refuses writes (unknown) while reads go on. A policy that evicts keys breaks every
//!   promise, and is warned of.
//! - During the migration of its slot a cluster's answers are unknown; it goes on once the slot has its new home.
//!
//! TLS takes the process's cryptography of rustls; where none was chosen, opening a `rediss://` address chooses ring.
//! The log-in needs the right to `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `INFO`, the commands of the scripts, and for the
//! warnings `CONFIG GET`.

#![allow(clippy::wildcard_enum_match_arm, reason = "the client's enums are open")]

mod scripts;

use crate::remote::{Address, Fault, Pem, Policy, RemoteError, RemoteOptions, Server, Unopened, Worker};
use crate::{Answer, Engine, in_bounds, ready};
use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _, RedisError,
    ServerErrorKind, TlsCertificates, Value, cmd,
};
use bytes::Bytes;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, MAX_BATCH_BYTES, Mutation, StoreCommand, StoreKey, StoreReply};
use scripts::{Script, Scripts};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const NAME: &str = "redis";
/// A hundred years: microseconds beside which a server's time is still exact in a script.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A store in Redis. Once it is dropped, what was sent is still done, and then its thread ends.
#[derive(Debug)]
pub struct Redis {
    worker: Worker,
    warnings: Vec<String>,
}

impl Redis {
    /// Opens `redis://[NAME[:PASSWORD]@]HOST[:PORT][/DATABASE]`, or `rediss://` for TLS. Waits for the first connection.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open(address: &str) -> Result<Self, RemoteError> {
        Self::open_with(address, RemoteOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open_with(address: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let wrong = |error: RedisError| RemoteError::Address { engine: NAME, reason: error.to_string() };
        let Address { rest, place, user: _, options } = Address::parse(NAME, address, options)?;
        let pem = Pem::read(NAME, &options)?;
        let info = rest.as_str().into_connection_info().map_err(wrong)?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            use_ring();
        }
        let client = client(info, &pem).map_err(wrong)?;
        let tag = format!("{{{}}}", options.namespace);
        let policy = Policy { connect: options.connect_timeout, operation: options.operation_timeout, width: 1 };
        let server = RedisServer {
            info: client.get_connection_info().clone(),
            primary: Mutex::new(None),
            scripts: Scripts::new(),
            index: format!("{tag}keys"),
            ends: format!("{tag}ends"),
            sequence: format!("{tag}sequence"),
            before: format!("{tag}:"),
        };
        let (worker, warnings) = Worker::start(NAME, place, server, policy)?;
        Ok(Self { worker, warnings })
    }
}

impl Engine for Redis {
    fn execute(&self, command: StoreCommand) -> Answer {
        if !in_bounds(&command) {
            return ready(StoreReply::Invalid);
        }
        self.worker.send(command)
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

/// The client takes its cryptography from the process. Where the process has chosen none, it is ring.
fn use_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have chosen in between, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn client(info: ConnectionInfo, pem: &Pem) -> Result<Client, RedisError> {
    if pem.is_empty() {
        return Client::open(info);
    }
    let client_tls =
        pem.identity.clone().map(|(client_cert, client_key)| ::redis::ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: pem.ca.clone() })
}

struct RedisServer {
    info: ConnectionInfo,
    /// Where a server of a cluster said that the slot is.
    primary: Mutex<Option<(String, u16)>>,
    scripts: Scripts,
    index: String,
    ends: String,
    sequence: String,
    before: String,
}

impl Server for RedisServer {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> Result<MultiplexedConnection, Unopened> {
        // Taken, so that where it leads nowhere the next attempt asks the server of the address again.
        let primary = self.primary.lock().unwrap_or_else(PoisonError::into_inner).take();
        let info = match &primary {
            None => self.info.clone(),
            Some((host, port)) => self.info.clone().set_addr(moved(self.info.addr(), host, *port)),
        };
        let client = Client::open(info).map_err(unopened)?;
        // This crate's own policy has the times.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(unopened)?;
        let info: String = cmd("INFO").arg("server").query_async(&mut connection).await.map_err(unopened)?;
        let version = field(&info, "redis_version").unwrap_or("unknown");
        let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
        if major.is_none_or(|major| major < 7) {
            return Err(Unopened::Unfit(format!("its version is {version}, and this engine needs 7 or newer")));
        }
        let info: String = cmd("INFO").arg("replication").query_async(&mut connection).await.map_err(unopened)?;
        if field(&info, "role") != Some("master") {
            return Err(Unopened::Unfit(String::from("it is a replica, whose reads may lag")));
        }
        for script in [&self.scripts.read, &self.scripts.write, &self.scripts.scan] {
            let load = cmd("SCRIPT").arg("LOAD").arg(&script.text).query_async::<String>(&mut connection).await;
            let hash = load.map_err(unopened)?;
            if hash != script.hash {
                return Err(Unopened::Unfit(String::from("it names scripts in another way than Redis does")));
            }
        }
        Ok(connection)
    }

    async fn warnings(&self, mut connection: MultiplexedConnection) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut say = |text: &str| warnings.push(format!("redis: {text}"));
        let settings: Result<Vec<String>, _> = cmd("CONFIG")
            .arg("GET")
            .arg(&["appendonly", "appendfsync", "maxmemory-policy"])
            .query_async(&mut connection)
            .await;
        match settings {
            Err(_) => say("its settings cannot be read, so whether it keeps an acknowledged write is not known"),
            Ok(settings) => {
                let setting = |name: &str| {
                    settings.iter().position(|text| text == name).and_then(|place| settings.get(place + 1))
                };
                if setting("appendonly").map(String::as_str) != Some("yes") {
                    say("appendonly is not yes: acknowledged writes are lost when the server ends");
                } else if setting("appendfsync").map(String::as_str) != Some("always") {
                    say("appendfsync is not always: acknowledged writes of the last seconds are lost with the power");
                }
                if setting("maxmemory-policy").map(String::as_str) != Some("noeviction") {
                    say("maxmemory-policy is not noeviction: records may vanish when the memory is full");
                }
            }
        }
        let replication: Result<String, _> = cmd("INFO").arg("replication").query_async(&mut connection).await;
        if replication.is_ok_and(|info| field(&info, "connected_slaves") != Some("0")) {
            say("it has replicas: acknowledged writes may be lost, and two owners be named, at a failover");
        }
        let cluster: Result<String, _> = cmd("INFO").arg("cluster").query_async(&mut connection).await;
        if cluster.is_ok_and(|info| field(&info, "cluster_enabled") == Some("1")) {
            say("it is a cluster: acknowledged writes may be lost, and two owners be named, at a failover");
        }
        warnings
    }

    async fn ask(&self, connection: MultiplexedConnection, command: StoreCommand) -> Result<StoreReply, Fault> {
        match command {
            StoreCommand::Read(key) => {
                let keys: [&[u8]; 1] = [&self.record(&key)];
                let value = self.run(connection, &self.scripts.read, &keys, &[&key.0]).await?;
                read_reply(value).ok_or(Fault::Broken)
            }
            StoreCommand::Write(batch) => self.write(connection, &batch).await,
            StoreCommand::Scan { prefix, cursor, limit } => {
                let lower = [b"[", &cursor.unwrap_or_else(|| prefix.clone())[..]].concat();
                let upper = after(&prefix);
                let (limit, bytes) = (limit.to_string(), MAX_BATCH_BYTES.to_string());
                let arguments: [&[u8]; 4] = [&lower, &upper, limit.as_bytes(), bytes.as_bytes()];
                let value = self.run(connection, &self.scripts.scan, &[], &arguments).await?;
                page(value).ok_or(Fault::Broken)
            }
        }
    }
}

impl RedisServer {
    fn record(&self, key: &StoreKey) -> Vec<u8> {
        [self.before.as_bytes(), &key.0].concat()
    }

    async fn write(&self, connection: MultiplexedConnection, batch: &Batch) -> Result<StoreReply, Fault> {
        let conditions = batch.conditions.len().to_string();
        let keys = batch.conditions.iter().map(Condition::key).chain(batch.mutations.iter().map(Mutation::key));
        let records: Vec<Vec<u8>> = keys.map(|key| self.record(key)).collect();
        let ttls: Vec<String> = batch.mutations.iter().map(micros).collect();
        let mut keys: Vec<&[u8]> = vec![self.sequence.as_bytes()];
        keys.extend(records.iter().map(Vec::as_slice));
        let mut arguments: Vec<&[u8]> = vec![conditions.as_bytes()];
        for condition in &batch.conditions {
            let parts: [&[u8]; 2] = match condition {
                Condition::Missing(_) => [b"missing", b""],
                Condition::Present(_) => [b"present", b""],
                Condition::Version(_, version) => [b"version", version.as_str().as_bytes()],
            };
            arguments.extend(parts);
        }
        for (mutation, ttl) in batch.mutations.iter().zip(&ttls) {
            let parts: [&[u8]; 3] = match mutation {
                Mutation::Delete(_) => [b"delete", b"", b""],
                Mutation::Put { value, .. } => [b"put", value, ttl.as_bytes()],
            };
            arguments.extend(parts);
        }
        match self.run(connection, &self.scripts.write, &keys, &arguments).await? {
            Value::Nil => Ok(StoreReply::Conflict),
            Value::Array(versions) => {
                let versions: Option<Vec<_>> =
                    versions.into_iter().map(|value| StoreVersion::from_bytes(text(value)?).ok()).collect();
                let puts = batch.mutations.iter().filter(|mutation| matches!(mutation, Mutation::Put { .. })).count();
                versions.filter(|versions| versions.len() == puts).map(StoreReply::Applied).ok_or(Fault::Broken)
            }
            _ => Err(Fault::Broken),
        }
    }

    /// Runs a script by its name, and by its text where the server knows no such name.
    async fn run(
        &self,
        mut connection: MultiplexedConnection,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, Fault> {
        let call = |how: &str, what: &str| {
            let mut call: Cmd = cmd(how);
            call.arg(what).arg(keys.len() + 2).arg(&self.index).arg(&self.ends).arg(keys);
            call.arg(&self.before).arg(arguments);
            call
        };
        let unknown_script = ErrorKind::Server(ServerErrorKind::NoScript);
        match call("EVALSHA", &script.hash).query_async(&mut connection).await {
            Err(error) if error.kind() == unknown_script => {
                call("EVAL", &script.text).query_async(&mut connection).await.map_err(|error| self.fault(&error))
            }
            outcome => outcome.map_err(|error| self.fault(&error)),
        }
    }

    fn fault(&self, error: &RedisError) -> Fault {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                let place = error.redirect_node().and_then(|(place, _)| {
                    let (host, port) = place.rsplit_once(':')?;
                    // A server may leave its own host out.
                    let host = if host.is_empty() { host_of(self.info.addr())? } else { host.to_owned() };
                    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
                });
                *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = place;
                Fault::Elsewhere
            }
            // It has become a replica: what it was asked is not done, and a later connection may find the primary.
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Fault::Broken,
            ErrorKind::Server(_) | ErrorKind::Extension => Fault::Answered,
            _ => Fault::Broken,
        }
    }
}

fn unopened(error: RedisError) -> Unopened {
    Unopened::Connect(error.to_string())
}

fn host_of(addr: &ConnectionAddr) -> Option<String> {
    match addr {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
        _ => None,
    }
}

/// The address of another server, reached in the same way.
fn moved(addr: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    match addr {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    }
}

/// The value of a line `NAME:VALUE`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn micros(mutation: &Mutation) -> String {
    match mutation {
        Mutation::Put { ttl: Some(ttl), .. } => (*ttl).min(LONGEST).as_micros().to_string(),
        Mutation::Put { ttl: None, .. } | Mutation::Delete(_) => String::new(),
    }
}

/// The bound above all keys that begin with `prefix`, as `ZRANGEBYLEX` takes it.
fn after(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
    match kept.and_then(|last| prefix.get(..=last)).and_then(<[u8]>::split_last) {
        None => b"+".to_vec(),
        Some((last, before)) => [b"(", before, &[last.saturating_add(1)]].concat(),
    }
}

fn text(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        _ => None,
    }
}

fn found(value: Value, version: Value, left: Value) -> Option<Found> {
    let left = text(left)?;
    let ttl = if left.is_empty() {
        None
    } else {
        Some(Duration::from_micros(std::str::from_utf8(&left).ok()?.parse().ok()?))
    };
    Some(Found { value: text(value)?, version: StoreVersion::from_bytes(text(version)?).ok()?, ttl })
}

fn read_reply(value: Value) -> Option<StoreReply> {
    match value {
        Value::Nil => Some(StoreReply::Missing),
        Value::Array(parts) => {
            let [value, version, left] = parts.try_into().ok()?;
            found(value, version, left).map(StoreReply::Found)
        }
        _ => None,
    }
}

fn page(value: Value) -> Option<StoreReply> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let next = text(parts.next()?)?;
    let mut entries = Vec::with_capacity(parts.len() / 4);
    while let Some(key) = parts.next() {
        let found = found(parts.next()?, parts.next()?, parts.next()?)?;
        entries.push((StoreKey(text(key)?), found));
    }
    Some(StoreReply::Page { entries, cursor: (!next.is_empty()).then_some(next) })
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn the_bound_above_a_prefix_is_above_all_its_keys_and_no_other() {
        assert_eq!(after(b""), b"+");
        assert_eq!(after(b"\xff\xff"), b"+");
        assert_eq!(after(b"a\0"), b"(a\x01");
        assert_eq!(after(b"a\xff"), b"(b");
    }
}
