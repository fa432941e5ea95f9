//! The methods of `SharedQueue`, without faults.

use std::sync::{Arc, Mutex};

use requeue::{AddOptions, Added};
use requeue_store::{
    Backoff, ErrorKind, Finished, MemoryStore, SharedQueue, Store, Which,
};

use super::*;

#[tokio::test]
async fn key_is_added_delivered_and_finished() {
    let _limit = Limit::start();
    let Bench { queue, .. } = Bench::new();
    assert_eq!(queue.add("a".to_owned()).await.unwrap(), Added::Ready);
    assert_eq!(queue.add("a".to_owned()).await.unwrap(), Added::Duplicate);
    let lease = queue.get().await.unwrap().unwrap();
    assert_eq!((lease.key().as_str(), lease.deliveries()), ("a", 1));
    assert_eq!(queue.add("a".to_owned()).await.unwrap(), Added::Dirty);
    assert_eq!(lease.succeed().await.unwrap(), Finished::Requeued);
    assert_eq!(queue.len().await.unwrap(), 1);
}

#[tokio::test]
async fn key_can_be_added_with_options() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let add =
        async |key: &str, options| bench.queue.add_with(key.to_owned(), options).await;
    let options = AddOptions::new;
    assert_eq!(add("usual", options()).await.unwrap().added, Added::Ready);
    add("high", options().priority(127)).await.unwrap();
    let later = add("later", options().after(SECOND).priority(3)).await.unwrap();
    assert_eq!((later.added, later.delay), (Added::Delayed, SECOND));
    for (key, priority) in [("high", 127), ("usual", 0)] {
        let lease = bench.queue.get().await.unwrap().unwrap();
        assert_eq!((lease.key().as_str(), lease.priority()), (key, priority));
        lease.done().await.unwrap();
    }
    bench.pass(SECOND);
    assert_eq!(bench.queue.get().await.unwrap().unwrap().priority(), 3);
    let error = add("a", options().priority(128)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "the priority 128 is not from -128 to 127");
}

#[tokio::test]
async fn shorter_of_backoff_and_delay_wins() {
    let _limit = Limit::start();
    let Bench { queue, .. } = Bench::new();
    let limited = AddOptions::new().rate_limited(true);
    let millis = Duration::from_millis;
    for (after, delay) in [(None, 5), (Some(7), 7), (Some(60), 20), (Some(0), 0)] {
        let options = after.map_or(limited, |after| limited.after(millis(after)));
        let receipt = queue.add_with("a".to_owned(), options).await.unwrap();
        assert_eq!(receipt.delay, millis(delay));
    }
    assert_eq!(queue.num_requeues(&"a".to_owned()).await.unwrap(), 4);
}

#[tokio::test]
async fn get_waits_for_a_key_that_is_added_later() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let waiting = tokio::spawn(bench.queue.get());
    settle().await;
    assert!(!waiting.is_finished());
    bench.add("late").await;
    let lease = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(lease.key(), "late");
}

#[tokio::test]
async fn dropped_getter_leaves_its_key_to_the_next() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let (first, second) = (start(bench.queue.get()), start(bench.queue.get()));
    drop(first);
    bench.add("a").await;
    let lease = second.await.unwrap().unwrap();
    assert_eq!(lease.key(), "a");
}

#[tokio::test]
async fn key_in_transit_to_a_dropped_getter_is_released() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let get = start(bench.queue.get());
    settle().await;
    assert_eq!(bench.queue.stats().await.unwrap().processing, 1, "it is in transit");
    drop(get);
    settle().await;
    let stats = bench.queue.stats().await.unwrap();
    assert_eq!((stats.ready, stats.processing), (1, 0));
    assert_eq!(bench.queue.get().await.unwrap().unwrap().deliveries(), 1);
}

#[tokio::test]
async fn retries_back_off_and_success_forgets_failures() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    for (failures, delay) in [(0, 5), (1, 10), (2, 20)] {
        let delay = Duration::from_millis(delay);
        let lease = bench.queue.try_get().await.unwrap().unwrap();
        assert_eq!(lease.num_requeues(), failures);
        assert_eq!(
            lease.with_error("no").retry().await.unwrap(),
            Finished::Delayed(delay)
        );
        bench.engine.advance(delay);
    }
    let lease = bench.queue.try_get().await.unwrap().unwrap();
    assert_eq!(lease.succeed().await.unwrap(), Finished::Done);
    assert_eq!(bench.queue.num_requeues(&"a".to_owned()).await.unwrap(), 0);
}

