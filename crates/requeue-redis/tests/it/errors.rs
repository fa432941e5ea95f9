//! The kind and class of error replies, from real servers.

use std::path::PathBuf;
use std::time::Duration;

use requeue::Finish;
use requeue_store::{
    Class, Error, ErrorKind, FinishRequest, Finished, Owner, RepliesExt, SharedQueue,
    Store,
};

use crate::support::cluster::TestCluster;
use crate::support::server::TestServer;
use crate::support::{
    add, adds, connect, error_text, lease, names, new_queue, request, select,
};

const MINUTE: Duration = Duration::from_secs(60);

#[track_caller]
fn assert_is(error: &Error, kind: ErrorKind, class: Class) {
    assert_eq!((error.kind(), error.class()), (kind, class), "{}", error_text(error));
}

/// A server whose memory is full from now on.
async fn fill_memory(server: &TestServer) {
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
}

/// Heartbeats were refused, too: all leases expired while memory was full.
#[tokio::test]
async fn full_memory_refuses_adds_and_nothing_else() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    add(&store, &["a", "b", "c", "d"]).await;
    let held = lease(&store, 2).await;
    fill_memory(&own).await;
    for names in [&["e"][..], &["e", "f"]] {
        let error = store.add(&adds(names)).all().await.unwrap_err();
        assert_is(&error, ErrorKind::Full, Class::RetryHere);
    }
    let owner = Owner::new("worker");
    store.heartbeat(&owner).await.unwrap();
    assert_eq!(store.extend(&owner, &held, MINUTE).all().await.unwrap(), [true; 2]);
    assert_eq!(lease(&store, 1).await.len(), 1);
    assert_eq!(lease(&store, 5).await.len(), 1);
    assert!(lease(&store, 5).await.is_empty());
    let [first, second] = <[_; 2]>::try_from(held).unwrap();
    let retried = FinishRequest::new(first, Finish::Retry).with_error("no memory");
    let done = FinishRequest::new(second, Finish::Succeed);
    let finished = store.finish(&[retried, done]).all().await.unwrap();
    assert!(matches!(finished[..], [Finished::Delayed(_), Finished::Done]));
    store.expire(None).await.unwrap();
    assert_eq!(store.stats().await.unwrap().processing, 2);
}

/// The error closed the handle of a queue for good.
#[tokio::test]
async fn a_queue_survives_full_memory() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let queue = SharedQueue::<String, _>::builder(store).patience(MINUTE).build();
    queue.add("a".to_owned()).await.unwrap();
    fill_memory(&own).await;
    let adding = tokio::spawn({
        let queue = queue.clone();
        async move { queue.add("b".to_owned()).await }
    });
    let mut server = connect(&own.url).await;
    loop {
        let errors: String =
            redis::cmd("INFO").arg("errorstats").query_async(&mut server).await.unwrap();
        if errors.contains("errorstat_") {
            break;
        }
    }
    own.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    adding.await.unwrap().unwrap();
    for _ in 0..2 {
        queue.get().await.unwrap().unwrap().succeed().await.unwrap();
    }
}

