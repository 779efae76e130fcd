//! Moves to this node: carries out what the target machines want, and feeds them what happens. A stage's temporary
//! queue stands before its first chunk is taken, and a stage that ended is remembered.

use super::event::{Event, Point};
use super::io::{Class, Conn, HostCommand, HostReply, Ticket};
use super::objects::{Gate, Hosted, Item, Work, tenure_key};
use super::{Node, Purpose, SendPurpose, StoreAnswer, TargetQuery, TenureKey, TimerKey, carry};
use crate::fence::{ObjectIdentity, ObjectKey, PeerFence, RelocationIdentity, Tenure};
use crate::id::{RelocationId, TypeName};
use crate::machine::settlement::{Committed, RecordSeen, TargetAsk, TargetTenure, WriteSeen};
use crate::machine::target::{Facts, Limits, Target, TargetEffect, TargetInput, TargetTimer};
use crate::receipt::TargetReceipt;
use crate::store::plan::{CommitPlan, NewTenure};
use crate::store::record::{AuthorityRecord, authority_key, lease_key};
use crate::store::{StoreCommand, StoreReply};
use crate::wire::{Failed, FailureCode, FrozenRecord, Prepare, Ready, Record, StreamContents};
use std::collections::{BTreeMap, VecDeque};

/// One move to this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stage {
    machine: Target,
    prepare: Prepare,
    source: PeerFence,
    tenure: Tenure,
    commits: TargetTenure,
    conn: Conn,
    /// Its question to the store that was asked last.
    asked: Option<Ticket>,
    /// The record that the commit will replace.
    record: Option<AuthorityRecord>,
    /// The host was asked to make the object.
    restored: bool,
    pub(super) temporary: VecDeque<Item>,
    pub(super) receipt: TargetReceipt,
}

impl Stage {
    pub(super) const fn is_committing(&self) -> bool {
        self.machine.is_committing()
    }

    pub(super) const fn object(&self) -> &ObjectKey {
        &self.tenure.object
    }
}

/// How a stage ended: enough to answer its source again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Terminal {
    Opened,
    Failed(FailureCode),
}

/// Ended stages, bounded; the oldest goes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Terminals {
    order: VecDeque<RelocationIdentity>,
    ended: BTreeMap<RelocationIdentity, Terminal>,
}

impl Terminals {
    fn remember(&mut self, identity: RelocationIdentity, terminal: Terminal, limit: usize) {
        if self.ended.insert(identity.clone(), terminal).is_none() {
            self.order.push_back(identity);
        }
        while self.order.len() > limit {
            if let Some(oldest) = self.order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }
}

#[derive(Debug)]
struct Offered<'a>(&'a super::Config);

impl Limits for Offered<'_> {
    fn state_limit(&self, stable_type: &TypeName) -> Option<u64> {
        self.0
            .types
            .get(stable_type)
            .filter(|config| config.policy != super::Policy::Disabled)
            .map(|config| config.state_limit)
    }
}

impl Node {
    /// 40 came.
    pub(super) fn prepare(&mut self, conn: Conn, from: &PeerFence, prepare: Prepare) {
        let Some(me) = self.identity() else { return self.count_stale("Prepare") };
        let coordinator = &prepare.identity.coordinator;
        let authentic = prepare.source == from.node && coordinator.node == from.node && coordinator.owner == from.owner;
        if !authentic || prepare.target != me {
            return self.count_stale("Prepare");
        }
        let relocation = prepare.identity.relocation;
        if let Some(stage) = self.stages.get(&relocation) {
            let input = if stage.prepare.identity != prepare.identity {
                return self.count_stale("Prepare");
            } else if stage.prepare == prepare {
                TargetInput::PrepareAgain
            } else {
                TargetInput::PrepareOther
            };
            return self.target(relocation, input);
        }
        if let Some(terminal) = self.terminals.ended.get(&prepare.identity).copied()
            && !planted!("forget_terminals")
        {
            return self.answer_terminal(conn, prepare.identity, prepare.object, terminal);
        }
        if self.shutdown.is_some() && !planted!("prepare_in_shutdown") {
            let refusal = Terminal::Failed(FailureCode::REJECTED);
            return self.answer_terminal(conn, prepare.identity, prepare.object, refusal);
        }
        self.stage(conn, from, prepare, me);
    }

