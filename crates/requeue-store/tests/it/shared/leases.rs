use requeue_store::{ErrorKind, Finished, SharedQueue, Store};

use super::spy::Fault;
use super::*;

#[tokio::test]
async fn a_lease_is_extended_for_as_long_as_it_is_held() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("slow").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    for _ in 0..20 {
        settle().await;
        bench.pass(LEASE / 3);
        settle().await;
        assert!(!lease.is_lost());
    }
    assert_eq!(bench.spy.calls("extend").len(), 20);
    assert_eq!(lease.succeed().await.unwrap(), Finished::Done);
}

#[tokio::test]
async fn a_holder_that_cannot_reach_the_store_stops_before_its_lease_runs_out() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    for _ in 0..3 {
        bench.spy.fail("extend", Fault::Unreachable);
    }
    let lost = tokio::spawn(lease.lost());
    settle().await;
    for _ in 0..2 {
        bench.pass(LEASE / 3);
        settle().await;
        assert!(!lost.is_finished());
    }
    // 27 of the 30 seconds: a tenth before the end.
    bench.pass(7 * SECOND);
    lost.await.unwrap();
    assert!(lease.is_lost());
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    assert!(other.try_get().await.unwrap().is_none(), "the store's lease still lasts");
}

#[tokio::test]
async fn a_process_that_slept_past_its_lease_finds_it_lost_and_changes_nothing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let stale = bench.queue.get().await.unwrap().unwrap();
    bench.engine.advance(LEASE);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let fresh = other.try_get().await.unwrap().unwrap();
    assert!(fresh.token() > stale.token());
    assert_eq!(fresh.deliveries(), 2);
    // It wakes up.
    bench.local.advance(LEASE);
    assert!(stale.is_lost());
    let error = stale.succeed().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert_eq!(fresh.succeed().await.unwrap(), Finished::Done);
}

#[tokio::test]
async fn the_store_tells_a_holder_that_its_lease_is_gone() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let lost = tokio::spawn(lease.lost());
    settle().await;
    bench.engine.advance(LEASE);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let fresh = other.try_get().await.unwrap().unwrap();
    bench.local.advance(LEASE / 3);
    lost.await.unwrap();
    assert!(lease.is_lost());
    assert!(!fresh.is_lost());
}

#[tokio::test]
async fn a_lease_that_is_dropped_is_released_and_counts_no_delivery() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    drop(bench.queue.get().await.unwrap().unwrap());
    let again = bench.queue.get().await.unwrap().unwrap();
    assert_eq!((again.deliveries(), again.num_requeues()), (1, 0));
}

#[tokio::test]
async fn a_lease_that_is_dropped_by_a_panic_is_retried() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let worker = tokio::spawn(async move {
        let _lease = lease;
        panic!("on purpose");
    });
    assert!(worker.await.unwrap_err().is_panic());
    settle().await;
    let failing = bench.spy.failing(10).await.unwrap();
    assert_eq!(
        (failing[0].failures, failing[0].error.as_str()),
        (1, "the worker panicked")
    );
}

#[tokio::test]
async fn a_worker_is_seen_while_it_waits_and_while_it_works() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let get = bench.queue.get();
    settle().await;
    bench.pass(LEASE / 3);
    settle().await;
    let workers = bench.spy.workers().await.unwrap();
    assert_eq!(workers.len(), 1);
    assert_eq!(&workers[0].owner, bench.queue.owner());
    assert_eq!((workers[0].seen, workers[0].processing), (Duration::ZERO, 0));
    bench.add("a").await;
    let _lease = get.await.unwrap().unwrap();
    assert_eq!(bench.spy.workers().await.unwrap()[0].processing, 1);
}
