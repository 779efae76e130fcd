//! What a command becomes in etcd, and what its answers mean. It knows nothing of connections.

use bytes::Bytes;
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, MAX_BATCH_BYTES, MAX_KEY, MAX_VALUE, Mutation, StoreKey, StoreReply};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;
use tokio::task::JoinSet;

/// The longest time of a lease that etcd takes, in seconds.
const LONGEST: u64 = 9_000_000_000;
/// What is said of a lease that has less than a second left, or that has ended while its key is still there: until the
/// key is removed all others see it too.
const LEAST: Duration = Duration::from_millis(1);
/// Values that are asked for at once, so that an answer has a bound.
const FIRST: usize = 16;
const MORE: usize = 60;
const ANSWER: usize = (MORE + 4) * (MAX_VALUE + 2 * MAX_KEY + 256);
/// Leases that are asked for at once.
const LEASES: usize = 32;

/// What an error says about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// The member understood it and said no.
    Refused,
    /// The revision is compacted, or not this cluster's.
    Gone,
    /// Anything else.
    Other,
}

impl Code {
    /// By the code's number, which is the same in every version of gRPC.
    pub(super) fn of(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else { return Self::Other };
        match i32::from(status.code()) {
            // Not found, permission denied, resource exhausted, failed precondition.
            5 | 7 | 8 | 9 => Self::Refused,
            // Out of range.
            11 => Self::Gone,
            _ => Self::Other,
        }
    }
}

/// Where a scan goes on: at which revision, from which key.
pub(super) struct Cursor {
    revision: i64,
    key: Bytes,
}

impl Cursor {
    /// Nothing if it is none of a scan of this prefix.
    pub(super) fn parse(prefix: &Bytes, cursor: &Bytes) -> Option<Self> {
        let revision = i64::from_be_bytes(cursor.get(..8)?.try_into().ok()?);
        let key = cursor.slice(8..);
        let fits = revision > 0 && !key.is_empty() && key.len() <= MAX_KEY && key.starts_with(prefix);
        fits.then_some(Self { revision, key })
    }

    fn bytes(&self) -> Bytes {
        [&self.revision.to_be_bytes()[..], &self.key].concat().into()
    }
}

/// The store's part of the keys: what begins with its namespace and a slash.
pub(super) struct Store {
    before: Vec<u8>,
}

