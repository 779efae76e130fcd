//! Hand-made schedules: a quiet world, rules for what goes wrong with what, and steps. The oracles look on as always.

use super::{Act, World, key};
use crate::chance::Chance;
use crate::profile::Profile;
use rehome::node::{CallId, CallResult, HostCommand, UserRequest};
use rehome::store::record::{Authority, authority_key, lease_key};
use rehome::store::{StoreCommand, StoreReply};
use rehome::time::Instant;
use rehome::wire::Record;
use rehome::{Config, Input, Node};
use std::time::Duration;

/// What happens to a store command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It is not done, and not answered.
    Lost,
    /// It is done, and not answered.
    ReplyLost,
    /// It is not answered, and done so much later.
    Applied(Duration),
    /// It is done and answered, so much later in all.
    Slow(Duration),
    /// It is not done, and answered with a conflict.
    Conflict,
    /// It is done and answered, and done once more so much later.
    Again(Duration),
}

/// What happens to a published record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// It is lost, and its connection does not notice.
    Lose,
    /// It is lost with its connection.
    Cut,
    /// It arrives, and once more so much later.
    Again(Duration),
    /// It arrives so much later, on whatever connection there is then.
    Late(Duration),
}

/// What happens to a host command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// It fails.
    Fail,
    /// It takes so long.
    Slow(Duration),
}

type When<T> = Box<dyn Fn(usize, &T) -> bool>;

struct Rule<T, F> {
    when: When<T>,
    then: F,
    left: u32,
}

/// The rules of a scripted world.
#[derive(Default)]
pub(super) struct Rules {
    scripted: bool,
    store: Vec<Rule<StoreCommand, StoreFault>>,
    records: Vec<Rule<Record, RecordFault>>,
    hosts: Vec<Rule<HostCommand, HostFault>>,
    turns: Vec<Duration>,
    sent: Vec<(usize, Record)>,
}

fn first<T, F: Copy>(rules: &mut [Rule<T, F>], node: usize, what: &T) -> Option<F> {
    let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.when)(node, what))?;
    rule.left -= 1;
    Some(rule.then)
}

impl Rules {
    pub(super) fn store(&mut self, node: usize, command: &StoreCommand) -> Option<StoreFault> {
        first(&mut self.store, node, command)
    }

    pub(super) fn record(&mut self, node: usize, record: &Record) -> Option<RecordFault> {
        if self.scripted {
            self.sent.push((node, record.clone()));
        }
        first(&mut self.records, node, record)
    }

    pub(super) fn host(&mut self, node: usize, command: &HostCommand) -> Option<HostFault> {
        first(&mut self.hosts, node, command)
    }

    pub(super) fn turn(&mut self) -> Option<Duration> {
        self.turns.pop()
    }

    pub(super) const fn keep_results(&self) -> bool {
        self.scripted
    }

    pub(super) fn clear(&mut self) {
        self.store.clear();
        self.records.clear();
        self.hosts.clear();
        self.turns.clear();
    }
}

/// Whether a command reads an object's record.
pub fn reads_record(command: &StoreCommand) -> bool {
    matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"authority"))
}

/// Whether a command reads a lease.
pub fn reads_lease(command: &StoreCommand) -> bool {
    matches!(command, StoreCommand::Read(key) if key.0.starts_with(b"lease"))
}

