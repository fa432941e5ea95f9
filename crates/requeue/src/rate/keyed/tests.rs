use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::rate::{Limiter, WaitError};
use crate::testing::FakeClock;

const MS: Duration = Duration::from_millis(1);

fn keyed(per_second: f64, burst: u32) -> (Keyed<u32>, FakeClock) {
    let clock = FakeClock::new();
    (Keyed::with_clock(Limit::per_second(per_second), burst, clock.clone()), clock)
}

#[test]
fn timeline_of_two_keys() {
    let (keyed, clock) = keyed(10.0, 2);
    // step in ms, key, n, allowed
    let table = [
        (0, 1, 1, true),
        (0, 1, 1, true),
        (0, 1, 1, false),
        (0, 2, 2, true),
        (99, 1, 1, false),
        (1, 1, 1, true),
        (0, 1, 1, false),
        (0, 2, 2, false),
        (0, 2, 1, true),
        (1000, 1, 3, false),
        (0, 1, 2, true),
        (0, 3, 2, true),
        (0, 3, 0, true),
    ];
    for (row, (step, key, n, allowed)) in table.into_iter().enumerate() {
        clock.advance(MS * step);
        assert_eq!(keyed.allow_n(&key, n), allowed, "row {row}");
    }
}

/// Callers had to make a `String` to ask for a name.
#[test]
fn keys_are_accepted_in_borrowed_form() {
    let keyed = Keyed::<String>::with_clock(Limit::ZERO, 4, FakeClock::new());
    assert!(keyed.allow("ann"));
    assert!(keyed.allow(&"ann".to_owned()));
    assert_eq!(keyed.reserve("ann").unwrap().delay(), Duration::ZERO);
    assert_eq!(keyed.wait_blocking("ann"), Ok(()));
    assert!(keyed.peek("ann").is_err(), "its bucket is empty");
    assert_eq!(keyed.tracked(), 1);

    let keyed = Keyed::<Arc<str>>::with_clock(Limit::ZERO, 1, FakeClock::new());
    assert!(keyed.allow("ann"));
    keyed.set_key_limit("bob", Limit::INF, 0);
    assert!(keyed.allow_n(&Arc::from("bob"), 9));
    assert!(!keyed.allow("ann"));
}

proptest! {
    #[test]
    fn every_key_behaves_like_a_separate_limiter(
        calls in proptest::collection::vec((0..8_u32, 0..4_u32, 0..300_u64), 0..300),
        rate in prop_oneof![Just(0.0), Just(3.0), Just(7.5), Just(1e6), Just(f64::INFINITY)],
        burst in 0..4_u32,
    ) {
        let (keyed, clock) = keyed(rate, burst);
        let limit = Limit::per_second(rate);
        let mut model: HashMap<u32, Limiter> = HashMap::new();
        for (key, n, step) in calls {
            clock.advance(MS * u32::try_from(step).unwrap());
            let own = model
                .entry(key)
                .or_insert_with(|| Limiter::with_clock(limit, burst, clock.clone()));
            prop_assert_eq!(keyed.peek_n(&key, n), own.peek_n(n));
            if n % 2 == 0 {
                prop_assert_eq!(keyed.allow_n(&key, n), own.allow_n(n));
            } else {
                let delay = own.reserve_n(n).map(|r| r.delay());
                prop_assert_eq!(keyed.reserve_n(&key, n).map(|r| r.delay()), delay);
            }
            prop_assert_eq!(keyed.tokens(&key).to_bits(), own.tokens().to_bits());
        }
    }

    #[test]
    fn tokens_are_available_when_promised_and_not_before(
        rate in 0.5..1e5_f64,
        burst in 1..5_u32,
        taken in 0..6_u32,
    ) {
        let (keyed, clock) = keyed(rate, burst);
        for _ in 0..taken {
            keyed.allow(&1);
        }
        let wait = keyed.peek(&1).unwrap();
        if let Some(before) = wait.checked_sub(Duration::from_nanos(1)) {
            clock.advance(before);
            prop_assert!(!keyed.allow(&1) || wait <= Duration::from_nanos(1));
            clock.advance(Duration::from_nanos(2)); // floating point is within 1 ns
        }
        prop_assert!(keyed.allow(&1));
    }
}

#[test]
fn full_keys_are_dropped() {
    let (keyed, clock) = keyed(1000.0, 2);
    for key in 0..10_000 {
        assert!(keyed.allow(&key));
    }
    assert_eq!(keyed.tracked(), 10_000);
    clock.advance(MS);
    for _ in 0..40_000 {
        clock.advance(MS);
        assert!(keyed.allow(&1));
    }
    assert_eq!(keyed.tracked(), 1);
    let bytes = keyed.lock().bytes();
    assert!(bytes < 4096, "{bytes} bytes for one key");
}

