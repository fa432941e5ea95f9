//! Connections that hang, and servers that are replaced behind one address.

use std::future::Future;
use std::time::Duration;

use requeue_redis::RedisStore;
use requeue_store::{Class, ErrorKind, Owner, RepliesExt, SharedQueue, Store};

use crate::support::proxy::{Forward, Proxy};
use crate::support::server::TestServer;
use crate::support::{self, add, adds, connect, lease, new_queue, part};

/// How long a test waits for something that must happen.
const LONG: Duration = Duration::from_secs(30);

/// More than [`LONG`]: a call that reaches this timeout fails its test.
const TIMEOUT: Duration = Duration::from_secs(90);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it happens soon")
}

async fn open(proxy: &Proxy, timeout: Duration) -> RedisStore {
    new_queue(&proxy.url).timeout(timeout).open().await.unwrap()
}

/// The hung connection was used by the next call, which hung as well.
#[tokio::test]
async fn a_call_after_an_abandoned_one_uses_a_new_connection() {
    let Some(url) = support::url() else { return };
    let mut proxy = Proxy::start(&url).await;
    let store = open(&proxy, TIMEOUT).await;
    add(&store, &["a"]).await;
    let held = lease(&store, 1).await;
    proxy.set_for_open_connections(Forward::Nothing);
    let owner = Owner::new("worker");
    let hung = store.extend(&owner, &held, LONG);
    let abandoned = tokio::time::timeout(Duration::from_millis(200), hung).await;
    assert!(abandoned.is_err(), "the connection is hung");
    assert_eq!(soon(store.extend(&owner, &held, LONG).all()).await.unwrap(), [true]);
}

#[tokio::test]
async fn a_late_reply_is_not_taken_for_that_of_a_later_call() {
    let Some(url) = support::url() else { return };
    let mut proxy = Proxy::start(&url).await;
    let store = open(&proxy, Duration::from_millis(500)).await;
    add(&store, &["a", "b"]).await;
    proxy.set_for_open_connections(Forward::Requests);
    let error = store.add(&adds(&["c"])).all().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.ready, 3, "the add was executed");
    proxy.set_for_all(Forward::Everything);
    assert_eq!(lease(&store, 5).await.len(), 3);
}

/// Callers connected one after the other. With a server that does not answer, the last of
/// them waited for the timeouts of all.
#[tokio::test]
async fn callers_share_one_attempt_to_connect() {
    let Some(url) = support::url() else { return };
    let mut proxy = Proxy::start(&url).await;
    let store = open(&proxy, Duration::from_millis(700)).await;
    proxy.set_for_all(Forward::Nothing);
    let error = store.stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    let before = proxy.accepted();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.stats().await })
        })
        .collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(proxy.accepted() - before, 1);
    proxy.set_for_all(Forward::Everything);
    store.stats().await.unwrap();
}

/// A hung heartbeat lost every lease: the next one used the same connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_a_hung_connection() {
    let Some(url) = support::url() else { return };
    let mut proxy = Proxy::start(&url).await;
    let builder = new_queue(&proxy.url).timeout(TIMEOUT);
    let store = builder.clone().open().await.unwrap();
    let queue = SharedQueue::<String, _>::builder(store);
    let queue = queue.lease(Duration::from_secs(3)).build();
    queue.add("a".to_owned()).await.unwrap();
    let held = queue.get().await.unwrap().unwrap();
    let mut server = connect(&url).await;
    let mut deadline = redis::cmd("ZSCORE");
    deadline.arg(part(&builder, "l")).arg("a");
    let before: f64 = deadline.query_async(&mut server).await.unwrap();
    proxy.set_for_open_connections(Forward::Nothing);
    // A second after the first deadline, the key would have been delivered again.
    let extended = async {
        loop {
            let now: f64 = deadline.query_async(&mut server).await.unwrap();
            if now > before + 4e6 {
                return;
            }
        }
    };
    tokio::select! {
        () = soon(extended) => {}
        () = held.lost() => panic!("the lease was lost"),
    }
    held.succeed().await.unwrap();
}

/// The connection to the old primary still worked, so calls went to it until it was stopped.
#[tokio::test]
async fn a_failover_behind_one_address_is_followed() {
    let Some(old) = TestServer::start().await else { return };
    let Some(new) = TestServer::start().await else { return };
    let proxy = Proxy::start(&old.url).await;
    let store = open(&proxy, TIMEOUT).await;
    new.replicate(&old).await;
    add(&store, &["a"]).await;
    old.wait_for_replica().await;
    new.promote().await;
    old.replicate(&new).await;
    proxy.switch_to(&new.url);
    let error = store.add(&adds(&["b"])).all().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.class()),
        (ErrorKind::ReadOnly, Class::RetryElsewhere)
    );
    add(&store, &["b"]).await;
    assert_eq!(lease(&store, 5).await.len(), 2);
}
