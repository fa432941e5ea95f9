//! The exact messages of errors: people search for them.

use std::error::Error;
use std::time::Duration;

use requeue::rate::{Limit, Limiter, Pacer};
use requeue::testing::FakeClock;
use requeue::{GetTimeoutError, Queue, TryGetError};

use crate::helpers::secs;

#[track_caller]
fn assert_says(error: &(dyn Error + Send + Sync + 'static), message: &str) {
    assert_eq!(error.to_string(), message);
    assert!(error.source().is_none(), "there is no deeper cause");
}

#[test]
fn getters_say_why_they_return_no_key() {
    assert_says(&TryGetError::Empty, "no key is ready");
    assert_says(&TryGetError::Closed, "the queue is closed and no key is ready");
    assert_says(&GetTimeoutError::Timeout, "no key became ready in time");
    assert_says(&GetTimeoutError::Closed, "the queue is closed and no key is ready");
    let queue = Queue::new();
    queue.close();
    assert_says(&queue.add("key").unwrap_err(), "the queue is closed");
}

#[test]
fn drain_reports_what_is_left() {
    let queue = Queue::new();
    queue.add_all(0..5).unwrap();
    let _lease = queue.try_get();
    let error = queue.drain_blocking_timeout(Duration::ZERO).unwrap_err();
    let message = "not drained in time: 4 ready and 1 processing keys left";
    assert_says(&error, message);
}

#[test]
fn limiters_report_the_request() {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 3, clock.clone());
    let error = limiter.reserve_n(5).unwrap_err();
    assert_says(&error, "asked for 5 tokens, but the burst is 3");
    assert!(limiter.allow_n(3));
    let error = limiter.wait_blocking_deadline(clock.now()).unwrap_err();
    assert_says(&error, "the wait takes 1s, but the deadline is 0ns away");
    limiter.set_limit(Limit::ZERO);
    let error = limiter.reserve_n(2).unwrap_err();
    assert_says(&error, "asked for 2 tokens, which never come at the current limit");
    let error = limiter.reserve().unwrap_err();
    assert_says(&error, "asked for 1 token, which never comes at the current limit");
    limiter.set_burst(0);
    let error = limiter.reserve().unwrap_err();
    assert_says(&error, "asked for 1 token, but the burst is 0");
}

#[test]
fn invalid_numbers_are_named() {
    let error = Limit::try_per_second(-1.0).unwrap_err();
    let message = "a limit must be 0 or more events per second, not -1";
    assert_says(&error, message);
    let error = Pacer::builder(0).try_build().unwrap_err();
    assert_says(&error, "a pace needs at least 1 permission per period, not 0");
    let error = Pacer::builder(1).per(secs(0)).try_build().unwrap_err();
    assert_says(&error, "a pace needs a period longer than 0 ns");
}
