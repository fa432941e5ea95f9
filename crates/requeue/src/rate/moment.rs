//! Time as limiters count it: nanoseconds since the limiter was created.

use std::time::{Duration, Instant};

/// A signed number of nanoseconds.
pub(crate) type Nanos = i64;

/// An endless wait.
pub(crate) const FOREVER: Nanos = Nanos::MAX;

pub(crate) const NANOS_PER_SEC: Nanos = 1_000_000_000;

/// The moment at the origin of a [`Timeline`].
///
/// A quarter of the range (146 years) is below it and three quarters are above. So the origin,
/// plus or minus a century, plus the longest finite wait (292 years) still fits.
const ORIGIN: Nanos = -(1 << 62);

/// How far from its origin a [`Timeline`] distinguishes moments.
const REACH: Nanos = 1 << 62;

/// A point on a [`Timeline`]. Sums and differences saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Nanos);

impl Moment {
    /// The origin of the [`Timeline`].
    pub(crate) const START: Self = Self(ORIGIN);

    /// Later than any event.
    pub(crate) const END: Self = Self(Nanos::MAX);

    #[inline]
    pub(crate) fn since(self, earlier: Self) -> Nanos {
        self.0.saturating_sub(earlier.0)
    }

    #[inline]
    pub(crate) fn plus(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span))
    }

    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "the bits are stored, not the number")]
    pub(crate) fn to_word(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    #[expect(clippy::cast_possible_wrap, reason = "the bits are stored, not the number")]
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word as Nanos)
    }
}

/// Converts between `Instant`s and [`Moment`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    origin: Instant,
}

impl Timeline {
    pub(crate) fn from(origin: Instant) -> Self {
        Self { origin }
    }

    /// Returns the moment of `t`, at most 146 years from the origin.
    #[inline]
    pub(crate) fn moment(self, t: Instant) -> Moment {
        match t.checked_duration_since(self.origin) {
            Some(after) => Moment(ORIGIN + nanos(after).min(REACH)),
            None => self.moment_before(t),
        }
    }

    #[cold]
    fn moment_before(self, t: Instant) -> Moment {
        let before = self.origin.saturating_duration_since(t);
        Moment(ORIGIN - nanos(before).min(REACH))
    }

    /// Returns the `Instant` of `moment`.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        let offset = moment.0.abs_diff(ORIGIN);
        let offset = Duration::from_nanos(offset);
        let instant = if moment.0 >= ORIGIN {
            self.origin.checked_add(offset)
        } else {
            self.origin.checked_sub(offset)
        };
        // Only on platforms whose `Instant` has a range of less than 438 years.
        instant.unwrap_or_else(|| self.origin.checked_add(CENTURY).unwrap_or(self.origin))
    }
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns `span` in nanoseconds, at most [`FOREVER`].
#[inline]
pub(crate) fn nanos(span: Duration) -> Nanos {
    // One comparison instead of three checks for overflow: every call needs this.
    match Nanos::try_from(span.as_secs()) {
        Ok(secs) if secs < FOREVER / NANOS_PER_SEC => {
            secs * NANOS_PER_SEC + Nanos::from(span.subsec_nanos())
        }
        _ => FOREVER,
    }
}

/// Returns `span` as a `Duration`; zero if it is negative.
#[inline]
pub(crate) fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(u64::try_from(span).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClock;

    #[test]
    fn instants_before_and_after_the_origin_survive_the_conversion() {
        let origin = FakeClock::new().now();
        let line = Timeline::from(origin);
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 86_400_000_000_001] {
            let step = Duration::from_nanos(nanos);
            for t in [Some(origin + step), origin.checked_sub(step)] {
                let t = t.expect("a day around a real instant");
                assert_eq!(line.instant(line.moment(t)), t);
            }
        }
        assert_eq!(line.moment(origin), Moment::START);
    }

    #[test]
    fn wait_of_292_years_after_a_century_fits() {
        let late = Moment::START.plus(nanos(CENTURY));
        assert!(late.plus(FOREVER - 1) < Moment::END);
        assert_eq!(late.plus(FOREVER - 1).since(late), FOREVER - 1);
    }

    #[test]
    fn differences_saturate() {
        let first = Moment::START.plus(-REACH);
        assert_eq!(Moment::END.since(first), FOREVER);
        assert_eq!(first.since(Moment::END), Nanos::MIN);
        assert_eq!(nanos(Duration::MAX), FOREVER);
        assert_eq!(duration(-5), Duration::ZERO);
    }
}
