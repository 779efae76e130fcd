//! How often what goes wrong. Rates are per mille of the occasions, unless they say otherwise.

/// The faults of one kind of history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Connections cut, per mille of the records sent.
    pub cut: u64,
    /// Connections of which one direction goes dead first.
    pub cut_one_way: u64,
    /// Published records that come twice.
    pub duplicate: u64,
    /// Published records that come late, on whatever connection there is then.
    pub late: u64,
    /// Published records that others overtake.
    pub reorder: u64,
    /// Nodes stopped for a while, per mille of the user's actions.
    pub pause: u64,
    /// Of those, stopped past their lease.
    pub pause_past_lease: u64,
    /// Nodes killed and restarted, per mille of the user's actions.
    pub kill: u64,
    /// Nodes shut down in good order, per mille of the user's actions.
    pub shutdown: u64,
    /// Store commands that are not done and not answered.
    pub store_lost_before: u64,
    /// Store commands that are done and not answered.
    pub store_lost_after: u64,
    /// Writes that are not answered and done later.
    pub store_late: u64,
    /// Store commands that are done and answered late, after later ones.
    pub store_slow: u64,
    /// Writes answered with a conflict that is none.
    pub store_conflict: u64,
    /// Writes that are done and answered, and done once more later.
    pub store_again: u64,
    /// Times at which the store is away, per mille of the user's actions.
    pub store_away: u64,
    /// Leases that end early, per mille of the user's actions.
    pub lease_lost: u64,
    /// Host commands that fail.
    pub host_fails: u64,
    /// Turns that take longer than the seal allows.
    pub slow_turn: u64,
    /// Requests that are answered after their turn.
    pub late_answer: u64,
    /// Turns that send a message to another object.
    pub tells: u64,
    /// Moves that their caller cancels.
    pub cancel: u64,
    /// Moved objects that move on, or back, at once.
    pub again: u64,
    /// Moves, per mille of the user's actions; the others are messages.
    pub moves: u64,
    /// Wall clocks that jump, per mille of the user's actions.
    pub clock_jump: u64,
    /// Tiny budgets, chunks and memories.
    pub tiny: bool,
    /// The bound of a mailbox where bounds are tiny.
    pub mailbox: usize,
}

impl Profile {
    /// Nothing goes wrong.
    pub const CALM: Self = Self { name: "calm", again: 200, late_answer: 30, ..Self::NONE };
    /// The network is bad.
    pub const LOSSY: Self = Self {
        name: "lossy",
        cut: 8,
        cut_one_way: 4,
        duplicate: 60,
        late: 40,
        reorder: 20,
        slow_turn: 5,
        late_answer: 20,
        cancel: 60,
        again: 300,
        host_fails: 10,
        ..Self::NONE
    };
    /// The store is bad.
    pub const STORE: Self = Self {
        name: "store",
        store_lost_before: 30,
        store_lost_after: 40,
        store_late: 30,
        store_slow: 30,
        store_conflict: 20,
        store_again: 20,
        store_away: 4,
        cut: 2,
        duplicate: 20,
        again: 200,
        ..Self::NONE
    };
    /// Nodes stop and go on.
    pub const PAUSES: Self = Self {
        name: "pauses",
        pause: 20,
        pause_past_lease: 150,
        cut: 3,
        clock_jump: 5,
        late: 10,
        again: 200,
        ..Self::NONE
    };
    /// Nodes die, or are shut down.
    pub const KILLS: Self = Self {
        name: "kills",
        kill: 6,
        shutdown: 3,
        lease_lost: 2,
        cut: 3,
        cut_one_way: 2,
        duplicate: 20,
        late: 20,
        host_fails: 10,
        again: 200,
        ..Self::NONE
    };
    /// Everything at once, with tiny bounds.
    pub const CHAOS: Self = Self {
        name: "chaos",
        cut: 6,
        cut_one_way: 2,
        duplicate: 40,
        late: 40,
        reorder: 10,
        pause: 8,
        pause_past_lease: 200,
        kill: 3,
        shutdown: 1,
        store_lost_before: 15,
        store_lost_after: 20,
        store_late: 15,
        store_slow: 10,
        store_conflict: 10,
        store_again: 10,
        store_away: 2,
        lease_lost: 1,
        host_fails: 10,
        slow_turn: 5,
        late_answer: 10,
        tells: 0,
        cancel: 50,
        again: 200,
        moves: 100,
        clock_jump: 3,
        tiny: true,
        mailbox: 65_536,
    };

    /// Mailboxes are almost always full, and connections are cut now and then.
    pub const FULL: Self = Self { name: "full", cut: 4, again: 200, tiny: true, mailbox: 3, ..Self::NONE };

    /// Bounds so small that everything waits for everything, and objects that talk to each other.
    pub const TINY: Self = Self {
        name: "tiny",
        cut: 4,
        cut_one_way: 1,
        duplicate: 60,
        late: 60,
        reorder: 10,
        host_fails: 10,
        late_answer: 20,
        cancel: 60,
        again: 400,
        tells: 150,
        tiny: true,
        mailbox: 65_536,
        ..Self::NONE
    };

    /// Objects that do little but move, while everything goes wrong a little.
    pub const MOVES: Self = Self {
        name: "moves",
        cut: 1,
        cut_one_way: 1,
        duplicate: 10,
        late: 10,
        reorder: 5,
        pause: 1,
        pause_past_lease: 100,
        kill: 4,
        shutdown: 1,
        store_lost_before: 2,
        store_lost_after: 4,
        store_late: 4,
        store_slow: 4,
        store_conflict: 4,
        store_again: 10,
        store_away: 1,
        lease_lost: 2,
        host_fails: 60,
        slow_turn: 2,
        cancel: 30,
        again: 700,
        moves: 700,
        clock_jump: 1,
        ..Self::NONE
    };

    const NONE: Self = Self {
        name: "",
        cut: 0,
        cut_one_way: 0,
        duplicate: 0,
        late: 0,
        reorder: 0,
        pause: 0,
        pause_past_lease: 0,
        kill: 0,
        shutdown: 0,
        store_lost_before: 0,
        store_lost_after: 0,
        store_late: 0,
        store_slow: 0,
        store_conflict: 0,
        store_again: 0,
        store_away: 0,
        lease_lost: 0,
        host_fails: 0,
        slow_turn: 0,
        late_answer: 0,
        tells: 0,
        cancel: 0,
        again: 0,
        moves: 100,
        clock_jump: 0,
        tiny: false,
        mailbox: 65_536,
    };

    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::CALM,
        Self::LOSSY,
        Self::STORE,
        Self::PAUSES,
        Self::KILLS,
        Self::CHAOS,
        Self::FULL,
        Self::TINY,
        Self::MOVES,
    ];

    /// Whether an owner can end: only then may what was accepted be lost.
    pub const fn owners_end(&self) -> bool {
        self.kill > 0 || self.shutdown > 0 || self.lease_lost > 0 || self.pause_past_lease > 0 || self.store_away > 0
    }

    /// Whether no fault is made that could keep a move from ending in its time.
    pub const fn is_fair(&self) -> bool {
        !self.owners_end()
            && self.cut == 0
            && self.pause == 0
            && self.store_lost_before == 0
            && self.store_lost_after == 0
            && self.store_late == 0
            && self.store_again == 0
            && self.store_slow == 0
    }
}
