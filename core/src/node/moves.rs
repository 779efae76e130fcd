//! Moves away from this node: carries out what the source machine wants, and feeds it what happens.

use super::event::{Event, Point};
use super::io::{
    CallId, CallResult, Class, Conn, HostCommand, HostReply, KeptReason, MayHaveRun, MoveOutcome, Output,
    RefusedReason, SendId, Stage,
};
use super::objects::{Gate, Item};
use super::routes::Fate;
use super::{Node, Purpose, SendPurpose, SourceQuery, StoreAnswer, TenureKey, TimerKey, carry};
use crate::chunk::ChunkPlan;
use crate::fence::{CoordinatorFence, ObjectIdentity, ObjectKey, ObjectKind, PeerFence, RelocationIdentity};
use crate::id::{AttemptGeneration, ParticipantId, RelocationId, RoutingId, StoreVersion};
use crate::machine::follow::Follow;
use crate::machine::settlement::{Kept, LeaseSeen, RecordSeen, SourceAsk, SourceTenure, WriteSeen};
use crate::machine::source::{Source, SourceEffect, SourceInput, SourceTimer};
use crate::receipt::SourceReceipt;
use crate::rope::Rope;
use crate::state::Captured;
use crate::store::plan;
use crate::store::record::{Authority, authority_key, lease_key};
use crate::store::{StoreCommand, StoreReply};
use crate::time::UnixMillis;
use crate::wire::{
    ApplicationState, Cutover, Data, FrozenRecord, Prepare, Record, SavedState, SavedWork, State, StreamContents,
    encode_stream, frozen_crc,
};
use core::time::Duration;
use std::collections::VecDeque;

/// One move away from this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Move {
    machine: Source,
    call: CallId,
    key: TenureKey,
    pub(super) target: PeerFence,
    attempt: AttemptGeneration,
    deadline: UnixMillis,
    /// Bytes of the budget that this move holds.
    grant: u64,
    in_flight: u64,
    chunks: VecDeque<(u32, Rope)>,
    /// The record as it was read before the seal: its version is that of the fence.
    authority: Option<Authority>,
    prepare: Option<Prepare>,
    /// The connection that carries prepare and chunks.
    conn: Option<Conn>,
    batch: Option<Batch>,
    /// The last record of the first submission that was not reported yet.
    submit: Option<SendId>,
    bytes: u64,
    pub(super) receipt: SourceReceipt,
}

/// The boundary batch, whole, as it was frozen at the first cutover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batch {
    records: Vec<FrozenRecord>,
    cutover: Cutover,
}

impl Move {
    pub(super) const fn is_settling(&self) -> bool {
        self.machine.is_settling()
    }

    pub(super) const fn is_following(&self) -> bool {
        self.machine.is_following()
    }
}

impl Node {
    pub(super) fn relocate(&mut self, call: CallId, object: &ObjectKey, target: &RoutingId, timeout: Option<Duration>) {
        match self.preflight(object, target) {
            Err(RefusedReason::NotMovable)
                if self.wait_to_move(call, object, target, timeout.unwrap_or(self.config.timing.operation)) => {}
            Err(reason) => self.done(call, CallResult::Moved(Ok(MoveOutcome::Refused(reason)))),
            Ok((key, target)) => self.start_move(call, key, target, timeout),
        }
    }

    /// What would fail is refused before the object stops.
    fn preflight(&self, object: &ObjectKey, target: &RoutingId) -> Result<(TenureKey, PeerFence), RefusedReason> {
        if self.shutdown.is_some() || !self.is_serving() {
            return Err(RefusedReason::ShuttingDown);
        }
        let key = self.current.get(object).ok_or(RefusedReason::NotMovable)?;
        let hosted = self.hosted.get(key).ok_or(RefusedReason::NotMovable)?;
        let moving = self.moves.values().any(|moving| moving.key == *key);
        if hosted.gate != Gate::Open || moving {
            return Err(RefusedReason::NotMovable);
        }
        if *target == self.config.node.rid {
            return Err(RefusedReason::SameNode);
        }
        let policy = self.config.types.get(&hosted.type_name).map(|config| config.policy);
        if !matches!(policy, Some(super::Policy::Preserve | super::Policy::Recreate)) {
            return Err(RefusedReason::Disabled);
        }
        // A peer that does not speak this project's own link could not be sent what comes late.
        let speaks = |agreed: &crate::link::Agreed| agreed.link && agreed.v14;
        let peer = self.peers.values().find(|peer| {
            peer.fence.node.rid == *target && peer.conn.is_some() && peer.agreed.as_ref().is_some_and(speaks)
        });
        peer.map(|peer| (key.clone(), peer.fence.clone())).ok_or(RefusedReason::TargetUnavailable)
    }

