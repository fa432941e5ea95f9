//! Servers that stop, refuse calls or do not answer.

use std::time::Duration;

use requeue::Finish;
use requeue_redis::RedisStore;
use requeue_store::{EngineClock, ErrorKind, FinishRequest, Finished, RepliesExt, Store};

use crate::support::server::TestServer;
use crate::support::{self, add, adds, connect, lease, new_queue};

#[tokio::test]
async fn a_restarted_server_is_used_again() {
    let Some(mut own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    add(&store, &["a"]).await;
    own.stop();
    let error = store.add(&adds(&["b"])).all().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = store.add(&adds(&["b"])).all().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    own.restart().await;
    add(&store, &["c"]).await;
    assert_eq!(lease(&store, 5).await.len(), 1);
}

#[tokio::test]
async fn a_wait_fails_when_the_server_stops() {
    let Some(mut own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(Duration::from_secs(60)).await }
    });
    own.wait_until_blocked().await;
    own.stop();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    own.restart().await;
    // The first call may use the broken connection.
    while store.add(&adds(&["a"])).all().await.is_err() {}
    store.wait(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn a_call_without_an_answer_has_an_unknown_outcome() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).timeout(Duration::from_millis(300));
    let store = store.open().await.unwrap();
    own.signal("STOP");
    let error = store.add(&adds(&["a"])).all().await.unwrap_err();
    own.signal("CONT");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}

#[tokio::test]
async fn a_replica_is_read_only_until_it_is_promoted() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let mut server = connect(&own.url).await;
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1).exec_async(&mut server).await.unwrap();
    let error = store.add(&adds(&["a"])).all().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg("NO").arg("ONE").exec_async(&mut server).await.unwrap();
    add(&store, &["a"]).await;
}

/// The error that a server reports in this case was unknown, so a failover ended waits for good.
#[tokio::test]
async fn a_wait_on_a_server_that_becomes_a_replica_is_repeated() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(Duration::from_secs(60)).await }
    });
    own.wait_until_blocked().await;
    let mut server = connect(&own.url).await;
    let mut replicate = redis::cmd("REPLICAOF");
    replicate.arg("127.0.0.1").arg(1).exec_async(&mut server).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}

#[tokio::test]
async fn a_user_without_permissions_is_denied() {
    let Some(own) = TestServer::start().await else { return };
    let mut server = connect(&own.url).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("reader").arg("on").arg(">pw").arg("~*").arg("+@read");
    user.exec_async(&mut server).await.unwrap();
    let url = own.url.replacen("redis://", "redis://reader:pw@", 1);
    let error = new_queue(&url).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_waiter_that_times_out_keeps_no_marker() {
    let Some(url) = support::url() else { return };
    let builder = new_queue(&url);
    let one = builder.clone().open().await.unwrap();
    let other = builder.open().await.unwrap();
    // The blocking command continues after the wait.
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
    assert_eq!(lease(&other, 1).await.len(), 1);
}

/// The clock of the new server is an hour behind. The last token was replicated with the
/// last write, so tokens still increase.
#[tokio::test]
async fn tokens_increase_after_a_failover_to_a_slow_clock() {
    let Some(old) = TestServer::start().await else { return };
    let Some(new) = TestServer::start().await else { return };
    new.replicate(&old).await;
    let clock = EngineClock::new();
    let builder = new_queue(&old.url).clock(clock.clone());
    let store = builder.open().await.unwrap();
    let queue = store.describe().rsplit(' ').next().unwrap().to_owned();
    add(&store, &["a"]).await;
    let before = lease(&store, 1).await.remove(0);
    old.wait_for_replica().await;
    new.promote().await;
    clock.set_back(Duration::from_secs(3600));
    let store = RedisStore::builder(&new.url).queue(queue).clock(clock.clone());
    let store = store.open().await.unwrap();
    let release = FinishRequest::new(before.clone(), Finish::Release);
    store.finish(&[release]).all().await.unwrap();
    let after = lease(&store, 1).await.remove(0);
    assert!(after.token > before.token, "{after:?} after {before:?}");
    let stale = FinishRequest::new(before, Finish::Succeed);
    let finished = store.finish(&[stale]).all().await.unwrap();
    assert_eq!(finished, [Finished::LeaseLost]);
    let release = FinishRequest::new(after.clone(), Finish::Release);
    store.finish(&[release]).all().await.unwrap();
    assert!(lease(&store, 5).await[0].token > after.token);
}
