//! What outlives the process, and what does not.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_store::{Backoff, Finished, Phase, Rate, Store, When, Which};

use crate::support::{
    LEASE, Place, add, add_all, add_ranked, add_when, finish, is_there, lease,
    lease_at_most, lease_keys, look,
};

#[tokio::test]
async fn keys_come_back_in_the_order_in_which_they_were_added() {
    let place = Place::new();
    add_all(&place.open(), &["c", "a", ""]).await;
    place.clock.advance(Duration::from_secs(1));
    add_all(&place.open(), &["b", "a"]).await;
    assert_eq!(lease_keys(&place.open()).await, ["c", "a", "", "b"]);
}

#[tokio::test]
async fn priorities_come_back_with_what_is_planned_and_what_was_with_a_worker() {
    let place = Place::new();
    let store = place.open();
    add_ranked(&store, "held", When::Now, 7).await;
    assert_eq!(lease(&store, 1).await[0].priority, 7);
    add_ranked(&store, "low", When::Now, -7).await;
    add(&store, "usual").await;
    add_ranked(&store, "raised", When::Now, 1).await;
    add_ranked(&store, "raised", When::Now, 9).await;
    add_ranked(&store, "later", When::After(Duration::from_secs(1)), 8).await;
    drop(store);
    let store = place.open();
    place.clock.advance(Duration::from_secs(1));
    let order = ["raised", "later", "held", "usual", "low"];
    assert_eq!(lease_keys(&store).await, order);
}

#[tokio::test]
async fn a_ready_key_has_waited_in_all_lives_and_one_with_a_worker_from_when_it_is_back()
{
    let place = Place::new();
    let second = Duration::from_secs(1);
    add(&place.open(), "held").await;
    assert_eq!(lease(&place.open(), 1).await.len(), 1);
    add(&place.open(), "ready").await;
    for _ in 0..2 {
        place.clock.advance(second);
        place.open();
    }
    let store = place.open();
    store.expire(None).await.unwrap();
    place.clock.advance(second);
    let waited = lease(&store, 2).await.into_iter().map(|grant| grant.waited);
    assert_eq!(waited.collect::<Vec<_>>(), [3 * second, second]);
}

#[tokio::test]
async fn what_was_finished_does_not_come_back() {
    let place = Place::new();
    let store = place.open();
    add_all(&store, &["a", "b"]).await;
    let grants = lease(&store, 1).await;
    assert_eq!(finish(&store, &grants[0], Finish::Succeed).await, Finished::Done);
    drop(store);
    let store = place.open();
    assert!(!is_there(&look(&store, "a").await));
    assert_eq!(lease_keys(&store).await, ["b"]);
}

#[tokio::test]
async fn a_delay_goes_on_and_the_earliest_wins() {
    let place = Place::new();
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    add_when(&place.open(), "a", When::After(hour)).await;
    add_when(&place.open(), "a", When::After(minute)).await;
    let store = place.open();
    assert_eq!(add_when(&store, "a", When::After(hour)).await.added, Added::Duplicate);
    assert_eq!(look(&store, "a").await.delayed, Some(minute));
    drop(store);
    place.clock.advance(minute);
    assert_eq!(lease_keys(&place.open()).await, ["a"]);
}

#[tokio::test]
async fn failures_and_the_last_error_come_back_until_they_are_forgotten() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    let grants = lease(&store, 1).await;
    let delay = Duration::from_millis(5);
    assert_eq!(finish(&store, &grants[0], Finish::Retry).await, Finished::Delayed(delay));
    drop(store);
    let store = place.open();
    let failing = store.failing(9).await.unwrap();
    assert_eq!((failing[0].failures, &failing[0].error), (1, &"bad".to_owned()));
    assert_eq!(failing[0].retry_in, Some(delay));
    store.forget(&[failing[0].key.clone()]).await.unwrap();
    store.remove(&[failing[0].key.clone()]).await.unwrap();
    drop(store);
    let store = place.open();
    assert_eq!(store.failing(9).await.unwrap(), []);
    assert_eq!(look(&store, "a").await.phase, Phase::Absent);
}

#[tokio::test]
async fn the_dead_stay_dead_until_they_are_revived_or_dropped() {
    let place = Place::new();
    let store = place.open();
    add_all(&store, &["a", "b"]).await;
    for grant in lease(&store, 2).await {
        assert_eq!(finish(&store, &grant, Finish::GiveUp).await, Finished::Buried);
    }
    drop(store);
    let store = place.open();
    let dead = store.dead(9).await.unwrap();
    let told = |at: usize| {
        (dead[at].key.to_string(), &*dead[at].reason, dead[at].owner.as_str())
    };
    assert_eq!((told(0).1, told(1).2), ("bad", "w1"));
    assert_eq!(dead.len(), 2);
    let one = Which::Keys(vec![dead[0].key.clone()]);
    assert_eq!(store.revive(&one).await.unwrap(), 1);
    assert_eq!(store.drop_dead(&Which::All).await.unwrap(), 1);
    drop(store);
    let store = place.open();
    assert_eq!(store.dead(9).await.unwrap(), []);
    assert_eq!(lease_keys(&store).await, [told(0).0]);
}

