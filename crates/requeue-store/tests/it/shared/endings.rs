//! Tasks that end in the middle, and queues that end: who waits is told, and nothing is
//! left with nobody.

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

/// Every call after the end of the runtime waited for ever, except for a try.
#[test]
fn calls_after_the_end_of_the_runtime_are_told_of_it() {
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
        queue.drain().await;
    });
}

/// An add in line behind one that was on its way waited for ever.
#[test]
fn calls_in_line_at_the_end_of_the_runtime_are_told_of_it() {
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
        queue.drain().await;
    });
}

/// A panic in a task left its line without anybody who would send.
#[tokio::test]
async fn a_store_that_panics_costs_one_call() {
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
    bench.queue.drain().await;
}

/// Whoever listened for errors could stop the heart of the queue.
#[tokio::test]
async fn a_listener_for_errors_that_panics_costs_nothing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let told = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&told);
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
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

/// It came back as soon as no lease was held, and the key that was on its way stayed with
/// nobody until its lease ran out.
#[tokio::test]
async fn draining_waits_for_keys_that_are_on_their_way() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::Late);
    let get = tokio::spawn(bench.queue.get());
    while bench.spy.calls("lease").is_empty() {
        settle().await;
    }
    let queue = bench.queue.clone();
    let draining = tokio::spawn(async move { queue.drain().await });
    settle().await;
    assert!(get.await.unwrap().unwrap().is_none());
    assert!(!draining.is_finished());
    bench.spy.let_go();
    draining.await.unwrap();
    let stats = bench.spy.stats().await.unwrap();
    assert_eq!((stats.ready, stats.processing), (1, 0));
}

#[tokio::test]
async fn draining_waits_for_a_try_that_is_on_its_way() {
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
    let draining = tokio::spawn(async move { queue.drain().await });
    settle().await;
    assert!(!draining.is_finished());
    bench.spy.let_go();
    draining.await.unwrap();
    // It was handed out by a closed queue, without a heartbeat.
    assert!(trying.await.unwrap().unwrap().is_none());
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn draining_brings_back_what_was_leased_to_nobody() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    bench.spy.fail("lease", Fault::NoAnswer);
    bench.queue.try_get().await.unwrap_err();
    bench.queue.drain().await;
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

/// A process that ended after it had stopped its pool left keys with nobody.
#[tokio::test]
async fn stopping_a_pool_waits_for_keys_that_are_on_their_way() {
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
async fn a_lease_that_ended_well_is_not_lost() {
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

/// A lease that its holder found lost was extended for as long as it was held.
#[tokio::test]
async fn a_lease_that_is_lost_is_not_extended() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.local.advance(LEASE / 10 * 9);
    assert!(lease.is_lost());
    settle().await;
    assert_eq!(bench.spy.calls("extend"), [0]);
    drop::<SharedLease<_, _>>(lease);
}
