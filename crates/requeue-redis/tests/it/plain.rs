//! Leases after which the next one could pass for plain, and is not: see lease.lua.

use std::time::Duration;

use requeue_redis::RedisStore;
use requeue_store::{Add, End, Ending, EngineClock, Hold, Owner, Store};

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
    let ending = Ending::Bury { reason: "no use".into() };
    store.finish(&[End { hold, ending }]).await.unwrap();
    assert_eq!(lease(&store, 1).await.len(), 1);
    let revive_after = Duration::from_secs(1);
    let again = Add { revive_after, ..adds(&["a"]).remove(0) };
    store.add(&[again]).await.unwrap();
    clock.advance(revive_after);
    assert_eq!(lease(&store, 5).await[0].key, server::key("a"));
}
