use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_executor::block_on;

use super::*;
use crate::rate::InvalidPace;
use crate::testing::FakeClock;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A pacer of `permissions` per second, and its clock.
fn pacer(permissions: u32, slack: u32) -> (FakeClock, Pacer) {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(permissions).slack(slack).clock(clock.clone()).build();
    (clock, pacer)
}

fn poll(future: &mut (impl Future<Output = Instant> + Unpin)) -> Poll<Instant> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes all slots that are due, and returns how many.
fn burst(pacer: &Pacer) -> usize {
    std::iter::repeat_with(|| pacer.try_take()).take_while(Result::is_ok).count()
}

#[test]
fn new_pacer_starts_without_a_burst() {
    for slack in [0, 10] {
        let (clock, pacer) = pacer(10, slack);
        clock.advance(ms(60_000));
        let start = clock.now();
        assert_eq!(pacer.try_take(), Ok(start));
        assert_eq!(pacer.try_take(), Err(ms(100)));
        clock.advance(ms(100));
        assert_eq!(pacer.try_take(), Ok(start + ms(100)));
        assert_eq!(pacer.try_take(), Err(ms(100)));
    }
}

#[test]
fn slack_bounds_how_many_unused_slots_are_used_later() {
    // Rows of idle time after the first take, and how many then pass at once. Around 1100 ms
    // Uber's limiter stopped limiting (ratelimit#106).
    let rows = [
        (0, 0),
        (99, 0),
        (100, 1),
        (199, 1),
        (200, 2),
        (1000, 10),
        (1099, 10),
        (1100, 11),
        (1101, 11),
        (1200, 11),
        (3_600_000, 11),
    ];
    for (idle, passes) in rows {
        let (clock, pacer) = pacer(10, 10);
        assert_eq!(burst(&pacer), 1);
        clock.advance(ms(idle));
        assert_eq!(burst(&pacer), passes, "after {idle} ms");
        clock.advance(ms(99));
        let rest = idle.min(1100) % 100;
        assert_eq!(burst(&pacer), usize::from(rest > 0), "99 ms after {idle} ms");
    }
}

#[test]
fn without_slack_unused_slots_are_lost() {
    // Uber's limiter once never waited here (ratelimit#90).
    let rows = [(0, 0), (99, 0), (100, 1), (101, 1), (199, 1), (200, 1), (3_600_000, 1)];
    for (idle, passes) in rows {
        let (clock, pacer) = pacer(10, 0);
        assert_eq!(burst(&pacer), 1);
        clock.advance(ms(idle));
        assert_eq!(burst(&pacer), passes, "after {idle} ms");
    }
    let (clock, pacer) = pacer(10, 0);
    assert_eq!(burst(&pacer), 1);
    clock.advance(ms(150));
    assert_eq!(burst(&pacer), 1);
    assert_eq!(pacer.try_take(), Err(ms(100)), "a whole interval after the late one");
}

#[test]
fn default_is_a_second_with_a_slack_of_ten() {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(100).clock(clock.clone()).build();
    assert_eq!(burst(&pacer), 1);
    clock.advance(ms(10_000));
    assert_eq!(burst(&pacer), 11);
    assert_eq!(pacer.try_take(), Err(ms(10)));
}

#[test]
fn slot_is_available_when_promised_and_not_before() {
    for permissions in [1, 3, 7, 1000, 999_983] {
        let (clock, pacer) = pacer(permissions, 2);
        for _ in 0..20 {
            let _ = burst(&pacer);
            let wait = pacer.try_take().unwrap_err();
            clock.advance(wait.saturating_sub(Duration::from_nanos(1)));
            assert_eq!(pacer.try_take(), Err(Duration::from_nanos(1)));
            clock.advance(Duration::from_nanos(1));
            assert_eq!(pacer.try_take(), Ok(clock.now()));
        }
    }
}

#[test]
fn seven_per_minute_is_exact() {
    let clock = FakeClock::new();
    let minute = ms(60_000);
    let pacer = Pacer::builder(7).per(minute).slack(0).clock(clock.clone()).build();
    let start = clock.now();
    assert_eq!(pacer.try_take(), Ok(start));
    for taken in 1..=70 {
        let wait = pacer.try_take().unwrap_err();
        clock.advance(wait);
        assert_eq!(pacer.try_take(), Ok(clock.now()));
        if taken % 7 == 0 {
            assert_eq!(clock.now() - start, minute * (taken / 7));
        }
    }
}

#[test]
fn take_that_waits_returns_the_time_of_its_slot() {
    let (clock, pacer) = pacer(10, 0);
    let start = clock.now();
    assert_eq!(block_on(pacer.take()), start);
    let mut takes: Vec<_> = (0..3).map(|_| Box::pin(pacer.take())).collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
    }
    clock.advance(ms(250));
    assert_eq!(poll(&mut takes[0]), Poll::Ready(start + ms(100)));
    assert_eq!(poll(&mut takes[1]), Poll::Ready(start + ms(200)));
    assert!(poll(&mut takes[2]).is_pending());
    clock.advance(ms(50));
    assert_eq!(poll(&mut takes[2]), Poll::Ready(start + ms(300)));
}

