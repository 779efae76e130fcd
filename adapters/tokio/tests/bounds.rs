//! Objects that are slow, panic, or are asked for more than they take; moves that are cut or cancelled; the end of a
//! host. Over loopback sockets.

mod common;

use common::{Pair, ask, key, message, pair, pair_of, pair_with, pair_within, rid, until, within};
use rehome::fence::ObjectKey;
use rehome::id::ObjectId;
use rehome::node::{CallError, KeptReason, Limits, MoveOutcome, NotRun, TypeConfig};
use rehome_tokio::{Host, OnPanic, payload};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

fn other() -> ObjectKey {
    ObjectKey::actor(ObjectId::new("other").expect("an id"))
}

/// Asks without waiting.
fn asking(host: &Host, name: &'static str) -> JoinHandle<Result<String, CallError>> {
    let host = host.clone();
    tokio::spawn(async move { ask(&host, name, "").await })
}

/// Starts a turn that waits for the gate.
async fn occupied(pair: &Pair) -> JoinHandle<Result<String, CallError>> {
    pair.left_shared.handle_gate.send_replace(false);
    let before = pair.left_shared.started.load(Ordering::SeqCst);
    let asked = asking(&pair.right, "gated");
    until(|| pair.left_shared.started.load(Ordering::SeqCst) > before).await;
    asked
}

#[test]
fn a_slow_handler_stalls_no_other_object() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        let slow = occupied(&pair).await;
        pair.left.create(other(), "probe", bytes::Bytes::new()).await.expect("it is made");
        pair.right.request(other(), message("hit"), common::PATIENCE).await.expect("an answer");
        assert!(!slow.is_finished());
        pair.left_shared.handle_gate.send_replace(true);
        assert_eq!(slow.await.expect("no panic").expect("an answer"), "1 1");
    });
}

#[test]
fn a_full_mailbox_answers_busy_and_runs_what_it_took() {
    within(async {
        let pair = pair_within(Limits { mailbox: 3, ..Limits::default() }).await;
        pair.create().await;
        let running = occupied(&pair).await;
        for host in [&pair.left, &pair.right, &pair.left] {
            host.send(key(), message("hit")).await.expect("accepted");
        }
        for host in [&pair.left, &pair.right] {
            assert_eq!(host.send(key(), message("hit")).await, Err(CallError::Busy));
            assert_eq!(ask(host, "hit", "").await, Err(CallError::Busy));
        }
        pair.left_shared.handle_gate.send_replace(true);
        running.await.expect("no panic").expect("an answer");
        until(|| pair.left_shared.started.load(Ordering::SeqCst) == 4).await;
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "5 1");
    });
}

#[test]
fn a_payload_that_no_peer_takes_is_refused_before_it_is_sent() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        let sized = |bytes: usize| payload("hit", vec![0; bytes]).expect("a name");
        let too_large = CallError::NotRun(NotRun::TooLarge);
        assert_eq!(pair.right.send(key(), sized((16 << 20) + 1)).await, Err(too_large.clone()));
        assert_eq!(pair.left.request(key(), sized((16 << 20) + 1), common::PATIENCE).await, Err(too_large));
        let answer = ask(&pair.right, "large", "").await;
        assert!(matches!(answer, Err(CallError::Handler { .. })), "{answer:?}");
        pair.right.send(key(), sized(16 << 20)).await.expect("accepted");
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "3 1");
    });
}

#[test]
fn a_cancelled_move_keeps_the_object_and_runs_what_came_meanwhile() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        pair.right_shared.restore_gate.send_replace(false);
        let moving = pair.left.relocate(key(), rid("right"), None).await;
        until(|| pair.right_shared.restoring.load(Ordering::SeqCst) == 1).await;
        let held = asking(&pair.right, "hit");
        assert!(moving.cancel().await);
        let outcome = moving.outcome().await;
        assert!(matches!(outcome, Ok(MoveOutcome::KeptSource { reason: KeptReason::Cancelled, .. })), "{outcome:?}");
        assert_eq!(held.await.expect("no panic").expect("an answer"), "1 1");
        pair.right_shared.restore_gate.send_replace(true);
        assert!(matches!(pair.move_right().await, MoveOutcome::Moved { .. }), "the next one is not disturbed");
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "2 2");
    });
}

#[test]
fn a_move_whose_handle_is_dropped_goes_on() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        pair.right_shared.restore_gate.send_replace(false);
        drop(pair.left.relocate(key(), rid("right"), None).await);
        until(|| pair.right_shared.restoring.load(Ordering::SeqCst) == 1).await;
        pair.right_shared.restore_gate.send_replace(true);
        until(|| pair.right_shared.resumed.load(Ordering::SeqCst) == 1).await;
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 2");
    });
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_a_move_loses_nothing() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        pair.right_shared.restore_gate.send_replace(false);
        let moving = pair.left.relocate(key(), rid("right"), None).await;
        until(|| pair.right_shared.restoring.load(Ordering::SeqCst) == 1).await;
        let held: Vec<_> = (0..20).map(|_| [asking(&pair.left, "hit"), asking(&pair.right, "hit")]).collect();
        pair.left.cut_connections().await;
        pair.right_shared.restore_gate.send_replace(true);
        let outcome = moving.outcome().await.expect("an outcome");
        for asked in held.into_iter().flatten() {
            asked.await.expect("no panic").expect("an answer");
        }
        let tenure = match outcome {
            MoveOutcome::Moved { .. } => 2,
            MoveOutcome::KeptSource { .. } => 1,
            MoveOutcome::Refused(_) | MoveOutcome::Lost { .. } => panic!("{outcome:?}"),
        };
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), format!("41 {tenure}"));
    });
}

#[test]
fn a_panic_can_end_the_object() {
    within(async {
        let pair = pair_with(TypeConfig::default(), |builder| builder.on_panic(OnPanic::Delete)).await;
        pair.create().await;
        assert_eq!(ask(&pair.right, "panic", "").await, Err(CallError::Panicked));
        while pair.left.locate(key()).await.expect("the store answers").is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&pair.right, "hit", "").await, Err(CallError::NotRun(NotRun::NotFound)));
        pair.create().await;
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1 1");
    });
}

#[test]
fn a_panic_in_a_destructor_ends_one_object_and_not_the_host() {
    within(async {
        let pair = pair_of(TypeConfig::default(), Some(Duration::from_millis(50))).await;
        pair.create().await;
        // The turn's limit drops the handler's future, which panics then.
        assert_eq!(ask(&pair.right, "panic_when_dropped", "").await, Err(CallError::Panicked));
        assert_eq!(ask(&pair.right, "hit", "").await, Err(CallError::Panicked), "the object is gone");
        pair.left.delete(key()).await.expect("it can be deleted");
        pair.create().await;
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1 1");
    });
}

#[test]
fn a_shutdown_waits_for_the_running_turn_and_for_what_the_objects_do_at_their_end() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        let running = occupied(&pair).await;
        let left = pair.left.clone();
        let over = tokio::spawn(async move { left.shutdown(common::PATIENCE).await });
        // What comes now is not run; the running turn is answered.
        while pair.left.send(key(), message("hit")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!over.is_finished());
        pair.left_shared.handle_gate.send_replace(true);
        assert_eq!(running.await.expect("no panic").expect("an answer"), "1 1");
        over.await.expect("no panic");
        assert_eq!(pair.left_shared.retired.load(Ordering::SeqCst), 1);
    });
}
