//! How often events may happen.

use std::fmt;
use std::time::Duration;

use super::error::InvalidLimit;
use super::moment::{FOREVER, NANOS_PER_SEC, Nanos};

/// The maximum frequency of events, in events per second.
///
/// A [`Limiter`](super::Limiter) gains this many tokens per second. With
/// [`ZERO`](Self::ZERO) it gains none; with [`INF`](Self::INF) it allows everything.
/// `Limit::per_second(0.5)` is one event in two seconds.
///
/// With the feature `serde`, a limit is a number of events per second.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::Limit;
///
/// assert_eq!(Limit::every(Duration::from_millis(100)), Limit::per_second(10.0));
/// assert_eq!(Limit::every(Duration::ZERO), Limit::INF);
/// assert!(Limit::ZERO < Limit::per_second(0.001));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "f64"))]
pub struct Limit(f64);

/// Never NaN.
impl Eq for Limit {}

impl Limit {
    /// No limit: everything is allowed, even with a burst of 0.
    #[doc(alias = "Inf")]
    pub const INF: Self = Self(f64::MAX);

    /// No events, except the burst that a limiter starts with.
    pub const ZERO: Self = Self(0.0);

    /// Returns a limit of `events` per second, for any number.
    ///
    /// Infinity is [`INF`](Self::INF). NaN and negative numbers are [`ZERO`](Self::ZERO). Use
    /// [`try_per_second`](Self::try_per_second) to refuse invalid input instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::Limit;
    ///
    /// assert_eq!(Limit::per_second(2.5).events_per_second(), 2.5);
    /// assert_eq!(Limit::per_second(f64::INFINITY), Limit::INF);
    /// assert_eq!(Limit::per_second(f64::NAN), Limit::ZERO);
    /// assert_eq!(Limit::per_second(-1.0), Limit::ZERO);
    /// ```
    pub const fn per_second(events: f64) -> Self {
        if events > 0.0 { Self(events.min(f64::MAX)) } else { Self::ZERO }
    }

    /// Returns a limit of `events` per second, unless the number is invalid.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if `events` is negative or NaN. Infinity is [`INF`](Self::INF).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::Limit;
    ///
    /// assert_eq!(Limit::try_per_second(3.0), Ok(Limit::per_second(3.0)));
    /// let refused = Limit::try_per_second(-3.0).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "a limit must be 0 or more events per second, not -3",
    /// );
    /// ```
    pub const fn try_per_second(events: f64) -> Result<Self, InvalidLimit> {
        if events >= 0.0 {
            Ok(Self::per_second(events))
        } else {
            Err(InvalidLimit { given: events })
        }
    }

    /// Returns a limit of one event per `interval`. An interval of zero is [`INF`](Self::INF).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::Limit;
    ///
    /// assert_eq!(Limit::every(Duration::from_secs(2)), Limit::per_second(0.5));
    /// ```
    #[doc(alias = "Every")]
    pub fn every(interval: Duration) -> Self {
        if interval.is_zero() { Self::INF } else { Self(1.0 / interval.as_secs_f64()) }
    }

    /// Returns the number of events per second; infinity for [`INF`](Self::INF).
    pub const fn events_per_second(self) -> f64 {
        if self.is_infinite() { f64::INFINITY } else { self.0 }
    }

    /// Returns whether this is [`INF`](Self::INF).
    pub const fn is_infinite(self) -> bool {
        self.0 >= f64::MAX
    }

    /// Returns the tokens gained in `span`.
    ///
    /// The order of operations here and in [`time_for`](Self::time_for) is that of
    /// x/time/rate, since the results must be equal bit for bit.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        reason = "Go computes seconds in floating point"
    )]
    pub(super) fn tokens_in(self, span: Nanos) -> f64 {
        if self.0 <= 0.0 {
            return 0.0;
        }
        let seconds = if (0..NANOS_PER_SEC).contains(&span) {
            span as f64 / 1e9 // equals the expression below, without its divisions
        } else {
            (span / NANOS_PER_SEC) as f64 + (span % NANOS_PER_SEC) as f64 / 1e9
        };
        seconds * self.0
    }

    /// Returns how long `tokens` take to come, rounded towards zero; at most [`FOREVER`].
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "truncates and saturates")]
    pub(super) fn time_for(self, tokens: f64) -> Nanos {
        if self.0 <= 0.0 {
            return FOREVER;
        }
        ((tokens / self.0) * 1e9) as Nanos
    }

    /// Returns bounds of [`tokens_in`](Self::tokens_in), without its division.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "covered by the bounds")]
    pub(super) fn tokens_in_roughly(self, span: Nanos) -> Bounds {
        let billions = span as f64 * self.0;
        Bounds {
            least: billions * (1e-9 * (1.0 - DOUBT)),
            most: billions * (1e-9 * (1.0 + DOUBT)),
        }
    }

    /// Returns whether [`time_for`](Self::time_for) `tokens` is certainly more than zero.
    ///
    /// It needs no division. Two nanoseconds leave room for the rounding of `time_for`.
    #[inline]
    pub(super) fn surely_takes_time_for(self, tokens: f64) -> bool {
        tokens * 1e9 > 2.0 * self.0
    }

    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0.to_bits()
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Self(f64::from_bits(word))
    }
}

