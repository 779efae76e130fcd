//! Whole histories of a cluster under faults. A failing seed prints the last steps before the oracle spoke;
//! `REHOME_SEED` runs it again, alone, and `REHOME_TRACE` says how many lines to print. `REHOME_FRESH` is the number of
//! fresh seeds of each profile, 10 by default; with `REHOME_KEEP_GOING` a fault is printed and the next seed runs.

use rehome_tests::{Chance, Choice, Profile, Script, Summary, run, run_schedule, run_script, script_of, shrink};

const ACTS: u64 = 400;

fn histories(profile: Profile, seeds: std::ops::Range<u64>) -> Summary {
    let mut all = Summary::default();
    let keep_going = std::env::var("REHOME_KEEP_GOING").is_ok();
    for seed in seeds {
        let one = run(profile, seed, ACTS);
        if keep_going && !one.faults.is_empty() {
            println!("FAULT {} {seed}: {}", profile.name, one.faults[0]);
            continue;
        }
        assert!(
            one.faults.is_empty(),
            "profile {}, seed {seed}:\n{}\n{}",
            profile.name,
            one.tail,
            one.faults.join("\n")
        );
        all.add(&one);
    }
    println!(
        "{}: {} moved, {} kept, {} refused, {} lost; {} turns, {} answered, {} events, {} late, {} taken; {:?}",
        profile.name,
        all.moved,
        all.kept,
        all.refused,
        all.lost,
        all.turns,
        all.answered,
        all.events,
        all.late,
        all.taken,
        all.made
    );
    all
}

