//! What every engine over a network must bear: a server that is killed, and connections that are cut, held, delayed and
//! robbed of their replies. Whatever an engine answers must be true, and it must come back.

use super::proxy::{Harm, Proxy, Way};
use futures_executor::block_on;
use rehome::id::StoreVersion;
use rehome::store::{Batch, Condition, Found, Mutation, StoreCommand, StoreKey, StoreReply};
use rehome_stores::Engine;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take to come back.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries until it works.
pub(crate) fn patiently<T, E: std::fmt::Display>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let since = Instant::now();
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn key(name: &str) -> StoreKey {
    StoreKey(name.to_owned().into())
}

pub(crate) fn put(name: &str, value: &str) -> Mutation {
    Mutation::Put { key: key(name), value: value.to_owned().into(), ttl: None }
}

pub(crate) fn put_for(name: &str, value: &str, ttl: Duration) -> Mutation {
    Mutation::Put { key: key(name), value: value.to_owned().into(), ttl: Some(ttl) }
}

pub(crate) fn write(engine: &dyn Engine, conditions: Vec<Condition>, mutations: Vec<Mutation>) -> StoreReply {
    block_on(engine.execute(StoreCommand::Write(Batch { conditions, mutations })))
}

pub(crate) fn apply(engine: &dyn Engine, mutations: Vec<Mutation>) -> Vec<StoreVersion> {
    match write(engine, vec![], mutations) {
        StoreReply::Applied(versions) => versions,
        other => panic!("{other:?}"),
    }
}

/// A read that is asked until there is an answer.
pub(crate) fn read(engine: &dyn Engine, name: &str) -> Option<Found> {
    patiently(|| match block_on(engine.execute(StoreCommand::Read(key(name)))) {
        StoreReply::Missing => Ok(None),
        StoreReply::Found(found) => Ok(Some(found)),
        other => Err(format!("{name}: {other:?}")),
    })
}

/// What came of faults of one kind.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) faults: u32,
    pub(crate) applied: u32,
    pub(crate) conflicts: u32,
    pub(crate) unknown_done: u32,
    pub(crate) unknown_not_done: u32,
}

/// Sends writes through `through`, harming each exchange in another way, and looks with `direct` whether every answer
/// was true. `through` must have a short time-out.
pub(crate) fn harmed_writes(through: &dyn Engine, direct: &dyn Engine, proxy: &Proxy) -> BTreeMap<&'static str, Count> {
    // How long an exchange is, from one that is not harmed; the first may be longer than those after it.
    let mut exchange = (0, 0);
    for round in 0..3 {
        let name = format!("harmed\0{round:05}");
        let version = apply(direct, vec![put(&name, "first")]).remove(0);
        assert!(read(through, &name).is_some());
        let before = proxy.bytes();
        let done = write(through, vec![Condition::Version(key(&name), version)], vec![put(&name, "second")]);
        assert!(matches!(done, StoreReply::Applied(_)));
        let after = proxy.bytes();
        exchange = (after.0 - before.0, after.1 - before.1);
    }
    assert!(exchange.0 > 0 && exchange.1 > 0);
    let mut harms: Vec<(&'static str, Harm)> = Vec::new();
    harms.extend((0..exchange.0).map(|bytes| ("cut on the way to the server", Harm::Cut(Way::Up, bytes))));
    harms.extend((0..exchange.1).map(|bytes| ("cut on the way back", Harm::Cut(Way::Down, bytes))));
    let step = |len: u64| usize::try_from(len / 6 + 1).unwrap();
    harms.extend((0..exchange.0).step_by(step(exchange.0)).map(|at| ("held on the way", Harm::Hole(Way::Up, at))));
    harms.extend((0..exchange.1).step_by(step(exchange.1)).map(|at| ("reply dropped", Harm::Hole(Way::Down, at))));
    harms.extend([1, 5, 20].map(|millis| ("delayed", Harm::Delay(Duration::from_millis(millis)))));
    harms.extend([("delayed past the time-out", Harm::Delay(Duration::from_secs(1)))]);
    let mut counts: BTreeMap<&'static str, Count> = BTreeMap::new();
    for (number, (kind, harm)) in harms.into_iter().enumerate() {
        let count = counts.entry(kind).or_default();
        // Every other write is one whose condition does not hold. Names of one length make exchanges of one length.
        let holds = number % 2 == 0;
        let name = format!("harmed\0{number:05}");
        let first = apply(direct, vec![put(&name, "first")]).remove(0);
        let condition =
            if holds { Condition::Version(key(&name), first.clone()) } else { Condition::Missing(key(&name)) };
        // Whatever is left of the harm before is over: the engine must have come back by itself.
        assert_eq!(read(through, &name).map(|found| found.version), Some(first.clone()));
        proxy.harm(harm);
        let reply = write(through, vec![condition], vec![put(&name, "second")]);
        if proxy.met() {
            count.faults += 1;
        }
        proxy.harm(Harm::Nothing);
        let found = read(direct, &name).expect("never deleted");
        let done = found.value == "second";
        assert!(done || found.version == first, "{kind} {harm:?}: something else was written");
        match reply {
            StoreReply::Applied(versions) => {
                assert!(holds && done && versions == [found.version], "{kind} {harm:?}: applied and not there");
                count.applied += 1;
            }
            StoreReply::Conflict => {
                assert!(!holds && !done, "{kind} {harm:?}: a conflict that is none");
                count.conflicts += 1;
            }
            StoreReply::Unknown => {
                assert!(holds || !done, "{kind} {harm:?}: done against its condition");
                if done {
                    count.unknown_done += 1;
                } else {
                    count.unknown_not_done += 1;
                }
            }
            other => panic!("{kind} {harm:?}: {other:?}"),
        }
    }
    eprintln!("{}: an exchange of {exchange:?} bytes: {counts:#?}", through.name());
    let of = |kind: &str| counts.get(kind).unwrap_or_else(|| panic!("{kind}"));
    assert!(of("cut on the way to the server").faults > 20 && of("cut on the way back").faults > 10, "{counts:#?}");
    assert!(of("cut on the way back").unknown_done > 0, "no reply was lost after its commit: {counts:#?}");
    assert!(of("reply dropped").unknown_done > 0, "no reply was lost after its commit: {counts:#?}");
    assert!(of("held on the way").unknown_not_done > 0 && of("delayed").applied > 0, "{counts:#?}");
    counts
}

