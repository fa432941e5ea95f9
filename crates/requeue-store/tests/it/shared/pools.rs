//! A pool processes the keys of a `SharedQueue`.

use std::sync::Mutex;
use std::sync::mpsc;

use requeue::pool::{Handle, Pool};
use requeue_store::{SharedQueue, Store};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_of_threads_processes_every_key() {
    let _limit = Limit::start();
    let store = MemoryStore::new();
    let queue = SharedQueue::<String, _>::new(store.clone());
    let (done, ran) = mpsc::channel();
    let done = Mutex::new(done);
    let pool = Pool::new(queue.clone()).workers(4).spawn_threads(move |run| {
        done.lock().unwrap().send(run.key().clone()).unwrap();
    });
    let pool = pool.unwrap();
    queue.add_all((0..100).map(|n| n.to_string())).await.unwrap();
    let mut keys: Vec<u32> =
        ran.iter().take(100).map(|key| key.parse().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
    let stopped = pool.drain(60 * SECOND).await;
    assert!(stopped.in_time() && stopped.left.is_empty());
    queue.shutdown().await;
    assert_eq!(store.stats().await.unwrap(), requeue_store::Stats::default());
}

#[tokio::test]
async fn pool_of_tasks_retries_and_gives_up_in_the_store() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let pool = Pool::new(bench.queue.clone())
        .max_retries(1)
        .clock(bench.local.clone())
        .spawn_tasks(
            |run| async move { Err::<(), _>(format!("{} is broken", run.key())) },
        )
        .unwrap();
    bench.add("a").await;
    settle().await;
    let failing = bench.spy.failing(1).await.unwrap();
    assert_eq!(failing[0].error, "a is broken");
    bench.engine.advance(SECOND);
    bench.add("wake").await;
    settle().await;
    let dead = bench.spy.dead(10).await.unwrap();
    assert_eq!(
        (dead[0].key.to_string().as_str(), dead[0].reason.as_str()),
        ("a", "a is broken")
    );
    pool.stop(SECOND).await;
}

/// Starts a pool whose handler never ends, with the key "a".
async fn busy_pool(bench: &Bench) -> Handle<SharedQueue<String, Spy>> {
    let pool = Pool::new(bench.queue.clone())
        .clock(bench.local.clone())
        .spawn_tasks(|_| std::future::pending::<()>())
        .unwrap();
    bench.add("a").await;
    settle().await;
    pool
}

#[tokio::test]
async fn run_with_a_lost_lease_is_cancelled() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let pool = busy_pool(&bench).await;
    bench.engine.advance(LEASE);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    let lease = other.try_get().await.unwrap().unwrap();
    bench.local.advance(LEASE / 3);
    settle().await;
    pool.set_workers(0).unwrap();
    pool.join().await;
    assert_eq!(lease.succeed().await.unwrap(), requeue_store::Finished::Done);
}

#[tokio::test]
async fn stopped_run_is_released() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let pool = busy_pool(&bench).await;
    let stopping = {
        let pool = pool.clone();
        tokio::spawn(async move { pool.stop(SECOND).await })
    };
    settle().await;
    bench.local.advance(SECOND);
    let stopped = stopping.await.unwrap();
    assert_eq!(stopped.still_running, ["a"]);
    settle().await;
    assert_eq!(bench.spy.stats().await.unwrap().ready, 1);
}

/// The handle was closed, and later adds were not stored.
#[tokio::test]
async fn undecodable_key_does_not_stop_a_pool() {
    let _limit = Limit::start();
    let store = MemoryStore::new();
    let names = SharedQueue::<String, _>::new(store.clone());
    names.add("no number".to_owned()).await.unwrap();
    let (report, errors) = mpsc::channel();
    let report = Mutex::new(report);
    let numbers = SharedQueue::<u64, _>::builder(store.clone())
        .on_error(move |error| report.lock().unwrap().send(error.to_string()).unwrap())
        .build();
    let (done, mut ran) = tokio::sync::mpsc::unbounded_channel();
    let pool = Pool::new(numbers.clone()).spawn_tasks(move |run| {
        done.send(run.into_key()).unwrap();
        async {}
    });
    let pool = pool.unwrap();
    for number in 0..3 {
        numbers.add(number).await.unwrap();
        assert_eq!(ran.recv().await, Some(number));
    }
    pool.stop(60 * SECOND).await;
    assert_eq!(store.dead(10).await.unwrap()[0].key.to_string(), "no number");
    assert!(errors.recv().unwrap().contains("no number"));
}

#[tokio::test]
async fn run_knows_its_token_and_its_deadline() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let (send, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let pool = Pool::new(bench.queue.clone()).clock(bench.local.clone()).spawn_tasks(
        move |run| {
            send.send((run.token(), run.lease_deadline(), run.is_cancelled())).unwrap();
            async {}
        },
    );
    let before = bench.local.now();
    bench.add("a").await;
    bench.add("a").await;
    let (first, deadline, cancelled) = seen.recv().await.unwrap();
    assert!(deadline.unwrap() > before && deadline.unwrap() < before + LEASE);
    assert!(!cancelled);
    bench.add("a").await;
    assert!(seen.recv().await.unwrap().0 > first, "tokens grow");
    pool.unwrap().stop(SECOND).await;
}
