//! A queue whose partitions are on several nodes.

use std::time::Duration;

use requeue_redis::RedisStore;
use requeue_store::{ErrorKind, Store};

use crate::nodes::{self, Nodes};
use crate::server::{self, add, adds, request};

fn names() -> Vec<String> {
    (0..64).map(|n| format!("k{n}")).collect()
}

async fn lease_all(store: &RedisStore) -> usize {
    let mut count = 0;
    loop {
        let leased = store.lease(&request(10)).await.unwrap();
        if leased.grants.is_empty() {
            return count;
        }
        count += leased.grants.len();
    }
}

#[tokio::test]
async fn one_node_is_enough_to_find_the_others() {
    let Some(url) = nodes::shared_url().await else { return };
    let (first, _) = url.split_once(',').unwrap();
    let store = server::fresh(first).partitions(8).open().await.unwrap();
    let names = names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(add(&store, &names).await.len(), names.len());
    assert_eq!(store.stats().await.unwrap().ready, 64);
    assert_eq!(lease_all(&store).await, 64);
    assert!(store.describe().starts_with("redis cluster at 127.0.0.1:"));
}

#[tokio::test]
async fn a_node_of_the_address_that_is_not_there_is_passed_over() {
    let Some(url) = nodes::shared_url().await else { return };
    let gone = format!("redis-cluster://127.0.0.1:{},", server::free_port());
    let url = url.replacen("redis-cluster://", &gone, 1);
    let store = server::fresh(&url).partitions(8).open().await.unwrap();
    add(&store, &["a", "b"]).await;
    store.wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(lease_all(&store).await, 2);
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_unavailable_and_named() {
    let port = server::free_port();
    let url = format!("redis-cluster://:hunter2@127.0.0.1:{port},127.0.0.1:{port}");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_key_of_any_partition_wakes_a_waiter() {
    let Some(url) = nodes::shared_url().await else { return };
    let builder = server::fresh(&url).partitions(8);
    let producer = builder.clone().open().await.unwrap();
    let worker = builder.open().await.unwrap();
    for name in names() {
        assert_eq!(lease_all(&worker).await, 0);
        let waiting = tokio::spawn({
            let worker = worker.clone();
            async move { worker.wait(Duration::from_secs(60)).await }
        });
        add(&producer, &[&name]).await;
        waiting.await.unwrap().unwrap();
        let mut found = 0;
        while found == 0 {
            found = lease_all(&worker).await;
        }
        assert_eq!(found, 1);
    }
}

#[tokio::test]
async fn a_node_that_is_taken_for_the_whole_says_what_to_write() {
    let Some(url) = nodes::shared_url().await else { return };
    let (first, _) = url.split_once(',').unwrap();
    let alone = first.replacen("redis-cluster://", "redis://", 1);
    let error = server::fresh(&alone).partitions(64).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[tokio::test]
async fn a_partition_is_found_where_its_slot_has_moved_to() {
    let Some(nodes) = Nodes::start().await else { return };
    let builder = server::fresh(&nodes.url());
    let store = builder.clone().open().await.unwrap();
    let other = builder.clone().open().await.unwrap();
    add(&store, &["a", "b"]).await;
    assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 1);
    // Takes the mark, so that the next wait is on the old node when the slot leaves it.
    other.wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(other.lease(&request(5)).await.unwrap().grants.len(), 1);
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.wait(Duration::from_secs(60)).await }
    });
    nodes.until_somebody_waits().await;
    nodes.move_slot(&server::part(&builder, "m")).await;
    add(&store, &["c"]).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(other.lease(&request(5)).await.unwrap().grants.len(), 1);
    assert_eq!(store.stats().await.unwrap().processing, 3);
}

#[tokio::test]
async fn a_node_that_was_restarted_is_found_again() {
    let Some(nodes) = Nodes::start().await else { return };
    let store = server::fresh(&nodes.url()).partitions(8).open().await.unwrap();
    let names = names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    add(&store, &names).await;
    nodes.stop(0).await;
    let error = store.add(&adds(&names)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    nodes.start_again(0).await;
    // What was connected to it finds out by failing.
    while let Err(error) = store.add(&adds(&names)).await {
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(lease_all(&store).await, names.len());
}

#[tokio::test]
async fn a_node_that_is_gone_keeps_nobody_from_the_keys_of_the_others() {
    let Some(nodes) = Nodes::start().await else { return };
    nodes.serve_what_is_there().await;
    let store = server::fresh(&nodes.url()).partitions(8).open().await.unwrap();
    let names = names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    add(&store, &names).await;
    nodes.stop(0).await;
    // A connection that broke leaves it open what was carried out.
    let mut first = store.lease(&request(5)).await;
    while first.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown) {
        first = store.lease(&request(5)).await;
    }
    assert_eq!(first.unwrap().grants.len(), 5);
}
