//! The pacer: a leaky bucket that spaces events evenly.
//!
//! # Invariants
//!
//! 1. A slot in the future is held by the first waiter in line and by no other caller. So
//!    it is the last slot until it is used or given back.
//! 2. `has_line` is a hint, as in `limiter.rs`. No clock and no waker is called with the
//!    lock of the line held.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::bucket::{Ask, At, Patience, Refusal};
use super::error::InvalidPace;
use super::line::{Held, Line, Look, Meter, Ticket};
use super::moment::{FOREVER, Moment, Timeline, duration};
use super::pace::{Pace, Slot};
use super::versioned::{Step, Versioned};
use super::waiting::{Host, Waiting};
use crate::clock::{AnyClock, Clock};
use crate::sync::{self, Mutex};
use crate::wake::{Wake, Wakes};

/// Spaces events evenly: Uber's `ratelimit`, a leaky bucket with slack.
///
/// Each [`take`](Self::take) waits for its own slot, one spacing after the slot before it.
/// Where a [`Limiter`](super::Limiter) lets a burst through and then nothing, a pacer lets
/// one event through and then the next.
///
/// # Slack
///
/// Unused slots are not quite lost: up to *slack* of them, 10 by default, can be made up
/// for. So after a long pause up to `slack + 1` events happen at once, and then one each
/// spacing; without slack never more than one. A new pacer has no unused slots and starts
/// without a burst.
///
/// A spacing need not be a whole number of nanoseconds: what is left is carried over, so
/// 7 a minute are 7 a minute. Clones share the slots.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::rate::Pacer;
/// use requeue::testing::FakeClock;
///
/// let clock = FakeClock::new();
/// let pacer = Pacer::builder(10).clock(clock.clone()).build();
/// assert!(pacer.try_take().is_ok());
/// assert_eq!(pacer.try_take(), Err(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// assert_eq!(pacer.try_take(), Ok(clock.now()));
/// ```
#[doc(alias = "ratelimit")]
#[doc(alias = "leaky bucket")]
#[derive(Clone)]
pub struct Pacer {
    shared: Arc<Shared>,
}

struct Shared {
    clock: AnyClock,
    timeline: Timeline,
    pace: Pace,
    /// Invariant 2.
    has_line: AtomicBool,
    /// The latest slot that is used or held.
    last: Versioned<2>,
    line: Mutex<Line<Taken>>,
}

impl Pacer {
    /// Makes a pacer of `permissions` a second with a slack of 10.
    ///
    /// With 0 no permission is ever given; [`PacerBuilder::try_build`] refuses that.
    pub fn new(permissions: u32) -> Self {
        Self::builder(permissions).build()
    }

    /// Makes a pacer that never waits.
    #[doc(alias = "NewUnlimited")]
    pub fn unlimited() -> Self {
        Self::builder(1).per(Duration::ZERO).build()
    }

    /// Starts to make a pacer of `permissions` in a period, a second unless told otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::Pacer;
    ///
    /// let pacer = Pacer::builder(7).per(Duration::from_secs(60)).slack(0).build();
    /// assert!(pacer.try_take().is_ok());
    /// assert!(pacer.try_take().unwrap_err() > Duration::from_secs(8));
    /// ```
    pub fn builder(permissions: u32) -> PacerBuilder {
        PacerBuilder {
            permissions,
            period: Duration::from_secs(1),
            slack: 10,
            clock: AnyClock::System,
        }
    }

    /// Waits for the next slot, takes it and returns its time.
    ///
    /// That is the time of the slot if there was a wait, however late the caller woke, and
    /// the present otherwise. Callers line up in the order in which their futures are first
    /// polled. Only the first in line holds a slot, so a caller that gives up leaves no gap.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The next caller gets the slot. If the time of
    /// the slot had come already, and the next caller has a later one, the slot stays empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::rate::Pacer;
    ///
    /// # futures_executor::block_on(async {
    /// let pacer = Pacer::new(100);
    /// let first = pacer.take().await;
    /// let second = pacer.take().await;
    /// assert_eq!(second - first, Duration::from_millis(10));
    /// # });
    /// ```
    #[doc(alias = "Take")]
    pub async fn take(&self) -> Instant {
        let now = self.shared.clock.now();
        if self.take_now(now) {
            return now;
        }
        let taken = Waiting::new(self, self.ask(now)).await;
        self.time(taken, now)
    }

    /// Blocks this thread until the next slot, takes it and returns its time.
    ///
    /// See [`take`](Self::take).
    #[doc(alias = "Take")]
    pub fn take_blocking(&self) -> Instant {
        let now = self.shared.clock.now();
        if self.take_now(now) {
            return now;
        }
        self.take_later(now)
    }

    #[cold]
    #[inline(never)]
    fn take_later(&self, now: Instant) -> Instant {
        let taken = Waiting::new(self, self.ask(now)).block();
        self.time(taken, now)
    }

    /// Takes the next slot if its time has come, and returns the present time.
    ///
    /// # Errors
    ///
    /// How long it is until the next slot that is not taken or waited for. Nothing is taken.
    pub fn try_take(&self) -> Result<Instant, Duration> {
        let instant = self.shared.clock.now();
        if self.take_now(instant) {
            return Ok(instant);
        }
        let now = self.shared.timeline.moment(instant);
        let next = self.with_line(|line, shared| shared.after(now, line.wanted()));
        Err(duration(next.due().since(now)))
    }

