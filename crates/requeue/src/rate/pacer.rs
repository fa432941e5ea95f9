//! The pacer: a leaky bucket that spaces events evenly.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::InvalidPace;
use super::moment::{Timeline, duration};
use super::pace::{Pace, Slot};
use super::versioned::{Step, Versioned};
use crate::clock::{AnyClock, Clock};

/// Spaces events evenly: Uber's `ratelimit`, a leaky bucket with slack.
///
/// Each [`take`](Self::take) gets a slot of its own, one spacing after the slot before it,
/// and waits for it. Where a [`Limiter`](super::Limiter) lets a burst through and then
/// nothing, a pacer lets one event through and then the next.
///
/// # Slack
///
/// Time in which nobody takes is not quite lost: *slack* slots of it, 10 unless the builder
/// says otherwise, can be made up for. So after a long pause up to `slack + 1` events
/// happen at once, and then one each spacing; without slack never more than one. A new
/// pacer has no unused time behind it and starts without a burst.
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
    /// The slot handed out last.
    last: Versioned<2>,
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

    /// Takes the next slot and waits for it; gives its time.
    ///
    /// That is the time of the slot if there was a wait, however late the caller woke, and
    /// the present if there was none. Callers are served in the order in which their
    /// futures were first polled.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready gives its slot back if nobody has taken
    /// one after it; else the slot stays empty, and nobody else's time changes.
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
        match self.line_up() {
            Turn::Now(now) => now,
            Turn::Later(mut place) => {
                while self.shared.clock.now() < place.until {
                    self.shared.clock.timer(place.until).await;
                }
                place.use_up()
            }
        }
    }

    /// Takes the next slot and blocks this thread until it comes; gives its time.
    ///
    /// See [`take`](Self::take).
    #[doc(alias = "Take")]
    pub fn take_blocking(&self) -> Instant {
        match self.line_up() {
            Turn::Now(now) => now,
            Turn::Later(place) => place.sleep(),
        }
    }

    /// Takes the next slot if it is there, and gives the present time.
    ///
    /// # Errors
    ///
    /// How long it is until the next slot, if it is not there yet. Nothing is taken.
    pub fn try_take(&self) -> Result<Instant, Duration> {
        let instant = self.shared.clock.now();
        let now = self.shared.timeline.moment(instant);
        self.shared.last.update(|words| {
            let slot = self.shared.pace.next(Slot::from_words(words), now);
            if slot.due() > now {
                Step::Keep(Err(duration(slot.due().since(now))))
            } else {
                Step::Replace(Slot::to_words(Some(slot)), Ok(instant))
            }
        })
    }

    /// Takes the next slot.
    #[inline]
    fn line_up(&self) -> Turn<'_> {
        let instant = self.shared.clock.now();
        let (before, slot, now) = self.shared.last.exchange(|words| {
            let now = self.shared.timeline.moment(instant);
            let slot = self.shared.pace.next(Slot::from_words(words), now);
            (Slot::to_words(Some(slot)), (words, slot, now))
        });
        if slot.due() <= now { Turn::Now(instant) } else { self.later(before, slot) }
    }

    #[cold]
    #[inline(never)]
    fn later(&self, before: [u64; 2], slot: Slot) -> Turn<'_> {
        let until = self.shared.timeline.instant(slot.due());
        let taken = Taken { before, after: Slot::to_words(Some(slot)) };
        Turn::Later(Place { pacer: self, until, taken: Some(taken) })
    }

    /// Gives a slot back, if it is still the last one.
    fn give_back(&self, taken: &Taken) {
        self.shared.last.update(|words| {
            if words == taken.after {
                Step::Replace(taken.before, ())
            } else {
                Step::Keep(())
            }
        });
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("pace", &self.shared.pace).finish_non_exhaustive()
    }
}

/// When the caller may act.
enum Turn<'a> {
    Now(Instant),
    Later(Place<'a>),
}

/// A place in the line of those who wait. Who leaves it gives the slot back.
struct Place<'a> {
    pacer: &'a Pacer,
    until: Instant,
    /// `None` once the slot is used.
    taken: Option<Taken>,
}

/// The words of the pacer before and after a slot was taken.
struct Taken {
    before: [u64; 2],
    after: [u64; 2],
}

impl Place<'_> {
    #[cold]
    #[inline(never)]
    fn sleep(mut self) -> Instant {
        self.pacer.shared.clock.sleep_until(self.until);
        self.use_up()
    }

    fn use_up(&mut self) -> Instant {
        self.taken = None;
        self.until
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(taken) = &self.taken {
            self.pacer.give_back(taken);
        }
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
        Pacer { shared: Arc::new(Shared { clock, timeline, pace, last }) }
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
