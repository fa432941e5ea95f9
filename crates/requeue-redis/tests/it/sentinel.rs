//! Queues on a server behind sentinels.

use std::time::Duration;

use requeue_redis::RedisStore;
use requeue_store::{ErrorKind, SharedQueue, Store};

use crate::support::sentinel::TestSentinels;
use crate::support::{free_port, lease, new_queue};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinels_is_followed() {
    let Some(mut sentinels) = TestSentinels::start().await else { return };
    let store = new_queue(&sentinels.url()).open().await.unwrap();
    assert!(store.describe().starts_with("redis \"main\"/0 of the sentinels at "));
    let queue = SharedQueue::<String, _>::builder(store).patience(MINUTE).build();
    queue.add("before".to_owned()).await.unwrap();
    let first = queue.get().await.unwrap().unwrap();
    sentinels.servers[0].wait_for_replica().await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    sentinels.servers[0].stop();
    queue.add("after".to_owned()).await.unwrap();
    let second = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(second.key(), "after");
    assert!(second.token() > first.token());
    first.succeed().await.unwrap();
    second.succeed().await.unwrap();
    sentinels.servers[0].restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_databases_behind_sentinels_are_those_of_the_server() {
    let Some(sentinels) = TestSentinels::start().await else { return };
    for server in &sentinels.servers {
        server.command(&["ACL", "SETUSER", "worker", "on", ">pw", "~*", "+@all"]).await;
    }
    let url = sentinels.url();
    let url = url.replacen("redis+sentinel://", "redis+sentinel://worker:pw@", 1);
    let builder = new_queue(&(url.clone() + "?db=3"));
    let store = builder.clone().open().await.unwrap();
    crate::support::add(&store, &["a"]).await;
    assert_eq!(lease(&store, 5).await.len(), 1);
    let keys = sentinels.servers[0].info("keyspace").await;
    assert!(keys.contains("db3:") && !keys.contains("db0:"), "{keys}");
    let wrong = url.replacen(":pw@", ":wrong@", 1);
    let error = new_queue(&wrong).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let unknown = url.replacen("/main", "/unknown", 1);
    let error = new_queue(&unknown).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("unknown"), "{error}");
}

#[tokio::test]
async fn unreachable_sentinels_are_unavailable_and_named() {
    let port = free_port();
    let url = format!("redis+sentinel://:hunter2@127.0.0.1:{port}/main");
    let error = RedisStore::builder(url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}
