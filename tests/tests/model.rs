//! Exhaustive searches over the real machines and over whole nodes, each to its end, and the controls: without any one of the rules the same
//! search finds a counterexample.

use rehome_tests::model::setups::{control, usual};
use rehome_tests::model::{Searched, Weakening, search, shortest, whole};
use std::time::Duration;

/// Far more than any of these searches takes; one that is not over by then proves nothing and fails.
const LIMIT: Duration = Duration::from_secs(900);

fn passes(name: &str) -> Searched {
    let setup = usual().into_iter().find(|setup| setup.name == name).expect("a setup of this name");
    judged(search(setup, LIMIT))
}

fn whole_passes(name: &str) -> Searched {
    let bounds = whole::setups::usual().into_iter().find(|bounds| bounds.name == name).expect("bounds of this name");
    judged(whole::search(bounds, LIMIT))
}

fn judged(found: Searched) -> Searched {
    let name = found.name;
    let Searched { unique, total, depth, took, values, .. } = &found;
    println!("{name}: {unique} states ({total} with repeats), depth {depth}, {took:.1?}, values {values:?}");
    if let Some(broken) = found.broken.first() {
        panic!("model: {} in {} steps\n{}", broken.rule, broken.steps, broken.path);
    }
    assert!(found.complete, "the search was not over after {took:?}: it proves nothing");
    assert!(found.unreached.is_empty(), "never reached, so the search means nothing: {:?}", found.unreached);
    found
}

#[test]
fn there_and_back_again() {
    assert!(passes("there and back again").unique > 3_000_000);
}

#[test]
fn three_nodes() {
    assert!(passes("three nodes").unique > 150_000);
}

#[test]
fn a_crash() {
    assert!(passes("a crash").unique > 70_000);
}

#[test]
fn a_lease_ends_and_the_object_is_taken_over() {
    assert!(passes("a lease ends").unique > 4_000_000);
}

#[test]
fn deleted_and_created_again() {
    assert!(passes("deleted and created again").unique > 1_400_000);
}

#[test]
fn others_write_the_record_and_ended_moves_are_forgotten() {
    assert!(passes("others write the record").unique > 450_000);
}

#[test]
fn every_input_on_its_own() {
    assert!(passes("every input").unique > 50_000);
}

#[test]
fn every_input_also_of_a_peer_that_is_gone() {
    assert!(passes("every input, also of a peer that is gone").unique > 10_000);
}

#[test]
fn an_orderly_end() {
    assert!(passes("an orderly end").unique > 300_000);
}

#[test]
fn two_processes_with_one_owner_id() {
    assert!(passes("two processes with one owner id").unique > 50_000);
}

#[test]
fn whole_nodes_there_and_back_again() {
    assert!(whole_passes("whole: there and back again").unique > 600_000);
}

#[test]
fn whole_nodes_while_time_goes_on() {
    assert!(whole_passes("whole: time goes on").unique > 30_000);
}

#[test]
fn whole_nodes_lose_their_connection() {
    assert!(whole_passes("whole: a lost connection").unique > 200_000);
}

#[test]
fn whole_nodes_lose_their_connection_with_two_requests() {
    assert!(whole_passes("whole: a lost connection, two requests").unique > 80_000);
}

#[test]
fn whole_nodes_with_two_requests() {
    assert!(whole_passes("whole: two requests").unique > 100_000);
}

#[test]
fn whole_nodes_asked_at_the_source() {
    assert!(whole_passes("whole: asked at the source").unique > 1_300_000);
}

/// A search that cannot fail proves nothing.
#[test]
fn every_rule_is_needed() {
    let mut passed = Vec::new();
    for rule in Weakening::ALL {
        let found = shortest(control(rule), LIMIT);
        match found.broken.first() {
            Some(broken) => println!("without {rule:?}: {} in {} steps\n{}\n", broken.rule, broken.steps, broken.path),
            None => passed.push(rule),
        }
    }
    assert!(passed.is_empty(), "the search finds nothing without {passed:?}");
}
