//! Keys of several priorities, in the lines that Redis has for them.

use std::time::Duration;

use requeue::Finish;
use requeue_redis::RedisStore;
use requeue_store::{
    EngineClock, FinishRequest, Finished, Hold, Key, MemoryStore, Store,
};

use crate::cost::{commands, since};
use crate::server::{self, add, adds, keys, ranked, request};

/// Longer than what is searched through for a key that leaves the line.
fn names() -> Vec<String> {
    (0..200).map(|n| format!("k{n}")).collect()
}

fn some(names: &[String], of: impl Fn(usize) -> bool) -> Vec<&str> {
    let chosen = names.iter().enumerate().filter(|(place, _)| of(*place));
    chosen.map(|(_, name)| name.as_str()).collect()
}

/// None of the next hundred grants goes to the oldest key: see order.lua.
fn skip_turns_of_the_oldest(clock: &EngineClock) {
    while clock.now().micros() % 256 != 100 {
        clock.advance(Duration::from_micros(1));
    }
}

/// Leases keys and ends that.
async fn serve(store: &impl Store, max: usize) -> Vec<Key> {
    let grants = store.lease(&request(max)).await.unwrap().grants;
    let hold = |grant: requeue_store::Grant| Hold { key: grant.key, token: grant.token };
    let holds: Vec<_> = grants.into_iter().map(hold).collect();
    let end = |hold: &Hold| FinishRequest::new(hold.clone(), Finish::Succeed);
    let ends: Vec<_> = holds.iter().map(end).collect();
    let finished = store.finish(&ends).await.unwrap();
    assert!(finished.iter().all(|finished| *finished == Finished::Done));
    holds.into_iter().map(|hold| hold.key).collect()
}

#[tokio::test]
async fn keys_that_are_raised_out_of_a_long_line_run_once_and_in_their_new_place() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    let model = MemoryStore::with_clock(clock.clone());
    let names = names();
    let (all, thirds) = (some(&names, |_| true), some(&names, |n| n % 3 == 0));
    let (fifths, sixths) = (some(&names, |n| n % 5 == 0), some(&names, |n| n % 6 == 0));
    for _ in 0..3 {
        let batches = [adds(&all), ranked(&thirds, 5), ranked(&fifths, -5)];
        for batch in batches.iter().chain([&ranked(&sixths, 9)]) {
            let receipts = store.add(batch).await.unwrap();
            assert_eq!(receipts, model.add(batch).await.unwrap());
        }
        let removed = store.remove(&keys(&fifths)).await.unwrap();
        assert_eq!(removed, model.remove(&keys(&fifths)).await.unwrap());
        for max in [1, 7, 50] {
            skip_turns_of_the_oldest(&clock);
            assert_eq!(serve(&store, max).await, serve(&model, max).await);
            let (is, right) =
                (store.stats().await.unwrap(), model.stats().await.unwrap());
            assert_eq!((is.ready, is.processing), (right.ready, right.processing));
        }
    }
}

#[tokio::test]
async fn a_key_of_any_priority_is_seen_by_a_lease_that_could_pass_for_plain() {
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    skip_turns_of_the_oldest(&clock);
    add(&store, &["a", "b", "c"]).await;
    assert_eq!(serve(&store, 1).await, keys(&["a"]));
    clock.advance(Duration::from_micros(1));
    store.add(&ranked(&["high"], 1)).await.unwrap();
    store.add(&ranked(&["low"], -1)).await.unwrap();
    for name in ["high", "b", "c", "low"] {
        assert_eq!(serve(&store, 1).await, keys(&[name]));
        clock.advance(Duration::from_micros(1));
    }
}

#[tokio::test]
async fn a_queue_without_priorities_costs_the_same_after_it_had_some() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let mut costs = Vec::new();
    for priority in [9, -9] {
        store.add(&ranked(&["k"], priority)).await.unwrap();
        assert_eq!(serve(&store, 1).await, keys(&["k"]));
        // Finds out that nothing is due.
        add(&store, &["k"]).await;
        serve(&store, 1).await;
        let before = commands(&mut server).await;
        add(&store, &["k"]).await;
        serve(&store, 1).await;
        costs.push(since(&before, commands(&mut server).await));
    }
    let calls = |cost: &Vec<(String, u64)>| {
        cost.iter().find(|(name, _)| name == "evalsha").map(|(_, count)| *count)
    };
    assert!(costs.iter().all(|cost| calls(cost) == Some(3)), "{costs:?}");
}

