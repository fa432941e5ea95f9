use requeue::{AddOptions, Added};
use requeue_store::{Backoff, ErrorKind, Finished, MemoryStore, SharedQueue, Store};

use super::*;

#[tokio::test]
async fn a_key_is_added_handed_out_and_finished() {
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
async fn a_key_is_added_with_options() {
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
async fn of_a_backoff_and_a_delay_the_shorter_counts() {
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
async fn a_get_that_is_dropped_loses_no_key_and_leaves_its_place() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let (first, second) = (bench.queue.get(), bench.queue.get());
    drop(first);
    bench.add("a").await;
    let lease = second.await.unwrap().unwrap();
    assert_eq!(lease.key(), "a");
}

#[tokio::test]
async fn a_key_that_was_handed_to_a_get_that_is_dropped_is_released() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let get = bench.queue.get();
    settle().await;
    assert_eq!(bench.queue.stats().await.unwrap().processing, 1, "it is on its way");
    drop(get);
    settle().await;
    let stats = bench.queue.stats().await.unwrap();
    assert_eq!((stats.ready, stats.processing), (1, 0));
    assert_eq!(bench.queue.get().await.unwrap().unwrap().deliveries(), 1);
}

#[tokio::test]
async fn retries_wait_longer_each_time_and_success_forgets_them() {
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
async fn what_is_planned_for_a_key_can_be_asked_and_taken_out() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let key = "a".to_owned();
    assert!(!bench.queue.contains(&key).await.unwrap());
    bench.queue.add_after(key.clone(), SECOND).await.unwrap();
    assert!(bench.queue.contains(&key).await.unwrap());
    assert!(bench.queue.remove(&key).await.unwrap());
    assert!(!bench.queue.remove(&key).await.unwrap());
    bench.queue.add_rate_limited(key.clone()).await.unwrap();
    bench.queue.forget(&key).await.unwrap();
    assert_eq!(bench.queue.num_requeues(&key).await.unwrap(), 0);
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused_with_its_length() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let error = bench.queue.add("x".repeat(1025)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "the key has 1025 bytes; the most are 1024");
    assert!(bench.spy.calls("add").is_empty());
}

#[tokio::test]
async fn a_key_that_cannot_be_read_goes_to_the_dead_and_not_round_for_ever() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let bytes = SharedQueue::<Vec<u8>, _>::new(bench.spy.clone());
    bytes.add(vec![0xff]).await.unwrap();
    let error = bench.queue.get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    settle().await;
    let dead = bench.spy.dead(10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].reason, "the key \"\u{fffd}\" of the store is not UTF-8");
}

#[tokio::test]
async fn a_closed_handle_adds_nothing_and_waits_for_nothing() {
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
async fn the_last_handle_that_is_dropped_closes_and_others_go_on() {
    let _limit = Limit::start();
    let bench = Bench::new();
    let twin = bench.queue.clone();
    drop(twin);
    bench.add("a").await;
    let get = bench.queue.get();
    let lease = get.await.unwrap().unwrap();
    drop(bench.queue);
    let other = SharedQueue::<String, _>::new(bench.spy.clone());
    assert_eq!(lease.succeed().await.unwrap(), Finished::Done, "leases can be ended");
    assert!(other.try_get().await.unwrap().is_none());
}

#[tokio::test]
async fn drain_waits_for_the_leases_that_are_held() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    let queue = bench.queue.clone();
    let drained = tokio::spawn(async move { queue.drain().await });
    settle().await;
    assert!(!drained.is_finished());
    drop(lease.succeed());
    drained.await.unwrap();
    assert!(bench.queue.is_closed());
}

#[tokio::test]
async fn a_dead_key_that_is_added_waits_as_long_as_the_longest_backoff() {
    let _limit = Limit::start();
    let engine = EngineClock::new();
    let store = MemoryStore::with_clock(engine.clone());
    let backoff = Backoff { max: 60 * SECOND, ..Backoff::default() };
    let queue = SharedQueue::builder(store).backoff(backoff).build();
    queue.add("a".to_owned()).await.unwrap();
    let lease = queue.try_get().await.unwrap().unwrap();
    assert_eq!(lease.with_error("broken").give_up().await.unwrap(), Finished::Buried);
    assert_eq!(queue.add("a".to_owned()).await.unwrap(), Added::Delayed);
    engine.advance(60 * SECOND);
    assert_eq!(queue.try_get().await.unwrap().unwrap().num_requeues(), 0);
}
