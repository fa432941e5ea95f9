//! Users with the least permissions, as the crate documents them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue::Finish;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{
    Add, Error, ErrorKind, FinishRequest, Owner, Phase, RepliesExt, SharedQueue, Store,
    When,
};

use crate::support::server::TestServer;
use crate::support::{self, add, adds, key, keys, lease, request};

/// Returns the rules of a user in the documentation of the crate.
fn documented_rules(user: &str) -> Vec<String> {
    let docs = include_str!("../../src/lib.rs");
    let start = format!("//! ACL SETUSER {user} ");
    let lines = docs.lines().skip_while(|line| !line.starts_with(&start));
    let mut rules = Vec::new();
    for line in lines {
        let text = line.trim_start_matches("//!").trim();
        let (text, continues) =
            text.strip_suffix('\\').map_or((text, false), |text| (text, true));
        rules.extend(text.split_whitespace().map(str::to_owned));
        if !continues {
            break;
        }
    }
    assert_eq!(&rules[..3], ["ACL", "SETUSER", user], "it is documented");
    rules
}

/// A server with the documented users, and the queue `mail`.
async fn server() -> Option<TestServer> {
    let own = TestServer::start().await?;
    for user in ["producer", "worker", "reader"] {
        let rules = documented_rules(user);
        own.command(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    Some(own)
}

fn queue_of(own: &TestServer, user: &str) -> RedisStoreBuilder {
    let url = own.url.replacen("redis://", &format!("redis://{user}:secret@"), 1);
    RedisStore::builder(url).queue("mail")
}

#[track_caller]
fn assert_denied<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_worker_can_do_everything_with_its_queue() {
    let Some(own) = server().await else { return };
    let store = queue_of(&own, "worker").partitions(2).open().await.unwrap();
    let queue = SharedQueue::<String, _>::new(store.clone());
    queue.add("a".to_owned()).await.unwrap();
    let first = queue.get().await.unwrap().unwrap();
    first.retry().await.unwrap();
    queue.get().await.unwrap().unwrap().succeed().await.unwrap();
    let names = support::names(1500);
    let names = support::select(&names, |_| true);
    add(&store, &names).await;
    store.remove(&keys(&names[..1400])).all().await.unwrap();
    let held = lease(&store, 5).await;
    let dead = FinishRequest::new(held[0].clone(), Finish::GiveUp);
    store.finish(&[dead]).all().await.unwrap();
    store
        .extend(&Owner::new("worker"), &held, Duration::from_secs(9))
        .all()
        .await
        .unwrap();
    store.revive(&requeue_store::Which::All).await.unwrap();
    store.expire(None).await.unwrap();
    store.pause().await.unwrap();
    store.resume().await.unwrap();
    store.workers().await.unwrap();
    store.failing(9).await.unwrap();
    store.reclaim(&Owner::new("worker"), &[]).await.unwrap();
    store.wait(Duration::from_millis(1)).await.unwrap();
    let other = queue_of(&own, "worker").queue("other").open().await;
    assert_denied(other);
}

#[tokio::test]
async fn a_producer_can_add_and_not_lease() {
    let Some(own) = server().await else { return };
    let store = queue_of(&own, "producer").open().await.unwrap();
    add(&store, &["a"]).await;
    add(&store, &["a", "b"]).await;
    let later = When::After(Duration::from_secs(60));
    store.add(&[Add::new(key("c"), later)]).all().await.unwrap();
    store.remove(&keys(&["b"])).all().await.unwrap();
    let looks = store.look(&keys(&["a"])).all().await.unwrap();
    assert_eq!(looks[0].phase, Phase::Ready);
    assert_denied(store.lease(&request(1)).await);
    assert_denied(store.lease(&request(5)).await);
}

/// Looking moved due keys, so that a user had to be able to write.
#[tokio::test]
async fn a_reader_can_look_and_not_change_anything() {
    let Some(own) = server().await else { return };
    let missing = queue_of(&own, "reader").must_exist().open().await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
    let worker = queue_of(&own, "worker").open().await.unwrap();
    add(&worker, &["a", "b"]).await;
    assert_eq!(lease(&worker, 1).await.len(), 1);
    let soon = |name| Add::new(key(name), When::After(Duration::from_micros(1)));
    worker.add(&[soon("a"), soon("b"), soon("c")]).all().await.unwrap();
    let changes = changes(&own).await;
    let store = queue_of(&own, "reader").must_exist().open().await.unwrap();
    for _ in 0..2 {
        let stats = store.stats().await.unwrap();
        let counts = (stats.ready, stats.delayed, stats.processing, stats.dirty);
        assert_eq!(counts, (2, 0, 1, 1));
        let looks = store.look(&keys(&["a", "b", "c"])).all().await.unwrap();
        assert!(looks.iter().all(|look| look.delayed.is_none()), "{looks:?}");
        assert!(matches!(looks[0].phase, Phase::Processing { dirty: true, .. }));
        assert_eq!((&looks[1].phase, &looks[2].phase), (&Phase::Ready, &Phase::Ready));
        assert_eq!(store.workers().await.unwrap().len(), 1);
        store.dead(9).await.unwrap();
        store.failing(9).await.unwrap();
    }
    assert_denied(store.add(&adds(&["d"])).all().await);
    assert_denied(store.lease(&request(1)).await);
    assert_denied(store.pause().await);
    assert_eq!(self::changes(&own).await, changes, "nothing was written");
    let stats = worker.stats().await.unwrap();
    assert_eq!((stats.ready, stats.dirty), (2, 1), "the same as for the reader");
}

/// Returns how often the data of a server has changed.
async fn changes(own: &TestServer) -> String {
    let info = own.info("persistence").await;
    let field = "rdb_changes_since_last_save:";
    info.lines().find_map(|line| line.strip_prefix(field)).unwrap().to_owned()
}

/// Programs that only look, such as `requeue status`, wrote when they opened a queue.
#[tokio::test]
async fn opening_an_existing_queue_writes_nothing() {
    let Some(own) = TestServer::start().await else { return };
    let builder = support::new_queue(&own.url).partitions(3);
    builder.clone().open().await.unwrap();
    let before = changes(&own).await;
    builder.clone().must_exist().open().await.unwrap().stats().await.unwrap();
    assert_eq!(changes(&own).await, before);
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_reported() {
    let Some(own) = TestServer::start().await else { return };
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let builder = support::new_queue(&own.url).on_warning({
        let warnings = Arc::clone(&warnings);
        move |text| warnings.lock().unwrap().push(text.to_owned())
    });
    builder.clone().open().await.unwrap();
    assert!(warnings.lock().unwrap().is_empty(), "the default is noeviction");
    own.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    builder.open().await.unwrap();
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("allkeys-lru"), "{warnings:?}");
    assert!(warnings[0].contains("noeviction"), "{warnings:?}");
}
