//! Calls that make, take over, delete and find objects.

use super::event::Event;
use super::io::{Activation, CallError, CallId, CallResult, Created, Existing, HostCommand, HostReply, NotRun};
use super::objects::{Gate, Hosted, tenure_key};
use super::routes::Fate;
use super::{Node, Purpose, StoreAnswer, TenureKey, TimerKey};
use crate::fence::{ObjectKey, RouteFence, Tenure};
use crate::id::{ObjectGeneration, OwnerGeneration, TypeName};
use crate::machine::settlement::LeaseSeen;
use crate::store::plan::{self, NewTenure};
use crate::store::record::{Authority, authority_key, lease_key};
use crate::store::{StoreCommand, StoreReply};
use crate::time::Instant;
use bytes::Bytes;

/// A call that makes or takes over an object, or deletes one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Birth {
    object: ObjectKey,
    /// The type asked for; `None` for a reclaim, which keeps the record's.
    type_name: Option<TypeName>,
    arguments: Bytes,
    existing: Existing,
    generation: ObjectGeneration,
    give_up: Instant,
    orphan: Option<Authority>,
    /// A write of it was given up and may still take effect. It does not end before that is known, though its call may:
    /// else the store could name this node the owner of what nobody here has.
    unknown: bool,
    /// It waits until such a write can no longer take effect.
    fencing: bool,
    /// None can any more: the next read tells for good.
    fenced: bool,
    /// A write of it was refused.
    refused: bool,
    /// What it asks again after a pause.
    again: Option<BirthQuery>,
}

/// What a store reply about a birth or a deletion answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BirthQuery {
    /// The record, before the write.
    Read,
    /// The lease of the owner that is to be taken over from.
    OwnerLease,
    /// The write.
    Write,
    /// The record, after a write whose end is not known.
    Confirm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DeathQuery {
    Read,
    Write,
}

impl Birth {
    /// Whether the store may already name this node the owner.
    pub(super) const fn may_stand(&self) -> bool {
        self.unknown
    }
}

impl Node {
    pub(super) fn create(
        &mut self,
        call: CallId,
        object: ObjectKey,
        type_name: TypeName,
        arguments: Bytes,
        existing: Existing,
    ) {
        if !self.config.types.contains_key(&type_name) {
            return self.done(call, CallResult::Created(Err(CallError::UnknownType(type_name))));
        }
        self.begin_birth(call, object, Some(type_name), arguments, existing);
    }

    pub(super) fn reclaim(&mut self, call: CallId, object: ObjectKey, arguments: Bytes) {
        self.begin_birth(call, object, None, arguments, Existing::Refuse);
    }

    fn begin_birth(
        &mut self,
        call: CallId,
        object: ObjectKey,
        type_name: Option<TypeName>,
        arguments: Bytes,
        existing: Existing,
    ) {
        if !self.is_serving() || self.shutdown.is_some() {
            return self.done(call, CallResult::Created(Err(CallError::NotRun(NotRun::NotServing))));
        }
        let generation = ObjectGeneration::new(self.entropy.next_generation()).unwrap_or(ObjectGeneration::FIRST);
        let give_up = self.now.mono.after(self.config.timing.operation);
        let birth = Birth {
            object,
            type_name,
            arguments,
            existing,
            generation,
            give_up,
            orphan: None,
            unknown: false,
            fencing: false,
            fenced: false,
            refused: false,
            again: None,
        };
        self.births.insert(call, birth);
        self.birth_read(call, BirthQuery::Read);
    }

    fn birth_read(&mut self, call: CallId, query: BirthQuery) {
        let Some(birth) = self.births.get(&call) else { return };
        let unknown = birth.unknown;
        if birth.give_up <= self.now.mono {
            if !unknown || planted!("birth_ends_unknown") {
                return self.birth_failed(call, CallError::StoreUnavailable);
            }
            self.done(call, CallResult::Created(Err(CallError::StoreUnavailable)));
        }
        let Some(birth) = self.births.get(&call) else { return };
        let command = StoreCommand::Read(authority_key(&birth.object));
        self.birth_store(call, query, command);
    }

    /// Nothing came of a question. A store that fails at once is not asked at once again.
    fn birth_again(&mut self, call: CallId, query: BirthQuery) {
        let Some(birth) = self.births.get_mut(&call) else { return };
        birth.again = Some(query);
        let at = self.now.mono.after(self.config.timing.target_poll);
        self.timers.arm(TimerKey::Birth(call), at);
    }

