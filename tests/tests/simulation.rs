//! Whole histories of a cluster under faults. A failing seed prints the last steps before the oracle spoke.

use rehome_tests::{Profile, Summary, run};
use std::collections::BTreeMap;

const ACTS: u64 = 400;

fn histories(profile: Profile, seeds: std::ops::Range<u64>) -> Summary {
    let mut all = Summary::default();
    for seed in seeds {
        let one = run(profile, seed, ACTS);
        assert!(
            one.faults.is_empty(),
            "profile {}, seed {seed}:\n{}\n{}",
            profile.name,
            one.tail,
            one.faults.join("\n")
        );
        all.moved += one.moved;
        all.kept += one.kept;
        all.refused += one.refused;
        all.lost += one.lost;
        all.turns += one.turns;
        all.answered += one.answered;
        all.events += one.events;
        let mut made: BTreeMap<_, _> = core::mem::take(&mut all.made);
        for (fault, count) in one.made {
            *made.entry(fault).or_default() += count;
        }
        all.made = made;
    }
    println!(
        "{}: {} moved, {} kept, {} refused, {} lost; {} turns, {} answered, {} events; {:?}",
        profile.name, all.moved, all.kept, all.refused, all.lost, all.turns, all.answered, all.events, all.made
    );
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seeds of this run: a fixed range, the one that `REHOME_SEED` names, or as many as `REHOME_SEEDS` says.
fn seeds(count: u64) -> std::ops::Range<u64> {
    match (number("REHOME_SEED"), number("REHOME_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, more) => 0..more.unwrap_or(count),
    }
}

fn check(profile: Profile, count: u64, faults: &[&str]) {
    let seeds = seeds(count);
    let count = seeds.end - seeds.start;
    let whole = count > 1;
    let all = histories(profile, seeds);
    if whole {
        assert!(all.moved > count, "too few moves to mean anything: {}", all.moved);
        assert!(all.turns > 50 * count, "too few turns to mean anything: {}", all.turns);
        for fault in faults {
            assert!(all.made.get(fault).is_some_and(|made| *made > 0), "no '{fault}' was made: {:?}", all.made);
        }
    }
}

#[test]
fn calm_histories() {
    check(Profile::CALM, 100, &[]);
}

#[test]
fn lossy_histories() {
    check(
        Profile::LOSSY,
        200,
        &["connection cut", "duplicated record", "late record", "slow turn", "cancel", "capture fails"],
    );
}

#[test]
fn histories_with_a_bad_store() {
    let faults = ["store command lost", "store reply lost", "store write applied late", "store conflict", "store away"];
    check(Profile::STORE, 200, &faults);
}

#[test]
fn histories_with_stopped_nodes() {
    check(Profile::PAUSES, 200, &["paused", "paused past its lease", "wall clock jump"]);
}

#[test]
fn histories_with_dying_nodes() {
    check(Profile::KILLS, 200, &["killed", "lease lost"]);
}

#[test]
fn histories_with_everything() {
    check(Profile::CHAOS, 200, &["killed", "paused", "late record", "store write applied late"]);
}

#[test]
fn a_fresh_seed() {
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let seed = u64::try_from(fresh).unwrap_or(0);
    println!("seeds from {seed}: run one again with REHOME_SEED");
    for profile in Profile::ALL {
        histories(profile, seed..seed + 10);
    }
}

#[test]
fn one_seed_is_one_history() {
    for profile in Profile::ALL {
        for seed in 0..5 {
            assert_eq!(run(profile, seed, ACTS).trace, run(profile, seed, ACTS).trace, "{} {seed}", profile.name);
        }
    }
}
