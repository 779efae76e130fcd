//! Two nodes that dial each other at once end with one connection, in every order of every step.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise"
)]

mod link_world;

use bytes::Bytes;
use link_world::{at, mesh, rid};
use rehome::link::{Conn, DownReason, Mesh, MeshEvent, Rejection};
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

#[derive(Clone, Debug)]
enum Item {
    Open,
    Bytes(Bytes),
    Fin,
}

/// A connection between the sides 0 and 1: the end at each, while its transport is open, and what travels to each.
#[derive(Clone, Debug, Default)]
struct Cable {
    ends: [Option<Conn>; 2],
    to: [VecDeque<Item>; 2],
}

#[derive(Clone, Debug)]
struct World {
    mesh: [Mesh; 2],
    up: [Option<Conn>; 2],
    /// Connections that were up and went down again.
    fell: [u8; 2],
    cables: Vec<Cable>,
    dials: [u8; 2],
    /// Transport faults left: resets that both ends hear of, and ends that vanish without a word.
    resets: u8,
    vanishings: u8,
    /// Restarts left of each side: its new run dials once.
    restarts: [u8; 2],
    millis: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Dial(usize),
    Deliver(usize, usize),
    Reset(usize),
    Vanish(usize, usize),
    Restart(usize),
}

impl World {
    fn new(dials: [u8; 2], resets: u8, vanishings: u8) -> Self {
        let mesh = [mesh("a", 1), mesh("b", 1)];
        Self {
            mesh,
            up: [None; 2],
            fell: [0; 2],
            cables: Vec::new(),
            dials,
            resets,
            vanishings,
            restarts: [0; 2],
            millis: 0,
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        steps.extend((0..2).filter(|side| self.dials[*side] > 0).map(Step::Dial));
        steps.extend((0..2).filter(|side| self.restarts[*side] > 0).map(Step::Restart));
        for (index, cable) in self.cables.iter().enumerate() {
            steps.extend((0..2).filter(|side| !cable.to[*side].is_empty()).map(|side| Step::Deliver(index, side)));
            if self.resets > 0 && cable.ends.iter().all(Option::is_some) {
                steps.push(Step::Reset(index));
            }
            if self.vanishings > 0 {
                steps.extend((0..2).filter(|side| cable.ends[*side].is_some()).map(|side| Step::Vanish(index, side)));
            }
        }
        steps
    }

    fn apply(&mut self, step: Step) {
        let now = at(self.millis);
        match step {
            Step::Dial(side) => {
                self.dials[side] -= 1;
                self.dial(side);
            }
            Step::Deliver(index, side) => {
                let cable = &mut self.cables[index];
                let item = cable.to[side].pop_front().unwrap();
                let mesh = &mut self.mesh[side];
                match (item, cable.ends[side]) {
                    (Item::Open, _) => cable.ends[side] = Some(mesh.accept(now)),
                    (Item::Bytes(bytes), Some(conn)) => mesh.receive(now, conn, bytes).unwrap(),
                    (Item::Fin, Some(conn)) => {
                        mesh.closed(now, conn);
                        cable.ends[side] = None;
                    }
                    (Item::Bytes(_) | Item::Fin, None) => {}
                }
            }
            Step::Reset(index) => {
                self.resets -= 1;
                self.cables[index].to = [[Item::Fin].into(), [Item::Fin].into()];
            }
            Step::Vanish(index, side) => {
                self.vanishings -= 1;
                let cable = &mut self.cables[index];
                self.mesh[side].closed(now, cable.ends[side].take().unwrap());
                // What it wrote before may still arrive, at any time.
                cable.to[side].clear();
            }
            Step::Restart(side) => {
                self.restarts[side] -= 1;
                self.dials[side] = 1;
                self.mesh[side] = mesh(["a", "b"][side], 2);
                self.up[side] = None;
                for cable in &mut self.cables {
                    cable.ends[side] = None;
                    cable.to[side].clear();
                }
            }
        }
        self.carry();
    }

    fn dial(&mut self, side: usize) {
        let mut cable = Cable::default();
        cable.ends[side] = Some(self.mesh[side].connect(at(self.millis), Some(rid(["b", "a"][side]))));
        cable.to[1 - side].push_back(Item::Open);
        self.cables.push(cable);
        self.carry();
    }

    /// Does what the transports do at once: takes events, writes each record as an item of its own, closes.
    fn carry(&mut self) {
        let now = at(self.millis);
        for side in 0..2 {
            while let Some(conn) = self.mesh[side].poll_ready() {
                let Some(index) = self.cables.iter().position(|cable| cable.ends[side] == Some(conn)) else { continue };
                let mut bytes = Bytes::from(link_world::drain(&mut self.mesh[side], conn));
                let closes = self.mesh[side].should_close(conn);
                let cable = &mut self.cables[index];
                // Where the far end has vanished or closed nothing arrives.
                let heard = cable.ends[1 - side].is_some() || matches!(cable.to[1 - side].front(), Some(Item::Open));
                let far = &mut cable.to[1 - side];
                while !bytes.is_empty() {
                    let length = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                    let item = Item::Bytes(bytes.split_to(4 + usize::try_from(length).unwrap()));
                    far.extend(heard.then_some(item));
                }
                if closes {
                    far.extend(heard.then_some(Item::Fin));
                    cable.ends[side] = None;
                    cable.to[side].clear();
                    self.mesh[side].closed(now, conn);
                }
            }
            while let Some(event) = self.mesh[side].poll_event() {
                match event {
                    MeshEvent::Up { conn, .. } => {
                        assert_eq!(self.up[side], None, "two connections are up");
                        self.up[side] = Some(conn);
                    }
                    MeshEvent::Down { conn, reason, .. } => {
                        let told = match &reason {
                            DownReason::Closed | DownReason::Silent | DownReason::HelloTimeout => None,
                            DownReason::Rejected(rejection) => Some(*rejection),
                            DownReason::Refused(refused) => Some(refused.reason),
                            DownReason::Misbehaved(_) | DownReason::Dropped(_) => panic!("{reason:?}"),
                        };
                        let restarted = matches!(told, Some(Rejection::Superseded | Rejection::OlderGeneration));
                        let expected = [Rejection::Duplicate, Rejection::Silent, Rejection::HelloTimeout];
                        assert!(restarted || told.is_none_or(|told| expected.contains(&told)), "{reason:?}");
                        if self.up[side] == Some(conn) {
                            self.up[side] = None;
                            self.fell[side] += 1;
                        }
                    }
                    MeshEvent::Record { .. } | MeshEvent::Sent { .. } => unreachable!(),
                }
            }
        }
    }

    /// The two ends of one cable are what is up.
    fn is_one(&self) -> bool {
        let up = |cable: &&Cable| (0..2).all(|side| self.up[side].is_some() && cable.ends[side] == self.up[side]);
        self.cables.iter().filter(up).count() == 1
    }

    fn is_none(&self) -> bool {
        self.up == [None; 2]
    }

    /// Delivers all in one order.
    fn deliver_all(&mut self) {
        while let Some(step) = self.steps().into_iter().find(|step| matches!(step, Step::Deliver(..))) {
            self.apply(step);
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = self.millis + millis;
        while self.millis < end {
            self.millis += 500;
            for side in 0..2 {
                self.mesh[side].tick(at(self.millis));
                self.carry();
            }
            self.deliver_all();
        }
    }
}

/// Visits every reachable world and calls `check` on each that has no step left; returns how many worlds there are.
fn search(start: World, mut check: impl FnMut(World)) -> usize {
    let hasher = RandomState::new();
    let mut seen = HashSet::new();
    let mut stack = vec![start];
    while let Some(world) = stack.pop() {
        if !seen.insert(hasher.hash_one(format!("{world:?}"))) {
            continue;
        }
        let steps = world.steps();
        if steps.is_empty() {
            check(world);
            continue;
        }
        for step in steps {
            let mut next = world.clone();
            next.apply(step);
            stack.push(next);
        }
    }
    seen.len()
}

#[test]
fn nodes_that_dial_each_other_at_once_end_with_one_connection() {
    let mut ends = 0;
    for dials in [[1, 1], [2, 0], [0, 2], [2, 1], [1, 2], [3, 0], [0, 3]] {
        let worlds = search(World::new(dials, 0, 0), |world| {
            assert!(world.is_one(), "{world:#?}");
            assert_eq!(world.fell, [0; 2], "a healthy connection was given up for another");
            assert_eq!(world.cables.iter().filter(|cable| cable.ends != [None; 2]).count(), 1, "one transport is open");
            ends += 1;
        });
        println!("{dials:?}: {worlds} worlds");
    }
    assert!(ends > 0);
}

#[test]
fn a_reset_leaves_one_connection_or_none_and_dialing_again_makes_one() {
    for dials in [[1, 1], [2, 0], [0, 2]] {
        let worlds = search(World::new(dials, 1, 0), |world| {
            assert!(world.is_one() || world.is_none(), "{world:#?}");
            for dialer in 0..2 {
                let mut world = world.clone();
                world.dial(dialer);
                world.deliver_all();
                assert!(world.is_one(), "{world:#?}");
            }
        });
        println!("{dials:?} with a reset: {worlds} worlds");
    }
}

#[test]
fn an_end_that_vanished_is_found_out_and_dialing_makes_one_connection() {
    for dials in [[1, 1], [2, 0], [0, 2]] {
        let worlds = search(World::new(dials, 0, 1), |world| {
            // Nobody dials: the dead ends go, and what is left is one or none.
            let mut left = world.clone();
            left.pass(20_000);
            assert!(left.is_one() || left.is_none(), "{left:#?}");
            for dialer in 0..2 {
                let mut again = left.clone();
                again.dial(dialer);
                again.deliver_all();
                assert!(again.is_one(), "{again:#?}");
            }
            // Somebody dials at once: within half the hello time-out there is one.
            for dialer in 0..2 {
                let mut again = world.clone();
                again.dial(dialer);
                again.deliver_all();
                again.pass(3_000);
                assert!(again.is_one(), "{again:#?}");
            }
        });
        println!("{dials:?} with a vanished end: {worlds} worlds");
    }
}

#[test]
fn a_node_that_starts_again_ends_with_one_connection_of_its_new_run() {
    for restarted in 0..2 {
        for dials in [[1, 0], [0, 1], [1, 1]] {
            let mut start = World::new(dials, 0, 0);
            start.restarts[restarted] = 1;
            let worlds = search(start, |world| {
                // The ends of the old run are gone, so the one connection is of the new run.
                assert!(world.is_one(), "{world:#?}");
            });
            println!("{dials:?}, side {restarted} restarts: {worlds} worlds");
        }
    }
}

/// Side `lost` loses the only connection and the other side does not notice; `dialer` dials.
fn replaced_at_once(lost: usize, dialer: usize) {
    let mut world = World::new([1, 0], 0, 1);
    world.apply(Step::Dial(0));
    world.deliver_all();
    assert!(world.is_one());
    world.apply(Step::Vanish(0, lost));
    assert!(world.up[1 - lost].is_some(), "the other side has not noticed");
    world.dial(dialer);
    world.deliver_all();
    assert!(world.is_one(), "no time had to pass: {world:#?}");
}

#[test]
fn a_node_that_lost_its_connection_replaces_it_at_once() {
    for lost in 0..2 {
        for dialer in 0..2 {
            replaced_at_once(lost, dialer);
        }
    }
}

/// A decider `a` whose connection with `b` is up, of which `b` has lost its end before it read the welcome; and two
/// claims of `b` that do not know of it.
fn two_that_wait() -> (Mesh, Conn, [Conn; 2]) {
    let (mut a, mut b) = (mesh("a", 1), mesh("b", 1));
    let mut dial = |b: &mut Mesh| {
        let (on_b, on_a) = (b.connect(at(0), None), a.accept(at(0)));
        a.receive(at(0), on_a, link_world::drain(b, on_b).into()).unwrap();
        let bytes = link_world::drain(&mut a, on_a);
        b.receive(at(0), on_b, bytes.into()).unwrap();
        let claim = link_world::drain(b, on_b);
        b.closed(at(0), on_b);
        (on_a, claim)
    };
    let [first, second, third] = [(); 3].map(|()| dial(&mut b));
    a.receive(at(0), first.0, first.1.into()).unwrap();
    assert!(matches!(link_world::events(&mut a).as_slice(), [MeshEvent::Up { conn, .. }] if *conn == first.0));
    for (conn, claim) in [second.clone(), third.clone()] {
        a.receive(at(0), conn, claim.into()).unwrap();
    }
    assert_eq!(link_world::events(&mut a), [], "both wait for the answer to a probe");
    (a, first.0, [second.0, third.0])
}

#[test]
fn when_the_old_connection_ends_one_claim_that_waited_comes_in_at_once() {
    let (mut a, old, [second, third]) = two_that_wait();
    a.closed(at(0), old);
    let seen = link_world::events(&mut a);
    assert!(
        matches!(seen.as_slice(), [
            MeshEvent::Down { conn: first, reason: DownReason::Closed, .. },
            MeshEvent::Up { conn: up, .. },
            MeshEvent::Down { conn: other, reason: DownReason::Rejected(Rejection::Duplicate), .. },
        ] if (*first, *up, *other) == (old, third, second)),
        "{seen:?}"
    );
}

#[test]
fn without_an_answer_a_claim_that_waited_comes_in_after_half_the_hello_time_out() {
    let (mut a, old, [second, third]) = two_that_wait();
    a.tick(at(2499));
    assert_eq!(link_world::events(&mut a), []);
    a.tick(at(2500));
    let seen = link_world::events(&mut a);
    let duplicate = |event: &MeshEvent, expected: Conn| {
        let rejected = DownReason::Rejected(Rejection::Duplicate);
        matches!(event, MeshEvent::Down { conn, reason, .. } if *conn == expected && *reason == rejected)
    };
    let [old_down, up, other] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(duplicate(old_down, old) && duplicate(other, third), "{seen:?}");
    assert!(matches!(up, MeshEvent::Up { conn, .. } if *conn == second));
}

#[test]
fn a_welcome_that_arrives_after_a_newer_one_changes_nothing() {
    let (mut a, mut b) = (mesh("a", 1), mesh("b", 1));
    let mut welcomed = |a: &mut Mesh| {
        let (on_a, on_b) = (a.connect(at(0), None), b.accept(at(0)));
        b.receive(at(0), on_b, link_world::drain(a, on_a).into()).unwrap();
        a.receive(at(0), on_a, link_world::drain(&mut b, on_b).into()).unwrap();
        let welcome = link_world::drain(a, on_a);
        a.closed(at(0), on_a);
        (on_b, welcome)
    };
    let [first, second] = [(); 2].map(|()| welcomed(&mut a));
    b.receive(at(0), second.0, second.1.into()).unwrap();
    assert!(matches!(link_world::events(&mut b).as_slice(), [MeshEvent::Up { conn, .. }] if *conn == second.0));
    b.receive(at(0), first.0, first.1.into()).unwrap();
    let seen = link_world::events(&mut b);
    let duplicate = DownReason::Rejected(Rejection::Duplicate);
    assert!(
        matches!(seen.as_slice(), [MeshEvent::Down { conn, reason, .. }] if *conn == first.0 && *reason == duplicate),
        "{seen:?}"
    );
    assert_eq!(b.connection(&rid("a")), Some(second.0));
}