    fn start_move(&mut self, call: CallId, key: TenureKey, target: PeerFence, timeout: Option<Duration>) {
        // Every attempt takes a fresh id: nothing of an earlier one can be taken for its own.
        let Ok(relocation) = RelocationId::new(self.entropy.next_u128().max(1)) else { return };
        self.attempts = self.attempts.saturating_add(1);
        let attempt = AttemptGeneration::new(self.attempts).unwrap_or(AttemptGeneration::FIRST);
        let deadline = self.now.wall.after(timeout.unwrap_or(self.config.timing.operation));
        let (machine, effects) = Source::start();
        let moving = Move {
            machine,
            call,
            key,
            target,
            attempt,
            deadline,
            grant: 0,
            in_flight: 0,
            chunks: VecDeque::new(),
            authority: None,
            prepare: None,
            conn: None,
            batch: None,
            submit: None,
            bytes: 0,
            receipt: SourceReceipt::default(),
        };
        self.moves.insert(relocation, moving);
        self.move_calls.insert(call, relocation);
        self.progress(call, Stage::Waiting);
        let at = self.now.mono.after(timeout.unwrap_or(self.config.timing.operation));
        self.timers.arm(TimerKey::Source(relocation, SourceTimer::Deadline), at);
        for effect in effects {
            self.source_effect(relocation, effect);
        }
    }

    /// Feeds the source machine of a move.
    pub(super) fn source(&mut self, relocation: RelocationId, input: SourceInput) {
        let guard_live = self.guard_live();
        let Some(owner) = self.tenancy().map(|tenancy| tenancy.pair.clone()) else { return };
        let Some(moving) = self.moves.get_mut(&relocation) else { return self.count_stale("source") };
        let (_, generation, owner_generation) = moving.key;
        let target = moving.target.clone();
        let tenure = move |version| SourceTenure { generation, owner_generation, owner, version, relocation, target };
        let effects = moving.machine.step(guard_live, input, tenure);
        for effect in effects {
            self.source_effect(relocation, effect);
        }
    }

    fn source_effect(&mut self, relocation: RelocationId, effect: SourceEffect) {
        match effect {
            SourceEffect::AskSize => self.ask_size(relocation),
            SourceEffect::AcquireBudget => self.grant_budget(),
            SourceEffect::ReadRecord => self.read_source_record(relocation),
            SourceEffect::CloseGate => self.close_gate(relocation),
            SourceEffect::Capture(_) => self.capture(relocation),
            SourceEffect::Transfer => self.transfer(relocation),
            SourceEffect::ResendPrepare => self.send_prepare(relocation),
            SourceEffect::Submit => self.submit(relocation),
            SourceEffect::Resubmit => {
                self.send_batch(relocation);
            }
            SourceEffect::Settle(ask) => self.source_ask(relocation, ask),
            SourceEffect::Arm(timer) => self.arm_source(relocation, timer),
            SourceEffect::Disarm(timer) => self.timers.disarm(&TimerKey::Source(relocation, timer)),
            SourceEffect::Refuse(reason) => self.end_move(relocation, MoveOutcome::Refused(reason)),
            SourceEffect::Resume(kept, reason) => self.resume(relocation, kept, reason),
            SourceEffect::Retire { follow } => self.retire(relocation, follow),
            SourceEffect::Moved => self.moved(relocation),
            SourceEffect::Lose => self.lose(relocation),
            SourceEffect::End => {
                if let Some(moving) = self.moves.remove(&relocation) {
                    self.follows.remove(&moving.key);
                    self.clear_source_timers(relocation);
                }
            }
            SourceEffect::Ignored { state, input } => self.ignored("Source", state, input),
        }
    }