    fn stage(&mut self, conn: Conn, from: &PeerFence, prepare: Prepare, me: PeerFence) {
        let relocation = prepare.identity.relocation;
        let supported = match &prepare.object {
            ObjectIdentity::Actor { owner_generation, .. } => owner_generation.next(),
            ObjectIdentity::UserSpot { .. } | ObjectIdentity::InstanceSpot { .. } => None,
        };
        let Some(owner_generation) = supported else {
            let refusal = Terminal::Failed(FailureCode::REJECTED);
            return self.answer_terminal(conn, prepare.identity, prepare.object, refusal);
        };
        let object = prepare.object.detached();
        let identity = prepare.identity.detached();
        let prepare = Prepare { object, identity, target: me.clone(), source: from.node.clone(), ..prepare };
        let commits = TargetTenure {
            generation: prepare.object.generation(),
            owner_generation,
            owner: me.owner,
            expected: prepare.identity.coordinator.version.clone(),
            relocation,
        };
        let tenure = Tenure {
            object: prepare.object.key(),
            generation: commits.generation,
            owner_generation,
            relocation: Some(relocation),
        };
        let (machine, effects) = Target::start(prepare.total_length, prepare.chunk_count, prepare.checksum);
        let longest = self.config.timing.operation.saturating_add(self.config.timing.cutover_wait);
        let at = prepare.deadline.map_or(self.now.mono.after(longest), |at| self.now.instant_of(at));
        let stage = Stage {
            machine,
            prepare,
            source: from.clone(),
            tenure,
            commits,
            conn,
            asked: None,
            record: None,
            restored: false,
            temporary: VecDeque::new(),
            receipt: TargetReceipt::default(),
        };
        let key = tenure_key(&stage.tenure);
        // A tenure that stands here, or stood here, is not made once more: what names it is not for this stage.
        if !self.hosted.contains_key(&key) && !self.follows.contains_key(&key) {
            self.stage_keys.entry(key).or_default().push(relocation);
        }
        self.stages.insert(relocation, stage);
        self.timers.arm(TimerKey::Target(relocation, TargetTimer::Deadline), at);
        for effect in effects {
            self.target_effect(relocation, effect);
        }
    }

    /// The newest stage that would make this tenure.
    pub(super) fn stage_mut(&mut self, key: &TenureKey) -> Option<&mut Stage> {
        let relocation = self.stage_keys.get(key)?.last()?;
        self.stages.get_mut(relocation)
    }

    /// Feeds the target machine of a move.
    pub(super) fn target(&mut self, relocation: RelocationId, input: TargetInput) {
        let guard_live = self.guard_live();
        let Some(stage) = self.stages.get_mut(&relocation) else { return self.count_stale("target") };
        let facts = Facts {
            object: &stage.prepare.object,
            coordinator: &stage.prepare.identity.coordinator,
            tenure: &stage.commits,
            state_limit: &Offered(&self.config),
        };
        let effects = stage.machine.step(guard_live, facts, input);
        for effect in effects {
            self.target_effect(relocation, effect);
        }
    }

    /// A frame of a move came: it belongs to a stage only by its whole identity and the peer that carried it.
    pub(super) fn target_frame(
        &mut self,
        conn: Conn,
        from: &PeerFence,
        identity: &RelocationIdentity,
        object: &ObjectIdentity,
        input: TargetInput,
    ) {
        let relocation = identity.relocation;
        if let Some(stage) = self.stages.get_mut(&relocation)
            && stage.prepare.identity == *identity
            && stage.prepare.object == *object
            && stage.source == *from
        {
            if matches!(input, TargetInput::Chunk { .. }) && stage.conn != conn {
                return self.count_stale("Chunk");
            }
            stage.conn = conn;
            return self.target(relocation, input);
        }
        let of_source = identity.coordinator.node == from.node && identity.coordinator.owner == from.owner;
        let terminal = self.terminals.ended.get(identity).copied();
        match (input, terminal) {
            // The source settles sooner if it hears that this stage will never open.
            (TargetInput::Data { .. } | TargetInput::Cutover { .. }, Some(terminal @ Terminal::Failed(_)))
                if of_source =>
            {
                self.answer_terminal(conn, identity.clone(), object.clone(), terminal);
            }
            (TargetInput::Cutover { .. }, None) if of_source => {
                let unknown = Terminal::Failed(FailureCode::ACTOR_LOCATION_STALE);
                self.answer_terminal(conn, identity.clone(), object.clone(), unknown);
            }
            (_, Some(_) | None) => self.count_stale("frame"),
        }
    }

