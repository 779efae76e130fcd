//! What can happen in a state, and what the state is then.

use super::engine::Engine;
use super::names::Names;
use super::router::{CHUNK, CUTOVER, FAILED, PREPARE, READY, Router};
use super::setup::{Setup, Weakening};
use super::state::{Bits, Gate, Ghost, Life, List, MOVES, PROCS, Query, Spent, State};
use super::steps::Model;
use super::tables::Tables;
use super::wants::{SourceIn, TargetIn};
use rehome::store::plan;
use rehome::store::record::LeaseRecord;
use std::time::Duration;

/// Something that happens. Attempts, processes and questions go by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Act {
    Move { life: u8, target: u8 },
    Prepare(u8),
    Chunk(u8),
    Cutover(u8),
    Ready(u8),
    Failed(u8),
    Submitted(u8),
    SourceDeadline(u8),
    SourceCut(u8),
    SourcePoll(u8),
    Cancel(u8),
    TargetCut(u8),
    TargetDeadline(u8),
    TargetPoll(u8),
    CutoverWait(u8),
    Forget(u8),
    Happens(u8),
    HappensLagging(u8),
    Answered(u8),
    GivenUp(u8),
    HeldHappens(u8),
    LateAnswer { late: u8, op: u8 },
    Crash(u8),
    GuardPasses(u8),
    Renews(u8),
    LeaseEnds(u8),
    Reclaim(u8),
    Create(u8),
    Delete(u8),
    Touch,
    TargetGone(u8),
    SourceGone(u8),
    Shutdown(u8),
    Releases(u8),
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("a small number")
}

impl Tables {
    pub(super) fn no_version() -> rehome::id::StoreVersion {
        rehome::id::StoreVersion::new("none").expect("a version")
    }

    /// The processes run with their leases, and the object lives at the first.
    pub(super) fn first(&mut self, setup: &Setup) -> State {
        let mut engine = Engine::new(setup.lacks(Weakening::VersionsRecur));
        let mut last = std::collections::BTreeMap::new();
        let mut leased = Bits::default();
        for process in 0..small(setup.processes()) {
            let peer = self.names.peer(process);
            let lease = LeaseRecord { node: peer.node, nonce: u128::from(process), renewed_unix_ms: 0 };
            let before = last.remove(&peer.owner.owner);
            let claim = plan::claim_lease(&peer.owner.owner, before, &lease, Duration::from_secs(15));
            let (pair, batch) = claim.expect("a generation is left");
            assert_eq!(pair, peer.owner, "the lease that the names promise");
            let reply = engine.apply(&rehome::store::StoreCommand::Write(batch));
            let rehome::store::StoreReply::Applied(versions) = reply else { panic!("a claim failed: {reply:?}") };
            let record = rehome::store::record::OwnerRecord { lease: pair.lease };
            last.insert(pair.owner, (record, versions[0].clone()));
            leased.add(process);
        }
        let mut batch = plan::create(&self.names.new_tenure(0), Names::incarnation(1), &Self::no_version());
        batch.conditions.pop();
        engine.apply(&rehome::store::StoreCommand::Write(batch));
        let store = self.engine(engine);
        let (seen, there) = self.seen(store);
        assert_eq!((seen.incarnation, there), (1, leased.0), "a store that is ready");
        let mut lives = List::default();
        lives.insert(Life { process: 0, incarnation: 1, owner_generation: 1, gate: Gate::Open });
        State {
            store,
            before: 0,
            seen,
            leased,
            running: leased,
            ending: Bits::default(),
            guarded: leased,
            lives,
            facts: [0; MOVES],
            sources: [0; MOVES],
            targets: [0; MOVES],
            ended: [0; MOVES],
            frames: [0; MOVES],
            ops: List::default(),
            held: List::default(),
            late: List::default(),
            births: Default::default(),
            ghost: Ghost::default(),
            spent: Spent { incarnations: 1, ..Spent::default() },
        }
    }
}

