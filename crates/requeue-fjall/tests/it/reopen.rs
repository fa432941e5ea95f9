//! Reopening a store restores everything that must survive a restart.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_store::{
    Backoff, Finished, Phase, Rate, RepliesExt, Store, TakeRequest, Taken, When, Which,
};

use crate::support::{
    LEASE, TestQueue, add, add_all, add_when, add_with_priority, finish, is_there, lease,
    lease_at_most, lease_keys, look,
};

#[tokio::test]
async fn keys_keep_their_order() {
    let queue = TestQueue::new();
    add_all(&queue.open(), &["c", "a", ""]).await;
    queue.clock.advance(Duration::from_secs(1));
    add_all(&queue.open(), &["b", "a"]).await;
    assert_eq!(lease_keys(&queue.open()).await, ["c", "a", "", "b"]);
}

#[tokio::test]
async fn ready_delayed_and_leased_keys_keep_their_priorities() {
    let queue = TestQueue::new();
    let store = queue.open();
    add_with_priority(&store, "held", When::Now, 7).await;
    assert_eq!(lease(&store, 1).await[0].priority, 7);
    add_with_priority(&store, "low", When::Now, -7).await;
    add(&store, "usual").await;
    add_with_priority(&store, "raised", When::Now, 1).await;
    add_with_priority(&store, "raised", When::Now, 9).await;
    add_with_priority(&store, "later", When::After(Duration::from_secs(1)), 8).await;
    drop(store);
    let store = queue.open();
    queue.clock.advance(Duration::from_secs(1));
    let order = ["raised", "later", "held", "usual", "low"];
    assert_eq!(lease_keys(&store).await, order);
}

#[tokio::test]
async fn waiting_time_continues_for_ready_keys_and_restarts_for_expired_ones() {
    let queue = TestQueue::new();
    let second = Duration::from_secs(1);
    add(&queue.open(), "held").await;
    assert_eq!(lease(&queue.open(), 1).await.len(), 1);
    add(&queue.open(), "ready").await;
    for _ in 0..2 {
        queue.clock.advance(second);
        queue.open();
    }
    let store = queue.open();
    store.expire(None).await.unwrap();
    queue.clock.advance(second);
    let waited = lease(&store, 2).await.into_iter().map(|grant| grant.waited);
    assert_eq!(waited.collect::<Vec<_>>(), [3 * second, second]);
}

#[tokio::test]
async fn finished_key_does_not_come_back() {
    let queue = TestQueue::new();
    let store = queue.open();
    add_all(&store, &["a", "b"]).await;
    let grants = lease(&store, 1).await;
    assert_eq!(finish(&store, &grants[0], Finish::Succeed).await, Finished::Done);
    drop(store);
    let store = queue.open();
    assert!(!is_there(&look(&store, "a").await));
    assert_eq!(lease_keys(&store).await, ["b"]);
}

#[tokio::test]
async fn delay_continues_and_the_earliest_deadline_wins() {
    let queue = TestQueue::new();
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    add_when(&queue.open(), "a", When::After(hour)).await;
    add_when(&queue.open(), "a", When::After(minute)).await;
    let store = queue.open();
    assert_eq!(add_when(&store, "a", When::After(hour)).await.added, Added::Duplicate);
    assert_eq!(look(&store, "a").await.delayed, Some(minute));
    drop(store);
    queue.clock.advance(minute);
    assert_eq!(lease_keys(&queue.open()).await, ["a"]);
}

#[tokio::test]
async fn failures_and_the_last_error_are_kept_until_forgotten() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    let grants = lease(&store, 1).await;
    let delay = Duration::from_millis(5);
    assert_eq!(finish(&store, &grants[0], Finish::Retry).await, Finished::Delayed(delay));
    drop(store);
    let store = queue.open();
    let failing = store.failing(9).await.unwrap();
    assert_eq!((failing[0].failures, &failing[0].error), (1, &"bad".to_owned()));
    assert_eq!(failing[0].retry_in, Some(delay));
    store.forget(&[failing[0].key.clone()]).all().await.unwrap();
    store.remove(&[failing[0].key.clone()]).all().await.unwrap();
    drop(store);
    let store = queue.open();
    assert_eq!(store.failing(9).await.unwrap(), []);
    assert_eq!(look(&store, "a").await.phase, Phase::Absent);
}