    fn answer_terminal(
        &mut self,
        conn: Conn,
        identity: RelocationIdentity,
        object: ObjectIdentity,
        terminal: Terminal,
    ) {
        let Some(target) = self.identity() else { return };
        let record = match terminal {
            Terminal::Opened => Record::Ready(Ready { identity, target, object }),
            Terminal::Failed(code) => Record::Failed(Failed { identity, target, object, code }),
        };
        self.send(conn, Class::Small, record, SendPurpose::None);
    }

    fn answer_source(&mut self, relocation: RelocationId, answer: Terminal) {
        let Some(stage) = self.stages.get(&relocation) else { return };
        let Some(conn) = self.stage_conn(stage) else { return };
        let (identity, object) = (stage.prepare.identity.clone(), stage.prepare.object.clone());
        self.answer_terminal(conn, identity, object, answer);
    }

    pub(super) fn speaks_v14(&self, node: &crate::fence::NodeFence) -> bool {
        self.peers.get(node).and_then(|peer| peer.agreed.as_ref()).is_some_and(|agreed| agreed.v14)
    }

    /// The connection that the move's source has now.
    fn stage_conn(&self, stage: &Stage) -> Option<Conn> {
        self.peers.get(&stage.source.node).and_then(|peer| peer.conn)
    }

    fn target_effect(&mut self, relocation: RelocationId, effect: TargetEffect) {
        match effect {
            TargetEffect::ReadRecord => self.read_target_record(relocation),
            TargetEffect::Restore { stable_type, version, state } => {
                let Some(stage) = self.stages.get_mut(&relocation) else { return };
                stage.restored = true;
                let tenure = stage.tenure.clone();
                let command = HostCommand::Restore { tenure, type_name: stable_type, version, state };
                self.host(Purpose::Restore(relocation), command);
            }
            TargetEffect::SendReady => self.answer_source(relocation, Terminal::Opened),
            TargetEffect::SendFailed(code) => self.answer_source(relocation, Terminal::Failed(code)),
            TargetEffect::Warn => {
                self.counters.cutover_timeout = self.counters.cutover_timeout.saturating_add(1);
                self.event(Event::CutoverLate { relocation });
            }
            TargetEffect::Settle(ask) => self.target_ask(relocation, ask),
            TargetEffect::Open { committed, contents, boundary } => {
                self.open(relocation, committed, *contents, boundary)
            }
            TargetEffect::Discard { code, saved, boundary } => self.discard(relocation, code, saved, boundary),
            TargetEffect::Arm(timer) => {
                let delay = match timer {
                    // Armed with the prepare's own deadline when the stage began.
                    TargetTimer::Deadline => return,
                    TargetTimer::CutoverWait => self.config.timing.cutover_wait,
                    TargetTimer::Poll => self.config.timing.target_poll,
                };
                let at = self.now.mono.after(delay);
                self.timers.arm(TimerKey::Target(relocation, timer), at);
            }
            TargetEffect::Disarm(timer) => self.timers.disarm(&TimerKey::Target(relocation, timer)),
            TargetEffect::Ignored { state, input } => self.ignored("Target", state, input),
        }
    }

    fn read_target_record(&mut self, relocation: RelocationId) {
        let Some(stage) = self.stages.get(&relocation) else { return };
        let command = StoreCommand::Read(authority_key(&stage.tenure.object));
        self.target_store(relocation, TargetQuery::Record, command);
    }

    fn target_store(&mut self, relocation: RelocationId, query: TargetQuery, command: StoreCommand) {
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        let ticket = self.store(Purpose::Target(relocation, query), command, give_up);
        let older = self.stages.get_mut(&relocation).and_then(|stage| stage.asked.replace(ticket));
        // A stage that was only looking on may have a read out when its cutover comes. Its answer is older than what the
        // settlement asks from then on, and must not pass for the answer to any of that.
        if let Some(older) = older
            && !planted!("older_question_answers")
        {
            self.tickets.remove(&older);
        }
    }

