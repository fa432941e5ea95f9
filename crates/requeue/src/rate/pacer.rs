//! A leaky bucket that spaces events evenly.
//!
//! # Invariants
//!
//! 1. Only the first waiter in line holds a slot in the future. So that slot stays the last
//!    one until it is used or given back.
//! 2. `has_line` is a hint, as in `limiter/shared.rs`. No clock and no waker is called with
//!    the lock of the line held.

mod builder;
mod pace;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::builder::PacerBuilder;
use self::pace::{Pace, SlotTime};
use super::bucket::{At, Refusal, Request};
use super::line::wait::{LineOwner, WaitInLine};
use super::line::{Held, LineStatus, Ticket, TokenSource, WaiterLine};
use super::moment::{Moment, Timeline, duration};
use super::versioned::{Step, Versioned};
use crate::clock::AnyClock;
use crate::sync::{self, Mutex};
use crate::wake::{Wake, Wakes};

/// Spaces events evenly: Uber's `ratelimit`, a leaky bucket with slack.
///
/// Each [`take`](Self::take) waits for its own slot, one interval after the previous slot. A
/// [`Limiter`](super::Limiter) lets a whole burst through at once; a pacer lets one event
/// through at a time. Clones share the slots.
///
/// The interval need not be a whole number of nanoseconds. The remainder is carried over, so
/// 7 per minute is exactly 7 per minute.
///
/// # Slack
///
/// Up to *slack* unused slots, 10 by default, can be used later. So after a long pause, up to
/// `slack + 1` events happen at once. With a slack of 0, events never happen together. A new
/// pacer has no unused slots, so it starts without a burst.
///
/// # Contention
///
/// A call that does not wait costs one compare-and-swap. While one thread writes the new
/// slot, which takes a few nanoseconds, others spin. If the scheduler interrupts a thread
/// there, others yield until it runs again.
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
    /// The latest slot that was used or is held.
    last: Versioned<2>,
    line: Mutex<WaiterLine<TakenSlot>>,
}

impl Pacer {
    /// Creates a pacer of `permissions` per second, with a slack of 10.
    ///
    /// With 0 permissions, `take` waits forever; [`PacerBuilder::try_build`] refuses that.
    pub fn new(permissions: u32) -> Self {
        Self::builder(permissions).build()
    }

    /// Creates a pacer that never waits.
    #[doc(alias = "NewUnlimited")]
    pub fn unlimited() -> Self {
        Self::builder(1).per(Duration::ZERO).build()
    }

    /// Configures a pacer of `permissions` per period; the period is one second by default.
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
        PacerBuilder::new(permissions)
    }

    fn on(clock: AnyClock, pace: Pace) -> Self {
        let timeline = Timeline::from(clock.now());
        let shared = Shared {
            clock,
            timeline,
            pace,
            has_line: AtomicBool::new(false),
            last: Versioned::new(SlotTime::to_words(None)),
            line: Mutex::new(WaiterLine::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits for the next slot, takes it and returns its time.
    ///
    /// After a wait this is the exact time of the slot, even if the caller woke up late.
    /// Without a wait it is the current time. Callers line up in the order in which their
    /// futures are first polled. Only the first in line holds a slot, so a caller that gives
    /// up leaves no gap.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and the next caller gets the slot. The slot stays
    /// unused if its time has come and the next caller has a later slot already.
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
        let taken = WaitInLine::new(&*self.shared, self.request(now)).await;
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
        let taken = WaitInLine::new(&*self.shared, self.request(now)).block();
        self.time(taken, now)
    }

    /// Takes the next slot if its time has come, and returns the current time.
    ///
    /// # Errors
    ///
    /// Returns the time until the next free slot, after the slots of all callers in line.
    /// Nothing is taken.
    pub fn try_take(&self) -> Result<Instant, Duration> {
        let instant = self.shared.clock.now();
        if self.take_now(instant) {
            return Ok(instant);
        }
        let now = self.shared.timeline.moment(instant);
        let next = self.shared.with_line(|line, shared| shared.after(now, line.wanted()));
        Err(duration(next.due().since(now)))
    }

    /// Takes the next slot if its time has come and no waiter comes first.
    #[inline]
    fn take_now(&self, instant: Instant) -> bool {
        // Relaxed: invariant 2.
        if self.shared.has_line.load(Ordering::Relaxed) && !self.settle(instant) {
            return false;
        }
        self.shared.last.exchange(|words| {
            let now = self.shared.timeline.moment(instant);
            let slot = self.shared.pace.next(SlotTime::from_words(words), now);
            let is_due = slot.due() <= now;
            // If no slot is due, the same words are written (invariant 1).
            (if is_due { SlotTime::to_words(Some(slot)) } else { words }, is_due)
        })
    }

    /// Grants the slots whose time has come. Returns whether the line is then empty.
    #[cold]
    #[inline(never)]
    fn settle(&self, instant: Instant) -> bool {
        let now = self.shared.timeline.moment(instant);
        let (is_empty, wakes) = self.shared.with_line(|line, mut shared| {
            let wakes = line.settle(&mut shared, now);
            (line.is_empty(), wakes)
        });
        wakes.wake();
        is_empty
    }

    fn request(&self, now: Instant) -> Request {
        Request::patient(At::Now(self.shared.timeline.moment(now)), 1)
    }

    /// Returns the time of a slot, which is not before the call.
    fn time(&self, taken: Result<Held<TakenSlot>, Refusal>, asked: Instant) -> Instant {
        let ready = taken.expect("a pacer refuses no wait").ready;
        self.shared.timeline.instant(ready).max(asked)
    }
}

/// The words of the pacer before and after a slot was taken.
#[derive(Debug)]
struct TakenSlot {
    before: [u64; 2],
    after: [u64; 2],
}

impl Shared {
    fn with_line<R>(
        &self,
        step: impl FnOnce(&mut WaiterLine<TakenSlot>, &Self) -> R,
    ) -> R {
        let mut line = sync::lock(&self.line);
        let result = step(&mut line, self);
        self.has_line.store(!line.is_empty(), Ordering::Relaxed);
        result
    }

    /// Returns the slot after the last one and `ahead` others.
    fn after(&self, now: Moment, ahead: u64) -> SlotTime {
        self.pace.next_after(SlotTime::from_words(self.last.read()), now, ahead)
    }
}

impl TokenSource for &Shared {
    type Claim = TakenSlot;

    fn reserve(&mut self, request: Request) -> Result<Held<TakenSlot>, Refusal> {
        Ok(self.last.exchange(|before| {
            let slot = self.pace.next(SlotTime::from_words(before), request.at.given());
            let after = SlotTime::to_words(Some(slot));
            (after, Held { ready: slot.due(), claim: TakenSlot { before, after } })
        }))
    }

    /// Gives a slot back if it is still the last one.
    fn give_back(&mut self, taken: TakenSlot, _now: Moment) {
        self.last.update(|words| {
            if words == taken.after {
                Step::Replace(taken.before, ())
            } else {
                Step::Keep(())
            }
        });
    }

    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal> {
        Ok(self.after(request.at.given(), ahead).due())
    }
}

impl LineOwner for Shared {
    type Claim = TakenSlot;

    fn clock(&self) -> &AnyClock {
        &self.clock
    }

    fn timeline(&self) -> Timeline {
        self.timeline
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<TakenSlot>, Wakes) {
        self.with_line(|line, mut shared| line.join(&mut shared, request, wake))
    }

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<TakenSlot>, Wakes) {
        self.with_line(|line, mut shared| line.poll(&mut shared, ticket, now, wake))
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

#[cfg(test)]
mod tests;
