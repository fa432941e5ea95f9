//! Shared stores and indexes.

use super::*;
use crate::{Informer, feed};

fn informer(cluster: &FakeCluster) -> Informer<ConfigMap> {
    Informer::new(Api::all(cluster.client()), watcher::Config::default())
        .clock(TokioClock::new())
}

/// kube-runtime's shared streams know no late subscriber and dispatch no deletes.
#[tokio::test(start_paused = true)]
async fn controllers_share_one_watch_and_late_ones_see_everything() {
    let cluster = FakeCluster::new();
    for name in ["a", "b"] {
        cluster.put(&config_map(name, "1"));
    }
    let maps = informer(&cluster);
    let shared = |informer: &Informer<ConfigMap>| {
        Controller::for_informer(informer).clock(TokioClock::new())
    };
    let (_first, mut first) = start(shared(&maps));
    assert_eq!(first.take(2).await.len(), 2);
    let (late, mut second) = start(shared(&maps));
    assert_eq!(second.take(2).await.len(), 2);
    cluster.remove::<ConfigMap>("default", "a");
    assert_eq!(first.next().await.value, None);
    assert_eq!(second.next().await.value, None);
    assert_eq!(cluster.count(Verb::List, "configmaps"), 1);
    assert_eq!(cluster.count(Verb::Watch, "configmaps"), 1);
    within(late.stop(Duration::from_secs(1))).await;
    cluster.put(&config_map("b", "2"));
    assert_eq!(first.next().await.value.as_deref(), Some("2"));
    assert_eq!(second.rest().await, []);
}

/// In kube-runtime the slowest subscriber blocks all of them.
#[tokio::test(start_paused = true)]
async fn slow_subscriber_blocks_no_other() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "0"));
    let maps = informer(&cluster);
    let hang = |_: Request<ConfigMap>, _: Arc<()>| {
        std::future::pending::<Result<Action, String>>()
    };
    let slow = Controller::for_informer(&maps)
        .start(hang, Arc::new(()))
        .expect("there is a runtime");
    let (_fast, mut calls) =
        start(Controller::for_informer(&maps).clock(TokioClock::new()));
    calls.next().await;
    for round in 1..=100 {
        cluster.put(&config_map("a", &round.to_string()));
        assert_eq!(calls.next().await.value, Some(round.to_string()));
    }
    assert_eq!(slow.queue().counts().processing, 1);
}

#[tokio::test(start_paused = true)]
async fn shared_children_reconcile_their_owners() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    cluster.put(&config_map("other", "1"));
    let children = Informer::new(secrets(&cluster), watcher::Config::default());
    let mapped = |secret: &Secret| {
        let name = secret.annotations().get("map").cloned();
        name.map(|name| ObjectRef::new(&name).within("default"))
    };
    let controller =
        controller(&cluster).owns_informer(&children).watches_informer(&children, mapped);
    let (_handle, mut calls) = start(controller);
    calls.take(2).await;
    let mut child = secret("default", "child", owned_by("v1", "ConfigMap", "owner"));
    cluster.put(&child);
    let seen = calls.next().await;
    assert_eq!((seen.name.as_str(), seen.reasons), ("owner", Reasons::OWNED));
    child.metadata.owner_references = None;
    child.annotations_mut().insert("map".into(), "other".into());
    cluster.put(&child);
    let both = calls.take(2).await;
    assert_eq!(
        both.keys().collect::<Vec<_>>(),
        ["other", "owner"],
        "the old owner as well"
    );
    cluster.remove::<Secret>("default", "child");
    assert_eq!(calls.next().await.name, "other");
}

