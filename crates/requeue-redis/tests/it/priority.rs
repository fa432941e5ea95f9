//! Keys of several priorities.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue::Finish;
use requeue_redis::RedisStore;
use requeue_store::{EngineClock, FinishRequest, Finished, Hold, Key, RepliesExt, Store};

use crate::support::server::TestServer;
use crate::support::{
    self, LONG, WithModel, add, adds, adds_with_priority, command_counts,
    commands_between, connect, keys, lease, names, new_queue, part, select,
};

/// Advances the clock so that none of the next hundred leases goes to the oldest key.
fn skip_turn_of_oldest(clock: &EngineClock) {
    while clock.now().micros() % 256 != 100 {
        clock.advance(Duration::from_micros(1));
    }
}

/// Leases keys and finishes them.
async fn process(store: &impl Store, max: usize) -> Vec<Key> {
    let holds = lease(store, max).await;
    let request = |hold: &Hold| FinishRequest::new(hold.clone(), Finish::Succeed);
    let requests: Vec<_> = holds.iter().map(request).collect();
    let finished = store.finish(&requests).all().await.unwrap();
    assert!(finished.iter().all(|finished| *finished == Finished::Done));
    holds.into_iter().map(|hold| hold.key).collect()
}

#[tokio::test]
async fn keys_raised_out_of_a_long_list_run_once_and_in_their_new_place() {
    let Some(mut both) = WithModel::open().await else { return };
    let names = names(LONG);
    let (all, thirds) = (select(&names, |_| true), select(&names, |n| n % 3 == 0));
    let (fifths, sixths) =
        (select(&names, |n| n % 5 == 0), select(&names, |n| n % 6 == 0));
    for _ in 0..3 {
        let batches = [
            adds(&all),
            adds_with_priority(&thirds, 5),
            adds_with_priority(&fifths, -5),
            adds_with_priority(&sixths, 9),
        ];
        for batch in &batches {
            let receipts = both.store.add(batch).all().await.unwrap();
            assert_eq!(receipts, both.model.add(batch).all().await.unwrap());
            both.check("after add").await;
        }
        both.remove(&fifths).await;
        for max in [1, 7, 50] {
            skip_turn_of_oldest(&both.clock);
            assert_eq!(process(&both.store, max).await, process(&both.model, max).await);
            let (stats, expected) =
                (both.store.stats().await.unwrap(), both.model.stats().await.unwrap());
            assert_eq!(
                (stats.ready, stats.processing),
                (expected.ready, expected.processing)
            );
            both.check("after lease").await;
        }
    }
}

#[tokio::test]
async fn single_leases_respect_priorities() {
    let Some(url) = support::url() else { return };
    let clock = EngineClock::new();
    let store = support::open(&url, &clock).await;
    skip_turn_of_oldest(&clock);
    add(&store, &["a", "b", "c"]).await;
    assert_eq!(process(&store, 1).await, keys(&["a"]));
    clock.advance(Duration::from_micros(1));
    store.add(&adds_with_priority(&["high"], 1)).all().await.unwrap();
    store.add(&adds_with_priority(&["low"], -1)).all().await.unwrap();
    for name in ["high", "b", "c", "low"] {
        assert_eq!(process(&store, 1).await, keys(&[name]));
        clock.advance(Duration::from_micros(1));
    }
}

#[tokio::test]
async fn short_scripts_are_used_again_after_all_priorities_are_gone() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let mut server = connect(&own.url).await;
    for priority in [9, -9] {
        store.add(&adds_with_priority(&["k"], priority)).all().await.unwrap();
        assert_eq!(process(&store, 1).await, keys(&["k"]));
        // The first round loads scripts. One lease in 256 is for the oldest key.
        let mut fewest = u64::MAX;
        for _ in 0..3 {
            let before = command_counts(&mut server).await;
            add(&store, &["k"]).await;
            process(&store, 1).await;
            let sent = commands_between(&before, command_counts(&mut server).await);
            let calls = sent.iter().find(|(name, _)| name == "evalsha");
            fewest = fewest.min(calls.map_or(0, |(_, count)| *count));
        }
        assert_eq!(fewest, 3);
    }
}

