//! What happens after a watch was interrupted.

use super::*;

/// Lists in small pages, so that workers could run between them; and streaming lists.
fn configs() -> [watcher::Config; 2] {
    [
        watcher::Config::default().page_size(3),
        watcher::Config::default().streaming_lists(),
    ]
}

/// kube-runtime adds keys before the store shows the list. It left new objects unreconciled
/// and reconciled changed ones with their old content.
#[tokio::test(start_paused = true)]
async fn relist_reconciles_all_objects_with_their_last_content() {
    for config in configs() {
        let cluster = FakeCluster::new();
        for index in 0..20 {
            cluster.put(&config_map(&format!("m{index:02}"), "old"));
        }
        let (_handle, mut calls) = start(controller_with(&cluster, config));
        assert_eq!(calls.take(20).await.len(), 20);
        cluster.go_down();
        for index in 0..10 {
            cluster.put(&config_map(&format!("m{index:02}"), "new"));
            cluster.put(&config_map(&format!("a{index:02}"), "new"));
        }
        cluster.expire_watches();
        // Slow pages: workers have time to run between them.
        cluster.inject(Fault::delay(Duration::from_secs(1)).on(Verb::List));
        cluster.come_up();
        let seen = calls.take(30).await;
        for (name, value) in &seen {
            let changed = name.starts_with('a') || name.as_str() < "m10";
            let expected = if changed { "new" } else { "old" };
            assert_eq!(value.as_deref(), Some(expected), "{name}");
        }
        assert_eq!(seen.len(), 30);
        assert!(calls.rest().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_in_a_gap_are_reconciled_as_gone() {
    for config in configs() {
        let cluster = FakeCluster::new();
        for name in ["a", "b", "c", "d"] {
            cluster.put(&config_map(name, "1"));
        }
        let (_handle, mut calls) = start(controller_with(&cluster, config));
        calls.take(4).await;
        cluster.go_down();
        cluster.remove::<ConfigMap>("default", "b");
        cluster.expire_watches();
        cluster.come_up();
        let seen = calls.take(4).await;
        assert_eq!(seen["b"], None);
        assert_eq!(seen["a"], Some("1".to_owned()));
        assert!(calls.rest().await.is_empty());
    }
}

/// kube-runtime has no entry for the child, so its owner hears nothing.
#[tokio::test(start_paused = true)]
async fn children_deleted_in_a_gap_reconcile_their_owners() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    cluster.put(&config_map("mapped", "1"));
    cluster.put(&secret("default", "child", owned_by("v1", "ConfigMap", "owner")));
    cluster.put(&secret("default", "mapped", None));
    let to_key = |secret: Secret| {
        let named = secret.name_any() == "mapped";
        named.then(|| ObjectRef::new("mapped").within("default"))
    };
    let config = watcher::Config::default();
    let controller = controller(&cluster)
        .owns(secrets(&cluster), config.clone())
        .watches(secrets(&cluster), config, to_key);
    let (_handle, mut calls) = start(controller);
    assert_eq!(calls.take(2).await.len(), 2);
    settle().await;
    cluster.go_down();
    cluster.remove::<Secret>("default", "child");
    cluster.remove::<Secret>("default", "mapped");
    cluster.expire_watches();
    cluster.come_up();
    let mut reasons = BTreeMap::new();
    for _ in 0..40 {
        let seen = calls.next().await;
        *reasons.entry(seen.name).or_default() |= seen.reasons;
        let owned =
            reasons.get("owner").is_some_and(|r: &Reasons| r.contains(Reasons::OWNED));
        let mapped = reasons.get("mapped").is_some_and(|r| r.contains(Reasons::MAPPED));
        if owned && mapped {
            return;
        }
    }
    panic!("the owners were not reconciled for their children: {reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn expired_watch_lists_again_without_an_error() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let (handle, mut calls) = start(controller(&cluster));
    calls.next().await;
    settle().await;
    cluster.expire_watches();
    cluster.put(&config_map("a", "2"));
    assert_eq!(calls.next().await.value.as_deref(), Some("2"));
    let [status] = &handle.watches()[..] else { panic!("there is one watch") };
    assert_eq!((status.lists, status.errors, &status.last_error), (2, 0, &None));
}

/// Without bookmarks, a quiet watch would have to list again when its version is too old.
#[tokio::test(start_paused = true)]
async fn quiet_watch_resumes_from_its_bookmark() {
    let cluster = FakeCluster::new();
    let (handle, mut calls) = start(controller(&cluster));
    within(handle.synced()).await.expect("the list is empty");
    settle().await;
    for index in 0..10 {
        cluster.put(&secret("default", &format!("s{index}"), None));
    }
    cluster.send_bookmarks();
    settle().await;
    cluster.close_watches();
    cluster.put(&config_map("a", "1"));
    assert_eq!(calls.next().await.name, "a");
    assert_eq!(cluster.count(Verb::List, "configmaps"), 1);
}

/// An object that is listed again unchanged probably needs no work: an edit overtakes it.
#[tokio::test(start_paused = true)]
async fn edits_overtake_listed_and_relisted_objects() {
    let cluster = FakeCluster::new();
    for index in 0..50 {
        cluster.put(&config_map(&format!("m{index:02}"), "1"));
    }
    let (handle, mut calls) = start(controller(&cluster).workers(0));
    within(handle.synced()).await.expect("the server works");
    cluster.put(&config_map("m49", "2"));
    settle().await;
    handle.set_workers(1);
    let first = calls.next().await;
    assert_eq!((first.name.as_str(), first.value.as_deref()), ("m49", Some("2")));
    assert_eq!(first.reasons, Reasons::LISTED | Reasons::CHANGED);
    calls.take(49).await;
    handle.set_workers(0);
    settle().await;
    cluster.go_down();
    cluster.put(&config_map("m30", "3"));
    cluster.expire_watches();
    cluster.come_up();
    within(async {
        while handle.watches()[0].lists < 2 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    })
    .await;
    handle.set_workers(1);
    let first = calls.next().await;
    assert_eq!((first.name.as_str(), first.reasons), ("m30", Reasons::CHANGED));
    let rest = calls.take(49).await;
    assert_eq!(rest.len(), 49);
}

#[tokio::test(start_paused = true)]
async fn object_recreated_in_a_gap_is_reconciled() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let controller =
        controller(&cluster).predicate(kube::runtime::predicates::generation);
    let (handle, mut calls) = start(controller);
    calls.next().await;
    let uid = handle.store().state()[0].uid();
    cluster.go_down();
    cluster.remove::<ConfigMap>("default", "a");
    cluster.put(&config_map("a", "1"));
    cluster.expire_watches();
    cluster.come_up();
    let seen = calls.next().await;
    assert_eq!(seen.reasons, Reasons::CHANGED);
    assert_ne!(handle.store().state()[0].uid(), uid);
}

/// The predicate had already remembered the object of the list that was not completed, and
/// took the object of the next list for unchanged.
#[tokio::test(start_paused = true)]
async fn change_in_an_interrupted_list_passes_the_predicate() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    for index in 0..4 {
        let name = format!("child{index}");
        cluster.put(&secret("default", &name, owned_by("v1", "ConfigMap", "owner")));
    }
    let config = watcher::Config::default().page_size(2);
    let labels = kube::runtime::predicates::labels;
    let controller = controller(&cluster).owns_if(secrets(&cluster), config, labels);
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    settle().await;
    assert_eq!(calls.rest().await, []);
    cluster.go_down();
    let mut changed = secret("default", "child0", owned_by("v1", "ConfigMap", "owner"));
    changed.labels_mut().insert("a".into(), "1".into());
    cluster.put(&changed);
    cluster.expire_watches();
    // The first page of secrets arrives, the second one fails.
    cluster.inject(Fault::delay(Duration::ZERO).on(Verb::List).of("secrets").times(1));
    cluster.inject(Fault::status(500).on(Verb::List).of("secrets").times(1));
    cluster.come_up();
    let seen = calls.next().await;
    let owned = seen.reasons.contains(Reasons::OWNED);
    assert!(owned || calls.next().await.reasons.contains(Reasons::OWNED));
}
