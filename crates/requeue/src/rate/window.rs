//! At most so many events in any stretch of time.
//!
//! # Invariants
//!
//! 1. The log holds, in order, the times of all events that were granted and lie in the
//!    last `per` or in the future. Also those before the latest `n`: they matter again if
//!    later ones are taken back.
//! 2. Any `n + 1` events in a row span at least `per`.
//! 3. Time does not go back: a call counts as made at the latest time that any call has
//!    seen.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{ReserveError, WaitError};
use super::moment::{FOREVER, Moment, Nanos, Timeline, duration, nanos};
use crate::clock::{AnyClock, Clock};

/// Lets at most `n` events happen in any stretch of time as long as `per`.
///
/// A [`Limiter`](super::Limiter) of 100 a minute with a burst of 100 lets up to 200 events
/// happen within one minute: the burst, and what comes in meanwhile. This limiter lets no
/// more than 100 happen in *any* minute, whenever it starts. Use it where somebody else
/// counts that way, as many services do, and a `Limiter` everywhere else.
///
/// It is exact: a log of the times of the latest events, not two weighted counters. So it
/// takes 8 bytes for each event of the last `per`, so 8 × `n` bytes at the most, and 8 for
/// each that is waited for. Clones share the log.
///
/// Any numbers will do. With an `n` of 0 nothing is ever allowed; with a `per` of zero,
/// everything up to `n` at once. A `per` of more than 292 years counts as that.
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
#[derive(Clone)]
pub struct Window {
    shared: Arc<Shared>,
}

struct Shared {
    clock: AnyClock,
    timeline: Timeline,
    n: u32,
    per: Nanos,
    log: Mutex<Log>,
}

impl Window {
    /// Makes a limiter of `n` events in any stretch of `per`.
    pub fn new(n: u32, per: Duration) -> Self {
        Self::on(AnyClock::System, n, per)
    }

    /// Makes a limiter that asks `clock` for the time.
    pub fn with_clock(n: u32, per: Duration, clock: impl Clock) -> Self {
        Self::on(AnyClock::new(clock), n, per)
    }

    fn on(clock: AnyClock, n: u32, per: Duration) -> Self {
        let timeline = Timeline::from(clock.now());
        let log = Log { events: VecDeque::new(), latest: Moment::START };
        let (per, log) = (nanos(per), Mutex::new(log));
        Self { shared: Arc::new(Shared { clock, timeline, n, per, log }) }
    }

