use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::testing::FakeClock;

const MS: Duration = Duration::from_millis(1);

fn window(n: u32, per: Duration) -> (Window, FakeClock) {
    let clock = FakeClock::new();
    (Window::with_clock(n, per, clock.clone()), clock)
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn timeline_of_three_in_a_hundred_milliseconds() {
    let (window, clock) = window(3, MS * 100);
    // step in ms, n, allowed, remaining after
    let table = [
        (0, 1, true, 2),
        (40, 2, true, 0),
        (0, 1, false, 0),
        (59, 1, false, 0),
        (1, 1, true, 0),
        (0, 1, false, 0),
        (39, 2, false, 0),
        (1, 2, true, 0),
        (60, 1, true, 0),
        (1000, 4, false, 3),
        (0, 0, true, 3),
        (0, 3, true, 0),
        (0, 0, true, 0),
    ];
    for (row, (step, n, allowed, remaining)) in table.into_iter().enumerate() {
        clock.advance(MS * step);
        assert_eq!(window.allow_n(n), allowed, "row {row}");
        assert_eq!(window.remaining(), remaining, "row {row}");
    }
}

proptest! {
    #[test]
    fn no_window_has_more_than_n_events_and_the_promised_time_is_exact(
        n in 1..5_u32,
        per in 1..50_u64,
        calls in proptest::collection::vec((0..20_u64, 1..5_u32), 1..150),
    ) {
        let (window, clock) = window(n, Duration::from_nanos(per));
        let (mut now, mut events) = (0, Vec::new());
        for (step, asked) in calls {
            clock.advance(Duration::from_nanos(step));
            now += step;
            let recent = events.iter().filter(|&&event| event + per > now).count();
            let fits = recent + asked as usize <= n as usize;
            let promised = window.peek_n(asked);
            prop_assert_eq!(promised == Ok(Duration::ZERO), fits);
            prop_assert_eq!(promised.is_err(), asked > n);
            if let Ok(wait) = promised {
                if let Some(before) = wait.checked_sub(Duration::from_nanos(1)) {
                    clock.advance(before);
                    prop_assert!(!window.allow_n(asked), "just before");
                    clock.advance(Duration::from_nanos(1));
                    now += u64::try_from(wait.as_nanos()).unwrap();
                }
                prop_assert!(window.allow_n(asked), "exactly at");
                events.extend(std::iter::repeat_n(now, asked as usize));
            } else {
                prop_assert!(!window.allow_n(asked));
            }
        }
        for pair in events.windows(n as usize + 1) {
            prop_assert!(pair[n as usize] - pair[0] >= per);
        }
    }

    #[test]
    fn cancelled_waits_never_allow_too_many_events(
        n in 1..4_u32,
        per in 1..30_u64,
        script in proptest::collection::vec((0..10_u64, 0..3_u8, 1..3_u32), 1..80),
    ) {
        let (window, clock) = window(n, Duration::from_nanos(per));
        let (mut now, mut events, mut waits) = (0, Vec::new(), Vec::new());
        for (steps, what, asked) in script {
            match what {
                0 if window.allow_n(asked) => {
                    events.extend(std::iter::repeat_n(now, asked as usize));
                }
                1 => waits.push((asked, Box::pin(window.wait_n(asked)))),
                2 if !waits.is_empty() => drop(waits.remove(waits.len() / 2)),
                _ => {}
            }
            for step in 0..=steps {
                clock.advance(Duration::from_nanos(step.min(1)));
                now += step.min(1);
                waits.retain_mut(|(asked, wait)| match poll_once(wait.as_mut()) {
                    Poll::Pending => true,
                    Poll::Ready(result) => {
                        assert_eq!(result.is_err(), *asked > n);
                        let happened = if result.is_ok() { *asked as usize } else { 0 };
                        events.extend(std::iter::repeat_n(now, happened));
                        false
                    }
                });
            }
        }
        for pair in events.windows(n as usize + 1) {
            prop_assert!(pair[n as usize] - pair[0] >= per, "{:?}", events);
        }
    }
}

#[test]
fn extreme_numbers_do_not_panic() {
    let (none, _clock) = window(0, MS);
    assert!(!none.allow());
    assert_eq!(none.peek(), Err(ReserveError::ExceedsBurst { asked: 1, burst: 0 }));
    assert!(none.allow_n(0));

    let (no_time, _clock) = window(2, Duration::ZERO);
    assert!((0..100).all(|_| no_time.allow_n(2)));
    assert!(!no_time.allow_n(3));

    let (for_ever, clock) = window(1, Duration::MAX);
    assert!(for_ever.allow());
    clock.advance(Duration::from_secs(1 << 30));
    assert!(!for_ever.allow());
    assert_eq!(for_ever.peek(), Err(ReserveError::Never { asked: 1 }));
    assert_eq!(for_ever.wait_blocking(), Err(WaitError::Never { asked: 1 }));

    let (wide, _clock) = window(u32::MAX, MS);
    assert!(wide.allow());
    assert_eq!(wide.remaining(), u32::MAX - 1);
}

#[test]
fn waiters_are_served_in_order() {
    let (window, clock) = window(1, MS * 10);
    assert!(window.allow());
    let mut first = pin!(window.wait());
    let mut second = pin!(window.wait());
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(MS * 10);
    assert!(!window.allow(), "waiters come first");
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(poll_once(first.as_mut()), Poll::Ready(Ok(())));
    clock.advance(MS * 10);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn dropped_waits_free_only_what_they_held() {
    // Two reservations make the events at time 0 older than the latest two. Once they are
    // dropped, those events count again.
    let (window, clock) = window(2, MS * 10);
    assert!(window.allow_n(2));
    {
        let mut waits = [Box::pin(window.wait()), Box::pin(window.wait())];
        assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_pending()));
    }
    clock.advance(MS);
    assert!(!window.allow());
    assert_eq!(window.peek(), Ok(MS * 9));
}

#[test]
fn blocked_thread_wakes_at_its_time() {
    let (window, clock) = window(1, MS * 10);
    assert!(window.allow());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| window.wait_blocking());
        clock.wait_for_timers_blocking(1);
        clock.advance(MS * 10);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn log_frees_memory() {
    let (window, clock) = window(100_000, MS);
    assert!(window.allow_n(100_000));
    clock.advance(MS);
    assert!(window.allow());
    assert!(window.shared.lock().log.capacity() < 1000);
}

#[test]
fn threads_together_get_no_more_than_one_thread() {
    let (window, clock) = window(100, Duration::from_micros(100));
    let allowed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    if window.allow() {
                        allowed.fetch_add(1, Ordering::Relaxed);
                    }
                    clock.advance(Duration::from_nanos(25));
                }
            });
        }
    });
    // 20,000 steps of 25 ns are 5 windows of 100 µs, and the end belongs to a sixth.
    let allowed = allowed.into_inner();
    assert!((400..=600).contains(&allowed), "{allowed}");
}
