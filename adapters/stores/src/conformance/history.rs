//! Whole histories of several clients: whatever they were answered must be what one client after another would have
//! been answered, in an order that begins nothing before it was asked and ends nothing after it was answered. Nothing
//! here knows time to live: what ends by a clock is tested elsewhere.

use super::{Harness, at, delete, missing, number, present, put};
use rehome::id::StoreVersion;
use rehome::store::{Condition, Found, MAX_SCAN, Mutation, StoreReply};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const CLIENTS: u32 = 8;
const KEYS: usize = 3;
const EACH: u32 = 7;
const ROUNDS: u64 = 12;

/// What is at each key: the number of the write that put it there.
type State = [Option<u32>; KEYS];

/// A condition, a version named by the write that made it.
#[derive(Clone, Copy, Debug)]
enum Needs {
    Missing,
    Present,
    By(u32),
}

impl Needs {
    fn hold(self, at: Option<u32>) -> bool {
        match self {
            Self::Missing => at.is_none(),
            Self::Present => at.is_some(),
            Self::By(write) => at == Some(write),
        }
    }
}

/// An operation and how it was answered.
#[derive(Clone, Debug)]
enum Event {
    Read { key: usize, saw: Option<u32> },
    Scan { saw: State },
    Write { needs: Vec<(usize, Needs)>, makes: Vec<(usize, Option<u32>)>, applied: Option<bool> },
}

impl Event {
    /// What comes after it, if it can be the next one at `state` with the answer it had.
    fn follows(&self, state: State) -> Option<State> {
        match self {
            Self::Read { key, saw } => (state[*key] == *saw).then_some(state),
            Self::Scan { saw } => (state == *saw).then_some(state),
            Self::Write { needs, makes, applied } => {
                let hold = needs.iter().all(|(key, needs)| needs.hold(state[*key]));
                if applied.is_some_and(|applied| applied != hold) {
                    return None;
                }
                let mut after = state;
                for (key, to) in makes.iter().filter(|_| hold) {
                    after[*key] = *to;
                }
                Some(after)
            }
        }
    }
}

/// An event between two ticks of one counter.
#[derive(Clone, Debug)]
struct Timed {
    asked: u64,
    answered: u64,
    event: Event,
}

/// Whether there is an order. Each lane is one client's events; a write that nobody knows the end of is a lane of its
/// own, answered at the end of time, and need not be in the order.
fn has_an_order(lanes: &[Vec<Timed>]) -> bool {
    let needed = |lane: &&[Timed]| lane.iter().any(|timed| timed.answered != u64::MAX);
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0usize; lanes.len()], State::default())];
    while let Some((done, state)) = open.pop() {
        let rest: Vec<&[Timed]> = lanes.iter().zip(&done).map(|(lane, done)| &lane[*done..]).collect();
        if !rest.iter().any(needed) {
            return true;
        }
        if !seen.insert((done.clone(), state)) {
            continue;
        }
        let first_answer = rest.iter().filter_map(|lane| lane.first()).map(|timed| timed.answered).min();
        for (lane, rest) in rest.iter().enumerate() {
            let Some(next) = rest.first().filter(|next| Some(next.asked) < first_answer) else { continue };
            if let Some(after) = next.event.follows(state) {
                let mut done = done.clone();
                done[lane] += 1;
                open.push((done, after));
            }
        }
    }
    false
}

/// What a client believes to be at a key.
#[derive(Clone)]
enum Belief {
    Nothing,
    Absent,
    There(u32, StoreVersion),
}

struct Client<'a> {
    h: &'a Harness,
    round: u64,
    number: u32,
    random: u64,
    beliefs: [Belief; KEYS],
    ticks: &'a AtomicU64,
}

