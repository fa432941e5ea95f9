//! Which owners the changes of owned objects lead to.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;

#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
    runs: AtomicUsize,
}

/// kube-runtime made one key for each namespace of the children, and reconciled the owner
/// three times at once.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_owner_is_with_one_worker_at_a_time() {
    let cluster = FakeCluster::new();
    let namespace = Namespace { metadata: meta("", "team"), ..Namespace::default() };
    cluster.put(&namespace);
    let busy = Arc::new(Busy::default());
    let controller = Controller::new(
        Api::<Namespace>::all(cluster.client()),
        watcher::Config::default(),
    )
    .owns(secrets(&cluster), watcher::Config::default())
    .clock(TokioClock::new())
    .workers(8);
    let reconcile = |request: Request<Namespace>, busy: Arc<Busy>| async move {
        assert_eq!(request.key.namespace, None);
        let now = busy.now.fetch_add(1, Ordering::SeqCst) + 1;
        busy.most.fetch_max(now, Ordering::SeqCst);
        settle().await;
        busy.now.fetch_sub(1, Ordering::SeqCst);
        busy.runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, String>(Action::await_change())
    };
    let handle =
        controller.start(reconcile, Arc::clone(&busy)).expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    for round in 0..5 {
        for name in ["a", "b", "c"] {
            let mut child = secret(name, "child", owned_by("v1", "Namespace", "team"));
            child.annotations_mut().insert("round".into(), round.to_string());
            cluster.put(&child);
        }
        settle().await;
    }
    within(handle.queue().wait_idle()).await;
    assert!(busy.runs.load(Ordering::SeqCst) >= 2);
    assert_eq!(busy.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn owner_in_another_namespace_is_not_reconciled() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    let controller =
        controller(&cluster).owns(secrets(&cluster), watcher::Config::default());
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    cluster.put(&secret("other", "child", owned_by("v1", "ConfigMap", "owner")));
    assert_eq!(calls.rest().await, []);
    cluster.put(&secret("default", "child", owned_by("v1", "ConfigMap", "owner")));
    assert_eq!(calls.next().await.reasons, Reasons::OWNED);
}

/// After an upgrade from `v1beta1`, old children still refer to the old version.
#[tokio::test(start_paused = true)]
async fn owner_is_found_in_any_version_of_its_group() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    let controller =
        controller(&cluster).owns(secrets(&cluster), watcher::Config::default());
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    cluster.put(&secret(
        "default",
        "other",
        owned_by("example.org/v1", "ConfigMap", "owner"),
    ));
    cluster.put(&secret("default", "kind", owned_by("v1", "Pod", "owner")));
    assert_eq!(calls.rest().await, []);
    cluster.put(&secret("default", "old", owned_by("v1beta1", "ConfigMap", "owner")));
    assert_eq!(calls.next().await.reasons, Reasons::OWNED);
}

#[tokio::test(start_paused = true)]
async fn only_controllers_count_on_request() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    let controller = controller(&cluster)
        .owns(secrets(&cluster), watcher::Config::default())
        .controller_owners_only();
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    let mut owner = owned_by("v1", "ConfigMap", "owner");
    cluster.put(&secret("default", "plain", owner.clone()));
    assert_eq!(calls.rest().await, []);
    owner.controller = Some(true);
    cluster.put(&secret("default", "controlled", owner));
    assert_eq!(calls.next().await.reasons, Reasons::OWNED);
}

#[tokio::test(start_paused = true)]
async fn predicate_of_an_owned_kind_lets_deletes_pass() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("owner", "1"));
    let labels = kube::runtime::predicates::labels;
    let controller = controller(&cluster).owns_if(
        secrets(&cluster),
        watcher::Config::default(),
        labels,
    );
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    let mut child = secret("default", "child", owned_by("v1", "ConfigMap", "owner"));
    child.labels_mut().insert("a".into(), "1".into());
    cluster.put(&child);
    calls.next().await;
    child.annotations_mut().insert("a".into(), "1".into());
    cluster.put(&child);
    assert_eq!(calls.rest().await, []);
    cluster.remove::<Secret>("default", "child");
    assert_eq!(calls.next().await.reasons, Reasons::OWNED);
}

#[tokio::test(start_paused = true)]
async fn status_writes_do_not_trigger_the_controller_itself() {
    let cluster = FakeCluster::new();
    let generation = kube::runtime::predicates::generation;
    let controller = controller(&cluster).predicate(generation);
    let (handle, mut calls) = start(controller);
    within(handle.synced()).await.expect("the server works");
    let put = |generation: u32, status: &str, finalizers: serde_json::Value| {
        cluster.put_value(
            "",
            "configmaps",
            serde_json::json!({
                "metadata": {
                    "name": "a", "namespace": "default", "finalizers": finalizers,
                },
                "data": {"key": generation.to_string()}, "status": status,
            }),
        );
    };
    let none = serde_json::json!([]);
    put(1, "new", none.clone());
    assert_eq!(calls.next().await.value.as_deref(), Some("1"));
    put(1, "ready", none.clone());
    put(1, "changed", none.clone());
    assert_eq!(calls.rest().await, []);
    put(2, "changed", none);
    assert_eq!(calls.next().await.value.as_deref(), Some("2"));
    cluster.remove::<ConfigMap>("default", "a");
    assert_eq!(calls.next().await.value, None);
}

/// A mapper that panics must not end its watch.
#[tokio::test(start_paused = true)]
async fn panic_of_a_mapper_does_not_end_the_watch() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let gate = Arc::new(Semaphore::new(0));
    let reached = Arc::clone(&gate);
    let mapper = move |secret: Secret| {
        reached.add_permits(1);
        assert_ne!(secret.name_any(), "bad", "on purpose");
        Some(ObjectRef::new("a").within("default"))
    };
    let controller = controller(&cluster).watches(
        secrets(&cluster),
        watcher::Config::default(),
        mapper,
    );
    let (_handle, mut calls) = start(controller);
    calls.next().await;
    cluster.put(&secret("default", "bad", None));
    within(gate.acquire()).await.expect("it is open").forget();
    assert_eq!(calls.rest().await, []);
    cluster.put(&secret("default", "good", None));
    assert_eq!(calls.next().await.reasons, Reasons::MAPPED);
}
