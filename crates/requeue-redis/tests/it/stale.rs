//! Keys that leave a long list of ready keys before they are leased: see `lib/stale.lua`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_redis::RedisStoreBuilder;
use requeue_store::{EngineClock, RepliesExt, Store};

use crate::support::invariants::check;
use crate::support::{
    self, LONG, WithModel, add, connect, keys, lease, names, new_queue, part, request,
    select,
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_key_that_is_removed_and_added_again_runs_once_and_in_its_new_place() {
    let Some(mut both) = WithModel::open().await else { return };
    let names = names(LONG);
    let (all, thirds) = (select(&names, |_| true), select(&names, |n| n % 3 == 0));
    for _ in 0..3 {
        both.clock.advance(Duration::from_micros(1));
        both.add(&all).await;
        both.remove(&thirds).await;
        assert_eq!(both.store.stats().await.unwrap(), both.model.stats().await.unwrap());
        both.check("after remove").await;
    }
    both.clock.advance(Duration::from_micros(1));
    both.add(&thirds).await;
    for max in [1, 7, 50, 500] {
        let expected = both.model.lease(&request(max)).await.unwrap();
        assert_eq!(both.store.lease(&request(max)).await.unwrap(), expected);
        assert_eq!(both.store.stats().await.unwrap(), both.model.stats().await.unwrap());
        both.check("after lease").await;
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
    let Some(mut both) = WithModel::open().await else { return };
    let names = names(6000);
    both.add(&select(&names, |_| true)).await;
    let mut longest = 0;
    for part in select(&names, |n| n % 4 != 1).chunks(500) {
        both.remove(part).await;
        both.check("after remove").await;
        longest = longest.max(length(&mut both.server, &both.builder, "c").await);
    }
    assert!((1..1500).contains(&longest), "{longest} entries were moved by three calls");
    // Keys that are added during the compaction come last.
    both.clock.advance(Duration::from_micros(1));
    both.add(&select(&names, |n| n % 400 == 0)).await;
    for max in [1, 3, 400, 500, 500, 500, 500] {
        let expected = both.model.lease(&request(max)).await.unwrap();
        let leased = both.store.lease(&request(max)).await.unwrap();
        assert_eq!(leased.grants, expected.grants);
        both.check("after lease").await;
    }
    assert_eq!(length(&mut both.server, &both.builder, "r").await, 0);
    assert_eq!(length(&mut both.server, &both.builder, "c").await, 0);
}

async fn length(
    server: &mut MultiplexedConnection,
    builder: &RedisStoreBuilder,
    end: &str,
) -> usize {
    redis::cmd("LLEN").arg(part(builder, end)).query_async(server).await.unwrap()
}
