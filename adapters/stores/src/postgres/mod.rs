//! The engine on PostgreSQL 13 or newer. This file owns the engine's front and what it says of the server's settings; it
//! must never decide a condition, which is the server's functions' part.
//!
//! ## What it promises, and what not
//! - A batch is one call of one function, in one transaction and one round trip: serializable, keys that are absent or
//!   expired included, because all its locks are held before it takes the time and looks. A call that was sent is never
//!   sent again, unless the server said that it did nothing because a key had just ended.
//! - A serialization failure, a deadlock or a time-out of the server is unknown, though the server did nothing: whoever
//!   asked reads again, as after any unknown answer.
//! - An acknowledged write survives whatever the server's commits survive: with `fsync` or `synchronous_commit` off not
//!   even a loss of power, and a failover only with a synchronous standby. [`Engine::warnings`] says so aloud.
//! - Reads come from the primary: a connection to a standby is refused, and one that turns into a standby is given up.
//! - A version never recurs, also after a restore or a failover that lost writes: it holds the time of its issue.
//! - Time is the server's clock (`clock_timestamp()`), taken while the locks are held. It must be slewed, never stepped:
//!   a step forward ends leases early, a step back makes them last longer. An end that somebody was told is final.
//! - Nothing is migrated silently. [`Postgres::migrate`] makes the layout, with the right to create a schema; the engine
//!   itself needs `USAGE` of the schema, the rights to its table and sequence, and `EXECUTE` of its functions.
//!
//! Connections go directly to the server, or through a pooler in session mode. TLS is `sslmode` of the address; where it
//! is used the server's certificate and name are verified always, against `ca` or the system's authorities.

mod schema;

use crate::remote::{Address, Fault, Pem, Policy, RemoteError, RemoteOptions, Server, Unopened, Worker};
use crate::{Answer, Engine, in_bounds, ready};
use bytes::Bytes;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, MAX_BATCH_BYTES, Mutation, StoreCommand, StoreKey, StoreReply};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use schema::Layout;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

const NAME: &str = "postgres";
/// A hundred years, which a `timestamptz` holds for a long time to come.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// How often a command that meets keys that have just ended begins again.
const SWEEPS: usize = 16;

/// A store in PostgreSQL. Once it is dropped, what was sent is still done, and then its thread ends.
#[derive(Debug)]
pub struct Postgres {
    worker: Worker,
    warnings: Vec<String>,
}