#[tokio::test]
async fn pending_key_can_be_found_and_removed() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let key = "a".to_owned();
    assert!(!bench.queue.contains(&key).await.unwrap());
    bench.add("a").await;
    assert!(bench.queue.contains(&key).await.unwrap(), "ready");
    let lease = bench.queue.get().await.unwrap().unwrap();
    assert!(bench.queue.contains(&key).await.unwrap(), "being processed, as on a Queue");
    lease.with_error("broken").give_up().await.unwrap();
    assert!(!bench.queue.contains(&key).await.unwrap(), "dead");
    bench.spy.drop_dead(&Which::All).await.unwrap();
    bench.queue.add_after(key.clone(), SECOND).await.unwrap();
    assert!(bench.queue.contains(&key).await.unwrap());
    assert!(bench.queue.remove(&key).await.unwrap());
    assert!(!bench.queue.remove(&key).await.unwrap());
    bench.queue.add_rate_limited(key.clone()).await.unwrap();
    bench.queue.forget(&key).await.unwrap();
    assert_eq!(bench.queue.num_requeues(&key).await.unwrap(), 0);
}

#[tokio::test]
async fn too_long_key_is_refused_with_its_length() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let error = bench.queue.add("x".repeat(1025)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "the key has 1025 bytes; the maximum is 1024");
    assert!(bench.spy.calls("add").is_empty());
}

/// One such key ended the worker loop of the documentation with an error.
#[tokio::test]
async fn undecodable_keys_do_not_end_a_worker_loop() {
    let _limit = Limit::start();
    let spy = Spy::on(MemoryStore::new());
    let bytes = SharedQueue::<Vec<u8>, _>::new(spy.clone());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let queue = SharedQueue::<String, _>::builder(spy.clone())
        .on_error(move |error| report.lock().unwrap().push(error.to_string()))
        .build();
    for key in [&[0xff][..], b"a", &[0xfe], &[0xfd], b"b"] {
        bytes.add(key.to_vec()).await.unwrap();
    }
    let mut seen = Vec::new();
    while let Some(lease) = queue.get().await.unwrap() {
        seen.push(lease.key().clone());
        lease.succeed().await.unwrap();
        if seen.len() == 2 {
            queue.close();
        }
    }
    queue.shutdown().await;
    assert_eq!(seen, ["a", "b"]);
    let dead = spy.dead(10).await.unwrap();
    assert_eq!(dead.len(), 3);
    assert_eq!(dead[0].reason, "the stored key \"\u{fffd}\" is not UTF-8");
    assert_eq!(reported.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn undecodable_keys_are_skipped_by_every_getter() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let bytes = SharedQueue::<Vec<u8>, _>::new(bench.spy.clone());
    bytes.add(vec![0xff]).await.unwrap();
    bench.add("a").await;
    assert_eq!(bench.queue.try_get().await.unwrap().unwrap().key(), "a");
    bytes.add(vec![0xfe]).await.unwrap();
    assert!(bench.queue.try_get().await.unwrap().is_none());
    bytes.add(vec![0xfd]).await.unwrap();
    bench.add("b").await;
    let leases = bench.queue.get_many(5).await.unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0].key(), "b");
}

#[tokio::test]
async fn get_many_waits_and_takes_all_ready_keys() {
    let _limit = Limit::start();
    let bench = Bench::new();
    assert!(bench.queue.get_many(0).await.unwrap().is_empty());
    let queue = bench.queue.clone();
    let many = tokio::spawn(async move { queue.get_many(3).await });
    settle().await;
    let one = start(bench.queue.get());
    bench.queue.add_all((0..5).map(|n| n.to_string())).await.unwrap();
    let leases = many.await.unwrap().unwrap();
    assert_eq!(
        leases.iter().map(|lease| lease.key().as_str()).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
    assert_eq!(one.await.unwrap().unwrap().key(), "3");
    let rest = bench.queue.get_many(300).await.unwrap();
    assert_eq!(rest.len(), 1);
    bench.queue.close();
    assert!(bench.queue.get_many(3).await.unwrap().is_empty());
}

#[tokio::test]
async fn get_timeout_ends_with_timeout_or_closed() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.get_timeout(SECOND).await });
    settle().await;
    bench.local.advance(SECOND);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.to_string(), "no key became ready within 1s");
    bench.add("a").await;
    assert_eq!(bench.queue.get_timeout(SECOND).await.unwrap().key(), "a");
    bench.queue.close();
    let error = bench.queue.get_timeout(Duration::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn weak_handle_does_not_keep_the_queue_open() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let weak = bench.queue.downgrade();
    weak.upgrade().unwrap().add("a".to_owned()).await.unwrap();
    let waiting = bench.queue.get();
    let lease = waiting.await.unwrap().unwrap();
    drop(bench.queue);
    assert!(weak.upgrade().is_none());
    assert_eq!(lease.succeed().await.unwrap(), Finished::Done);
}

