use requeue_store::{SharedLease, Store};

use super::*;

#[tokio::test]
async fn adds_that_come_together_go_in_one_call() {
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
    assert!(calls.len() <= 2, "one goes ahead, the rest together: {calls:?}");
}

#[tokio::test]
async fn ends_of_leases_go_together_too() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let keys = (0..50).map(|n| n.to_string());
    assert_eq!(bench.queue.add_all(keys).await.unwrap().ready, 50);
    let leases = bench.queue.try_get_many(50).await.unwrap();
    let ends: Vec<_> = leases.into_iter().map(SharedLease::succeed).collect();
    for end in ends {
        end.await.unwrap();
    }
    let calls = bench.spy.calls("finish");
    assert_eq!(calls.iter().sum::<usize>(), 50);
    assert!(calls.len() <= 2, "{calls:?}");
}

#[tokio::test]
async fn those_who_wait_are_served_by_one_call_in_the_order_in_which_they_came() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let gets: Vec<_> = (0..10).map(|_| bench.queue.get()).collect();
    bench.queue.add_all((0..10).map(|n| n.to_string())).await.unwrap();
    for (n, get) in gets.into_iter().enumerate() {
        let lease = get.await.unwrap().unwrap();
        assert_eq!(lease.key(), &n.to_string());
        lease.succeed().await.unwrap();
    }
    assert!(bench.spy.calls("lease").contains(&10));
}

#[tokio::test]
async fn add_all_splits_what_is_too_much_for_one_call() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let all = bench.queue.add_all((0..1000).map(|n| (n % 900).to_string())).await;
    let all = all.unwrap();
    assert_eq!((all.ready, all.duplicate), (900, 100));
    assert!(bench.spy.calls("add").iter().all(|size| *size <= 256));
}

#[tokio::test]
async fn an_idle_worker_asks_the_store_and_then_waits() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let get = bench.queue.get();
    settle().await;
    assert_eq!(bench.spy.calls("lease").len(), 1);
    assert!(is_waiting(get));
}

/// It asked again at once, a million times in three seconds, since there was a ready key.
#[tokio::test]
async fn a_worker_of_a_paused_queue_waits_until_it_is_resumed() {
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

/// A worker that had stopped waiting took the only wake-up, and another waited for seconds.
#[tokio::test]
async fn a_worker_that_stopped_waiting_leaves_the_wake_up_to_others() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let leaving = bench.queue.get();
    settle().await;
    drop(leaving);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let staying = tokio::spawn(other.get());
    settle().await;
    bench.add("a").await;
    settle().await;
    assert!(staying.is_finished(), "it would look by itself in 20 seconds");
    assert_eq!(staying.await.unwrap().unwrap().unwrap().key(), "a");
}
