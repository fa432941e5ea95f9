//! Waiting for tokens: a reservation, a sleep, and the way back for those who leave.

use std::time::Instant;

use super::bucket::{Ask, At, Claim, Patience, Refusal};
use super::error::WaitError;
use super::limiter::{Limiter, refused};
use super::moment::{FOREVER, Nanos, duration};

impl Limiter {
    /// Waits until a token may be used, and takes it.
    ///
    /// Callers are served in the order in which they came, that is, in which their futures
    /// were first polled: each takes its token at once and then sleeps until it may be
    /// used.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready gives its token back, as
    /// [`Reservation::cancel`](super::Reservation::cancel) does. One that was never polled
    /// has taken nothing.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter, WaitError};
    ///
    /// # futures_executor::block_on(async {
    /// let limiter = Limiter::new(Limit::per_second(100.0), 1);
    /// for _ in 0..3 {
    ///     limiter.wait().await?;
    ///     // at most one of these in 10 ms
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Wait")]
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.sleep(1, None).await
    }

    /// Waits until `n` tokens may be used, and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait): what a dropped future took it gives back.
    ///
    /// # Errors
    ///
    /// At once, and with nothing taken: [`WaitError::ExceedsBurst`] if `n` is more than
    /// the burst, [`WaitError::Never`] if the tokens never come.
    #[doc(alias = "WaitN")]
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        self.sleep(n, None).await
    }

    /// Waits for a token, unless it comes after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait): what a dropped future took it gives back.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Clock;
    /// use requeue::rate::{Limit, Limiter, WaitError};
    /// use requeue::testing::FakeClock;
    ///
    /// # futures_executor::block_on(async {
    /// let clock = FakeClock::new();
    /// let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock.clone());
    /// let deadline = clock.now() + Duration::from_millis(300);
    /// assert_eq!(limiter.wait_deadline(deadline).await, Ok(()));
    /// assert_eq!(
    ///     limiter.wait_deadline(deadline).await, // says so at once
    ///     Err(WaitError::WouldExceedDeadline {
    ///         needed: Duration::from_secs(1),
    ///         left: Duration::from_millis(300),
    ///     }),
    /// );
    /// # });
    /// ```
    pub async fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.sleep(1, Some(deadline)).await
    }

    /// Waits for `n` tokens, unless they come after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait): what a dropped future took it gives back.
    ///
    /// # Errors
    ///
    /// At once, and with nothing taken: [`WaitError::WouldExceedDeadline`] if the tokens
    /// come too late or the deadline has passed, and what [`wait_n`](Self::wait_n) gives.
    pub async fn wait_n_deadline(
        &self,
        n: u32,
        deadline: Instant,
    ) -> Result<(), WaitError> {
        self.sleep(n, Some(deadline)).await
    }

    /// Blocks this thread until a token may be used, and takes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(100.0), 1);
    /// for _ in 0..3 {
    ///     limiter.wait_blocking()?;
    ///     // at most one of these in 10 ms
    /// }
    /// # Ok::<(), requeue::rate::WaitError>(())
    /// ```
    pub fn wait_blocking(&self) -> Result<(), WaitError> {
        self.block(1, None)
    }

    /// Blocks this thread until `n` tokens may be used, and takes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking(&self, n: u32) -> Result<(), WaitError> {
        self.block(n, None)
    }

    /// Blocks this thread until a token may be used, unless that is after `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub fn wait_deadline_blocking(&self, deadline: Instant) -> Result<(), WaitError> {
        self.block(1, Some(deadline))
    }

    /// Blocks this thread until `n` tokens may be used, unless that is after `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub fn wait_n_deadline_blocking(
        &self,
        n: u32,
        deadline: Instant,
    ) -> Result<(), WaitError> {
        self.block(n, Some(deadline))
    }

    async fn sleep(&self, n: u32, deadline: Option<Instant>) -> Result<(), WaitError> {
        let Some(place) = self.line_up(n, deadline)? else { return Ok(()) };
        while self.clock().now() < place.until {
            self.clock().timer(place.until).await;
        }
        place.use_up();
        Ok(())
    }

    fn block(&self, n: u32, deadline: Option<Instant>) -> Result<(), WaitError> {
        let Some(place) = self.line_up(n, deadline)? else { return Ok(()) };
        self.clock().sleep_until(place.until);
        place.use_up();
        Ok(())
    }

    /// Takes the tokens; `None` if they may be used at once.
    fn line_up(
        &self,
        n: u32,
        deadline: Option<Instant>,
    ) -> Result<Option<Place<'_>>, WaitError> {
        let now = self.moment(self.clock().now());
        let max_wait = deadline.map_or(FOREVER, |t| self.moment(t).since(now));
        let grant = self
            .take(Ask { at: At::Now(now), n, patience: Patience::UpTo(max_wait) })
            .map_err(|refusal| too_late(refusal, n, max_wait))?;
        if grant.ready <= now {
            return Ok(None);
        }
        let until = self.instant(grant.ready);
        Ok(Some(Place { limiter: self, until, claim: grant.claim }))
    }
}

#[cold]
fn too_late(refusal: Refusal, asked: u32, max_wait: Nanos) -> WaitError {
    match refusal {
        Refusal::TooLate(wait) => WaitError::WouldExceedDeadline {
            needed: duration(wait),
            left: duration(max_wait),
        },
        Refusal::ExceedsBurst(_) | Refusal::NotNow | Refusal::Never => {
            refused(refusal, asked).into()
        }
    }
}

/// A place in the line of those who wait. Who leaves it gives the tokens back.
struct Place<'a> {
    limiter: &'a Limiter,
    until: Instant,
    claim: Option<Claim>,
}

impl Place<'_> {
    fn use_up(mut self) {
        self.claim = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            self.limiter.give_back(claim, self.limiter.now());
        }
    }
}
