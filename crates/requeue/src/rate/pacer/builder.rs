//! The configuration of a pacer.

use std::time::Duration;

use super::Pacer;
use super::pace::Pace;
use crate::clock::{AnyClock, Clock};
use crate::rate::error::InvalidPace;

/// Configures and creates a [`Pacer`]; returned by [`Pacer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct PacerBuilder {
    permissions: u32,
    period: Duration,
    slack: u32,
    clock: AnyClock,
}

impl PacerBuilder {
    pub(super) fn new(permissions: u32) -> Self {
        let period = Duration::from_secs(1);
        Self { permissions, period, slack: 10, clock: AnyClock::System }
    }

    /// Sets the period over which the permissions are spread; one second by default.
    ///
    /// A pacer with a period of zero never waits; [`try_build`](Self::try_build) refuses it.
    #[doc(alias = "Per")]
    pub fn per(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Sets how many unused slots can be used later; 10 by default.
    ///
    /// After a pause, up to `slots + 1` events happen at once. With 0 the spacing is strict.
    #[doc(alias = "WithSlack")]
    #[doc(alias = "WithoutSlack")]
    pub fn slack(self, slots: u32) -> Self {
        Self { slack: slots, ..self }
    }

    /// Sets the clock.
    #[doc(alias = "WithClock")]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: AnyClock::new(clock), ..self }
    }

    /// Creates the pacer, and accepts any numbers.
    ///
    /// With 0 permissions, `take` waits forever and `try_take` always fails. With a period of
    /// zero, the pacer never waits.
    pub fn build(self) -> Pacer {
        Pacer::on(self.clock, Pace::new(self.permissions, self.period, self.slack))
    }

    /// Creates the pacer, and refuses numbers that make no sense.
    ///
    /// # Errors
    ///
    /// [`InvalidPace`] if the number of permissions or the period is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{InvalidPace, Pacer};
    ///
    /// assert!(Pacer::builder(10).try_build().is_ok());
    /// let refused = Pacer::builder(0).try_build().unwrap_err();
    /// assert_eq!(refused, InvalidPace::NoPermissions);
    /// ```
    pub fn try_build(self) -> Result<Pacer, InvalidPace> {
        if self.permissions == 0 {
            Err(InvalidPace::NoPermissions)
        } else if self.period.is_zero() {
            Err(InvalidPace::NoPeriod)
        } else {
            Ok(self.build())
        }
    }
}