/// Has one key of a high priority come for each grant, until this one is served.
async fn serve_until(store: &RedisStore, name: &str) -> Vec<Key> {
    let mut served = Vec::new();
    while served.len() < 600 && served.last() != Some(&server::key(name)) {
        let rival = format!("rival {}", served.len());
        store.add(&ranked(&[&rival], 50)).await.unwrap();
        served.extend(serve(store, 1).await);
    }
    served
}

#[tokio::test]
async fn the_oldest_key_behind_removed_ones_is_not_passed_over_for_ever() {
    let Some(url) = server::url() else { return };
    let store = server::open(&url, &EngineClock::new()).await;
    let names = names();
    add(&store, &some(&names, |_| true)).await;
    store.remove(&keys(&some(&names, |n| n < 99))).await.unwrap();
    let served = serve_until(&store, "k99").await;
    assert_eq!(served.last(), Some(&server::key("k99")), "of {}", served.len());
    assert_eq!(store.stats().await.unwrap().ready, 101);
    let of_the_line = served.iter().filter(|key| key.starts_with(b"k")).count();
    assert_eq!(of_the_line, 1);
}

#[tokio::test]
async fn a_lower_priority_does_not_overtake_keys_behind_many_removed_ones() {
    // A lease passes over a thousand removed keys before it gives up for the moment.
    let Some(url) = server::url() else { return };
    let clock = EngineClock::new();
    let store = server::open(&url, &clock).await;
    let names: Vec<_> = (0..2500).map(|n| format!("k{n}")).collect();
    add(&store, &some(&names, |_| true)).await;
    store.add(&ranked(&["low"], -1)).await.unwrap();
    store.remove(&keys(&some(&names, |n| n < 1200))).await.unwrap();
    skip_turns_of_the_oldest(&clock);
    let mut served = serve(&store, 1).await;
    served.extend(serve(&store, 1).await);
    assert_eq!(served, keys(&["k1200"]));
}

/// Takes the mark by which waiters are told: whether it was there.
async fn take_mark(server: &mut redis::aio::MultiplexedConnection, mark: &str) -> bool {
    redis::cmd("DEL").arg(mark).query_async(server).await.unwrap()
}

#[tokio::test]
async fn a_line_whose_last_key_was_the_oldest_wakes_for_the_next_key() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let store = builder.clone().clock(EngineClock::new()).open().await.unwrap();
    let names = names();
    add(&store, &some(&names, |_| true)).await;
    store.remove(&keys(&some(&names, |n| n != 0))).await.unwrap();
    let served = serve_until(&store, "k0").await;
    assert_eq!(served.last(), Some(&server::key("k0")), "of {}", served.len());
    assert_eq!(serve(&store, 1).await.len(), 1, "a rival is left");
    let mut redis = server::connection(&url).await;
    let mark = server::part(&builder, "w");
    take_mark(&mut redis, &mark).await;
    add(&store, &["next"]).await;
    assert!(take_mark(&mut redis, &mark).await);
}

#[tokio::test]
async fn waiters_are_told_of_keys_of_any_priority() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let store = builder.clone().open().await.unwrap();
    let mut server = server::connection(&url).await;
    let mark = server::part(&builder, "w");
    for priority in [1, -1] {
        store.add(&ranked(&["a", "b"], priority)).await.unwrap();
        assert!(take_mark(&mut server, &mark).await, "the queue was empty");
        store.pause().await.unwrap();
        assert!(serve(&store, 1).await.is_empty());
        assert!(!take_mark(&mut server, &mark).await, "nobody can have one");
        store.resume().await.unwrap();
        assert!(take_mark(&mut server, &mark).await, "the queue was resumed");
        assert_eq!(serve(&store, 1).await, keys(&["a"]));
        assert!(take_mark(&mut server, &mark).await, "one is left");
        assert_eq!(serve(&store, 1).await, keys(&["b"]));
        take_mark(&mut server, &mark).await;
    }
}
