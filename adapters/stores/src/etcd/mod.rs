//! The engine on etcd 3.4 or newer. This file owns the engine's front, its own bounds and its connections; what a command
//! becomes is in `commands`.
//!
//! ## What it promises, and what not
//! - A batch is one transaction of etcd, which goes through its log: serializable, durable on a majority of the members,
//!   and whole also after a failover. Reads are linearizable. A transaction that was sent is never sent again.
//! - A version is the revision of the key's last change. The store counts revisions as one sequence, so none recurs for a
//!   key; the puts of one batch have one in common. A cluster that is restored from a snapshot without raising its
//!   revision would issue some again: restore with `--bump-revision --mark-compacted`, or begin empty.
//! - Time is a lease of etcd. It counts whole seconds, a time to live is rounded up to them and to the server's least
//!   (about one and a half election time-outs), and the end comes up to a second or so later, when the leader removes the
//!   key; after an election leases begin anew. So an end is never early, and once it was seen it is final: the key is
//!   gone. What is left is rounded down, and is a millisecond where less than a second is left.
//! - A write with a time to live asks for its lease first, which is a second round trip; a lease that came to nothing ends
//!   by itself.
//! - A page of a scan, and all pages that follow by its cursor, are one revision. Once that is compacted the answer is
//!   [`StoreReply::Expired`]. A key whose lease has ended since is left out.
//! - A batch has at most 128 distinct keys (`--max-txn-ops`) and about 1.5 MiB (`--max-request-bytes`), which are etcd's
//!   bounds unless it is told otherwise; above them it is [`StoreReply::Invalid`]. With lower ones at the server such a
//!   batch is unknown.
//! - A server out of space refuses writes (unknown) until its alarm is disarmed.

mod commands;

use crate::remote::{Address, Fault, Pem, Policy, RemoteError, RemoteOptions, Server, Unopened, Worker};
use crate::{Answer, Engine, ready};
use commands::{Code, Cursor, Store};
use etcd_client::{AlarmAction, AlarmType, Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use rehome::store::{Condition, Mutation, StoreCommand, StoreReply};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAME: &str = "etcd";
/// Operations of one transaction, unless the server is told otherwise.
const MAX_KEYS: usize = 128;
/// Bytes of one request, unless the server is told otherwise.
const MAX_REQUEST: usize = 3 << 19;

/// A store in etcd. Once it is dropped, what was sent is still done, and then its thread ends.
#[derive(Debug)]
pub struct Etcd {
    worker: Worker,
    warnings: Vec<String>,
    namespace: usize,
}

impl Etcd {
    /// Opens `etcd://[NAME:PASSWORD@]HOST:PORT[,HOST:PORT...]`, members of one cluster. With the parameter `tls=true`, or
    /// one of `ca` and `cert`, over TLS. Waits for the first connection.
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
        let wrong = |reason: &str| RemoteError::Address { engine: NAME, reason: reason.to_owned() };
        let Address { rest, place, user, options } = Address::parse(NAME, address, options)?;
        let pem = Pem::read(NAME, &options)?;
        let tls = match rest.split_once('?').map(|(_, query)| query) {
            None => pem.ca.is_some() || pem.identity.is_some(),
            Some("tls=true") => true,
            Some(_) => return Err(wrong("the address has a parameter that is not known")),
        };
        let after_place = rest.rsplit_once(&place).map(|(_, after)| after);
        if after_place.is_none_or(|after| !matches!(after.split('?').next(), Some("" | "/"))) {
            return Err(wrong("the address has a path"));
        }
        let scheme = if tls { "https" } else { "http" };
        let mut connect = ConnectOptions::new().with_require_leader(true);
        if let Some((name, password)) = user {
            connect = connect.with_user(name, password);
        }
        if tls {
            let mut with = TlsOptions::new();
            with = match &pem.ca {
                Some(ca) => with.ca_certificate(Certificate::from_pem(ca)),
                None => with.with_native_roots(),
            };
            if let Some((cert, key)) = &pem.identity {
                with = with.identity(Identity::from_pem(cert, key));
            }
            connect = connect.with_tls(with);
        }
        let server = EtcdServer {
            members: place.split(',').map(|member| format!("{scheme}://{member}")).collect(),
            next: AtomicUsize::new(0),
            options: connect,
            store: Store::new(&options.namespace),
        };
        let policy = Policy { connect: options.connect_timeout, operation: options.operation_timeout, width: 1 };
        let (worker, warnings) = Worker::start(NAME, place, server, policy)?;
        Ok(Self { worker, warnings, namespace: options.namespace.len() + 1 })
    }

    fn in_bounds(&self, command: &StoreCommand) -> bool {
        if command.check().is_err() {
            return false;
        }
        match command {
            StoreCommand::Read(_) | StoreCommand::Scan { cursor: None, .. } => true,
            StoreCommand::Scan { prefix, cursor: Some(cursor), .. } => Cursor::parse(prefix, cursor).is_some(),
            StoreCommand::Write(batch) => {
                // What stands beside a key and a value in a request, and around all, at most.
                const BESIDE: usize = 64;
                let conditions = batch.conditions.iter().map(|condition| (condition.key(), 0));
                let mutations = batch.mutations.iter().map(|mutation| match mutation {
                    Mutation::Put { key, value, .. } => (key, value.len()),
                    Mutation::Delete(key) => (key, 0),
                });
                let bytes = conditions.chain(mutations).fold(BESIDE, |sum, (key, value)| {
                    [self.namespace, key.0.len(), value, BESIDE].into_iter().fold(sum, usize::saturating_add)
                });
                let keys = batch.conditions.iter().map(Condition::key);
                let keys: BTreeSet<_> = keys.chain(batch.mutations.iter().map(Mutation::key)).collect();
                keys.len() <= MAX_KEYS && bytes <= MAX_REQUEST
            }
        }
    }
}

