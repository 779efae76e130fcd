//! The rules that take several clients at once. Each holds whatever the interleaving; only how often the dangerous one
//! comes up depends on time.

use super::{Harness, LONG, SHORT, at, missing, number, present, put, put_for};
use bytes::Bytes;
use rehome::id::StoreVersion;
use rehome::store::{MAX_SCAN, StoreCommand, StoreReply};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 8;

/// Two batches at the same moment.
fn both(left: impl FnOnce() -> StoreReply + Send, right: impl FnOnce() -> StoreReply + Send) -> [StoreReply; 2] {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let left = scope.spawn(|| {
            start.wait();
            left()
        });
        start.wait();
        let right = right();
        [left.join().expect("no panic"), right]
    })
}

pub(super) fn no_lost_update(h: &Harness) {
    const EACH: usize = 15;
    h.apply(&[], &[put("counter", "0")]);
    let done = Mutex::new((BTreeSet::new(), BTreeSet::new()));
    let unknown = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut left = EACH;
                while left > 0 {
                    let found = h.read_at_last("counter").expect("never deleted");
                    let next = number(&found) + 1;
                    match h.write(&[at("counter", &found.version)], &[put("counter", next.to_string())]) {
                        StoreReply::Applied(versions) => {
                            let mut done = done.lock().expect("no panic");
                            assert!(done.0.insert(next), "{next} was counted twice: an update was lost");
                            assert!(done.1.insert(versions[0].as_str().to_owned()), "a version recurred");
                            left -= 1;
                        }
                        StoreReply::Conflict => {}
                        StoreReply::Unknown => {
                            unknown.fetch_add(1, Ordering::SeqCst);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let last = number(&h.read_at_last("counter").expect("never deleted"));
    let sure = u64::try_from(WRITERS * EACH).expect("small");
    let unsure = unknown.into_inner();
    assert!((sure..=sure + unsure).contains(&last), "{sure} updates and {unsure} unknown ones made {last}");
}

pub(super) fn bank(h: &Harness) {
    const ACCOUNTS: usize = 4;
    const EACH: usize = 12;
    const TOTAL: u64 = 400;
    let name = |n: usize| format!("account\0{}", n % ACCOUNTS);
    let start: Vec<_> = (0..ACCOUNTS).map(|n| put(&name(n), "100")).collect();
    h.apply(&[], &start);
    let over = AtomicBool::new(false);
    let sum = || {
        let (entries, cursor) = h.page(b"account\0", None, MAX_SCAN);
        assert_eq!((entries.len(), cursor), (ACCOUNTS, None));
        entries.iter().map(|(_, found)| number(found)).sum::<u64>()
    };
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0u32;
            while !over.load(Ordering::SeqCst) || looks == 0 {
                assert_eq!(sum(), TOTAL, "a scan saw half a batch");
                looks += 1;
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut left = EACH;
                    let mut step = writer;
                    while left > 0 {
                        step += 1;
                        let (from, to) = (name(step), name(step + 1 + step % (ACCOUNTS - 1)));
                        let (Some(a), Some(b)) = (h.read_at_last(&from), h.read_at_last(&to)) else {
                            panic!("an account is gone")
                        };
                        let Some(rest) = number(&a).checked_sub(1) else { continue };
                        let conditions = [at(&from, &a.version), at(&to, &b.version)];
                        let changes = [put(&from, rest.to_string()), put(&to, (number(&b) + 1).to_string())];
                        match h.write(&conditions, &changes) {
                            StoreReply::Applied(_) => left -= 1,
                            StoreReply::Conflict | StoreReply::Unknown => {}
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        looking.join().expect("the scans held");
        assert!(ends.iter().all(Result::is_ok), "a writer failed");
    });
    assert_eq!(sum(), TOTAL);
}

/// Each batch requires what the other one ends, on rows that are not there: no lock on a row can help.
pub(super) fn no_write_skew(h: &Harness) {
    for round in 0..40 {
        let (a, b) = (format!("skew\0{round}\0a"), format!("skew\0{round}\0b"));
        let replies = both(|| h.write(&[missing(&a)], &[put(&b, "1")]), || h.write(&[missing(&b)], &[put(&a, "1")]));
        let applied = replies.iter().filter(|reply| matches!(reply, StoreReply::Applied(_))).count();
        assert!(applied <= 1, "both were done in round {round}");
        if !replies.contains(&StoreReply::Unknown) {
            assert_eq!(applied, 1, "none was done in round {round}");
        }
    }
}

/// The same on rows that have expired: neither the server's nor a reader's cleaning may open a gap.
pub(super) fn no_write_skew_on_expired(h: &Harness) {
    let rounds = h.rounds(20);
    let name = |round: u32, side: &str| format!("skew\0{round}\0{side}");
    for round in 0..rounds {
        let ended = [put_for(&name(round, "a"), "0", SHORT), put_for(&name(round, "b"), "0", SHORT)];
        h.apply(&[], &ended);
    }
    h.pass(SHORT);
    for round in 0..rounds {
        let (a, b) = (name(round, "a"), name(round, "b"));
        let replies = both(|| h.write(&[missing(&a)], &[put(&b, "1")]), || h.write(&[missing(&b)], &[put(&a, "1")]));
        let applied = replies.iter().filter(|reply| matches!(reply, StoreReply::Applied(_))).count();
        assert!(applied <= 1, "both were done in round {round}");
        if !replies.contains(&StoreReply::Unknown) {
            assert_eq!(applied, 1, "none was done in round {round}");
        }
    }
}

/// Pairs of neighbours are always written together. A page has both of a pair as one commit left them.
pub(super) fn pages_are_snapshots(h: &Harness) {
    const PAIRS: usize = 6;
    let name = |pair: usize, side: &str| format!("pair\0{pair}\0{side}");
    let twins = |pair: usize, value: u64| {
        let value = value.to_string();
        [put(&name(pair, "a"), value.clone()), put(&name(pair, "b"), value)]
    };
    for pair in 0..PAIRS {
        h.apply(&[], &twins(pair, 0));
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let twins = &twins;
                scope.spawn(move || {
                    for n in 0..60u64 {
                        let pair = usize::try_from((n + writer) % PAIRS as u64).expect("small");
                        h.write(&[], &twins(pair, n * 3 + writer));
                    }
                })
            })
            .collect();
        let looking = scope.spawn(|| {
            let mut pages = 0u32;
            while !over.load(Ordering::SeqCst) || pages == 0 {
                let mut cursor = None;
                loop {
                    let scan = StoreCommand::Scan { prefix: Bytes::from_static(b"pair\0"), cursor, limit: 4 };
                    // An engine whose cursor belongs to a snapshot may say that it is gone.
                    let StoreReply::Page { entries, cursor: next } = h.ask(scan) else { break };
                    assert_eq!(entries.len() % 2, 0, "a page ended where none can");
                    for pair in entries.chunks(2) {
                        assert_eq!(number(&pair[0].1), number(&pair[1].1), "a page saw half a batch");
                    }
                    pages += 1;
                    match next {
                        Some(next) => cursor = Some(next),
                        None => break,
                    }
                }
            }
        });
        let ends: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        looking.join().expect("the pages held");
        assert!(ends.iter().all(Result::is_ok), "a writer failed");
    });
}

/// How long a lease is whose end is raced for.
fn brief(h: &Harness) -> Duration {
    h.step.max(Duration::from_millis(2))
}

/// Sends a batch at a moment near the end of a brief lease; which side of it differs by round.
fn near_the_end(h: &Harness, begun: Instant, round: u32) {
    let moment = brief(h) * (1000 + (round * 37) % 1200) / 2000;
    // Half of it by the store's clock, which may be a manual one.
    while begun.elapsed() < moment {
        std::hint::spin_loop();
    }
    if round.is_multiple_of(3) {
        h.pass(Duration::from_millis(1));
    }
}

pub(super) fn renew_or_reclaim(h: &Harness) {
    for round in 0..h.rounds(60) {
        let (lease, object) = (format!("lease\0{round}"), format!("object\0{round}"));
        h.apply(&[], &[put_for(&lease, "1", brief(h))]);
        let begun = Instant::now();
        let [renewed, reclaimed] = both(
            || {
                near_the_end(h, begun, round);
                h.write(&[present(&lease)], &[put_for(&lease, "2", LONG)])
            },
            || {
                near_the_end(h, begun, round);
                h.write(&[missing(&lease)], &[put(&object, "reclaimed")])
            },
        );
        let done = |reply: &StoreReply| matches!(reply, StoreReply::Applied(_));
        assert!(!(done(&renewed) && done(&reclaimed)), "both were done in round {round}");
    }
}

/// Somebody reads that a lease has ended. From then on nothing may make it live again but a claim, and there is none.
pub(super) fn an_end_is_final(h: &Harness) {
    for round in 0..h.rounds(150) {
        let lease = format!("lease\0{round}");
        h.apply(&[], &[put_for(&lease, "1", brief(h))]);
        let begun = Instant::now();
        let over = AtomicBool::new(false);
        let saw_end = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut saw_end = false;
                while !over.load(Ordering::SeqCst) && !saw_end {
                    saw_end = h.read_at_last(&lease).is_none();
                }
                saw_end
            });
            near_the_end(h, begun, round);
            let _ = h.write(&[present(&lease)], &[put_for(&lease, "2", LONG)]);
            over.store(true, Ordering::SeqCst);
            reader.join().expect("no panic")
        });
        if saw_end {
            assert_eq!(h.read_at_last(&lease), None, "a lease that had ended is live again in round {round}");
        }
    }
}

pub(super) fn linearizable_reads(h: &Harness) {
    h.apply(&[], &[put("clock", "0")]);
    let acknowledged = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last: Option<(u64, StoreVersion)> = None;
                while !over.load(Ordering::SeqCst) {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let found = h.read_at_last("clock").expect("never deleted");
                    let now = number(&found);
                    assert!(now >= least, "a read saw {now} after {least} was acknowledged");
                    if let Some((before, version)) = &last {
                        assert!(now >= *before, "a read saw {now} after one that saw {before}");
                        assert_eq!(now == *before, found.version == *version);
                    }
                    last = Some((now, found.version));
                }
            });
        }
        for n in 1..=150u64 {
            if let StoreReply::Applied(_) = h.write(&[], &[put("clock", n.to_string())]) {
                acknowledged.store(n, Ordering::SeqCst);
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}
