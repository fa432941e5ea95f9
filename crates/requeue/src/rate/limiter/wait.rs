//! Waiting for the tokens of a limiter.

use std::time::Instant;

use super::Limiter;
use crate::rate::bucket::Request;
use crate::rate::error::WaitError;
use crate::rate::line::wait::WaitInLine;

impl Limiter {
    /// Waits for a token and takes it.
    ///
    /// Callers line up in the order in which their futures are first polled. Only the first
    /// in line holds a token. So a caller that gives up costs the ones behind it nothing, and
    /// a limiter in front of clients with timeouts keeps its rate. Without cancellations the
    /// times are those of x/time/rate.
    ///
    /// [`reserve`](Self::reserve) does not line up: it takes the next tokens before callers
    /// that wait behind the first one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The token of the first caller goes back to the
    /// limiter, and the next caller moves up. If the time of the token has passed, the limiter
    /// may have gained others since, and the token comes back only as far as the burst permits.
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
    ///     // runs at most once in 10 ms
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Wait")]
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.sleep(1, None).await
    }

    /// Waits for `n` tokens and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::ExceedsBurst`] if `n` is more than the burst, and [`WaitError::Never`]
    /// if the tokens never come. Both are returned at once. A call in line also ends with
    /// `ExceedsBurst` if the burst is reduced below `n`. If the limit becomes zero, it stays in
    /// line until the limit or the tokens change. A failed call takes no tokens.
    #[doc(alias = "WaitN")]
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        self.sleep(n, None).await
    }

    /// Waits for a token, unless it comes after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
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
    ///     limiter.wait_deadline(deadline).await, // refused at once
    ///     Err(WaitError::Timeout {
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
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::Timeout`], at once, if the deadline has passed or the tokens
    /// come too late, counting the tokens wanted by the callers ahead. A call in line also ends
    /// with it, at the latest at the deadline, if the line becomes slower. Also the errors of
    /// [`wait_n`](Self::wait_n). A failed call takes no tokens.
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
    ///     // runs at most once in 10 ms
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
    pub fn wait_blocking_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.block(1, Some(deadline))
    }

    /// Blocks this thread until `n` tokens may be used, unless that is after `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_n_deadline`](Self::wait_n_deadline).
    pub fn wait_n_blocking_deadline(
        &self,
        n: u32,
        deadline: Instant,
    ) -> Result<(), WaitError> {
        self.block(n, Some(deadline))
    }

    async fn sleep(&self, n: u32, deadline: Option<Instant>) -> Result<(), WaitError> {
        let request = self.request(n, deadline);
        if self.take_now(request) {
            return Ok(());
        }
        WaitInLine::new(&*self.shared, request).tokens().await
    }

    fn block(&self, n: u32, deadline: Option<Instant>) -> Result<(), WaitError> {
        let request = self.request(n, deadline);
        if self.take_now(request) {
            return Ok(());
        }
        WaitInLine::new(&*self.shared, request).tokens_blocking()
    }

    /// Waits in line and returns the tokens with their claim.
    #[cfg(test)]
    pub(in crate::rate) fn line_up(&self, n: u32) -> WaitInLine<&super::SharedBucket> {
        WaitInLine::new(&*self.shared, self.request(n, None))
    }

    #[inline]
    fn request(&self, n: u32, deadline: Option<Instant>) -> Request {
        let now = self.shared.now().given();
        Request::by(now, n, deadline.map(|t| self.shared.moment(t)))
    }

    /// Takes available tokens, without a look at the line unless it has waiters.
    #[inline]
    fn take_now(&self, request: Request) -> bool {
        let in_time = request.deadline() >= request.at.given();
        in_time && self.shared.allow(request.at, request.n)
    }
}
