//! Leases after which the next one could pass for plain, and is not: see lease.lua.

use std::time::Duration;

use requeue::Finish;
use requeue_redis::RedisStore;
use requeue_store::{
    Add, Backoff, EngineClock, FinishRequest, Finished, Hold, LeaseRequest, Owner, Store,
    When,
};

use crate::server::{self, add, adds, keys, request};

async fn lease(store: &RedisStore, max: usize) -> Vec<Hold> {
    let leased = store.lease(&request(max)).await.unwrap();
    let hold = |grant: requeue_store::Grant| Hold { key: grant.key, token: grant.token };
    leased.grants.into_iter().map(hold).collect()
}

#[tokio::test]
async fn keys_that_were_removed_from_a_long_line_are_not_handed_out() {
    let Some(url) = server::url() else { return };
    let store = server::open(&url, &EngineClock::new()).await;
    let names: Vec<_> = (0..200).map(|n| format!("k{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    add(&store, &names).await;
    assert_eq!(lease(&store, 1).await[0].key, server::key("k0"));
    store.remove(&keys(&names[1..5])).await.unwrap();
    assert_eq!(lease(&store, 1).await[0].key, server::key("k5"));
}

#[tokio::test]
async fn a_lease_that_was_cut_short_runs_out_in_time() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    add(&store, &["a", "b"]).await;
    let held = lease(&store, 1).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    let owner = Owner::new("worker");
    let short = Duration::from_secs(1);
    assert_eq!(store.extend(&owner, &held, short).await.unwrap(), [true]);
    clock.advance(short);
    assert_eq!(lease(&store, 5).await[0].key, held[0].key);
}

#[tokio::test]
async fn a_dead_key_that_was_added_comes_back_in_time() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    add(&store, &["a", "b"]).await;
    let hold = lease(&store, 1).await.remove(0);
    store.finish(&[FinishRequest::new(hold, Finish::GiveUp)]).await.unwrap();
    assert_eq!(lease(&store, 1).await.len(), 1);
    let revive_after = Duration::from_secs(1);
    let again = Add { revive_after, ..adds(&["a"]).remove(0) };
    store.add(&[again]).await.unwrap();
    clock.advance(revive_after);
    assert_eq!(lease(&store, 5).await[0].key, server::key("a"));
}

#[tokio::test]
async fn a_failure_while_it_is_processed_is_forgotten_when_a_key_succeeds() {
    let Some(url) = server::url() else { return };
    let store = server::open(&url, &EngineClock::new()).await;
    add(&store, &["a", "b"]).await;
    lease(&store, 1).await;
    let hold = lease(&store, 1).await.remove(0);
    let second = Duration::from_secs(1);
    let backoff = Backoff { base: second, max: second, rate: None };
    let failed = Add { when: When::RateLimited(backoff), ..adds(&["b"]).remove(0) };
    store.add(&[failed]).await.unwrap();
    assert_eq!(store.look(&keys(&["b"])).await.unwrap()[0].failures, 1);
    let end = FinishRequest::new(hold, Finish::Succeed);
    assert_eq!(store.finish(&[end]).await.unwrap(), [Finished::Done]);
    assert_eq!(store.look(&keys(&["b"])).await.unwrap()[0].failures, 0);
}

#[tokio::test]
async fn a_failure_is_forgotten_when_a_key_succeeds_that_lost_its_priority_since() {
    let Some(url) = server::url() else { return };
    let store = server::open(&url, &EngineClock::new()).await;
    add(&store, &["a"]).await;
    let hold = lease(&store, 1).await.remove(0);
    let second = Duration::from_secs(1);
    let backoff = Backoff { base: second, max: second, rate: None };
    let later = When::After(second);
    for (when, priority) in [(later, -5), (When::RateLimited(backoff), -5), (later, 0)] {
        let planned = Add { when, priority, ..adds(&["a"]).remove(0) };
        store.add(&[planned]).await.unwrap();
    }
    assert_eq!(store.look(&keys(&["a"])).await.unwrap()[0].failures, 1);
    let end = FinishRequest::new(hold, Finish::Succeed);
    assert_eq!(store.finish(&[end]).await.unwrap(), [Finished::Done]);
    assert_eq!(store.look(&keys(&["a"])).await.unwrap()[0].failures, 0);
}

