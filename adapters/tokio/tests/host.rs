//! Real hosts over loopback sockets.

mod common;

use bytes::Bytes;
use common::{ask, key, move_to, pair, pair_of, within};
use rehome::id::RoutingId;
use rehome::node::{CallError, MoveOutcome, NotRun, Policy, RefusedReason, Stage, TypeConfig};
use rehome::wire::Outcome;
use rehome_tokio::{Host, payload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn an_object_moves_under_traffic_and_every_sender_keeps_its_order() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let traffic = |host: Host| async move {
            let mut last = 0;
            for _ in 0..500 {
                let count = ask(&host, "hit", "").await.expect("an answer");
                let count: u64 = count.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
                assert!(count > last);
                last = count;
            }
        };
        let (one, two) = (tokio::spawn(traffic(pair.left.clone())), tokio::spawn(traffic(pair.right.clone())));
        for _ in 0..5 {
            move_to(&pair.left, "right").await;
            move_to(&pair.right, "left").await;
        }
        one.await.expect("no panic");
        two.await.expect("no panic");
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1001 11");
        assert_eq!(pair.left_shared.resumed.load(Ordering::SeqCst), 5);
        assert_eq!(pair.right_shared.retired.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn an_object_that_moves_on_and_on_leaves_no_sender_behind() {
    within(async {
        let pair = pair().await;
        pair.create().await;
        let over = Arc::new(AtomicBool::new(false));
        let asker = |host: &Host| {
            let (host, over) = (host.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    match ask(&host, "hit", "").await {
                        // It was forwarded as often as may be, as the object was always gone already.
                        Ok(_) | Err(CallError::NotRun(NotRun::TooManyHops)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        let askers = [asker(&pair.left), asker(&pair.right)];
        for _ in 0..150 {
            for (from, to) in [(&pair.left, "right"), (&pair.right, "left")] {
                move_to(from, to).await;
            }
        }
        over.store(true, Ordering::SeqCst);
        for asker in askers {
            asker.await.expect("no panic");
        }
    });
}

#[test]
fn a_panic_is_the_error_of_one_request() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.right, "panic", "").await, Err(CallError::Panicked));
        let failed = CallError::Handler { failure: 1234, detail: String::from("as asked") };
        assert_eq!(ask(&pair.right, "fail", "").await, Err(failed));
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "3 1");
    });
}

#[test]
fn a_turn_over_its_limit_ends_and_stalls_nobody() {
    within(async {
        let pair = pair_of(TypeConfig::default(), Some(Duration::from_millis(100))).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.right, "sleep", "").await, Err(CallError::Timeout));
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "2 1");
    });
}

#[test]
fn a_turn_that_does_not_end_keeps_the_object_where_it_is() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        pair.left.send(key(), payload("sleep", "").expect("a name")).await.expect("accepted");
        // The object cannot even tell its size before the turn ends, so it is never stopped.
        let (target, timeout) = (RoutingId::new("right").expect("an id"), Some(Duration::from_millis(200)));
        let outcome = pair.left.relocate(key(), target, timeout).await.outcome().await;
        assert_eq!(outcome, Ok(MoveOutcome::Refused(RefusedReason::DeadlineExceeded)));
    });
}

#[test]
fn a_request_is_answered_later_from_the_other_side_of_a_move() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let asker = pair.right.clone();
        let asked = tokio::spawn(async move { ask(&asker, "later", "").await });
        let token = loop {
            if let Some(token) = pair.left_shared.tokens.lock().expect("no panic").pop() {
                break token;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert!(matches!(pair.move_right().await, MoveOutcome::Moved { .. }));
        let answer = Outcome::Answer(payload("late", "here").expect("a name"));
        pair.left.reply(token, answer).await.expect("on its way");
        assert_eq!(asked.await.expect("no panic").expect("an answer"), "here");
    });
}

#[test]
fn an_object_asks_for_its_own_move_and_its_own_end() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        ask(&pair.left, "move", "right").await.expect("an answer");
        while pair.right.objects().await != [key()] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "2 2");
        ask(&pair.right, "delete", "").await.expect("an answer");
        while pair.left.locate(key()).await.expect("the store answers").is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(&pair.left, "hit", "").await, Err(CallError::NotRun(NotRun::NotFound)));
    });
}

