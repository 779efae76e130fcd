//! The clocks of this process, read for the core, which reads none.

use rehome::time::{Instant, Now, UnixMillis};
use std::time::{SystemTime, UNIX_EPOCH};

/// Both clocks now: boot time, which goes on in suspend, and the wall clock.
pub fn now() -> Now {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let nanos = u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(boot.tv_nsec).unwrap_or(0);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Now { mono: Instant::from_nanos(nanos), wall: UnixMillis(u64::try_from(wall).unwrap_or(u64::MAX)) }
}
