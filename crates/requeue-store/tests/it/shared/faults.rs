//! Failed and unanswered calls are repeated, and leases lost on the way are reclaimed.

use std::task::Poll;

use requeue::Added;
use requeue_store::{ErrorKind, Finished, LeaseRequest, Store};

use super::spy::Fault;
use super::*;

/// Advances the clock until the task has ended.
async fn patiently<T>(bench: &Bench, task: tokio::task::JoinHandle<T>) -> T {
    while !task.is_finished() {
        settle().await;
        bench.local.advance(Duration::from_millis(10));
    }
    task.await.unwrap()
}

fn adding(bench: &Bench, key: &str) -> tokio::task::JoinHandle<Result<Added, ErrorKind>> {
    let (queue, key) = (bench.queue.clone(), key.to_owned());
    tokio::spawn(async move { queue.add(key).await.map_err(|error| error.kind()) })
}

#[tokio::test]
async fn add_is_repeated_while_the_store_is_unreachable() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.fail("add", Fault::Unreachable);
    bench.spy.fail("add", Fault::NoAnswer);
    let add = adding(&bench, "a");
    assert_eq!(
        patiently(&bench, add).await,
        Ok(Added::Duplicate),
        "the second attempt was executed"
    );
    assert_eq!(bench.spy.calls("add"), [1, 1, 1]);
    assert_eq!(bench.queue.len().await.unwrap(), 1);
}

#[tokio::test]
async fn permanent_error_is_returned_at_once() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.fail("add", Fault::Refused);
    assert_eq!(adding(&bench, "a").await.unwrap(), Err(ErrorKind::Server));
    assert_eq!(bench.spy.calls("add").len(), 1);
}

#[tokio::test]
async fn patience_ends() {
    let _limit = Limit::start();
    let bench = Bench::new();
    for _ in 0..1000 {
        bench.spy.fail("add", Fault::Unreachable);
    }
    let add = adding(&bench, "a");
    assert_eq!(patiently(&bench, add).await, Err(ErrorKind::Unavailable));
}

#[tokio::test]
async fn finish_without_an_answer_is_repeated_and_reported_as_unknown() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.fail("finish", Fault::NoAnswer);
    let finish = tokio::spawn(lease.succeed());
    let error = patiently(&bench, finish).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.to_string().contains("\"a\""), "{error}");
    assert_eq!(bench.queue.stats().await.unwrap().processing, 0);
}

#[tokio::test]
async fn finish_is_repeated_while_the_store_is_unreachable() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.fail("finish", Fault::Unreachable);
    let finish = tokio::spawn(lease.succeed());
    assert_eq!(patiently(&bench, finish).await.unwrap(), Finished::Done);
}

#[tokio::test]
async fn lost_leases_are_reclaimed() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    let get = tokio::spawn(bench.queue.get());
    let lease = patiently(&bench, get).await.unwrap().unwrap();
    assert_eq!((lease.key().as_str(), lease.deliveries()), ("a", 1));
    assert_eq!(bench.spy.calls("reclaim"), [0]);
}

/// If the reclaim failed too, it was not repeated, and the key stayed leased until its lease
/// expired.
#[tokio::test]
async fn lost_leases_are_reclaimed_once_the_store_is_back() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.spy.fail("reclaim", Fault::Unreachable);
    let get = tokio::spawn(bench.queue.get());
    let lease = patiently(&bench, get).await.unwrap().unwrap();
    assert_eq!((lease.key().as_str(), lease.deliveries()), ("a", 1));
    assert_eq!(bench.spy.calls("reclaim"), [0, 0]);
}

#[tokio::test]
async fn failed_reclaim_does_not_stop_leasing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    for _ in 0..1000 {
        bench.spy.fail("reclaim", Fault::Unreachable);
    }
    let get = tokio::spawn(bench.queue.get());
    settle().await;
    bench.add("b").await;
    let lease = patiently(&bench, get).await.unwrap().unwrap();
    assert_eq!(lease.key(), "b");
}

#[tokio::test]
async fn lost_try_get_is_reclaimed_before_the_next() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    let error = bench.queue.try_get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    let lease = bench.queue.try_get().await.unwrap().unwrap();
    assert_eq!((lease.key().as_str(), lease.deliveries()), ("a", 1));
}

#[tokio::test]
async fn heartbeat_reclaims_a_lost_try_get() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    while bench.queue.stats().await.unwrap().ready == 0 {
        settle().await;
        bench.local.advance(Duration::from_millis(100));
    }
    assert_eq!(bench.spy.calls("reclaim"), [0]);
}