impl Store {
    pub(super) fn new(namespace: &str) -> Self {
        Self { before: format!("{namespace}/").into_bytes() }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.before, key].concat()
    }

    pub(super) async fn read(&self, mut client: Client, key: &StoreKey) -> Result<StoreReply, Error> {
        let mut before: Option<i64> = None;
        loop {
            let mut answer = client.get(self.key(&key.0), None).await?;
            let Some(kv) = answer.take_kvs().pop() else { return Ok(StoreReply::Missing) };
            let left = left(&mut client, kv.lease()).await?;
            // Its lease is gone. Most likely it is too; if it is still there as it was, it is still there for all.
            if matches!(left, Left::Gone) && before != Some(kv.mod_revision()) {
                before = Some(kv.mod_revision());
                continue;
            }
            return Ok(found(kv, left).map_or(StoreReply::Unknown, |(_, found)| StoreReply::Found(found)));
        }
    }

    pub(super) async fn write(&self, mut client: Client, batch: &Batch) -> Result<StoreReply, Error> {
        let mut compares = Vec::with_capacity(batch.conditions.len());
        for condition in &batch.conditions {
            let key = self.key(&condition.key().0);
            compares.push(match condition {
                Condition::Missing(_) => Compare::create_revision(key, CompareOp::Equal, 0),
                Condition::Present(_) => Compare::create_revision(key, CompareOp::Greater, 0),
                Condition::Version(_, version) => match revision(version) {
                    Some(revision) => Compare::mod_revision(key, CompareOp::Equal, revision),
                    // No key ever has it.
                    None => return Ok(StoreReply::Conflict),
                },
            });
        }
        // One lease for each time to live: its keys end together, as they began.
        let mut leases: BTreeMap<i64, i64> = BTreeMap::new();
        for seconds in batch.mutations.iter().filter_map(seconds) {
            if let Entry::Vacant(free) = leases.entry(seconds) {
                free.insert(client.lease_grant(seconds, None).await?.id());
            }
        }
        let mut operations = Vec::with_capacity(batch.mutations.len());
        let mut puts = 0;
        for mutation in &batch.mutations {
            operations.push(match mutation {
                Mutation::Delete(key) => TxnOp::delete(self.key(&key.0), None),
                Mutation::Put { key, value, .. } => {
                    puts += 1;
                    let lease = seconds(mutation).and_then(|seconds| leases.get(&seconds));
                    let options = lease.map(|lease| PutOptions::new().with_lease(*lease));
                    TxnOp::put(self.key(&key.0), value.to_vec(), options)
                }
            });
        }
        if operations.is_empty() {
            // A transaction of comparisons alone is answered by any member from what it has: a read makes it linearizable.
            operations.push(TxnOp::get(self.before.clone(), Some(GetOptions::new().with_keys_only())));
        }
        let answer = client.txn(Txn::new().when(compares).and_then(operations)).await?;
        if !answer.succeeded() {
            for lease in leases.into_values() {
                let mut client = client.clone();
                // Nobody waits for it; otherwise it ends by itself.
                tokio::spawn(async move {
                    let _ = client.lease_revoke(lease).await;
                });
            }
            return Ok(StoreReply::Conflict);
        }
        let version = answer.header().and_then(|header| version(header.revision()));
        Ok(version.map_or(StoreReply::Unknown, |version| StoreReply::Applied(vec![version; puts])))
    }

    pub(super) async fn scan(
        &self,
        client: Client,
        prefix: &Bytes,
        cursor: Option<&Bytes>,
        limit: u16,
    ) -> Result<StoreReply, Error> {
        let cursor = cursor.and_then(|cursor| Cursor::parse(prefix, cursor));
        match self.page(client, prefix, cursor, usize::from(limit)).await {
            Err(error) if Code::of(&error) == Code::Gone => Ok(StoreReply::Expired),
            done => done,
        }
    }

    async fn page(
        &self,
        client: Client,
        prefix: &Bytes,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<StoreReply, Error> {
        let mut kv = client.kv_client().max_decoding_message_size(ANSWER);
        let end = after(&self.key(prefix));
        let (mut revision, mut from) =
            cursor.map_or_else(|| (0, self.key(prefix)), |cursor| (cursor.revision, self.key(&cursor.key)));
        let (mut entries, mut bytes, mut chunk): (Vec<KeyValue>, usize, usize) = (Vec::new(), 0, FIRST);
        let next = 'page: loop {
            let most = chunk.min(limit + 1 - entries.len());
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let options = GetOptions::new().with_range(end.clone()).with_limit(most).with_revision(revision);
            // The newest revision may have no key at all, and then no range to begin with.
            let mut answer = kv.get(from.clone(), Some(options)).await?;
            if revision == 0 {
                revision = answer.header().map_or(0, |header| header.revision());
            }
            let more = answer.more();
            for entry in answer.take_kvs() {
                let key = entry.key().len().saturating_sub(self.before.len());
                bytes = bytes.saturating_add(key).saturating_add(entry.value().len());
                if entries.len() >= limit || (bytes > MAX_BATCH_BYTES && !entries.is_empty()) {
                    break 'page Some(entry.key().to_vec());
                }
                from = [entry.key(), &[0]].concat();
                entries.push(entry);
            }
            if !more {
                break None;
            }
            chunk = MORE;
        };
        let cursor = next.and_then(|key| Some(Cursor { revision, key: self.logical(&key)? }.bytes()));
        let entries = self.with_time_left(client, entries).await?;
        Ok(StoreReply::Page { entries, cursor })
    }

    /// The entries of a page with what is left of their leases, without those that have ended since its revision.
    async fn with_time_left(&self, client: Client, entries: Vec<KeyValue>) -> Result<Vec<(StoreKey, Found)>, Error> {
        let mut seen: Vec<(KeyValue, Option<Left>)> = entries
            .into_iter()
            .map(|kv| {
                let left = (kv.lease() == 0).then_some(Left::Endless);
                (kv, left)
            })
            .collect();
        let leased: Vec<usize> =
            seen.iter().enumerate().filter(|(_, (_, left))| left.is_none()).map(|(place, _)| place).collect();
        for places in leased.chunks(LEASES) {
            let mut asking = JoinSet::new();
            for &place in places {
                let Some((kv, _)) = seen.get(place) else { continue };
                let (key, lease, revision) = (kv.key().to_vec(), kv.lease(), kv.mod_revision());
                let mut client = client.clone();
                asking.spawn(async move {
                    let mut time = left(&mut client, lease).await?;
                    if matches!(time, Left::Gone) {
                        let options = GetOptions::new().with_keys_only();
                        let now = client.get(key, Some(options)).await?;
                        if now.kvs().first().is_none_or(|kv| kv.mod_revision() != revision) {
                            return Ok::<_, Error>((place, None));
                        }
                        time = Left::Time(LEAST);
                    }
                    Ok((place, Some(time)))
                });
            }
            while let Some(asked) = asking.join_next().await {
                let (place, left) = asked.map_err(|error| Error::Internal(error.to_string()))??;
                if let Some((_, at)) = seen.get_mut(place) {
                    *at = left;
                }
            }
        }
        let entries = seen.into_iter().filter_map(|(kv, left)| found(kv, left?));
        Ok(entries.filter_map(|(key, found)| Some((StoreKey(self.logical(&key)?), found))).collect())
    }

    fn logical(&self, key: &[u8]) -> Option<Bytes> {
        key.strip_prefix(&self.before[..]).map(Bytes::copy_from_slice)
    }
}

