//! Waiting and leasing in one.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_redis::RedisStore;
use requeue_store::{LeaseRequest, SharedQueue, Store};

use crate::cost::{commands, since};
use crate::server::{self, add, request};

const LONG: Duration = Duration::from_secs(5);

/// Asks until so many clients of a server of this test's own are blocked.
async fn until_blocked(server: &mut MultiplexedConnection, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    loop {
        let mut command = redis::cmd("INFO");
        let info: String = command.arg("clients").query_async(server).await.unwrap();
        if info.contains(&line) {
            return;
        }
    }
}

fn waiting(
    store: &RedisStore,
    request: LeaseRequest,
) -> tokio::task::JoinHandle<requeue_store::Leased> {
    let store = store.clone();
    tokio::spawn(async move {
        store.wait_and_lease(&request, LONG).expect("one server can").await.unwrap()
    })
}

#[tokio::test]
async fn a_queue_that_waits_has_the_key_without_asking_again() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let queue = SharedQueue::<String, _>::new(store.clone());
    let mut server = server::connection(&own.url).await;
    // Loads the script of the add.
    add(&store, &["first"]).await;
    queue.get().await.unwrap().unwrap().succeed().await.unwrap();
    let getting = tokio::spawn(queue.get());
    until_blocked(&mut server, 1).await;
    let before = commands(&mut server).await;
    add(&store, &["second"]).await;
    let lease = getting.await.unwrap().unwrap().unwrap();
    assert_eq!(lease.key(), "second");
    let sent = since(&before, commands(&mut server).await);
    let scripts = sent.iter().find(|(name, _)| name == "evalsha");
    assert_eq!(scripts.map(|(_, count)| *count), Some(2), "{sent:?}");
}

#[tokio::test]
async fn a_key_that_comes_for_one_who_has_gone_is_released() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let leaving = waiting(&store, request(1));
    until_blocked(&mut server, 1).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    add(&store, &["a"]).await;
    let grant = loop {
        if let Some(grant) = store.lease(&request(1)).await.unwrap().grants.pop() {
            break grant;
        }
        store.wait(LONG).await.unwrap();
    };
    assert_eq!(grant.deliveries, 1, "a release takes its grant back");
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.ready, stats.processing), (0, 1));
}

#[tokio::test]
async fn a_mark_that_comes_with_a_script_that_the_server_forgot_is_not_lost() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let staying = waiting(&store, request(1));
    until_blocked(&mut server, 1).await;
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server).await.unwrap();
    add(&store, &["a", "b"]).await;
    assert_eq!(staying.await.unwrap().grants.len(), 1);
    // The other key wakes somebody, too.
    assert_eq!(waiting(&store, request(1)).await.unwrap().grants.len(), 1);
}

#[tokio::test]
async fn two_who_wait_have_a_key_each() {
    let Some(own) = server::Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let both = [waiting(&store, request(1)), waiting(&store, request(1))];
    until_blocked(&mut server, 2).await;
    add(&store, &["a", "b"]).await;
    let mut got = Vec::new();
    for one in both {
        got.extend(one.await.unwrap().grants.into_iter().map(|grant| grant.key));
    }
    got.sort();
    assert_eq!(got, server::keys(&["a", "b"]));
}

#[tokio::test]
async fn several_partitions_are_waited_for_and_asked_one_after_the_other() {
    let Some(url) = server::url() else { return };
    let store = server::fresh(&url).partitions(2).open().await.unwrap();
    assert!(store.wait_and_lease(&request(1), LONG).is_none());
}
