//! The node's own lease: claim, renewal, release, and the guard that says until when the node may act. Nothing else in
//! the node decides whether it is allowed to.

use super::event::{Event, OverReason};
use super::io::Ticket;
use super::{Node, Purpose, StoreAnswer, TimerKey};
use crate::fence::{OwnerPair, PeerFence};
use crate::id::StoreVersion;
use crate::store::plan;
use crate::store::record::{DescriptorRecord, LeaseRecord, OwnerRecord, descriptor_key, lease_key, owner_key};
use crate::store::{Found, StoreCommand, StoreReply};
use crate::time::Instant;

/// How far the node has come with its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    /// No lease yet.
    Claiming { nonce: u128 },
    /// A lease, and the descriptor is being published.
    Publishing(Tenancy),
    /// Serving.
    Serving { tenancy: Tenancy, descriptor: StoreVersion },
    /// The lease is being given back.
    Releasing,
    /// Nothing will ever run again.
    Over,
}

/// A claimed lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenancy {
    pub(super) pair: OwnerPair,
    pub(super) nonce: u128,
    /// Start of the last successful renewal, plus the time to live, minus the margin.
    pub(super) not_after: Instant,
    /// The guard has passed and the host was told.
    pub(super) paused: bool,
}

/// What a store reply about the lease answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeaseQuery {
    Owner,
    Claim {
        pair: OwnerPair,
        started: Instant,
    },
    /// The claim's reply did not come: is the lease ours?
    Adopt {
        pair: OwnerPair,
        started: Instant,
    },
    Descriptor,
    DescriptorRead,
    /// The descriptor again, so that its version moves.
    Refresh,
    Renew {
        started: Instant,
    },
    /// A renewal conflicted: is the lease really gone?
    Check,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LeaseTimer {
    /// Try the claim again.
    Claim,
    /// Renew.
    Renew,
    /// The guard passes.
    Guard,
    /// Try to write the descriptor again.
    Refresh,
    /// Ask again what was not answered.
    Again,
}

impl Node {
    /// The owner pair, once there is one.
    pub(super) fn tenancy(&self) -> Option<&Tenancy> {
        match &self.life {
            Life::Publishing(tenancy) | Life::Serving { tenancy, .. } => Some(tenancy),
            Life::Claiming { .. } | Life::Releasing | Life::Over => None,
        }
    }

    fn tenancy_mut(&mut self) -> Option<&mut Tenancy> {
        match &mut self.life {
            Life::Publishing(tenancy) | Life::Serving { tenancy, .. } => Some(tenancy),
            Life::Claiming { .. } | Life::Releasing | Life::Over => None,
        }
    }

    /// The instant after which nothing may start; `None` without a lease.
    pub(super) fn not_after(&self) -> Option<Instant> {
        match &self.life {
            Life::Serving { tenancy, .. } => Some(tenancy.not_after),
            Life::Claiming { .. } | Life::Publishing(_) | Life::Releasing | Life::Over => None,
        }
    }

