//! Hosts on a paused clock: leases that run out, hosts that die, and that a run is the same each time.

mod common;

use bytes::Bytes;
use common::{Probe, Shared, ask, key, message, rid, until};
use rehome::node::{CallError, Event, MoveOutcome, NotRun, TypeConfig};
use rehome_stores::{Fault, Kind, Rule};
use rehome_tokio::Host;
use rehome_tokio::testing::{self, Cluster};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn host(cluster: &Cluster, name: &str, shared: &Arc<Shared>) -> Host {
    cluster
        .host(name, |host| host.object_shared::<Probe>("probe", TypeConfig::default(), Arc::clone(shared)))
        .await
        .expect("it starts")
}

async fn two(cluster: &Cluster) -> (Host, Host, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let left = host(cluster, "left", &shared).await;
    let right = host(cluster, "right", &shared).await;
    cluster.connected().await;
    left.create(key(), "probe", Bytes::new()).await.expect("it is made");
    (left, right, shared)
}

/// All renewals until `until` fail; at the defaults the guard passes ten seconds after the last one that did not.
fn fail_renewals(cluster: &Cluster, count: u32) {
    for _ in 0..count {
        cluster.store().script(Rule::nth(0, Fault::FailBefore).of(Kind::Write));
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    let history = |seed| {
        testing::run(async move {
            let cluster = Cluster::new(seed);
            let (left, right, _) = two(&cluster).await;
            let mut events = left.events();
            let sender = right.clone();
            let traffic = tokio::spawn(async move {
                for _ in 0..200 {
                    ask(&sender, "hit", "").await.expect("an answer");
                }
            });
            for (from, to) in [(&left, "right"), (&right, "left"), (&left, "right")] {
                let moved = from.relocate(key(), rid(to), None).await.outcome().await;
                assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
            }
            traffic.await.expect("no panic");
            assert_eq!(ask(&left, "hit", "").await.expect("an answer"), "201 4");
            left.shutdown(Duration::from_secs(60)).await;
            let mut history = Vec::new();
            while let Ok(event) = events.try_recv() {
                history.push(format!("{event:?}"));
            }
            history
        })
    };
    let first = history(7);
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first, history(7));
    assert_ne!(first, history(8), "the ids are others");
}