#[tokio::test]
async fn a_paused_queue_stays_paused() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    store.pause().await.unwrap();
    drop(store);
    let store = place.open();
    assert!(store.stats().await.unwrap().paused);
    assert_eq!(lease(&store, 1).await, []);
    store.resume().await.unwrap();
    drop(store);
    assert_eq!(lease_keys(&place.open()).await, ["a"]);
}

#[tokio::test]
async fn what_was_with_a_worker_is_taken_over_and_the_old_holder_is_refused() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    let old = lease(&store, 1).await.remove(0);
    assert_eq!(add(&store, "a").await.added, Added::Dirty);
    drop(store);
    let store = place.open();
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
    let new = lease(&store, 1).await.remove(0);
    assert!(new.token > old.token);
    assert_eq!((new.key.to_string(), new.deliveries), ("a".to_owned(), 2));
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
    assert_eq!(finish(&store, &new, Finish::Succeed).await, Finished::Done);
    drop(store);
    assert_eq!(lease(&place.open(), 1).await, []);
}

#[tokio::test]
async fn a_key_that_brings_its_process_down_time_and_again_is_dead_at_last() {
    let place = Place::new();
    add_all(&place.open(), &["bad", "good"]).await;
    for deliveries in 1..=3 {
        let store = place.open();
        let grants = lease_at_most(&store, usize::MAX, Some(3)).await;
        let bad = grants.iter().find(|grant| grant.key.to_string() == "bad").unwrap();
        assert_eq!(bad.deliveries, deliveries);
        for grant in grants.iter().filter(|grant| *grant != bad) {
            finish(&store, grant, Finish::Succeed).await;
        }
    }
    let store = place.open();
    assert_eq!(lease_at_most(&store, usize::MAX, Some(3)).await, []);
    let dead = store.dead(9).await.unwrap();
    assert_eq!(dead[0].reason, "its lease ran out 3 times in a row");
    assert_eq!((dead[0].deliveries, dead[0].owner.as_str()), (3, "w1"));
}

#[tokio::test]
async fn a_release_takes_its_grant_back_for_the_next_life_too() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    let grant = lease(&store, 1).await.remove(0);
    assert_eq!(finish(&store, &grant, Finish::Release).await, Finished::Requeued);
    drop(store);
    assert_eq!(lease(&place.open(), 1).await[0].deliveries, 1);
}

/// A clock that was set back between two lives must not give out a token again: what the
/// work changes refuses smaller tokens, and would refuse the new holder for hours.
#[tokio::test]
async fn tokens_grow_although_the_clock_is_set_back_between_lives() {
    let place = Place::new();
    let mut last = 0;
    for round in 0..4 {
        let store = place.open();
        add(&store, &round.to_string()).await;
        for _ in 0..3 {
            let grant = lease(&store, 1).await.remove(0);
            assert!(grant.token.0 > last, "{} after {last}", grant.token);
            last = grant.token.0;
            assert_eq!(finish(&store, &grant, Finish::Release).await, Finished::Requeued);
            place.clock.advance(Duration::from_secs(50));
        }
        drop(store);
        place.clock.set_back(Duration::from_secs(3600));
    }
}

#[tokio::test]
async fn a_new_queue_begins_its_tokens_with_the_time() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    assert_eq!(lease(&store, 1).await[0].token.0, place.clock.now().micros());
}

fn shared_rate() -> Backoff {
    let interval = Duration::from_secs(10);
    let rate = Rate { interval, burst: NonZeroU32::new(1).unwrap() };
    Backoff { base: Duration::ZERO, max: Duration::ZERO, rate: Some(rate) }
}

#[tokio::test]
async fn the_shared_rate_goes_on_and_time_that_passed_meanwhile_counts() {
    let place = Place::new();
    let limited = When::RateLimited(shared_rate());
    let store = place.open();
    assert_eq!(add_when(&store, "a", limited).await.delay, Duration::ZERO);
    assert_eq!(add_when(&store, "b", limited).await.delay, Duration::from_secs(10));
    drop(store);
    place.clock.advance(Duration::from_secs(5));
    let delay = add_when(&place.open(), "c", limited).await.delay;
    assert_eq!(delay, Duration::from_secs(15));
    place.clock.set_back(Duration::from_secs(3600));
    let delay = add_when(&place.open(), "d", limited).await.delay;
    assert_eq!(delay, Duration::from_secs(25), "no more than was owed");
}

#[tokio::test]
async fn a_lease_that_runs_out_is_as_in_memory() {
    let place = Place::new();
    let store = place.open();
    add(&store, "a").await;
    let old = lease(&store, 1).await.remove(0);
    place.clock.advance(LEASE);
    let new = lease(&store, 1).await.remove(0);
    assert_eq!((new.deliveries, new.token > old.token), (2, true));
    assert_eq!(finish(&store, &old, Finish::Succeed).await, Finished::LeaseLost);
}
