//! The state of a shared rate: rule 14 of [`Store`](crate::Store).

use std::time::Duration;

use crate::{EngineTime, Rate, micros_of};

/// The theoretical arrival time of GCRA, and when it was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    arrival: EngineTime,
    at: EngineTime,
}

impl Arrival {
    /// Creates a rate that is reserved ahead of `now` by `debt`.
    pub(super) fn with_debt(debt: Duration, now: EngineTime) -> Self {
        let debt = u64::try_from(debt.as_micros()).unwrap_or(u64::MAX);
        let arrival = EngineTime::from_micros(now.micros().saturating_add(debt));
        Self { arrival, at: now }
    }

    /// Returns how far the rate is reserved ahead of `now`.
    ///
    /// A clock before `at` has been set back. Then no time has passed, so that a clock that
    /// was wrong for a while does not leave a debt behind.
    pub(super) fn debt(&self, now: EngineTime) -> Duration {
        self.arrival.since(now.max(self.at))
    }

    /// Takes `n` tokens. Returns the rate after that, and the time until they are available.
    pub(super) fn reserve(
        &self,
        rate: &Rate,
        n: u32,
        now: EngineTime,
    ) -> (Self, Duration) {
        let interval = micros_of(rate.interval).max(1);
        let times = |n: u32| Duration::from_micros(interval.saturating_mul(n.into()));
        let debt = self.debt(now).saturating_add(times(n));
        let after = Self::with_debt(debt, now);
        (after, after.debt(now).saturating_sub(times(rate.burst.get())))
    }
}