/// Found by the fault test on PostgreSQL: the packets of a lease call were stuck, and the
/// server executed it after the reclaim. Its key stayed leased until the lease expired.
#[tokio::test]
async fn lease_call_that_is_executed_after_the_reclaim_is_reclaimed_too() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.fail("lease", Fault::Error(ErrorKind::Unknown));
    bench.queue.try_get().await.unwrap_err();
    assert!(bench.queue.try_get().await.unwrap().is_none());
    assert_eq!(bench.spy.calls("reclaim"), [0], "the reclaim came first");
    bench.add("a").await;
    let late = LeaseRequest {
        owner: bench.queue.owner().clone(),
        max: 1,
        lease: LEASE,
        max_deliveries: None,
    };
    assert_eq!(bench.spy.store.lease(&late).await.unwrap().grants.len(), 1);
    let mut passed = Duration::ZERO;
    while bench.queue.stats().await.unwrap().ready == 0 {
        settle().await;
        bench.pass(SECOND / 2);
        passed += SECOND / 2;
        assert!(passed < LEASE, "released by its expiry only");
    }
}

#[tokio::test]
async fn key_of_a_dropped_try_get_is_released() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let mut get = Box::pin(bench.queue.try_get());
    assert!(
        std::future::poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx).is_pending())).await
    );
    drop(get);
    while bench.spy.calls("finish").is_empty() {
        settle().await;
    }
    let lease = bench.queue.try_get().await.unwrap().unwrap();
    assert_eq!((lease.key().as_str(), lease.deliveries()), ("a", 1));
}

#[tokio::test]
async fn getter_receives_a_permanent_error() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.fail("lease", Fault::Refused);
    let error = bench.queue.get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server);
}

/// Each waiting batch was repeated for its own patience, one after the other.
#[tokio::test]
async fn patience_ends_for_all_waiting_callers_at_once() {
    let _limit = Limit::start();
    let bench = Bench::new();
    for _ in 0..1000 {
        bench.spy.fail("add", Fault::Unreachable);
    }
    let adds: Vec<_> = (0..2000).map(|key| adding(&bench, &key.to_string())).collect();
    let mut waited = Duration::ZERO;
    while adds.iter().any(|add| !add.is_finished()) {
        settle().await;
        bench.local.advance(Duration::from_millis(100));
        waited += Duration::from_millis(100);
    }
    assert!(waited <= 11 * SECOND, "{waited:?} for a patience of 10 s");
    let calls = bench.spy.calls("add");
    assert!(calls.len() < 30, "one batch at a time is repeated: {calls:?}");
    let mut kinds = Vec::new();
    for add in adds {
        kinds.push(add.await.unwrap());
    }
    assert!(kinds.iter().all(|kind| *kind == Err(ErrorKind::Unavailable)));
}

#[tokio::test]
async fn call_during_an_outage_has_its_own_patience() {
    let _limit = Limit::start();
    let bench = Bench::new();
    for _ in 0..1000 {
        bench.spy.fail("add", Fault::Unreachable);
    }
    let early = adding(&bench, "early");
    settle().await;
    let mut late = None;
    while !early.is_finished() {
        settle().await;
        bench.local.advance(SECOND / 10);
        if bench.spy.calls("add").len() == 8 {
            late.get_or_insert_with(|| adding(&bench, "late"));
        }
    }
    assert_eq!(early.await.unwrap(), Err(ErrorKind::Unavailable));
    let late = late.expect("more than eight attempts");
    settle().await;
    assert!(!late.is_finished(), "its patience has not ended");
    assert_eq!(patiently(&bench, late).await, Err(ErrorKind::Unavailable));
}

/// The heartbeat waited for a slow lease call, and held leases were lost meanwhile.
#[tokio::test]
async fn slow_lease_call_does_not_delay_the_heartbeat() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let held = bench.queue.get().await.unwrap().unwrap();
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    bench.spy.fail("reclaim", Fault::Unreachable);
    bench.spy.fail("lease", Fault::Late);
    let queue = bench.queue.clone();
    let late = tokio::spawn(async move { queue.try_get().await });
    for _ in 0..6 {
        settle().await;
        bench.pass(LEASE / 3);
    }
    settle().await;
    assert!(!held.is_lost());
    bench.spy.let_go();
    assert!(late.await.unwrap().unwrap().is_none());
}
