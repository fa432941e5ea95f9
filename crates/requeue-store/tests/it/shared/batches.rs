//! Concurrent calls share one call to the store.

use requeue_store::{SharedLease, Store};

use super::*;

#[tokio::test]
async fn concurrent_adds_go_in_one_call() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let adds = (0..100).map(|n| {
        let queue = bench.queue.clone();
        tokio::spawn(async move { queue.add(n.to_string()).await })
    });
    for add in adds.collect::<Vec<_>>() {
        add.await.unwrap().unwrap();
    }
    let calls = bench.spy.calls("add");
    assert_eq!(calls.iter().sum::<usize>(), 100);
    assert!(calls.len() <= 2, "the first alone, the rest together: {calls:?}");
}

#[tokio::test]
async fn concurrent_finishes_go_in_one_call() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let keys = (0..50).map(|n| n.to_string());
    assert_eq!(bench.queue.add_all(keys).await.unwrap().ready, 50);
    let leases = bench.queue.try_get_many(50).await.unwrap();
    let finishes: Vec<_> = leases.into_iter().map(SharedLease::succeed).collect();
    for finish in finishes {
        finish.await.unwrap();
    }
    let calls = bench.spy.calls("finish");
    assert_eq!(calls.iter().sum::<usize>(), 50);
    assert!(calls.len() <= 2, "{calls:?}");
}

#[tokio::test]
async fn getters_are_served_in_order_by_one_call() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let gets: Vec<_> = (0..10).map(|_| start(bench.queue.get())).collect();
    bench.queue.add_all((0..10).map(|n| n.to_string())).await.unwrap();
    for (n, get) in gets.into_iter().enumerate() {
        let lease = get.await.unwrap().unwrap();
        assert_eq!(lease.key(), &n.to_string());
        lease.succeed().await.unwrap();
    }
    assert!(bench.spy.calls("lease").contains(&10));
}

#[tokio::test]
async fn add_all_splits_large_batches() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let all = bench.queue.add_all((0..1000).map(|n| (n % 900).to_string())).await;
    let all = all.unwrap();
    assert_eq!((all.ready, all.duplicate), (900, 100));
    assert!(bench.spy.calls("add").iter().all(|size| *size <= 256));
}

#[tokio::test]
async fn idle_getter_asks_once_and_waits() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let get = start(bench.queue.get());
    settle().await;
    assert_eq!(bench.spy.calls("lease").len(), 1);
    assert!(is_waiting(get));
}

/// It asked again at once, a million times in three seconds, because a key was ready.
#[tokio::test]
async fn getter_of_a_paused_queue_waits_until_it_is_resumed() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.pause().await.unwrap();
    bench.add("a").await;
    let get = tokio::spawn(bench.queue.get());
    settle().await;
    bench.add("b").await;
    settle().await;
    assert!(bench.spy.calls("lease").len() <= 3, "{:?}", bench.spy.calls("lease"));
    bench.spy.resume().await.unwrap();
    assert_eq!(get.await.unwrap().unwrap().unwrap().key(), "a");
}

/// A cancelled getter took the only wake-up, and another one waited for seconds.
#[tokio::test]
async fn cancelled_getter_passes_its_wake_up_on() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let leaving = start(bench.queue.get());
    settle().await;
    drop(leaving);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let staying = tokio::spawn(other.get());
    settle().await;
    bench.add("a").await;
    settle().await;
    assert!(staying.is_finished(), "without the wake-up it would look in 20 seconds");
    assert_eq!(staying.await.unwrap().unwrap().unwrap().key(), "a");
}
