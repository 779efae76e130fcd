//! The tables: values of the core by number, and what each step of the core gave. Every entry is made by the core's own
//! code, once; nothing here is an opinion on it.

use super::engine::Engine;
use super::names::{Facts, Names};
use super::setup::{Setup, Weakening};
use super::state::Seen;
use super::wants::{Dids, SourceIn, TargetIn, source_dids, target_dids};
use rehome::id::TypeName;
use rehome::machine::settlement::{LeaseSeen, RecordSeen, WriteSeen};
use rehome::machine::source::{Source, SourceInput, SourceTimer};
use rehome::machine::target::{Facts as TargetFacts, Limits, Target, TargetInput, TargetTimer};
use rehome::node::Conn;
use rehome::store::plan::{self, CommitPlan};
use rehome::store::record::{Authority, AuthorityRecord, authority_key, lease_key};
use rehome::store::{Batch, Condition, StoreCommand, StoreKey, StoreReply};
use rehome::wire::FailureCode;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A quick hash for small keys.
#[derive(Default)]
pub(super) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 29;
    }
}

type Memo<V> = HashMap<u64, V, BuildHasherDefault<Quick>>;

/// Values by number, from 1.
#[derive(Debug)]
struct Numbered<K, V = K> {
    numbers: HashMap<K, u16>,
    values: Vec<V>,
}

impl<K: Hash + Eq, V> Numbered<K, V> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, key: K, value: impl FnOnce() -> V) -> u16 {
        let next = u16::try_from(self.values.len() + 1).expect("the search has more values than the model numbers");
        let values = &mut self.values;
        *self.numbers.entry(key).or_insert_with(|| {
            values.push(value());
            next
        })
    }

    fn get(&self, number: u16) -> &V {
        &self.values[usize::from(number) - 1]
    }
}

/// Where a machine is, for the actions that it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Where {
    pub(super) state: &'static str,
    /// The phase of its settlement, or nothing.
    pub(super) phase: &'static str,
}

#[derive(Debug)]
struct AnySize;

impl Limits for AnySize {
    fn state_limit(&self, _: &TypeName) -> Option<u64> {
        Some(u64::MAX)
    }
}

/// A reply, and the record that it shows.
#[derive(Debug)]
struct Reply {
    reply: StoreReply,
    record: Result<Option<Authority>, ()>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) setup: Setup,
    pub(super) names: Names,
    engines: Numbered<Engine>,
    seen: Vec<(Seen, u8)>,
    commands: Numbered<StoreCommand>,
    replies: Numbered<StoreReply, Reply>,
    facts: Numbered<Facts>,
    /// By what they print but for the number of polls so far, which only lengthens the wait for the next.
    sources: Numbered<String, (Source, Where)>,
    targets: Numbered<Target, (Target, Where)>,
    commits: Memo<u16>,
    preserves: Memo<u16>,
    reads: Memo<u16>,
    applied: Memo<(u16, u16)>,
    past: Memo<bool>,
    source_steps: Memo<(u16, Dids)>,
    target_steps: Memo<(u16, Dids)>,
    /// Each input in each state of each machine that came up.
    pub(super) covered: BTreeSet<(&'static str, &'static str, &'static str)>,
}