#[tokio::test]
async fn dead_keys_stay_dead_until_revived_or_dropped() {
    let queue = TestQueue::new();
    let store = queue.open();
    add_all(&store, &["a", "b"]).await;
    for grant in lease(&store, 2).await {
        assert_eq!(finish(&store, &grant, Finish::GiveUp).await, Finished::Dead);
    }
    drop(store);
    let store = queue.open();
    let dead = store.dead(9).await.unwrap();
    let shown = |at: usize| {
        (dead[at].key.to_string(), &*dead[at].reason, dead[at].owner.as_str())
    };
    assert_eq!((shown(0).1, shown(1).2), ("bad", "w1"));
    assert_eq!(dead.len(), 2);
    let one = Which::Keys(vec![dead[0].key.clone()]);
    assert_eq!(store.revive(&one).await.unwrap(), 1);
    assert_eq!(store.drop_dead(&Which::All).await.unwrap(), 1);
    drop(store);
    let store = queue.open();
    assert_eq!(store.dead(9).await.unwrap(), []);
    assert_eq!(lease_keys(&store).await, [shown(0).0]);
}

#[tokio::test]
async fn paused_queue_stays_paused() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    store.pause().await.unwrap();
    drop(store);
    let store = queue.open();
    assert!(store.stats().await.unwrap().paused);
    assert_eq!(lease(&store, 1).await, []);
    store.resume().await.unwrap();
    drop(store);
    assert_eq!(lease_keys(&queue.open()).await, ["a"]);
}

#[tokio::test]
async fn leased_key_is_delivered_again_and_its_old_lease_is_refused() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    let old = lease(&store, 1).await.remove(0);
    assert_eq!(add(&store, "a").await.added, Added::Dirty);
    drop(store);
    let store = queue.open();
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
    let new = lease(&store, 1).await.remove(0);
    assert!(new.token > old.token);
    assert_eq!((new.key.to_string(), new.deliveries), ("a".to_owned(), 2));
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
    assert_eq!(finish(&store, &new, Finish::Succeed).await, Finished::Done);
    drop(store);
    assert_eq!(lease(&queue.open(), 1).await, []);
}

#[tokio::test]
async fn key_that_keeps_crashing_its_process_is_eventually_dead() {
    let queue = TestQueue::new();
    add_all(&queue.open(), &["bad", "good"]).await;
    for deliveries in 1..=3 {
        let store = queue.open();
        let grants = lease_at_most(&store, usize::MAX, Some(3)).await;
        let bad = grants.iter().find(|grant| grant.key.to_string() == "bad").unwrap();
        assert_eq!(bad.deliveries, deliveries);
        for grant in grants.iter().filter(|grant| *grant != bad) {
            finish(&store, grant, Finish::Succeed).await;
        }
    }
    let store = queue.open();
    assert_eq!(lease_at_most(&store, usize::MAX, Some(3)).await, []);
    let dead = store.dead(9).await.unwrap();
    assert_eq!(dead[0].reason, "its lease expired 3 times in a row");
    assert_eq!((dead[0].deliveries, dead[0].owner.as_str()), (3, "w1"));
}

#[tokio::test]
async fn released_delivery_is_not_counted() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    let grant = lease(&store, 1).await.remove(0);
    assert_eq!(finish(&store, &grant, Finish::Release).await, Finished::Requeued);
    drop(store);
    assert_eq!(lease(&queue.open(), 1).await[0].deliveries, 1);
}

