#![expect(clippy::float_cmp, reason = "tokens are equal bit for bit or wrong")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_executor::block_on;
use proptest::prelude::*;

use super::*;
use crate::rate::WaitError;
use crate::testing::FakeClock;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limiter(limit: f64, burst: u32) -> (FakeClock, Limiter) {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(limit), burst, clock.clone());
    (clock, limiter)
}

fn poll(future: &mut (impl Future<Output = Result<(), WaitError>> + Unpin)) -> Poll<()> {
    let mut cx = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut cx).map(|waited| waited.expect("tokens in time"))
}

#[test]
fn calls_without_a_time_follow_the_clock() {
    let (clock, limiter) = limiter(10.0, 3);
    // Rows of ms to advance, tokens before, requested tokens, and the answer.
    let rows = [
        (0, 3.0, 2, true),
        (0, 1.0, 2, false),
        (100, 2.0, 2, true),
        (50, 0.5, 1, false),
        (50, 1.0, 1, true),
        (5000, 3.0, 4, false),
        (0, 3.0, 3, true),
    ];
    for (i, (step, tokens, n, ok)) in rows.into_iter().enumerate() {
        clock.advance(ms(step));
        assert_eq!(limiter.tokens(), tokens, "tokens before row {i}");
        assert_eq!(limiter.allow_n(n), ok, "answer of row {i}");
    }
}

#[test]
fn clones_share_the_bucket() {
    let (_, limiter) = limiter(1.0, 1);
    assert!(limiter.clone().allow());
    assert!(!limiter.allow());
}

#[test]
fn default_clock_is_the_system_clock() {
    let limiter = Limiter::new(Limit::every(Duration::from_secs(3600)), 1);
    assert!(limiter.allow());
    assert!(!limiter.allow());
    assert!(limiter.tokens() < 0.5);
}

#[test]
fn explicit_times_may_be_before_the_start() {
    let (clock, limiter) = limiter(10.0, 1);
    let t = clock.now().checked_sub(ms(10_000)).expect("a machine up for ten seconds");
    assert!(limiter.allow_at(t, 1));
    assert!(!limiter.allow_at(t + ms(99), 1));
    assert!(limiter.allow_at(t + ms(100), 1));
    assert_eq!(limiter.tokens_at(t + ms(150)), 0.5);
    let reservation = limiter.reserve_at(t + ms(150), 1).unwrap();
    assert_eq!(reservation.time_to_act(), t + ms(200));
    assert_eq!(reservation.delay_from(t), ms(200));
    assert_eq!(reservation.delay_from(t + ms(300)), Duration::ZERO);
    assert_eq!(reservation.initial_delay(), ms(50));
    assert_eq!(reservation.delay(), Duration::ZERO, "long past on the clock");
}

#[test]
fn burst_of_zero_allows_nothing() {
    let (clock, limiter) = limiter(10.0, 0);
    clock.advance(ms(1000));
    assert!(!limiter.allow());
    assert!(limiter.allow_n(0));
    let refused = ReserveError::ExceedsBurst { asked: 1, burst: 0 };
    assert_eq!(limiter.reserve().unwrap_err(), refused);
    assert_eq!(limiter.wait_blocking(), Err(refused.into()));
}

#[test]
fn infinite_limit_allows_everything() {
    let limiter = Limiter::new(Limit::INF, 0);
    assert!(limiter.allow_n(u32::MAX));
    assert_eq!(limiter.reserve_n(7).unwrap().delay(), Duration::ZERO);
    assert_eq!(limiter.wait_n_blocking(u32::MAX), Ok(()));
    assert_eq!(limiter.peek(), Ok(Duration::ZERO));
}

#[test]
fn tokens_that_never_come_are_an_error_and_take_nothing() {
    let (clock, limiter) = limiter(0.0, 1);
    assert!(limiter.allow());
    let never = ReserveError::Never { asked: 1 };
    assert_eq!(limiter.reserve().unwrap_err(), never);
    assert_eq!(limiter.peek(), Err(never));
    assert_eq!(limiter.wait_blocking(), Err(never.into()));
    assert_eq!(block_on(limiter.wait_deadline(clock.now() + ms(5))), Err(never.into()));
    assert_eq!(limiter.tokens(), 0.0);
}

#[test]
fn invalid_limits_allow_only_the_burst() {
    for number in [f64::NAN, -5.0, f64::NEG_INFINITY] {
        let (clock, limiter) = limiter(number, 1);
        assert!(limiter.allow());
        clock.advance(Duration::from_secs(1_000_000));
        assert!(!limiter.allow());
    }
}

