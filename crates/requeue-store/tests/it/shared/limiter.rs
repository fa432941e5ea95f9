//! `SharedLimiter`: one rate for all users of a store.

use std::num::NonZeroU32;

use requeue_store::{ErrorKind, Rate, SharedLimiter};

use super::spy::Fault;
use super::*;

/// A limiter of one token per second with a burst of 2.
fn limiter(bench: &Bench) -> SharedLimiter<Spy> {
    let rate = Rate { interval: SECOND, burst: NonZeroU32::new(2).unwrap() };
    SharedLimiter::with_clock(bench.spy.clone(), "api", rate, bench.local.clone())
}

async fn take_burst(limiter: &SharedLimiter<Spy>) {
    assert!(limiter.allow_n(2).await.unwrap());
    assert!(!limiter.allow().await.unwrap());
}

#[tokio::test]
async fn waiters_are_served_in_order_at_the_rate() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let limiter = limiter(&bench);
    take_burst(&limiter).await;
    let mut waits: Vec<_> = (0..3).map(|_| start(limiter.wait())).collect();
    for _ in 0..3 {
        bench.pass(SECOND);
        waits.remove(0).await.unwrap();
        assert!(waits.iter_mut().all(|wait| is_waiting(wait.as_mut())));
    }
}

/// Otherwise each waiter would ask the store at each token.
#[tokio::test]
async fn only_the_first_waiter_asks_the_store() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let limiter = limiter(&bench);
    take_burst(&limiter).await;
    let before = bench.spy.calls("take").len();
    let waits: Vec<_> = (0..10).map(|_| start(limiter.wait())).collect();
    assert_eq!(bench.spy.calls("take").len() - before, 1);
    drop(waits);
}

#[tokio::test]
async fn cancelled_waiter_costs_no_token() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let limiter = limiter(&bench);
    take_burst(&limiter).await;
    let [first, second] = [start(limiter.wait()), start(limiter.wait())];
    drop((first, second));
    let staying = start(limiter.wait());
    bench.pass(SECOND);
    staying.await.unwrap();
}

#[tokio::test]
async fn deadline_that_comes_too_early_is_refused_at_once_and_costs_nothing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let limiter = limiter(&bench);
    take_burst(&limiter).await;
    let now = bench.local.now();
    let error = limiter.wait_deadline(now + SECOND / 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let in_time = start(limiter.wait_deadline(now + SECOND));
    let mut behind = start(limiter.wait_deadline(now + SECOND));
    bench.pass(SECOND);
    assert!(!is_waiting(behind.as_mut()));
    in_time.await.unwrap();
}

#[tokio::test]
async fn wait_survives_an_outage_and_allow_reports_it() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let limiter = limiter(&bench);
    bench.spy.fail("take", Fault::Unreachable);
    assert_eq!(limiter.allow().await.unwrap_err().kind(), ErrorKind::Unavailable);
    bench.spy.fail("take", Fault::Error(ErrorKind::Full));
    bench.spy.fail("take", Fault::NoAnswer);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.wait().await }
    });
    while !waiting.is_finished() {
        settle().await;
        bench.pass(SECOND / 100);
    }
    waiting.await.unwrap().unwrap();
    assert_eq!(bench.spy.calls("take").len(), 4);
}

#[tokio::test]
async fn more_tokens_than_the_burst_are_invalid() {
    let bench = Bench::new();
    let limiter = limiter(&bench);
    for error in
        [limiter.allow_n(3).await.unwrap_err(), limiter.wait_n(3).await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), "3 tokens exceed the burst of 2");
    }
    assert!(bench.spy.calls("take").is_empty());
}