/// A clock that is set back between two runs must not lead to smaller tokens: resources
/// that check fencing tokens would refuse the new worker for hours.
#[tokio::test]
async fn tokens_grow_even_if_the_clock_is_set_back_between_runs() {
    let queue = TestQueue::new();
    let mut last = 0;
    for round in 0..4 {
        let store = queue.open();
        add(&store, &round.to_string()).await;
        for _ in 0..3 {
            let grant = lease(&store, 1).await.remove(0);
            assert!(grant.token.0 > last, "{} after {last}", grant.token);
            last = grant.token.0;
            assert_eq!(finish(&store, &grant, Finish::Release).await, Finished::Requeued);
            queue.clock.advance(Duration::from_secs(50));
        }
        drop(store);
        queue.clock.set_back(Duration::from_secs(3600));
    }
}

#[tokio::test]
async fn first_token_of_a_new_queue_is_the_time() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    assert_eq!(lease(&store, 1).await[0].token.0, queue.clock.now().micros());
}

fn shared_rate() -> Backoff {
    let interval = Duration::from_secs(10);
    let rate = Rate { interval, burst: NonZeroU32::new(1).unwrap() };
    Backoff { base: Duration::ZERO, max: Duration::ZERO, rate: Some(rate) }
}

#[tokio::test]
async fn shared_rate_continues_and_counts_the_time_between_runs() {
    let queue = TestQueue::new();
    let limited = When::RateLimited(shared_rate());
    let store = queue.open();
    assert_eq!(add_when(&store, "a", limited).await.delay, Duration::ZERO);
    assert_eq!(add_when(&store, "b", limited).await.delay, Duration::from_secs(10));
    drop(store);
    queue.clock.advance(Duration::from_secs(5));
    let delay = add_when(&queue.open(), "c", limited).await.delay;
    assert_eq!(delay, Duration::from_secs(15));
    queue.clock.set_back(Duration::from_secs(3600));
    let delay = add_when(&queue.open(), "d", limited).await.delay;
    assert_eq!(delay, Duration::from_secs(25), "setting the clock back adds no debt");
}

#[tokio::test]
async fn lease_can_expire_without_a_restart() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    let old = lease(&store, 1).await.remove(0);
    queue.clock.advance(LEASE);
    let new = lease(&store, 1).await.remove(0);
    assert_eq!((new.deliveries, new.token > old.token), (2, true));
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
}

/// The dirty bit was not stored. The key was buried together with an acknowledged add when
/// its process died during the last delivery.
#[tokio::test]
async fn add_during_the_last_delivery_survives_a_restart() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    assert_eq!(lease_at_most(&store, 1, Some(1)).await.len(), 1);
    assert_eq!(add(&store, "a").await.added, Added::Dirty);
    drop(store);
    let store = queue.open();
    let expired = store.expire(NonZeroU32::new(1)).await.unwrap();
    assert_eq!((expired.returned, expired.dead), (1, 0));
    let revived = look(&store, "a").await;
    assert!(revived.delayed.is_some() || revived.phase == Phase::Ready);
}

#[tokio::test]
async fn shared_limiter_is_kept_as_of_the_last_write() {
    let queue = TestQueue::new();
    let store = queue.open();
    let rate = Rate { interval: Duration::from_secs(10), burst: NonZeroU32::MIN };
    let request = TakeRequest {
        limiter: "api".to_owned(),
        rate,
        n: 1,
        max_wait: Duration::from_secs(3600),
    };
    let wait = |taken: Taken| {
        let Taken::Granted { after } = taken else { panic!("{taken:?}") };
        after.as_secs()
    };
    assert_eq!(wait(store.take(&request).await.unwrap()), 0);
    assert_eq!(wait(store.take(&request).await.unwrap()), 10);
    drop(store);
    queue.clock.advance(Duration::from_secs(5));
    let store = queue.open();
    assert_eq!(wait(store.take(&request).await.unwrap()), 15);
}