impl Postgres {
    /// Opens `postgres://[NAME[:PASSWORD]@]HOST[:PORT][/DATABASE]`, with the client's own parameters (`sslmode` and
    /// others) too. Waits for the first connection.
    ///
    /// # Errors
    /// See [`RemoteError`]; a database that was not migrated, or to another layout, is [`RemoteError::Unfit`].
    pub fn open(address: &str) -> Result<Self, RemoteError> {
        Self::open_with(address, RemoteOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open_with(address: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let (server, place, options) = PostgresServer::at(address, options)?;
        let policy = Policy {
            connect: options.connect_timeout,
            operation: options.operation_timeout,
            width: options.connections,
        };
        let (worker, warnings) = Worker::start(NAME, place, server, policy)?;
        Ok(Self { worker, warnings })
    }

    /// Makes the layout in the database, where there is none. One that is there is left as it is.
    ///
    /// # Errors
    /// See [`RemoteError`]; another layout, or somebody else's table, is [`RemoteError::Unfit`].
    pub fn migrate(address: &str) -> Result<(), RemoteError> {
        Self::migrate_with(address, RemoteOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn migrate_with(address: &str, options: RemoteOptions) -> Result<(), RemoteError> {
        let (server, place, _) = PostgresServer::at(address, options)?;
        let thread = |source| RemoteError::Thread { engine: NAME, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread)?;
        // A thread of its own: whoever calls may be in a runtime.
        let work = std::thread::Builder::new()
            .name(String::from("rehome-postgres-migrate"))
            .spawn(move || {
                runtime.block_on(async {
                    let (mut client, _task) = server.client().await?;
                    match schema::migrate(&mut client, &server.schema).await.map_err(unopened)? {
                        Layout::Nothing | Layout::Known => Ok(()),
                        Layout::Other(found) => Err(other(&server.schema, &found)),
                    }
                })
            })
            .map_err(thread)?;
        match work.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Unopened::Unfit(reason))) => Err(RemoteError::Unfit { engine: NAME, place, reason }),
            Ok(Err(Unopened::Connect(reason))) => Err(RemoteError::Connect { engine: NAME, place, reason }),
            Err(_) => {
                let reason = String::from("its thread ended");
                Err(RemoteError::Connect { engine: NAME, place, reason })
            }
        }
    }
}

impl Engine for Postgres {
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

struct PostgresServer {
    config: Config,
    tls: MakeRustlsConnect,
    schema: String,
    settings: String,
}

/// Ends the connection's task with the last who uses it, though a hanging network would not.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Clone)]
struct Connection(Arc<Prepared>);

struct Prepared {
    client: Client,
    read: Statement,
    write: Statement,
    scan: Statement,
    sweep: Statement,
    _task: Task,
}

/// What came of a call: a reply, or keys that have ended and are to be swept first.
enum Came {
    Reply(StoreReply),
    Ended(Vec<Bytes>),
}

impl Server for PostgresServer {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, Unopened> {
        let (client, task) = self.client().await?;
        match schema::layout(&client, &self.schema).await.map_err(unopened)? {
            Layout::Known => {}
            Layout::Nothing => {
                let schema = &self.schema;
                let reason = format!("there is no store in the schema {schema}: run its migration first");
                return Err(Unopened::Unfit(reason));
            }
            Layout::Other(found) => return Err(other(&self.schema, &found)),
        }
        let prepared = Prepared {
            read: client.prepare(&schema::read(&self.schema)).await.map_err(unopened)?,
            write: client.prepare(&schema::write(&self.schema)).await.map_err(unopened)?,
            scan: client.prepare(&schema::scan(&self.schema)).await.map_err(unopened)?,
            sweep: client.prepare(&schema::sweep(&self.schema)).await.map_err(unopened)?,
            client,
            _task: task,
        };
        Ok(Connection(Arc::new(prepared)))
    }

    async fn warnings(&self, connection: Connection) -> Vec<String> {
        let client = &connection.0.client;
        let mut warnings = Vec::new();
        let mut say = |text: &str| warnings.push(format!("postgres: {text}"));
        let setting = async |name: &str| -> Option<String> {
            client.query_one("SELECT current_setting($1)", &[&name]).await.ok()?.try_get(0).ok()
        };
        if setting("fsync").await.as_deref() != Some("on") {
            say("fsync is off: a loss of power destroys the store");
        }
        if setting("full_page_writes").await.as_deref() != Some("on") {
            say("full_page_writes is off: a loss of power may destroy the store");
        }
        let synchronous = setting("synchronous_commit").await;
        if synchronous.as_deref().is_none_or(|setting| setting == "off") {
            say("synchronous_commit is off: acknowledged writes of the last moments are lost with the server");
        }
        let standbys = client.query_one("SELECT count(*) FROM pg_stat_replication", &[]).await;
        let standbys: i64 = standbys.and_then(|row| row.try_get(0)).unwrap_or(1);
        let waits = setting("synchronous_standby_names").await.is_some_and(|names| !names.is_empty());
        if standbys > 0 && !waits {
            say("it has standbys and waits for none: acknowledged writes may be lost at a failover");
        } else if waits && synchronous.as_deref() == Some("local") {
            say("synchronous_commit is local: acknowledged writes may be lost at a failover");
        }
        warnings
    }

