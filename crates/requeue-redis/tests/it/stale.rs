//! Keys that leave a long list of ready keys before they are leased: see `lib/stale.lua`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_redis::RedisStoreBuilder;
use requeue_store::{EngineClock, MemoryStore, RepliesExt, Store};

use crate::support::invariants::check;
use crate::support::{
    self, add, adds, connect, keys, lease, names, new_queue, part, request, select,
};

/// More keys than are searched for one of them.
const LONG: usize = 200;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_key_that_is_removed_and_added_again_runs_once_and_in_its_new_place() {
    let Some(url) = support::url() else { return };
    let clock = EngineClock::new();
    let builder = new_queue(&url).clock(clock.clone());
    let store = builder.clone().open().await.unwrap();
    let mut server = connect(&url).await;
    let model = MemoryStore::with_clock(clock.clone());
    let names = names(LONG);
    let (all, thirds) = (select(&names, |_| true), select(&names, |n| n % 3 == 0));
    for _ in 0..3 {
        clock.advance(Duration::from_micros(1));
        add(&store, &all).await;
        model.add(&adds(&all)).all().await.unwrap();
        let removed = store.remove(&keys(&thirds)).all().await.unwrap();
        assert_eq!(removed, model.remove(&keys(&thirds)).all().await.unwrap());
        assert_eq!(store.stats().await.unwrap(), model.stats().await.unwrap());
        check(&mut server, &builder, "after remove").await;
    }
    clock.advance(Duration::from_micros(1));
    add(&store, &thirds).await;
    model.add(&adds(&thirds)).all().await.unwrap();
    for max in [1, 7, 50, 500] {
        let expected = model.lease(&request(max)).await.unwrap();
        assert_eq!(store.lease(&request(max)).await.unwrap(), expected);
        assert_eq!(store.stats().await.unwrap(), model.stats().await.unwrap());
        check(&mut server, &builder, "after lease").await;
    }
}

#[tokio::test]
async fn removed_keys_are_not_leased() {
    let Some(url) = support::url() else { return };
    let store = support::open(&url, &EngineClock::new()).await;
    let names = names(LONG);
    add(&store, &select(&names, |_| true)).await;
    assert_eq!(lease(&store, 1).await[0].key, support::key("k0"));
    store.remove(&keys(&select(&names, |n| (1..5).contains(&n)))).all().await.unwrap();
    assert_eq!(lease(&store, 1).await[0].key, support::key("k5"));
}

/// The marker is set when a key is added to an empty list. Stale entries must not count.
#[tokio::test]
async fn a_queue_of_which_all_keys_were_removed_wakes_for_the_next_key() {
    let Some(url) = support::url() else { return };
    let store = support::open(&url, &EngineClock::new()).await;
    let names = names(LONG);
    let all = select(&names, |_| true);
    add(&store, &all).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    store.remove(&keys(&all)).all().await.unwrap();
    assert!(lease(&store, 1).await.is_empty());
    // Removes the marker that the first key set.
    store.wait(MINUTE).await.unwrap();
    store.wait(Duration::ZERO).await.unwrap();
    add(&store, &["next"]).await;
    store.wait(MINUTE).await.unwrap();
    assert_eq!(lease(&store, 5).await.len(), 1);
}

#[tokio::test]
async fn a_list_does_not_grow_by_keys_that_are_added_and_removed() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let store = builder.clone().open().await.unwrap();
    let names = names(LONG);
    let all = select(&names, |_| true);
    add(&store, &["first"]).await;
    for _ in 0..30 {
        add(&store, &all).await;
        store.remove(&keys(&all)).all().await.unwrap();
    }
    let mut server = connect(&url).await;
    let length = length(&mut server, &builder, "r").await
        + length(&mut server, &builder, "c").await;
    assert!(length < 2500, "{length} entries for one key");
    assert_eq!(store.stats().await.unwrap().ready, 1);
    check(&mut server, &builder, "after compaction").await;
}

/// A call read and rewrote the whole list, however long it was.
#[tokio::test]
async fn a_long_list_is_compacted_in_steps_that_keep_its_order() {
    let Some(url) = support::url() else { return };
    let clock = EngineClock::new();
    let builder = new_queue(&url).clock(clock.clone());
    let store = builder.clone().open().await.unwrap();
    let mut server = connect(&url).await;
    let model = MemoryStore::with_clock(clock.clone());
    let names = names(6000);
    let all = select(&names, |_| true);
    add(&store, &all).await;
    model.add(&adds(&all)).all().await.unwrap();
    let removed = select(&names, |n| n % 4 != 1);
    let mut longest = 0;
    for part in removed.chunks(500) {
        store.remove(&keys(part)).all().await.unwrap();
        model.remove(&keys(part)).all().await.unwrap();
        check(&mut server, &builder, "after remove").await;
        let compacted = length(&mut server, &builder, "c").await;
        longest = longest.max(compacted);
    }
    assert!((1..1500).contains(&longest), "{longest} entries were moved by three calls");
    // Keys that are added during the compaction come last.
    clock.advance(Duration::from_micros(1));
    let again = select(&names, |n| n % 400 == 0);
    add(&store, &again).await;
    model.add(&adds(&again)).all().await.unwrap();
    for max in [1, 3, 400, 500, 500, 500, 500] {
        let expected = model.lease(&request(max)).await.unwrap();
        let leased = store.lease(&request(max)).await.unwrap();
        assert_eq!(leased.grants, expected.grants);
        check(&mut server, &builder, "after lease").await;
    }
    assert_eq!(length(&mut server, &builder, "r").await, 0);
    assert_eq!(length(&mut server, &builder, "c").await, 0);
}

async fn length(
    server: &mut MultiplexedConnection,
    builder: &RedisStoreBuilder,
    end: &str,
) -> usize {
    redis::cmd("LLEN").arg(part(builder, end)).query_async(server).await.unwrap()
}
