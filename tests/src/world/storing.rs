//! The store's side of the world: one value, and everything that may happen between it and a node.

use super::script::StoreFault;
use super::{Act, MILLI, SECOND, World};
use crate::oracle::Truth;
use rehome::Input;
use rehome::fence::OwnerPair;
use rehome::node::Ticket;
use rehome::store::record::Authority;
use rehome::store::{Condition, Mutation, StoreCommand, StoreReply};
use rehome::time::Instant;
use std::time::Duration;

/// The fencing margin of every node here.
const MARGIN: Duration = Duration::from_secs(5);

/// Whether a command makes an object where there is none.
fn wants_a_free_key(command: &StoreCommand) -> bool {
    let free = |condition: &Condition| matches!(condition, Condition::Missing(key) if key.0.starts_with(b"authority"));
    matches!(command, StoreCommand::Write(batch) if batch.conditions.iter().any(free))
}

impl World {
    pub(super) fn store_command(&mut self, node: usize, ticket: Ticket, command: StoreCommand, give_up: Instant) {
        let run = self.places[node].run;
        let writer = self.places[node].peer.as_ref().map(|peer| peer.owner.clone());
        let give_up = give_up.as_nanos();
        let write = matches!(command, StoreCommand::Write(_));
        self.note_write(node, ticket, &command);
        let mut delay = 20_000 + self.chance.below(400_000);
        let fault = match self.rules.store(node, &command) {
            Some(fault) => Some(fault),
            None => match self.store_trouble(write) {
                // An engine must not do a write twice. What names a version or a lease shows that it does no harm; what
                // only wants its key free would bring back an object that was deleted in between, as it must.
                Some(StoreFault::Again(_)) if wants_a_free_key(&command) => None,
                trouble => trouble,
            },
        };
        let unknown = |world: &mut Self| {
            let delay = give_up.saturating_sub(world.now).max(1);
            let reply = StoreReply::Unknown;
            world.schedule(delay, Act::Input { node, run, input: Input::Store { ticket, reply } });
        };
        let answer = match fault {
            None => Some((ticket, 20_000 + self.chance.below(400_000), give_up)),
            Some(StoreFault::Again(later)) => {
                let again = later.as_nanos() as u64;
                let (writer, command) = (writer.clone(), command.clone());
                self.schedule(delay + again, Act::Apply { node, run, writer, answer: None, command });
                Some((ticket, 20_000 + self.chance.below(400_000), give_up))
            }
            Some(StoreFault::Lost) => return unknown(self),
            Some(StoreFault::ReplyLost) => {
                unknown(self);
                None
            }
            Some(StoreFault::Applied(late)) => {
                unknown(self);
                delay = late.as_nanos() as u64;
                None
            }
            Some(StoreFault::Slow(slow)) => {
                delay = slow.as_nanos() as u64 / 2;
                Some((ticket, slow.as_nanos() as u64 / 2, give_up))
            }
            Some(StoreFault::Conflict) => {
                let input = Input::Store { ticket, reply: StoreReply::Conflict };
                return self.schedule(delay, Act::Input { node, run, input });
            }
        };
        self.schedule(delay, Act::Apply { node, run, writer, answer, command });
    }

    /// A lease write allows its node to act for a while once it is answered; a write of an authority record needs that.
    fn note_write(&mut self, node: usize, ticket: Ticket, command: &StoreCommand) {
        let StoreCommand::Write(batch) = command else { return };
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Put { key, ttl: Some(ttl), .. } if key.0.starts_with(b"lease") => {
                    let allows = ttl.saturating_sub(MARGIN).as_nanos() as u64;
                    self.places[node].renewals.insert(ticket, self.now + allows);
                }
                Mutation::Put { key, .. } | Mutation::Delete(key) if key.0.starts_with(b"authority") => {
                    let guard = self.places[node].guard;
                    self.oracle.one_owner.acts(&mut self.oracle.faults, self.now, guard, node, "wrote a record");
                }
                Mutation::Put { .. } | Mutation::Delete(_) => {}
            }
        }
    }

    fn store_trouble(&mut self, write: bool) -> Option<StoreFault> {
        let profile = self.profile;
        if self.away || self.fault(profile.store_lost_before, "store command lost") {
            return Some(StoreFault::Lost);
        }
        if self.fault(profile.store_lost_after, "store reply lost") {
            return Some(StoreFault::ReplyLost);
        }
        if write && self.fault(profile.store_late, "store write applied late") {
            return Some(StoreFault::Applied(Duration::from_nanos(self.chance.below(9 * SECOND))));
        }
        if self.fault(profile.store_slow, "store slow") {
            return Some(StoreFault::Slow(Duration::from_nanos(self.chance.below(3500 * MILLI))));
        }
        if write && self.fault(profile.store_again, "store write done twice") {
            return Some(StoreFault::Again(Duration::from_nanos(self.chance.below(9 * SECOND))));
        }
        (write && self.fault(profile.store_conflict, "store conflict")).then_some(StoreFault::Conflict)
    }

    pub(super) fn apply(
        &mut self,
        node: usize,
        run: u64,
        writer: Option<&OwnerPair>,
        answer: Option<(Ticket, u64, u64)>,
        command: &StoreCommand,
    ) {
        let now = Instant::from_nanos(self.now);
        let keys: Vec<_> = match command {
            StoreCommand::Write(batch) => batch
                .mutations
                .iter()
                .map(Mutation::key)
                .filter(|key| key.0.starts_with(b"authority"))
                .cloned()
                .collect(),
            StoreCommand::Read(_) | StoreCommand::Scan { .. } => Vec::new(),
        };
        let before: Vec<_> = keys.iter().map(|key| self.authority_at(key)).collect();
        let reply = self.store.apply(now, command);
        for (key, before) in keys.iter().zip(before) {
            let after = self.authority_at(key);
            let mut truth = Truth { store: &mut self.store, now: self.now };
            self.oracle.wrote(&mut truth, writer, &format!("{key:?}"), before.as_ref(), after.as_ref());
        }
        if let Some((ticket, delay, give_up)) = answer {
            let due = self.now + delay;
            let (reply, due) = if due >= give_up { (StoreReply::Unknown, give_up.max(self.now)) } else { (reply, due) };
            self.schedule(due - self.now, Act::Input { node, run, input: Input::Store { ticket, reply } });
        }
    }

    fn authority_at(&mut self, key: &rehome::store::StoreKey) -> Option<Authority> {
        let reply = self.store.apply(Instant::from_nanos(self.now), &StoreCommand::Read(key.clone()));
        crate::oracle::authority(&reply)
    }
}
