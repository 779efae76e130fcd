//! What the demonstration and its node processes say to each other: one JSON value a line, over the child's standard
//! input and output.

use super::object::{Dump, Violation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From the demonstration to a node process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Keep a connection to this address.
    Peer { addr: String },
    /// Create these objects.
    Create { first: u64, count: u64 },
    /// Start clients with these ids, over so many objects.
    Clients { ids: Vec<u64>, objects: u64, seed: u64 },
    /// Move an object.
    Move { id: u64, object: u64, to: String },
    /// Take an object over, if its owner's lease has ended.
    Recover { object: u64 },
    /// Cut every connection.
    Cut,
    /// Stop the clients and tell what they know.
    Stop,
    /// Ask an object for its account.
    Dump { object: u64 },
    /// End.
    Shutdown,
}

/// From a node process to the demonstration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub(crate) enum Said {
    /// The node serves.
    Serving { addr: String, generation: u64 },
    /// All objects were created.
    Created { count: u64, failed: Vec<String> },
    /// A move ended.
    Moved { id: u64, outcome: Outcome, detail: String, stop_us: Option<u64>, gap_us: Option<u64> },
    /// A target opened an object: from its confirmed commit to open dispatch.
    Opened { relocation: String, resume_us: u64, committed_at: u64, opened_at: u64 },
    /// A source's points of a move, on its own clock.
    Source { relocation: String, object: u64, sealed_at: u64, submitted_at: u64 },
    /// What became of [`Order::Recover`]: who owns it.
    Recovered { object: u64, owner: Option<(String, u64)>, reclaimed: bool },
    /// So far.
    Count { answered: u64, requests: u64, sent: u64 },
    /// What the clients know.
    Ledger {
        ledger: Vec<Account>,
        answered: u64,
        requests: u64,
        sent: u64,
        unbalanced: u64,
        ambiguous: u64,
        not_run: u64,
    },
    /// Turn numbers that clients saw answered: object, incarnation, turns.
    Turns { object: u64, incarnation: u64, turns: Vec<u64> },
    /// All of the ledger was told.
    Stopped,
    /// An object's account.
    Dumped { object: u64, dump: Option<Dump>, error: String },
    /// A promise was broken.
    Broken { kind: Violation, text: String },
    /// The node is over.
    Over,
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Moved,
    KeptSource,
    Refused,
    Lost,
    /// The node that moved it ended before the move did.
    Unknown,
}

/// What one client knows of one object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) client: u64,
    pub(crate) object: u64,
    pub(crate) incarnation: u64,
    /// The number it would use next.
    pub(crate) next: u64,
    /// Numbers that were certainly not accepted, or of which nobody can tell.
    pub(crate) open: Vec<u64>,
}

/// Turn numbers by object and incarnation.
pub(crate) type Turns = BTreeMap<(u64, u64), Vec<u64>>;