fn temporary_folder(name: &str) -> PathBuf {
    let folder = format!("requeue-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_full() {
    let folder = temporary_folder("disk");
    let path = folder.to_str().unwrap();
    let Some(own) = TestServer::start_with(&["--dir", path, "--save", "3600 1"]).await
    else {
        return;
    };
    if own.info("server").await.contains("redis_version:6.") {
        return; // it ignores a second `save`
    }
    let store = new_queue(&own.url).open().await.unwrap();
    add(&store, &["a"]).await;
    std::fs::remove_dir_all(&folder).unwrap();
    own.command(&["BGSAVE"]).await;
    while !own.info("persistence").await.contains("last_bgsave_status:err") {}
    let error = store.add(&adds(&["b"])).all().await.unwrap_err();
    assert_is(&error, ErrorKind::Full, Class::RetryHere);
    own.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).await;
    add(&store, &["b"]).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_unavailable() {
    let Some(probe) = TestServer::start().await else { return };
    if probe.info("server").await.contains("redis_version:6.") {
        return; // it answers too rarely while it loads little data, and has no setting for it
    }
    let folder = temporary_folder("loading");
    let path = folder.to_str().unwrap();
    let mut args = vec!["--dir", path, "--appendonly", "yes"];
    args.extend(["--key-load-delay", "2000", "--loading-process-events-interval-bytes"]);
    args.push("1024");
    let Some(mut own) = TestServer::start_with(&args).await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    let names = names(2000);
    for name in &names {
        add(&store, &[name]).await;
    }
    own.stop();
    own.respawn();
    let error = loop {
        match store.stats().await {
            Err(error) if error_text(&error).contains("not ready") => break error,
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(_) => panic!("the data was loaded before the first call"),
        }
    };
    assert_is(&error, ErrorKind::Unavailable, Class::RetryElsewhere);
    while let Err(error) = store.stats().await {
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(store.stats().await.unwrap().ready, 2000);
    own.stop();
    std::fs::remove_dir_all(&folder).unwrap();
    own.respawn();
}

#[tokio::test]
async fn a_server_with_a_long_script_is_busy() {
    let Some(own) = TestServer::start_with(&["--lua-time-limit", "1"]).await else {
        return;
    };
    let store = new_queue(&own.url).open().await.unwrap();
    let looping = tokio::spawn({
        let client = redis::Client::open(own.url.as_str()).unwrap();
        async move {
            let mut server = client.get_multiplexed_async_connection().await.unwrap();
            let mut endless = redis::cmd("EVAL");
            endless.arg("while true do end").arg(0);
            endless.exec_async(&mut server).await
        }
    });
    let error = loop {
        if let Err(error) = store.add(&adds(&["a"])).all().await {
            break error;
        }
    };
    assert_is(&error, ErrorKind::Busy, Class::RetryHere);
    own.command(&["SCRIPT", "KILL"]).await;
    looping.await.unwrap().unwrap_err();
    add(&store, &["a"]).await;
}

#[tokio::test]
async fn a_rotated_password_is_denied_until_it_is_restored() {
    let Some(own) = TestServer::start().await else { return };
    own.command(&["ACL", "SETUSER", "worker", "on", ">one", "~*", "+@all"]).await;
    let url = own.url.replacen("redis://", "redis://worker:one@", 1);
    let store = new_queue(&url).open().await.unwrap();
    add(&store, &["a"]).await;
    own.command(&["ACL", "SETUSER", "worker", "resetpass", ">two"]).await;
    own.command(&["CLIENT", "KILL", "USER", "worker"]).await;
    let error = loop {
        let error = store.add(&adds(&["b"])).all().await.unwrap_err();
        if error.kind() != ErrorKind::Unknown {
            break error;
        }
    };
    assert_is(&error, ErrorKind::Denied, Class::RetryElsewhere);
    assert!(!error_text(&error).contains("one@"), "{}", error_text(&error));
    let opened = new_queue(&url).open().await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Denied);
    own.command(&["ACL", "SETUSER", "worker", ">one"]).await;
    add(&store, &["b"]).await;
}

/// The permissions of a user can change while a store is open.
#[tokio::test]
async fn a_permission_that_is_taken_and_given_back_ends_nothing() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    add(&store, &["a"]).await;
    own.command(&["ACL", "SETUSER", "default", "-evalsha"]).await;
    let error = store.add(&adds(&["b"])).all().await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, Class::RetryElsewhere);
    assert!(error.to_string().contains("lacks a permission"), "{error}");
    own.command(&["ACL", "SETUSER", "default", "+@all"]).await;
    add(&store, &["b"]).await;
}

#[tokio::test]
async fn a_server_without_its_replicas_or_primary_is_unavailable() {
    let Some(own) = TestServer::start().await else { return };
    let store = new_queue(&own.url).open().await.unwrap();
    own.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = store.add(&adds(&["a"])).all().await.unwrap_err();
    assert_is(&error, ErrorKind::Unavailable, Class::RetryElsewhere);
    own.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    own.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    own.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = store.stats().await.unwrap_err();
    assert!(error.to_string().contains("not ready"), "{}", error_text(&error));
    assert_is(&error, ErrorKind::Unavailable, Class::RetryElsewhere);
    own.promote().await;
    add(&store, &["a"]).await;
}

#[tokio::test]
async fn a_cluster_with_too_few_nodes_is_unavailable() {
    let Some(cluster) = TestCluster::start().await else { return };
    let store = new_queue(&cluster.url()).partitions(8).open().await.unwrap();
    let names = names(64);
    let names = select(&names, |_| true);
    cluster.stop(0).await;
    // The other nodes notice after two seconds that slots are missing.
    loop {
        let results = store.add(&adds(&names)).await;
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(Error::is_transient), "{errors:?}");
        if errors.iter().any(|error| error_text(error).contains("not ready")) {
            let down = |error: &&Error| error_text(error).contains("not ready");
            let error = errors.iter().find(down).unwrap();
            assert_is(error, ErrorKind::Unavailable, Class::RetryElsewhere);
            return;
        }
    }
}

#[tokio::test]
async fn data_of_another_type_is_another_version() {
    let Some(own) = TestServer::start().await else { return };
    let builder = new_queue(&own.url);
    let store = builder.clone().open().await.unwrap();
    for end in ["k", "m", "w", "l", "r"] {
        let name = crate::support::part(&builder, end);
        own.command(&["DEL", &name]).await;
        own.command(&["SET", &name, "6"]).await;
    }
    let calls = [
        store.add(&adds(&["a"])).all().await.map(drop),
        store.add(&adds(&["a", "b"])).all().await.map(drop),
        store.lease(&request(1)).await.map(drop),
        store.lease(&request(5)).await.map(drop),
        store.heartbeat(&Owner::new("worker")).await,
        store.stats().await.map(drop),
        store.wait(MINUTE).await,
    ];
    for call in calls {
        let error = call.unwrap_err();
        assert_is(&error, ErrorKind::Version, Class::GiveUp);
    }
    let error = builder.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version, "{error}");
    assert!(error.to_string().contains("version 6"), "{error}");
}