impl Engine for Etcd {
    fn execute(&self, command: StoreCommand) -> Answer {
        if !self.in_bounds(&command) {
            return ready(StoreReply::Invalid);
        }
        self.worker.send(command)
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn max_batch_keys(&self) -> usize {
        MAX_KEYS
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

struct EtcdServer {
    members: Vec<String>,
    /// Which member is the next to be tried.
    next: AtomicUsize,
    options: ConnectOptions,
    store: Store,
}

impl Server for EtcdServer {
    type Connection = Client;

    /// To one member at a time: a balanced client would go on sending to one that is gone.
    async fn connect(&self) -> Result<Client, Unopened> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let member = self.members.get(next % self.members.len().max(1)).map_or("", String::as_str);
        let mut client = Client::connect([member], Some(self.options.clone())).await.map_err(unopened)?;
        let status = client.status().await.map_err(unopened)?;
        let version = status.version();
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (3, 4) {
            return Err(Unopened::Unfit(format!("its version is {version}, and this engine needs 3.4 or newer")));
        }
        if status.leader() == 0 {
            return Err(Unopened::Connect(String::from("the cluster has no leader")));
        }
        if status.is_learner() {
            return Err(Unopened::Unfit(String::from("the member is a learner, which answers no reads")));
        }
        Ok(client)
    }

    async fn warnings(&self, mut client: Client) -> Vec<String> {
        let mut warnings = Vec::new();
        match client.alarm(AlarmAction::Get, AlarmType::None, None).await {
            Err(_) => warnings.push(String::from("etcd: its alarms cannot be read")),
            Ok(alarms) => {
                for alarm in alarms.alarms() {
                    warnings.push(match alarm.alarm() {
                        AlarmType::Nospace => String::from("etcd: a member is out of space: writes are refused"),
                        AlarmType::Corrupt => String::from("etcd: a member's data is corrupt"),
                        AlarmType::None => String::from("etcd: a member has an alarm"),
                    });
                }
            }
        }
        warnings
    }

    async fn ask(&self, client: Client, command: StoreCommand) -> Result<StoreReply, Fault> {
        let done = match &command {
            StoreCommand::Read(key) => self.store.read(client, key).await,
            StoreCommand::Write(batch) => self.store.write(client, batch).await,
            StoreCommand::Scan { prefix, cursor, limit } => {
                self.store.scan(client, prefix, cursor.as_ref(), *limit).await
            }
        };
        done.map_err(|error| fault(&error))
    }
}

fn unopened(error: Error) -> Unopened {
    Unopened::Connect(if let Error::GRpcStatus(status) = &error {
        // Its own text has everything about the request too.
        let cause = std::error::Error::source(status).map(|cause| format!(" ({cause})")).unwrap_or_default();
        format!("{}{cause}", status.message())
    } else {
        error.to_string()
    })
}

/// What an error leaves of the connection. Where another member, or a new log-in, may help, it is given up.
fn fault(error: &Error) -> Fault {
    match Code::of(error) {
        Code::Refused => Fault::Answered,
        Code::Gone | Code::Other => Fault::Broken,
    }
}
