//! Promise 9: a move is bounded by its time. Before its cutover it ends with its deadline; after it, as soon as the
//! store says who owns the object.

use super::Faults;

/// Looks at each move that ends.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    /// The longest that a move took beyond its deadline, in nanoseconds.
    pub(crate) longest: u64,
}

impl Bounded {
    /// A move ended. `fair`: no fault was made that could have kept it from ending.
    pub(crate) fn ended(&mut self, faults: &mut Faults, now: u64, by: u64, fair: bool) {
        const SETTLE: u64 = 1_000_000_000;
        self.longest = self.longest.max(now.saturating_sub(by));
        if fair && now > by + SETTLE {
            faults.promise(
                9,
                format!("a move ended {} ms after its deadline, with nothing in its way", (now - by) / 1_000_000),
            );
        }
    }

    /// At rest a move has not ended.
    pub(crate) fn never_ended(&self, faults: &mut Faults, what: &str) {
        faults.promise(9, format!("{what} never ended"));
    }
}
