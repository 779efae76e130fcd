//! The script of faults: each fault does to its one command what it says, and nothing to any other.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect is a failure")]

use futures_executor::block_on;
use futures_util::FutureExt as _;
use rehome::store::{Batch, Condition, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::{Clock, Engine as _, Fault, Kind, Memory, OpenError, Rule, open};
use std::time::Duration;

fn key(name: &'static str) -> StoreKey {
    StoreKey(name.into())
}

fn put(name: &'static str) -> StoreCommand {
    let mutation = Mutation::Put { key: key(name), value: "1".into(), ttl: None };
    StoreCommand::Write(Batch { conditions: vec![Condition::Missing(key(name))], mutations: vec![mutation] })
}

fn ask(store: &Memory, command: StoreCommand) -> StoreReply {
    block_on(store.execute(command))
}

fn there(store: &Memory, name: &'static str) -> bool {
    ask(store, StoreCommand::Read(key(name))) != StoreReply::Missing
}

#[test]
fn a_failure_before_leaves_the_write_undone_and_one_after_leaves_it_done() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::FailBefore));
    assert_eq!(ask(&store, put("a")), StoreReply::Unknown);
    assert!(!there(&store, "a"));
    store.script(Rule::nth(0, Fault::FailAfter));
    assert_eq!(ask(&store, put("a")), StoreReply::Unknown);
    assert!(there(&store, "a"));
    assert_eq!(store.unmet(), 0);
}

#[test]
fn a_false_conflict_and_a_refusal_change_nothing() {
    let store = Memory::new();
    for (fault, reply) in [(Fault::Conflict, StoreReply::Conflict), (Fault::Refuse, StoreReply::Invalid)] {
        store.script(Rule::nth(0, fault));
        assert_eq!(ask(&store, put("a")), reply);
        assert!(!there(&store, "a"));
    }
    assert!(matches!(ask(&store, put("a")), StoreReply::Applied(_)));
}

#[test]
fn a_held_command_is_done_when_it_is_released_and_not_before() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::Hold));
    let mut answer = store.execute(put("a"));
    assert!(!there(&store, "a"));
    assert!((&mut answer).now_or_never().is_none());
    // Meanwhile somebody else makes the key: the late write finds it.
    assert!(matches!(ask(&store, put("a")), StoreReply::Applied(_)));
    assert_eq!(store.held(), 1);
    assert!(store.release());
    assert_eq!(block_on(answer), StoreReply::Conflict);
    assert!(!store.release());
}

#[test]
fn a_held_answer_says_what_was_true_when_it_was_done() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::HoldAnswer).of(Kind::Read));
    let answer = store.execute(StoreCommand::Read(key("a")));
    assert!(matches!(ask(&store, put("a")), StoreReply::Applied(_)));
    assert!(store.release());
    assert_eq!(block_on(answer), StoreReply::Missing);
}

#[test]
fn nobody_needs_to_wait_for_a_held_command_to_be_done() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::Hold));
    drop(store.execute(put("a")));
    assert!(store.release());
    assert!(there(&store, "a"));
}

#[test]
fn a_rule_counts_only_its_kind_and_prefix() {
    let store = Memory::new();
    store.script(Rule::nth(1, Fault::FailBefore).of(Kind::Write).under("lease\0"));
    assert!(matches!(ask(&store, put("lease\0one")), StoreReply::Applied(_)));
    assert!(there(&store, "lease\0one"));
    assert!(matches!(ask(&store, put("owner\0one")), StoreReply::Applied(_)));
    let scan = StoreCommand::Scan { prefix: "lease\0".into(), cursor: None, limit: 1 };
    assert!(matches!(ask(&store, scan), StoreReply::Page { .. }));
    assert_eq!(store.unmet(), 1);
    assert_eq!(ask(&store, put("lease\0two")), StoreReply::Unknown);
    assert!(matches!(ask(&store, put("lease\0two")), StoreReply::Applied(_)));
}

#[test]
fn two_rules_for_one_command_meet_two_commands() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::FailBefore));
    store.script(Rule::nth(0, Fault::Conflict));
    assert_eq!(ask(&store, put("a")), StoreReply::Unknown);
    assert_eq!(ask(&store, put("a")), StoreReply::Conflict);
    assert!(matches!(ask(&store, put("a")), StoreReply::Applied(_)));
}

#[test]
fn an_invalid_command_meets_no_fault() {
    let store = Memory::new();
    store.script(Rule::nth(0, Fault::FailAfter));
    assert_eq!(ask(&store, StoreCommand::Read(key(""))), StoreReply::Invalid);
    assert_eq!(store.unmet(), 1);
}

#[test]
fn a_cursor_of_another_prefix_is_refused() {
    let store = Memory::new();
    let scan = StoreCommand::Scan { prefix: "a".into(), cursor: Some("b".into()), limit: 1 };
    assert_eq!(ask(&store, scan), StoreReply::Invalid);
}

#[test]
fn a_manual_clock_moves_only_when_it_is_told() {
    let clock = Clock::manual();
    let store = Memory::with_clock(clock.clone());
    let ttl = Some(Duration::from_millis(10));
    let mutation = Mutation::Put { key: key("a"), value: "1".into(), ttl };
    ask(&store, StoreCommand::Write(Batch { conditions: vec![], mutations: vec![mutation] }));
    clock.advance(Duration::from_micros(9_999));
    match ask(&store, StoreCommand::Read(key("a"))) {
        StoreReply::Found(found) => assert_eq!(found.ttl, Some(Duration::from_micros(1))),
        other => panic!("{other:?}"),
    }
    clock.advance(Duration::from_micros(1));
    assert!(!there(&store, "a"));
}

#[test]
fn an_address_names_an_engine_or_says_which_there_are() {
    assert_eq!(open("memory:").unwrap().name(), "memory");
    assert!(!open("memory:").unwrap().warnings().is_empty());
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(open(&format!("sqlite:{}/a.db", folder.path().display())).unwrap().name(), "sqlite");
    for wrong in ["", "memory", "memory:x", "sqlite:", "etcd:x", "/tmp/x"] {
        let error = open(wrong).err().unwrap();
        assert!(matches!(error, OpenError::Address(_)));
        assert!(error.to_string().contains("known are memory:, sqlite:PATH, redis://"));
    }
    let error = open("nothing://name:secret@host").err().unwrap().to_string();
    assert!(error.contains("'nothing://...@host'"), "a password is shown: {error}");
}

#[test]
fn an_engine_that_is_not_built_in_names_its_feature() {
    let engines = [
        ("redis://", "redis", cfg!(feature = "redis")),
        ("rediss://", "redis", cfg!(feature = "redis")),
        ("postgres://", "postgres", cfg!(feature = "postgres")),
        ("etcd://", "etcd", cfg!(feature = "etcd")),
    ];
    for (scheme, named, built) in engines {
        // No host: an engine that is built in refuses it at once.
        let error = open(scheme).err().unwrap();
        let not_built = matches!(error, OpenError::NotBuiltIn { feature } if feature == named);
        assert_eq!(not_built, !built, "{error}");
        assert_eq!(error.to_string().contains(&format!("feature '{named}'")), !built, "{error}");
    }
}