#[tokio::test]
async fn workers_who_take_turns_are_each_heard_of_when_they_last_were() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    add(&store, &["a", "b", "c", "d", "e"]).await;
    for name in ["first", "first", "second", "first", "second"] {
        clock.advance(Duration::from_secs(1));
        let request = LeaseRequest { owner: Owner::new(name), ..request(1) };
        assert_eq!(store.lease(&request).await.unwrap().grants.len(), 1);
    }
    clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        let workers = store.workers().await.unwrap();
        let seen = |worker: &requeue_store::Worker| {
            (worker.owner.as_str().to_owned(), worker.seen.as_secs(), worker.processing)
        };
        let seen: Vec<_> = workers.iter().map(seen).collect();
        assert_eq!(seen, [("first".to_owned(), 2, 3), ("second".to_owned(), 1, 2)]);
    }
}

fn failing(name: &str) -> Add {
    let backoff = Backoff { base: Duration::ZERO, max: Duration::ZERO, rate: None };
    Add { when: When::RateLimited(backoff), ..adds(&[name]).remove(0) }
}

#[tokio::test]
async fn a_failure_since_the_last_lease_is_told_with_the_next() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    add(&store, &["a", "b"]).await;
    for _ in 0..2 {
        assert_eq!(lease(&store, 1).await.len(), 1);
        clock.advance(Duration::from_micros(1));
    }
    store.add(&[failing("c")]).await.unwrap();
    let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
    assert_eq!((grant.failures, grant.deliveries), (1, 1));
}

/// A queue whose last leases were plain, and in it the key `a`, which is delayed by a
/// minute and was delivered once.
async fn with_delivered_key(clock: &EngineClock, priority: i8) -> Option<RedisStore> {
    let store = server::open(&server::url()?, clock).await;
    store.add(&[failing("a")]).await.unwrap();
    lease(&store, 1).await;
    clock.advance(Duration::from_secs(30));
    store.expire(None).await.unwrap();
    store.remove(&keys(&["a"])).await.unwrap();
    let when = When::After(Duration::from_secs(60));
    store.add(&[Add { when, priority, ..adds(&["a"]).remove(0) }]).await.unwrap();
    store.forget(&keys(&["a"])).await.unwrap();
    add(&store, &["b", "c"]).await;
    assert_eq!(lease(&store, 5).await.len(), 2);
    clock.advance(Duration::from_secs(1));
    Some(store)
}

#[tokio::test]
async fn a_delivery_of_a_key_that_was_nowhere_counts_when_it_is_added() {
    let when = When::After(Duration::from_secs(60));
    let later = Add { when, ..adds(&["d"]).remove(0) };
    for adds in [adds(&["a"]), vec![adds(&["a"]).remove(0), later]] {
        for priority in [0, -5] {
            let clock = EngineClock::new();
            let Some(store) = with_delivered_key(&clock, priority).await else { return };
            store.add(&adds).await.unwrap();
            let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
            assert_eq!((grant.key, grant.deliveries), (server::key("a"), 2));
        }
    }
}

#[tokio::test]
async fn a_delivery_of_a_key_that_was_nowhere_counts_when_its_delay_is_over() {
    let clock = EngineClock::new();
    let Some(store) = with_delivered_key(&clock, 0).await else { return };
    clock.advance(Duration::from_secs(60));
    assert_eq!(store.stats().await.unwrap().ready, 1);
    let grant = store.lease(&request(1)).await.unwrap().grants.remove(0);
    assert_eq!((grant.key, grant.deliveries), (server::key("a"), 2));
}
