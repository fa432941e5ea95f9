//! The token bucket limiter of x/time/rate.

mod reservation;
mod shared;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::reservation::Reservation;
pub(super) use self::shared::SharedBucket;
use super::bucket::{At, Rate, Request};
use super::error::ReserveError;
use super::limit::Limit;
use crate::clock::{AnyClock, Clock};

/// Limits the rate of events with a token bucket.
///
/// The bucket holds up to *burst* tokens, starts full, and gains *limit* tokens a second.
/// Each event takes a token, so any span of time has at most `burst + limit × time` events.
/// There are three ways to ask for a token. They differ in what happens if none is available:
///
/// | method | without a token | use it to |
/// |---|---|---|
/// | [`wait`](Self::wait) | lines up for one | slow down; most callers want this |
/// | [`allow`](Self::allow) | returns `false` | drop or skip excess events |
/// | [`reserve`](Self::reserve) | takes a future one and returns when it may be used | schedule the event yourself, or cancel it |
///
/// Each has a form for `n` tokens, and `allow` and `reserve` have one for an explicit time.
/// Clones share the bucket. Limit and burst can change at any time.
///
/// A call that does not wait costs one compare-and-swap, and a refused `allow` costs none.
/// While one thread writes the new state, which takes a few nanoseconds, others spin. If the
/// scheduler interrupts a thread there, others yield until it runs again.
///
/// # Waiting
///
/// Callers of `wait` are served in order. Only the first one holds a token, so callers that
/// give up cost the others nothing: under timeouts the limiter still serves its full rate.
/// `allow` returns `false` while callers wait. `reserve` does not line up: it takes the next
/// tokens after those of the first caller in line.
///
/// # Time
///
/// Calls without a time read the clock. They keep to `burst + limit × time` in all cases,
/// even if clock readings arrive out of order or reservations are cancelled in any order.
///
/// Calls with an explicit time (`…_at`) have the arithmetic of x/time/rate, to the last bit,
/// and so its exceptions from the bound. A time before the last one credits the interval
/// twice. [`Reservation::cancel_at`] can give back more than was taken if a later
/// reservation is outstanding. They do not look at the line either.
///
/// # Examples
///
/// ```
/// use requeue::rate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_second(10.0), 2);
/// assert!(limiter.allow());
/// assert!(limiter.allow());
/// assert!(!limiter.allow()); // the next token comes in 100 ms
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<SharedBucket>,
}

impl Limiter {
    /// Creates a full limiter: `burst` events may happen at once, then `limit` per second.
    ///
    /// A burst of 0 allows nothing, unless the limit is [`Limit::INF`], which ignores the
    /// burst.
    #[doc(alias = "NewLimiter")]
    pub fn new(limit: Limit, burst: u32) -> Self {
        Self::on(AnyClock::System, Rate { limit, burst })
    }

