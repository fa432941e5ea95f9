//! Queues on a cluster.

use std::future::Future;
use std::time::Duration;

use requeue::{Clock, SystemClock};
use requeue_redis::RedisStore;
use requeue_store::{Add, ErrorKind, RepliesExt, SharedLease, SharedQueue, Store, When};

use crate::support::cluster::{TestCluster, shared_url};
use crate::support::{
    add, adds, free_port, lease, names, new_queue, part, request, select,
};

async fn lease_all(store: &RedisStore) -> usize {
    let mut all = 0;
    loop {
        let count = lease(store, 10).await.len();
        if count == 0 {
            return all;
        }
        all += count;
    }
}

#[tokio::test]
async fn one_address_is_enough_to_find_all_nodes() {
    let Some(url) = shared_url().await else { return };
    let (first, _) = url.split_once(',').unwrap();
    let store = new_queue(first).partitions(8).open().await.unwrap();
    let names = names(64);
    let names = select(&names, |_| true);
    assert_eq!(add(&store, &names).await.len(), names.len());
    assert_eq!(store.stats().await.unwrap().ready, 64);
    assert_eq!(lease_all(&store).await, 64);
    assert!(store.describe().starts_with("redis cluster at 127.0.0.1:"));
}

#[tokio::test]
async fn an_address_without_a_node_is_skipped() {
    let Some(url) = shared_url().await else { return };
    let missing = format!("redis-cluster://127.0.0.1:{},", free_port());
    let url = url.replacen("redis-cluster://", &missing, 1);
    let store = new_queue(&url).partitions(8).open().await.unwrap();
    add(&store, &["a", "b"]).await;
    store.wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(lease_all(&store).await, 2);
}