    fn arm_source(&mut self, relocation: RelocationId, timer: SourceTimer) {
        let timing = &self.config.timing;
        let (timer, delay) = match timer {
            // Armed with the move's own deadline when it began.
            SourceTimer::Deadline => return,
            SourceTimer::PrepareResend => (timer, timing.prepare_resend),
            SourceTimer::SealLimit => (timer, timing.seal_limit),
            SourceTimer::Poll(step) => {
                let (first, longest) = timing.source_poll;
                let factor = 1u32.checked_shl(step.min(16)).unwrap_or(u32::MAX);
                (SourceTimer::Poll(0), first.saturating_mul(factor).min(longest))
            }
            SourceTimer::Resubmit => (timer, timing.cutover_wait),
            SourceTimer::Follow => (timer, timing.follow),
        };
        let at = self.now.mono.after(delay);
        self.timers.arm(TimerKey::Source(relocation, timer), at);
    }

    fn ask_size(&mut self, relocation: RelocationId) {
        let Some(tenure) = self.move_tenure(relocation) else { return };
        self.host(Purpose::Source(relocation, SourceQuery::Size), HostCommand::SizeHint { tenure });
    }

    fn move_tenure(&self, relocation: RelocationId) -> Option<crate::fence::Tenure> {
        let moving = self.moves.get(&relocation)?;
        self.hosted.get(&moving.key).map(|hosted| hosted.tenure.clone())
    }

    fn state_limit(&self, key: &TenureKey) -> u64 {
        let hosted = self.hosted.get(key);
        hosted.and_then(|hosted| self.config.types.get(&hosted.type_name)).map_or(0, |config| config.state_limit)
    }

    pub(super) fn source_host_reply(&mut self, relocation: RelocationId, query: SourceQuery, reply: HostReply) {
        match (query, reply) {
            (SourceQuery::Size, HostReply::Size(size)) => {
                let Some(moving) = self.moves.get_mut(&relocation) else { return };
                let (key, target) = (moving.key.clone(), moving.target.node.clone());
                let fits = size <= self.state_limit(&key) && self.chunk_plan(&target, size.max(1)).is_some();
                if fits {
                    self.budget.ask(relocation, target, size);
                }
                self.source(relocation, SourceInput::Size { fits });
            }
            (SourceQuery::Capture, HostReply::Captured(state)) => self.captured(relocation, state),
            (SourceQuery::Capture, HostReply::Done | HostReply::Size(_) | HostReply::Failed { .. }) => {
                self.source(relocation, SourceInput::CaptureFailed(KeptReason::CaptureFailed));
            }
            (SourceQuery::Retire, HostReply::Failed { detail, .. }) => {
                if let Some(moving) = self.moves.get(&relocation) {
                    let (object, generation, owner_generation) = moving.key.clone();
                    let tenure = crate::fence::Tenure { object, generation, owner_generation, relocation: None };
                    self.event(Event::HostFailed { tenure, command: "Retire", detail });
                }
                self.source(relocation, SourceInput::Retired);
            }
            (SourceQuery::Retire, HostReply::Done | HostReply::Size(_) | HostReply::Captured(_)) => {
                self.source(relocation, SourceInput::Retired);
            }
            (SourceQuery::Size, HostReply::Done | HostReply::Captured(_) | HostReply::Failed { .. })
            | (SourceQuery::Record | SourceQuery::OwnLease | SourceQuery::Preserve, _) => {
                self.source(relocation, SourceInput::SizeFailed);
            }
        }
    }

    fn chunk_plan(&self, target: &crate::fence::NodeFence, total: u64) -> Option<ChunkPlan> {
        // Room for the frame around a chunk's bytes: the limit counts encoded bytes.
        const FRAME: u32 = 2048;
        let advertised = self.peers.get(target)?.agreed.as_ref()?.chunk_limit;
        let limit = advertised.unwrap_or(32 << 10).min(self.config.limits.chunk);
        let budget = [self.config.limits.peer_budget, self.config.limits.node_budget];
        let budget = budget.into_iter().filter(|limit| *limit != 0).min().unwrap_or(u64::MAX);
        let limit = if limit > FRAME.saturating_mul(2) { limit.saturating_sub(FRAME) } else { limit };
        let limit = usize::try_from(u64::from(limit).min(budget)).unwrap_or(usize::MAX);
        let strict = advertised.is_some() && u64::try_from(limit).unwrap_or(u64::MAX) < budget;
        ChunkPlan::new(total, limit.max(1), strict).ok()
    }