    fn target_ask(&mut self, relocation: RelocationId, ask: TargetAsk) {
        let Some(stage) = self.stages.get(&relocation) else { return };
        let (query, command) = match ask {
            TargetAsk::ReadRecord => return self.read_target_record(relocation),
            TargetAsk::Wait => {
                let at = self.now.mono.after(self.config.timing.target_poll);
                return self.timers.arm(TimerKey::Target(relocation, TargetTimer::Poll), at);
            }
            TargetAsk::ReadOwnLease => (TargetQuery::OwnLease, StoreCommand::Read(lease_key(&stage.commits.owner))),
            TargetAsk::ReadSourceLease => {
                let key = lease_key(&stage.prepare.identity.coordinator.owner);
                (TargetQuery::SourceLease, StoreCommand::Read(key))
            }
            TargetAsk::Submit => {
                let Some(record) = &stage.record else { return };
                let plan = CommitPlan {
                    tenure: NewTenure {
                        object: stage.tenure.object.clone(),
                        stable_type: record.stable_type.clone(),
                        mesh: self.config.mesh.clone(),
                        node: self.config.node.clone(),
                        owner: stage.commits.owner.clone(),
                    },
                    generation: stage.commits.generation,
                    owner_generation: stage.commits.owner_generation,
                    expected: stage.commits.expected.clone(),
                    source: stage.prepare.identity.coordinator.owner.clone(),
                    relocation,
                    application: record.slot.application.clone(),
                    reserved: false,
                };
                (TargetQuery::Commit, StoreCommand::Write(plan.batch()))
            }
        };
        self.target_store(relocation, query, command);
    }

    pub(super) fn target_store_reply(&mut self, relocation: RelocationId, query: TargetQuery, reply: &StoreReply) {
        let input = match query {
            TargetQuery::Record => {
                let seen = match StoreAnswer::authority(reply) {
                    Err(()) => RecordSeen::Unknown,
                    Ok(None) => RecordSeen::Missing,
                    Ok(Some(found)) => {
                        if let Some(stage) = self.stages.get_mut(&relocation)
                            && found.version == stage.commits.expected
                        {
                            stage.record = Some(found.record.clone());
                        }
                        RecordSeen::Found(Box::new(found))
                    }
                };
                TargetInput::Record(seen)
            }
            TargetQuery::Commit => TargetInput::Submitted(match StoreAnswer::of_write(reply) {
                StoreAnswer::Applied => WriteSeen::Applied,
                StoreAnswer::Conflict => WriteSeen::Conflict,
                StoreAnswer::Unknown => WriteSeen::Unknown,
            }),
            TargetQuery::OwnLease => TargetInput::OwnLease(StoreAnswer::lease(reply)),
            TargetQuery::SourceLease => TargetInput::SourceLease(StoreAnswer::lease(reply)),
        };
        self.target(relocation, input);
    }

    pub(super) fn restored(&mut self, relocation: RelocationId, reply: HostReply) {
        let input = match reply {
            HostReply::Done => TargetInput::Restored,
            HostReply::Failed { code, .. } => TargetInput::RestoreFailed(code),
            HostReply::Size(_) | HostReply::Captured(_) => TargetInput::RestoreFailed(FailureCode::WORKER_FAILED),
        };
        self.target(relocation, input);
    }