#[test]
fn blocking_take_waits_for_its_slot() {
    let (clock, pacer) = pacer(10, 10);
    let start = pacer.take_blocking();
    assert_eq!(start, clock.now());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pacer.take_blocking());
        clock.wait_for_timers_blocking(1);
        clock.advance(ms(100));
        assert_eq!(waiting.join().unwrap(), start + ms(100));
    });
}

#[test]
fn dropped_take_returns_the_last_slot() {
    let (clock, pacer) = pacer(10, 0);
    assert!(pacer.try_take().is_ok());
    let mut first = Box::pin(pacer.take());
    let mut second = Box::pin(pacer.take());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    assert_eq!(pacer.try_take(), Err(ms(300)));
    drop(second);
    assert_eq!(pacer.try_take(), Err(ms(200)));
    drop(first);
    assert_eq!(pacer.try_take(), Err(ms(100)), "returned in reverse order");
    assert_eq!(clock.timers(), 0);
}

#[test]
fn dropped_take_leaves_its_slot_to_the_next() {
    let (clock, pacer) = pacer(10, 0);
    let start = clock.now();
    assert!(pacer.try_take().is_ok());
    let mut takes: Vec<_> = (0..3).map(|_| Box::pin(pacer.take())).collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
    }
    drop(takes.remove(0));
    assert_eq!(pacer.try_take(), Err(ms(300)), "after the two that wait");
    clock.advance(ms(100));
    assert_eq!(poll(&mut takes[0]), Poll::Ready(start + ms(100)));
    assert!(poll(&mut takes[1]).is_pending());
    clock.advance(ms(100));
    assert_eq!(poll(&mut takes[1]), Poll::Ready(start + ms(200)));
    assert_eq!(pacer.try_take(), Err(ms(100)), "the used slot stays taken");
}

#[test]
fn due_slot_stays_unused_if_a_later_one_is_taken() {
    let (clock, pacer) = pacer(10, 0);
    let start = clock.now();
    assert!(pacer.try_take().is_ok());
    let mut takes: Vec<_> = (0..2).map(|_| Box::pin(pacer.take())).collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
    }
    clock.advance(ms(150));
    assert!(poll(&mut takes[1]).is_pending(), "its slot comes at 200 ms");
    drop(takes.remove(0));
    clock.advance(ms(50));
    assert_eq!(poll(&mut takes[0]), Poll::Ready(start + ms(200)));
}

#[test]
fn unused_last_slot_is_returned_even_late() {
    let (clock, pacer) = pacer(10, 0);
    assert!(pacer.try_take().is_ok());
    let mut take = Box::pin(pacer.take());
    assert!(poll(&mut take).is_pending());
    clock.advance(ms(150));
    assert_eq!(pacer.try_take(), Err(ms(50)), "the slot at 100 ms belongs to the take");
    drop(take);
    assert_eq!(pacer.try_take(), Ok(clock.now()));
    assert_eq!(pacer.try_take(), Err(ms(100)));
}

#[test]
fn take_that_was_never_polled_takes_nothing() {
    let (clock, pacer) = pacer(10, 0);
    drop(pacer.take());
    assert_eq!(pacer.try_take(), Ok(clock.now()));
}

#[test]
fn pacer_without_permissions_never_gives_a_slot() {
    let (clock, pacer) = pacer(0, 10);
    let wait = pacer.try_take().unwrap_err();
    assert!(wait > Duration::from_secs(100 * 365 * 24 * 3600));
    let mut take = Box::pin(pacer.take());
    clock.advance(Duration::from_secs(100 * 365 * 24 * 3600));
    assert!(poll(&mut take).is_pending());
    assert_eq!(Pacer::builder(0).try_build().unwrap_err(), InvalidPace::NoPermissions);
}

#[test]
fn period_of_zero_never_waits() {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(3).per(Duration::ZERO).clock(clock.clone()).build();
    for _ in 0..100 {
        assert_eq!(pacer.try_take(), Ok(clock.now()));
    }
    let refused = Pacer::builder(3).per(Duration::ZERO).try_build().unwrap_err();
    assert_eq!(refused, InvalidPace::NoPeriod);
    assert!(Pacer::unlimited().try_take().is_ok());
}

#[test]
fn largest_numbers_do_not_panic() {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(1)
        .per(Duration::MAX)
        .slack(u32::MAX)
        .clock(clock.clone())
        .try_build()
        .unwrap();
    assert!(pacer.try_take().is_ok());
    clock.advance(Duration::from_secs(50 * 365 * 24 * 3600));
    assert!(pacer.try_take().is_err());
    assert!(format!("{pacer:?}").starts_with("Pacer"));
}

#[test]
fn threads_never_share_a_slot() {
    const EACH: u32 = if cfg!(miri) { 10 } else { 1000 };
    let (clock, pacer) = pacer(10, 5);
    assert!(pacer.try_take().is_ok());
    clock.advance(ms(1_000_000));
    let passed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..EACH).filter(|_| pacer.try_take().is_ok()).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 6, "slack and one");
}