/// What is left of a key's time.
enum Left {
    Endless,
    Time(Duration),
    /// There is no such lease any more.
    Gone,
}

async fn left(client: &mut Client, lease: i64) -> Result<Left, Error> {
    if lease == 0 {
        return Ok(Left::Endless);
    }
    let seconds = client.lease_time_to_live(lease, None).await?.ttl();
    Ok(match u64::try_from(seconds) {
        Err(_) => Left::Gone,
        Ok(seconds) => Left::Time(Duration::from_secs(seconds).max(LEAST)),
    })
}

fn found(kv: KeyValue, left: Left) -> Option<(Vec<u8>, Found)> {
    let version = version(kv.mod_revision())?;
    let ttl = match left {
        Left::Endless => None,
        Left::Time(time) => Some(time),
        Left::Gone => Some(LEAST),
    };
    let (key, value) = kv.into_key_value();
    Some((key, Found { value: value.into(), version, ttl }))
}

fn version(revision: i64) -> Option<StoreVersion> {
    StoreVersion::new(&revision.to_string()).ok()
}

/// The revision that a version names; nothing if it names none, however near it comes.
fn revision(version: &StoreVersion) -> Option<i64> {
    let revision: i64 = version.as_str().parse().ok()?;
    (revision > 0 && revision.to_string() == version.as_str()).then_some(revision)
}

/// The seconds of a put's time to live, rounded up: an end is never early.
fn seconds(mutation: &Mutation) -> Option<i64> {
    let Mutation::Put { ttl: Some(ttl), .. } = mutation else { return None };
    let up = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs().saturating_add(up).min(LONGEST)).ok()
}

/// The bound above all keys that begin with `prefix`, which begins with a namespace and so has one.
fn after(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
    match kept.and_then(|last| prefix.get(..=last)).and_then(<[u8]>::split_last) {
        None => vec![0],
        Some((last, before)) => [before, &[last.saturating_add(1)]].concat(),
    }
}