#[test]
fn an_object_that_moves_on_and_on_leaves_no_sender_behind() {
    testing::run(async {
        let cluster = Cluster::new(6);
        let (left, right, shared) = two(&cluster).await;
        let third = host(&cluster, "third", &shared).await;
        cluster.connected().await;
        let askers: Vec<_> = [&left, &right, &third]
            .into_iter()
            .cycle()
            .take(12)
            .map(|host| {
                let host = host.clone();
                tokio::spawn(async move {
                    for _ in 0..200 {
                        match ask(&host, "hit", "").await {
                            Ok(_) | Err(CallError::NotRun(NotRun::TooManyHops)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for turn in 0..100 {
            let (from, to) = [(&left, "right"), (&right, "third"), (&third, "left")][turn % 3];
            let moved = from.relocate(key(), rid(to), None).await.outcome().await;
            assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
        }
        for asker in askers {
            asker.await.expect("no panic");
        }
        for host in [&left, &right, &third] {
            let (held, _) = host.inspect().await.expect("it serves");
            assert_eq!((held.routed, held.queued, held.calls), (0, 0, 0));
        }
    });
}

#[test]
fn a_dead_hosts_object_is_taken_over_when_its_lease_has_ended() {
    testing::run(async {
        let cluster = Cluster::new(1);
        let (left, right, shared) = two(&cluster).await;
        ask(&right, "hit", "").await.expect("an answer");
        cluster.crash("left").await;
        assert_eq!(ask(&left, "hit", "").await, Err(CallError::NotRun(NotRun::NotServing)));
        assert_eq!(right.reclaim(key(), Bytes::new()).await, Err(CallError::OwnerAlive));
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(right.reclaim(key(), Bytes::new()).await.expect("it is free").new);
        assert_eq!(shared.reclaimed.load(Ordering::SeqCst), 1);
        // Another run of the dead host is another node, and finds its object elsewhere.
        let left = host(&cluster, "left", &shared).await;
        assert_eq!(ask(&left, "hit", "").await.expect("an answer"), "1 1");
    });
}

#[test]
fn hosts_that_are_apart_find_each_other_again_and_nothing_is_lost() {
    testing::run(async {
        let cluster = Cluster::new(2);
        let (_left, right, _) = two(&cluster).await;
        cluster.part("right", "left");
        let sender = right.clone();
        let asked = tokio::spawn(async move { ask(&sender, "hit", "").await });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!asked.is_finished());
        cluster.heal("left", "right");
        assert_eq!(asked.await.expect("no panic").expect("an answer"), "1 1");
    });
}

#[test]
fn a_handler_is_told_when_the_lease_guard_runs_out_and_its_answer_waits_for_the_renewal() {
    testing::run(async {
        let cluster = Cluster::new(3);
        let (left, right, shared) = two(&cluster).await;
        let mut events = left.events();
        // The other host has a lease too: it is not to meet the faults.
        cluster.part("left", "right");
        right.shutdown(Duration::from_secs(60)).await;
        fail_renewals(&cluster, 8);
        let asker = left.clone();
        let asked = tokio::spawn(async move { ask(&asker, "until_stopped", "").await });
        loop {
            if matches!(events.recv().await.expect("it serves").event, Event::GuardPassed) {
                break;
            }
        }
        left.send(key(), message("hit")).await.expect("accepted: it waits");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!asked.is_finished(), "nobody may see the answer of a turn whose owner is in doubt");
        assert_eq!(shared.started.load(Ordering::SeqCst), 1, "nothing starts");
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.expect("the lease was renewed"), "1 1");
        assert_eq!(cluster.store().unmet(), 0);
        assert_eq!(ask(&left, "hit", "").await.expect("an answer"), "3 1");
    });
}

#[test]
fn a_turn_that_waited_past_the_lease_guard_does_not_start() {
    testing::run(async {
        let cluster = Cluster::new(4);
        let (left, right, shared) = two(&cluster).await;
        let mut events = right.events();
        // The turn is on its way to the object, and waits there behind a hook.
        shared.resume_gate.send_replace(false);
        let moved = left.relocate(key(), rid("right"), None).await.outcome().await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
        let asker = right.clone();
        let asked = tokio::spawn(async move { ask(&asker, "hit", "").await });
        left.shutdown(Duration::from_secs(60)).await;
        fail_renewals(&cluster, 8);
        loop {
            if matches!(events.recv().await.expect("it serves").event, Event::GuardPassed) {
                break;
            }
        }
        shared.resume_gate.send_replace(true);
        until(|| shared.resumed.load(Ordering::SeqCst) == 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(shared.started.load(Ordering::SeqCst), 0, "it did not start");
        assert_eq!(asked.await.expect("no panic").expect("it started after the renewal"), "1 2");
        assert_eq!(cluster.store().unmet(), 0);
    });
}

#[test]
fn a_shutdown_past_its_time_ends_the_host_with_turns_that_run() {
    testing::run(async {
        let cluster = Cluster::new(5);
        let (left, right, shared) = two(&cluster).await;
        shared.handle_gate.send_replace(false);
        let asker = right.clone();
        let asked = tokio::spawn(async move { ask(&asker, "gated", "").await });
        until(|| shared.started.load(Ordering::SeqCst) == 1).await;
        let began = tokio::time::Instant::now();
        left.shutdown(Duration::from_secs(30)).await;
        assert_eq!(began.elapsed().as_secs(), 32, "its time, and the grace of two seconds");
        assert_eq!(Arc::strong_count(&shared), 2, "the object is gone: left are this test and the other host");
        assert!(asked.await.expect("no panic").is_err());
    });
}
