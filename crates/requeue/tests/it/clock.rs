//! The fake clock moves only by hand, and then wakes every thread and task that is due.

#[cfg(feature = "tokio")]
mod tokio_clock;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use requeue::testing::FakeClock;
use requeue::{Clock, Timer};

const SECOND: Duration = Duration::from_secs(1);
/// A second minus a nanosecond.
const ALMOST: Duration = Duration::from_nanos(999_999_999);
const NANO: Duration = Duration::from_nanos(1);

/// Counts how often it was woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Task {
    fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(timer: &mut Timer, task: &Arc<Task>) -> Poll<()> {
    poll_with(timer, &Waker::from(Arc::clone(task)))
}

fn poll_with(timer: &mut Timer, waker: &Waker) -> Poll<()> {
    pin!(timer).poll(&mut Context::from_waker(waker))
}

/// Spawns a thread that sleeps until a deadline and returns the time at which it woke.
fn sleeper(clock: &FakeClock, until: Instant) -> JoinHandle<Instant> {
    let clock = clock.clone();
    thread::spawn(move || {
        while clock.now() < until {
            clock.park_until(until);
        }
        clock.now()
    })
}

#[test]
fn clock_stands_still_until_it_is_advanced() {
    let clock = FakeClock::default();
    let start = clock.now();
    assert_eq!(clock.now(), start);
    clock.advance(SECOND);
    assert_eq!(clock.now(), start + SECOND);
    clock.advance(Duration::ZERO);
    assert_eq!(clock.now(), start + SECOND);
}

#[test]
fn clones_share_time_and_timers() {
    let clock = FakeClock::new();
    let clone: Arc<dyn Clock> = Arc::new(clock.clone());
    let task = Arc::default();
    let mut timer = clone.timer(clone.now() + SECOND);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    assert_eq!(clock.timers(), 1);
    clock.advance(SECOND);
    assert_eq!(clone.now(), clock.now());
    assert_eq!(task.wakes(), 1);
}

#[test]
fn two_clocks_share_nothing() {
    let (clock, other) = (FakeClock::new(), FakeClock::new());
    let before = other.now();
    clock.advance(SECOND);
    assert_eq!(other.now(), before);
}

#[test]
fn timer_fires_at_its_deadline_and_not_before() {
    let clock = FakeClock::new();
    let task = Arc::default();
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    clock.advance(ALMOST);
    assert_eq!(task.wakes(), 0);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    clock.advance(NANO);
    assert_eq!(task.wakes(), 1);
    assert_eq!(clock.timers(), 0);
    assert_eq!(poll(&mut timer, &task), Poll::Ready(()));
}

#[test]
fn timer_wakes_its_task_once() {
    let clock = FakeClock::new();
    let task = Arc::default();
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    clock.advance(100 * SECOND);
    clock.advance(100 * SECOND);
    assert_eq!(task.wakes(), 1);
}

#[test]
fn timer_with_a_passed_deadline_is_ready_at_once() {
    let clock = FakeClock::new();
    let past = clock.now();
    clock.advance(SECOND);
    let task = Arc::default();
    for deadline in [past, clock.now()] {
        assert_eq!(poll(&mut clock.timer(deadline), &task), Poll::Ready(()));
    }
    assert_eq!(clock.timers(), 0);
}

#[test]
fn timer_first_polled_after_its_deadline_is_ready() {
    let clock = FakeClock::new();
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(clock.timers(), 0);
    clock.advance(SECOND);
    assert_eq!(poll(&mut timer, &Arc::default()), Poll::Ready(()));
}

/// A task that records its number when it is woken.
struct Numbered(u32, Arc<Mutex<Vec<u32>>>);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

#[test]
fn timers_wake_by_deadline_and_then_in_order_of_arming() {
    let clock = FakeClock::new();
    let woken = Arc::default();
    let start = clock.now();
    let mut timers: Vec<_> =
        [3, 1, 2, 1, 3, 9].iter().map(|at| clock.timer(start + *at * SECOND)).collect();
    for (number, timer) in (0..).zip(&mut timers) {
        let waker = Waker::from(Arc::new(Numbered(number, Arc::clone(&woken))));
        assert_eq!(poll_with(timer, &waker), Poll::Pending);
    }
    clock.advance(5 * SECOND);
    assert_eq!(*woken.lock().unwrap(), [1, 3, 2, 0, 4]);
    assert_eq!(clock.timers(), 1);
}

#[test]
fn dropped_timer_is_disarmed() {
    let clock = FakeClock::new();
    let task = Arc::default();
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    drop(timer);
    assert_eq!(clock.timers(), 0);
    assert_eq!(Arc::strong_count(&task), 1, "the waker is still held");
    clock.advance(2 * SECOND);
    assert_eq!(task.wakes(), 0);
}

#[test]
fn polling_with_another_waker_moves_the_wake_up() {
    let clock = FakeClock::new();
    let (first, second) = (Arc::default(), Arc::default());
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &first), Poll::Pending);
    assert_eq!(poll(&mut timer, &second), Poll::Pending);
    assert_eq!(clock.timers(), 1);
    clock.advance(SECOND);
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

/// A task that advances the clock while it is woken.
struct Advances(FakeClock);