#[test]
fn what_cannot_move_is_refused_before_it_stops() {
    within(async {
        let disabled = TypeConfig { policy: Policy::Disabled, ..TypeConfig::default() };
        let pair = pair_of(disabled, None).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(pair.move_right().await, MoveOutcome::Refused(RefusedReason::Disabled));
        let nowhere = RoutingId::new("nowhere").expect("an id");
        let outcome = pair.left.relocate(key(), nowhere, None).await.outcome().await.expect("an outcome");
        assert!(matches!(outcome, MoveOutcome::Refused(_)), "{outcome:?}");
        let small = TypeConfig { state_limit: 10, ..TypeConfig::default() };
        let pair = pair_of(small, None).await;
        pair.left.create(key(), "probe", Bytes::from_static(b"100")).await.expect("it is made");
        assert_eq!(pair.move_right().await, MoveOutcome::Refused(RefusedReason::TooLarge));
    });
}

#[test]
fn a_policy_without_state_makes_a_fresh_object_at_the_target() {
    within(async {
        let pair = pair_of(TypeConfig { policy: Policy::Recreate, ..TypeConfig::default() }, None).await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 1");
        assert!(matches!(pair.move_right().await, MoveOutcome::Moved { .. }));
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 2");
    });
}

#[test]
fn creation_says_what_went_wrong() {
    within(async {
        let pair = pair().await;
        let refused = pair.left.create(key(), "probe", Bytes::from_static(b"refuse")).await;
        assert_eq!(refused, Err(CallError::ActivationFailed(String::from("not today"))));
        assert_eq!(pair.left.locate(key()).await, Ok(None), "nothing is left of it");
        assert!(matches!(pair.left.create(key(), "unheard of", Bytes::new()).await, Err(CallError::UnknownType(_))));
        assert!(pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made").new);
        assert_eq!(pair.right.create(key(), "probe", Bytes::new()).await, Err(CallError::AlreadyExists));
        let found = pair.right.get_or_create(key(), "probe", Bytes::new()).await.expect("it is there");
        assert!(!found.new && found.route.node == *pair.left.node());
        assert_eq!(pair.right.reclaim(key(), Bytes::new()).await, Err(CallError::OwnerAlive));
    });
}

#[test]
fn connections_that_are_cut_lose_nothing() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        let sender = pair.right.clone();
        let traffic = tokio::spawn(async move {
            for _ in 0..300 {
                sender.send(key(), payload("hit", "").expect("a name")).await.expect("accepted");
            }
        });
        while !traffic.is_finished() {
            pair.left.cut_connections().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        traffic.await.expect("no panic");
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "301 1");
    });
}

#[test]
fn an_orderly_shutdown_lets_another_host_take_over_at_once() {
    within(async {
        let pair = pair().await;
        pair.left.create(key(), "probe", Bytes::new()).await.expect("it is made");
        pair.left.shutdown(Duration::from_secs(10)).await;
        assert_eq!(ask(&pair.left, "hit", "").await, Err(CallError::NotRun(NotRun::NotServing)));
        assert!(pair.right.reclaim(key(), Bytes::new()).await.expect("it is free").new);
        assert_eq!(pair.right_shared.reclaimed.load(Ordering::SeqCst), 1);
        assert_eq!(ask(&pair.right, "hit", "").await.expect("an answer"), "1 1");
    });
}

#[test]
fn a_large_object_moves_in_chunks_and_shows_its_stages() {
    within(async {
        let pair = pair_of(TypeConfig { state_limit: u64::MAX, ..TypeConfig::default() }, None).await;
        let length: usize = 64 << 20;
        pair.left.create(key(), "probe", Bytes::from(length.to_string())).await.expect("it is made");
        let mut moving = pair.left.relocate(key(), RoutingId::new("right").expect("an id"), None).await;
        let mut stages = Vec::new();
        while let Some(stage) = moving.stage().await {
            stages.push(stage);
        }
        assert!(matches!(moving.outcome().await, Ok(MoveOutcome::Moved { .. })));
        assert_eq!(stages.first(), Some(&Stage::Waiting));
        assert_eq!(stages.last(), Some(&Stage::Settling));
        let (held, counters) = pair.left.inspect().await.expect("it serves");
        assert!(counters.bytes > length as u64);
        assert_eq!((held.moves, held.budget_bytes), (0, 0));
        assert_eq!(ask(&pair.left, "hit", "").await.expect("an answer"), "1 2");
    });
}
