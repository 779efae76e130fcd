//! Numbers and their words: each number has one meaning and comes back, and each has a sentence of its own.

#![allow(clippy::expect_used)]

use rehome::link::{Blame, DownReason, DropReason, Misbehaviour, Refused, Rejection};
use rehome::wire::{FailureCode, TerminalResult};
use std::collections::BTreeSet;

#[test]
fn every_rejection_comes_back_by_its_number_and_has_words_of_its_own() {
    let mut words = BTreeSet::new();
    for number in 0..=u8::MAX {
        let rejection = Rejection::from_number(number);
        assert_eq!(rejection.number(), number);
        assert_eq!(matches!(rejection, Rejection::Other(_)), !(1..=14).contains(&number), "{number}");
        assert!(words.insert(rejection.to_string()), "{rejection:?} says what another one says");
        // Whoever is refused can read why, and whose fault it is; nobody dials again in vain.
        let refused = DownReason::Refused(Refused { reason: rejection, detail: "detail".into() });
        assert!(refused.to_string().contains(&rejection.to_string()) && refused.to_string().contains("detail"));
        assert_eq!(refused.blame(), DownReason::Rejected(rejection).blame());
    }
}

#[test]
fn dialing_again_helps_only_where_nobody_is_to_blame() {
    for (reason, blame) in [
        (DownReason::Closed, Blame::Nobody),
        (DownReason::Silent, Blame::Nobody),
        (DownReason::HelloTimeout, Blame::Nobody),
        (DownReason::Rejected(Rejection::Duplicate), Blame::Nobody),
        (DownReason::Rejected(Rejection::WrongMesh), Blame::PeerIncompatible),
        (DownReason::Rejected(Rejection::Other(99)), Blame::PeerIncompatible),
        (DownReason::Rejected(Rejection::Misbehaved), Blame::Local),
        (DownReason::Misbehaved(Misbehaviour::Checksum), Blame::PeerMisbehaved),
        (DownReason::Dropped(DropReason::Displaced), Blame::Local),
    ] {
        assert_eq!(reason.blame(), blame, "{reason}");
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn every_failure_code_and_result_has_its_number_and_words() {
    let codes: Vec<u32> = FailureCode::ALL.iter().map(|code| code.get()).collect();
    assert_eq!(codes, (1..=22).chain(33..=35).collect::<Vec<_>>());
    let results: Vec<u32> = TerminalResult::ALL.iter().map(|result| result.0).collect();
    assert_eq!(results, [0].into_iter().chain(101..=113).collect::<Vec<_>>());
    let mut words = BTreeSet::new();
    for code in FailureCode::ALL {
        assert_eq!((FailureCode::new(code.get()), code.mapped()), (Some(*code), *code));
        assert!(words.insert(code.name()) && code.to_string().contains(code.name().unwrap_or("?")));
    }
    for result in TerminalResult::ALL {
        let name = result.name().unwrap_or("?");
        assert!(result.to_string().starts_with(name) && result.to_string().contains(&result.0.to_string()));
    }
    let later = FailureCode::new(36).expect("not zero");
    assert_eq!((later.mapped(), later.name()), (FailureCode::REQUEST_FAILED, None));
    assert_eq!((later.to_string(), TerminalResult(99).to_string()), ("failure 36".into(), "result 99".into()));
    assert_eq!(FailureCode::new(0), None);
}
