//! A server that stops, refuses, or does not answer.

use std::time::Duration;

use requeue_store::{ErrorKind, Store};

use crate::server::{self, Own, add, adds, request};

#[tokio::test]
async fn a_server_that_was_restarted_is_found_again() {
    let Some(mut own) = Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    add(&store, &["a"]).await;
    own.stop();
    let error = store.add(&adds(&["b"])).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = store.add(&adds(&["b"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    own.restart().await;
    add(&store, &["c"]).await;
    let leased = store.lease(&request(5)).await.unwrap();
    assert_eq!(leased.grants.len(), 1);
}

#[tokio::test]
async fn a_waiter_is_told_that_the_server_is_gone() {
    let Some(mut own) = Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(Duration::from_secs(60)).await }
    });
    own.until_somebody_waits().await;
    own.stop();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    own.restart().await;
    // The first call may find the broken connection.
    while store.add(&adds(&["a"])).await.is_err() {}
    store.wait(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_the_outcome_unknown() {
    let Some(own) = Own::start().await else { return };
    let store = server::fresh(&own.url).timeout(Duration::from_millis(300));
    let store = store.open().await.unwrap();
    own.signal("STOP");
    let error = store.add(&adds(&["a"])).await.unwrap_err();
    own.signal("CONT");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}

#[tokio::test]
async fn a_replica_is_unavailable_until_it_may_be_written_to() {
    let Some(own) = Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let mut server = server::connection(&own.url).await;
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1).exec_async(&mut server).await.unwrap();
    let error = store.add(&adds(&["a"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg("NO").arg("ONE").exec_async(&mut server).await.unwrap();
    add(&store, &["a"]).await;
}

/// A failover ended every wait on the old server for good: what it says then was not known.
#[tokio::test]
async fn who_waits_on_a_server_that_becomes_a_replica_is_to_try_again() {
    let Some(own) = Own::start().await else { return };
    let store = server::fresh(&own.url).open().await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(Duration::from_secs(60)).await }
    });
    own.until_somebody_waits().await;
    let mut server = server::connection(&own.url).await;
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1).exec_async(&mut server).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_user_without_rights_is_denied() {
    let Some(own) = Own::start().await else { return };
    let mut server = server::connection(&own.url).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("reader").arg("on").arg(">pw").arg("~*").arg("+@read");
    user.exec_async(&mut server).await.unwrap();
    let url = own.url.replacen("redis://", "redis://reader:pw@", 1);
    let error = server::fresh(&url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_waiter_that_gives_up_takes_no_mark_with_it() {
    let Some(url) = server::url() else { return };
    let builder = server::fresh(&url);
    let one = builder.clone().open().await.unwrap();
    let other = builder.open().await.unwrap();
    // Its blocking command goes on after it is gone.
    one.wait(Duration::from_millis(1)).await.unwrap();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.wait(Duration::from_secs(60)).await }
    });
    add(&one, &["a"]).await;
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(other.lease(&request(1)).await.unwrap().grants.len(), 1);
}