impl Model {
    /// Everything that can happen. What changes nothing is left out by [`Model::after`].
    pub(super) fn possible(&self, tables: &Tables, state: &State, acts: &mut Vec<Act>) {
        let setup = &self.setup;
        let acts_here = |process: u8| state.running.has(process) && state.guarded.has(process);
        for (at, life) in (0u8..).zip(state.lives.as_slice()) {
            if life.gate != Gate::Open || !acts_here(life.process) || state.ending.has(life.process) {
                continue;
            }
            let busy = state.sources.iter().zip(&state.facts).any(|(machine, facts)| {
                *machine != 0 && {
                    let facts = tables.facts(*facts);
                    (facts.source, facts.incarnation, facts.owner_generation)
                        == (life.process, life.incarnation, life.owner_generation)
                }
            });
            if busy {
                continue;
            }
            if state.spent.moves < setup.moves {
                let others = (0..small(setup.processes())).filter(|target| {
                    tables.names.place(*target) != tables.names.place(life.process) && state.running.has(*target)
                });
                acts.extend(others.map(|target| Act::Move { life: at, target }));
            }
            if state.spent.deletes < setup.recreates {
                acts.push(Act::Delete(at));
            }
        }
        for attempt in 0..state.spent.moves {
            self.of_attempt(tables, state, attempt, acts);
        }
        for (at, op) in (0u8..).zip(state.ops.as_slice()) {
            if op.reply == 0 {
                acts.push(Act::Happens(at));
                if state.before != 0 && op.query != Query::Write {
                    acts.push(Act::HappensLagging(at));
                }
            } else {
                acts.push(Act::Answered(at));
            }
            acts.push(Act::GivenUp(at));
            for late in 0..small(state.late.as_slice().len()) {
                acts.push(Act::LateAnswer { late, op: at });
            }
        }
        acts.extend((0..small(state.held.as_slice().len())).map(Act::HeldHappens));
        for process in 0..small(setup.processes()) {
            self.of_process(tables, state, process, acts);
        }
        if state.spent.touches < setup.touches && state.seen.incarnation != 0 {
            acts.push(Act::Touch);
        }
    }

    fn of_attempt(&self, tables: &Tables, state: &State, attempt: u8, acts: &mut Vec<Act>) {
        let at = usize::from(attempt);
        let facts = tables.facts(state.facts[at]);
        let (source, target) = (state.sources[at], state.targets[at]);
        let frames = state.frames[at];
        if state.running.has(facts.target) {
            for (frame, act) in
                [(PREPARE, Act::Prepare(attempt)), (CHUNK, Act::Chunk(attempt)), (CUTOVER, Act::Cutover(attempt))]
            {
                if frames & frame != 0 {
                    acts.push(act);
                }
            }
        }
        let recurs = self.setup.lacks(Weakening::IdentityRecurs);
        if source != 0 || recurs {
            for (frame, act) in [(READY, Act::Ready(attempt)), (FAILED, Act::Failed(attempt))] {
                if frames & frame != 0 {
                    acts.push(act);
                }
            }
        }
        if source != 0 {
            let is = tables.source_at(source);
            if is.state == "Cutover" {
                acts.push(Act::Submitted(attempt));
            }
            acts.push(Act::SourceDeadline(attempt));
            if self.setup.fine || !is.phase.is_empty() {
                acts.push(Act::SourceCut(attempt));
            }
            if self.setup.fine && is.phase.is_empty() {
                acts.push(Act::Cancel(attempt));
            }
            if self.setup.fine && !state.leased.has(facts.target) {
                acts.push(Act::TargetGone(attempt));
            }
            let waits = is.phase == "Waiting" || is.state == "Waiting(Record)";
            if self.setup.fine && waits && !asks(state, super::state::Who::Source(attempt)) {
                acts.push(Act::SourcePoll(attempt));
            }
        }
        if target != 0 {
            let is = tables.target_at(target);
            acts.push(Act::TargetDeadline(attempt));
            if self.setup.fine {
                acts.push(Act::TargetCut(attempt));
            }
            if self.setup.fine && !state.leased.has(facts.source) {
                acts.push(Act::SourceGone(attempt));
            }
            let asks = asks(state, super::state::Who::Target(attempt));
            if is.state == "Ready" && !asks {
                acts.push(Act::CutoverWait(attempt));
            }
            let waits = is.phase == "Waiting" || is.state == "Assembling";
            if self.setup.fine && waits && !asks {
                acts.push(Act::TargetPoll(attempt));
            }
        } else if self.setup.forget && state.ended[at] != 0 {
            acts.push(Act::Forget(attempt));
        }
    }

    /// Whether a process that ends still has something that only the store can decide.
    fn undecided(&self, tables: &Tables, state: &State, process: u8) -> bool {
        (0..usize::from(state.spent.moves)).any(|at| {
            let facts = tables.facts(state.facts[at]);
            let settles = state.sources[at] != 0 && !tables.source_at(state.sources[at]).phase.is_empty();
            let commits = state.targets[at] != 0 && tables.target_at(state.targets[at]).state == "Committing";
            facts.source == process && settles || facts.target == process && commits
        })
    }

