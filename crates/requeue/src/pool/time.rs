//! The clock of a pool, with its panics contained.
//!
//! A clock is user code. Real time replaces a clock or timer that panics.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::contain::contain;
use crate::{Clock, Timer};

/// The clock of one pool.
pub(super) struct Time(Box<dyn Clock>);

impl Time {
    pub(super) fn new(clock: impl Clock) -> Self {
        Self(Box::new(clock))
    }

    /// Returns the present moment, or `None` if the clock panics.
    pub(super) fn now(&self) -> Option<Instant> {
        contain(|| self.0.now())
    }

    /// Returns how much time has passed since `moment`, or zero if the clock panics.
    pub(super) fn since(&self, moment: Instant) -> Duration {
        let passed = self.now().map(|now| now.saturating_duration_since(moment));
        passed.unwrap_or_default()
    }

    /// Returns a future that is ready after `delay`.
    pub(super) fn sleep(&self, delay: Duration) -> Sleep {
        let timer = contain(|| {
            let moment = self.0.now().checked_add(delay)?;
            Some(self.0.timer(moment))
        });
        Sleep { timer: timer.unwrap_or_else(|| Some(Timer::after(delay))), delay }
    }
}

/// A future that is ready after a delay.
pub(super) struct Sleep {
    /// `None` if the moment exceeds the range of [`Instant`]: it never comes.
    timer: Option<Timer>,
    delay: Duration,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        contain(|| Pin::new(timer).poll(cx)).unwrap_or_else(|| {
            let mut timer = Timer::after(self.delay);
            let poll = Pin::new(&mut timer).poll(cx);
            let panicked = self.timer.replace(timer);
            contain(|| drop(panicked));
            poll
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let timer = self.timer.take();
        contain(|| drop(timer));
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::testing::FakeClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn poll(sleep: &mut Sleep) -> Poll<()> {
        Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn sleep_ends_with_the_clock() {
        let clock = FakeClock::new();
        let mut sleep = Time::new(clock.clone()).sleep(SECOND);
        assert!(poll(&mut sleep).is_pending());
        clock.advance(SECOND);
        assert!(poll(&mut sleep).is_ready());
        assert_eq!(clock.timers(), 0);
    }

    #[test]
    fn sleep_beyond_the_range_of_an_instant_never_ends() {
        let clock = FakeClock::new();
        let mut sleep = Time::new(clock.clone()).sleep(Duration::MAX);
        assert!(poll(&mut sleep).is_pending());
        assert_eq!(clock.timers(), 0);
    }

    #[test]
    fn dropped_sleep_leaves_no_timer() {
        let clock = FakeClock::new();
        let mut sleep = Time::new(clock.clone()).sleep(SECOND);
        assert!(poll(&mut sleep).is_pending());
        drop(sleep);
        assert_eq!(clock.timers(), 0);
    }

    #[test]
    fn time_passes_with_the_clock_and_never_backwards() {
        let clock = FakeClock::new();
        let (time, start) = (Time::new(clock.clone()), clock.now());
        assert_eq!(time.since(start + SECOND), Duration::ZERO);
        clock.advance(SECOND);
        assert_eq!(time.since(start), SECOND);
    }

    /// A clock that panics.
    struct Broken;

    impl Clock for Broken {
        fn now(&self) -> Instant {
            panic!("a clock that panics, on purpose");
        }
    }

    #[test]
    fn real_time_replaces_a_clock_that_panics() {
        let time = Time::new(Broken);
        assert_eq!(time.now(), None);
        assert_eq!(time.since(FakeClock::new().now()), Duration::ZERO);
        assert!(poll(&mut time.sleep(SECOND * 3600)).is_pending());
        assert!(poll(&mut time.sleep(Duration::ZERO)).is_ready());
    }

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("a drop that panics, on purpose");
        }
    }

    /// A clock whose timers panic when they are dropped.
    struct BadTimers;

    impl Clock for BadTimers {
        fn now(&self) -> Instant {
            FakeClock::new().now()
        }

        fn timer(&self, _: Instant) -> Timer {
            let bad = PanicsOnDrop;
            Timer::new(std::future::poll_fn(move |_| {
                let _bad = &bad;
                Poll::Pending
            }))
        }
    }

    #[test]
    fn timer_whose_drop_panics_is_contained() {
        let mut sleep = Time::new(BadTimers).sleep(SECOND);
        assert!(poll(&mut sleep).is_pending());
        drop(sleep);
    }
}