    /// Notes an event if it may happen now, and says whether.
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Notes `n` events if all may happen now, and says whether.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.now();
        let mut log = self.lock();
        let at = log.pass(now);
        let allowed = log.ready(self.terms(), n, at).is_ok_and(|ready| ready <= at);
        if allowed {
            log.note(self.terms(), n, at);
        }
        allowed
    }

    /// How long until an event may happen, without noting it.
    ///
    /// # Errors
    ///
    /// As [`peek_n`](Self::peek_n).
    pub fn peek(&self) -> Result<Duration, ReserveError> {
        self.peek_n(1)
    }

    /// How long until `n` events may happen at once, without noting them.
    ///
    /// # Errors
    ///
    /// [`ReserveError::ExceedsBurst`] if `n` is more than ever may happen in one stretch,
    /// [`ReserveError::Never`] if that stretch takes more than 292 years.
    pub fn peek_n(&self, n: u32) -> Result<Duration, ReserveError> {
        let now = self.now();
        let mut log = self.lock();
        let at = log.pass(now);
        let ready = log.ready(self.terms(), n, at)?;
        Ok(duration(ready.since(now)))
    }

    /// How many more events may happen now.
    ///
    /// Others may come first: this is for looking at, not for deciding by.
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
        let now = self.now();
        let mut log = self.lock();
        log.pass(now);
        log.expire(self.shared.per);
        let events = u32::try_from(log.events.len()).unwrap_or(u32::MAX);
        self.shared.n.saturating_sub(events)
    }

    /// Waits until an event may happen, and notes it.
    ///
    /// Callers are served in the order in which they came.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready takes its event out of the log. Those
    /// who wait behind it keep their times.
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
    ///     window.wait().await?; // at most two of these in any 10 ms
    /// }
    /// # Ok::<(), WaitError>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.wait_n(1).await
    }

    /// Waits until `n` events may happen at once, and notes them.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// At once: [`WaitError::ExceedsBurst`] if `n` is more than ever may happen in one
    /// stretch, [`WaitError::Never`] if that stretch takes more than 292 years.
    pub async fn wait_n(&self, n: u32) -> Result<(), WaitError> {
        let Some(place) = self.line_up(n)? else { return Ok(()) };
        while self.shared.clock.now() < place.until {
            self.shared.clock.timer(place.until).await;
        }
        place.use_up();
        Ok(())
    }

    /// Blocks this thread until an event may happen, and notes it.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_blocking(&self) -> Result<(), WaitError> {
        self.wait_n_blocking(1)
    }

    /// Blocks this thread until `n` events may happen at once, and notes them.
    ///
    /// # Errors
    ///
    /// As [`wait_n`](Self::wait_n).
    pub fn wait_n_blocking(&self, n: u32) -> Result<(), WaitError> {
        let Some(place) = self.line_up(n)? else { return Ok(()) };
        self.shared.clock.sleep_until(place.until);
        place.use_up();
        Ok(())
    }

    /// Notes the events; `None` if they may happen at once.
    fn line_up(&self, n: u32) -> Result<Option<Place<'_>>, WaitError> {
        let now = self.now();
        let mut log = self.lock();
        let at = log.pass(now);
        let ready = log.ready(self.terms(), n, at)?;
        log.note(self.terms(), n, ready);
        drop(log);
        if ready <= at {
            return Ok(None);
        }
        let until = self.shared.timeline.instant(ready);
        Ok(Some(Place { window: self, until, ready, n }))
    }

    fn terms(&self) -> Terms {
        Terms { n: self.shared.n, per: self.shared.per }
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }

    /// Under this lock runs no user code.
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `n` events in any stretch of `per`.
#[derive(Clone, Copy)]
struct Terms {
    n: u32,
    per: Nanos,
}

/// The events that still matter.
struct Log {
    events: VecDeque<Moment>,
    /// The latest time that a call has seen (invariant 3).
    latest: Moment,
}

impl Log {
    /// Notes that it is `now`, and gives the time that counts.
    fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// When `n` more events may happen.
    fn ready(&self, terms: Terms, n: u32, now: Moment) -> Result<Moment, ReserveError> {
        let exceeded = ReserveError::ExceedsBurst { asked: n, burst: terms.n };
        let free = terms.n.checked_sub(n).ok_or(exceeded)? as usize;
        // Of the events in the log all but `free` must have left the stretch that ends
        // with the new ones (invariant 2).
        let left = match self.events.len().checked_sub(free + 1) {
            None => now,
            Some(_) if terms.per == FOREVER => {
                return Err(ReserveError::Never { asked: n });
            }
            Some(i) => self.events[i].plus(terms.per),
        };
        // In order (invariant 1): not before those who wait already.
        let last = self.events.back().map_or(now, |&last| last);
        Ok(now.max(left).max(last))
    }

    fn note(&mut self, terms: Terms, n: u32, at: Moment) {
        self.expire(terms.per);
        self.events.extend(std::iter::repeat_n(at, n as usize));
    }

    /// Forgets the events that no stretch up to now or later holds.
    fn expire(&mut self, per: Nanos) {
        while self.events.front().is_some_and(|event| event.plus(per) <= self.latest) {
            self.events.pop_front();
        }
        if self.events.len() < self.events.capacity() / 8 {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    /// Takes `n` events at `at` out again.
    fn erase(&mut self, n: u32, at: Moment) {
        let after = self.events.partition_point(|&event| event <= at);
        let first = after.saturating_sub(n as usize);
        if self.events.get(first) == Some(&at) {
            self.events.drain(first..after);
        }
    }
}

/// A place in the line of those who wait. Who leaves it takes its events out of the log.
struct Place<'a> {
    window: &'a Window,
    until: Instant,
    ready: Moment,
    n: u32,
}

impl Place<'_> {
    fn use_up(mut self) {
        self.n = 0;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.n > 0 {
            self.window.lock().erase(self.n, self.ready);
        }
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