    async fn ask(&self, connection: Connection, command: StoreCommand) -> Result<StoreReply, Fault> {
        let prepared = &*connection.0;
        for _ in 0..SWEEPS {
            let came = match &command {
                StoreCommand::Read(key) => prepared.read(key).await,
                StoreCommand::Write(batch) => prepared.write(batch).await,
                StoreCommand::Scan { prefix, cursor, limit } => {
                    prepared.scan(prefix, cursor.as_ref().unwrap_or(prefix), *limit).await
                }
            };
            match came.map_err(|error| fault(&error))? {
                Came::Reply(reply) => return Ok(reply),
                Came::Ended(keys) => {
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    prepared.client.execute(&prepared.sweep, &[&keys]).await.map_err(|error| fault(&error))?;
                }
            }
        }
        Err(Fault::Answered)
    }
}

impl PostgresServer {
    fn at(address: &str, options: RemoteOptions) -> Result<(Self, String, RemoteOptions), RemoteError> {
        let wrong = |reason: String| RemoteError::Address { engine: NAME, reason };
        let Address { rest, place, user: _, options } = Address::parse(NAME, address, options)?;
        let pem = Pem::read(NAME, &options)?;
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| wrong(error.to_string()))?;
        config
            .connect_timeout(options.connect_timeout)
            .tcp_user_timeout(options.operation_timeout)
            // With several hosts, the primary among them.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("rehome");
        }
        if config.get_user().is_none() {
            return Err(wrong(String::from("the address names no user")));
        }
        let tls = tls(&config, &pem).map_err(wrong)?;
        // What nobody waits for any more must not hold its locks for long. Each statement sees what was committed before.
        let millis = options.operation_timeout.as_millis().clamp(1, 2_000_000_000);
        let settings = format!(
            "SET default_transaction_isolation TO 'read committed'; SET statement_timeout TO {millis};
             SET lock_timeout TO {millis}; SET jit TO off"
        );
        Ok((Self { config, tls, schema: options.namespace.clone(), settings }, place, options))
    }

    async fn client(&self) -> Result<(Client, Task), Unopened> {
        let (client, connection) = self.config.connect(self.tls.clone()).await.map_err(unopened)?;
        let task = Task(tokio::spawn(async move {
            // Whoever waits for an answer hears of the failure too.
            let _ = connection.await;
        }));
        client.batch_execute(&self.settings).await.map_err(unopened)?;
        let sql = "SELECT current_setting('server_version_num')::integer, pg_is_in_recovery()";
        let row = client.query_one(sql, &[]).await.map_err(unopened)?;
        let (version, standby): (i32, bool) = (row.try_get(0).map_err(unopened)?, row.try_get(1).map_err(unopened)?);
        if version < 130_000 {
            let major = version / 10_000;
            return Err(Unopened::Unfit(format!("its version is {major}, and this engine needs 13 or newer")));
        }
        if standby {
            return Err(Unopened::Unfit(String::from("it is a standby, whose reads may lag")));
        }
        Ok((client, task))
    }
}

impl Prepared {
    async fn read(&self, key: &StoreKey) -> Result<Came, tokio_postgres::Error> {
        let Some(row) = self.client.query_opt(&self.read, &[&&key.0[..]]).await? else {
            return Ok(Came::Reply(StoreReply::Missing));
        };
        Ok(match found(&row, 0)? {
            Some(found) => Came::Reply(StoreReply::Found(found)),
            None => Came::Ended(vec![key.0.clone()]),
        })
    }

    async fn scan(&self, prefix: &[u8], from: &[u8], limit: u16) -> Result<Came, tokio_postgres::Error> {
        let (after, most) = (after(prefix), i64::from(limit) + 1);
        let bytes = i64::try_from(MAX_BATCH_BYTES).unwrap_or(i64::MAX);
        let rows = self.client.query(&self.scan, &[&from, &after, &most, &bytes]).await?;
        let (mut entries, mut ended, mut bytes, mut cursor) = (Vec::with_capacity(rows.len()), Vec::new(), 0, None);
        for row in &rows {
            let key = Bytes::copy_from_slice(row.try_get(0)?);
            let Some(found) = found(row, 1)? else {
                ended.push(key);
                continue;
            };
            bytes += key.len() + found.value.len();
            if entries.len() >= usize::from(limit) || (bytes > MAX_BATCH_BYTES && !entries.is_empty()) {
                cursor = Some(key);
                break;
            }
            entries.push((StoreKey(key), found));
        }
        Ok(if ended.is_empty() { Came::Reply(StoreReply::Page { entries, cursor }) } else { Came::Ended(ended) })
    }