#[test]
fn largest_numbers_do_not_panic() {
    let (clock, limiter) = limiter(1e308, u32::MAX);
    assert!(limiter.allow_n(u32::MAX));
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.allow_n(u32::MAX));
    clock.advance(Duration::from_secs(200 * 365 * 24 * 3600));
    assert_eq!(limiter.tokens(), f64::from(u32::MAX));
    assert!(limiter.allow());
}

#[test]
fn limit_and_burst_change_while_in_use() {
    let (clock, limiter) = limiter(10.0, 10);
    assert!(limiter.allow_n(10));
    clock.advance(ms(500));
    limiter.set_limit(Limit::per_second(100.0));
    assert_eq!(limiter.limit(), Limit::per_second(100.0));
    assert_eq!(limiter.tokens(), 5.0, "at the old limit");
    clock.advance(ms(20));
    assert_eq!(limiter.tokens(), 7.0, "then at the new one");
    limiter.set_burst(3);
    assert_eq!((limiter.burst(), limiter.tokens()), (3, 3.0));
    limiter.set_burst(100);
    assert_eq!(limiter.tokens(), 3.0, "spilled tokens do not come back");
    assert!(format!("{limiter:?}").contains("burst: 100"));
}

#[test]
fn changes_accept_explicit_times() {
    let (clock, limiter) = limiter(10.0, 10);
    let t = clock.now();
    assert!(limiter.allow_at(t, 10));
    limiter.set_limit_at(t + ms(100), Limit::per_second(20.0));
    assert_eq!(limiter.tokens_at(t + ms(200)), 3.0);
    limiter.set_burst_at(t + ms(200), 2);
    assert_eq!(limiter.tokens_at(t + ms(200)), 2.0);
    limiter.set_tokens_at(t + ms(200), 1);
    assert_eq!(limiter.tokens_at(t + ms(250)), 2.0);
}

#[test]
fn larger_burst_before_the_first_use_adds_no_tokens() {
    let (clock, limiter) = limiter(10.0, 3);
    limiter.set_burst(10);
    assert_eq!(limiter.tokens(), 3.0);
    clock.advance(ms(100));
    assert_eq!(limiter.tokens(), 4.0);
}

#[test]
fn limit_that_was_infinite_starts_with_a_full_bucket() {
    let (clock, limiter) = limiter(f64::INFINITY, 2);
    assert!(limiter.allow_n(50));
    clock.advance(ms(1));
    limiter.set_limit(Limit::per_second(10.0));
    assert!(limiter.allow_n(2));
    assert!(!limiter.allow());
}

#[test]
fn cancelled_reservation_of_an_infinite_limit_mints_nothing() {
    let (_, limiter) = limiter(f64::INFINITY, 2);
    let free = limiter.reserve_n(2).unwrap();
    limiter.set_limit(Limit::per_second(10.0));
    assert!(limiter.allow_n(2));
    free.cancel();
    assert_eq!(limiter.tokens(), 0.0);
}

#[test]
fn initial_tokens_can_be_set() {
    let (clock, limiter) = limiter(10.0, 5);
    let limiter = limiter.with_tokens(2);
    assert_eq!(limiter.tokens(), 2.0);
    clock.advance(ms(100));
    assert_eq!(limiter.tokens(), 3.0);
    assert_eq!(limiter.with_tokens(99).tokens(), 5.0);
}

#[test]
fn peek_takes_nothing() {
    let (clock, limiter) = limiter(10.0, 3);
    assert!(limiter.allow_n(3));
    assert_eq!(limiter.peek_n(2), Ok(ms(200)));
    assert_eq!(limiter.peek_at(clock.now() + ms(150), 2), Ok(ms(50)));
    assert_eq!(limiter.peek_n(4), Err(ReserveError::ExceedsBurst { asked: 4, burst: 3 }));
    assert_eq!(limiter.tokens(), 0.0);
}

#[test]
fn cancel_returns_tokens_until_the_time_to_act() {
    let (clock, limiter) = limiter(10.0, 1);
    assert!(limiter.allow());
    limiter.reserve().unwrap().cancel();
    assert_eq!(limiter.tokens(), 0.0);
    let reservation = limiter.reserve().unwrap();
    clock.advance(ms(101));
    reservation.cancel();
    assert!(limiter.tokens() < 0.1, "too late: the token counts as used");
    let t = clock.now();
    limiter.reserve_at(t, 1).unwrap().cancel_at(t + ms(50));
    assert!(limiter.tokens_at(t + ms(50)) > 0.5);
}

#[test]
fn clock_that_goes_back_mints_no_tokens() {
    /// Goes back by a second with each reading.
    struct Backward(Instant, AtomicU32);
    impl Clock for Backward {
        fn now(&self) -> Instant {
            let readings = self.1.fetch_add(1, Ordering::Relaxed);
            self.0 + Duration::from_secs(u64::from(1000 - readings))
        }
    }
    let clock = Backward(FakeClock::new().now(), AtomicU32::new(0));
    let limiter = Limiter::with_clock(Limit::per_second(10.0), 5, clock);
    assert_eq!((0..100).filter(|_| limiter.allow()).count(), 5);
}