    fn of_process(&self, tables: &Tables, state: &State, process: u8, acts: &mut Vec<Act>) {
        let setup = &self.setup;
        let (running, guarded) = (state.running.has(process), state.guarded.has(process));
        if running {
            if state.spent.crashes < setup.crashes {
                acts.push(Act::Crash(process));
            }
            if state.spent.shutdowns < setup.shutdowns && !state.ending.has(process) {
                acts.push(Act::Shutdown(process));
            } else if state.ending.has(process) && !self.undecided(tables, state, process) {
                acts.push(Act::Releases(process));
            }
            if !guarded {
                acts.push(Act::Renews(process));
            } else if state.spent.lapses < setup.lapses {
                acts.push(Act::GuardPasses(process));
            }
        }
        // The store ends a lease only after its holder's guard.
        if state.leased.has(process) && !(running && guarded) {
            acts.push(Act::LeaseEnds(process));
        }
        let free =
            running && guarded && !state.ending.has(process) && state.births[usize::from(process)].incarnation == 0;
        if free && state.seen.incarnation != 0 && !state.leased.has(state.seen.owner) {
            if state.spent.reclaims < setup.reclaims {
                acts.push(Act::Reclaim(process));
            }
        } else if free && state.seen.incarnation == 0 && state.spent.creates < setup.recreates {
            acts.push(Act::Create(process));
        }
    }

    /// What the state is after something happened; `None` where it is the same.
    pub(super) fn after(&self, tables: &mut Tables, state: &State, act: Act) -> Option<State> {
        let mut router = Router { tables, state: state.clone() };
        match act {
            Act::Move { life, target } => {
                let life = router.state.lives.as_slice()[usize::from(life)];
                router.start_move(life, target);
            }
            Act::Prepare(attempt) => router.prepare_comes(attempt),
            Act::Chunk(attempt) => router.chunk_comes(attempt),
            Act::Cutover(attempt) => router.cutover_comes(attempt),
            Act::Ready(attempt) => router.answer_comes(attempt, SourceIn::Ready),
            Act::Failed(attempt) => router.answer_comes(attempt, SourceIn::Failed),
            Act::Submitted(attempt) => router.source(attempt, SourceIn::Submitted),
            Act::SourceDeadline(attempt) => router.source(attempt, SourceIn::Deadline),
            Act::SourceCut(attempt) => router.source_cut(attempt),
            Act::SourcePoll(attempt) => router.source(attempt, SourceIn::Poll),
            Act::Cancel(attempt) => router.source(attempt, SourceIn::Cancel),
            Act::TargetCut(attempt) => router.target(attempt, TargetIn::PeerDown),
            Act::TargetDeadline(attempt) => router.target(attempt, TargetIn::Deadline),
            Act::TargetPoll(attempt) => router.target(attempt, TargetIn::Poll),
            Act::CutoverWait(attempt) => router.target(attempt, TargetIn::CutoverWait),
            Act::Forget(attempt) => router.state.ended[usize::from(attempt)] = 0,
            Act::Happens(op) => router.op_happens(usize::from(op), false),
            Act::HappensLagging(op) => router.op_happens(usize::from(op), true),
            Act::Answered(op) => router.op_answered(usize::from(op), true),
            Act::GivenUp(op) => router.op_answered(usize::from(op), false),
            Act::HeldHappens(held) => router.held_happens(usize::from(held)),
            Act::LateAnswer { late, op } => router.late_comes(usize::from(late), usize::from(op)),
            Act::Crash(process) => {
                router.state.spent.crashes += 1;
                router.stop(process, false);
            }
            Act::GuardPasses(process) => {
                router.state.spent.lapses += 1;
                router.state.guarded.drop(process);
            }
            Act::TargetGone(attempt) => router.source(attempt, SourceIn::Gone),
            Act::SourceGone(attempt) => router.target(attempt, TargetIn::Gone),
            Act::Shutdown(process) => {
                router.state.spent.shutdowns += 1;
                router.shuts_down(process);
            }
            Act::Releases(process) => {
                router.stop(process, true);
                router.lease_ends(process);
            }
            Act::Renews(process) => router.renews(process),
            Act::LeaseEnds(process) => router.lease_ends(process),
            Act::Reclaim(process) => {
                router.state.spent.reclaims += 1;
                router.begin_birth(process, true);
            }
            Act::Create(process) => {
                router.state.spent.creates += 1;
                router.begin_birth(process, false);
            }
            Act::Delete(life) => {
                router.state.spent.deletes += 1;
                router.begin_death(usize::from(life));
            }
            Act::Touch => {
                router.state.spent.touches += 1;
                router.touch();
            }
        }
        (router.state != *state).then_some(router.state)
    }
}

fn asks(state: &State, who: super::state::Who) -> bool {
    state.ops.as_slice().iter().any(|op| op.who == who)
}

const _: () = assert!(PROCS < 8 && MOVES < 8, "bits hold all of them");