#[test]
fn new_keys_take_memory_only_while_they_are_not_full() {
    let (keyed, clock) = keyed(1000.0, 1);
    let mut most = 0;
    for key in 0..50_000 {
        assert!(keyed.allow(&key));
        clock.advance(MS / 100); // 100 keys are not full at any time
        most = most.max(keyed.tracked());
    }
    // How many full keys are not swept yet depends on the random seed: some hundreds.
    assert!(most < 2000, "{most} of 50,000 keys were kept");
}

#[test]
fn number_of_keys_is_bounded_and_the_key_in_use_stays_limited() {
    let (keyed, _clock) = keyed(0.0, 3);
    let keyed = keyed.max_keys(4);
    for key in 100..1000 {
        assert!(keyed.allow_n(&key, 2));
        assert!(keyed.tracked() <= 4);
    }
    assert!(keyed.allow_n(&1, 3));
    assert!((0..100).all(|_| !keyed.allow(&1)));
}

#[test]
fn bound_of_zero_keeps_one_key() {
    let (keyed, _clock) = keyed(0.0, 1);
    let keyed = keyed.max_keys(0);
    assert!(keyed.allow(&1));
    assert!(!keyed.allow(&1));
    assert_eq!(keyed.tracked(), 1);
}

#[test]
fn refusals_and_unlimited_keys_are_not_kept() {
    let (none, _clock) = keyed(10.0, 0);
    assert!(!none.allow(&1));
    assert_eq!(
        none.reserve(&1).unwrap_err(),
        ReserveError::ExceedsBurst { asked: 1, burst: 0 }
    );
    assert_eq!(none.tracked(), 0);
    let (all, _clock) = keyed(f64::INFINITY, 0);
    assert!(all.allow_n(&1, u32::MAX));
    assert_eq!(all.tracked(), 0);
}

#[test]
fn tokens_that_never_come_are_refused() {
    let (keyed, _clock) = keyed(0.0, 1);
    assert_eq!(keyed.reserve(&1).unwrap().delay(), Duration::ZERO);
    assert_eq!(keyed.reserve(&1).unwrap_err(), ReserveError::Never { asked: 1 });
    assert_eq!(keyed.peek(&1), Err(ReserveError::Never { asked: 1 }));
    assert_eq!(keyed.wait_blocking(&1), Err(WaitError::Never { asked: 1 }));
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn waiters_of_one_key_do_not_delay_another_key() {
    let (keyed, clock) = keyed(10.0, 1);
    assert!(keyed.allow(&1));
    let mut first = pin!(keyed.wait(&1));
    let mut second = pin!(keyed.wait(&1));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(poll_once(pin!(keyed.wait(&2))), Poll::Ready(Ok(())));
    clock.advance(MS * 100);
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(poll_once(first.as_mut()), Poll::Ready(Ok(())));
    clock.advance(MS * 100);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn dropped_wait_returns_its_token() {
    let (keyed, clock) = keyed(10.0, 1);
    assert!(keyed.allow(&1));
    {
        let mut wait = pin!(keyed.wait(&1));
        assert!(poll_once(wait.as_mut()).is_pending());
        assert_eq!(keyed.peek(&1), Ok(MS * 200));
    }
    assert_eq!(keyed.peek(&1), Ok(MS * 100));
    clock.advance(MS * 100);
    assert!(keyed.allow(&1));
}

#[test]
fn blocked_thread_wakes_when_its_token_comes() {
    let (keyed, clock) = keyed(10.0, 1);
    assert!(keyed.allow(&1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| keyed.wait_blocking(&1));
        clock.wait_for_timers_blocking(1);
        clock.advance(MS * 100);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert!(!keyed.allow(&1));
}

#[test]
fn threads_together_get_no_more_than_one_thread() {
    let (keyed, clock) = keyed(1e6, 50);
    let allowed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    if keyed.allow(&1) {
                        allowed.fetch_add(1, Ordering::Relaxed);
                    }
                    clock.advance(Duration::from_nanos(25));
                }
            });
        }
    });
    // 20,000 steps of 25 ns are 500 µs.
    let allowed = allowed.into_inner();
    assert!((500..=550).contains(&allowed), "{allowed}");
}

