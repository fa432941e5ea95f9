//! Clocks: the only place in the library that reads the system time.

mod alarms;
mod slack;
#[cfg(feature = "tokio")]
mod tokio_clock;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use self::alarms::Alarm;
#[cfg(feature = "tokio")]
pub use self::tokio_clock::TokioClock;

/// A source of time that queues, limiters and pools can wait on.
///
/// Everything in this crate reads its clock, never the system time. A test with a fake clock
/// moves time by hand and does not sleep.
///
/// An implementation needs only [`now`](Clock::now). The other two methods then wait in real
/// time; override them if the clock does not follow it. A queue calls `now` with its lock held,
/// so `now` must not call the queue.
///
/// # Examples
///
/// ```
/// use requeue::{Clock, SystemClock};
///
/// let before = SystemClock.now();
/// assert!(SystemClock.now() >= before);
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. It never goes back.
    fn now(&self) -> Instant;

    /// Returns a future that is ready when [`now`](Clock::now) has reached `deadline`.
    fn timer(&self, deadline: Instant) -> Timer {
        Timer::after(deadline.saturating_duration_since(self.now()))
    }

    /// Blocks this thread until `deadline`, or until the thread is unparked.
    ///
    /// It may wake up spuriously, as [`std::thread::park_timeout`] may. Callers check their
    /// condition and park again.
    fn park_until(&self, deadline: Instant) {
        std::thread::park_timeout(deadline.saturating_duration_since(self.now()));
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn timer(&self, deadline: Instant) -> Timer {
        (**self).timer(deadline)
    }

    fn park_until(&self, deadline: Instant) {
        (**self).park_until(deadline);
    }
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn timer(&self, deadline: Instant) -> Timer {
        Timer(Inner::System(Alarm::new(Some(deadline))))
    }

    fn park_until(&self, deadline: Instant) {
        let timeout = deadline.saturating_duration_since(self.now());
        slack::without(|| std::thread::park_timeout(timeout));
    }
}

/// A future that is ready at a deadline; returned by [`Clock::timer`].
///
/// # Cancel safety
///
/// Dropping a timer cancels it.
#[must_use = "futures do nothing unless polled"]
pub struct Timer(Inner);

enum Inner {
    System(Alarm),
    Other(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Timer {
    /// Wraps a future, for clocks that have their own timers.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Inner::Other(Box::pin(future)))
    }

    /// Returns a timer that is ready after `delay` of real time.
    ///
    /// It is never ready if that exceeds the range of [`Instant`].
    pub fn after(delay: Duration) -> Self {
        Self(Inner::System(Alarm::new(SystemClock.now().checked_add(delay))))
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Inner::System(alarm) => Pin::new(alarm).poll(cx),
            Inner::Other(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

/// The clock of a queue or a limiter. The system clock needs no virtual call.
#[derive(Clone, Default)]
pub(crate) enum AnyClock {
    #[default]
    System,
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self::Other(Arc::new(clock))
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System => SystemClock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Self::System)
    }

    pub(crate) fn timer(&self, deadline: Instant) -> Timer {
        match self {
            Self::System => SystemClock.timer(deadline),
            Self::Other(clock) => clock.timer(deadline),
        }
    }

    pub(crate) fn park_until(&self, deadline: Instant) {
        match self {
            Self::System => SystemClock.park_until(deadline),
            Self::Other(clock) => clock.park_until(deadline),
        }
    }
}

impl fmt::Debug for AnyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("SystemClock"),
            Self::Other(_) => f.write_str("Clock"),
        }
    }
}