#[tokio::test]
async fn an_unreachable_cluster_is_unavailable_and_named() {
    let port = free_port();
    let url = format!("redis-cluster://:hunter2@127.0.0.1:{port},127.0.0.1:{port}");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_key_in_any_partition_wakes_a_waiter() {
    let Some(url) = shared_url().await else { return };
    let builder = new_queue(&url).partitions(8);
    let producer = builder.clone().open().await.unwrap();
    let worker = builder.open().await.unwrap();
    for name in names(64) {
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
async fn the_error_for_a_single_node_shows_the_right_scheme() {
    let Some(url) = shared_url().await else { return };
    let (first, _) = url.split_once(',').unwrap();
    let single = first.replacen("redis-cluster://", "redis://", 1);
    let error = new_queue(&single).partitions(64).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[tokio::test]
async fn a_moved_slot_is_followed() {
    let Some(cluster) = TestCluster::start().await else { return };
    let builder = new_queue(&cluster.url());
    let store = builder.clone().open().await.unwrap();
    let other = builder.clone().open().await.unwrap();
    add(&store, &["a", "b"]).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    // Removes the marker, so that the next wait blocks on the old node while the slot moves.
    other.wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(lease(&other, 5).await.len(), 1);
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.wait(Duration::from_secs(60)).await }
    });
    cluster.wait_until_blocked().await;
    cluster.move_slot(&part(&builder, "m")).await;
    add(&store, &["c"]).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(lease(&other, 5).await.len(), 1);
    assert_eq!(store.stats().await.unwrap().processing, 3);
}

#[tokio::test]
async fn a_restarted_node_is_used_again() {
    let Some(cluster) = TestCluster::start().await else { return };
    let store = new_queue(&cluster.url()).partitions(8).open().await.unwrap();
    let names = names(64);
    let names = select(&names, |_| true);
    add(&store, &names).await;
    cluster.stop(0).await;
    let error = store.add(&adds(&names)).all().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    cluster.restart(0).await;
    // The first calls may use the broken connection.
    while let Err(error) = store.add(&adds(&names)).all().await {
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(lease_all(&store).await, names.len());
}

#[tokio::test]
async fn keys_of_other_nodes_are_leased_while_a_node_is_down() {
    let Some(cluster) = TestCluster::start().await else { return };
    cluster.allow_missing_nodes().await;
    let store = new_queue(&cluster.url()).partitions(8).open().await.unwrap();
    let names = names(64);
    let names = select(&names, |_| true);
    add(&store, &names).await;
    cluster.stop(0).await;
    // The outcome on the broken connection is unknown.
    let mut first = store.lease(&request(5)).await;
    while first.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown) {
        first = store.lease(&request(5)).await;
    }
    assert_eq!(first.unwrap().grants.len(), 5);
}

/// A batch failed as a whole if one node did, and waited for the node that was down.
#[tokio::test]
async fn a_stopped_node_affects_only_its_own_keys() {
    let Some(cluster) = TestCluster::start().await else { return };
    cluster.allow_missing_nodes().await;
    let builder = new_queue(&cluster.url()).partitions(8).timeout(Duration::from_secs(2));
    let store = builder.open().await.unwrap();
    let names = names(64);
    let names = select(&names, |_| true);
    add(&store, &names).await;
    let held = lease(&store, 64).await;
    assert_eq!(held.len(), 64);
    let stopped = cluster.signal(1, "STOP").await;
    let owner = request(1).owner;
    let extended = store.extend(&owner, &held, Duration::from_secs(30)).await;
    let failed = extended.iter().filter(|result| result.is_err()).count();
    assert!((1..64).contains(&failed), "{failed} of 64 on one of three nodes");
    for result in &extended {
        match result {
            Ok(is_held) => assert!(is_held),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    // Later calls to the node fail at once, and only those.
    let again = held.iter().map(|hold| Add::new(hold.key.clone(), When::Now));
    let again: Vec<_> = again.collect();
    let results = store.add(&again).await;
    for (added, extended) in results.iter().zip(&extended) {
        assert_eq!(added.is_ok(), extended.is_ok(), "{added:?}");
        let is_unknown = |e: &requeue_store::Error| e.kind() == ErrorKind::Unknown;
        assert!(!added.as_ref().is_err_and(is_unknown), "{added:?}");
    }
    store.heartbeat(&owner).await.unwrap();
    assert!(store.lease(&request(5)).await.is_ok());
    stopped.resume();
    while store.add(&adds(&names)).await.iter().any(Result::is_err) {}
    let extended = store.extend(&owner, &held, Duration::from_secs(30)).all().await;
    assert!(extended.unwrap().iter().all(|is_held| *is_held));
}

/// All leases were lost when one of three nodes was stopped for longer than a lease.
#[tokio::test(flavor = "multi_thread")]
async fn leases_on_other_nodes_survive_a_stopped_node() {
    let Some(cluster) = TestCluster::start().await else { return };
    cluster.allow_missing_nodes().await;
    let store = new_queue(&cluster.url()).partitions(8).open().await.unwrap();
    let queue = SharedQueue::<String, _>::builder(store);
    let queue = queue.lease(Duration::from_secs(3)).build();
    for name in names(24) {
        queue.add(name).await.unwrap();
    }
    let mut leases = Vec::new();
    while leases.len() < 24 {
        leases.push(queue.get().await.unwrap().unwrap());
    }
    let stopped = cluster.signal(1, "STOP").await;
    // The leases on the stopped node are lost when the others would be, too.
    let is_stopped = |lease: &SharedLease<String, RedisStore>| {
        let mut lost = Box::pin(lease.lost());
        let waker = std::task::Waker::noop();
        lost.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready()
    };
    while !leases.iter().any(is_stopped) {
        tokio::task::yield_now().await;
    }
    let first_lost = leases.iter().filter(|lease| is_stopped(lease)).count();
    assert!(first_lost < 24);
    // Another lease later, the others are still held.
    let later = SystemClock.now() + Duration::from_secs(3);
    SystemClock.timer(later).await;
    let lost = leases.iter().filter(|lease| is_stopped(lease)).count();
    assert!((1..20).contains(&lost), "{lost} of 24 leases were lost");
    stopped.resume();
    for lease in leases.into_iter().filter(|lease| !is_stopped(lease)) {
        lease.succeed().await.unwrap();
    }
}