fn one_seed() -> Option<u64> {
    std::env::var("REHOME_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Runs `count` seeds of a profile, or the one that `REHOME_SEED` names. Too little that happened is a failure, and so is
/// a fault that the profile should make and never made.
fn check(profile: Profile, count: u64, faults: &[&str]) {
    if let Some(seed) = one_seed() {
        histories(profile, seed..seed + 1);
        return;
    }
    let all = histories(profile, 0..count);
    assert!(all.moved > count, "too few moves to mean anything: {}", all.moved);
    assert!(all.turns > 50 * count, "too few turns to mean anything: {}", all.turns);
    assert!(all.answered > 20 * count, "too few answers to mean anything: {}", all.answered);
    for fault in faults {
        assert!(all.made.get(fault).is_some_and(|made| *made > 0), "no '{fault}' was made: {:?}", all.made);
    }
}

#[test]
fn calm_histories() {
    check(Profile::CALM, 100, &["moved on at once", "answered after its turn"]);
}

#[test]
fn lossy_histories() {
    let faults = [
        "connection cut",
        "one-way cut",
        "duplicated record",
        "late record",
        "reordered record",
        "slow turn",
        "cancel",
        "capture fails",
        "restore fails",
        "retire fails",
    ];
    check(Profile::LOSSY, 250, &faults);
}

#[test]
fn histories_with_a_bad_store() {
    let faults = [
        "store command lost",
        "store reply lost",
        "store write applied late",
        "store slow",
        "store conflict",
        "store away",
    ];
    check(Profile::STORE, 250, &faults);
}

#[test]
fn histories_with_stopped_nodes() {
    check(Profile::PAUSES, 250, &["paused", "paused past its lease", "wall clock jump", "turn not started"]);
}

#[test]
fn histories_with_dying_nodes() {
    check(Profile::KILLS, 250, &["killed", "shut down", "lease lost", "activate fails"]);
}

#[test]
fn histories_with_everything() {
    check(Profile::CHAOS, 250, &["killed", "paused", "late record", "store write applied late", "shut down"]);
}

#[test]
fn histories_with_full_mailboxes() {
    check(Profile::FULL, 100, &["connection cut"]);
}

#[test]
fn histories_of_many_moves() {
    check(Profile::MOVES, 100, &["store write done twice", "moved on at once", "killed", "shut down"]);
}

#[test]
fn histories_with_tiny_bounds() {
    let faults = ["object tells object", "connection cut", "duplicated record", "late record", "moved on at once"];
    check(Profile::TINY, 150, &faults);
}

/// Histories whose choices come from bytes, as a fuzzer would make them: noise, one byte again and again, and a noise of
/// which one byte is another.
#[test]
fn a_schedule_is_a_history() {
    let noise = |seed| {
        let mut chance = Chance::new(seed);
        (0..2000).map(|_| chance.below(256) as u8).collect::<Vec<u8>>()
    };
    let mut moved = 0;
    for profile in Profile::ALL {
        for seed in 0..4 {
            let bytes = noise(seed);
            let mut other = bytes.clone();
            other[2] ^= 1;
            for schedule in [&bytes, &other, &vec![seed as u8; 300], &Vec::new()] {
                let one = run_schedule(profile, schedule, 100);
                assert!(one.faults.is_empty(), "{}: {schedule:?}\n{}\n{:?}", profile.name, one.tail, one.faults);
                assert_eq!(
                    one.trace,
                    run_schedule(profile, schedule, 100).trace,
                    "{}: not the same twice",
                    profile.name
                );
                moved += one.moved;
            }
            let traces = [&bytes, &other].map(|schedule| run_schedule(profile, schedule, 100).trace);
            assert_ne!(traces[0], traces[1], "{}: the bytes decide nothing", profile.name);
        }
    }
    assert!(moved > 100, "too few moves to mean anything: {moved}");
}

/// What a seed chose makes the same history again, and without its tail another one.
#[test]
fn a_script_is_a_history() {
    for profile in Profile::ALL {
        for seed in 0..3 {
            let whole = script_of(profile, seed, 100);
            let trace = run(profile, seed, 100).trace;
            assert_eq!(run_script(profile, &whole, 0).trace, trace, "{} {seed}", profile.name);
            let choices = whole.choices[..whole.choices.len() / 2].to_vec();
            let half = run_script(profile, &Script { choices, ..whole }, 0);
            assert!(half.faults.is_empty(), "{} {seed}: {:?}", profile.name, half.faults);
            assert_ne!(half.trace, trace, "{} {seed}", profile.name);
        }
    }
}

/// A failure that needs two things, one after the other, among many that it does not need.
#[test]
fn a_script_shrinks_to_what_its_failure_needs() {
    let mut chance = Chance::new(9).recorded();
    for _ in 0..500 {
        chance.below(1000);
        chance.hits(300);
    }
    let script = Script { acts: 77, choices: chance.choices() };
    let fails = |script: &Script| {
        let mut chance = Chance::again(script.choices.clone());
        let mut wanted = 0;
        for act in 0..script.acts.min(40) {
            chance.below(1000);
            wanted += u64::from(chance.hits(300) && act > 4);
        }
        wanted >= 2
    };
    assert!(fails(&script));
    let small = shrink(script.clone(), 5000, fails);
    assert!(fails(&small));
    assert_eq!((small.hits(), small.acts), (2, 7), "{small:?}");
    assert!(small.choices.iter().all(|choice| matches!(choice, Choice::Hit(_) | Choice::Pick(0))), "{small:?}");
    assert_eq!(shrink(script.clone(), 0, fails), script, "no try, no change");
}

#[test]
fn a_fresh_seed() {
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let seed = u64::try_from(fresh).unwrap_or(0);
    if one_seed().is_some() {
        return;
    }
    println!("seeds from {seed}: run one again with REHOME_SEED");
    let many = std::env::var("REHOME_FRESH").ok().and_then(|many| many.parse().ok()).unwrap_or(10);
    for profile in Profile::ALL {
        histories(profile, seed..seed + many);
    }
}

#[test]
fn one_seed_is_one_history() {
    for profile in Profile::ALL {
        for seed in 0..5 {
            assert_eq!(run(profile, seed, ACTS).trace, run(profile, seed, ACTS).trace, "{} {seed}", profile.name);
        }
        assert_ne!(run(profile, 0, ACTS).trace, run(profile, 1, ACTS).trace, "{}", profile.name);
    }
}

/// Seeds of fresh ranges that found a fault once.
#[test]
fn seeds_that_found_something() {
    // An answer to an earlier sending of a message that came round ended a later one.
    histories(Profile::LOSSY, 1_796_089_462_600..1_796_089_462_601);
    // The stage of an attempt that had lost took what was for the tenure that another attempt had made.
    histories(Profile::LOSSY, 1_796_091_183_381..1_796_091_183_382);
    histories(Profile::TINY, 1_796_091_183_547..1_796_091_183_548);
    // An own route forgot that messages of its own node were still on their way by the follow route.
    histories(Profile::LOSSY, 500_286..500_287);
    histories(Profile::PAUSES, 500_647..500_648);
    // What a settling source held for an incarnation that had ended came to the next one behind later messages.
    histories(Profile::MOVES, 6_442..6_443);
    histories(Profile::MOVES, 11_419..11_420);
    // The same with what came back refused after the object had been made anew.
    histories(Profile::MOVES, 69_956..69_957);
    // What waited for a route was forgotten with an object that could not be made.
    histories(Profile::MOVES, 48_924..48_925);
    // The object was gone while a source that did not know went on accepting messages for it.
    histories(Profile::MOVES, 15_249..15_250);
    // A generation whose lease had ended came back and sent again what had run.
    histories(Profile::CHAOS, 1_796_091_278_738..1_796_091_278_739);
}