/// Whether a command is a target's commit: it needs both nodes' leases.
pub fn commits(command: &StoreCommand) -> bool {
    match command {
        StoreCommand::Write(batch) => {
            batch.conditions.iter().filter(|condition| condition.key().0.starts_with(b"lease")).count() == 2
        }
        StoreCommand::Read(_) | StoreCommand::Scan { .. } => false,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl World {
    /// A quiet world of `nodes` nodes, all connected, with `objects` objects: the first at node 0, the next at node 1 and
    /// so on. `tune` changes each node's configuration.
    pub fn quiet(nodes: usize, objects: usize, tune: fn(&mut Config)) -> Self {
        let mut world = Self::begin(Profile::CALM, Chance::new(1), (nodes, objects), tune, 80);
        world.rules.scripted = true;
        world
    }

    /// The next `times` store commands for which `when` holds go wrong.
    pub fn store_fault(&mut self, times: u32, then: StoreFault, when: impl Fn(usize, &StoreCommand) -> bool + 'static) {
        self.rules.store.push(Rule { when: Box::new(when), then, left: times });
    }

    /// The next `times` published records for which `when` holds go wrong; the number is the sending node.
    pub fn record_fault(&mut self, times: u32, then: RecordFault, when: impl Fn(usize, &Record) -> bool + 'static) {
        self.rules.records.push(Rule { when: Box::new(when), then, left: times });
    }

    /// The next `times` host commands for which `when` holds go wrong.
    pub fn host_fault(&mut self, times: u32, then: HostFault, when: impl Fn(usize, &HostCommand) -> bool + 'static) {
        self.rules.hosts.push(Rule { when: Box::new(when), then, left: times });
    }

    /// The next turn takes so long.
    pub fn slow_turn(&mut self, time: Duration) {
        self.rules.turns.push(time);
    }

    /// All rules end.
    pub fn no_faults(&mut self) {
        self.rules.clear();
    }

    /// A one-way message of the node's client.
    pub fn send_to(&mut self, node: usize, object: usize) -> CallId {
        self.hit(node, object, None)
    }

    /// A request of the node's client.
    pub fn ask(&mut self, node: usize, object: usize, timeout: Duration) -> CallId {
        self.hit(node, object, Some(timeout))
    }

    /// Asks `from` to move an object, within 12 seconds.
    pub fn relocate(&mut self, from: usize, object: usize, to: usize) -> CallId {
        self.move_from(from, object, to, Duration::from_secs(12))
    }

    /// The same within `timeout`.
    pub fn relocate_within(&mut self, from: usize, object: usize, to: usize, timeout: Duration) -> CallId {
        self.move_from(from, object, to, timeout)
    }

    /// Another call.
    pub fn call(&mut self, node: usize, request: UserRequest) -> CallId {
        self.user(node, request)
    }

    /// How a call ended, if it has.
    pub fn result(&self, call: CallId) -> Option<&CallResult> {
        self.results.get(&call)
    }

    /// Time passes.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now.saturating_add(nanos(time));
        self.until(end);
    }

    /// Steps until `done`, at most for `limit`. Says whether it came true.
    pub fn until_true(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now.saturating_add(nanos(limit));
        while !done(self) {
            if !self.step(end) {
                return done(self);
            }
        }
        true
    }

    /// Cuts the connection of two nodes, and lets none be made until [`World::join`].
    pub fn part(&mut self, a: usize, b: usize) {
        self.barred.insert((a.min(b), a.max(b)));
        self.cut(a, b);
    }

    /// Cuts the connection of two nodes; it is made again soon.
    pub fn cut_once(&mut self, a: usize, b: usize) {
        self.cut(a, b);
    }

    /// Lets two nodes connect again.
    pub fn join(&mut self, a: usize, b: usize) {
        self.barred.remove(&(a.min(b), a.max(b)));
    }

    /// Stops a node's process.
    pub fn pause(&mut self, node: usize) {
        self.places[node].paused = true;
    }

    /// It goes on.
    pub fn resume(&mut self, node: usize) {
        self.wake(node);
    }

    /// The process is gone; [`World::restart`] starts another with the same owner id and routing id.
    pub fn kill(&mut self, node: usize) {
        self.end_process(node);
    }

    /// Starts a killed node again: a new generation that knows nothing.
    pub fn restart(&mut self, node: usize) {
        self.perform(Act::Restart { node });
    }

    /// The node's lease ends at the store.
    pub fn expire_lease(&mut self, node: usize) {
        if let Some(peer) = self.places[node].peer.clone() {
            self.store.expire(&lease_key(&peer.owner));
            self.oracle.lost.ended(self.now);
        }
    }

    /// A record arrives at `to` as if `from` had sent it now.
    pub fn inject(&mut self, from: usize, to: usize, record: Record) {
        self.deliver(from, to, 0, record);
    }

    /// An input of a node, whatever it is.
    pub fn input(&mut self, node: usize, input: Input) {
        self.feed(node, input);
    }

    /// A node, if its process runs.
    pub fn node(&self, node: usize) -> Option<&Node> {
        self.places[node].node.as_ref()
    }

    /// Published records that nodes have sent, in order.
    pub fn sent_records(&self) -> &[(usize, Record)] {
        &self.rules.sent
    }

    /// The store's record of an object.
    pub fn record(&mut self, object: usize) -> Option<Authority> {
        let read = StoreCommand::Read(authority_key(&key(object)));
        crate::oracle::authority(&self.store.apply(Instant::from_nanos(self.now), &read))
    }

    /// A command of an outsider to the store, applied at once.
    pub fn store_now(&mut self, command: &StoreCommand) -> StoreReply {
        self.store.apply(Instant::from_nanos(self.now), command)
    }

    /// Turns that ran so far.
    pub const fn turns(&self) -> u64 {
        self.summary.turns
    }

    /// How often something happened, by the name under which the world counts it.
    pub fn count(&self, name: &str) -> u64 {
        self.summary.made.get(name).copied().unwrap_or(0)
    }

    /// Whether a published record of this kind was sent by the node.
    pub fn has_sent(&self, node: usize, kind: impl Fn(&Record) -> bool) -> bool {
        self.rules.sent.iter().any(|(from, record)| *from == node && kind(record))
    }

    /// The node that serves an object.
    pub fn owner_of(&self, object: usize) -> Option<usize> {
        self.owner(object)
    }

    /// Whether a move took effect at the store, whatever anybody believes.
    pub fn has_committed(&self, relocation: rehome::id::RelocationId) -> bool {
        self.oracle.committed(relocation)
    }

    /// What the oracles have found so far.
    pub fn faults(&self) -> &[String] {
        &self.oracle.faults.0
    }

    /// Everything heals and must come to rest; every promise must have held.
    ///
    /// # Panics
    /// With the end of the trace, where one did not.
    pub fn end(mut self) {
        if self.oracle.faults.0.is_empty() {
            self.heal();
        }
        let summary = self.finish();
        assert!(summary.faults.is_empty(), "{}\n{}", summary.tail, summary.faults.join("\n"));
    }
}
