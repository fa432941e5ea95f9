//! A limiter that all users of a store share.

use std::num::NonZeroU32;
use std::time::Duration;

use super::trial::{Trial, at_once, millis, secs};
use crate::{Rate, TakeRequest, Taken, When};

fn rate(interval: Duration, burst: u32) -> Rate {
    Rate { interval, burst: NonZeroU32::new(burst).expect("not 0") }
}

/// A request for one token of a limiter with one token per second and a burst of 3.
fn one(max_wait: Duration) -> TakeRequest {
    let limiter = "api".to_owned();
    TakeRequest { limiter, rate: rate(secs(1), 3), n: 1, max_wait }
}

fn granted(after: Duration) -> Taken {
    Taken::Granted { after }
}

fn refused(retry_in: Duration) -> Taken {
    Taken::Refused { retry_in }
}

/// Takes the burst.
async fn take_burst(t: &Trial) {
    for _ in 0..3 {
        assert_eq!(t.take(&one(Duration::ZERO)).await, granted(Duration::ZERO));
    }
}

pub(super) async fn burst_is_granted_at_once_and_the_rest_is_spaced(t: Trial) {
    take_burst(&t).await;
    for wait in 1..5 {
        assert_eq!(t.take(&one(secs(10))).await, granted(secs(wait)));
    }
}

pub(super) async fn refused_request_takes_nothing(t: Trial) {
    take_burst(&t).await;
    for _ in 0..3 {
        assert_eq!(t.take(&one(Duration::ZERO)).await, refused(secs(1)));
    }
    t.clock.advance(millis(400));
    assert_eq!(t.take(&one(Duration::ZERO)).await, refused(millis(600)));
    t.clock.advance(millis(600));
    assert_eq!(t.take(&one(Duration::ZERO)).await, granted(Duration::ZERO));
    assert_eq!(t.take(&one(Duration::ZERO)).await, refused(secs(1)));
}

pub(super) async fn request_waits_at_most_its_limit(t: Trial) {
    take_burst(&t).await;
    assert_eq!(t.take(&one(millis(999))).await, refused(millis(1)));
    assert_eq!(t.take(&one(secs(1))).await, granted(secs(1)));
    assert_eq!(t.take(&one(secs(1))).await, refused(secs(1)));
}

pub(super) async fn tokens_come_back_with_time_up_to_the_burst(t: Trial) {
    take_burst(&t).await;
    t.clock.advance(secs(2));
    for _ in 0..2 {
        assert_eq!(t.take(&one(Duration::ZERO)).await, granted(Duration::ZERO));
    }
    assert_eq!(t.take(&one(Duration::ZERO)).await, refused(secs(1)));
    t.clock.advance(secs(3600));
    take_burst(&t).await;
    assert_eq!(t.take(&one(Duration::ZERO)).await, refused(secs(1)));
}

pub(super) async fn several_tokens_are_taken_together(t: Trial) {
    let some = |n, max_wait| TakeRequest { n, ..one(max_wait) };
    assert_eq!(t.take(&some(2, Duration::ZERO)).await, granted(Duration::ZERO));
    assert_eq!(t.take(&some(2, Duration::ZERO)).await, refused(secs(1)));
    assert_eq!(t.take(&some(1, Duration::ZERO)).await, granted(Duration::ZERO));
    assert_eq!(t.take(&some(5, secs(60))).await, granted(secs(5)), "more than the burst");
}

pub(super) async fn request_for_no_tokens_takes_none(t: Trial) {
    let none = TakeRequest { n: 0, ..one(Duration::ZERO) };
    assert_eq!(t.take(&none).await, granted(Duration::ZERO));
    take_burst(&t).await;
    assert_eq!(t.take(&none).await, granted(Duration::ZERO));
    assert_eq!(t.take(&one(secs(1))).await, granted(secs(1)));
}

pub(super) async fn limiters_have_their_own_tokens(t: Trial) {
    take_burst(&t).await;
    for name in ["", "API", "api ", "ünï'\\\"{}:cödé"] {
        let other = TakeRequest { limiter: name.to_owned(), ..one(Duration::ZERO) };
        assert_eq!(t.take(&other).await, granted(Duration::ZERO), "{name:?}");
    }
}

pub(super) async fn limiter_and_retries_have_their_own_tokens(t: Trial) {
    take_burst(&t).await;
    let limited = When::RateLimited(at_once(Some(rate(secs(1), 1))));
    assert_eq!(t.add_when("a", limited).await.delay, Duration::ZERO);
    assert_eq!(t.take(&one(Duration::ZERO)).await, refused(secs(1)));
}

pub(super) async fn handles_share_a_limiter(t: Trial) {
    take_burst(&t).await;
    let taken = t.other.take(&one(Duration::ZERO)).await.expect("take succeeds");
    assert_eq!(taken, refused(secs(1)));
}

/// A clock that was an hour ahead for a moment blocked the limiter for an hour.
pub(super) async fn wrong_clock_that_was_corrected_does_not_block_a_limiter(t: Trial) {
    take_burst(&t).await;
    t.clock.advance(secs(3600));
    assert_eq!(t.take(&one(Duration::ZERO)).await, granted(Duration::ZERO));
    t.clock.set_back(secs(3600));
    let Taken::Granted { after } = t.take(&one(Duration::MAX)).await else {
        panic!("any wait is accepted")
    };
    assert!(after <= secs(3), "{after:?}");
}

pub(super) async fn clock_stepping_back_forgives_no_tokens(t: Trial) {
    take_burst(&t).await;
    t.clock.set_back(secs(2));
    let taken = t.take(&one(Duration::ZERO)).await;
    assert!(matches!(taken, Taken::Refused { .. }), "{taken:?}");
}

pub(super) async fn any_rate_and_number_of_tokens_is_accepted(t: Trial) {
    let request = |name: &str, rate, n| TakeRequest {
        limiter: name.to_owned(),
        rate,
        n,
        max_wait: Duration::ZERO,
    };
    let slow = request("slow", rate(Duration::MAX, 1), 1);
    assert_eq!(t.take(&slow).await, granted(Duration::ZERO));
    assert!(matches!(t.take(&slow).await, Taken::Refused { .. }));
    let fast = request("fast", rate(Duration::ZERO, u32::MAX), 1_000_000);
    assert_eq!(t.take(&fast).await, granted(Duration::ZERO));
    let many = request("many", rate(millis(1), 1), u32::MAX);
    assert!(matches!(t.take(&many).await, Taken::Refused { .. }));
}

pub(super) async fn paused_queue_grants_tokens(t: Trial) {
    t.store.pause().await.expect("pause succeeds");
    take_burst(&t).await;
}