    /// Creates a limiter that uses `clock`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(10.0), 1, clock.clone());
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// clock.advance(Duration::from_millis(100));
    /// assert!(limiter.allow());
    /// ```
    pub fn with_clock(limit: Limit, burst: u32, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), Rate { limit, burst })
    }

    fn on(clock: AnyClock, rate: Rate) -> Self {
        Self { shared: Arc::new(SharedBucket::new(clock, rate)) }
    }

    /// Sets the number of available tokens, instead of a full bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::every(std::time::Duration::from_secs(60)), 10)
    ///     .with_tokens(1);
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// ```
    #[must_use = "this returns the limiter"]
    pub fn with_tokens(self, tokens: u32) -> Self {
        self.set_tokens(tokens);
        self
    }

    /// Returns the current limit.
    #[doc(alias = "Limit")]
    pub fn limit(&self) -> Limit {
        self.shared.rate().limit
    }

    /// Returns the current burst.
    #[doc(alias = "Burst")]
    pub fn burst(&self) -> u32 {
        self.shared.rate().burst
    }

    /// Returns the number of tokens; negative while tokens are reserved or waited for.
    ///
    /// A snapshot; do not base decisions on it. Of the callers in line, only the first holds
    /// tokens.
    #[doc(alias = "Tokens")]
    pub fn tokens(&self) -> f64 {
        self.shared.tokens(self.shared.now())
    }

    /// Returns the number of tokens at `t`, if none are taken until then.
    #[doc(alias = "TokensAt")]
    pub fn tokens_at(&self, t: Instant) -> f64 {
        self.shared.tokens(self.shared.exactly(t))
    }

    /// Takes a token if one is available. Returns whether it did.
    #[doc(alias = "Allow")]
    #[inline]
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Takes `n` tokens if that many are available. Returns whether it did.
    ///
    /// All or none: a refusal changes nothing. Refused while callers of
    /// [`wait`](Self::wait) are in line. Even 0 tokens are refused then, and while reserved
    /// tokens are outstanding.
    #[doc(alias = "AllowN")]
    #[inline]
    pub fn allow_n(&self, n: u32) -> bool {
        self.shared.allow(self.shared.now(), n)
    }

    /// Takes `n` tokens if that many are available at `t`. Returns whether it did.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(10.0), 3);
    /// let t = Instant::now();
    /// assert!(limiter.allow_at(t, 3));
    /// assert!(!limiter.allow_at(t + Duration::from_millis(100), 2));
    /// assert!(limiter.allow_at(t + Duration::from_millis(200), 2));
    /// ```
    #[doc(alias = "AllowN")]
    pub fn allow_at(&self, t: Instant, n: u32) -> bool {
        let at = self.shared.exactly(t);
        self.shared.take(Request::at_once(at, n)).is_ok()
    }

    /// Takes a token, now or from the future, and returns when it may be used.
    ///
    /// See [`reserve_n`](Self::reserve_n).
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    #[doc(alias = "Reserve")]
    pub fn reserve(&self) -> Result<Reservation, ReserveError> {
        self.reserve_n(1)
    }

    /// Takes `n` tokens, now or from the future, and returns when they may be used.
    ///
    /// Wait for [`Reservation::delay`] and act, or give the tokens back with
    /// [`Reservation::cancel`]. Dropping a reservation keeps the tokens taken.
    ///
    /// A reservation does not line up. Callers of [`wait`](Self::wait) that are in line, but
    /// not the first, are served after it.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than the burst, and
    /// [`ReserveError::Never`] if the tokens never come, for example from an empty bucket with
    /// [`Limit::ZERO`]. The limiter is then unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter, ReserveError};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(10.0), 2, clock);
    /// assert_eq!(limiter.reserve_n(2)?.delay(), Duration::ZERO);
    /// assert_eq!(limiter.reserve()?.delay(), Duration::from_millis(100));
    ///
    /// let refused = limiter.reserve_n(3).unwrap_err();
    /// assert_eq!(refused, ReserveError::ExceedsBurst { asked: 3, burst: 2 });
    /// # Ok::<(), ReserveError>(())
    /// ```
    #[doc(alias = "ReserveN")]
    #[inline]
    pub fn reserve_n(&self, n: u32) -> Result<Reservation, ReserveError> {
        self.reserve_on(self.shared.now(), n)
    }

    /// Takes `n` tokens as of `t`, and returns when they may be used.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    #[doc(alias = "ReserveN")]
    pub fn reserve_at(&self, t: Instant, n: u32) -> Result<Reservation, ReserveError> {
        self.reserve_on(self.shared.exactly(t), n)
    }

    /// Returns how long a [`reserve`](Self::reserve) would have to wait, without taking a
    /// token.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{Limit, Limiter};
    /// use requeue::testing::FakeClock;
    ///
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(4.0), 1, clock);
    /// assert_eq!(limiter.peek(), Ok(Duration::ZERO));
    /// assert!(limiter.allow());
    /// assert_eq!(limiter.peek(), Ok(Duration::from_millis(250)));
    /// assert_eq!(limiter.peek(), Ok(Duration::from_millis(250)));
    /// ```
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// Returns how long a reservation of `n` tokens would have to wait, without taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        self.peek_on(self.shared.now(), n)
    }

    /// Returns how long after `t` a reservation of `n` tokens would have to wait, without
    /// taking them.
    ///
    /// # Errors
    ///
    /// As [`reserve_n`](Self::reserve_n).
    pub fn peek_at(&self, t: Instant, n: u32) -> Result<Duration, ReserveError> {
        self.peek_on(self.shared.exactly(t), n)
    }

    /// Changes the limit from now on.
    ///
    /// Reservations keep their times. The first caller in line is served at its old time,
    /// or earlier if the new limit permits that. The callers behind it are served at the new
    /// limit; while it is zero, they wait for it to change.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::ZERO, 0);
    /// assert!(!limiter.allow());
    /// limiter.set_limit(Limit::INF);
    /// assert!(limiter.allow());
    /// ```
    #[doc(alias = "SetLimit")]
    pub fn set_limit(&self, limit: Limit) {
        self.shared.change_rate(self.shared.now(), |rate| Rate { limit, ..rate });
    }

    /// Changes the limit as of `t`. The bucket fills at the old limit until then.
    #[doc(alias = "SetLimitAt")]
    pub fn set_limit_at(&self, t: Instant, limit: Limit) {
        self.shared.change_rate(self.shared.exactly(t), |rate| Rate { limit, ..rate });
    }

    /// Changes the burst from now on.
    ///
    /// A larger burst adds no tokens by itself; a smaller one spills those that no longer
    /// fit. Callers in line that want more than the new burst end with
    /// [`WaitError::ExceedsBurst`](super::WaitError::ExceedsBurst), except the first one,
    /// whose tokens are reserved.
    #[doc(alias = "SetBurst")]
    pub fn set_burst(&self, burst: u32) {
        self.shared.change_rate(self.shared.now(), |rate| Rate { burst, ..rate });
    }

    /// Changes the burst as of `t`.
    #[doc(alias = "SetBurstAt")]
    pub fn set_burst_at(&self, t: Instant, burst: u32) {
        self.shared.change_rate(self.shared.exactly(t), |rate| Rate { burst, ..rate });
    }

    /// Replaces the number of available tokens, capped at the burst.
    ///
    /// Use it to follow a limit that a server reports, for example in a
    /// `RateLimit-Remaining` header. Debts are forgotten, but reservations keep their times.
    /// Callers in line are served earlier if the new tokens permit it.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::ZERO, 100);
    /// limiter.set_tokens(1); // the server says: one call is left
    /// assert!(limiter.allow());
    /// assert!(!limiter.allow());
    /// ```
    pub fn set_tokens(&self, tokens: u32) {
        self.shared.refill(self.shared.now(), tokens);
    }

    /// Replaces the number of available tokens as of `t`.
    pub fn set_tokens_at(&self, t: Instant, tokens: u32) {
        self.shared.refill(self.shared.exactly(t), tokens);
    }

    /// Takes one token for good and returns how long to wait for it, if it ever comes.
    #[inline]
    pub(crate) fn take_one(&self) -> Option<Duration> {
        self.shared.take_one()
    }

    #[inline]
    fn reserve_on(&self, at: At, n: u32) -> Result<Reservation, ReserveError> {
        match self.shared.take(Request::patient(at, n)) {
            Ok(grant) => {
                Ok(Reservation::new(Arc::clone(&self.shared), at.given(), grant))
            }
            Err(refusal) => Err(ReserveError::new(refusal, n)),
        }
    }

    fn peek_on(&self, at: At, n: u32) -> Result<Duration, ReserveError> {
        self.shared.peek(at, n).map_err(|refusal| ReserveError::new(refusal, n))
    }

    #[cfg(feature = "tower")]
    pub(super) fn shared(&self) -> &Arc<SharedBucket> {
        &self.shared
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limit", &self.limit())
            .field("burst", &self.burst())
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, requeue_loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
