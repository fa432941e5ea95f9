//! A held lease is extended, a lost lease is reported, and a dropped lease is retried.

use requeue::Finish;
use requeue_store::{ErrorKind, Finished, SharedQueue, Store};

use super::spy::Fault;
use super::*;

#[tokio::test]
async fn held_lease_is_extended() {
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
async fn unreachable_store_makes_the_holder_stop_before_the_lease_expires() {
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
    // 27 of 30 seconds: a tenth before the end.
    bench.pass(7 * SECOND);
    lost.await.unwrap();
    assert!(lease.is_lost());
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    assert!(
        other.try_get().await.unwrap().is_none(),
        "the lease has not expired in the store"
    );
}

#[tokio::test]
async fn stalled_process_finds_its_lease_lost_and_changes_nothing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let stale = bench.queue.get().await.unwrap().unwrap();
    bench.engine.advance(LEASE);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let fresh = other.try_get().await.unwrap().unwrap();
    assert!(fresh.token() > stale.token());
    assert_eq!(fresh.deliveries(), 2);
    // The process wakes up.
    bench.local.advance(LEASE);
    assert!(stale.is_lost());
    let error = stale.succeed().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert_eq!(fresh.succeed().await.unwrap(), Finished::Done);
}

#[tokio::test]
async fn holder_learns_from_the_store_that_its_lease_is_lost() {
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

/// A key whose worker always dropped it, by a `?` for example, was delivered again at once:
/// 2,001 times in a loop.
#[tokio::test]
async fn key_that_is_always_dropped_backs_off() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    for failures in 0..5 {
        let lease = bench.queue.try_get().await.unwrap().unwrap();
        assert_eq!((lease.num_requeues(), lease.deliveries()), (failures, 1));
        drop(lease);
        settle().await;
        assert!(bench.queue.try_get().await.unwrap().is_none(), "the key is delayed");
        let failing = bench.spy.failing(1).await.unwrap();
        assert_eq!(failing[0].retry_in, Some(Duration::from_millis(5 << failures)));
        assert_eq!(failing[0].error, "the worker dropped the lease");
        bench.engine.advance(Duration::from_millis(5 << failures));
    }
}

#[tokio::test]
async fn dropped_lease_ends_as_the_builder_says() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let released = SharedQueue::<String, _>::builder(bench.spy.clone())
        .on_drop(Finish::Release)
        .build();
    bench.add("a").await;
    drop(released.get().await.unwrap().unwrap());
    let again = bench.queue.get().await.unwrap().unwrap();
    assert_eq!((again.deliveries(), again.num_requeues()), (1, 0));
    again.succeed().await.unwrap();

    let dead = SharedQueue::<String, _>::builder(bench.spy.clone())
        .on_drop(Finish::GiveUp)
        .build();
    bench.add("b").await;
    drop(dead.get().await.unwrap().unwrap().with_error("not for us"));
    dead.shutdown().await;
    let dead = bench.spy.dead(1).await.unwrap();
    assert_eq!(dead[0].reason, "not for us");
}

#[tokio::test]
async fn key_that_no_worker_received_is_released_without_a_failure() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let get = start(bench.queue.get());
    settle().await;
    bench.add("a").await;
    while bench.spy.stats().await.unwrap().processing == 0 {
        settle().await;
    }
    drop(get);
    let lease = bench.queue.get().await.unwrap().unwrap();
    assert_eq!((lease.deliveries(), lease.num_requeues()), (1, 0));
}

#[tokio::test]
async fn lease_dropped_by_a_panic_is_retried() {
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
async fn worker_is_listed_while_it_waits_and_works() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let get = start(bench.queue.get());
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