    /// Takes the next slot if its time has come and no waiter comes first.
    #[inline]
    fn take_now(&self, instant: Instant) -> bool {
        // Relaxed: the hint of invariant 2.
        if self.shared.has_line.load(Ordering::Relaxed) && !self.settle(instant) {
            return false;
        }
        self.shared.last.exchange(|words| {
            let now = self.shared.timeline.moment(instant);
            let slot = self.shared.pace.next(Slot::from_words(words), now);
            let is_due = slot.due() <= now;
            // Without a due slot the same words are written: invariant 1.
            (if is_due { Slot::to_words(Some(slot)) } else { words }, is_due)
        })
    }

    /// Grants the slots whose time has come. Returns whether the line is then empty.
    #[cold]
    #[inline(never)]
    fn settle(&self, instant: Instant) -> bool {
        let now = self.shared.timeline.moment(instant);
        let (is_empty, wakes) = self.with_line(|line, mut shared| {
            let wakes = line.settle(&mut shared, now);
            (line.is_empty(), wakes)
        });
        wakes.wake();
        is_empty
    }

    fn ask(&self, now: Instant) -> Ask {
        let at = At::Now(self.shared.timeline.moment(now));
        Ask { at, n: 1, patience: Patience::UpTo(FOREVER) }
    }

    /// The time of a slot that was waited for since `asked`.
    fn time(&self, taken: Result<Held<Taken>, Refusal>, asked: Instant) -> Instant {
        let ready = taken.expect("a pacer refuses no wait").ready;
        self.shared.timeline.instant(ready).max(asked)
    }

    fn with_line<R>(&self, step: impl FnOnce(&mut Line<Taken>, &Shared) -> R) -> R {
        let mut line = sync::lock(&self.shared.line);
        let result = step(&mut line, &self.shared);
        self.shared.has_line.store(!line.is_empty(), Ordering::Relaxed);
        result
    }
}

/// The words of the pacer before and after a slot was taken.
#[derive(Debug)]
pub(super) struct Taken {
    before: [u64; 2],
    after: [u64; 2],
}

impl Shared {
    /// The slot after the last one and `ahead` others.
    fn after(&self, now: Moment, ahead: u64) -> Slot {
        self.pace.next_after(Slot::from_words(self.last.read()), now, ahead)
    }
}

impl Meter for &Shared {
    type Claim = Taken;

    fn reserve(&mut self, ask: Ask) -> Result<Held<Taken>, Refusal> {
        Ok(self.last.exchange(|before| {
            let slot = self.pace.next(Slot::from_words(before), ask.at.given());
            let after = Slot::to_words(Some(slot));
            (after, Held { ready: slot.due(), claim: Taken { before, after } })
        }))
    }

    /// Gives a slot back, if it is still the last one.
    fn give_back(&mut self, taken: Taken, _now: Moment) {
        self.last.update(|words| {
            if words == taken.after {
                Step::Replace(taken.before, ())
            } else {
                Step::Keep(())
            }
        });
    }

    fn expect(&self, ask: Ask, ahead: u64) -> Result<Moment, Refusal> {
        Ok(self.after(ask.at.given(), ahead).due())
    }
}

impl Host for Pacer {
    type Claim = Taken;

    fn clock(&self) -> &AnyClock {
        &self.shared.clock
    }

    fn timeline(&self) -> Timeline {
        self.shared.timeline
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<Taken>, Wakes) {
        self.with_line(|line, mut shared| line.join(&mut shared, ask, wake))
    }

    fn look(&self, ticket: Ticket, now: Moment, wake: Wake) -> (Look<Taken>, Wakes) {
        self.with_line(|line, mut shared| line.look(&mut shared, ticket, now, wake))
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        self.with_line(|line, mut shared| line.leave(&mut shared, ticket, now))
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("pace", &self.shared.pace).finish_non_exhaustive()
    }
}

/// Makes a [`Pacer`]; begun by [`Pacer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct PacerBuilder {
    permissions: u32,
    period: Duration,
    slack: u32,
    clock: AnyClock,
}

impl PacerBuilder {
    /// Sets the period that the permissions are spread over; a second unless set.
    ///
    /// Without a length it makes a pacer that never waits; [`try_build`](Self::try_build)
    /// refuses that.
    #[doc(alias = "Per")]
    pub fn per(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Sets how many unused slots can be made up for; 10 unless set.
    ///
    /// After a pause up to `slots + 1` events happen at once. 0 makes the spacing strict.
    #[doc(alias = "WithSlack")]
    #[doc(alias = "WithoutSlack")]
    pub fn slack(self, slots: u32) -> Self {
        Self { slack: slots, ..self }
    }

    /// Sets the clock that the pacer asks and waits on.
    #[doc(alias = "WithClock")]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: AnyClock::new(clock), ..self }
    }

    /// Makes the pacer, whatever the numbers.
    ///
    /// 0 permissions are never given: `take` waits for ever and `try_take` always fails. In
    /// a period of no length all are given at once.
    pub fn build(self) -> Pacer {
        let Self { permissions, period, slack, clock } = self;
        let timeline = Timeline::from(clock.now());
        let pace = Pace::new(permissions, period, slack);
        let last = Versioned::new(Slot::to_words(None));
        let (has_line, line) = (AtomicBool::new(false), Mutex::new(Line::new()));
        let shared = Shared { clock, timeline, pace, has_line, last, line };
        Pacer { shared: Arc::new(shared) }
    }

    /// Makes the pacer, if the numbers make a pace.
    ///
    /// # Errors
    ///
    /// [`InvalidPace`] if there are 0 permissions or the period has no length.
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

#[cfg(test)]
mod tests;
