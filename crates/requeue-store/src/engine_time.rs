//! Time by the clock of an engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time on the clock of an engine, in microseconds since 1970.
///
/// Only engines compute and compare these. Requests and answers contain durations, so the
/// clocks of clients do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineTime(u64);

/// The longest delay, about 142 years. A time plus this is still exact in a double, which
/// Redis uses for sorting.
const LONGEST: u64 = 1 << 52;

impl EngineTime {
    /// Creates a time from microseconds since 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns the time after `delay`, rounded up.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(micros_of(delay)))
    }

    /// Returns the time since `earlier`, or zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Converts a delay to the microseconds of an engine: rounded up, at most 142 years.
pub fn micros_of(delay: Duration) -> u64 {
    let micros = delay.as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(LONGEST, |micros| micros.min(LONGEST))
}

/// A clock for tests that replaces the clock of an engine.
///
/// Clones share the same time. Every store can be opened with such a clock; do not use it
/// on a queue that other processes share.
#[derive(Clone)]
pub struct EngineClock(Arc<AtomicU64>);

impl EngineClock {
    /// Creates a clock that stands still at an arbitrary time.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_700_000_000_000_000)))
    }

    /// Returns the current time.
    pub fn now(&self) -> EngineTime {
        EngineTime(self.0.load(Ordering::SeqCst))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros_of(by), Ordering::SeqCst);
    }

    /// Moves the clock back, as the clock of a server may step back.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(micros_of(by), Ordering::SeqCst);
    }
}

/// The clock of an engine that runs in this process.
#[derive(Clone, Debug, Default)]
pub enum TimeSource {
    /// The system's clock.
    #[default]
    System,
    /// A clock for tests.
    Test(EngineClock),
}

impl TimeSource {
    /// Returns the current time.
    #[expect(
        clippy::disallowed_methods,
        reason = "an engine's clock outlives its process, which an `Instant` does not"
    )]
    pub fn now(&self) -> EngineTime {
        match self {
            Self::Test(clock) => clock.now(),
            Self::System => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
                EngineTime(since_1970.map_or(0, micros_of))
            }
        }
    }
}

impl Default for EngineClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EngineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineClock({})", self.now().micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up_so_that_no_key_is_early() {
        assert_eq!(micros_of(Duration::ZERO), 0);
        assert_eq!(micros_of(Duration::from_nanos(1)), 1);
        assert_eq!(micros_of(Duration::from_nanos(1001)), 2);
        assert_eq!(micros_of(Duration::MAX), LONGEST);
    }

    #[test]
    fn every_time_of_this_century_plus_the_longest_delay_is_exact_in_a_double() {
        let end_of_century = EngineTime::from_micros(4_102_444_800_000_000);
        let latest = end_of_century.after(Duration::MAX).micros();
        assert!(latest < 1 << 53);
    }
}
