//! Tokens taken ahead of time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SharedBucket;
use crate::rate::bucket::{At, Claim, Grant};
use crate::rate::moment::{Moment, duration};

/// Tokens of a [`Limiter`](super::Limiter) that may be used from some time on.
///
/// It keeps its limiter alive, so it can be sent anywhere. Wait for [`delay`](Self::delay)
/// and act, or give the tokens back with [`cancel`](Self::cancel). Dropping a reservation
/// gives nothing back.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::{Limit, Limiter};
/// use requeue::testing::FakeClock;
///
/// let clock = FakeClock::new();
/// let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock);
/// assert!(limiter.allow());
/// let reservation = limiter.reserve()?;
/// assert_eq!(reservation.delay(), Duration::from_secs(1));
/// assert_eq!(limiter.tokens(), -1.0);
/// reservation.cancel(); // too long: leave it to another caller
/// assert_eq!(limiter.tokens(), 0.0);
/// # Ok::<(), requeue::rate::ReserveError>(())
/// ```
#[must_use = "the tokens are taken: wait for them, or cancel"]
pub struct Reservation {
    limiter: Arc<SharedBucket>,
    /// When the tokens were asked for.
    asked: Moment,
    ready: Moment,
    /// `None` if the limit was infinite: then a cancel has nothing to give back.
    claim: Option<Claim>,
}

impl Reservation {
    #[inline]
    pub(super) fn new(limiter: Arc<SharedBucket>, asked: Moment, grant: Grant) -> Self {
        Self { limiter, asked, ready: grant.ready, claim: grant.claim }
    }

    /// Returns how long to wait from now on before acting; zero if the time has come.
    #[doc(alias = "Delay")]
    pub fn delay(&self) -> Duration {
        self.delay_since(self.limiter.now().given())
    }

    /// Returns how long to wait from `t` on before acting; zero if `t` is late enough.
    #[doc(alias = "DelayFrom")]
    pub fn delay_from(&self, t: Instant) -> Duration {
        self.delay_since(self.limiter.moment(t))
    }

    /// Returns how long the wait was when the reservation was made, without reading the clock.
    pub fn initial_delay(&self) -> Duration {
        self.delay_since(self.asked)
    }

    /// Returns when to act.
    pub fn time_to_act(&self) -> Instant {
        self.limiter.instant(self.ready)
    }

    /// Gives the tokens back, as far as the limit permits.
    ///
    /// Nothing comes back once the time to act has passed. Reservations made after this one
    /// keep their times, so the tokens they depend on do not come back either. Cancelling
    /// never mints tokens: in any order, the limiter keeps to `burst + limit × time`.
    /// x/time/rate does not if reservations are cancelled out of order;
    /// [`cancel_at`](Self::cancel_at) has its arithmetic.
    #[doc(alias = "Cancel")]
    pub fn cancel(self) {
        self.cancel_on(self.limiter.now());
    }

    /// Gives the tokens back as of `t`, with the arithmetic of x/time/rate.
    ///
    /// The result is the same to the last bit. That includes its fault: a reservation that
    /// is cancelled before a later one can give back more tokens than it took.
    #[doc(alias = "CancelAt")]
    pub fn cancel_at(self, t: Instant) {
        self.cancel_on(self.limiter.exactly(t));
    }

    fn cancel_on(&self, at: At) {
        if let Some(claim) = self.claim {
            self.limiter.cancel(claim, at);
        }
    }

    fn delay_since(&self, t: Moment) -> Duration {
        duration(self.ready.since(t))
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("time_to_act", &self.time_to_act())
            .finish_non_exhaustive()
    }
}
