//! Cases that short scripts must leave to the scripts for batches: see `single.rs`.

use std::time::Duration;

use requeue::Finish;
use requeue_redis::RedisStore;
use requeue_store::{
    Add, Backoff, EngineClock, FinishRequest, Finished, Hold, LeaseRequest, Owner,
    RepliesExt, Store, When, Worker,
};

use crate::support::{self, add, adds, keys, lease, request};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn open(clock: &EngineClock) -> Option<RedisStore> {
    Some(support::open(&support::url()?, clock).await)
}

fn add_with(name: &str, when: When) -> Add {
    Add { when, ..adds(&[name]).remove(0) }
}

/// An add that counts a failure.
fn add_failed(name: &str, delay: Duration) -> Add {
    let backoff = Backoff { base: delay, max: delay, rate: None };
    add_with(name, When::RateLimited(backoff))
}

async fn failures_of(store: &RedisStore, name: &str) -> u32 {
    store.look(&keys(&[name])).all().await.unwrap()[0].failures
}

async fn succeed(store: &RedisStore, hold: Hold) -> Finished {
    let request = FinishRequest::new(hold, Finish::Succeed);
    store.finish(&[request]).all().await.unwrap().remove(0)
}

#[tokio::test]
async fn a_shortened_lease_expires_in_time() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b"]).await;
    let held = lease(&store, 1).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    let owner = Owner::new("worker");
    assert_eq!(store.extend(&owner, &held, SECOND).all().await.unwrap(), [true]);
    clock.advance(SECOND);
    assert_eq!(lease(&store, 1).await[0].key, held[0].key);
}

#[tokio::test]
async fn a_delayed_key_is_leased_in_time() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b"]).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    store.add(&[add_with("c", When::After(SECOND))]).all().await.unwrap();
    clock.advance(SECOND);
    assert_eq!(lease(&store, 1).await[0].key, support::key("b"));
    assert_eq!(lease(&store, 1).await[0].key, support::key("c"));
}

#[tokio::test]
async fn a_revived_key_is_leased_in_time() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b"]).await;
    let hold = lease(&store, 1).await.remove(0);
    let dead = FinishRequest::new(hold, Finish::GiveUp).with_error("no use");
    assert_eq!(store.finish(&[dead]).all().await.unwrap(), [Finished::Dead]);
    assert_eq!(lease(&store, 1).await.len(), 1);
    let again = Add { revive_after: SECOND, ..adds(&["a"]).remove(0) };
    store.add(&[again]).all().await.unwrap();
    clock.advance(SECOND);
    assert_eq!(lease(&store, 1).await[0].key, support::key("a"));
}

#[tokio::test]
async fn a_failure_during_the_lease_is_forgotten_on_success() {
    let Some(store) = open(&EngineClock::new()).await else { return };
    add(&store, &["a", "b"]).await;
    lease(&store, 1).await;
    let hold = lease(&store, 1).await.remove(0);
    store.add(&[add_failed("b", SECOND)]).all().await.unwrap();
    assert_eq!(failures_of(&store, "b").await, 1);
    assert_eq!(succeed(&store, hold).await, Finished::Done);
    assert_eq!(failures_of(&store, "b").await, 0);
}

#[tokio::test]
async fn a_failure_is_forgotten_on_success_after_the_priority_was_raised_to_zero() {
    let Some(store) = open(&EngineClock::new()).await else { return };
    add(&store, &["a"]).await;
    let hold = lease(&store, 1).await.remove(0);
    let low = |add| Add { priority: -5, ..add };
    let later = || add_with("a", When::After(SECOND));
    for add in [low(later()), low(add_failed("a", SECOND)), later()] {
        store.add(&[add]).all().await.unwrap();
    }
    assert_eq!(failures_of(&store, "a").await, 1);
    assert_eq!(succeed(&store, hold).await, Finished::Done);
    assert_eq!(failures_of(&store, "a").await, 0);
}

#[tokio::test]
async fn a_new_failure_is_reported_by_the_next_lease() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b"]).await;
    for _ in 0..2 {
        assert_eq!(lease(&store, 1).await.len(), 1);
        clock.advance(Duration::from_micros(1));
    }
    store.add(&[add_failed("c", Duration::ZERO)]).all().await.unwrap();
    let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
    assert_eq!((grant.failures, grant.deliveries), (1, 1));
}

#[tokio::test]
async fn a_paused_queue_leases_nothing() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b"]).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    clock.advance(Duration::from_micros(1));
    store.pause().await.unwrap();
    assert!(lease(&store, 1).await.is_empty());
    store.resume().await.unwrap();
    assert_eq!(lease(&store, 1).await.len(), 1);
}

#[tokio::test]
async fn workers_that_take_turns_are_each_reported_when_last_seen() {
    let clock = EngineClock::new();
    let Some(store) = open(&clock).await else { return };
    add(&store, &["a", "b", "c", "d", "e"]).await;
    for name in ["first", "first", "second", "first", "second"] {
        clock.advance(SECOND);
        let request = LeaseRequest { owner: Owner::new(name), ..request(1) };
        assert_eq!(store.lease(&request).await.unwrap().grants.len(), 1);
    }
    clock.advance(SECOND);
    let seen = |worker: &Worker| {
        (worker.owner.as_str().to_owned(), worker.seen.as_secs(), worker.processing)
    };
    let seen: Vec<_> = store.workers().await.unwrap().iter().map(seen).collect();
    assert_eq!(seen, [("first".to_owned(), 2, 3), ("second".to_owned(), 1, 2)]);
}

/// Opens a queue with the key `a`, which was delivered once and is delayed by a minute.
async fn with_delivered_key(clock: &EngineClock, priority: i8) -> Option<RedisStore> {
    let store = open(clock).await?;
    store.add(&[add_failed("a", Duration::ZERO)]).all().await.unwrap();
    lease(&store, 1).await;
    clock.advance(Duration::from_secs(30));
    store.expire(None).await.unwrap();
    store.remove(&keys(&["a"])).all().await.unwrap();
    let later = Add { priority, ..add_with("a", When::After(MINUTE)) };
    store.add(&[later]).all().await.unwrap();
    store.forget(&keys(&["a"])).all().await.unwrap();
    add(&store, &["b", "c"]).await;
    assert_eq!(lease(&store, 5).await.len(), 2);
    clock.advance(SECOND);
    Some(store)
}

#[tokio::test]
async fn earlier_deliveries_of_a_delayed_key_count_when_it_is_added() {
    let later = add_with("d", When::After(MINUTE));
    for adds in [adds(&["a"]), vec![adds(&["a"]).remove(0), later]] {
        for priority in [0, -5] {
            let clock = EngineClock::new();
            let Some(store) = with_delivered_key(&clock, priority).await else { return };
            store.add(&adds).all().await.unwrap();
            let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
            assert_eq!((grant.key, grant.deliveries), (support::key("a"), 2));
        }
    }
}

#[tokio::test]
async fn earlier_deliveries_of_a_delayed_key_count_when_its_delay_ends() {
    let clock = EngineClock::new();
    let Some(store) = with_delivered_key(&clock, 0).await else { return };
    clock.advance(MINUTE);
    assert_eq!(store.stats().await.unwrap().ready, 1);
    let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
    assert_eq!((grant.key, grant.deliveries), (support::key("a"), 2));
}
