//! Tasks that end early, and queues that shut down: callers get an error, and no key stays
//! leased.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::Added;
use requeue::pool::Pool;
use requeue_store::{ErrorKind, SharedLease, Store};
use tokio::runtime::{Builder, Runtime};

use super::spy::Fault;
use super::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).build().unwrap()
}

/// Every call after the end of the runtime waited forever, except `try_get`.
#[test]
fn calls_after_the_end_of_the_runtime_fail() {
    let _limit = Limit::start();
    let first = runtime();
    let store = MemoryStore::new();
    let queue = SharedQueue::<String, _>::builder(store).build_on(first.handle().clone());
    let lease = first.block_on(async {
        queue.add("a".to_owned()).await.unwrap();
        queue.get().await.unwrap().unwrap()
    });
    drop(first);
    runtime().block_on(async {
        let add = queue.add("b".to_owned()).await.unwrap_err();
        assert_eq!(add.kind(), ErrorKind::Closed, "{add}");
        assert_eq!(queue.get().await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(queue.try_get().await.unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(lease.succeed().await.unwrap_err().kind(), ErrorKind::Closed);
        queue.shutdown().await;
    });
}

/// An add that waited for one in flight hung forever.
#[test]
fn waiting_calls_fail_at_the_end_of_the_runtime() {
    let _limit = Limit::start();
    let (first, second) = (runtime(), runtime());
    let spy = Spy::on(MemoryStore::new());
    spy.fail("add", Fault::Late);
    let queue =
        SharedQueue::<String, _>::builder(spy.clone()).build_on(first.handle().clone());
    let mut sent = Box::pin(queue.add("sent".to_owned()));
    assert!(is_waiting(sent.as_mut()));
    while spy.calls("add").is_empty() {}
    let mut waiting = Box::pin(queue.add("waiting".to_owned()));
    assert!(is_waiting(waiting.as_mut()));
    drop(first);
    second.block_on(async {
        assert_eq!(sent.await.unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
        queue.shutdown().await;
    });
}

/// A panic in a task left the waiting calls without a task that would send them.
#[tokio::test]
async fn panic_of_a_store_fails_one_call() {
    let _limit = Limit::start();
    let bench = Bench::new();
    for name in ["add", "lease", "finish"] {
        bench.spy.fail(name, Fault::Panic);
    }
    let error = bench.queue.add("a".to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    bench.add("a").await;
    assert_eq!(bench.queue.get().await.unwrap_err().kind(), ErrorKind::Closed);
    let lease = bench.queue.get().await.unwrap().unwrap();
    assert_eq!(lease.succeed().await.unwrap_err().kind(), ErrorKind::Unknown);
    bench.queue.shutdown().await;
}

/// A panic of the callback could stop the heartbeat.
#[tokio::test]
async fn panic_of_on_error_is_contained() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let reported = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reported);
    let queue = SharedQueue::<String, _>::builder(bench.spy.clone())
        .clock(bench.local.clone())
        .on_error(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose");
        })
        .build();
    bench.spy.fail("add", Fault::Unreachable);
    let adding = tokio::spawn({
        let queue = queue.clone();
        async move { queue.add("a".to_owned()).await }
    });
    while !adding.is_finished() {
        settle().await;
        bench.local.advance(Duration::from_millis(10));
    }
    assert_eq!(adding.await.unwrap().unwrap(), Added::Ready);
    let lease = queue.get().await.unwrap().unwrap();
    bench.spy.fail("extend", Fault::Unreachable);
    for _ in 0..6 {
        settle().await;
        bench.pass(LEASE / 3);
    }
    settle().await;
    assert!(!lease.is_lost());
    assert_eq!(reported.load(Ordering::Relaxed), 2);
}

/// It returned as soon as no lease was held, and a key in transit stayed leased until its
/// lease expired.
#[tokio::test]
async fn shutdown_waits_for_a_lease_call_in_flight() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::Late);
    let get = tokio::spawn(bench.queue.get());
    while bench.spy.calls("lease").is_empty() {
        settle().await;
    }
    let queue = bench.queue.clone();
    let shutdown = tokio::spawn(async move { queue.shutdown().await });
    settle().await;
    assert!(get.await.unwrap().unwrap().is_none());
    assert!(!shutdown.is_finished());
    bench.spy.let_go();
    shutdown.await.unwrap();
    let stats = bench.spy.stats().await.unwrap();
    assert_eq!((stats.ready, stats.processing), (1, 0));
}

#[tokio::test]
async fn shutdown_waits_for_a_try_get_in_flight() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::Late);
    let queue = bench.queue.clone();
    let trying = tokio::spawn(async move { queue.try_get().await });
    while bench.spy.calls("lease").is_empty() {
        settle().await;
    }
    let queue = bench.queue.clone();
    let shutdown = tokio::spawn(async move { queue.shutdown().await });
    settle().await;
    assert!(!shutdown.is_finished());
    bench.spy.let_go();
    shutdown.await.unwrap();
    // A closed queue delivered the key, without a heartbeat.
    assert!(trying.await.unwrap().unwrap().is_none());
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn shutdown_reclaims_lost_leases() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    bench.queue.shutdown().await;
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

/// A process that ended right after it had stopped its pool left keys leased.
#[tokio::test]
async fn stopping_a_pool_waits_for_a_lease_call_in_flight() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let pool = Pool::new(bench.queue.clone()).spawn_tasks(|_| async {}).unwrap();
    settle().await;
    bench.spy.fail("lease", Fault::Late);
    bench.add("a").await;
    while bench.spy.stats().await.unwrap().processing == 0 {
        settle().await;
    }
    let stopping = tokio::spawn(async move { pool.stop(60 * SECOND).await });
    settle().await;
    assert!(!stopping.is_finished());
    bench.spy.let_go();
    assert!(stopping.await.unwrap().in_time());
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn finished_lease_is_not_lost() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let lost = tokio::spawn(lease.lost());
    lease.succeed().await.unwrap();
    bench.pass(2 * LEASE);
    settle().await;
    assert!(!lost.is_finished());
}

/// A lease that its holder knew to be lost was still extended.
#[tokio::test]
async fn lost_lease_is_not_extended() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.local.advance(LEASE / 10 * 9);
    assert!(lease.is_lost());
    settle().await;
    assert_eq!(bench.spy.calls("heartbeat"), [0]);
    drop::<SharedLease<_, _>>(lease);
}