/// Each round minted a token: the cancelled claims were measured against a latest event
/// that was derived from the debt.
#[test]
fn waits_dropped_in_any_order_mint_no_tokens() {
    let (keyed, _clock) = keyed(1.0, 3);
    let mut granted = 0;
    for _ in 0..100 {
        granted += (0..10).filter(|_| keyed.allow(&1)).count();
        let [mut a, mut b, mut c] = [3, 1, 1].map(|n| Box::pin(keyed.wait_n(&1, n)));
        for wait in [&mut a, &mut b, &mut c] {
            assert!(poll_once(wait.as_mut()).is_pending());
        }
        drop(a);
        drop(c);
        drop(b);
    }
    assert_eq!(granted, 3);
}

/// A clock that the test sets, even back.
struct Settable(Arc<Mutex<Instant>>);

impl Clock for Settable {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

#[test]
fn call_counts_as_made_at_the_latest_time_of_any_key() {
    let start = FakeClock::new().now();
    let time = Arc::new(Mutex::new(start));
    let set = |seconds| *time.lock().unwrap() = start + Duration::from_secs(seconds);
    let limit = Limit::per_second(1.0);
    let keyed = Keyed::with_clock(limit, 1, Settable(Arc::clone(&time)));
    set(10);
    assert!(keyed.allow(&"other"));
    set(9);
    assert!(keyed.allow(&"key"), "at 10 s");
    set(10);
    assert!(!keyed.allow(&"key"));
    set(11);
    assert!(keyed.allow(&"key"));
}

#[test]
fn limit_and_burst_can_be_read() {
    let (keyed, _clock) = keyed(4.0, 7);
    assert_eq!((keyed.limit(), keyed.burst()), (Limit::per_second(4.0), 7));
    assert!(keyed.allow(&3));
    let shown = format!("{keyed:?}");
    assert!(shown.contains("burst: 7") && shown.contains("tracked: 1"), "{shown}");
}

#[test]
fn key_that_would_be_full_first_is_evicted() {
    let clock = FakeClock::new();
    let keyed = Keyed::with_clock(Limit::per_second(1.0), 10, clock).max_keys(2);
    assert!(keyed.allow_n(&"nine", 9), "full in 9 s");
    assert!(
        keyed.reserve_n(&"fifteen", 10).is_ok() && keyed.reserve_n(&"fifteen", 5).is_ok()
    );
    assert!(keyed.allow(&"one more"));
    assert_eq!(keyed.tracked(), 2);
    assert_eq!(keyed.peek(&"fifteen"), Ok(Duration::from_secs(6)), "it is still in debt");
    assert_eq!(keyed.peek_n(&"nine", 10), Ok(Duration::ZERO));
}

#[test]
fn cancelled_reservation_returns_its_tokens() {
    let (keyed, clock) = keyed(10.0, 1);
    let first = keyed.reserve(&1).unwrap();
    assert_eq!((*first.key(), first.time_to_act()), (1, clock.now()));
    let second = keyed.reserve(&1).unwrap();
    assert_eq!(second.delay(), MS * 100);
    second.cancel();
    assert_eq!(keyed.peek(&1), Ok(MS * 100));
    first.cancel();
    assert_eq!(keyed.peek(&1), Ok(Duration::ZERO));
    assert_eq!(keyed.tracked(), 0, "a full bucket is not kept");
}

#[test]
fn cancelled_reservation_moves_waiters_up() {
    let (keyed, clock) = keyed(10.0, 5);
    assert!(keyed.allow_n(&1, 5));
    let reservation = keyed.reserve_n(&1, 5).unwrap();
    let mut wait = pin!(keyed.wait(&1));
    assert!(poll_once(wait.as_mut()).is_pending());
    clock.advance(MS * 100);
    reservation.cancel();
    clock.advance(MS * 100);
    assert_eq!(poll_once(wait.as_mut()), Poll::Ready(Ok(())), "not after 600 ms");
}

#[test]
fn cancel_after_the_bucket_was_dropped_has_no_effect() {
    let (keyed, clock) = keyed(10.0, 2);
    let reservation = keyed.reserve(&1).unwrap();
    clock.advance(MS * 1000);
    while keyed.tracked() > 0 {
        keyed.allow_n(&2, 0);
        clock.advance(MS * 1000);
    }
    reservation.cancel();
    assert_eq!(keyed.tracked(), 0);
}

#[test]
fn wait_past_its_deadline_is_refused_at_once() {
    let (keyed, clock) = keyed(10.0, 1);
    let t = clock.now();
    assert_eq!(keyed.wait_blocking_deadline(&1, t), Ok(()));
    let error = WaitError::Timeout { needed: MS * 100, left: MS * 99 };
    assert_eq!(keyed.wait_blocking_deadline(&1, t + MS * 99), Err(error));
    let mut ahead = pin!(keyed.wait_deadline(&1, t + MS * 100));
    assert!(poll_once(ahead.as_mut()).is_pending());
    let error = WaitError::Timeout { needed: MS * 200, left: MS * 199 };
    let refused = keyed.wait_n_blocking_deadline(&1, 1, t + MS * 199);
    assert_eq!(refused, Err(error), "the callers ahead count");
    clock.advance(MS * 100);
    assert_eq!(poll_once(ahead.as_mut()), Poll::Ready(Ok(())));
    let passed = poll_once(pin!(keyed.wait_n_deadline(&2, 1, t)));
    assert!(matches!(passed, Poll::Ready(Err(WaitError::Timeout { .. }))));
}

#[test]
fn new_limit_applies_to_every_key_from_now_on() {
    let (keyed, clock) = keyed(1.0, 10);
    assert!(keyed.allow_n(&1, 10) && keyed.allow_n(&2, 10));
    clock.advance(MS * 1000);
    keyed.set_limit(Limit::per_second(5.0));
    assert_eq!(keyed.limit(), Limit::per_second(5.0));
    clock.advance(MS * 1000);
    for key in [1, 2] {
        assert!(
            (keyed.tokens(&key) - 6.0).abs() < 1e-9,
            "1 at the old, 5 at the new limit"
        );
    }
}

#[test]
fn new_burst_keeps_full_buckets_full_and_fills_no_other() {
    let (keyed, clock) = keyed(1.0, 2);
    assert!(keyed.allow_n(&1, 2) && keyed.allow(&2));
    clock.advance(MS * 1000);
    keyed.set_burst(5);
    let tokens = [1, 2, 3].map(|key| keyed.tokens(&key));
    let expected = [1.0, 5.0, 5.0]; // in use, full again, never seen
    assert!(tokens.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{tokens:?}");
    keyed.set_burst(1);
    assert!(!keyed.allow_n(&3, 2));
    assert!(keyed.allow(&3));
}

#[test]
fn new_limit_wakes_the_waiters_of_every_key() {
    let (keyed, _clock) = keyed(0.001, 1);
    assert!(keyed.allow(&1) && keyed.allow(&2));
    let mut first = pin!(keyed.wait(&1));
    let mut second = pin!(keyed.wait(&2));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    keyed.set_limit(Limit::INF);
    assert_eq!(poll_once(first.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn key_with_its_own_limit_ignores_that_of_the_others() {
    let (keyed, clock) = keyed(1.0, 1);
    keyed.set_key_limit(&7, Limit::per_second(10.0), 3);
    assert_eq!((keyed.key_limit(&7), keyed.key_burst(&7)), (Limit::per_second(10.0), 3));
    assert_eq!((keyed.key_limit(&1), keyed.key_burst(&1)), (Limit::per_second(1.0), 1));
    assert!(keyed.allow_n(&7, 3) && !keyed.allow(&7));
    keyed.set_limit(Limit::ZERO);
    keyed.set_burst(0);
    clock.advance(MS * 300);
    assert!(keyed.allow_n(&7, 3) && !keyed.allow(&1));
    assert!(keyed.reset_key_limit(&7));
    assert!(!keyed.reset_key_limit(&7));
    clock.advance(MS * 1000);
    assert!(!keyed.allow(&7));
}

#[test]
fn key_with_its_own_limit_is_never_dropped() {
    let (keyed, clock) = keyed(1.0, 1);
    let keyed = keyed.max_keys(2);
    keyed.set_key_limit(&7, Limit::ZERO, 3);
    for key in 100..200 {
        assert!(keyed.allow(&key));
        clock.advance(MS * 100);
    }
    assert!(keyed.tracked() <= 3);
    assert_eq!(keyed.key_burst(&7), 3);
    assert!(keyed.reset_key_limit(&7));
    assert_eq!(keyed.key_burst(&7), 1);
}

#[test]
fn own_limit_of_a_key_wakes_its_waiters() {
    let (keyed, _clock) = keyed(0.001, 2);
    assert!(keyed.allow_n(&1, 2));
    let mut small = pin!(keyed.wait(&1));
    let mut large = pin!(keyed.wait_n(&1, 2));
    assert!(poll_once(small.as_mut()).is_pending());
    assert!(poll_once(large.as_mut()).is_pending());
    keyed.set_key_limit(&1, Limit::per_second(1.0), 1);
    let error = WaitError::ExceedsBurst { asked: 2, burst: 1 };
    assert_eq!(poll_once(large.as_mut()), Poll::Ready(Err(error)));
    keyed.set_key_limit(&1, Limit::INF, 0);
    assert_eq!(poll_once(small.as_mut()), Poll::Ready(Ok(())));
}
