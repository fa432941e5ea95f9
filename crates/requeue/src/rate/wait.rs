//! Waiting for the tokens of a [`Limiter`].

use std::time::Instant;

use super::bucket::{Ask, At, Claim, Patience, Refusal};
use super::error::WaitError;
use super::limiter::{Limiter, refused};
use super::line::{Look, Ticket};
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::waiting::{Host, Waiting};
use crate::clock::AnyClock;
use crate::wake::{Wake, Wakes};

impl Limiter {
    /// Waits for a token and takes it.
    ///
    /// Callers line up in the order in which their futures are first polled. Only the first
    /// in line holds a token; the others hold a place. So a caller that gives up costs the
    /// ones behind it nothing, and a limiter in front of clients with timeouts keeps its
    /// rate. Without cancellations the times are those of x/time/rate.
    ///
    /// [`reserve`](Self::reserve) does not line up: it takes the next tokens before callers
    /// that wait behind the first one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The token of the first caller goes back to the
    /// limiter, and the next caller takes its place. If its time had come already, the token
    /// goes back less what the limiter has gained since, which keeps to the burst.
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

    /// Waits for `n` tokens and takes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::ExceedsBurst`] if `n` is more than the burst, and [`WaitError::Never`]
    /// if the tokens never come. Both are returned at once. A call that is in line already
    /// also ends with `ExceedsBurst` if the burst is reduced below `n`. If the limit becomes
    /// zero, it stays in line until the limit or the tokens change. An error takes nothing.
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
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldExceedDeadline`], at once, if the deadline has passed or the tokens
    /// come too late, counting the tokens wanted by the callers ahead. A call that is in
    /// line already ends with it if the line becomes slower, at the deadline at the latest.
    /// Also the errors of [`wait_n`](Self::wait_n). An error takes nothing.
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
        let ask = self.ask(n, deadline);
        if self.take_now(ask) {
            return Ok(());
        }
        let waited = Waiting::new(self, ask).await;
        waited.map(drop).map_err(|refusal| too_late(refusal, ask))
    }

    fn block(&self, n: u32, deadline: Option<Instant>) -> Result<(), WaitError> {
        let ask = self.ask(n, deadline);
        if self.take_now(ask) {
            return Ok(());
        }
        let waited = Waiting::new(self, ask).block();
        waited.map(drop).map_err(|refusal| too_late(refusal, ask))
    }

    #[inline]
    pub(super) fn ask(&self, n: u32, deadline: Option<Instant>) -> Ask {
        let now = self.moment(self.clock().now());
        let max_wait = deadline.map_or(FOREVER, |t| self.moment(t).since(now));
        Ask { at: At::Now(now), n, patience: Patience::UpTo(max_wait) }
    }

    /// Takes tokens that are available, without a look at the line unless it has waiters.
    #[inline]
    fn take_now(&self, ask: Ask) -> bool {
        let in_time = ask.deadline() >= ask.at.given();
        in_time && self.allows(ask.at, ask.n)
    }
}

impl Host for Limiter {
    type Claim = Option<Claim>;

    fn clock(&self) -> &AnyClock {
        self.clock()
    }

    fn timeline(&self) -> Timeline {
        self.timeline()
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<Option<Claim>>, Wakes) {
        self.with_line(|line, meter| line.join(meter, ask, wake))
    }

    fn look(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (Look<Option<Claim>>, Wakes) {
        self.with_line(|line, meter| line.look(meter, ticket, now, wake))
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        self.with_line(|line, meter| line.leave(meter, ticket, now))
    }
}

#[cold]
fn too_late(refusal: Refusal, ask: Ask) -> WaitError {
    match refusal {
        Refusal::TooLate(wait) => WaitError::WouldExceedDeadline {
            needed: duration(wait),
            left: duration(ask.deadline().since(ask.at.given())),
        },
        Refusal::ExceedsBurst(_) | Refusal::NotNow | Refusal::Never => {
            refused(refusal, ask.n).into()
        }
    }
}