impl Client<'_> {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % below
    }

    fn draw_key(&mut self) -> usize {
        usize::try_from(self.draw(KEYS as u64)).expect("small")
    }

    fn name(&self, key: usize) -> String {
        format!("history\0{}\0{key}", self.round)
    }

    fn saw(&mut self, key: usize, found: Option<Found>) -> Option<u32> {
        let write = found.as_ref().map(|found| u32::try_from(number(found)).expect("a number of a write"));
        self.beliefs[key] = match (write, found) {
            (Some(write), Some(found)) => Belief::There(write, found.version),
            _ => Belief::Absent,
        };
        write
    }

    fn write(&mut self, write: u32) -> Event {
        let (first, second) = (self.draw_key(), self.draw_key());
        let (mut needs, mut conditions) = (Vec::new(), Vec::new());
        let (mut makes, mut mutations) = (Vec::new(), Vec::new());
        // It changes the first key, and often looks at another one only.
        for key in if first == second { vec![first] } else { vec![first, second] } {
            let name = self.name(key);
            let (need, condition) = match (self.beliefs[key].clone(), self.draw(4)) {
                (Belief::There(by, version), 1..) => (Needs::By(by), at(&name, &version)),
                (Belief::There(..), _) | (Belief::Nothing, 0..=1) => (Needs::Present, present(&name)),
                (Belief::Absent | Belief::Nothing, _) => (Needs::Missing, missing(&name)),
            };
            needs.push((key, need));
            conditions.push(condition);
            if key == first || self.draw(3) == 0 {
                let gone = self.draw(4) == 0;
                makes.push((key, (!gone).then_some(write)));
                mutations.push(if gone { delete(&name) } else { put(&name, write.to_string()) });
            }
        }
        let applied = self.send(&conditions, &mutations, &needs, &makes);
        Event::Write { needs, makes, applied }
    }

    fn send(
        &mut self,
        conditions: &[Condition],
        mutations: &[Mutation],
        needs: &[(usize, Needs)],
        makes: &[(usize, Option<u32>)],
    ) -> Option<bool> {
        match self.h.write(conditions, mutations) {
            StoreReply::Applied(versions) => {
                let mut versions = versions.into_iter();
                for (key, write) in makes {
                    self.beliefs[*key] = match write {
                        Some(write) => Belief::There(*write, versions.next().expect("a version for each put")),
                        None => Belief::Absent,
                    };
                }
                Some(true)
            }
            reply => {
                for (key, _) in needs {
                    self.beliefs[*key] = Belief::Nothing;
                }
                match reply {
                    StoreReply::Conflict => Some(false),
                    StoreReply::Unknown => None,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn act(&mut self, write: u32) -> Timed {
        let asked = self.ticks.fetch_add(1, Ordering::SeqCst);
        let event = match self.draw(8) {
            0 => {
                let mut saw = State::default();
                let (entries, _) = self.h.page(self.name(0).trim_end_matches('0').as_bytes(), None, MAX_SCAN);
                for (key, at) in saw.iter_mut().enumerate() {
                    let name = self.name(key);
                    let found = entries.iter().find(|(key, _)| key.0 == name).map(|(_, found)| found.clone());
                    *at = self.saw(key, found);
                }
                Event::Scan { saw }
            }
            1..=2 => {
                let key = self.draw_key();
                let found = self.h.read_at_last(&self.name(key));
                Event::Read { key, saw: self.saw(key, found) }
            }
            _ => self.write(write),
        };
        let unknown = matches!(event, Event::Write { applied: None, .. });
        let answered = if unknown { u64::MAX } else { self.ticks.fetch_add(1, Ordering::SeqCst) };
        Timed { asked, answered, event }
    }
}

pub(super) fn serial_order(h: &Harness) {
    for round in 0..ROUNDS {
        let (ticks, start) = (AtomicU64::new(0), Barrier::new(CLIENTS as usize));
        let lanes: Vec<Vec<Timed>> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (ticks, start) = (&ticks, &start);
                    scope.spawn(move || {
                        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(round * 64 + u64::from(number) + 1) | 1;
                        let beliefs = [Belief::Absent, Belief::Absent, Belief::Absent];
                        let mut client = Client { h, round, number, random, beliefs, ticks };
                        start.wait();
                        (0..EACH).map(|n| client.act(client.number * EACH + n)).collect()
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("no client failed")).collect()
        });
        let (mut known, unknown): (Vec<Vec<Timed>>, Vec<Vec<Timed>>) =
            lanes.into_iter().map(|lane| lane.into_iter().partition(|timed| timed.answered != u64::MAX)).unzip();
        known.extend(unknown.into_iter().flatten().map(|timed| vec![timed]));
        assert!(has_an_order(&known), "no order explains the answers of round {round}: {known:#?}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Needs, Timed, has_an_order};

    fn timed(asked: u64, answered: u64, event: Event) -> Timed {
        Timed { asked, answered, event }
    }

    fn write(needs: Needs, number: u32, applied: Option<bool>) -> Event {
        Event::Write { needs: vec![(0, needs)], makes: vec![(0, Some(number))], applied }
    }

    #[test]
    fn two_writes_on_one_absence_have_no_order() {
        let lanes = |second| {
            let first = timed(0, 3, write(Needs::Missing, 1, Some(true)));
            vec![vec![first], vec![timed(1, 2, write(Needs::Missing, 2, Some(second)))]]
        };
        assert!(!has_an_order(&lanes(true)));
        assert!(has_an_order(&lanes(false)));
    }

    #[test]
    fn a_read_after_the_answer_sees_the_write_and_one_before_may() {
        let lanes = |asked| {
            let read = Event::Read { key: 0, saw: None };
            vec![vec![timed(0, 2, write(Needs::Missing, 1, Some(true)))], vec![timed(asked, 9, read)]]
        };
        assert!(has_an_order(&lanes(1)));
        assert!(!has_an_order(&lanes(3)));
    }

    #[test]
    fn an_unknown_write_may_be_done_late_or_never() {
        let lanes = |saw: [Option<u32>; 2]| {
            let read = |asked, saw| timed(asked, asked + 1, Event::Read { key: 0, saw });
            let unknown = timed(0, u64::MAX, write(Needs::Missing, 1, None));
            vec![vec![read(1, saw[0]), read(3, saw[1])], vec![unknown]]
        };
        assert!(has_an_order(&lanes([None, None])));
        assert!(has_an_order(&lanes([None, Some(1)])));
        assert!(!has_an_order(&lanes([Some(1), None])));
    }

    #[test]
    fn a_conflict_needs_a_reason() {
        assert!(!has_an_order(&[vec![timed(0, 1, write(Needs::Missing, 1, Some(false)))]]));
    }
}