    /// The guard: may the node start work, open dispatch or submit a plan now?
    pub(super) fn guard_live(&self) -> bool {
        planted!("no_lease_guard") && self.not_after().is_some()
            || self.not_after().is_some_and(|not_after| self.now.mono < not_after)
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.life, Life::Serving { .. })
    }

    pub(super) fn descriptor_version(&self) -> Option<StoreVersion> {
        match &self.life {
            Life::Serving { descriptor, .. } => Some(descriptor.clone()),
            Life::Claiming { .. } | Life::Publishing(_) | Life::Releasing | Life::Over => None,
        }
    }

    /// This node as a peer sees it.
    pub(super) fn identity(&self) -> Option<PeerFence> {
        let owner = self.tenancy()?.pair.clone();
        Some(PeerFence { node: self.config.node.clone(), owner })
    }

    pub(super) fn begin_claim(&mut self) {
        let nonce = self.entropy.next_u128();
        self.life = Life::Claiming { nonce };
        self.lease_command(LeaseQuery::Owner, StoreCommand::Read(owner_key(&self.config.owner)));
    }

    fn lease_command(&mut self, query: LeaseQuery, command: StoreCommand) -> Ticket {
        let give_up = self.now.mono.after(self.config.timing.lease_timeout);
        self.store(Purpose::Lease(query), command, give_up)
    }

    fn lease_record(&self, nonce: u128) -> LeaseRecord {
        LeaseRecord { node: self.config.node.clone(), nonce, renewed_unix_ms: self.now.wall.0 }
    }

    pub(super) fn lease_timer(&mut self, timer: LeaseTimer) {
        match timer {
            LeaseTimer::Claim => self.begin_claim(),
            LeaseTimer::Renew => self.renew(),
            LeaseTimer::Again => self.lease_asks_again(),
            LeaseTimer::Refresh => {
                self.end_late_births();
                self.refresh_goes_on();
            }
            LeaseTimer::Guard => {
                let now = self.now.mono;
                if let Some(tenancy) = self.tenancy_mut()
                    && now >= tenancy.not_after
                    && !tenancy.paused
                {
                    tenancy.paused = true;
                    self.event(Event::GuardPassed);
                }
            }
        }
    }

    fn renew(&mut self) {
        let Some(tenancy) = self.tenancy() else { return };
        let (pair, nonce) = (tenancy.pair.clone(), tenancy.nonce);
        let batch = plan::renew_lease(&pair, &self.lease_record(nonce), self.config.timing.lease_ttl);
        self.lease_command(LeaseQuery::Renew { started: self.now.mono }, StoreCommand::Write(batch));
    }

    fn retry_claim(&mut self) {
        let at = self.now.mono.after(self.config.timing.peer_check);
        self.timers.arm(TimerKey::Lease(LeaseTimer::Claim), at);
    }

    pub(super) fn lease_reply(&mut self, query: LeaseQuery, reply: StoreReply) {
        match query {
            LeaseQuery::Owner => self.owner_read(&reply),
            LeaseQuery::Claim { pair, started } => match StoreAnswer::of_write(&reply) {
                StoreAnswer::Applied => self.claimed(pair, started),
                StoreAnswer::Conflict => self.begin_claim(),
                StoreAnswer::Unknown => {
                    let key = lease_key(&pair);
                    self.lease_command(LeaseQuery::Adopt { pair, started }, StoreCommand::Read(key));
                }
            },
            LeaseQuery::Adopt { pair, started } => self.adopt(pair, started, &reply),
            LeaseQuery::Descriptor => match (StoreAnswer::of_write(&reply), reply) {
                (StoreAnswer::Applied, StoreReply::Applied(versions)) => self.published(versions.into_iter().next()),
                (StoreAnswer::Applied | StoreAnswer::Conflict | StoreAnswer::Unknown, _) => {
                    let key = descriptor_key(&self.config.mesh, &self.config.node.rid);
                    self.lease_command(LeaseQuery::DescriptorRead, StoreCommand::Read(key));
                }
            },
            LeaseQuery::DescriptorRead => self.descriptor_read(&reply),
            LeaseQuery::Refresh => self.refreshed(reply),
            LeaseQuery::Renew { started } => self.renewed(started, &reply),
            LeaseQuery::Check => self.lease_checked(&reply),
            LeaseQuery::Release => self.end(OverReason::ShutDown),
        }
    }

    fn owner_read(&mut self, reply: &StoreReply) {
        let Life::Claiming { nonce } = self.life else { return };
        let last = match reply {
            StoreReply::Missing => None,
            StoreReply::Found(Found { value, version, .. }) => match OwnerRecord::decode(value) {
                Ok(record) => Some((record, version.clone())),
                Err(_) => return self.end(OverReason::StoreCorrupt),
            },
            StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => return self.retry_claim(),
        };
        let record = self.lease_record(nonce);
        match plan::claim_lease(&self.config.owner, last, &record, self.config.timing.lease_ttl) {
            Some((pair, batch)) => {
                let started = self.now.mono;
                self.lease_command(LeaseQuery::Claim { pair, started }, StoreCommand::Write(batch));
            }
            None => self.end(OverReason::StoreCorrupt),
        }
    }

    /// An unknown claim is ours only if the nonce that reads back is ours; else another one is made.
    fn adopt(&mut self, pair: OwnerPair, started: Instant, reply: &StoreReply) {
        let Life::Claiming { nonce } = self.life else { return };
        match reply {
            StoreReply::Found(Found { value, .. }) => match LeaseRecord::decode(value) {
                Ok(record) if record.nonce == nonce || planted!("adopt_any_claim") => {
                    self.claimed(pair, started);
                }
                Ok(_) | Err(_) => self.begin_claim(),
            },
            StoreReply::Unknown => self.lease_again(LeaseQuery::Adopt { pair, started }),
            StoreReply::Missing
            | StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Invalid => self.begin_claim(),
        }
    }

    fn claimed(&mut self, pair: OwnerPair, started: Instant) {
        let Life::Claiming { nonce } = self.life else { return };
        let not_after = self.guard_from(started);
        self.life = Life::Publishing(Tenancy { pair, nonce, not_after, paused: false });
        self.arm_lease(not_after);
        self.publish();
    }

    fn guard_from(&self, started: Instant) -> Instant {
        let timing = &self.config.timing;
        started.after(timing.lease_ttl).before(timing.lease_margin)
    }

    fn arm_lease(&mut self, not_after: Instant) {
        let renew = self.now.mono.after(self.config.timing.lease_renew);
        self.timers.arm(TimerKey::Lease(LeaseTimer::Renew), renew);
        self.timers.arm(TimerKey::Lease(LeaseTimer::Guard), not_after);
    }

    fn publish(&mut self) {
        self.write_descriptor(LeaseQuery::Descriptor);
    }

    /// Moves the version of the descriptor: no create that names the old one takes effect after that.
    pub(super) fn refresh_descriptor(&mut self) {
        if !core::mem::replace(&mut self.refreshing, true) {
            self.refresh_goes_on();
        }
    }

    /// Past the guard it waits for a renewal.
    pub(super) fn refresh_goes_on(&mut self) {
        let asked = self.tickets.values().any(|purpose| *purpose == Purpose::Lease(LeaseQuery::Refresh));
        if self.refreshing && !asked && self.guard_live() {
            self.timers.disarm(&TimerKey::Lease(LeaseTimer::Refresh));
            self.write_descriptor(LeaseQuery::Refresh);
        }
    }

    fn refreshed(&mut self, reply: StoreReply) {
        match (StoreAnswer::of_write(&reply), reply, &mut self.life) {
            (StoreAnswer::Applied, StoreReply::Applied(versions), Life::Serving { descriptor, .. }) => {
                if let Some(version) = versions.into_iter().next() {
                    *descriptor = version;
                }
                self.refreshing = false;
                self.births_fenced();
            }
            (StoreAnswer::Conflict, _, _) => {
                // Only the lease can be missing.
                self.check_lease();
                self.refresh_later();
            }
            (StoreAnswer::Applied | StoreAnswer::Unknown, _, _) => self.refresh_later(),
        }
    }

    fn refresh_later(&mut self) {
        let at = self.now.mono.after(self.config.timing.peer_check);
        self.timers.arm(TimerKey::Lease(LeaseTimer::Refresh), at);
    }

    fn write_descriptor(&mut self, query: LeaseQuery) {
        let Some(pair) = self.tenancy().map(|tenancy| tenancy.pair.clone()) else { return };
        let descriptor = DescriptorRecord {
            generation: self.config.node.generation,
            owner: pair,
            endpoint: self.config.endpoint.clone(),
            application_version: self.config.application_version,
            types: self.config.types.keys().cloned().collect(),
        };
        let batch = plan::publish_descriptor(&self.config.mesh, &self.config.node, &descriptor);
        self.lease_command(query, StoreCommand::Write(batch));
    }

    fn published(&mut self, version: Option<StoreVersion>) {
        let life = core::mem::replace(&mut self.life, Life::Over);
        self.life = match (life, version) {
            (Life::Publishing(tenancy), Some(descriptor)) => Life::Serving { tenancy, descriptor },
            (life, _) => life,
        };
        if self.is_serving()
            && let Some(peer) = self.identity()
        {
            self.event(Event::Serving { peer });
        }
    }

    fn descriptor_read(&mut self, reply: &StoreReply) {
        let ours = self.tenancy().map(|tenancy| tenancy.pair.clone());
        match reply {
            StoreReply::Found(Found { value, version, .. })
                if DescriptorRecord::decode(value).ok().map(|record| record.owner) == ours =>
            {
                self.published(Some(version.clone()));
            }
            StoreReply::Found(_)
            | StoreReply::Missing
            | StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => self.lease_again(LeaseQuery::Descriptor),
        }
    }

    /// Nothing came of a question. A store that fails at once is not asked at once again.
    fn lease_again(&mut self, query: LeaseQuery) {
        self.lease_again = Some(query);
        let at = self.now.mono.after(self.config.timing.target_poll);
        self.timers.arm(TimerKey::Lease(LeaseTimer::Again), at);
    }

    fn lease_asks_again(&mut self) {
        match self.lease_again.take() {
            Some(LeaseQuery::Adopt { pair, started }) => {
                let key = lease_key(&pair);
                self.lease_command(LeaseQuery::Adopt { pair, started }, StoreCommand::Read(key));
            }
            Some(LeaseQuery::Descriptor) => self.publish(),
            Some(
                LeaseQuery::Owner
                | LeaseQuery::Claim { .. }
                | LeaseQuery::DescriptorRead
                | LeaseQuery::Refresh
                | LeaseQuery::Renew { .. }
                | LeaseQuery::Check
                | LeaseQuery::Release,
            )
            | None => {}
        }
    }

    fn renewed(&mut self, started: Instant, reply: &StoreReply) {
        match StoreAnswer::of_write(reply) {
            StoreAnswer::Applied => {
                let not_after = self.guard_from(started);
                let Some(tenancy) = self.tenancy_mut() else { return };
                tenancy.not_after = not_after.max(tenancy.not_after);
                let restored = core::mem::replace(&mut tenancy.paused, false);
                let not_after = tenancy.not_after;
                self.arm_lease(not_after);
                if restored && self.guard_live() {
                    self.event(Event::GuardRestored);
                }
                if self.guard_live() {
                    self.guard_restored();
                }
            }
            StoreAnswer::Conflict => {
                let Some(pair) = self.tenancy().map(|tenancy| tenancy.pair.clone()) else { return };
                self.lease_command(LeaseQuery::Check, StoreCommand::Read(lease_key(&pair)));
            }
            StoreAnswer::Unknown => self.renew_soon(),
        }
    }

    /// Only a read that says so ends a lease.
    fn lease_checked(&mut self, reply: &StoreReply) {
        match reply {
            StoreReply::Missing => self.end(OverReason::LeaseLost),
            StoreReply::Found(_)
            | StoreReply::Applied(_)
            | StoreReply::Conflict
            | StoreReply::Page { .. }
            | StoreReply::Expired
            | StoreReply::Unknown
            | StoreReply::Invalid => self.renew_soon(),
        }
    }

    fn renew_soon(&mut self) {
        let at = self.now.mono.after(self.config.timing.lease_timeout.min(self.config.timing.peer_check));
        self.timers.arm(TimerKey::Lease(LeaseTimer::Renew), at);
    }

    /// Everything here has reached its terminal: the lease goes back.
    pub(super) fn release(&mut self) {
        let Some(pair) = self.tenancy().map(|tenancy| tenancy.pair.clone()) else {
            return self.end(OverReason::ShutDown);
        };
        self.life = Life::Releasing;
        self.lease_command(LeaseQuery::Release, StoreCommand::Write(plan::release_lease(&pair)));
    }
}