#[test]
fn blocking_wait_sleeps_until_its_token_comes() {
    let (clock, limiter) = limiter(10.0, 1);
    assert_eq!(limiter.wait_blocking(), Ok(()));
    let start = clock.now();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| limiter.wait_n_blocking(1).map(|()| clock.now()));
        clock.wait_for_timers_blocking(1);
        clock.advance(ms(99));
        clock.wait_for_timers_blocking(1);
        clock.advance(ms(1));
        assert_eq!(waiting.join().unwrap(), Ok(start + ms(100)));
    });
}

#[test]
fn blocking_wait_past_its_deadline_is_refused() {
    let (clock, limiter) = limiter(10.0, 2);
    let soon = clock.now() + ms(99);
    assert_eq!(limiter.wait_n_blocking_deadline(2, soon), Ok(()));
    let error = WaitError::Timeout { needed: ms(100), left: ms(99) };
    assert_eq!(limiter.wait_blocking_deadline(soon), Err(error));
    assert_eq!(limiter.tokens(), 0.0);
}

#[test]
fn waits_are_served_in_order() {
    let (clock, limiter) = limiter(10.0, 1);
    let mut waits: Vec<_> = (0..4).map(|_| Box::pin(limiter.wait())).collect();
    assert!(poll(&mut waits[0]).is_ready(), "the bucket was full");
    for wait in &mut waits[1..] {
        assert!(poll(wait).is_pending());
    }
    for turn in 1..4 {
        clock.advance(ms(99));
        assert!(poll(&mut waits[turn]).is_pending());
        clock.advance(ms(1));
        for later in &mut waits[turn + 1..] {
            assert!(poll(later).is_pending());
        }
        assert!(poll(&mut waits[turn]).is_ready());
    }
}

#[test]
fn dropped_wait_returns_its_tokens() {
    let (clock, limiter) = limiter(10.0, 2);
    assert!(limiter.allow_n(2));
    let mut wait = Box::pin(limiter.wait_n(2));
    assert_eq!(limiter.tokens(), 0.0, "nothing is taken before the first poll");
    assert!(poll(&mut wait).is_pending());
    assert_eq!(limiter.tokens(), -2.0);
    clock.advance(ms(100));
    drop(wait);
    assert_eq!(limiter.tokens(), 1.0);
    assert_eq!(clock.timers(), 0);
}

#[test]
fn finished_wait_returns_nothing() {
    let (clock, limiter) = limiter(10.0, 1);
    assert!(limiter.allow());
    let mut wait = Box::pin(limiter.wait());
    assert!(poll(&mut wait).is_pending());
    clock.advance(ms(100));
    assert!(poll(&mut wait).is_ready());
    drop(wait);
    assert_eq!(limiter.tokens(), 0.0);
}

#[test]
fn wait_with_a_deadline_is_refused_at_once_or_served() {
    let (clock, limiter) = limiter(10.0, 2);
    let t = clock.now();
    assert_eq!(block_on(limiter.wait_n_deadline(2, t)), Ok(()), "a deadline of now");
    let error = WaitError::Timeout { needed: ms(200), left: ms(199) };
    assert_eq!(block_on(limiter.wait_n_deadline(2, t + ms(199))), Err(error));
    assert_eq!(limiter.tokens(), 0.0, "a refusal takes nothing");
    let mut wait = Box::pin(limiter.wait_n_deadline(2, t + ms(200)));
    assert!(poll(&mut wait).is_pending());
    clock.advance(ms(200));
    assert!(poll(&mut wait).is_ready());
}

#[test]
fn passed_deadline_is_refused_even_if_tokens_are_available() {
    for limit in [10.0, f64::INFINITY] {
        let (clock, limiter) = limiter(limit, 2);
        let t = clock.now();
        clock.advance(ms(1));
        let error = WaitError::Timeout { needed: Duration::ZERO, left: Duration::ZERO };
        assert_eq!(block_on(limiter.wait_deadline(t)), Err(error));
    }
}

#[test]
fn limiter_and_reservation_are_send_and_sync() {
    fn anywhere<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    fn sends<F: Future + Send>(future: F) -> F {
        future
    }
    let limiter = anywhere(Limiter::new(Limit::per_second(1.0), 1));
    assert_eq!(block_on(sends(limiter.wait())), Ok(()));
    let reservation = anywhere(limiter.reserve().unwrap());
    drop(limiter);
    assert!(format!("{reservation:?}").starts_with("Reservation"));
    reservation.cancel();
}

