//! What a node does with the effects of its machines, as thin as it can be: gates, tickets, frames, remembered ends.
//! Whether anything opens, is kept or lost is decided by the machines alone.

use super::names::{Facts, Names};
use super::setup::Weakening;
use super::state::{Birth, FOLLOWS, Gate, Held, Late, Life, Op, Query, STALE, State, WAITS, Who};
use super::tables::{Did, Dids, SourceIn, Tables, TargetIn};
use rehome::machine::settlement::{LeaseSeen, WriteSeen};
use rehome::store::plan;

pub(super) const PREPARE: u8 = 1;
pub(super) const CHUNK: u8 = 2;
pub(super) const READY: u8 = 4;
pub(super) const FAILED: u8 = 8;
pub(super) const CUTOVER: u8 = 16;

/// How an ended stage is remembered.
const OPENED: u8 = 1;
const REFUSED: u8 = 2;

/// Carries out one step on a state.
pub(super) struct Router<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) state: State,
}

impl Router<'_> {
    fn facts(&self, attempt: u8) -> Facts {
        self.tables.facts(self.state.facts[usize::from(attempt)])
    }

    pub(super) fn guarded(&self, process: u8) -> bool {
        self.state.running.has(process) && self.state.guarded.has(process)
    }

    fn life_of(&mut self, process: u8, facts: &Facts) -> Option<&mut Life> {
        let (incarnation, owner_generation) = (facts.incarnation, facts.owner_generation);
        self.state.lives.items_mut().iter_mut().find(|life| {
            life.process == process && life.incarnation == incarnation && life.owner_generation == owner_generation
        })
    }

    fn gate(&mut self, process: u8, facts: &Facts, gate: Gate) {
        if let Some(life) = self.life_of(process, facts) {
            life.gate = gate;
        }
    }

    fn close(&mut self, process: u8, incarnation: u8, owner_generation: u8) {
        self.state.lives.retain(|life| {
            (life.process, life.incarnation, life.owner_generation) != (process, incarnation, owner_generation)
        });
    }

    // Moves away.

    pub(super) fn start_move(&mut self, life: Life, target: u8) {
        let attempt = self.state.spent.moves;
        self.state.spent.moves += 1;
        let facts = Facts {
            attempt,
            source: life.process,
            target,
            incarnation: life.incarnation,
            owner_generation: life.owner_generation,
            read: 0,
        };
        self.state.facts[usize::from(attempt)] = self.tables.number_facts(facts);
        let (machine, dids) = self.tables.new_source();
        self.state.sources[usize::from(attempt)] = machine;
        self.source_dids(attempt, dids, SourceIn::Budget);
    }

    pub(super) fn source(&mut self, attempt: u8, input: SourceIn) {
        let at = usize::from(attempt);
        let machine = self.state.sources[at];
        if machine == 0 {
            return;
        }
        let facts = self.facts(attempt);
        if let SourceIn::Record(reply) = input
            && self.tables.source_at(machine).phase.is_empty()
            && self.tables.is_tenure(&facts, reply)
        {
            self.state.facts[at] = self.tables.number_facts(Facts { read: reply, ..facts });
        }
        let guarded = self.guarded(facts.source);
        let (next, dids) = self.tables.step_source(machine, self.state.facts[at], guarded, input);
        self.state.sources[at] = next;
        self.source_dids(attempt, dids, input);
    }

    fn source_dids(&mut self, attempt: u8, dids: Dids, input: SourceIn) {
        for did in dids {
            self.source_did(attempt, did, input);
        }
    }

    fn source_did(&mut self, attempt: u8, did: Did, input: SourceIn) {
        let at = usize::from(attempt);
        let who = Who::Source(attempt);
        let facts = self.facts(attempt);
        match did {
            Did::Nothing => {}
            Did::AskSize => self.source(attempt, SourceIn::Size),
            Did::AcquireBudget => self.source(attempt, SourceIn::Budget),
            Did::ReadRecord => {
                let command = self.tables.read_record();
                self.ask(who, Query::Record, command);
            }
            Did::ReadOwnLease => {
                let command = self.tables.read_lease(facts.source);
                self.ask(who, Query::OwnLease, command);
            }
            Did::Write => {
                let command = self.tables.preserve(self.state.facts[at]);
                self.ask(who, Query::Write, command);
            }
            Did::CloseGate => {
                self.gate(facts.source, &facts, Gate::Captured(attempt));
                self.source(attempt, SourceIn::TurnsEnded);
            }
            Did::Capture => self.source(attempt, SourceIn::Captured),
            Did::Transfer => self.state.frames[at] |= PREPARE | CHUNK,
            Did::Cutover => self.state.frames[at] |= CUTOVER,
            Did::Wait if self.tables.setup.fine => {}
            Did::Wait => self.source(attempt, SourceIn::Poll),
            Did::Resume => {
                self.gate(facts.source, &facts, Gate::Open);
                self.state.ghost.kept.add(attempt);
                self.end_source(attempt);
            }
            Did::Retire { follow } => {
                if follow && !self.state.ghost.committed.has(attempt) {
                    self.state.ghost.wrong.add(FOLLOWS);
                }
                self.close(facts.source, facts.incarnation, facts.owner_generation);
                self.source(attempt, SourceIn::Retired);
            }
            // What comes late is forwarded, or not: messages are not searched here.
            Did::Moved | Did::End => self.end_source(attempt),
            Did::Lose => {
                self.close(facts.source, facts.incarnation, facts.owner_generation);
                if input != SourceIn::Over {
                    self.called_lost(attempt, &facts);
                }
                self.end_source(attempt);
            }
            Did::ReadSourceLease | Did::Restore | Did::SendReady | Did::SendFailed | Did::Open | Did::Discard => {
                unreachable!("a source does not")
            }
        }
    }

    /// Lost may be said of a move that committed only if the own lease has ended and nothing of the incarnation is left
    /// to tell: then it means "may have run". What did not commit before must never commit after.
    fn called_lost(&mut self, attempt: u8, facts: &Facts) {
        let can_tell = self.state.leased.has(facts.source) || self.state.seen.incarnation == facts.incarnation;
        if can_tell || !self.state.ghost.committed.has(attempt) {
            self.state.ghost.lost.add(attempt);
        }
    }

    /// The move is over: replies to what it asked find nobody, and a write that is out may still happen.
    fn end_source(&mut self, attempt: u8) {
        self.state.sources[usize::from(attempt)] = 0;
        self.forget_asked(|who| who == Who::Source(attempt));
    }

    /// The source hears that its connection is gone.
    pub(super) fn source_cut(&mut self, attempt: u8) {
        let machine = self.state.sources[usize::from(attempt)];
        let settling = machine != 0 && !self.tables.source_at(machine).phase.is_empty();
        if settling && self.tables.setup.lacks(Weakening::RollbackAfterSubmit) {
            return self.source_did(attempt, Did::Resume, SourceIn::PeerDown);
        }
        self.source(attempt, SourceIn::PeerDown);
    }

    // Moves to a node.

    /// The stage that takes the frames of this attempt.
    fn stage_for(&self, attempt: u8) -> Option<u8> {
        if self.state.targets[usize::from(attempt)] != 0 {
            return Some(attempt);
        }
        if !self.tables.setup.lacks(Weakening::IdentityRecurs) {
            return None;
        }
        let facts = self.state.facts[usize::from(attempt)];
        let mut others = (0u8..).zip(self.state.targets.iter().zip(&self.state.facts));
        others.find(|(_, (machine, other))| **machine != 0 && self.tables.look_alike(facts, **other)).map(|(at, _)| at)
    }

    pub(super) fn prepare_comes(&mut self, attempt: u8) {
        let at = usize::from(attempt);
        match self.stage_for(attempt) {
            Some(stage) if stage == attempt => self.target(stage, TargetIn::PrepareAgain),
            // Its checksum is another, as its state is.
            Some(stage) => self.target(stage, TargetIn::PrepareOther),
            None => match self.state.ended[at] {
                OPENED => self.state.frames[at] |= READY,
                REFUSED => self.state.frames[at] |= FAILED,
                _ => {
                    let (machine, dids) = self.tables.new_target(self.state.facts[at]);
                    self.state.targets[at] = machine;
                    self.target_dids(attempt, dids);
                }
            },
        }
    }

    pub(super) fn chunk_comes(&mut self, attempt: u8) {
        if self.state.targets[usize::from(attempt)] != 0 {
            self.target(attempt, TargetIn::Chunk);
        }
    }

    pub(super) fn cutover_comes(&mut self, attempt: u8) {
        match self.stage_for(attempt) {
            Some(stage) => self.target(stage, TargetIn::Cutover),
            None if self.state.ended[usize::from(attempt)] == OPENED => {}
            // The source settles sooner if it hears that this stage will never open.
            None => self.state.frames[usize::from(attempt)] |= FAILED,
        }
    }

    /// The move that takes the answers to this attempt.
    fn move_for(&self, attempt: u8) -> Option<u8> {
        if self.state.sources[usize::from(attempt)] != 0 {
            return Some(attempt);
        }
        if !self.tables.setup.lacks(Weakening::IdentityRecurs) {
            return None;
        }
        let facts = self.state.facts[usize::from(attempt)];
        let mut others = (0u8..).zip(self.state.sources.iter().zip(&self.state.facts));
        others.find(|(_, (machine, other))| **machine != 0 && self.tables.look_alike(facts, **other)).map(|(at, _)| at)
    }

    pub(super) fn answer_comes(&mut self, attempt: u8, input: SourceIn) {
        if let Some(moving) = self.move_for(attempt) {
            self.source(moving, input);
        }
    }

    pub(super) fn target(&mut self, attempt: u8, input: TargetIn) {
        let at = usize::from(attempt);
        let machine = self.state.targets[at];
        if machine == 0 {
            return;
        }
        let guarded = self.guarded(self.facts(attempt).target);
        let (next, dids) = self.tables.step_target(machine, self.state.facts[at], guarded, input);
        self.state.targets[at] = next;
        self.target_dids(attempt, dids);
    }

    fn target_dids(&mut self, attempt: u8, dids: Dids) {
        for did in dids {
            self.target_did(attempt, did);
        }
    }

    fn target_did(&mut self, attempt: u8, did: Did) {
        let at = usize::from(attempt);
        let who = Who::Target(attempt);
        let facts = self.facts(attempt);
        match did {
            Did::Nothing => {}
            Did::ReadRecord => {
                let command = self.tables.read_record();
                self.ask(who, Query::Record, command);
            }
            Did::ReadOwnLease => {
                let command = self.tables.read_lease(facts.target);
                self.ask(who, Query::OwnLease, command);
            }
            Did::ReadSourceLease => {
                let command = self.tables.read_lease(facts.source);
                self.ask(who, Query::SourceLease, command);
            }
            Did::Write => {
                let command = self.tables.commit(self.state.facts[at]);
                self.ask(who, Query::Write, command);
            }
            Did::Wait => {
                let state = self.tables.target_at(self.state.targets[at]).state;
                // A ready stage only looks on; it may look whenever it has no question out.
                if state != "Ready" && !self.tables.setup.fine {
                    self.target(attempt, TargetIn::Poll);
                }
            }
            Did::Restore => self.target(attempt, TargetIn::Restored),
            Did::SendReady => self.state.frames[at] |= READY,
            Did::SendFailed => self.state.frames[at] |= FAILED,
            Did::Open => {
                self.end_target(attempt, OPENED);
                self.state.ghost.opened.add(attempt);
                self.open(facts.target, facts.incarnation, facts.owner_generation + 1);
            }
            Did::Discard => self.end_target(attempt, REFUSED),
            Did::AskSize
            | Did::AcquireBudget
            | Did::CloseGate
            | Did::Capture
            | Did::Transfer
            | Did::Cutover
            | Did::Resume
            | Did::Retire { .. }
            | Did::Moved
            | Did::Lose
            | Did::End => unreachable!("a target does not"),
        }
    }

    fn end_target(&mut self, attempt: u8, end: u8) {
        self.state.targets[usize::from(attempt)] = 0;
        self.state.ended[usize::from(attempt)] = end;
        self.forget_asked(|who| who == Who::Target(attempt));
    }

    fn open(&mut self, process: u8, incarnation: u8, owner_generation: u8) {
        self.close(process, incarnation, owner_generation);
        self.state.lives.insert(Life { process, incarnation, owner_generation, gate: Gate::Open });
    }

    // The store.

    fn ask(&mut self, who: Who, query: Query, command: u16) {
        if !self.tables.setup.lacks(Weakening::OldQuestions) {
            // A machine has one question out at most: the answer to an older one must not pass for that of a newer one.
            self.forget_asked(|asker| asker == who);
        }
        self.state.ops.insert(Op { who, query, command, reply: 0 });
    }

    fn forget_asked(&mut self, whose: impl Fn(Who) -> bool) {
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

    fn store_is(&mut self, store: u16) {
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
            Who::Birth(_) | Who::Death(_) => return,
        };
        self.state.late.insert_once(Late { process, at_target, query: op.query as u8, reply: op.reply });
    }

    /// A reply that was given up answers the question at `at`, if that is of its kind.
    pub(super) fn late_comes(&mut self, late: usize, at: usize) {
        let (late, op) = (self.state.late.as_slice()[late], self.state.ops.as_slice()[at]);
        let asker = match op.who {
            Who::Source(attempt) => (self.facts(attempt).source, false),
            Who::Target(attempt) => (self.facts(attempt).target, true),
            Who::Birth(_) | Who::Death(_) => return,
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
            (Who::Death(process), Query::Write) => self.death_written(process, reply),
            (Who::Death(process), _) => self.death_read(process, reply),
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
            Ok(Some(orphan)) => plan::reclaim(&tenure, generation, &orphan),
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
                let batch = plan::reclaim(&tenure, Names::incarnation(birth.incarnation), &orphan);
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
            LeaseSeen::Unknown => self.birth_reads(process),
            LeaseSeen::Missing | LeaseSeen::Live => self.birth_fails(process),
        }
    }

    /// A taking-over that ends while a write of it may still happen leaves a record without an object, if it does: the
    /// node does not look for that, and the search does not count it.
    fn birth_fails(&mut self, process: u8) {
        let birth = std::mem::take(&mut self.state.births[usize::from(process)]);
        self.state.ghost.hung.add(birth.incarnation);
    }

    fn born(&mut self, process: u8) {
        let birth = std::mem::take(&mut self.state.births[usize::from(process)]);
        self.open(process, birth.incarnation, 1);
    }

    pub(super) fn begin_death(&mut self, at: usize) {
        let life = &mut self.state.lives.items_mut()[at];
        life.gate = Gate::Deleting;
        let process = life.process;
        let read = self.tables.read_record();
        self.ask(Who::Death(process), Query::Record, read);
    }

    fn dying(&self, process: u8) -> Option<Life> {
        let mut lives = self.state.lives.as_slice().iter();
        lives.find(|life| life.process == process && life.gate == Gate::Deleting).copied()
    }

    fn death_read(&mut self, process: u8, reply: u16) {
        let Some(life) = self.dying(process) else { return };
        let found = self.tables.record_of(reply);
        let ours = |found: &rehome::store::record::Authority| {
            found.record.generation == Names::incarnation(life.incarnation)
                && found.record.owner_generation == Names::owner_generation(life.owner_generation)
        };
        match found {
            Ok(Some(found)) if ours(&found) && self.guarded(process) => {
                let command = self.tables.write(plan::delete(&Names::object(), &found));
                self.ask(Who::Death(process), Query::Write, command);
            }
            Ok(Some(found)) if !ours(&found) => self.close(process, life.incarnation, life.owner_generation),
            Ok(None) => self.close(process, life.incarnation, life.owner_generation),
            Ok(Some(_)) | Err(()) => {
                let read = self.tables.read_record();
                self.ask(Who::Death(process), Query::Record, read);
            }
        }
    }

    fn death_written(&mut self, process: u8, reply: u16) {
        let Some(life) = self.dying(process) else { return };
        if self.tables.write_of(reply) == WriteSeen::Applied {
            return self.close(process, life.incarnation, life.owner_generation);
        }
        let read = self.tables.read_record();
        self.ask(Who::Death(process), Query::Record, read);
    }

    /// Somebody writes the same record again, which moves its version.
    pub(super) fn touch(&mut self) {
        let read = self.tables.read_record();
        let (_, reply) = self.tables.apply(self.state.store, read);
        if let Ok(Some(found)) = self.tables.record_of(reply) {
            let command = self.tables.write(plan::preserve(&Names::object(), &found));
            self.apply(command, 0);
        }
    }

    // Processes.

    /// The process stops: at once, or as one that knows that its lease is gone and tells its machines.
    pub(super) fn stop(&mut self, process: u8, tell: bool) {
        for attempt in 0..self.state.spent.moves {
            let facts = self.facts(attempt);
            if facts.source == process {
                if tell {
                    self.source(attempt, SourceIn::Over);
                }
                self.end_source(attempt);
            }
            if facts.target == process && self.state.targets[usize::from(attempt)] != 0 {
                if tell {
                    self.target(attempt, TargetIn::Over);
                }
                self.end_target(attempt, 0);
            }
            if facts.target == process {
                self.state.ended[usize::from(attempt)] = 0;
            }
        }
        self.forget_asked(|who| who == Who::Birth(process) || who == Who::Death(process));
        self.state.births[usize::from(process)] = Birth::default();
        self.state.lives.retain(|life| life.process != process);
        self.state.late.retain(|late| late.process != process);
        self.state.running.drop(process);
        self.state.guarded.drop(process);
    }

    pub(super) fn lease_ends(&mut self, process: u8) {
        let store = self.tables.expire(self.state.store, process);
        self.store_is(store);
    }

    /// A renewal reaches the store and is answered.
    pub(super) fn renews(&mut self, process: u8) {
        if !self.state.leased.has(process) {
            return self.stop(process, true);
        }
        self.state.guarded.add(process);
        for attempt in 0..self.state.spent.moves {
            let machine = self.state.sources[usize::from(attempt)];
            let waits = machine != 0 && self.tables.source_at(machine).state == "ReadyUnguarded";
            if waits && self.facts(attempt).source == process {
                self.source(attempt, SourceIn::GuardLive);
            }
        }
    }
}
