//! The clocks of this process, read for the core, which reads none. A test cluster reads the runtime's paused clock
//! instead. Must never be set by anybody.

use rehome::time::{Instant, Now, UnixMillis};
use std::time::{SystemTime, UNIX_EPOCH};

/// Both clocks now: boot time, which goes on in suspend, and the wall clock.
pub fn now() -> Now {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let nanos = u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(boot.tv_nsec).unwrap_or(0);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Now { mono: Instant::from_nanos(nanos), wall: UnixMillis(u64::try_from(wall).unwrap_or(u64::MAX)) }
}

/// The clock that one host reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Machine,
    /// The runtime's, which a test has paused: it stands still while anything can run.
    #[cfg(feature = "testing")]
    Paused {
        /// When the cluster began.
        origin: tokio::time::Instant,
    },
}

/// When a paused cluster begins, in Unix milliseconds: any fixed time.
#[cfg(feature = "testing")]
const PAUSED_WALL: u64 = 1_800_000_000_000;

impl Clock {
    pub(crate) fn now(self) -> Now {
        match self {
            Self::Machine => now(),
            #[cfg(feature = "testing")]
            Self::Paused { origin } => {
                let elapsed = origin.elapsed();
                let wall = UnixMillis(PAUSED_WALL).after(elapsed);
                Now { mono: Instant::ZERO.after(elapsed), wall }
            }
        }
    }
}