/// Runs `threads` threads until each has been refused `refusals` times in a row.
fn storm(limiter: &Limiter, threads: usize, refusals: u32) -> u32 {
    let passed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut refused = 0;
                while refused < refusals {
                    if limiter.allow() {
                        passed.fetch_add(1, Ordering::Relaxed);
                        refused = 0;
                    } else {
                        refused += 1;
                    }
                }
            });
        }
    });
    passed.into_inner()
}

#[test]
fn threads_together_get_exactly_the_burst() {
    let (clock, limiter) = limiter(10.0, 1000);
    assert_eq!(storm(&limiter, 4, 100), 1000);
    clock.advance(ms(5_000));
    assert_eq!(storm(&limiter, 4, 100), 50);
}

#[test]
fn threads_never_exceed_burst_and_limit_while_time_passes() {
    // Clock readings arrive late and out of order here: golang/go#65508.
    let (clock, limiter) = limiter(1000.0, 10);
    let passed = AtomicU32::new(0);
    let steps = if cfg!(miri) { 20 } else { 500 };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let end = clock.now() + ms(steps);
                while clock.now() < end {
                    if limiter.allow() {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2 * steps {
                clock.advance(ms(1));
                thread::yield_now();
            }
        });
    });
    let budget = 10 + 2 * u32::try_from(steps).unwrap();
    let passed = passed.into_inner();
    assert!((10..=budget).contains(&passed), "{passed} of {budget}");
}

#[test]
fn threads_that_reserve_and_cancel_mint_nothing() {
    let (_, limiter) = limiter(1000.0, 4);
    assert!(limiter.allow_n(4));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..500 {
                    limiter.reserve().unwrap().cancel();
                    assert!(limiter.tokens() <= 0.0);
                    assert!(!limiter.allow());
                }
            });
        }
    });
    assert!(limiter.tokens() <= 0.0);
}

proptest! {
    #[test]
    fn tokens_are_available_when_promised_and_not_before(
        limit in 0.01..10_000.0,
        burst in 1_u32..20,
        spent in 0_u32..40,
        n in 1_u32..20,
        advance in 0_u64..2_000_000_000,
    ) {
        let n = n.min(burst);
        let (clock, limiter) = limiter(limit, burst);
        for _ in 0..spent {
            drop(limiter.reserve().unwrap());
        }
        clock.advance(Duration::from_nanos(advance));
        let wait = limiter.peek_n(n).unwrap();
        prop_assert_eq!(limiter.reserve_n(n).unwrap().delay(), wait);
        limiter.set_tokens(0);
        prop_assert!(!limiter.allow_n(n));
        let wait = limiter.peek_n(n).unwrap();
        clock.advance(wait.saturating_sub(Duration::from_nanos(1)));
        prop_assert!(!limiter.allow_n(n), "just before");
        clock.advance(Duration::from_nanos(1));
        prop_assert!(limiter.allow_n(n), "exactly then");
    }
}

/// Cancelling out of order minted tokens: a reservation that acts earlier than another one
/// moved the latest event back, and the other one then returned more than it took.
#[test]
fn reservations_cancelled_in_any_order_mint_no_tokens() {
    let (clock, limiter) = limiter(1.0, 3);
    assert!(limiter.allow_n(3));
    let start = clock.now();
    let acts =
        |r: &Reservation, s: u64| assert_eq!(r.time_to_act(), start + ms(1000 * s));
    let (r1, r2) = (limiter.reserve_n(3).unwrap(), limiter.reserve().unwrap());
    acts(&r1, 3);
    acts(&r2, 4);
    r1.cancel();
    let r3 = limiter.reserve().unwrap();
    acts(&r3, 3);
    let before = limiter.tokens();
    r2.cancel();
    assert!(limiter.tokens() <= before + 1.0, "{before} to {}", limiter.tokens());
}

/// At 60 per second, rounding to a nanosecond broke the chain of cancelled reservations and
/// left a debt (gocryptotrader#2371).
#[test]
fn reservations_cancelled_in_reverse_order_return_all_tokens() {
    let (_, limiter) = limiter(60.0, 1);
    let reserved: Vec<_> = (0..3).map(|_| limiter.reserve().unwrap()).collect();
    for reservation in reserved.into_iter().rev() {
        reservation.cancel();
    }
    assert_eq!(limiter.tokens(), 1.0);
}

#[test]
fn set_tokens_replaces_the_tokens() {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 5, clock.clone());
    assert!(limiter.allow_n(5));
    clock.advance(Duration::from_secs(3));
    limiter.set_tokens(1);
    assert_eq!(limiter.tokens(), 1.0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.tokens(), 2.0);
}
