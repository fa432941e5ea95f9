//! Time as an engine tells it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment on the clock of an engine: microseconds since 1970.
///
/// Only an engine makes moments and compares them. Clients send durations and are told
/// durations, so that their own clocks do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// The longest delay, about 142 years: a moment plus this is still exact in a double,
/// which is what Redis sorts by.
const LONGEST: u64 = 1 << 52;

impl Moment {
    /// The moment so many microseconds after the beginning of 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// How many microseconds after the beginning of 1970 this is.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The moment after `delay`, rounded up, so that nothing is early.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(micros_of(delay)))
    }

    /// How long it is from `earlier` to this moment; nothing if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A delay in microseconds as engines count them: rounded up, at most 142 years.
pub fn micros_of(delay: Duration) -> u64 {
    let micros = delay.as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(LONGEST, |micros| micros.min(LONGEST))
}

/// A clock that is told to an engine instead of its own: for tests, which move it.
///
/// Clones show the same time. Every store can be opened with one; nothing else should do
/// that on a queue that others share.
#[derive(Clone)]
pub struct EngineClock(Arc<AtomicU64>);

impl EngineClock {
    /// A clock that stands at some moment.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_700_000_000_000_000)))
    }

    /// What it shows.
    pub fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros_of(by), Ordering::SeqCst);
    }

    /// Moves it back, as an engine's clock may step.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(micros_of(by), Ordering::SeqCst);
    }
}

/// Where an engine in this process has its time from.
#[derive(Clone, Debug, Default)]
pub enum Now {
    /// The system's clock.
    #[default]
    System,
    /// A clock that tests move.
    Told(EngineClock),
}

impl Now {
    /// The present moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "an engine's clock outlives its process, which an `Instant` does not"
    )]
    pub fn read(&self) -> Moment {
        match self {
            Self::Told(clock) => clock.now(),
            Self::System => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
                Moment(since_1970.map_or(0, micros_of))
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
    fn delays_are_rounded_up_so_that_nothing_is_early() {
        assert_eq!(micros_of(Duration::ZERO), 0);
        assert_eq!(micros_of(Duration::from_nanos(1)), 1);
        assert_eq!(micros_of(Duration::from_nanos(1001)), 2);
        assert_eq!(micros_of(Duration::MAX), LONGEST);
    }

    #[test]
    fn any_moment_of_this_century_plus_the_longest_delay_is_exact_in_a_double() {
        let end_of_century = Moment::from_micros(4_102_444_800_000_000);
        let latest = end_of_century.after(Duration::MAX).micros();
        assert!(latest < 1 << 53);
    }
}
