//! What a node does with the effects of its machines, as thin as it can be: gates, tickets, frames, remembered ends.
//! Whether anything opens, is kept or lost is decided by the machines alone.

use super::names::Facts;
use super::setup::Weakening;
use super::state::{Birth, FOLLOWS, Gate, Life, Query, State, Who};
use super::tables::Tables;
use super::wants::{Did, Dids, SourceIn, TargetIn};

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
    pub(super) fn facts(&self, attempt: u8) -> Facts {
        self.tables.facts(self.state.facts[usize::from(attempt)])
    }

    pub(super) fn guarded(&self, process: u8) -> bool {
        self.state.running.has(process) && self.state.guarded.has(process)
    }

    pub(super) fn life_of(&mut self, process: u8, facts: &Facts) -> Option<&mut Life> {
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

    pub(super) fn close(&mut self, process: u8, incarnation: u8, owner_generation: u8) {
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
                _ if self.state.ending.has(self.facts(attempt).target) => self.state.frames[at] |= FAILED,
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

    pub(super) fn open(&mut self, process: u8, incarnation: u8, owner_generation: u8) {
        self.close(process, incarnation, owner_generation);
        self.state.lives.insert(Life { process, incarnation, owner_generation, gate: Gate::Open });
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
        self.forget_asked(|who| match who {
            Who::Birth(of) | Who::Death(of, _) => of == process,
            Who::Source(_) | Who::Target(_) => false,
        });
        self.state.births[usize::from(process)] = Birth::default();
        self.state.lives.retain(|life| life.process != process);
        self.state.late.retain(|late| late.process != process);
        self.state.running.drop(process);
        self.state.ending.drop(process);
        self.state.guarded.drop(process);
    }

    /// The process ends in order: what is not past its cutover ends, and no new stage begins.
    pub(super) fn shuts_down(&mut self, process: u8) {
        self.state.ending.add(process);
        for attempt in 0..self.state.spent.moves {
            let facts = self.facts(attempt);
            let machine = self.state.sources[usize::from(attempt)];
            if facts.source == process && machine != 0 && self.tables.source_at(machine).phase.is_empty() {
                self.source(attempt, SourceIn::Shutdown);
            }
            if facts.target == process {
                self.target(attempt, TargetIn::Shutdown);
            }
        }
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
