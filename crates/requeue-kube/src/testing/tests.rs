//! The fake server as kube's own client sees it.

use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::*;

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn api(cluster: &FakeCluster) -> Api<ConfigMap> {
    Api::default_namespaced(cluster.client())
}

fn code<T: Debug>(result: Result<T, kube::Error>) -> u16 {
    let error = result.expect_err("the request is refused");
    let kube::Error::Api(status) = error else { panic!("not a status: {error}") };
    status.code
}

fn names(event: Event<ConfigMap>) -> String {
    match event {
        Event::Init => "init".into(),
        Event::InitApply(object) => format!("init {}", object.name_any()),
        Event::InitDone => "done".into(),
        Event::Apply(object) => format!("apply {}", object.name_any()),
        Event::Delete(object) => format!("delete {}", object.name_any()),
    }
}

#[tokio::test]
async fn objects_are_written_with_optimistic_locking() {
    let cluster = FakeCluster::new();
    let api = api(&cluster);
    let mut first = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    first.data = Some([("k".to_owned(), "v".to_owned())].into());
    let second = api.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_ne!(second.resource_version(), first.resource_version());
    assert_eq!(code(api.replace("a", &PostParams::default(), &first).await), 409);
    assert_eq!(code(api.create(&PostParams::default(), &first).await), 409);
    assert_eq!(code(api.get("b").await), 404);
    let patch = json!({"data": {"k": null, "l": "w"}});
    let merged = api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await;
    assert_eq!(merged.unwrap().data, Some([("l".to_owned(), "w".to_owned())].into()));
    let deleted = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(deleted.is_left() || deleted.is_right());
    assert_eq!(cluster.get::<ConfigMap>("default", "a"), None);
}

#[tokio::test]
async fn lists_come_in_pages_of_one_revision() {
    let cluster = FakeCluster::new();
    for index in 0..5 {
        cluster.put(&config_map(&format!("m{index}")));
    }
    let api = api(&cluster);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    cluster.put(&config_map("late"));
    let token = first.metadata.continue_.clone().unwrap();
    let second =
        api.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    assert_eq!((first.items.len(), second.items.len()), (2, 3));
    assert_eq!(first.metadata.resource_version, second.metadata.resource_version);
    let again = api.list(&ListParams::default().continue_token(&token)).await;
    assert_eq!(code(again), 410);
}

#[tokio::test]
async fn watcher_follows_changes_and_resumes() {
    for streaming in [false, true] {
        let cluster = FakeCluster::new();
        cluster.put(&config_map("a"));
        let config = if streaming {
            Config::default().streaming_lists()
        } else {
            Config::default()
        };
        let mut events = pin!(watcher(api(&cluster), config).map_ok(names));
        for expected in ["init", "init a", "done"] {
            assert_eq!(events.next().await.unwrap().unwrap(), expected);
        }
        cluster.put(&config_map("b"));
        assert_eq!(events.next().await.unwrap().unwrap(), "apply b");
        cluster.close_watches();
        cluster.remove::<ConfigMap>("default", "a");
        assert_eq!(events.next().await.unwrap().unwrap(), "delete a");
        cluster.expire_watches();
        cluster.put(&config_map("c"));
        assert!(events.next().await.unwrap().is_err(), "410");
        for expected in ["init", "init b", "init c", "done"] {
            assert_eq!(events.next().await.unwrap().unwrap(), expected);
        }
        cluster.put(&config_map("d"));
        assert_eq!(events.next().await.unwrap().unwrap(), "apply d");
        cluster.drop_connections();
        assert!(events.next().await.unwrap().is_err(), "reset");
        cluster.put(&config_map("e"));
        assert_eq!(events.next().await.unwrap().unwrap(), "apply e");
    }
}

