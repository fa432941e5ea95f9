//! Watches that fail, lag or find objects that cannot be decoded.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// In kube-runtime all watches share one backoff: a kind that does not exist raised the
/// latency of the others from 9 to 584 ms.
#[tokio::test(start_paused = true)]
async fn failing_watch_does_not_slow_down_the_others() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "0"));
    let controller =
        controller(&cluster).owns(secrets(&cluster), watcher::Config::default());
    let (handle, mut calls) = start(controller);
    calls.next().await;
    settle().await;
    cluster.inject(Fault::status(404).of("secrets"));
    cluster.close_watches();
    for round in 1..50 {
        cluster.put(&config_map("a", &round.to_string()));
        settle().await;
        let last = calls.rest().await.pop().expect("without waiting for the other watch");
        assert_eq!(last.value, Some(round.to_string()));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let requests = cluster.count(Verb::Watch, "secrets");
    assert!((3..=20).contains(&requests), "{requests} requests in 50 s");
    assert!(handle.watches()[1].errors >= 2);
    cluster.clear_faults();
    cluster.put(&secret("default", "child", owned_by("v1", "ConfigMap", "a")));
    assert!(calls.next().await.reasons.contains(Reasons::OWNED));
}

/// The kind of an owned object may be installed later.
#[tokio::test(start_paused = true)]
async fn workers_wait_for_a_kind_that_does_not_exist_yet() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    cluster.inject(Fault::status(404).of("secrets"));
    let controller =
        controller(&cluster).owns(secrets(&cluster), watcher::Config::default());
    let (handle, mut calls) = start(controller);
    cluster.wait_for_calls(Verb::List, "secrets", 4).await;
    assert_eq!(calls.rest().await, []);
    assert_eq!(cluster.count(Verb::List, "configmaps"), 1);
    let error = handle.watches()[1].last_error.clone().expect("the list fails");
    assert!(error.contains("could not find the requested resource"), "{error}");
    cluster.clear_faults();
    within(handle.synced()).await.expect("the kind exists now");
    assert_eq!(calls.next().await.name, "a");
}

#[tokio::test(start_paused = true)]
async fn caches_that_are_not_filled_in_time_end_the_controller() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    cluster.inject(Fault::status(403).on(Verb::List).of("secrets"));
    let controller = controller(&cluster)
        .owns(secrets(&cluster), watcher::Config::default())
        .sync_timeout(Duration::from_secs(30));
    let (handle, mut calls) = start(controller);
    let (first, second) =
        within(async { tokio::join!(handle.synced(), handle.stopped()) }).await;
    let error = first.expect_err("secrets cannot be listed");
    assert_eq!(second, Err(error.clone()));
    let text = error.to_string();
    assert!(text.contains("30s") && text.contains("Secret"), "{text}");
    assert!(text.contains("cannot list resource \"secrets\""), "{text}");
    assert_eq!(calls.rest().await, []);
    assert!(handle.queue().is_closed());
}

/// `Store::wait_until_ready` of kube-runtime hangs if two tasks wait.
#[tokio::test(start_paused = true)]
async fn many_tasks_can_wait_for_the_caches() {
    let cluster = FakeCluster::new();
    let (handle, _calls) = start(controller(&cluster));
    let waiting: Vec<_> = (0..5).map(|_| handle.synced()).collect();
    for synced in within(futures::future::join_all(waiting)).await {
        assert_eq!(synced, Ok(()));
    }
}

/// kube decodes a page as a whole, so one bad object stops the whole controller.
#[tokio::test(start_paused = true)]
async fn undecodable_objects_are_skipped_and_counted() {
    let bad = |name: &str, marker: &str| {
        serde_json::json!({
            "metadata": {"name": name, "namespace": "default"}, "data": 7, "marker": marker,
        })
    };
    for streaming in [false, true] {
        let cluster = FakeCluster::new();
        cluster.put(&config_map("a", "1"));
        cluster.put_value("", "configmaps", bad("bad", "1"));
        let config = watcher::Config::default();
        let config = if streaming { config.streaming_lists() } else { config };
        let (handle, mut calls) = start(controller_with(&cluster, config));
        assert_eq!(calls.next().await.name, "a");
        cluster.put_value("", "configmaps", bad("bad", "2"));
        // An object that becomes undecodable keeps its last known state: it is not gone.
        cluster.put_value("", "configmaps", bad("a", "1"));
        cluster.put(&config_map("b", "1"));
        assert_eq!(calls.next().await.name, "b");
        assert_eq!(handle.watches()[0].undecodable, 3);
        cluster.expire_watches();
        let relisted = calls.take(2).await;
        assert_eq!(relisted["a"], Some("1".to_owned()));
        assert_eq!(calls.rest().await, []);
        cluster.put(&config_map("bad", "fixed"));
        assert_eq!(calls.next().await.value.as_deref(), Some("fixed"));
    }
}

