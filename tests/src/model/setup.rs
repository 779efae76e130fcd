//! What is searched: how many nodes, how often what may happen, and which rule is taken away as a negative control.

/// A rule that is taken away. With each, a search must find a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakening {
    /// A later attempt may look exactly like an earlier one.
    IdentityRecurs,
    /// Versions come from a counter of each row, so that they recur when it is made again.
    VersionsRecur,
    /// A read may show what was there before the last write.
    LaggingReads,
    /// A record that is gone counts as a loss, whatever the own lease says.
    GoneIsLost,
    /// A target whose cutover does not come commits.
    CommitOnTimeout,
    /// A source whose cutover could not be sent goes on.
    RollbackAfterSubmit,
    /// A move counts as committed only while the record names its target.
    OwnerIsTarget,
    /// A creating write that was given up may still happen. It names no version of its record, so it would bring back
    /// what was deleted since; a node fences it off by its descriptor, which stands here as a write that is dropped.
    CreatesDoNotHang,
    /// The answer to an older question of a stage answers its newer one.
    OldQuestions,
    /// A reply that comes after it was given up answers the next question of the same kind.
    RepliesByKind,
}

impl Weakening {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::IdentityRecurs,
        Self::VersionsRecur,
        Self::LaggingReads,
        Self::GoneIsLost,
        Self::CommitOnTimeout,
        Self::RollbackAfterSubmit,
        Self::OwnerIsTarget,
        Self::CreatesDoNotHang,
        Self::OldQuestions,
        Self::RepliesByKind,
    ];
}

/// The bounds of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What it is called.
    pub name: &'static str,
    /// Processes that run at the start, at most 3: each on a node of its own.
    pub nodes: u8,
    /// Whether one more process runs with the first one's owner id and routing id, and a lease generation of its own.
    pub twin: bool,
    /// Moves that may begin.
    pub moves: u8,
    /// Processes that may stop for good.
    pub crashes: u8,
    /// Lease guards that may pass; the store ends a lease only after that.
    pub lapses: u8,
    /// Orderly ends of a process, which gives its lease back when nothing of it is undecided.
    pub shutdowns: u8,
    /// Takings-over of an object whose owner's lease has ended.
    pub reclaims: u8,
    /// Deletions, and as many creations.
    pub recreates: u8,
    /// Writes of the record by somebody else that change nothing but its version.
    pub touches: u8,
    /// Whether an ended move's memory may be lost at any time, as it is bounded.
    pub forget: bool,
    /// Whether inputs are kept apart that end alike. Else a poll timer fires as soon as it is armed (what could come in
    /// between comes before the reply that arms it, with the same end), and before its cutover a move ends by its
    /// deadline alone, not by a lost connection or its caller too.
    pub fine: bool,
    /// The rule that is taken away.
    pub weakened: Option<Weakening>,
}

impl Setup {
    /// Nothing but `moves` moves between `nodes` nodes, over a network that repeats, delays and loses.
    pub const fn new(name: &'static str, nodes: u8, moves: u8) -> Self {
        Self {
            name,
            nodes,
            twin: false,
            moves,
            crashes: 0,
            lapses: 0,
            shutdowns: 0,
            reclaims: 0,
            recreates: 0,
            touches: 0,
            forget: false,
            fine: false,
            weakened: None,
        }
    }

    /// The same without the rule.
    #[must_use]
    pub fn without(mut self, rule: Weakening) -> Self {
        self.weakened = Some(rule);
        self
    }

    /// Whether the rule is taken away.
    pub fn lacks(&self, rule: Weakening) -> bool {
        self.weakened == Some(rule)
    }

    /// Processes.
    pub const fn processes(&self) -> usize {
        self.nodes as usize + self.twin as usize
    }
}
