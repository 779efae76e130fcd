//! Sixteen writers that change keys only from what they read of them: each answer says from which version to which, and
//! all of them must be one chain for each key. Unlike a whole history this can be checked whatever its length.

use super::{Harness, at, delete, missing, number, put};
use rehome::store::{Found, MAX_SCAN, Mutation, StoreReply};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

const WRITERS: u32 = 16;
const KEYS: usize = 4;
const EACH: u32 = 12;

/// A change of a key that was answered: from the version before to the one after, nothing for a key that is absent.
struct Link {
    key: usize,
    from: Option<String>,
    to: Option<String>,
    sure: bool,
}

fn name(key: usize) -> String {
    format!("chain\0{key}")
}

fn version(found: Option<&Found>) -> Option<String> {
    found.map(|found| found.version.as_str().to_owned())
}

/// One batch on two keys, from what is read of them. Says what it changed.
fn step(h: &Harness, writer: u32, turn: u32) -> Vec<Link> {
    let first = usize::try_from(writer.wrapping_mul(7).wrapping_add(turn) % 4).expect("small");
    let second = (first + 1 + usize::try_from(turn % 3).expect("small")) % KEYS;
    let (mut conditions, mut mutations, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for key in [first, second] {
        let found = h.read_at_last(&name(key));
        conditions.push(found.as_ref().map_or_else(|| missing(&name(key)), |found| at(&name(key), &found.version)));
        let gone = found.is_some() && (writer + turn + u32::from(key == first)).is_multiple_of(5);
        let value = found.as_ref().map_or(0, number) + 1;
        mutations.push(if gone { delete(&name(key)) } else { put(&name(key), value.to_string()) });
        links.push(Link { key, from: version(found.as_ref()), to: None, sure: true });
    }
    match h.write(&conditions, &mutations) {
        StoreReply::Applied(versions) => {
            let mut versions = versions.into_iter();
            for (link, mutation) in links.iter_mut().zip(&mutations) {
                link.to = match mutation {
                    Mutation::Put { .. } => Some(versions.next().expect("a version for each put").as_str().to_owned()),
                    Mutation::Delete(_) => None,
                };
            }
            assert_eq!(versions.next(), None, "a version for no put");
            links
        }
        StoreReply::Conflict => Vec::new(),
        StoreReply::Unknown => {
            links.iter_mut().for_each(|link| link.sure = false);
            links
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn one_chain_for_each_key(h: &Harness) {
    let all: Mutex<Vec<Link>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let all = &all;
            scope.spawn(move || {
                let mut done = 0;
                for turn in 0.. {
                    let links = step(h, writer, turn);
                    done += u32::from(!links.is_empty());
                    all.lock().expect("no panic").extend(links);
                    if done == EACH {
                        break;
                    }
                }
            });
        }
    });
    let all = all.into_inner().expect("no panic");
    let (entries, _) = h.page(b"chain\0", None, MAX_SCAN);
    for key in 0..KEYS {
        let last = entries.iter().find(|(found, _)| found.0 == name(key)).map(|(_, found)| found);
        let last = version(last);
        let links: Vec<_> = all.iter().filter(|link| link.key == key && link.sure).collect();
        let unsure = all.iter().filter(|link| link.key == key && !link.sure).count();
        let (mut left, mut made) = (BTreeSet::new(), BTreeSet::new());
        for link in &links {
            if let Some(from) = &link.from {
                assert!(left.insert(from), "version {from} of key {key} was changed twice");
            }
            if let Some(to) = &link.to {
                assert!(made.insert(to), "version {to} of key {key} was made twice");
            }
        }
        // A version that is left and was not made, or made and neither left nor there now, is of an unknown batch.
        let unmade = left.iter().filter(|from| !made.contains(*from)).count();
        let unleft = made.iter().filter(|to| !left.contains(*to) && Some(**to) != last.as_ref()).count();
        assert!(unmade <= unsure, "{unmade} versions of key {key} come from nowhere, {unsure} are unknown");
        assert!(unleft <= unsure, "{unleft} versions of key {key} are gone, {unsure} are unknown");
        // Absence is made and left in turn, and was there first.
        let ended = links.iter().filter(|link| link.to.is_none()).count();
        let begun = links.iter().filter(|link| link.from.is_none()).count();
        let now = usize::from(last.is_some());
        assert!((ended + now).abs_diff(begun) <= unsure, "key {key} began {begun} times and ended {ended} times");
    }
}