    /// The commit is confirmed: saved work, then the boundary batch, then the temporary queue; then dispatch.
    fn open(
        &mut self,
        relocation: RelocationId,
        committed: Committed,
        contents: StreamContents,
        boundary: Vec<FrozenRecord>,
    ) {
        let Some(mut stage) = self.end_stage(relocation, Terminal::Opened) else { return };
        // The stages of other attempts at this tenure have lost: they take nothing that names it, also once it has ended.
        if !planted!("losing_stage_keeps_its_address") {
            self.stage_keys.remove(&tenure_key(&stage.tenure));
        }
        let object = stage.tenure.object.clone();
        self.point(relocation, &object, Point::Committed);
        let receipt = &mut stage.receipt;
        receipt.saved = u64::try_from(contents.work.len()).unwrap_or(u64::MAX);
        receipt.boundary = u64::try_from(boundary.len()).unwrap_or(u64::MAX);
        let mut mailbox = VecDeque::new();
        let identity = stage.prepare.identity.clone();
        for record in contents.work.into_iter().map(|saved| saved.record).chain(boundary) {
            match record {
                FrozenRecord::Known(message) => {
                    receipt.admitted = receipt.admitted.saturating_add(1);
                    let work = Work { delivery: carry::thaw(*message), relayed: Some(identity.clone()) };
                    mailbox.push_back(Item::Work(Box::new(work)));
                }
                // A kind that no object here runs.
                FrozenRecord::Opaque { .. } => receipt.rejected = receipt.rejected.saturating_add(1),
            }
        }
        receipt.admitted = receipt.admitted.saturating_add(receipt.temporary);
        if planted!("temporary_queue_first") {
            core::mem::swap(&mut mailbox, &mut stage.temporary);
        }
        mailbox.append(&mut stage.temporary);
        let receipt = *receipt;
        let stable_type = stage.record.as_ref().map(|record| record.stable_type.clone());
        let Some(type_name) = stable_type else { return };
        let hinting = self.speaks_v14(&stage.source.node) && !planted!("open_in_silence");
        let hint = self.stage_conn(&stage).filter(|_| hinting);
        let identities = (stage.prepare.identity, stage.prepare.object);
        let mut hosted = Hosted::new(stage.tenure, type_name, Gate::Open);
        hosted.mailbox = mailbox;
        self.open_moved(committed, hosted);
        self.point(relocation, &object, Point::Opened);
        // Ready once more: the source, which holds what came late, need not wait for its next poll of the store. It
        // proves nothing, and one that is lost costs that wait.
        if let Some(conn) = hint {
            self.answer_terminal(conn, identities.0, identities.1, Terminal::Opened);
        }
        self.stage_ended(relocation, object, true, receipt);
    }

    /// The stage is over and did not open.
    fn discard(&mut self, relocation: RelocationId, code: FailureCode, saved: u64, boundary: u64) {
        let Some(mut stage) = self.end_stage(relocation, Terminal::Failed(code)) else { return };
        let object = stage.tenure.object.clone();
        let receipt = &mut stage.receipt;
        (receipt.saved, receipt.boundary) = (saved, boundary);
        receipt.dropped = saved.saturating_add(boundary);
        receipt.rejected = receipt.temporary;
        let receipt = *receipt;
        // What waited here was accepted: it goes to the owner that the store names.
        self.forward_items(&object, None, stage.temporary);
        if stage.restored {
            let tenure = stage.tenure;
            self.host(Purpose::Hook(tenure.clone(), "Discard"), HostCommand::Discard { tenure });
        }
        self.stage_ended(relocation, object, false, receipt);
    }

    fn end_stage(&mut self, relocation: RelocationId, terminal: Terminal) -> Option<Stage> {
        let stage = self.stages.remove(&relocation)?;
        for timer in [TargetTimer::Deadline, TargetTimer::CutoverWait, TargetTimer::Poll] {
            self.timers.disarm(&TimerKey::Target(relocation, timer));
        }
        let key = tenure_key(&stage.tenure);
        if let Some(ids) = self.stage_keys.get_mut(&key) {
            ids.retain(|id| *id != relocation);
            if ids.is_empty() {
                self.stage_keys.remove(&key);
            }
        }
        self.terminals.remember(stage.prepare.identity.clone(), terminal, self.config.limits.terminal_memory);
        Some(stage)
    }

    fn stage_ended(&mut self, relocation: RelocationId, object: ObjectKey, opened: bool, receipt: TargetReceipt) {
        if !receipt.balances() {
            self.event(Event::Unbalanced { relocation });
        }
        self.event(Event::TargetEnded { relocation, object: object.clone(), opened, receipt });
        self.go_on_moving(&object);
        self.shutdown_step();
    }

    /// Feeds every stage of a source.
    pub(super) fn stages_of(&mut self, peer: &crate::fence::NodeFence, conn: Option<Conn>, input: &TargetInput) {
        let stages: Vec<RelocationId> = self
            .stages
            .iter()
            .filter(|(_, stage)| stage.source.node == *peer && conn.is_none_or(|conn| stage.conn == conn))
            .map(|(id, _)| *id)
            .collect();
        for relocation in stages {
            self.target(relocation, input.clone());
        }
    }

    pub(super) fn all_stages(&mut self, input: &TargetInput) {
        let stages: Vec<RelocationId> = self.stages.keys().copied().collect();
        for relocation in stages {
            self.target(relocation, input.clone());
        }
    }
}