impl Tables {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            names: Names::new(setup.clone()),
            setup,
            engines: Numbered::new(),
            seen: Vec::new(),
            commands: Numbered::new(),
            replies: Numbered::new(),
            facts: Numbered::new(),
            sources: Numbered::new(),
            targets: Numbered::new(),
            commits: Memo::default(),
            preserves: Memo::default(),
            reads: Memo::default(),
            applied: Memo::default(),
            past: Memo::default(),
            source_steps: Memo::default(),
            target_steps: Memo::default(),
            covered: BTreeSet::new(),
        }
    }

    // The store.

    pub(super) fn engine(&mut self, mut engine: Engine) -> u16 {
        let number = self.engines.number(engine.clone(), || engine.clone());
        if usize::from(number) > self.seen.len() {
            let seen = self.look(&mut engine);
            self.seen.push(seen);
        }
        number
    }

    fn look(&self, engine: &mut Engine) -> (Seen, u8) {
        let reply = engine.apply(&StoreCommand::Read(authority_key(&Names::object())));
        let record = authority(&reply).ok().flatten().map(|found| found.record);
        let seen = record.map_or_else(Seen::default, |record| Seen {
            incarnation: u8::try_from(record.generation.get()).expect("few incarnations"),
            owner_generation: u8::try_from(record.owner_generation.get()).expect("few moves"),
            owner: self.names.process_of(&record.owner),
        });
        let mut leased = 0;
        for process in 0..u8::try_from(self.setup.processes()).expect("few processes") {
            let read = StoreCommand::Read(lease_key(&self.names.peer(process).owner));
            leased |= u8::from(engine.apply(&read) != StoreReply::Missing) << process;
        }
        (seen, leased)
    }

    pub(super) fn seen(&self, store: u16) -> (Seen, u8) {
        self.seen[usize::from(store) - 1]
    }

    pub(super) fn apply(&mut self, store: u16, command: u16) -> (u16, u16) {
        let key = u64::from(store) << 16 | u64::from(command);
        if let Some(known) = self.applied.get(&key) {
            return *known;
        }
        let mut engine = self.engines.get(store).clone();
        let reply = engine.apply(self.commands.get(command));
        let result = (self.engine(engine), self.number_reply(reply));
        self.applied.insert(key, result);
        result
    }

    pub(super) fn is_past(&mut self, store: u16, command: u16) -> bool {
        let key = u64::from(store) << 16 | u64::from(command);
        if let Some(known) = self.past.get(&key) {
            return *known;
        }
        let past = self.engines.get(store).clone().is_past(self.commands.get(command));
        self.past.insert(key, past);
        past
    }

    pub(super) fn expire(&mut self, store: u16, process: u8) -> u16 {
        let mut engine = self.engines.get(store).clone();
        engine.expire(&lease_key(&self.names.peer(process).owner));
        self.engine(engine)
    }

    pub(super) fn is_write(&self, command: u16) -> bool {
        matches!(self.commands.get(command), StoreCommand::Write(_))
    }

    /// Whether a write can take effect only once, as it names a version.
    pub(super) fn names_version(&self, command: u16) -> bool {
        let StoreCommand::Write(batch) = self.commands.get(command) else { return false };
        batch.conditions.iter().any(|condition| matches!(condition, Condition::Version(..)))
    }

    fn command(&mut self, command: StoreCommand) -> u16 {
        self.commands.number(command.clone(), || command)
    }

    pub(super) fn write(&mut self, batch: Batch) -> u16 {
        self.command(StoreCommand::Write(batch))
    }

    pub(super) fn read_record(&mut self) -> u16 {
        self.read(0, |_| authority_key(&Names::object()))
    }

    pub(super) fn read_lease(&mut self, process: u8) -> u16 {
        self.read(1 + u64::from(process), |names| lease_key(&names.peer(process).owner))
    }

    fn read(&mut self, key: u64, what: impl FnOnce(&Names) -> StoreKey) -> u16 {
        if let Some(known) = self.reads.get(&key) {
            return *known;
        }
        let number = self.command(StoreCommand::Read(what(&self.names)));
        self.reads.insert(key, number);
        number
    }

    fn number_reply(&mut self, reply: StoreReply) -> u16 {
        self.replies.number(reply.clone(), || Reply { record: authority(&reply), reply })
    }

    pub(super) fn unknown(&mut self) -> u16 {
        self.number_reply(StoreReply::Unknown)
    }

    /// The record that a reply shows; `Err` where it says nothing.
    pub(super) fn record_of(&self, reply: u16) -> Result<Option<&Authority>, ()> {
        match &self.replies.get(reply).record {
            Ok(found) => Ok(found.as_ref()),
            Err(()) => Err(()),
        }
    }

    pub(super) fn lease_of(&self, reply: u16) -> LeaseSeen {
        match &self.replies.get(reply).reply {
            StoreReply::Missing => LeaseSeen::Missing,
            StoreReply::Found(found) if found.ttl.is_some() => LeaseSeen::Live,
            _ => LeaseSeen::Unknown,
        }
    }

    pub(super) fn write_of(&self, reply: u16) -> WriteSeen {
        match &self.replies.get(reply).reply {
            StoreReply::Applied(_) => WriteSeen::Applied,
            StoreReply::Conflict => WriteSeen::Conflict,
            _ => WriteSeen::Unknown,
        }
    }

    // Attempts.

    pub(super) fn number_facts(&mut self, facts: Facts) -> u16 {
        self.facts.number(facts, || facts)
    }

    pub(super) fn facts(&self, number: u16) -> Facts {
        *self.facts.get(number)
    }

    /// The record that the source read before the seal.
    fn fence(&self, facts: &Facts) -> Authority {
        self.record_of(facts.read)
            .ok()
            .flatten()
            .cloned()
            .expect("a stage stands only after its source read the record")
    }

    pub(super) fn look_alike(&self, one: u16, other: u16) -> bool {
        let (one, other) = (self.facts(one), self.facts(other));
        if one.read == 0 || other.read == 0 {
            return false;
        }
        one.looks_like(&other, self.fence(&one).version == self.fence(&other).version)
    }

    pub(super) fn commit(&mut self, number: u16) -> u16 {
        if let Some(known) = self.commits.get(&u64::from(number)) {
            return *known;
        }
        let facts = self.facts(number);
        let record = self.fence(&facts);
        let tenure = self.names.target_tenure(&facts, record.version);
        let plan = CommitPlan {
            tenure: self.names.new_tenure(facts.target),
            generation: tenure.generation,
            owner_generation: tenure.owner_generation,
            expected: tenure.expected,
            source: self.names.peer(facts.source).owner,
            relocation: tenure.relocation,
            application: record.record.slot.application,
            reserved: false,
        };
        let command = self.write(plan.batch());
        self.commits.insert(u64::from(number), command);
        command
    }

    pub(super) fn preserve(&mut self, number: u16) -> u16 {
        if let Some(known) = self.preserves.get(&u64::from(number)) {
            return *known;
        }
        let record = self.fence(&self.facts(number));
        let command = self.write(plan::preserve(&Names::object(), &record));
        self.preserves.insert(u64::from(number), command);
        command
    }

    // Machines.

    pub(super) fn new_source(&mut self) -> (u16, Dids) {
        let (machine, effects) = Source::start();
        (self.number_source(machine), source_dids(effects))
    }

    fn number_source(&mut self, machine: Source) -> u16 {
        let phase = machine.settlement().map_or("", |settlement| settlement.phase());
        let at = Where { state: machine.state(), phase };
        self.sources.number(without_polls(&machine), || (machine, at))
    }

    pub(super) fn source_at(&self, number: u16) -> Where {
        self.sources.get(number).1
    }

    pub(super) fn step_source(&mut self, number: u16, facts: u16, guarded: bool, input: SourceIn) -> (u16, Dids) {
        let key = u64::from(number) << 48 | u64::from(facts) << 32 | u64::from(guarded) << 24 | input.code();
        if let Some(known) = self.source_steps.get(&key) {
            return *known;
        }
        let (mut machine, at) = self.sources.get(number).clone();
        let facts = self.facts(facts);
        let settling = machine.is_settling();
        let input = match input {
            SourceIn::Size => SourceInput::Size { fits: true },
            SourceIn::Budget => SourceInput::Budget,
            SourceIn::TurnsEnded => SourceInput::TurnsEnded,
            SourceIn::Captured => SourceInput::Captured,
            SourceIn::Ready => SourceInput::Ready,
            SourceIn::Failed => SourceInput::Failed(FailureCode::ACTOR_LOCATION_STALE),
            SourceIn::PeerDown => SourceInput::PeerDown,
            SourceIn::Submitted => SourceInput::Submitted,
            SourceIn::Retired => SourceInput::Retired,
            SourceIn::Deadline => SourceInput::Timer(SourceTimer::Deadline),
            SourceIn::Poll => SourceInput::Timer(SourceTimer::Poll(0)),
            SourceIn::Cancel => SourceInput::Cancel,
            SourceIn::GuardLive => SourceInput::GuardLive,
            SourceIn::Over => SourceInput::Over,
            SourceIn::Shutdown => SourceInput::Shutdown,
            SourceIn::Gone => SourceInput::TargetGone,
            SourceIn::Record(reply) => SourceInput::Record(self.source_record(&facts, settling, reply)),
            SourceIn::OwnLease(_) if self.setup.lacks(Weakening::GoneIsLost) && at.phase == "LeaseOfGone" => {
                SourceInput::OwnLease(LeaseSeen::Missing)
            }
            SourceIn::OwnLease(seen) => SourceInput::OwnLease(seen),
            SourceIn::Preserved(seen) => SourceInput::Preserved(seen),
        };
        self.covered.insert(("Source", at.state, input.name()));
        let names = &self.names;
        let effects = machine.step(guarded, input, |version| names.source_tenure(&facts, version));
        let result = (self.number_source(machine), source_dids(effects));
        self.source_steps.insert(key, result);
        result
    }

    /// What the source of a move takes from a reply. Before the seal the record must be exactly its tenure.
    fn source_record(&self, facts: &Facts, settling: bool, reply: u16) -> RecordSeen {
        let found = match self.record_of(reply) {
            Err(()) => return RecordSeen::Unknown,
            Ok(None) => return RecordSeen::Missing,
            Ok(Some(found)) => found,
        };
        if !settling && !self.is_tenure(facts, reply) {
            return RecordSeen::Missing;
        }
        let other = found.record.owner != self.names.peer(facts.target).owner;
        let beyond = found.record.owner_generation > Names::owner_generation(facts.owner_generation);
        if settling && other && beyond && self.setup.lacks(Weakening::OwnerIsTarget) {
            return RecordSeen::Unknown;
        }
        RecordSeen::Found(Box::new(found.clone()))
    }

    /// Whether a reply shows the tenure that the attempt starts from.
    pub(super) fn is_tenure(&self, facts: &Facts, reply: u16) -> bool {
        self.record_of(reply).ok().flatten().is_some_and(|found| {
            found.record.generation == Names::incarnation(facts.incarnation)
                && found.record.owner_generation == Names::owner_generation(facts.owner_generation)
                && found.record.owner == self.names.peer(facts.source).owner
        })
    }

    /// Whether a reply shows that a later tenure of the same incarnation stands.
    pub(super) fn is_beyond(&self, facts: &Facts, reply: u16) -> bool {
        self.record_of(reply).ok().flatten().is_some_and(|found| {
            found.record.generation == Names::incarnation(facts.incarnation)
                && found.record.owner_generation > Names::owner_generation(facts.owner_generation)
        })
    }

    pub(super) fn new_target(&mut self, facts: u16) -> (u16, Dids) {
        let facts = self.facts(facts);
        let (stream, checksum) = self.names.stream(&facts);
        let (machine, effects) = Target::start(stream.len() as u64, 1, checksum);
        (self.number_target(machine), target_dids(effects))
    }

    fn number_target(&mut self, machine: Target) -> u16 {
        let phase = machine.settlement().map_or("", |settlement| settlement.phase());
        let at = Where { state: machine.state(), phase };
        self.targets.number(machine.clone(), || (machine, at))
    }

    pub(super) fn target_at(&self, number: u16) -> Where {
        self.targets.get(number).1
    }

    pub(super) fn step_target(&mut self, number: u16, facts: u16, guarded: bool, input: TargetIn) -> (u16, Dids) {
        let key = u64::from(number) << 48 | u64::from(facts) << 32 | u64::from(guarded) << 24 | input.code();
        if let Some(known) = self.target_steps.get(&key) {
            return *known;
        }
        let (mut machine, at) = self.targets.get(number).clone();
        let facts = self.facts(facts);
        let conn = Conn(1);
        let cutover = TargetInput::Cutover { conn, count: 0, checksum: 0 };
        let input = match input {
            TargetIn::PrepareAgain => TargetInput::PrepareAgain,
            TargetIn::PrepareOther => TargetInput::PrepareOther,
            TargetIn::Chunk => TargetInput::Chunk { ordinal: 0, data: self.names.stream(&facts).0 },
            TargetIn::Cutover => cutover,
            TargetIn::Restored => TargetInput::Restored,
            TargetIn::PeerDown => TargetInput::PeerDown,
            TargetIn::Deadline => TargetInput::Timer(TargetTimer::Deadline),
            TargetIn::CutoverWait if self.setup.lacks(Weakening::CommitOnTimeout) => cutover,
            TargetIn::CutoverWait => TargetInput::Timer(TargetTimer::CutoverWait),
            TargetIn::Poll => TargetInput::Timer(TargetTimer::Poll),
            TargetIn::Over => TargetInput::Over,
            TargetIn::Shutdown => TargetInput::Shutdown,
            TargetIn::Gone => TargetInput::SourceGone,
            TargetIn::Record(reply) => TargetInput::Record(match self.record_of(reply) {
                Err(()) => RecordSeen::Unknown,
                Ok(None) => RecordSeen::Missing,
                Ok(Some(found)) => RecordSeen::Found(Box::new(found.clone())),
            }),
            TargetIn::OwnLease(seen) => TargetInput::OwnLease(seen),
            TargetIn::SourceLease(seen) => TargetInput::SourceLease(seen),
            TargetIn::Submitted(seen) => TargetInput::Submitted(seen),
        };
        self.covered.insert(("Target", at.state, input.name()));
        let version = self.fence(&facts).version;
        let identity = Names::identity(&facts);
        let coordinator = self.names.coordinator(&facts, version.clone());
        let tenure = self.names.target_tenure(&facts, version);
        let given =
            TargetFacts { object: &identity, coordinator: &coordinator, tenure: &tenure, state_limit: &AnySize };
        let effects = machine.step(guarded, given, input);
        let result = (self.number_target(machine), target_dids(effects));
        self.target_steps.insert(key, result);
        result
    }

    /// How many values there are: stores, commands, replies, sources, targets, steps.
    pub(super) fn sizes(&self) -> [usize; 6] {
        let steps = self.source_steps.len() + self.target_steps.len();
        [
            self.engines.values.len(),
            self.commands.values.len(),
            self.replies.values.len(),
            self.sources.values.len(),
            self.targets.values.len(),
            steps,
        ]
    }
}

/// The authority record of a reply, as a node reads it.
fn authority(reply: &StoreReply) -> Result<Option<Authority>, ()> {
    match reply {
        StoreReply::Missing => Ok(None),
        StoreReply::Found(found) => match AuthorityRecord::decode(&found.value) {
            Ok(record) => Ok(Some(Authority { record, version: found.version.clone() })),
            Err(_) => Err(()),
        },
        _ => Err(()),
    }
}

fn without_polls(machine: &Source) -> String {
    let text = format!("{machine:?}");
    match text.split_once("polls: ") {
        Some((before, after)) => format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => text,
    }
}
