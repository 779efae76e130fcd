//! What a node does about the store: questions with their tickets, writes that were given up, and the creation, deletion
//! and taking-over of the object, which no machine decides.

use super::names::Names;
use super::router::Router;
use super::setup::Weakening;
use super::state::{Birth, Gate, Held, Late, Life, Op, Query, STALE, WAITS, Who};
use super::tables::Tables;
use super::wants::{SourceIn, TargetIn};
use rehome::machine::settlement::{LeaseSeen, WriteSeen};
use rehome::store::plan;

impl Router<'_> {
    pub(super) fn ask(&mut self, who: Who, query: Query, command: u16) {
        let asks = self.state.ops.as_slice().iter().any(|op| op.who == who);
        if matches!(who, Who::Target(_)) {
            // The node puts a stage's older question out: its answer must not pass for that of the newer one.
            if !self.tables.setup.lacks(Weakening::OldQuestions) {
                self.forget_asked(|asker| asker == who);
            }
        } else {
            assert!(
                !asks,
                "the node would have two questions of {who:?} out, and tell their answers by their kind alone"
            );
        }
        self.state.ops.insert(Op { who, query, command, reply: 0 });
    }

    pub(super) fn forget_asked(&mut self, whose: impl Fn(Who) -> bool) {
        let asked: Vec<Op> = self.state.ops.as_slice().iter().filter(|op| whose(op.who)).copied().collect();
        self.state.ops.retain(|op| !whose(op.who));
        for op in asked {
            self.hold(&op);
        }
    }

    /// A write without an answer may still happen.
    fn hold(&mut self, op: &Op) {
        if op.reply == 0 && self.tables.is_write(op.command) {
            let commit = if let Who::Target(attempt) = op.who { attempt + 1 } else { 0 };
            let creates = matches!(op.who, Who::Birth(_)) && !self.tables.names_version(op.command);
            if creates && !self.tables.setup.lacks(Weakening::CreatesDoNotHang) {
                return;
            }
            self.state.held.insert_once(Held { command: op.command, commit });
            self.drop_past();
        }
    }

    fn drop_past(&mut self) {
        let (store, tables) = (self.state.store, &mut *self.tables);
        self.state.held.retain(|held| !tables.is_past(store, held.command));
    }

    pub(super) fn store_is(&mut self, store: u16) {
        if store == self.state.store {
            return;
        }
        if self.tables.setup.lacks(Weakening::LaggingReads) {
            self.state.before = self.state.store;
        }
        self.state.store = store;
        let (seen, leased) = self.tables.seen(store);
        (self.state.seen, self.state.leased.0) = (seen, leased);
        self.drop_past();
    }

    /// Applies a command at the store; `commit` is 1 + the attempt whose commit it is.
    fn apply(&mut self, command: u16, commit: u8) -> u16 {
        let (store, reply) = self.tables.apply(self.state.store, command);
        if let Some(attempt) = commit.checked_sub(1)
            && self.tables.write_of(reply) == WriteSeen::Applied
        {
            self.state.ghost.committed.add(attempt);
            let facts = self.facts(attempt);
            let (moving, running) = (Gate::Captured(attempt), self.state.running.has(facts.source));
            if running && self.life_of(facts.source, &facts).is_none_or(|life| life.gate != moving) {
                self.state.ghost.wrong.add(STALE);
            }
        }
        self.store_is(store);
        reply
    }

    pub(super) fn op_happens(&mut self, at: usize, lagging: bool) {
        let mut op = self.state.ops.remove(at);
        op.reply = if lagging {
            self.tables.apply(self.state.before, op.command).1
        } else {
            let commit = if let (Who::Target(attempt), Query::Write) = (op.who, op.query) { attempt + 1 } else { 0 };
            self.apply(op.command, commit)
        };
        self.state.ops.insert(op);
    }

    pub(super) fn held_happens(&mut self, at: usize) {
        let held = self.state.held.as_slice()[at];
        let reply = self.apply(held.command, held.commit);
        // Only writes on condition of a version are sent more than once; of any other there was one.
        let held = self.state.held.as_slice().iter().position(|other| *other == held);
        if let Some(at) = held
            && self.tables.write_of(reply) == WriteSeen::Applied
            && !self.tables.names_version(self.state.held.as_slice()[at].command)
        {
            self.state.held.remove(at);
        }
    }

    /// The answer comes, or is given up.
    pub(super) fn op_answered(&mut self, at: usize, comes: bool) {
        let op = self.state.ops.remove(at);
        let reply = if comes { op.reply } else { self.tables.unknown() };
        if !comes {
            self.hold(&op);
            self.keep_late(&op);
        }
        self.answered(op.who, op.query, reply);
    }

    fn keep_late(&mut self, op: &Op) {
        if op.reply == 0 || !self.tables.setup.lacks(Weakening::RepliesByKind) || self.state.late.as_slice().len() > 1 {
            return;
        }
        let (process, at_target) = match op.who {
            Who::Source(attempt) => (self.facts(attempt).source, false),
            Who::Target(attempt) => (self.facts(attempt).target, true),
            Who::Birth(_) | Who::Death(..) => return,
        };
        self.state.late.insert_once(Late { process, at_target, query: op.query as u8, reply: op.reply });
    }

    /// A reply that was given up answers the question at `at`, if that is of its kind.
    pub(super) fn late_comes(&mut self, late: usize, at: usize) {
        let (late, op) = (self.state.late.as_slice()[late], self.state.ops.as_slice()[at]);
        let asker = match op.who {
            Who::Source(attempt) => (self.facts(attempt).source, false),
            Who::Target(attempt) => (self.facts(attempt).target, true),
            Who::Birth(_) | Who::Death(..) => return,
        };
        if asker == (late.process, late.at_target) && op.query as u8 == late.query {
            self.state.ops.remove(at);
            self.hold(&op);
            self.answered(op.who, op.query, late.reply);
        }
    }

    fn answered(&mut self, who: Who, query: Query, reply: u16) {
        match (who, query) {
            (Who::Source(attempt), Query::Record) => {
                let facts = self.facts(attempt);
                let before = self.state.sources[usize::from(attempt)];
                let settling = before != 0 && !self.tables.source_at(before).phase.is_empty();
                self.source(attempt, SourceIn::Record(reply));
                let ended = self.state.sources[usize::from(attempt)] == 0;
                if settling && !ended && self.tables.is_beyond(&facts, reply) {
                    self.state.ghost.wrong.add(WAITS);
                }
            }
            (Who::Source(attempt), Query::OwnLease | Query::SourceLease) => {
                let seen = self.tables.lease_of(reply);
                self.source(attempt, SourceIn::OwnLease(seen));
            }
            (Who::Source(attempt), Query::Write) => {
                let seen = self.tables.write_of(reply);
                self.source(attempt, SourceIn::Preserved(seen));
            }
            (Who::Target(attempt), Query::Record) => self.target(attempt, TargetIn::Record(reply)),
            (Who::Target(attempt), Query::OwnLease) => {
                let seen = self.tables.lease_of(reply);
                self.target(attempt, TargetIn::OwnLease(seen));
            }
            (Who::Target(attempt), Query::SourceLease) => {
                let seen = self.tables.lease_of(reply);
                self.target(attempt, TargetIn::SourceLease(seen));
            }
            (Who::Target(attempt), Query::Write) => {
                let seen = self.tables.write_of(reply);
                self.target(attempt, TargetIn::Submitted(seen));
            }
            (Who::Birth(process), Query::Write) => self.birth_written(process, reply),
            (Who::Birth(process), Query::Record) => self.birth_read(process, reply),
            (Who::Birth(process), _) => self.birth_lease(process, reply),
            (Who::Death(process, incarnation), Query::Write) => self.death_written((process, incarnation), reply),
            (Who::Death(process, incarnation), _) => self.death_read((process, incarnation), reply),
        }
    }

    // Creation, taking-over, deletion: as the node does them, but for its reads before the write, which happen at once.

    pub(super) fn begin_birth(&mut self, process: u8, reclaim: bool) {
        self.state.spent.incarnations += 1;
        let incarnation = self.state.spent.incarnations;
        let (tenure, generation) = (self.tables.names.new_tenure(process), Names::incarnation(incarnation));
        let read = self.tables.read_record();
        let (_, reply) = self.tables.apply(self.state.store, read);
        let batch = match self.tables.record_of(reply) {
            Ok(Some(orphan)) => plan::reclaim(&tenure, generation, orphan),
            Ok(None) | Err(()) => {
                let mut batch = plan::create(&tenure, generation, &Tables::no_version());
                // Nobody changes a node's descriptor here.
                batch.conditions.pop();
                batch
            }
        };
        let command = self.tables.write(batch);
        self.state.births[usize::from(process)] = Birth { incarnation, command, reclaim };
        self.ask(Who::Birth(process), Query::Write, command);
    }

    fn birth_written(&mut self, process: u8, reply: u16) {
        if self.tables.write_of(reply) == WriteSeen::Applied {
            return self.born(process);
        }
        self.birth_reads(process);
    }

    fn birth_read(&mut self, process: u8, reply: u16) {
        let birth = self.state.births[usize::from(process)];
        match self.tables.record_of(reply) {
            Err(()) => self.birth_reads(process),
            Ok(Some(found)) if found.record.generation == Names::incarnation(birth.incarnation) => self.born(process),
            Ok(None) if !birth.reclaim && self.guarded(process) => {
                self.ask(Who::Birth(process), Query::Write, birth.command);
            }
            Ok(Some(orphan)) if birth.reclaim => {
                let owner = self.tables.names.process_of(&orphan.record.owner);
                let tenure = self.tables.names.new_tenure(process);
                let batch = plan::reclaim(&tenure, Names::incarnation(birth.incarnation), orphan);
                let command = self.tables.write(batch);
                self.state.births[usize::from(process)].command = command;
                let read = self.tables.read_lease(owner);
                self.ask(Who::Birth(process), Query::OwnLease, read);
            }
            Ok(_) => self.birth_fails(process),
        }
    }

    fn birth_reads(&mut self, process: u8) {
        let read = self.tables.read_record();
        self.ask(Who::Birth(process), Query::Record, read);
    }

    fn birth_lease(&mut self, process: u8, reply: u16) {
        let birth = self.state.births[usize::from(process)];
        match self.tables.lease_of(reply) {
            LeaseSeen::Missing if self.guarded(process) => self.ask(Who::Birth(process), Query::Write, birth.command),
            // Past the guard a taking-over whose write is unknown waits until a read has told.
            LeaseSeen::Missing | LeaseSeen::Unknown => self.birth_reads(process),
            LeaseSeen::Live => self.birth_fails(process),
        }
    }

    fn birth_fails(&mut self, process: u8) {
        self.state.births[usize::from(process)] = Birth::default();
    }

    fn born(&mut self, process: u8) {
        let birth = std::mem::take(&mut self.state.births[usize::from(process)]);
        self.open(process, birth.incarnation, 1);
    }

    pub(super) fn begin_death(&mut self, at: usize) {
        let life = &mut self.state.lives.items_mut()[at];
        life.gate = Gate::Deleting;
        let (process, incarnation) = (life.process, life.incarnation);
        self.death_reads((process, incarnation));
    }

    fn death_reads(&mut self, (process, incarnation): (u8, u8)) {
        let read = self.tables.read_record();
        self.ask(Who::Death(process, incarnation), Query::Record, read);
    }

    fn dying(&self, of: (u8, u8)) -> Option<Life> {
        let mut lives = self.state.lives.as_slice().iter();
        lives.find(|life| (life.process, life.incarnation) == of && life.gate == Gate::Deleting).copied()
    }

    fn death_read(&mut self, of: (u8, u8), reply: u16) {
        let Some(life) = self.dying(of) else { return };
        let found = self.tables.record_of(reply);
        let ours = |found: &rehome::store::record::Authority| {
            found.record.generation == Names::incarnation(life.incarnation)
                && found.record.owner_generation == Names::owner_generation(life.owner_generation)
        };
        match found {
            Ok(Some(found)) if ours(found) && self.guarded(of.0) => {
                let command = self.tables.write(plan::delete(&Names::object(), found));
                self.ask(Who::Death(of.0, of.1), Query::Write, command);
            }
            Ok(Some(found)) if !ours(found) => self.close(of.0, life.incarnation, life.owner_generation),
            Ok(None) => self.close(of.0, life.incarnation, life.owner_generation),
            Ok(Some(_)) | Err(()) => {
                self.death_reads(of);
            }
        }
    }

    fn death_written(&mut self, of: (u8, u8), reply: u16) {
        let Some(life) = self.dying(of) else { return };
        if self.tables.write_of(reply) == WriteSeen::Applied {
            return self.close(of.0, life.incarnation, life.owner_generation);
        }
        self.death_reads(of);
    }

    /// Somebody writes the same record again, which moves its version.
    pub(super) fn touch(&mut self) {
        let read = self.tables.read_record();
        let (_, reply) = self.tables.apply(self.state.store, read);
        if let Ok(Some(found)) = self.tables.record_of(reply) {
            let command = self.tables.write(plan::preserve(&Names::object(), found));
            self.apply(command, 0);
        }
    }
}
