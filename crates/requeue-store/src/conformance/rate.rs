//! The rate that all workers of a queue share is that of a token bucket.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{Trial, add, at_once, finish_request, key, millis, numbered, secs};
use crate::{Backoff, FinishRequest, Finished, Rate, Receipt, When};

fn rate(interval: Duration, burst: u32) -> Rate {
    Rate { interval, burst: NonZeroU32::new(burst).expect("not 0") }
}

/// The reference: a bucket that starts full, gains a token per interval, and may be
/// overdrawn. Its level is the time in microseconds that it takes to fill.
struct Bucket {
    level: i64,
    full: i64,
    interval: i64,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        let interval = i64::try_from(rate.interval.as_micros()).expect("short");
        let full = interval * i64::from(rate.burst.get());
        Self { level: full, full, interval }
    }

    fn fill(&mut self, time: Duration) {
        let time = i64::try_from(time.as_micros()).expect("short");
        self.level = self.full.min(self.level + time);
    }

    fn take(&mut self) -> Duration {
        self.level -= self.interval;
        Duration::from_micros(u64::try_from(-self.level).unwrap_or(0))
    }
}

fn assert_delay(receipt: Receipt, delay: Duration) {
    let added = if delay.is_zero() { Added::Ready } else { Added::Delayed };
    assert_eq!((receipt.added, receipt.delay), (added, delay));
}

pub(super) async fn burst_is_free_and_the_rest_is_spaced(t: Trial) {
    let limited = When::RateLimited(at_once(Some(rate(millis(100), 100))));
    let names = numbered(130);
    let adds: Vec<_> = names.iter().map(|key| add(key, limited)).collect();
    let receipts = t.receipts(&adds).await;
    for (number, receipt) in (0..).zip(receipts) {
        assert_delay(receipt, millis(100) * u32::saturating_sub(number, 99));
    }
}

pub(super) async fn rate_equals_that_of_a_token_bucket(t: Trial) {
    let rate = rate(millis(7), 3);
    let mut bucket = Bucket::new(rate);
    let when = When::RateLimited(at_once(Some(rate)));
    for (number, pause) in
        [0, 0, 3, 9, 1, 0, 0, 0, 0, 2, 50, 0, 0, 0, 0, 6, 7, 8, 1000, 0]
            .into_iter()
            .cycle()
            .take(100)
            .enumerate()
    {
        t.clock.advance(millis(pause));
        bucket.fill(millis(pause));
        assert_delay(t.add_when(&number.to_string(), when).await, bucket.take());
    }
}

pub(super) async fn retries_and_adds_share_the_rate(t: Trial) {
    let backoff = at_once(Some(rate(secs(10), 1)));
    let grant = t.lease_new("a").await;
    assert_delay(t.add_when("b", When::RateLimited(backoff)).await, Duration::ZERO);
    let finished = t.retry_with(&grant, backoff).await;
    assert_eq!(finished, Finished::Delayed(secs(10)));
    assert_delay(t.add_when("c", When::RateLimited(backoff)).await, secs(20));
}

pub(super) async fn longer_of_backoff_and_rate_wins(t: Trial) {
    let backoff = Backoff { base: secs(5), max: secs(60), rate: Some(rate(secs(3), 1)) };
    let expected = [("a", 5), ("b", 5), ("c", 6), ("d", 9)];
    for (name, delay) in expected {
        assert_delay(t.add_when(name, When::RateLimited(backoff)).await, secs(delay));
    }
}

pub(super) async fn retry_after_takes_no_token(t: Trial) {
    let backoff = at_once(Some(rate(secs(10), 1)));
    let grant = t.lease_new("a").await;
    let finish = Finish::RetryAfter(secs(1));
    t.finish_all(&[FinishRequest { backoff, ..finish_request(&grant, finish) }]).await;
    assert_delay(t.add_when("b", When::RateLimited(backoff)).await, Duration::ZERO);
}

pub(super) async fn adds_without_a_rate_take_no_token(t: Trial) {
    let limited = at_once(Some(rate(secs(10), 1)));
    for name in ["a", "b", "c"] {
        assert_delay(t.add_when(name, When::RateLimited(at_once(None))).await, Duration::ZERO);
        t.add_after(name, secs(1)).await;
    }
    assert_delay(t.add_when("d", When::RateLimited(limited)).await, Duration::ZERO);
    assert_delay(t.add_when("e", When::RateLimited(limited)).await, secs(10));
}

pub(super) async fn duplicate_add_takes_a_token_too(t: Trial) {
    let limited = When::RateLimited(at_once(Some(rate(secs(10), 2))));
    let adds = vec![add(&key("a"), limited); 3];
    let added = t.adds(&adds).await;
    assert_eq!(added, [Added::Ready, Added::Duplicate, Added::Delayed]);
    assert_eq!(t.state("a").await, "ready, delayed 10s, failures 3");
}

pub(super) async fn refused_finish_takes_no_token(t: Trial) {
    let backoff = at_once(Some(rate(secs(60), 1)));
    let grant = t.lease_new("a").await;
    t.finish(&grant, Finish::Done).await;
    let late = FinishRequest { backoff, ..finish_request(&grant, Finish::Retry) };
    assert_eq!(t.finish_all(&[late.clone(), late]).await, [Finished::LeaseLost; 2]);
    assert_delay(t.add_when("a", When::RateLimited(backoff)).await, Duration::ZERO);
}

/// A clock that was an hour ahead for a moment delayed all later retries by an hour.
pub(super) async fn wrong_clock_that_was_corrected_does_not_delay_retries(t: Trial) {
    let limited = When::RateLimited(at_once(Some(rate(secs(1), 2))));
    for name in ["a", "b", "c"] {
        t.add_when(name, limited).await;
    }
    t.clock.advance(secs(3600));
    t.add_when("d", limited).await;
    t.clock.set_back(secs(3600));
    let delay = t.add_when("e", limited).await.delay;
    assert!(delay <= secs(2), "{delay:?}");
}

pub(super) async fn any_burst_is_accepted(t: Trial) {
    let generous = at_once(Some(rate(secs(3600), u32::MAX)));
    for name in ["a", "b", "c"] {
        assert_delay(t.add_when(name, When::RateLimited(generous)).await, Duration::ZERO);
    }
}

pub(super) async fn longest_possible_interval_is_accepted(t: Trial) {
    let slow = When::RateLimited(at_once(Some(rate(Duration::MAX, 1))));
    assert_delay(t.add_when("a", slow).await, Duration::ZERO);
    for name in ["b", "c", "d", "e"] {
        assert_eq!(t.add_when(name, slow).await.added, Added::Delayed);
        assert!(t.look(name).await.delayed > Some(secs(100 * 365 * 24 * 3600)));
    }
}
