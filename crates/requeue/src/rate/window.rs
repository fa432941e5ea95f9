//! At most `n` events in any span of time.

mod log;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::log::{EventLog, LoggedEvents};
use super::bucket::{At, Request};
use super::error::{ReserveError, WaitError};
use super::line::wait::{LineOwner, WaitInLine};
use super::line::{LineStatus, Ticket, WaiterLine};
use super::moment::{Moment, Nanos, Timeline, duration, nanos};
use crate::clock::{AnyClock, Clock};
use crate::wake::{Wake, Wakes};

/// Allows at most `n` events in any span of time as long as `per`.
///
/// A [`Limiter`](super::Limiter) of 100 per minute with a burst of 100 allows up to 200
/// events within one minute: the burst, and the tokens that come in meanwhile. A window
/// allows at most 100 in *any* minute, whenever it starts. Use it to stay below a limit that
/// a server counts that way, and a `Limiter` everywhere else.
///
/// A window is exact: it logs the time of each event, instead of weighting two counters. It
/// takes 8 bytes for each event of the last `per`, so at most 8 × `n` bytes. Clones share the
/// log.
///
/// With an `n` of 0 nothing is ever allowed. With a `per` of zero, up to `n` events are
/// allowed at once, at any time. A `per` of more than 292 years counts as 292 years.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::Window;
/// use requeue::testing::FakeClock;
///
/// let clock = FakeClock::new();
/// let window = Window::with_clock(2, Duration::from_secs(60), clock.clone());
/// assert!(window.allow());
/// clock.advance(Duration::from_secs(50));
/// assert!(window.allow());
/// assert!(!window.allow());
/// assert_eq!(window.peek(), Ok(Duration::from_secs(10)));
/// clock.advance(Duration::from_secs(10));
/// assert!(window.allow());
/// assert_eq!(window.peek(), Ok(Duration::from_secs(50)));
/// ```
#[doc(alias = "sliding window")]
#[derive(Clone)]
pub struct Window {
    shared: Arc<Shared>,
}

struct Shared {
    clock: AnyClock,
    timeline: Timeline,
    n: u32,
    per: Nanos,
    /// No clock and no waker is called with this lock held.
    state: Mutex<WindowState>,
}

struct WindowState {
    log: EventLog,
    line: WaiterLine<LoggedEvents>,
}

impl Window {
    /// Creates a limiter of `n` events in any span of `per`.
    pub fn new(n: u32, per: Duration) -> Self {
        Self::on(AnyClock::System, n, per)
    }

    /// Creates a limiter that uses `clock`.
    pub fn with_clock(n: u32, per: Duration, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), n, per)
    }

    fn on(clock: AnyClock, n: u32, per: Duration) -> Self {
        let timeline = Timeline::from(clock.now());
        let per = nanos(per);
        let log = EventLog::new(n, per);
        let state = Mutex::new(WindowState { log, line: WaiterLine::new() });
        Self { shared: Arc::new(Shared { clock, timeline, n, per, state }) }
    }

    /// Counts an event if it may happen now. Returns whether it may.
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Counts `n` events if all may happen now. Returns whether they may.
    ///
    /// All or none: a refusal changes nothing. Refused while callers wait.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.shared.now();
        let (allowed, wakes) = self.shared.lock().allow(n, now);
        wakes.wake();
        allowed
    }

    /// Returns how long a caller would have to wait for an event, without counting it.
    ///
    /// # Errors
    ///
    /// As [`peek_n`](Self::peek_n).
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// Returns how long a caller would have to wait for `n` events, without counting them.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than a window allows, and
    /// [`ReserveError::Never`] if the window takes more than 292 years.
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        let now = self.shared.now();
        let log = &mut self.shared.lock().log;
        let at = log.pass(now);
        let ready = log.ready(n, at).map_err(|refusal| ReserveError::new(refusal, n))?;
        Ok(duration(ready.since(now)))
    }

    /// Returns how many more events may happen now.
    ///
    /// A snapshot; do not base decisions on it.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::Window;
    ///
    /// let window = Window::new(5, std::time::Duration::from_secs(60));
    /// assert!(window.allow_n(3));
    /// assert_eq!(window.remaining(), 2);
    /// ```
    pub fn remaining(&self) -> u32 {
        let now = self.shared.now();
        let log = &mut self.shared.lock().log;
        log.pass(now);
        log.remaining()
    }

    /// Waits until an event may happen, and counts it.
    ///
    /// Callers line up in the order in which their futures are first polled. A caller that
    /// gives up costs the ones behind it nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. An event that did not happen is not counted, and
    /// the next caller moves up.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::{WaitError, Window};
    ///
    /// # futures_executor::block_on(async {
    /// let window = Window::new(2, Duration::from_millis(10));
    /// for _ in 0..4 {
    ///     window.wait().await?;
    ///     // runs at most twice in any 10 ms
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.wait_n(1).await
    }

    /// Waits until `n` events may happen at once, and counts them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// At once: [`WaitError::ExceedsBurst`] if `n` is more than a window allows, and
    /// [`WaitError::Never`] if the window takes more than 292 years.
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        self.line_up(n).tokens().await
    }

    /// Blocks this thread until an event may happen, and counts it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking(&self) -> Result<(), WaitError> {
        self.wait_n_blocking(1)
    }

    /// Blocks this thread until `n` events may happen at once, and counts them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking(&self, n: u32) -> Result<(), WaitError> {
        self.line_up(n).tokens_blocking()
    }

    pub(super) fn line_up(
        &self,
        n: u32,
    ) -> WaitInLine<&impl LineOwner<Claim = LoggedEvents>> {
        let request = Request::patient(At::Now(self.shared.now()), n);
        WaitInLine::new(&*self.shared, request)
    }
}

impl Shared {
    fn now(&self) -> Moment {
        self.timeline.moment(self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineOwner for Shared {
    type Claim = LoggedEvents;

    fn clock(&self) -> &AnyClock {
        &self.clock
    }

    fn timeline(&self) -> Timeline {
        self.timeline
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<LoggedEvents>, Wakes) {
        let WindowState { log, line } = &mut *self.lock();
        let at = At::Now(log.pass(request.at.given()));
        line.join(log, Request { at, ..request }, wake)
    }

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<LoggedEvents>, Wakes) {
        let WindowState { log, line } = &mut *self.lock();
        let now = log.pass(now);
        line.poll(log, ticket, now, wake)
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        let WindowState { log, line } = &mut *self.lock();
        let now = log.pass(now);
        line.leave(log, ticket, now)
    }
}

impl WindowState {
    /// Counts `n` events if all may happen now and no waiter comes first.
    fn allow(&mut self, n: u32, now: Moment) -> (bool, Wakes) {
        let at = self.log.pass(now);
        let wakes = self.line.settle(&mut self.log, at);
        let has_room = self.log.ready(n, at).is_ok_and(|ready| ready <= at);
        let allowed = has_room && self.line.is_empty();
        if allowed {
            self.log.push(n, at);
        }
        (allowed, wakes)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("n", &self.shared.n)
            .field("per", &duration(self.shared.per))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