#[tokio::test(start_paused = true)]
async fn index_follows_each_event_and_relist() {
    let cluster = FakeCluster::new();
    for (name, value) in [("a", "x"), ("b", "x"), ("c", "y")] {
        cluster.put(&config_map(name, value));
    }
    let maps = informer(&cluster);
    let by_value = maps.index(|map: &ConfigMap| vec![value_of(map)]);
    maps.start();
    within(maps.synced()).await;
    let names = |value: &str| {
        let mut names: Vec<_> =
            by_value.get(value).iter().map(|map| map.name_any()).collect();
        names.sort();
        names
    };
    assert_eq!(
        (names("x"), names("y")),
        (vec!["a".into(), "b".into()], vec!["c".into()])
    );
    settle().await;
    cluster.put(&config_map("a", "y"));
    cluster.remove::<ConfigMap>("default", "b");
    settle().await;
    assert_eq!((names("x"), names("y")), (vec![], vec!["a".into(), "c".into()]));
    assert_eq!(by_value.len(), 1, "empty values are forgotten");
    let late = maps.index(|map: &ConfigMap| vec![map.name_any().len()]);
    assert_eq!(late.get(&1).len(), 2, "an index may come late");
    cluster.go_down();
    cluster.remove::<ConfigMap>("default", "c");
    cluster.put(&config_map("d", "z"));
    cluster.expire_watches();
    cluster.come_up();
    within(async {
        while maps.status().lists < 2 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    })
    .await;
    let expected = (vec!["a".to_owned()], vec!["d".to_owned()]);
    assert_eq!((names("y"), names("z")), expected);
}

/// An index is updated before the key is added, so a reconciler can rely on it.
#[tokio::test(start_paused = true)]
async fn reconciler_finds_the_object_in_the_index() {
    let cluster = FakeCluster::new();
    let controller = controller(&cluster);
    let by_value = controller.index(|map: &ConfigMap| vec![value_of(map)]);
    let (sender, mut found) = unbounded_channel();
    let reconcile = move |request: Request<ConfigMap>, _: Arc<()>| {
        let value = request.object.as_deref().map(value_of).unwrap_or_default();
        sender.send(by_value.get(&value).len()).unwrap();
        async { Ok::<_, String>(Action::await_change()) }
    };
    let _handle = controller.start(reconcile, Arc::new(())).expect("there is a runtime");
    for value in ["1", "2", "3"] {
        cluster.put(&config_map("a", value));
        assert_eq!(within(found.recv()).await, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn informer_ends_with_its_last_handle() {
    let cluster = FakeCluster::new();
    let maps = informer(&cluster);
    maps.start();
    within(maps.synced()).await;
    settle().await;
    let store = maps.store();
    drop(maps);
    settle().await;
    cluster.put(&config_map("a", "1"));
    settle().await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn feed_serves_other_keys_and_several_clusters() {
    let queue = requeue::Queue::<(usize, String)>::new();
    let clusters = [FakeCluster::new(), FakeCluster::new()];
    for (index, cluster) in clusters.iter().enumerate() {
        cluster.put(&config_map("a", "1"));
        let api: Api<ConfigMap> = Api::all(cluster.client());
        let (_store, writer) = kube::runtime::reflector::store();
        let events = watcher(api, watcher::Config::default());
        feed(&queue, events, writer, (), move |seen| {
            vec![(index, seen.object.name_any())]
        });
    }
    let mut keys = Vec::new();
    for _ in 0..2 {
        let lease = within(queue.get()).await.expect("it is open");
        keys.push(lease.key().clone());
        lease.succeed();
    }
    keys.sort();
    assert_eq!(keys, [(0, "a".to_owned()), (1, "a".to_owned())]);
    clusters[1].remove::<ConfigMap>("default", "a");
    let lease = within(queue.get()).await.expect("it is open");
    assert_eq!(lease.key().0, 1);
    lease.succeed();
}

/// The mapper of one controller must not cost another one its events.
#[tokio::test(start_paused = true)]
async fn panic_of_one_subscriber_does_not_affect_the_others() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let children = Informer::new(secrets(&cluster), watcher::Config::default());
    let panics = |_: &Secret| -> Option<ObjectRef<ConfigMap>> { panic!("on purpose") };
    let (_first, mut first) =
        start(controller(&cluster).watches_informer(&children, panics));
    let maps = |_: &Secret| Some(ObjectRef::new("a").within("default"));
    let (_second, mut second) =
        start(controller(&cluster).watches_informer(&children, maps));
    first.next().await;
    second.next().await;
    settle().await;
    for round in 0..2 {
        cluster.put(&secret("default", &format!("s{round}"), None));
        assert_eq!(second.next().await.reasons, Reasons::MAPPED);
    }
    assert_eq!(first.rest().await, []);
}
