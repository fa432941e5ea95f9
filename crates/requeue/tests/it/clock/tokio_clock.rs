//! `TokioClock` follows the time of its runtime, paused or not, on every thread.

use std::thread;
use std::time::Duration;

use requeue::rate::{Limit, Limiter};
use requeue::{Clock, Queue, TokioClock};
use tokio::runtime::{Builder, Runtime};

const SECOND: Duration = Duration::from_secs(1);

/// A runtime whose time stands still unless it is idle or advanced.
fn paused() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built")
}

#[test]
fn time_is_that_of_the_runtime_on_every_thread() {
    paused().block_on(async {
        let clock = TokioClock::new();
        let start = clock.now();
        tokio::time::advance(SECOND).await;
        assert_eq!(clock.now(), start + SECOND);
        let elsewhere = thread::spawn({
            let clock = clock.clone();
            move || clock.now()
        });
        assert_eq!(elsewhere.join().unwrap(), start + SECOND);
    });
}

#[test]
fn timer_fires_at_its_deadline_and_not_before() {
    paused().block_on(async {
        let clock = TokioClock::new();
        let timer = tokio::spawn(clock.timer(clock.now() + SECOND));
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!timer.is_finished());
        tokio::time::advance(Duration::from_millis(1)).await;
        timer.await.unwrap();
    });
}

#[test]
fn idle_runtime_advances_to_the_next_delayed_key() {
    paused().block_on(async {
        let clock = TokioClock::new();
        let start = clock.now();
        let queue = Queue::builder().clock(clock.clone()).build();
        queue.add_after("later", 3600 * SECOND).unwrap();
        let lease = queue.get().await.unwrap();
        assert_eq!(*lease, "later");
        assert_eq!(clock.now(), start + 3600 * SECOND);
    });
}

#[test]
fn limiter_waits_in_the_time_of_the_runtime() {
    paused().block_on(async {
        let clock = TokioClock::new();
        let start = clock.now();
        let limiter = Limiter::with_clock(Limit::per_second(1.0), 1, clock.clone());
        for _ in 0..4 {
            limiter.wait().await.unwrap();
        }
        assert_eq!(clock.now(), start + 3 * SECOND);
    });
}

/// The runtime has nothing to do but the timer of the blocked thread, and advances to it.
#[test]
fn blocked_thread_wakes_in_the_time_of_the_runtime() {
    paused().block_on(async {
        let clock = TokioClock::new();
        let start = clock.now();
        let delayed = Queue::builder().clock(clock.clone()).build();
        delayed.add_after("later", 3600 * SECOND).unwrap();
        let received = Queue::new();
        let thread = thread::spawn({
            let received = received.clone();
            move || received.add(delayed.get_blocking().map(|lease| *lease))
        });
        assert_eq!(*received.get().await.unwrap(), Some("later"));
        assert_eq!(clock.now(), start + 3600 * SECOND);
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn blocked_thread_wakes_after_the_runtime_has_shut_down() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let clock = runtime.block_on(async { TokioClock::new() });
    drop(runtime);
    let deadline = clock.now() + Duration::from_millis(1);
    while clock.now() < deadline {
        clock.park_until(deadline);
    }
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn clock_without_a_runtime_panics() {
    TokioClock::new();
}
