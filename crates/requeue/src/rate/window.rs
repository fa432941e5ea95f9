//! At most `n` events in any stretch of time.
//!
//! # Invariants
//!
//! 1. The log holds, in order, the times of all granted events that lie in the last `per`
//!    or in the future. Also those before the latest `n`: they matter again if later ones
//!    are taken back.
//! 2. Any `n + 1` events in a row span at least `per`.
//! 3. Time does not go back: a call counts as made at the latest time that any call has
//!    seen.
//! 4. An event in the future belongs to the first waiter in line.
//! 5. No clock and no waker is called with the lock held.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bucket::{Ask, At, Patience, Refusal};
use super::error::{ReserveError, WaitError};
use super::limiter::refused;
use super::line::{Held, Line, Look, Meter, Ticket};
use super::moment::{FOREVER, Moment, Nanos, Timeline, duration, nanos};
use super::waiting::{Host, Waiting};
use crate::clock::{AnyClock, Clock};
use crate::wake::{Wake, Wakes};

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
    state: Mutex<State>,
}

struct State {
    log: Log,
    line: Line<Noted>,
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
        let per = nanos(per);
        let log = Log::new(Terms { n, per });
        let state = Mutex::new(State { log, line: Line::new() });
        Self { shared: Arc::new(Shared { clock, timeline, n, per, state }) }
    }

    /// Notes an event if it may happen now, and says whether.
    pub fn allow(&self) -> bool {
        self.allow_n(1)
    }

    /// Notes `n` events if all may happen now, and says whether.
    pub fn allow_n(&self, n: u32) -> bool {
        let now = self.now();
        let (allowed, wakes) = self.lock().allow(n, now);
        wakes.wake();
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
        let log = &mut self.lock().log;
        let at = log.pass(now);
        let ready = log.ready(n, at).map_err(|refusal| refused(refusal, n))?;
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
        let log = &mut self.lock().log;
        log.pass(now);
        log.expire();
        let events = u32::try_from(log.events.len()).unwrap_or(u32::MAX);
        self.shared.n.saturating_sub(events)
    }

    /// Waits until an event may happen, and notes it.
    ///
    /// Callers line up in the order in which their futures are first polled. A caller that
    /// gives up costs the ones behind it nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and takes an event that did not happen out of
    /// the log. The next caller takes its place.
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
        let waited = Waiting::new(self, self.ask(n)).await;
        waited.map(drop).map_err(|refusal| refused(refusal, n).into())
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
        let waited = Waiting::new(self, self.ask(n)).block();
        waited.map(drop).map_err(|refusal| refused(refusal, n).into())
    }

    pub(super) fn ask(&self, n: u32) -> Ask {
        Ask { at: At::Now(self.now()), n, patience: Patience::UpTo(FOREVER) }
    }

    fn now(&self) -> Moment {
        self.shared.timeline.moment(self.shared.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for Window {
    type Claim = Noted;

    fn clock(&self) -> &AnyClock {
        &self.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.shared.timeline
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<Noted>, Wakes) {
        let State { log, line } = &mut *self.lock();
        let at = At::Now(log.pass(ask.at.given()));
        line.join(log, Ask { at, ..ask }, wake)
    }

    fn look(&self, ticket: Ticket, now: Moment, wake: Wake) -> (Look<Noted>, Wakes) {
        let State { log, line } = &mut *self.lock();
        let now = log.pass(now);
        line.look(log, ticket, now, wake)
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        let State { log, line } = &mut *self.lock();
        let now = log.pass(now);
        line.leave(log, ticket, now)
    }
}

impl State {
    /// Notes `n` events if all may happen now and no waiter comes first.
    fn allow(&mut self, n: u32, now: Moment) -> (bool, Wakes) {
        let at = self.log.pass(now);
        let wakes = self.line.settle(&mut self.log, at);
        let is_free = self.log.ready(n, at).is_ok_and(|ready| ready <= at);
        let allowed = is_free && self.line.is_empty();
        if allowed {
            self.log.note(n, at);
        }
        (allowed, wakes)
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
    terms: Terms,
    events: VecDeque<Moment>,
    /// The latest time that a call has seen (invariant 3).
    latest: Moment,
    /// From when on the events that have left the log matter no more.
    clear: Moment,
}

/// `n` events in the log that lie at `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    n: u32,
    at: Moment,
}

impl Log {
    fn new(terms: Terms) -> Self {
        let (latest, clear) = (Moment::START, Moment::START);
        Self { terms, events: VecDeque::new(), latest, clear }
    }

    /// Notes that it is `now`, and returns the time that counts.
    fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// When `n` more events may happen, from `at` on.
    fn ready(&self, n: u32, at: Moment) -> Result<Moment, Refusal> {
        let Terms { n: most, per } = self.terms;
        let free = most.checked_sub(n).ok_or(Refusal::ExceedsBurst(most))? as usize;
        // Of the events in the log all but `free` must have left the stretch that ends
        // with the new ones (invariant 2).
        let left = match self.events.len().checked_sub(free + 1) {
            None => at,
            Some(_) if per == FOREVER => return Err(Refusal::Never),
            Some(i) => self.events[i].plus(per),
        };
        Ok(self.in_order(left.max(at)))
    }

    /// `at`, or the time of the last event if that is later (invariant 1).
    fn in_order(&self, at: Moment) -> Moment {
        let last = self.events.back().map_or(at, |&last| last);
        at.max(last).max(self.clear)
    }

    fn note(&mut self, n: u32, at: Moment) {
        self.expire();
        self.events.extend(std::iter::repeat_n(at, n as usize));
    }

    /// Forgets the events that no stretch up to now or later holds.
    fn expire(&mut self) {
        while let Some(clear) =
            self.events.front().map(|event| event.plus(self.terms.per))
        {
            if clear > self.latest {
                break;
            }
            self.events.pop_front();
            self.clear = clear;
        }
        if self.events.len() < self.events.capacity() / 8 {
            self.events.shrink_to(self.events.len() * 2);
        }
    }
}

impl Meter for Log {
    type Claim = Noted;

    fn reserve(&mut self, ask: Ask) -> Result<Held<Noted>, Refusal> {
        let ready = self.ready(ask.n, ask.at.given())?;
        self.note(ask.n, ready);
        Ok(Held { ready, claim: Noted { n: ask.n, at: ready } })
    }

    /// Takes events that do not happen out of the log.
    fn give_back(&mut self, Noted { n, at }: Noted, _now: Moment) {
        let after = self.events.partition_point(|&event| event <= at);
        let first = after.saturating_sub(n as usize);
        if n > 0 && self.events.get(first) == Some(&at) {
            self.events.drain(first..after);
        }
    }

    /// Counts the events ahead as if they came one by one.
    fn expect(&self, ask: Ask, ahead: u64) -> Result<Moment, Refusal> {
        let at = ask.at.given();
        let ready = self.ready(ask.n, at)?;
        let most = u64::from(self.terms.n).max(1);
        let stretches = Nanos::try_from(ahead.div_ceil(most)).unwrap_or(FOREVER);
        Ok(ready.plus(self.terms.per.saturating_mul(stretches)))
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
