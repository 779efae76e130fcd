//! The end of a history: everything heals, and within a stated time all must have come to rest.

use super::{MILLI, SECOND, World, key};
use rehome::store::StoreCommand;
use rehome::store::record::authority_key;
use rehome::time::Instant;
use std::time::Duration;

/// The virtual time within which a healed cluster is at rest: a lease, an operation, a follow, and what recovers.
const REST: u64 = 90 * SECOND;

impl World {
    /// Everything heals. Within [`REST`] all must have come to rest.
    pub(super) fn heal(&mut self) {
        self.healing = true;
        self.away = false;
        self.barred.clear();
        self.rules.clear();
        self.trace.note(self.now, || String::from("everything heals"));
        for node in 0..self.places.len() {
            self.places[node].skew = 0;
            if self.places[node].node.is_none() {
                self.schedule(100 * MILLI, super::Act::Restart { node });
            }
            if self.rules.keep_results() {
                self.wake(node);
            }
        }
        let end = self.now + REST;
        while self.now < end {
            for object in 0..self.objects {
                if self.oracle.faults.0.is_empty() && self.oracle.lost.any_end() {
                    self.recover(object);
                }
            }
            let next = self.now + 3 * SECOND;
            self.until(next);
            if !self.oracle.faults.0.is_empty() {
                return;
            }
        }
        self.rest();
    }

    fn rest(&mut self) {
        let oracle = &mut self.oracle;
        for ((node, _, call), pending) in &self.calls {
            oracle.requests.never_ended(&mut oracle.faults, &format!("{call:?} of n{node}, {:?}", pending.hit));
        }
        for (node, _, call) in self.moves.keys() {
            oracle.bounded.never_ended(&mut oracle.faults, &format!("move {call:?} of n{node}"));
        }
        for (index, place) in self.places.iter().enumerate() {
            match &place.node {
                Some(node) => oracle.released.at_rest(&mut oracle.faults, index, &node.held()),
                None => oracle.faults.0.push(format!("liveness: n{index} did not come back")),
            }
        }
        oracle.lost.at_rest(&mut oracle.faults);
        for object in 0..self.objects {
            let lives: Vec<_> = self
                .places
                .iter()
                .enumerate()
                .flat_map(|(node, place)| place.things.keys().map(move |tenure| (node, tenure)))
                .filter(|(_, tenure)| tenure.object == key(object))
                .collect();
            if lives.len() != 1 {
                let text = format!("liveness: object {object} lives {} times at rest: {lives:?}", lives.len());
                oracle.faults.0.push(text);
            }
        }
        if oracle.faults.0.is_empty() {
            self.probe();
        }
    }

    /// Every object answers every node.
    fn probe(&mut self) {
        let answered = self.summary.answered;
        for object in 0..self.objects {
            for node in 0..self.places.len() {
                self.hit(node, object, Some(Duration::from_secs(9)));
            }
        }
        let end = self.now + 10 * SECOND;
        self.until(end);
        let probes = (self.objects * self.places.len()) as u64;
        if self.oracle.faults.0.is_empty() && self.summary.answered != answered + probes {
            let now = Instant::from_nanos(self.now);
            for object in 0..self.objects {
                let reply = self.store.apply(now, &StoreCommand::Read(authority_key(&key(object))));
                self.trace.note(self.now, || format!("object {object}: {reply:?}"));
            }
            self.oracle.faults.0.push(String::from("liveness: an object does not answer at the end"));
        }
    }
}
