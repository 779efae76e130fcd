//! Time as integers that the caller passes in. The core never reads a clock.

use core::time::Duration;

/// A point on the caller's monotonic clock, in nanoseconds from an arbitrary origin.
///
/// The clock must go on while the machine is suspended (`CLOCK_BOOTTIME` on Linux): the lease guard compares it
/// with a lease that goes on too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of the clock: later than any instant a node will see.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus `delay`, or [`Instant::MAX`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This instant minus `delay`, or the origin.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this instant; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch on some node's wall clock.
///
/// Deadlines cross nodes in this form, so wall clocks of one cluster must roughly agree. A requester ends its own
/// requests by its own monotonic clock; a node with a wrong wall clock can only refuse work too early or too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This time plus `delay`, rounded down to a millisecond.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time from `now` to this time; zero where it has passed.
    pub const fn left(self, now: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now.0))
    }
}

/// Both clocks of the caller at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Instant,
    /// The wall clock.
    pub wall: UnixMillis,
}

impl Now {
    /// The instant on the monotonic clock at which the wall clock will show `at`, if neither is set meanwhile.
    pub fn instant_of(self, at: UnixMillis) -> Instant {
        self.mono.after(at.left(self.wall))
    }

    /// The wall-clock time at which the monotonic clock will show `at`, if neither is set meanwhile.
    pub fn wall_of(self, at: Instant) -> UnixMillis {
        self.wall.after(at.since(self.mono))
    }
}