/// Adds a key of high priority for each lease, until this key is leased.
async fn process_until(store: &RedisStore, name: &str) -> Vec<Key> {
    let mut processed = Vec::new();
    while processed.len() < 600 && processed.last() != Some(&support::key(name)) {
        let rival = format!("rival {}", processed.len());
        store.add(&adds_with_priority(&[&rival], 50)).all().await.unwrap();
        processed.extend(process(store, 1).await);
    }
    processed
}

#[tokio::test]
async fn the_oldest_key_behind_removed_ones_does_not_starve() {
    let Some(url) = support::url() else { return };
    let store = support::open(&url, &EngineClock::new()).await;
    let names = names(LONG);
    add(&store, &select(&names, |_| true)).await;
    store.remove(&keys(&select(&names, |n| n < 99))).all().await.unwrap();
    let processed = process_until(&store, "k99").await;
    assert_eq!(processed.last(), Some(&support::key("k99")), "of {}", processed.len());
    assert_eq!(store.stats().await.unwrap().ready, 101);
    let of_priority_0 = processed.iter().filter(|key| key.starts_with(b"k")).count();
    assert_eq!(of_priority_0, 1);
}

/// A lease gives up for the moment after a thousand stale entries.
#[tokio::test]
async fn a_lower_priority_does_not_overtake_keys_behind_many_removed_ones() {
    let Some(url) = support::url() else { return };
    let clock = EngineClock::new();
    let store = support::open(&url, &clock).await;
    let names = names(2500);
    add(&store, &select(&names, |_| true)).await;
    store.add(&adds_with_priority(&["low"], -1)).all().await.unwrap();
    store.remove(&keys(&select(&names, |n| n < 1200))).all().await.unwrap();
    skip_turn_of_oldest(&clock);
    let mut processed = process(&store, 1).await;
    processed.extend(process(&store, 1).await);
    assert_eq!(processed, keys(&["k1200"]));
}

/// Removes the marker for waiters. Returns whether it was set.
async fn take_marker(server: &mut MultiplexedConnection, marker: &str) -> bool {
    redis::cmd("DEL").arg(marker).query_async(server).await.unwrap()
}

#[tokio::test]
async fn a_list_whose_last_key_was_the_oldest_wakes_for_the_next_key() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let store = builder.clone().clock(EngineClock::new()).open().await.unwrap();
    let names = names(LONG);
    add(&store, &select(&names, |_| true)).await;
    store.remove(&keys(&select(&names, |n| n != 0))).all().await.unwrap();
    let processed = process_until(&store, "k0").await;
    assert_eq!(processed.last(), Some(&support::key("k0")), "of {}", processed.len());
    assert_eq!(process(&store, 1).await.len(), 1, "a rival is left");
    let mut server = connect(&url).await;
    let marker = part(&builder, "w");
    take_marker(&mut server, &marker).await;
    add(&store, &["next"]).await;
    assert!(take_marker(&mut server, &marker).await);
}

#[tokio::test]
async fn keys_of_every_priority_wake_waiters() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let store = builder.clone().open().await.unwrap();
    let mut server = connect(&url).await;
    let marker = part(&builder, "w");
    for priority in [1, -1] {
        store.add(&adds_with_priority(&["a", "b"], priority)).all().await.unwrap();
        assert!(take_marker(&mut server, &marker).await, "the queue was empty");
        store.pause().await.unwrap();
        assert!(process(&store, 1).await.is_empty());
        assert!(!take_marker(&mut server, &marker).await, "the queue is paused");
        store.resume().await.unwrap();
        assert!(take_marker(&mut server, &marker).await, "the queue was resumed");
        assert_eq!(process(&store, 1).await, keys(&["a"]));
        assert!(take_marker(&mut server, &marker).await, "a key is left");
        assert_eq!(process(&store, 1).await, keys(&["b"]));
        take_marker(&mut server, &marker).await;
    }
}
