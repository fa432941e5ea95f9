//! The cost of calls for the server, in commands.

use std::time::Duration;

use requeue::{Clock, Finish, SystemClock};
use requeue_store::{EngineClock, FinishRequest, Finished, RepliesExt, Store};

use crate::support::cluster::TestCluster;
use crate::support::server::TestServer;
use crate::support::{
    self, add, command_counts, commands_between, connect, lease, names, new_queue, part,
    request, select,
};

#[tokio::test]
async fn adding_a_processing_key_costs_the_same_with_ten_thousand_leases() {
    let Some(own) = TestServer::start().await else { return };
    let store = support::open(&own.url, &EngineClock::new()).await;
    let mut server = connect(&own.url).await;
    let names = names(10_000);
    let mut costs = Vec::new();
    for (from, to) in [(0, 1), (1, 10_000)] {
        add(&store, &select(&names, |n| (from..to).contains(&n))).await;
        while !lease(&store, 500).await.is_empty() {}
        let before = command_counts(&mut server).await;
        add(&store, &["k0"]).await;
        costs.push(commands_between(&before, command_counts(&mut server).await));
        let stats = store.stats().await.unwrap();
        assert_eq!((stats.processing, stats.dirty), (to as u64, 1));
        store.remove(&support::keys(&["k0"])).all().await.unwrap();
    }
    assert_eq!(costs[0], costs[1]);
    let total: u64 = costs[0].iter().map(|(_, count)| count).sum();
    assert!(total <= 5, "{costs:?}");
}

/// The commands of short scripts: an add has 4, a lease 10 and a finish 3.
#[tokio::test]
async fn a_cycle_of_one_key_is_three_short_scripts() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let mut server = connect(&own.url).await;
    // The first round loads the scripts. One lease in 256 is for the oldest key.
    let mut fewest = u64::MAX;
    for _ in 0..3 {
        let before = command_counts(&mut server).await;
        add(&store, &["k"]).await;
        let hold = lease(&store, 1).await.remove(0);
        let request = FinishRequest::new(hold, Finish::Succeed);
        assert_eq!(store.finish(&[request]).all().await.unwrap(), [Finished::Done]);
        let sent = commands_between(&before, command_counts(&mut server).await);
        fewest = fewest.min(sent.iter().map(|(_, count)| count).sum());
    }
    let (scripts, marker) = (3, 1);
    assert!(fewest <= scripts + marker + 4 + 10 + 3, "{fewest}");
}

/// With 120 keys, a search in the encoding for small hashes and sets took longer than the
/// rest of a call.
#[tokio::test]
async fn a_small_queue_uses_the_encodings_of_a_large_one() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let store = builder.clone().open().await.unwrap();
    let mut server = connect(&url).await;
    add(&store, &["k"]).await;
    assert_eq!(lease(&store, 1).await.len(), 1);
    for (end, expected) in [("k", "hashtable"), ("l", "skiplist")] {
        let mut command = redis::cmd("OBJECT");
        command.arg("ENCODING").arg(part(&builder, end));
        let encoding: String = command.query_async(&mut server).await.unwrap();
        assert_eq!(encoding, expected);
    }
    assert_eq!(store.stats().await.unwrap().processing, 1);
}

#[tokio::test]
async fn waiters_of_a_process_share_one_blocking_command() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).partitions(3).open().await.unwrap();
    let mut server = connect(&own.url).await;
    assert!(lease(&store, 1).await.is_empty());
    // Opens the connection.
    store.wait(Duration::from_millis(1)).await.unwrap();
    let before = command_counts(&mut server).await;
    let waiters = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.wait(Duration::from_millis(1500)).await })
    });
    let waiters: Vec<_> = waiters.collect();
    let began = SystemClock.now();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    let seconds = began.elapsed().as_secs() + 1;
    let sent = commands_between(&before, command_counts(&mut server).await);
    let allowed = |(name, count): &(String, u64)| name == "bzpopmin" && *count <= seconds;
    assert!(sent.iter().all(allowed), "in {seconds} s: {sent:?}");
}

#[tokio::test]
async fn waiters_on_a_cluster_share_one_blocking_command_per_partition() {
    let Some(cluster) = TestCluster::start().await else { return };
    let store = new_queue(&cluster.url()).partitions(8).open().await.unwrap();
    assert!(lease(&store, 1).await.is_empty());
    let mut sent = 0;
    let mut before = Vec::new();
    for address in cluster.addresses() {
        let mut node = connect(&format!("redis://{address}")).await;
        before.push((command_counts(&mut node).await, node));
    }
    let waiters = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.wait(Duration::from_millis(1500)).await })
    });
    let began = SystemClock.now();
    for waiter in waiters.collect::<Vec<_>>() {
        waiter.await.unwrap().unwrap();
    }
    for (before, mut node) in before {
        for (name, count) in commands_between(&before, command_counts(&mut node).await) {
            // Redis 7 gave the first command of a connection its own name.
            let is_first = ["client", "client|setinfo"].contains(&name.as_str());
            assert!(is_first || name == "bzpopmin", "{name}");
            sent += if name == "bzpopmin" { count } else { 0 };
        }
    }
    let seconds = began.elapsed().as_secs() + 1;
    // Valkey does not count a command that timed out.
    assert!((sent >= 8 || sent == 0) && sent <= 8 + seconds, "in {seconds} s: {sent}");
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).partitions(2).open().await.unwrap();
    let mut server = connect(&own.url).await;
    let names = names(1200);
    let names = select(&names, |_| true);
    for _ in 0..2 {
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server).await.unwrap();
        assert_eq!(add(&store, &names).await.len(), names.len());
        let stats = store.stats().await.unwrap();
        assert_eq!(stats.ready + stats.dirty, 1200);
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server).await.unwrap();
        assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 1);
        store.expire(None).await.unwrap();
        store.remove(&support::keys(&names)).all().await.unwrap();
    }
}