impl Wake for Advances {
    fn wake(self: Arc<Self>) {
        self.0.advance(SECOND);
    }
}

#[test]
fn task_may_advance_the_clock_while_it_is_woken() {
    let clock = FakeClock::new();
    let start = clock.now();
    let advances = Waker::from(Arc::new(Advances(clock.clone())));
    let mut first = clock.timer(start + SECOND);
    assert_eq!(poll_with(&mut first, &advances), Poll::Pending);
    let task = Arc::default();
    let mut second = clock.timer(start + 2 * SECOND);
    assert_eq!(poll(&mut second, &task), Poll::Pending);
    clock.advance(SECOND);
    assert_eq!(clock.now(), start + 2 * SECOND);
    assert_eq!(task.wakes(), 1);
}

#[test]
fn task_in_another_thread_continues_when_the_clock_is_advanced() {
    let clock = FakeClock::new();
    let until = clock.now() + SECOND;
    let task = thread::spawn({
        let clock = clock.clone();
        move || {
            futures_executor::block_on(clock.timer(until));
            clock.now()
        }
    });
    clock.wait_for_timers_blocking(1);
    clock.advance(SECOND);
    assert_eq!(task.join().unwrap(), until);
}

#[test]
fn parked_thread_wakes_at_its_deadline_and_not_before() {
    let clock = FakeClock::new();
    let until = clock.now() + SECOND;
    let thread = sleeper(&clock, until);
    clock.wait_for_timers_blocking(1);
    clock.advance(ALMOST);
    // The thread cannot end before the next step: its timer is armed, or will be.
    clock.wait_for_timers_blocking(1);
    clock.advance(NANO);
    assert_eq!(thread.join().unwrap(), until);
    assert_eq!(clock.timers(), 0);
}

#[test]
fn parking_until_a_passed_deadline_returns_at_once() {
    let clock = FakeClock::new();
    clock.park_until(clock.now());
    assert_eq!(clock.timers(), 0);
}

#[test]
fn unparked_thread_leaves_no_timer() {
    let clock = FakeClock::new();
    let start = clock.now();
    let thread = thread::spawn({
        let clock = clock.clone();
        move || clock.park_until(start + SECOND)
    });
    clock.wait_for_timers_blocking(1);
    thread.thread().unpark();
    thread.join().unwrap();
    assert_eq!(clock.timers(), 0);
    assert_eq!(clock.now(), start);
}

#[test]
fn wait_for_timers_counts_threads_and_tasks() {
    let clock = FakeClock::new();
    clock.wait_for_timers_blocking(0);
    let until = clock.now() + SECOND;
    let mut timer = clock.timer(until);
    assert_eq!(poll(&mut timer, &Arc::default()), Poll::Pending);
    clock.wait_for_timers_blocking(1);
    let threads: Vec<_> = (0..3).map(|_| sleeper(&clock, until)).collect();
    clock.wait_for_timers_blocking(4);
    clock.advance(SECOND);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), until);
    }
    assert_eq!(clock.timers(), 0);
}

#[test]
fn task_that_waits_for_timers_is_woken_when_enough_are_armed() {
    let clock = FakeClock::new();
    let until = clock.now() + SECOND;
    let task = Arc::<Task>::default();
    let waker = Waker::from(Arc::clone(&task));
    let mut cx = Context::from_waker(&waker);
    let mut waiting = pin!(clock.wait_for_timers(2));
    assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Pending);
    let mut timers = [clock.timer(until), clock.timer(until)];
    for (armed, timer) in (1..).zip(&mut timers) {
        assert_eq!(poll(timer, &Arc::default()), Poll::Pending);
        assert_eq!(task.wakes(), armed);
        assert_eq!(waiting.as_mut().poll(&mut cx).is_ready(), armed == 2);
    }
}

#[test]
fn cancelled_wait_for_timers_leaves_the_clock_usable() {
    let clock = FakeClock::new();
    {
        let mut waiting = pin!(clock.wait_for_timers(1));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Pending);
    }
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &Arc::default()), Poll::Pending);
    clock.wait_for_timers_blocking(1);
}

#[test]
#[should_panic(expected = "the fake clock went past Instant")]
fn advancing_the_clock_past_the_range_of_instant_panics() {
    FakeClock::new().advance(Duration::MAX);
}

#[test]
fn clock_that_could_not_be_advanced_keeps_its_time() {
    let clock = FakeClock::new();
    let start = clock.now();
    let task = Arc::default();
    let mut timer = clock.timer(start + SECOND);
    assert_eq!(poll(&mut timer, &task), Poll::Pending);
    let moved = catch_unwind(AssertUnwindSafe(|| clock.advance(Duration::MAX)));
    assert!(moved.is_err());
    assert_eq!(clock.now(), start);
    assert_eq!(task.wakes(), 0);
    clock.advance(SECOND);
    assert_eq!(task.wakes(), 1);
}

#[test]
fn debug_shows_the_number_of_timers() {
    let clock = FakeClock::new();
    let mut timer = clock.timer(clock.now() + SECOND);
    assert_eq!(poll(&mut timer, &Arc::default()), Poll::Pending);
    assert!(format!("{clock:?}").contains("timers: 1"), "{clock:?}");
}