/// A server that is down for minutes is asked once per pause and watch.
#[tokio::test(start_paused = true)]
async fn server_that_is_down_is_asked_rarely_and_recovers() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let mut controller = controller(&cluster);
    for _ in 0..9 {
        controller = controller.owns(secrets(&cluster), watcher::Config::default());
    }
    let (handle, mut calls) = start(controller);
    calls.next().await;
    settle().await;
    cluster.go_down();
    for _ in 0..120 {
        settle().await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let errors: u64 = handle.watches().iter().map(|watch| watch.errors).sum();
    assert!((50..=160).contains(&errors), "{errors} attempts of 10 watches in 2 minutes");
    cluster.put(&config_map("a", "2"));
    cluster.come_up();
    let recovered = timeout(Duration::from_secs(35), calls.next()).await;
    assert_eq!(recovered.expect("within a pause").value.as_deref(), Some("2"));
}

/// A feed never waits for a worker, and the queue merges keys.
#[tokio::test(start_paused = true)]
async fn hanging_workers_do_not_stop_the_watch() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "0"));
    let started = Arc::new(AtomicUsize::new(0));
    let hang = |_: Request<ConfigMap>, started: Arc<AtomicUsize>| async move {
        started.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<Action, String>>().await
    };
    let handle = controller(&cluster)
        .workers(2)
        .start(hang, Arc::clone(&started))
        .expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    for round in 1..=1000 {
        cluster.put(&config_map("a", &round.to_string()));
        cluster.put(&config_map(&format!("b{}", round % 5), &round.to_string()));
    }
    within(async {
        while handle.watches()[0].events < 2000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let counts = handle.queue().counts();
    assert_eq!((counts.processing, counts.ready), (2, 4), "one of each key");
    let found = handle.store().get(&ObjectRef::new("a").within("default"));
    assert_eq!(found.as_deref().map(value_of).as_deref(), Some("1000"));
    assert_eq!(started.load(Ordering::SeqCst), 2);
}

/// An expired token, missing rights and an overloaded server all end some day. Nothing that
/// happens meanwhile is lost.
#[tokio::test(start_paused = true)]
async fn watch_recovers_from_every_refusal() {
    for code in [401, 403, 404, 429, 500, 503, 504] {
        let cluster = FakeCluster::new();
        cluster.put(&config_map("a", "1"));
        let (handle, mut calls) = start(controller(&cluster));
        calls.next().await;
        settle().await;
        cluster.inject(Fault::status(code).of("configmaps"));
        cluster.close_watches();
        cluster.put(&config_map("a", "2"));
        let refused = cluster.count(Verb::Watch, "configmaps") + 3;
        within(cluster.wait_for_calls(Verb::Watch, "configmaps", refused)).await;
        assert_eq!(calls.rest().await, [], "{code}");
        cluster.clear_faults();
        assert_eq!(calls.next().await.value.as_deref(), Some("2"), "{code}");
        let status = handle.watches().remove(0);
        assert!(status.errors >= 2 && status.last_error.is_some(), "{code}: {status:?}");
    }
}

/// kube's client waits for ever for a response: a list that hung once stopped the watch.
#[tokio::test(start_paused = true)]
async fn list_that_hangs_is_repeated() {
    for streaming in [false, true] {
        let cluster = FakeCluster::new();
        cluster.put(&config_map("a", "1"));
        let config = watcher::Config::default();
        let config = if streaming { config.streaming_lists() } else { config };
        let verb = if streaming { Verb::Watch } else { Verb::List };
        cluster.inject(Fault::hang().on(verb).times(1));
        let (handle, mut calls) = start(controller_with(&cluster, config));
        assert_eq!(calls.next().await.name, "a");
        let error = handle.watches()[0].last_error.clone().expect("the first list hung");
        assert!(error.contains("made no progress for 90s"), "{error}");
    }
}

/// A watch without events is not stalled.
#[tokio::test(start_paused = true)]
async fn quiet_watch_does_not_list_again() {
    let cluster = FakeCluster::new();
    let (handle, mut calls) = start(controller(&cluster));
    within(handle.synced()).await.expect("the server works");
    for _ in 0..60 {
        settle().await;
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    cluster.put(&config_map("a", "1"));
    assert_eq!(calls.next().await.name, "a");
    assert_eq!(cluster.count(Verb::List, "configmaps"), 1);
}