/// Follows a watch in a task, so that it goes on while the test does other things.
fn follow(cluster: &FakeCluster) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    let mut events = Box::pin(watcher(api(cluster), Config::default()).map_ok(names));
    tokio::spawn(async move {
        while let Some(Ok(event)) = events.next().await {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bookmark_moves_a_quiet_watch_forward() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a"));
    let mut events = follow(&cluster);
    for expected in ["init", "init a", "done"] {
        assert_eq!(events.recv().await.unwrap(), expected);
    }
    settle().await;
    cluster.put_value("", "secrets", json!({"metadata": {"name": "other"}}));
    cluster.send_bookmarks();
    settle().await;
    assert!(events.try_recv().is_err(), "a bookmark is not an event");
    // A real server compacts its history; only the bookmark makes the version recent enough.
    cluster.close_watches();
    cluster.put(&config_map("b"));
    assert_eq!(events.recv().await.unwrap(), "apply b");
    assert_eq!(cluster.count(Verb::List, "configmaps"), 1);
}

#[tokio::test]
async fn selectors_add_and_delete_objects() {
    let cluster = FakeCluster::new();
    let config = Config::default().labels("app=x");
    let mut events = pin!(watcher(api(&cluster), config).map_ok(names));
    for expected in ["init", "done"] {
        assert_eq!(events.next().await.unwrap().unwrap(), expected);
    }
    let mut labelled = config_map("a");
    labelled.labels_mut().insert("app".into(), "x".into());
    cluster.put(&config_map("a"));
    cluster.put(&labelled);
    assert_eq!(events.next().await.unwrap().unwrap(), "apply a");
    cluster.put(&config_map("a"));
    assert_eq!(events.next().await.unwrap().unwrap(), "delete a");
}

#[tokio::test]
async fn metadata_is_served_alone() {
    let cluster = FakeCluster::new();
    let mut map = config_map("a");
    map.data = Some([("k".to_owned(), "v".to_owned())].into());
    cluster.put(&map);
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::all(cluster.client());
    let mut events = pin!(watcher(api, Config::default()));
    assert!(matches!(events.next().await, Some(Ok(Event::Init))));
    let Some(Ok(Event::InitApply(object))) = events.next().await else {
        panic!("no object")
    };
    assert_eq!(object.name_any(), "a");
}

#[tokio::test(start_paused = true)]
async fn faults_delay_hang_and_break_requests() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a"));
    let api = api(&cluster);
    cluster.inject(Fault::status(403).on(Verb::Get).of("configmaps").times(1));
    cluster.inject(Fault::delay(Duration::from_secs(5)).named("a").times(1));
    cluster.inject(Fault::hang().on(Verb::Get).times(1));
    cluster.inject(Fault::reset().on(Verb::List));
    assert_eq!(code(api.get("a").await), 403);
    let second = Duration::from_secs(1);
    let mut delayed = pin!(api.get("a"));
    assert!(timeout(second, &mut delayed).await.is_err());
    assert!(timeout(5 * second, &mut delayed).await.unwrap().is_ok());
    assert!(timeout(Duration::from_secs(60), api.get("a")).await.is_err());
    assert!(api.list(&ListParams::default()).await.is_err());
    cluster.clear_faults();
    assert!(api.list(&ListParams::default()).await.is_ok());
    cluster.go_down();
    assert!(api.get("a").await.is_err());
    cluster.come_up();
    assert!(api.get("a").await.is_ok());
}

#[tokio::test]
async fn held_events_arrive_later() {
    let cluster = FakeCluster::new();
    let mut events = follow(&cluster);
    for expected in ["init", "done"] {
        assert_eq!(events.recv().await.unwrap(), expected);
    }
    cluster.hold_events("configmaps");
    cluster.put(&config_map("a"));
    assert!(api(&cluster).get("a").await.is_ok());
    settle().await;
    assert!(events.try_recv().is_err());
    cluster.release_events("configmaps");
    assert_eq!(events.recv().await.unwrap(), "apply a");
}

#[tokio::test]
async fn cluster_scoped_objects_have_no_namespace() {
    let cluster = FakeCluster::new();
    let api: Api<Namespace> = Api::all(cluster.client());
    let metadata = ObjectMeta { name: Some("team".into()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let created = api.create(&PostParams::default(), &namespace).await.unwrap();
    assert_eq!(created.namespace(), None);
    assert!(cluster.get::<Namespace>("", "team").is_some());
}