    async fn write(&self, batch: &Batch) -> Result<Came, tokio_postgres::Error> {
        let (mut seen, mut kinds, mut at): (Vec<&[u8]>, Vec<&str>, Vec<&[u8]>) = (Vec::new(), Vec::new(), Vec::new());
        for condition in &batch.conditions {
            let (kind, version): (&str, &[u8]) = match condition {
                Condition::Missing(_) => ("missing", b""),
                Condition::Present(_) => ("present", b""),
                Condition::Version(_, version) => ("version", version.as_str().as_bytes()),
            };
            seen.push(&condition.key().0);
            kinds.push(kind);
            at.push(version);
        }
        let mut gone: Vec<&[u8]> = Vec::new();
        let mut put: Vec<&[u8]> = Vec::new();
        let mut contents: Vec<&[u8]> = Vec::new();
        let mut micros: Vec<Option<i64>> = Vec::new();
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Delete(key) => gone.push(&key.0),
                Mutation::Put { key, value, ttl } => {
                    put.push(&key.0);
                    contents.push(value);
                    micros.push(ttl.map(|ttl| i64::try_from(ttl.min(LONGEST).as_micros()).unwrap_or(i64::MAX)));
                }
            }
        }
        let row = self.client.query_one(&self.write, &[&seen, &kinds, &at, &gone, &put, &contents, &micros]).await?;
        Ok(match row.try_get::<_, &str>(0)? {
            "applied" => {
                let versions: Vec<&str> = row.try_get(1)?;
                let versions: Result<Vec<_>, _> = versions.into_iter().map(StoreVersion::new).collect();
                // A version that is none comes from no layout that this program knows; it was done all the same.
                Came::Reply(versions.map_or(StoreReply::Unknown, StoreReply::Applied))
            }
            "conflict" => Came::Reply(StoreReply::Conflict),
            "ended" => Came::Ended(batch.conditions.iter().map(|condition| condition.key().0.clone()).collect()),
            _ => Came::Reply(StoreReply::Unknown),
        })
    }
}

/// The record whose value, version and time left begin at a column; nothing if it has ended.
fn found(row: &Row, column: usize) -> Result<Option<Found>, tokio_postgres::Error> {
    let left: Option<i64> = row.try_get(column + 2)?;
    let ttl = match left.map(u64::try_from) {
        None => None,
        Some(Ok(micros @ 1..)) => Some(Duration::from_micros(micros)),
        Some(Ok(0) | Err(_)) => return Ok(None),
    };
    let version: &str = row.try_get(column + 1)?;
    // The functions write none that is empty or long.
    let Ok(version) = StoreVersion::new(version) else { return Ok(None) };
    Ok(Some(Found { value: Bytes::copy_from_slice(row.try_get(column)?), version, ttl }))
}

/// The bound above all keys that begin with `prefix`; nothing where there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let (last, before) = prefix.get(..=kept)?.split_last()?;
    Some([before, &[last.saturating_add(1)]].concat())
}

/// What an error leaves of the connection. Where the session itself may be at fault, it is given up.
fn fault(error: &tokio_postgres::Error) -> Fault {
    let Some(code) = error.code() else { return Fault::Broken };
    let passing = [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::QUERY_CANCELED,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::OUT_OF_MEMORY,
        &SqlState::DISK_FULL,
    ];
    if passing.contains(&code) { Fault::Answered } else { Fault::Broken }
}

/// An error with its causes: the client's own text leaves them out.
fn unopened(error: tokio_postgres::Error) -> Unopened {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    Unopened::Connect(text)
}

fn other(schema: &str, found: &str) -> Unopened {
    Unopened::Unfit(format!("the schema {schema} holds '{found}', which this program does not know"))
}

fn tls(config: &Config, pem: &Pem) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match &pem.ca {
        Some(ca) => {
            for certificate in CertificateDer::pem_slice_iter(ca) {
                let certificate = certificate.map_err(|error| format!("ca: {error}"))?;
                roots.add(certificate).map_err(|error| format!("ca: {error}"))?;
            }
        }
        None if config.get_ssl_mode() != SslMode::Disable => {
            // A system without any fails when a server shows a certificate, not before.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let client = match &pem.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
            let chain = chain.map_err(|error| format!("cert: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key: {error}"))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("cert: {error}"))?
        }
    };
    Ok(MakeRustlsConnect::new(client))
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn the_bound_above_a_prefix_is_above_all_its_keys_and_no_other() {
        assert_eq!(after(b""), None);
        assert_eq!(after(b"\xff\xff"), None);
        assert_eq!(after(b"a\0").as_deref(), Some(&b"a\x01"[..]));
        assert_eq!(after(b"a\xff").as_deref(), Some(&b"b"[..]));
    }
}