    pub(super) fn birth_timer(&mut self, call: CallId) {
        if let Some(query) = self.births.get_mut(&call).and_then(|birth| birth.again.take()) {
            self.birth_read(call, query);
        }
    }

    fn death_again(&mut self, key: &TenureKey, call: CallId) {
        let at = self.now.mono.after(self.config.timing.target_poll);
        self.timers.arm(TimerKey::Death(key.clone(), call), at);
    }

    fn birth_store(&mut self, call: CallId, query: BirthQuery, command: StoreCommand) {
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::Birth(call, query), command, give_up);
    }

    fn birth_failed(&mut self, call: CallId, error: CallError) {
        self.births.remove(&call);
        self.done(call, CallResult::Created(Err(error)));
    }

    pub(super) fn birth_reply(&mut self, call: CallId, query: BirthQuery, reply: &StoreReply) {
        let Some(birth) = self.births.get_mut(&call) else { return };
        let now = self.now.mono;
        match query {
            BirthQuery::Read | BirthQuery::Confirm => match StoreAnswer::authority(reply) {
                Err(()) => self.birth_again(call, query),
                Ok(None) if core::mem::take(&mut birth.fenced) && birth.give_up <= now => {
                    self.birth_failed(call, CallError::StoreUnavailable);
                }
                Ok(None) if birth.type_name.is_some() && core::mem::take(&mut birth.refused) => {
                    // Not for the record: the descriptor has moved, or the lease is gone.
                    self.birth_fence(call);
                }
                Ok(None) if birth.type_name.is_some() => self.birth_write(call),
                Ok(None) => self.birth_failed(call, CallError::NotRun(NotRun::NotFound)),
                Ok(Some(found)) => self.birth_found(call, found),
            },
            BirthQuery::OwnerLease => match StoreAnswer::lease(reply) {
                LeaseSeen::Missing => self.birth_write(call),
                LeaseSeen::Live => self.birth_failed(call, CallError::OwnerAlive),
                LeaseSeen::Unknown => self.birth_again(call, BirthQuery::Read),
            },
            BirthQuery::Write => match StoreAnswer::of_write(reply) {
                StoreAnswer::Applied => self.born(call),
                // The conflicting write may be our own, sent before: the record tells.
                StoreAnswer::Conflict => {
                    birth.refused = true;
                    self.birth_read(call, BirthQuery::Confirm);
                }
                StoreAnswer::Unknown => {
                    birth.unknown = true;
                    if birth.type_name.is_some() && !planted!("hung_create_comes_back") {
                        self.birth_fence(call);
                    } else {
                        self.birth_read(call, BirthQuery::Confirm);
                    }
                }
            },
        }
    }

    /// A create names no version of its record, so one that was given up could take effect whenever the key is free,
    /// long after. It does name the version of this node's descriptor: once that has moved, it never will.
    fn birth_fence(&mut self, call: CallId) {
        let Some(birth) = self.births.get_mut(&call) else { return };
        birth.fencing = true;
        self.refresh_descriptor();
    }

    /// The descriptor has moved: nothing that was written on condition of its old version is under way any more.
    pub(super) fn births_fenced(&mut self) {
        let fenced: Vec<CallId> =
            self.births.iter().filter(|(_, birth)| birth.fencing).map(|(call, _)| *call).collect();
        for call in fenced {
            if let Some(birth) = self.births.get_mut(&call) {
                birth.fencing = false;
                birth.fenced = true;
            }
            self.birth_read(call, BirthQuery::Confirm);
        }
    }

    /// Ends the calls whose time has passed while their births wait for the store.
    pub(super) fn end_late_births(&mut self) {
        let late =
            |(call, birth): (&CallId, &Birth)| (birth.fencing && birth.give_up <= self.now.mono).then_some(*call);
        for call in self.births.iter().filter_map(late).collect::<Vec<_>>() {
            self.done(call, CallResult::Created(Err(CallError::StoreUnavailable)));
        }
    }

    /// The guard is live again.
    pub(super) fn births_go_on(&mut self) {
        for call in core::mem::take(&mut self.births_paused) {
            self.birth_read(call, BirthQuery::Confirm);
        }
    }

    fn birth_found(&mut self, call: CallId, found: Authority) {
        let ours = self.tenancy().is_some_and(|tenancy| tenancy.pair == found.record.owner);
        let Some(birth) = self.births.get_mut(&call) else { return };
        let record = &found.record;
        if ours && record.generation == birth.generation && record.owner_generation == OwnerGeneration::FIRST {
            return self.born(call);
        }
        match (&birth.type_name, birth.existing) {
            (Some(_), Existing::Refuse) => self.birth_failed(call, CallError::AlreadyExists),
            (Some(_), Existing::Use) => {
                let route = RouteFence {
                    object: birth.object.id.clone(),
                    generation: record.generation,
                    node: record.node.clone(),
                    owner_generation: record.owner_generation,
                    lease: record.owner.lease,
                };
                self.births.remove(&call);
                self.done(call, CallResult::Created(Ok(Created { route, new: false })));
            }
            (None, _) => {
                // The version has moved: no earlier write of ours can take effect any more.
                birth.unknown &= birth.orphan.as_ref().is_some_and(|orphan| orphan.version == found.version);
                if !self.config.types.contains_key(&record.stable_type) {
                    let error = CallError::UnknownType(record.stable_type.clone());
                    return self.birth_failed(call, error);
                }
                let command = StoreCommand::Read(lease_key(&record.owner));
                birth.orphan = Some(found);
                self.birth_store(call, BirthQuery::OwnerLease, command);
            }
        }
    }

    fn birth_write(&mut self, call: CallId) {
        let Some(owner) = self.tenancy().map(|tenancy| tenancy.pair.clone()) else {
            return self.birth_failed(call, CallError::NotRun(NotRun::NotServing));
        };
        let Some(descriptor) = self.descriptor_version() else { return };
        if !self.guard_live() {
            let unknown = self.births.get(&call).is_some_and(|birth| birth.unknown);
            if unknown && !planted!("birth_ends_unknown") {
                return self.births_paused.push(call);
            }
            return self.birth_failed(call, CallError::NotRun(NotRun::NotServing));
        }
        let Some(birth) = self.births.get_mut(&call) else { return };
        // For a create whatever was under way is fenced off by now.
        birth.unknown &= birth.type_name.is_none();
        let stable_type = match (&birth.type_name, &birth.orphan) {
            (Some(type_name), _) => type_name.clone(),
            (None, Some(orphan)) => orphan.record.stable_type.clone(),
            (None, None) => return self.birth_failed(call, CallError::NotRun(NotRun::NotFound)),
        };
        let tenure = NewTenure {
            object: birth.object.clone(),
            stable_type,
            mesh: self.config.mesh.clone(),
            node: self.config.node.clone(),
            owner,
        };
        let batch = match (&birth.type_name, &birth.orphan) {
            (None, Some(orphan)) => plan::reclaim(&tenure, birth.generation, orphan),
            (Some(_), _) | (None, None) => plan::create(&tenure, birth.generation, &descriptor),
        };
        self.birth_store(call, BirthQuery::Write, StoreCommand::Write(batch));
    }

    /// The record is ours: the host makes the object, and messages may wait for it.
    fn born(&mut self, call: CallId) {
        let Some(birth) = self.births.get(&call) else { return };
        let (type_name, cause) = match (&birth.type_name, &birth.orphan) {
            (Some(type_name), _) => (type_name.clone(), Activation::New),
            (None, Some(orphan)) => (orphan.record.stable_type.clone(), Activation::Reclaimed),
            (None, None) => return,
        };
        let tenure = Tenure {
            object: birth.object.clone(),
            generation: birth.generation,
            owner_generation: OwnerGeneration::FIRST,
            relocation: None,
        };
        let arguments = birth.arguments.clone();
        let hosted = Hosted::new(tenure.clone(), type_name.clone(), Gate::Activating);
        self.hosted.insert(tenure_key(&tenure), hosted);
        self.host(Purpose::Activate(call), HostCommand::Activate { tenure, type_name, cause, arguments });
    }

    pub(super) fn activated(&mut self, call: CallId, reply: HostReply) {
        let Some(birth) = self.births.remove(&call) else { return };
        let key: TenureKey = (birth.object.clone(), birth.generation, OwnerGeneration::FIRST);
        match reply {
            HostReply::Done => {
                let Some(route) = self.fence_of(&key) else { return };
                self.open_created(&key);
                self.done(call, CallResult::Created(Ok(Created { route, new: true })));
            }
            HostReply::Size(_) | HostReply::Captured(_) | HostReply::Failed { .. } => {
                let detail = match reply {
                    HostReply::Failed { detail, .. } => detail,
                    HostReply::Done | HostReply::Size(_) | HostReply::Captured(_) => String::from("a wrong host reply"),
                };
                if let Some(hosted) = self.hosted.get_mut(&key) {
                    // The record goes, as nothing stands behind it; what waited learns that there is no such object.
                    hosted.gate = Gate::Deleting(call);
                    self.deaths.insert(call, CallError::ActivationFailed(detail));
                    self.delete_turns_ended(&key, call);
                }
            }
        }
    }

    pub(super) fn delete(&mut self, call: CallId, object: &ObjectKey) {
        let key = self.current.get(object).cloned();
        let hosted = key.as_ref().and_then(|key| self.hosted.get_mut(key));
        match (key, hosted) {
            (Some(key), Some(hosted)) if hosted.gate == Gate::Open => {
                hosted.gate = Gate::Deleting(call);
                if hosted.running.is_none() {
                    self.delete_turns_ended(&key, call);
                }
            }
            (Some(_), Some(_)) => self.done(call, CallResult::Deleted(Err(CallError::InTransition))),
            (Some(_) | None, None) | (None, Some(_)) => {
                self.done(call, CallResult::Deleted(Err(CallError::NotRun(NotRun::NotFound))));
            }
        }
    }

    pub(super) fn delete_turns_ended(&mut self, key: &TenureKey, call: CallId) {
        let command = StoreCommand::Read(authority_key(&key.0));
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::Death(key.clone(), call, DeathQuery::Read), command, give_up);
    }

    pub(super) fn death_reply(&mut self, key: &TenureKey, call: CallId, query: DeathQuery, reply: &StoreReply) {
        match query {
            DeathQuery::Read => match StoreAnswer::authority(reply) {
                Err(()) => self.death_again(key, call),
                Ok(Some(found))
                    if found.record.generation == key.1
                        && found.record.owner_generation == key.2
                        && Some(&found.record.owner) == self.life_pair().as_ref() =>
                {
                    if self.guard_live() {
                        let batch = plan::delete(&key.0, &found);
                        let give_up = self.now.mono.after(self.config.timing.store_timeout);
                        let purpose = Purpose::Death(key.clone(), call, DeathQuery::Write);
                        self.store(purpose, StoreCommand::Write(batch), give_up);
                    } else {
                        self.deletes_paused.push((key.clone(), call));
                    }
                }
                Ok(Some(_) | None) => self.dead(key, call),
            },
            DeathQuery::Write => match StoreAnswer::of_write(reply) {
                StoreAnswer::Applied => self.dead(key, call),
                StoreAnswer::Conflict => self.delete_turns_ended(key, call),
                StoreAnswer::Unknown => self.death_again(key, call),
            },
        }
    }

    fn dead(&mut self, key: &TenureKey, call: CallId) {
        if let Some(hosted) = self.close(key) {
            self.end_items(&key.0, hosted.mailbox, Fate::NotRun(NotRun::NotFound));
            if let Some(ended) = self.fence_of(key) {
                self.route_moved(&key.0, &ended, None);
                self.route_forget(&key.0);
            }
            let tenure = hosted.tenure;
            self.host(Purpose::Hook(tenure.clone(), "Discard"), HostCommand::Discard { tenure });
        }
        match self.deaths.remove(&call) {
            Some(error) => self.done(call, CallResult::Created(Err(error))),
            None => self.done(call, CallResult::Deleted(Ok(()))),
        }
    }

    pub(super) fn locate(&mut self, call: CallId, object: ObjectKey) {
        let command = StoreCommand::Read(authority_key(&object));
        let give_up = self.now.mono.after(self.config.timing.store_timeout);
        self.store(Purpose::Locate(call, object), command, give_up);
    }

    pub(super) fn located(&mut self, call: CallId, object: &ObjectKey, reply: &StoreReply) {
        let result = match StoreAnswer::authority(reply) {
            Err(()) => Err(CallError::StoreUnavailable),
            Ok(None) => Ok(None),
            Ok(Some(found)) => Ok(Some(RouteFence {
                object: object.id.clone(),
                generation: found.record.generation,
                node: found.record.node,
                owner_generation: found.record.owner_generation,
                lease: found.record.owner.lease,
            })),
        };
        self.done(call, CallResult::Located(result));
    }

    pub(super) fn hook_ended(&mut self, tenure: Tenure, command: &'static str, reply: HostReply) {
        if let HostReply::Failed { detail, .. } = reply {
            self.event(Event::HostFailed { tenure, command, detail });
        }
    }
}
