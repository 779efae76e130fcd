//! What is counted and told about a move.

mod common;

use bytes::Bytes;
use common::{Probe, Shared, key, message, rid};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rehome::node::{Event, MoveOutcome, TypeConfig};
use rehome_tokio::testing::{self, Cluster};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::broadcast::error::TryRecvError;

#[test]
fn a_move_is_counted_and_its_intervals_are_measured() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        testing::run(async {
            let cluster = Cluster::new(1);
            let shared = Arc::new(Shared::default());
            let mut hosts = Vec::new();
            for name in ["left", "right"] {
                let host = cluster.host(name, |host| {
                    host.object_shared::<Probe>("probe", TypeConfig::default(), Arc::clone(&shared))
                });
                hosts.push(host.await.expect("it starts"));
            }
            cluster.connected().await;
            hosts[0].create(key(), "probe", Bytes::new()).await.expect("it is made");
            let mut slow = hosts[0].events();
            let moved = hosts[0].relocate(key(), rid("right"), None).await.outcome().await;
            assert!(matches!(moved, Ok(MoveOutcome::Moved { .. })), "{moved:?}");
            let answer = hosts[0].request(key(), message("panic"), common::PATIENCE).await;
            assert!(answer.is_err());
            let told = std::iter::from_fn(|| slow.try_recv().ok())
                .any(|timed| matches!(timed.event, Event::SourceEnded { outcome: MoveOutcome::Moved { .. }, .. }));
            assert!(told);
            assert_eq!(slow.try_recv().map(drop), Err(TryRecvError::Empty));
        });
    });
    let mut seen = BTreeMap::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        let count = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => u64::try_from(values.len()).expect("a count"),
            DebugValue::Gauge(_) => 0,
        };
        let labels: Vec<String> = key.key().labels().map(|label| label.value().to_owned()).collect();
        seen.insert(format!("{} {}", key.key().name(), labels.join(",")), count);
    }
    let count = |name: &str| seen.get(name).copied();
    assert_eq!(count("rehome_moves_total moved"), Some(1), "{seen:?}");
    for histogram in ["rehome_source_stop_seconds ", "rehome_target_resume_seconds ", "rehome_convergence_seconds "] {
        assert_eq!(count(histogram), Some(1), "{histogram} {seen:?}");
    }
    assert_eq!(count("rehome_turns_panicked_total "), Some(1));
    assert_eq!(count("rehome_records_unsendable_total "), None);
}