    pub(super) fn grant_budget(&mut self) {
        while let Some((relocation, bytes)) = self.budget.next_grant() {
            match self.moves.get_mut(&relocation) {
                Some(moving) => {
                    moving.grant = bytes;
                    self.source(relocation, SourceInput::Budget);
                }
                None => continue,
            }
        }
    }

    fn read_source_record(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let command = StoreCommand::Read(authority_key(&moving.key.0));
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::Source(relocation, SourceQuery::Record), command, give_up);
    }

    pub(super) fn source_store_reply(&mut self, relocation: RelocationId, query: SourceQuery, reply: &StoreReply) {
        match query {
            SourceQuery::Record => {
                let mut seen = match StoreAnswer::authority(reply) {
                    Err(()) => RecordSeen::Unknown,
                    Ok(None) => RecordSeen::Missing,
                    Ok(Some(found)) => RecordSeen::Found(Box::new(found)),
                };
                // Before the seal the record must be exactly our tenure.
                if let Some(moving) = self.moves.get_mut(&relocation)
                    && !moving.machine.is_settling()
                    && let RecordSeen::Found(found) = &seen
                {
                    let ours = found.record.generation == moving.key.1
                        && found.record.owner_generation == moving.key.2
                        && Some(&found.record.owner) == self.life_pair().as_ref();
                    if let (true, Some(moving)) = (ours, self.moves.get_mut(&relocation)) {
                        moving.authority = Some((**found).clone());
                    } else {
                        seen = RecordSeen::Missing;
                    }
                }
                self.source(relocation, SourceInput::Record(seen));
            }
            SourceQuery::OwnLease => {
                let seen = StoreAnswer::lease(reply);
                self.source(relocation, SourceInput::OwnLease(seen));
                if seen == LeaseSeen::Missing {
                    self.check_lease();
                }
            }
            SourceQuery::Preserve => {
                let seen = match StoreAnswer::of_write(reply) {
                    StoreAnswer::Applied => WriteSeen::Applied,
                    StoreAnswer::Conflict => WriteSeen::Conflict,
                    StoreAnswer::Unknown => WriteSeen::Unknown,
                };
                self.source(relocation, SourceInput::Preserved(seen));
            }
            SourceQuery::Size | SourceQuery::Capture | SourceQuery::Retire => {}
        }
    }

    fn source_ask(&mut self, relocation: RelocationId, ask: SourceAsk) {
        match ask {
            SourceAsk::ReadRecord => self.read_source_record(relocation),
            SourceAsk::ReadOwnLease => {
                let Some(pair) = self.life_pair() else { return };
                let give_up = self.now.mono.after(self.config.timing.store_timeout);
                let command = StoreCommand::Read(lease_key(&pair));
                self.store(Purpose::Source(relocation, SourceQuery::OwnLease), command, give_up);
            }
            SourceAsk::Preserve => {
                let Some(moving) = self.moves.get(&relocation) else { return };
                let Some(authority) = &moving.authority else { return };
                let command = StoreCommand::Write(plan::preserve(&moving.key.0, authority));
                let give_up = self.now.mono.after(self.config.timing.store_timeout);
                self.store(Purpose::Source(relocation, SourceQuery::Preserve), command, give_up);
            }
            SourceAsk::Wait(step) => self.arm_source(relocation, SourceTimer::Poll(step)),
        }
    }

    fn close_gate(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let (key, call) = (moving.key.clone(), moving.call);
        let Some(hosted) = self.hosted.get_mut(&key) else {
            return self.source(relocation, SourceInput::CaptureFailed(KeptReason::CaptureFailed));
        };
        hosted.gate = Gate::Sealing(relocation);
        let idle = hosted.running.is_none();
        self.progress(call, Stage::Sealing);
        self.point(relocation, &key.0, Point::Sealed);
        if idle {
            self.source_turns_ended(relocation);
        }
    }

    pub(super) fn source_turns_ended(&mut self, relocation: RelocationId) {
        self.source(relocation, SourceInput::TurnsEnded);
    }

    fn capture(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        let Some(hosted) = self.hosted.get_mut(&moving.key) else { return };
        let saved = hosted.mailbox.len();
        hosted.gate = Gate::Captured { relocation, saved, relayed: None };
        moving.receipt.saved = count(hosted.mailbox.iter());
        let tenure = hosted.tenure.clone();
        self.host(Purpose::Source(relocation, SourceQuery::Capture), HostCommand::Capture { tenure });
    }

    fn captured(&mut self, relocation: RelocationId, state: Option<Captured>) {
        match self.build_stream(relocation, state) {
            Ok(()) => self.source(relocation, SourceInput::Captured),
            Err(reason) => self.source(relocation, SourceInput::CaptureFailed(reason)),
        }
    }

    fn build_stream(&mut self, relocation: RelocationId, state: Option<Captured>) -> Result<(), KeptReason> {
        let failed = KeptReason::CaptureFailed;
        let owner = self.life_pair().ok_or(failed)?;
        let moving = self.moves.get(&relocation).ok_or(failed)?;
        let hosted = self.hosted.get(&moving.key).ok_or(failed)?;
        let Gate::Captured { saved, .. } = hosted.gate else { return Err(failed) };
        let length = state.as_ref().map_or(0, |state| state.rope.len());
        if u64::try_from(length).unwrap_or(u64::MAX) > self.state_limit(&moving.key) {
            return Err(KeptReason::TooLarge);
        }
        let object = identity(&moving.key);
        let mut work = Vec::new();
        for (order, item) in (1u64..).zip(hosted.mailbox.iter().take(saved)) {
            if let Item::Work(waiting) = item {
                let message = carry::freeze(&waiting.delivery);
                work.push(SavedWork {
                    participant: ParticipantId::FIRST,
                    order,
                    record: FrozenRecord::Known(Box::new(message)),
                });
            }
        }
        let contents = StreamContents {
            relocation,
            object: object.clone(),
            application_version: self.config.application_version,
            states: vec![ApplicationState {
                participant: ParticipantId::FIRST,
                state: state.map(|state| SavedState { rope: state.rope, crc: Some(state.crc) }),
            }],
            work,
            timers: Vec::new(),
            ticks: Vec::new(),
        };
        let (stream, checksum) = encode_stream(&contents).map_err(|_| failed)?;
        let total_length = u64::try_from(stream.len()).map_err(|_| failed)?;
        let plan = self.chunk_plan(&moving.target.node, total_length).ok_or(KeptReason::TooLarge)?;
        let version = moving.authority.as_ref().map(|found| found.version.clone()).ok_or(failed)?;
        let prepare = Prepare {
            identity: self.relocation_identity(relocation, moving.attempt, owner, version),
            target: moving.target.clone(),
            object,
            source: self.config.node.clone(),
            total_length,
            chunk_count: plan.count(),
            checksum,
            application_version: self.config.application_version,
            deadline: Some(moving.deadline),
        };
        let chunks = plan.cut(stream).map_err(|_| failed)?;
        let moving = self.moves.get_mut(&relocation).ok_or(failed)?;
        moving.chunks = chunks.collect();
        moving.bytes = total_length;
        moving.prepare = Some(prepare);
        Ok(())
    }

    fn relocation_identity(
        &self,
        relocation: RelocationId,
        attempt: AttemptGeneration,
        owner: crate::fence::OwnerPair,
        version: StoreVersion,
    ) -> RelocationIdentity {
        let coordinator = CoordinatorFence { owner, node: self.config.node.clone(), version };
        RelocationIdentity { relocation, attempt, coordinator }
    }

    fn transfer(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        moving.conn = self.peers.get(&moving.target.node).and_then(|peer| peer.conn);
        let call = moving.call;
        self.progress(call, Stage::Transferring);
        if self.moves.get(&relocation).is_some_and(|moving| moving.conn.is_none()) {
            return self.source(relocation, SourceInput::PeerDown);
        }
        self.send_prepare(relocation);
        self.pump(relocation);
    }

    fn send_prepare(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let (Some(conn), Some(mut prepare)) = (moving.conn, moving.prepare.clone()) else { return };
        let v14 = self.speaks_v14(&moving.target.node);
        if !v14 {
            prepare.deadline = None;
        }
        self.send(conn, Class::Small, Record::Prepare(prepare), SendPurpose::None);
    }

    /// Sends chunks as far as the grant allows; one may always be on its way.
    fn pump(&mut self, relocation: RelocationId) {
        loop {
            let Some(moving) = self.moves.get_mut(&relocation) else { return };
            let (Some(conn), Some(prepare)) = (moving.conn, &moving.prepare) else { return };
            let Some((_, data)) = moving.chunks.front() else { return };
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            if moving.in_flight > 0 && moving.in_flight.saturating_add(length) > moving.grant {
                return;
            }
            let (identity, object) = (prepare.identity.clone(), prepare.object.clone());
            let Some((ordinal, data)) = moving.chunks.pop_front() else { return };
            moving.in_flight = moving.in_flight.saturating_add(length);
            let record = Record::State(State { identity, object, ordinal, data });
            self.send(conn, Class::Bulk, record, SendPurpose::Chunk { relocation, bytes: length });
        }
    }

    /// A chunk was written, or its connection is gone: its bytes go back.
    pub(super) fn chunk_sent(&mut self, relocation: RelocationId, bytes: u64) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        moving.in_flight = moving.in_flight.saturating_sub(bytes);
        let left = moving
            .chunks
            .iter()
            .fold(moving.in_flight, |sum, (_, data)| sum.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX)));
        let excess = moving.grant.saturating_sub(left);
        moving.grant = moving.grant.saturating_sub(excess);
        let target = moving.target.node.clone();
        self.budget.give_back(&target, excess);
        self.pump(relocation);
        self.grant_budget();
    }

    /// Freezes the boundary batch and sends it with the cutover: the point of no return.
    fn submit(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        let call = moving.call;
        let Some(prepare) = moving.prepare.as_ref() else { return };
        let (identity, object) = (prepare.identity.clone(), prepare.object.clone());
        let Some(hosted) = self.hosted.get_mut(&moving.key) else { return };
        let Gate::Captured { saved, relayed, .. } = &mut hosted.gate else { return };
        let held = hosted.mailbox.len().saturating_sub(*saved);
        *relayed = Some(held);
        let records: Vec<FrozenRecord> = hosted
            .mailbox
            .iter()
            .skip(if planted!("saved_work_again_as_boundary") { 0 } else { *saved })
            .filter_map(|item| match item {
                Item::Work(work) => Some(FrozenRecord::Known(Box::new(carry::freeze(&work.delivery)))),
                Item::Marker(_) => None,
            })
            .collect();
        let checksum = records.iter().try_fold(0u32, frozen_crc).unwrap_or(0);
        let record_count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let cutover = Cutover { identity, object, record_count, checksum };
        moving.batch = Some(Batch { records, cutover });
        self.progress(call, Stage::Ready);
        self.progress(call, Stage::Cutover);
        match self.send_batch(relocation) {
            Some(send) => {
                if let Some(moving) = self.moves.get_mut(&relocation) {
                    moving.submit = Some(send);
                }
            }
            None => self.submitted(relocation),
        }
    }

    /// Sends the whole batch and the cutover, however often it was sent before.
    fn send_batch(&mut self, relocation: RelocationId) -> Option<SendId> {
        let moving = self.moves.get(&relocation)?;
        let conn = self.peers.get(&moving.target.node)?.conn?;
        if !self.guard_live() {
            return None;
        }
        let Batch { records, cutover } = moving.batch.clone()?;
        let skip = if planted!("resend_only_tail") && moving.machine.is_settling() && moving.submit.is_none() {
            records.len().div_ceil(2)
        } else {
            0
        };
        for record in records.into_iter().skip(skip) {
            let (identity, object) = (cutover.identity.clone(), cutover.object.clone());
            self.send(conn, Class::Small, Record::Data(Data { identity, object, record }), SendPurpose::None);
        }
        Some(self.send(conn, Class::Small, Record::Cutover(cutover), SendPurpose::Cutover(relocation)))
    }

    /// The submission of a cutover ended, well or not. Only the first one is waited for.
    pub(super) fn cutover_sent(&mut self, relocation: RelocationId, send: SendId) {
        if let Some(moving) = self.moves.get_mut(&relocation)
            && moving.submit == Some(send)
        {
            moving.submit = None;
            self.submitted(relocation);
        }
    }

    fn submitted(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let (object, call) = (moving.key.0.clone(), moving.call);
        self.point(relocation, &object, Point::Submitted);
        self.progress(call, Stage::Settling);
        self.source(relocation, SourceInput::Submitted);
    }

    /// Everything goes on here, in its accepted order.
    fn resume(&mut self, relocation: RelocationId, kept: Kept, reason: KeptReason) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        let key = moving.key.clone();
        let receipt = &mut moving.receipt;
        receipt.returned = receipt.saved.saturating_add(receipt.held);
        self.open_kept(kept, &key);
        self.end_move(relocation, MoveOutcome::KeptSource { relocation, reason });
    }

    /// The object lives elsewhere: what the target took over is dropped, the rest follows it.
    fn retire(&mut self, relocation: RelocationId, follow: bool) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let (key, target) = (moving.key.clone(), moving.target.clone());
        self.point(relocation, &key.0, Point::Settled);
        let Some(mut hosted) = self.close(&key) else { return };
        let (saved, relayed) = match hosted.gate {
            Gate::Captured { saved, relayed, .. } => (saved, relayed.unwrap_or(0)),
            Gate::Activating | Gate::Open | Gate::Sealing(_) | Gate::Deleting(_) => (0, 0),
        };
        let rest = hosted.mailbox.split_off(saved.saturating_add(relayed).min(hosted.mailbox.len()));
        let batch = hosted.mailbox.split_off(saved.min(hosted.mailbox.len()));
        let transferred = count(hosted.mailbox.iter());
        let relayed = count(batch.iter());
        // Markers that stood among what the target took over go on behind it.
        let markers = hosted.mailbox.into_iter().chain(batch).filter(|item| matches!(item, Item::Marker(_)));
        let next = follow.then(|| crate::fence::RouteFence {
            object: key.0.id.clone(),
            generation: key.1,
            node: target.node.clone(),
            owner_generation: key.2.next().unwrap_or(key.2),
            lease: target.owner.lease,
        });
        if let Some(ended) = self.fence_of(&key) {
            self.route_moved(&key.0, &ended, next.clone());
            if let Some(next) = next.clone()
                && !self.config.timing.follow.is_zero()
                && let Some(route) = Follow::new(ended, next)
            {
                self.follows.insert(key.clone(), route);
            }
        }
        let followed = self.forward_items(&key.0, next.as_ref(), markers.chain(rest).collect::<Vec<_>>());
        if let Some(moving) = self.moves.get_mut(&relocation) {
            moving.receipt.transferred = transferred;
            moving.receipt.relayed = relayed;
            moving.receipt.followed = followed;
        }
        let tenure = hosted.tenure;
        self.host(Purpose::Source(relocation, SourceQuery::Retire), HostCommand::Retire { tenure });
    }

    fn moved(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let route = self.follows.get(&moving.key).map(|follow| follow.target.clone());
        self.report_move(relocation, MoveOutcome::Moved { relocation, route });
    }

    /// The lease ended, or somebody else has the object: its requests end, once each.
    fn lose(&mut self, relocation: RelocationId) {
        let Some(moving) = self.moves.get(&relocation) else { return };
        let key = moving.key.clone();
        self.lose_object(&key, Some(relocation), Fate::MayHaveRun(MayHaveRun::LeaseEnded));
        self.end_move(relocation, MoveOutcome::Lost { relocation });
    }

    /// Takes a life that is lost off this node. `fate` is that of what waited in it; what ran may have run.
    pub(super) fn lose_object(&mut self, key: &TenureKey, relocation: Option<RelocationId>, fate: Fate) {
        let Some(hosted) = self.close(key) else { return };
        let running = hosted.running.map(|running| Item::Work(running.work));
        let in_account = count(hosted.mailbox.iter());
        let _ = self.end_items(&key.0, running, Fate::MayHaveRun(MayHaveRun::LeaseEnded));
        let _ = self.end_items(&key.0, hosted.mailbox, fate);
        if let Some(moving) = relocation.and_then(|relocation| self.moves.get_mut(&relocation))
            && moving.receipt != SourceReceipt::default()
        {
            moving.receipt.rejected = in_account;
        }
        if let Some(ended) = self.fence_of(key) {
            self.route_moved(&key.0, &ended, None);
        }
        let tenure = hosted.tenure;
        self.host(Purpose::Hook(tenure.clone(), "Discard"), HostCommand::Discard { tenure });
    }

    /// Ends a move at once.
    fn end_move(&mut self, relocation: RelocationId, outcome: MoveOutcome) {
        self.report_move(relocation, outcome);
        self.moves.remove(&relocation);
        self.clear_source_timers(relocation);
        self.shutdown_step();
    }

    /// Tells the caller, and gives back what a finished move does not need.
    fn report_move(&mut self, relocation: RelocationId, outcome: MoveOutcome) {
        let Some(moving) = self.moves.get_mut(&relocation) else { return };
        let (call, object, target) = (moving.call, moving.key.0.clone(), moving.target.node.clone());
        let (receipt, bytes) = (moving.receipt, moving.bytes);
        let grant = core::mem::take(&mut moving.grant);
        moving.chunks.clear();
        moving.batch = None;
        moving.prepare = None;
        moving.authority = None;
        self.budget.withdraw(relocation);
        if !planted!("budget_leaks") {
            self.budget.give_back(&target, grant);
        }
        self.move_calls.remove(&call);
        self.clear_source_timers(relocation);
        self.count_move(&outcome, bytes);
        if !receipt.balances() {
            self.event(Event::Unbalanced { relocation });
        }
        self.event(Event::SourceEnded { call, object, target: target.rid, outcome: outcome.clone(), receipt, bytes });
        self.done(call, CallResult::Moved(Ok(outcome)));
        self.grant_budget();
        self.shutdown_step();
    }

    fn clear_source_timers(&mut self, relocation: RelocationId) {
        for timer in [
            SourceTimer::Deadline,
            SourceTimer::PrepareResend,
            SourceTimer::SealLimit,
            SourceTimer::Poll(0),
            SourceTimer::Resubmit,
            SourceTimer::Follow,
        ] {
            self.timers.disarm(&TimerKey::Source(relocation, timer));
        }
    }

    pub(super) fn cancel_move(&mut self, call: CallId, relocate: CallId) {
        let relocation = self.move_calls.get(&relocate).copied();
        let cancellable = relocation
            .and_then(|relocation| self.moves.get(&relocation))
            .is_some_and(|moving| !moving.is_settling() && !moving.is_following());
        if let (true, Some(relocation)) = (cancellable, relocation) {
            self.source(relocation, SourceInput::Cancel);
        }
        let waited = self.give_up_waiting(relocate, RefusedReason::Cancelled);
        self.done(call, CallResult::Cancelled(cancellable || waited));
    }

    /// 30 or 53 came from a peer.
    pub(super) fn source_answer(
        &mut self,
        from: &PeerFence,
        identity: &RelocationIdentity,
        target: &PeerFence,
        input: SourceInput,
    ) {
        let relocation = identity.relocation;
        let fits = self.moves.get(&relocation).is_some_and(|moving| {
            moving.target == *from
                && moving.target == *target
                && moving.prepare.as_ref().is_some_and(|prepare| prepare.identity == *identity)
        });
        if fits { self.source(relocation, input) } else { self.count_stale("answer") }
    }

    /// Feeds every move to `peer`.
    pub(super) fn sources_of(&mut self, peer: &crate::fence::NodeFence, input: &SourceInput) {
        let moves: Vec<RelocationId> =
            self.moves.iter().filter(|(_, moving)| moving.target.node == *peer).map(|(id, _)| *id).collect();
        for relocation in moves {
            self.source(relocation, input.clone());
        }
    }

    pub(super) fn sources_guard_live(&mut self) {
        let moves: Vec<RelocationId> = self
            .moves
            .iter()
            .filter(|(_, moving)| moving.machine.state() == "ReadyUnguarded")
            .map(|(id, _)| *id)
            .collect();
        for relocation in moves {
            self.source(relocation, SourceInput::GuardLive);
        }
    }

    fn progress(&mut self, call: CallId, stage: Stage) {
        self.outputs.push_back(Output::Progress { call, stage });
    }

    pub(super) fn point(&mut self, relocation: RelocationId, object: &ObjectKey, point: Point) {
        self.event(Event::Point { relocation, object: object.clone(), point });
    }
}

/// The object of a move, as its frames name it.
fn identity(key: &TenureKey) -> ObjectIdentity {
    let (object, generation, owner_generation) = (&key.0, key.1, key.2);
    let id = object.id.clone();
    match object.kind {
        ObjectKind::Actor => ObjectIdentity::Actor { id, generation, owner_generation },
        ObjectKind::Spot => ObjectIdentity::UserSpot { id, generation, owner_generation },
    }
}

fn count<'a>(items: impl Iterator<Item = &'a Item>) -> u64 {
    let works = items.filter(|item| matches!(item, Item::Work(_))).count();
    u64::try_from(works).unwrap_or(u64::MAX)
}
