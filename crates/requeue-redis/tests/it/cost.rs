//! What calls cost the server, counted in commands.

use std::collections::HashMap;
use std::time::Duration;

use requeue::Finish;
use requeue::{Clock, SystemClock};
use requeue_store::{EngineClock, FinishRequest, Finished, Grant, Hold, Store};

use crate::nodes::Nodes;
use crate::server::{self, add, request};

/// What a server of this test's own was asked, by command.
pub(crate) async fn commands(
    server: &mut redis::aio::MultiplexedConnection,
) -> HashMap<String, u64> {
    let text: String =
        redis::cmd("INFO").arg("commandstats").query_async(server).await.unwrap();
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// The commands that were sent since `before`, without the counting itself.
pub(crate) fn since(
    before: &HashMap<String, u64>,
    after: HashMap<String, u64>,
) -> Vec<(String, u64)> {
    let grown = |(name, count): (String, u64)| {
        let more = count - before.get(&name).copied().unwrap_or_default();
        (more > 0 && name != "info").then_some((name, more))
    };
    let mut all: Vec<_> = after.into_iter().filter_map(grown).collect();
    all.sort();
    all
}

#[tokio::test]
async fn an_add_while_ten_thousand_keys_are_processing_costs_what_it_always_costs() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::open(&own.url, &EngineClock::new()).await;
    let mut server = server::connection(&own.url).await;
    let names: Vec<_> = (0..10_000).map(|n| format!("k{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut costs = Vec::new();
    for (from, count) in [(0, 1), (1, 10_000)] {
        add(&store, &names[from..count]).await;
        while !store.lease(&request(500)).await.unwrap().grants.is_empty() {}
        let before = commands(&mut server).await;
        add(&store, &names[..1]).await;
        costs.push(since(&before, commands(&mut server).await));
        let ready = store.stats().await.unwrap();
        assert_eq!((ready.processing, ready.dirty), (count as u64, 1));
        store.remove(&server::keys(&names[..1])).await.unwrap();
    }
    assert_eq!(costs[0], costs[1]);
    let total: u64 = costs[0].iter().map(|(_, count)| count).sum();
    assert!(total <= 5, "{costs:?}");
}

#[tokio::test]
async fn a_cycle_of_one_key_is_three_calls_of_short_scripts() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    for round in 0..2 {
        let before = commands(&mut server).await;
        add(&store, &["k"]).await;
        let leased = store.lease(&request(1)).await.unwrap();
        let Grant { key, token, .. } = leased.grants[0].clone();
        let end = FinishRequest::new(Hold { key, token }, Finish::Succeed);
        assert_eq!(store.finish(&[end]).await.unwrap(), [Finished::Done]);
        let sent = since(&before, commands(&mut server).await);
        let count = |name| sent.iter().find(|(sent, _)| sent == name).map(|(_, n)| *n);
        // The first lease finds out what is due, and loads scripts.
        if round > 0 {
            assert_eq!(count("evalsha"), Some(3), "{sent:?}");
            let total: u64 = sent.iter().map(|(_, count)| count).sum();
            assert!(total - 3 <= 14, "{sent:?}");
        }
    }
}

#[tokio::test]
async fn a_small_queue_is_kept_in_the_encoding_of_a_large_one() {
    // With 120 keys in work, finding one in the encoding for small hashes and sets took
    // longer than the rest of the call.
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let store = builder.clone().open().await.unwrap();
    let mut server = server::connection(&url).await;
    add(&store, &["k"]).await;
    assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 1);
    for (part, expected) in [("s", "hashtable"), ("l", "skiplist")] {
        let mut command = redis::cmd("OBJECT");
        command.arg("ENCODING").arg(server::part(&builder, part));
        let encoding: String = command.query_async(&mut server).await.unwrap();
        assert_eq!(encoding, expected);
    }
    assert_eq!(store.stats().await.unwrap().processing, 1);
}

#[tokio::test]
async fn whoever_waits_sends_nothing_but_the_blocking_command() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).partitions(3).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    assert!(store.lease(&request(1)).await.unwrap().grants.is_empty());
    // Makes the connection.
    store.wait(Duration::from_millis(1)).await.unwrap();
    let before = commands(&mut server).await;
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
    let sent = since(&before, commands(&mut server).await);
    let allowed = |(name, count): &(String, u64)| name == "bzpopmin" && *count <= seconds;
    assert!(sent.iter().all(allowed), "in {seconds} s: {sent:?}");
}

#[tokio::test]
async fn whoever_waits_in_a_cluster_sends_one_blocking_command_for_each_partition() {
    let Some(nodes) = Nodes::start().await else { return };
    let store = server::fresh(&nodes.url()).partitions(8).open().await.unwrap();
    assert!(store.lease(&request(1)).await.unwrap().grants.is_empty());
    let mut sent = 0;
    let mut before = Vec::new();
    for address in nodes.addresses() {
        let mut node = server::connection(&format!("redis://{address}")).await;
        before.push((commands(&mut node).await, node));
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
        for (name, count) in since(&before, commands(&mut node).await) {
            // What a connection says first has a name of its own since Redis 7.
            let first = ["client", "client|setinfo"].contains(&name.as_str());
            assert!(first || name == "bzpopmin", "{name}");
            sent += if name == "bzpopmin" { count } else { 0 };
        }
    }
    let seconds = began.elapsed().as_secs() + 1;
    // Valkey does not count a command whose time ran out.
    assert!((sent >= 8 || sent == 0) && sent <= 8 + seconds, "in {seconds} s: {sent}");
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_told_again() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).partitions(2).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let names: Vec<_> = (0..1200).map(|n| format!("k{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for _ in 0..2 {
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server).await.unwrap();
        let receipts = add(&store, &names).await;
        assert_eq!(receipts.len(), names.len());
        let stats = store.stats().await.unwrap();
        assert_eq!(stats.ready + stats.dirty, 1200);
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server).await.unwrap();
        assert_eq!(store.lease(&request(1)).await.unwrap().grants.len(), 1);
        store.expire(None).await.unwrap();
        store.remove(&server::keys(&names)).await.unwrap();
    }
}
