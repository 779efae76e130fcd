//! The setups that are searched: those of every test run, the long ones, and one for each rule that is taken away.

use super::setup::{Setup, Weakening};

/// Searched in every test run: more than ten million states in all.
pub fn usual() -> Vec<Setup> {
    vec![
        Setup::new("there and back again", 2, 3),
        Setup::new("three nodes", 3, 2),
        Setup { crashes: 1, ..Setup::new("a crash", 2, 2) },
        Setup { lapses: 1, reclaims: 1, ..Setup::new("a lease ends", 2, 2) },
        Setup { recreates: 2, ..Setup::new("deleted and created again", 2, 1) },
        Setup { recreates: 1, touches: 1, forget: true, ..Setup::new("others write the record", 2, 1) },
        Setup { fine: true, ..Setup::new("every input", 2, 2) },
        Setup { fine: true, lapses: 1, crashes: 1, ..Setup::new("every input, also of a peer that is gone", 2, 1) },
        Setup { shutdowns: 1, reclaims: 1, ..Setup::new("an orderly end", 2, 2) },
        Setup { twin: true, ..Setup::new("two processes with one owner id", 2, 2) },
    ]
}

/// Searched by the binary `model`, for as long as it takes.
pub fn long() -> Vec<Setup> {
    vec![
        Setup { crashes: 1, forget: true, ..Setup::new("a crash, and ended moves are forgotten", 2, 2) },
        Setup { touches: 1, forget: true, ..Setup::new("other writers", 2, 2) },
        Setup { touches: 1, forget: true, ..Setup::new("other writers, three nodes", 3, 2) },
        Setup { lapses: 2, reclaims: 1, ..Setup::new("two leases end", 2, 2) },
        Setup { crashes: 2, lapses: 2, reclaims: 2, forget: true, ..Setup::new("everything ends", 2, 1) },
        Setup { twin: true, lapses: 1, reclaims: 1, ..Setup::new("a twin's lease ends", 2, 2) },
        Setup { recreates: 1, ..Setup::new("moved twice, deleted and created again", 2, 2) },
        Setup::new("three nodes, three moves", 3, 3),
    ]
}

/// The setup in which the lack of a rule shows.
pub fn control(rule: Weakening) -> Setup {
    let setup = match rule {
        Weakening::IdentityRecurs => Setup::new("an identity recurs", 2, 2),
        Weakening::VersionsRecur => Setup { recreates: 1, ..Setup::new("versions recur", 2, 1) },
        Weakening::LaggingReads => Setup { touches: 1, ..Setup::new("reads lag", 2, 1) },
        Weakening::GoneIsLost => Setup { recreates: 1, ..Setup::new("gone is lost", 2, 1) },
        Weakening::CommitOnTimeout => Setup::new("commit on a time-out", 2, 1),
        Weakening::RollbackAfterSubmit => Setup::new("rollback after the submission", 2, 1),
        Weakening::OwnerIsTarget => Setup::new("committed means the owner is the target", 2, 2),
        Weakening::CreatesDoNotHang => Setup { recreates: 2, ..Setup::new("a creation hangs", 2, 1) },
        Weakening::OldQuestions => Setup { crashes: 1, ..Setup::new("old questions", 2, 1) },
        Weakening::RepliesByKind => Setup::new("replies by kind", 2, 2),
    };
    setup.without(rule)
}
