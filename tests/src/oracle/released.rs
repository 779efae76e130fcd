//! Promise 10: when every move has ended and every call is done, a node holds nothing but its objects and its lease.

use super::Faults;
use rehome::node::Held;

/// Looks at nodes at rest.
#[derive(Debug, Default)]
pub(crate) struct Released;

impl Released {
    /// `node` is at rest.
    pub(crate) fn at_rest(&self, faults: &mut Faults, node: usize, held: &Held) {
        /// A node at rest renews its lease and watches its guard.
        const TIMERS: usize = 2;
        let rest = [
            held.moves,
            held.follows,
            held.stages,
            usize::try_from(held.budget_bytes).unwrap_or(usize::MAX),
            held.relays,
            held.calls,
            held.routed,
            held.queued,
            held.turns,
            held.tickets.saturating_sub(1),
            held.timers.saturating_sub(TIMERS),
        ];
        if rest.iter().any(|count| *count != 0) {
            faults.promise(10, format!("n{node} holds {held:?} at rest"));
        }
    }
}