#[tokio::test]
async fn closed_handle_adds_and_delivers_nothing() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let waiting = tokio::spawn(bench.queue.get());
    settle().await;
    bench.queue.close();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let refused = bench.queue.add("a".to_owned()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    let refused = bench.queue.add_all(["b".to_owned(), "c".to_owned()]).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    assert!(bench.queue.get().await.unwrap().is_none());
    assert_eq!(bench.spy.stats().await.unwrap().ready, 0);
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_queue_but_not_its_leases() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let twin = bench.queue.clone();
    drop(twin);
    bench.add("a").await;
    let get = bench.queue.get();
    let lease = get.await.unwrap().unwrap();
    drop(bench.queue);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    assert_eq!(lease.succeed().await.unwrap(), Finished::Done, "leases can be finished");
    assert!(other.try_get().await.unwrap().is_none());
}

#[tokio::test]
async fn shutdown_waits_for_held_leases() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let queue = bench.queue.clone();
    let shutdown = tokio::spawn(async move { queue.shutdown().await });
    settle().await;
    assert!(!shutdown.is_finished());
    drop(lease.succeed());
    shutdown.await.unwrap();
    assert!(bench.queue.is_closed());
}

#[tokio::test]
async fn added_dead_key_is_delayed_by_the_longest_backoff() {
    let _limit = Limit::start();
    let engine = EngineClock::new();
    let store = MemoryStore::with_clock(engine.clone());
    let backoff = Backoff { max: 60 * SECOND, ..Backoff::default() };
    let queue = SharedQueue::builder(store).backoff(backoff).build();
    queue.add("a".to_owned()).await.unwrap();
    let lease = queue.try_get().await.unwrap().unwrap();
    assert_eq!(lease.with_error("broken").give_up().await.unwrap(), Finished::Dead);
    assert_eq!(queue.add("a".to_owned()).await.unwrap(), Added::Delayed);
    engine.advance(60 * SECOND);
    assert_eq!(queue.try_get().await.unwrap().unwrap().num_requeues(), 0);
}

/// As a queue in memory and channels do.
#[tokio::test]
async fn closed_queue_returns_the_keys() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let (queue, key) = (&bench.queue, || "a".to_owned());
    queue.close();
    let errors = [
        queue.add(key()).await.unwrap_err(),
        queue.add_after(key(), SECOND).await.unwrap_err(),
        queue.add_rate_limited(key()).await.unwrap_err(),
        queue.add_with(key(), AddOptions::new().rate_limited(true)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.into_key()), (ErrorKind::Closed, key()));
    }
    let error = queue.add_all(["b", "c"].map(str::to_owned)).await.unwrap_err();
    assert_eq!(error.into_key(), ["b", "c"]);
    assert!(bench.spy.calls("add").is_empty());
}

#[tokio::test]
async fn add_all_returns_the_keys_that_were_not_added() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.use_lanes();
    bench.spy.fail_key(Some("x"), ErrorKind::Corrupt);
    let error =
        bench.queue.add_all(["y", "x", "a"].map(str::to_owned)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.into_key()),
        (ErrorKind::Corrupt, vec!["x".to_owned()])
    );
    assert_eq!(bench.queue.len().await.unwrap(), 2);
    let long = "k".repeat(2000);
    let error = bench.queue.add_all([long.clone()]).await.unwrap_err();
    assert_eq!((error.kind(), error.into_key()), (ErrorKind::Invalid, vec![long]));
}
