//! The pool's clock, used in a way that its panics cost neither a worker nor a deadline.
//!
//! A clock is user code. Where it panics, real time takes its place.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::contain::contain;
use crate::{Clock, Timer};

/// The clock of one pool.
#[derive(Clone)]
pub(super) struct Time(Arc<dyn Clock>);

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    /// Returns the present moment, or `None` if the clock panics.
    pub(super) fn now(&self) -> Option<Instant> {
        contain(|| self.0.now())
    }

    /// Returns how much time has passed since `moment`; zero if the clock panics.
    pub(super) fn since(&self, moment: Instant) -> Duration {
        let passed = self.now().map(|now| now.saturating_duration_since(moment));
        passed.unwrap_or_default()
    }

    /// Returns a deadline that ends after `delay`.
    pub(super) fn deadline(&self, delay: Duration) -> Deadline {
        let timer = self.now().map_or(Some(Timer::after(delay)), |now| {
            let moment = now.checked_add(delay)?;
            Some(contain(|| self.0.timer(moment)).unwrap_or_else(|| Timer::after(delay)))
        });
        Deadline { state: timer.map_or(State::Never, State::Waiting), delay }
    }
}

/// A moment to wait for.
pub(super) struct Deadline {
    state: State,
    /// Used if the timer panics.
    delay: Duration,
}

enum State {
    /// The moment is beyond what an [`Instant`] can hold.
    Never,
    Waiting(Timer),
    Reached,
}

impl Deadline {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.state {
            State::Never => return Poll::Pending,
            State::Waiting(timer) => timer,
            State::Reached => return Poll::Ready(()),
        };
        let polled = contain(|| Pin::new(timer).poll(cx));
        if polled == Some(Poll::Pending) {
            return Poll::Pending;
        }
        let panicked = polled.is_none();
        let next = if panicked { self.in_real_time() } else { State::Reached };
        self.replace(next);
        if panicked { self.poll(cx) } else { Poll::Ready(()) }
    }

    fn in_real_time(&self) -> State {
        State::Waiting(Timer::after(self.delay))
    }

    fn replace(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        contain(|| drop(before));
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.replace(State::Reached);
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::testing::FakeClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn poll(deadline: &mut Deadline) -> Poll<()> {
        deadline.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn deadline_is_reached_once_and_stays_so() {
        let clock = FakeClock::new();
        let mut deadline = Time::new(Arc::new(clock.clone())).deadline(SECOND);
        assert!(poll(&mut deadline).is_pending());
        clock.advance(SECOND);
        assert!(poll(&mut deadline).is_ready() && poll(&mut deadline).is_ready());
        assert_eq!(clock.timers(), 0);
    }

    #[test]
    fn deadline_beyond_an_instant_is_never_reached() {
        let clock = FakeClock::new();
        let mut deadline = Time::new(Arc::new(clock.clone())).deadline(Duration::MAX);
        assert!(poll(&mut deadline).is_pending());
        assert_eq!(clock.timers(), 0);
    }

    #[test]
    fn dropped_deadline_leaves_no_timer() {
        let clock = FakeClock::new();
        let mut deadline = Time::new(Arc::new(clock.clone())).deadline(SECOND);
        assert!(poll(&mut deadline).is_pending());
        drop(deadline);
        assert_eq!(clock.timers(), 0);
    }

    /// A clock that went back.
    struct Earlier(Instant);

    impl Clock for Earlier {
        fn now(&self) -> Instant {
            self.0
        }
    }

    #[test]
    fn time_that_went_back_is_no_time() {
        let start = FakeClock::new().now();
        let time = Time::new(Arc::new(Earlier(start)));
        assert_eq!(time.since(start + SECOND), Duration::ZERO);
    }

    #[test]
    fn time_passes_with_the_clock() {
        let clock = FakeClock::new();
        let (time, start) = (Time::new(Arc::new(clock.clone())), clock.now());
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
    fn clock_that_panics_is_replaced_by_real_time() {
        let time = Time::new(Arc::new(Broken));
        assert_eq!(time.now(), None);
        assert_eq!(time.since(FakeClock::new().now()), Duration::ZERO);
        assert!(poll(&mut time.deadline(SECOND * 3600)).is_pending());
        assert!(poll(&mut time.deadline(Duration::ZERO)).is_ready());
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
        let mut deadline = Time::new(Arc::new(BadTimers)).deadline(SECOND);
        assert!(poll(&mut deadline).is_pending());
        drop(deadline);
    }
}