/// Writers at work while the server is killed and started again, several times over. Every acknowledged write must be
/// there at the end, and no version may recur. `kill` and `restart` are the server's.
pub(crate) fn killed(engine: Arc<dyn Engine>, times: u32, mut kill: impl FnMut(), mut restart: impl FnMut()) {
    let over = AtomicBool::new(false);
    let acknowledged: Mutex<Vec<(String, u64, StoreVersion)>> = Mutex::new(Vec::new());
    let highest: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for writer in 0..4 {
            let (engine, over, acknowledged, highest) = (&engine, &over, &acknowledged, &highest);
            scope.spawn(move || {
                let name = format!("writer\0{writer}");
                let mut number = 0u64;
                while !over.load(Ordering::SeqCst) {
                    number += 1;
                    let twin = format!("twin\0{writer}");
                    let batch = vec![put(&name, &number.to_string()), put(&twin, &number.to_string())];
                    match write(&**engine, vec![], batch) {
                        StoreReply::Applied(versions) => {
                            let mut all = acknowledged.lock().unwrap();
                            all.extend(versions.into_iter().map(|version| (name.clone(), number, version)));
                            highest.lock().unwrap().insert(name.clone(), number);
                        }
                        StoreReply::Unknown => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        for time in 0..times {
            let wanted = acknowledged.lock().unwrap().len() + 40;
            patiently(|| if acknowledged.lock().unwrap().len() > wanted { Ok(()) } else { Err("no progress") });
            kill();
            thread::sleep(Duration::from_millis(u64::from(time) * 30));
            restart();
        }
        let wanted = acknowledged.lock().unwrap().len() + 8;
        patiently(|| if acknowledged.lock().unwrap().len() > wanted { Ok(()) } else { Err("it does not come back") });
        over.store(true, Ordering::SeqCst);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    for (name, number) in highest.into_inner().unwrap() {
        let value = |name: &str| -> u64 {
            let found = read(&*engine, name).unwrap_or_else(|| panic!("{name} is gone"));
            std::str::from_utf8(&found.value).unwrap().parse().unwrap()
        };
        let now = value(&name);
        assert!(now >= number, "{name}: {number} was acknowledged, and {now} is there");
        assert_eq!(value(&name.replace("writer", "twin")), now, "half a batch");
    }
    let mut versions: Vec<_> = acknowledged.iter().map(|(_, _, version)| version.as_str()).collect();
    let all = versions.len();
    versions.sort_unstable();
    versions.dedup();
    eprintln!("{}: {times} kills, {all} acknowledged puts", engine.name());
    // Engines may give one version to all puts of one commit; each commit has two.
    assert!(versions.len() == all || versions.len() * 2 == all, "a version recurred");
}
