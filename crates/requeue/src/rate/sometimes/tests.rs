use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use super::*;
use crate::testing::FakeClock;

/// Returns on which of `calls` calls it runs.
fn runs(sometimes: &Sometimes, calls: u32) -> Vec<u32> {
    (0..calls).filter(|_| sometimes.run(|| ()).is_some()).collect()
}

#[test]
fn call_passes_if_any_filter_passes_it() {
    let rows = [
        (Sometimes::new(), vec![0]),
        (Sometimes::new().first(0), vec![0]),
        (Sometimes::new().first(3), vec![0, 1, 2]),
        (Sometimes::new().every(1), vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (Sometimes::new().every(4), vec![0, 4, 8]),
        (Sometimes::new().first(2).every(5), vec![0, 1, 5]),
        (Sometimes::new().interval(Duration::from_secs(3600)), vec![0]),
    ];
    for (sometimes, expected) in rows {
        assert_eq!(runs(&sometimes, 10), expected, "{sometimes:?}");
    }
}

#[test]
fn interval_starts_at_the_end_of_the_last_run() {
    let clock = FakeClock::new();
    let second = Duration::from_secs(1);
    let sometimes = Sometimes::new().interval(second).clock(clock.clone());
    assert!(sometimes.run(|| clock.advance(second)).is_some());
    assert_eq!(sometimes.run(|| ()), None);
    clock.advance(Duration::from_nanos(999_999_999));
    assert_eq!(sometimes.run(|| ()), None);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(sometimes.run(|| ()), Some(()));
    assert_eq!(sometimes.run(|| ()), None);
}

#[test]
fn every_run_restarts_the_interval() {
    let clock = FakeClock::new();
    let second = Duration::from_secs(1);
    let sometimes = Sometimes::new().every(2).interval(second).clock(clock.clone());
    assert_eq!(runs(&sometimes, 2), [0]);
    clock.advance(second / 2);
    assert_eq!(sometimes.run(|| ()), Some(()), "the third call");
    clock.advance(second / 2);
    assert_eq!(sometimes.run(|| ()), None, "half a second after it");
}

#[test]
fn without_an_interval_no_clock_is_read() {
    struct NoClock;
    impl Clock for NoClock {
        fn now(&self) -> Instant {
            panic!("the clock is not needed")
        }
    }
    assert_eq!(runs(&Sometimes::new().every(2).clock(NoClock), 4), [0, 2]);
}

#[test]
fn action_may_call_again() {
    let sometimes = Sometimes::new().first(2);
    let inner = sometimes.run(|| sometimes.run(|| sometimes.run(|| ())));
    assert_eq!(inner, Some(Some(None)));
}

#[test]
fn panicking_action_is_not_counted() {
    let clock = FakeClock::new();
    let sometimes =
        Sometimes::new().interval(Duration::from_secs(1)).clock(clock.clone());
    for _ in 0..3 {
        let run = AssertUnwindSafe(|| sometimes.run(|| panic!("on purpose")));
        assert!(catch_unwind(run).is_err());
    }
    assert_eq!(sometimes.run(|| "at last"), Some("at last"));
    assert_eq!(sometimes.run(|| "again"), None);
}

#[test]
fn threads_run_it_as_often_as_one_thread() {
    let sometimes = Sometimes::new().first(3).every(100);
    let runs = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    sometimes.run(|| runs.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    assert_eq!(runs.into_inner(), 3 + 3, "calls 0, 1, 2 and 100, 200, 300");
}