/// More than the sum of all rounding errors, which are a few parts in 2^53.
const DOUBT: f64 = 1e-12;

/// A range of tokens that contains the exact number.
pub(super) struct Bounds {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl TryFrom<f64> for Limit {
    type Error = InvalidLimit;

    fn try_from(events_per_second: f64) -> Result<Self, InvalidLimit> {
        Self::try_per_second(events_per_second)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_infinite() {
            f.write_str("unlimited")
        } else {
            write!(f, "{}/s", self.0)
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "limits are equal bit for bit or wrong")]
mod tests {
    use super::*;

    #[test]
    fn every_number_makes_a_limit() {
        let cases = [
            (f64::NAN, Limit::ZERO),
            (f64::NEG_INFINITY, Limit::ZERO),
            (-1e-300, Limit::ZERO),
            (-0.0, Limit::ZERO),
            (f64::INFINITY, Limit::INF),
            (f64::MAX, Limit::INF),
        ];
        for (given, limit) in cases {
            assert_eq!(Limit::per_second(given), limit, "{given}");
        }
        assert!(Limit::per_second(-0.0).events_per_second().is_sign_positive());
        assert_eq!(Limit::INF.events_per_second(), f64::INFINITY);
    }

    #[test]
    fn checked_limit_refuses_negative_numbers_and_nan() {
        for given in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            assert!(Limit::try_per_second(given).is_err(), "{given}");
        }
        assert_eq!(Limit::try_per_second(f64::INFINITY), Ok(Limit::INF));
        assert_eq!(Limit::try_per_second(-0.0), Ok(Limit::ZERO));
    }

    #[test]
    fn every_is_one_event_per_interval() {
        assert_eq!(Limit::every(Duration::from_nanos(1)).0, 1.0 / 1e-9);
        assert_eq!(Limit::every(Duration::from_millis(1500)).0, 1.0 / 1.5);
        assert!(Limit::every(Duration::MAX) > Limit::ZERO);
    }

    #[test]
    fn time_for_tokens_truncates_and_saturates() {
        assert_eq!(Limit::per_second(3.0).time_for(1.0), 333_333_333);
        assert_eq!(Limit::per_second(3.0).time_for(-1.0), -333_333_333);
        assert_eq!(Limit::per_second(1e-300).time_for(1.0), FOREVER);
        assert_eq!(Limit::ZERO.time_for(1.0), FOREVER);
        assert_eq!(Limit::per_second(1e300).time_for(1.0), 0);
    }

    #[test]
    fn tokens_in_a_span_keep_its_sign() {
        assert_eq!(Limit::per_second(2.0).tokens_in(1_500_000_000), 3.0);
        assert_eq!(Limit::per_second(2.0).tokens_in(-1_500_000_000), -3.0);
        assert_eq!(Limit::ZERO.tokens_in(FOREVER), 0.0);
    }

    #[test]
    fn rough_bounds_contain_the_exact_tokens() {
        let spans = [0, 1, 3, 999_999_999, 1_000_000_007, 86_400_000_000_001, FOREVER];
        for limit in [1e-9, 0.1, 1.0, 7.3, 1e3, 123_456.789, 1e15] {
            for span in spans {
                let limit = Limit::per_second(limit);
                let exact = limit.tokens_in(span);
                let Bounds { least, most } = limit.tokens_in_roughly(span);
                assert!(least <= exact && exact <= most, "{span} ns at {limit}");
            }
        }
    }

    #[test]
    fn limits_print_as_frequencies() {
        assert_eq!(Limit::per_second(0.5).to_string(), "0.5/s");
        assert_eq!(Limit::INF.to_string(), "unlimited");
    }
}
