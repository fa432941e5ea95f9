//! Runs that see their own writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::PostParams;

use super::*;

struct Context {
    secrets: Api<Secret>,
    children: kube::runtime::reflector::Store<Secret>,
    created: AtomicUsize,
    tells: bool,
}

/// Creates a child for a parent that has none in the store.
async fn create_child(
    request: Request<ConfigMap>,
    context: Arc<Context>,
) -> Result<Action, kube::Error> {
    let parent = request.key.name.clone();
    let is_child = |child: &Secret| child.annotations().get("parent") == Some(&parent);
    if request.object.is_some() && context.children.find(is_child).is_none() {
        let mut child = secret("default", "", owned_by("v1", "ConfigMap", &parent));
        child.metadata.name = None;
        child.metadata.generate_name = Some(format!("{parent}-"));
        child.annotations_mut().insert("parent".into(), parent.clone());
        let written = context.secrets.create(&PostParams::default(), &child).await?;
        context.created.fetch_add(1, Ordering::SeqCst);
        if context.tells {
            request.wrote(&written);
        }
    }
    Ok(Action::await_change())
}

async fn children_of_one_parent(tells: bool) -> (usize, usize) {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "0"));
    let mut controller =
        controller(&cluster).owns(secrets(&cluster), watcher::Config::default());
    let children = controller.store_of(secrets(&cluster), watcher::Config::default());
    let context = Arc::new(Context {
        secrets: Api::default_namespaced(cluster.client()),
        children,
        created: AtomicUsize::new(0),
        tells,
    });
    cluster.hold_events("secrets");
    let handle =
        controller.start(create_child, Arc::clone(&context)).expect("there is a runtime");
    within(handle.synced()).await.expect("the server works");
    settle().await;
    for round in 1..5 {
        cluster.put(&config_map("a", &round.to_string()));
        settle().await;
    }
    let before = context.created.load(Ordering::SeqCst);
    cluster.release_events("secrets");
    settle().await;
    cluster.put(&config_map("a", "last"));
    settle().await;
    within(handle.queue().wait_idle()).await;
    (before, context.created.load(Ordering::SeqCst))
}

/// Without `wrote`, each run before the event of the child creates another child.
#[tokio::test(start_paused = true)]
async fn reconciler_does_not_run_before_it_can_see_its_own_writes() {
    assert_eq!(children_of_one_parent(false).await, (5, 5), "a stale cache is possible");
    assert_eq!(children_of_one_parent(true).await, (1, 1));
}

/// The event may come before the response of the API server.
#[tokio::test(start_paused = true)]
async fn write_that_the_cache_has_seen_holds_nothing_back() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let (handle, mut calls) = start(controller(&cluster));
    calls.next().await;
    let written = cluster.put(&config_map("a", "2"));
    calls.next().await;
    let key = ObjectRef::new("a").within("default");
    handle.wrote(&key, &written);
    cluster.put(&config_map("a", "3"));
    assert_eq!(calls.rest().await.len(), 1);
}

/// A write of an object that the watch does not select never comes back.
#[tokio::test(start_paused = true)]
async fn write_without_an_event_holds_a_key_back_for_a_limited_time() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let (handle, mut calls) = start(controller(&cluster));
    calls.next().await;
    let mut written = config_map("elsewhere", "1");
    written.metadata.resource_version = Some("1000".to_owned());
    let key = ObjectRef::new("a").within("default");
    handle.wrote(&key, &written);
    cluster.put(&config_map("a", "2"));
    assert_eq!(calls.rest().await, []);
    let late = calls.next().await;
    assert_eq!((late.value.as_deref(), late.reasons), (Some("2"), Reasons::CHANGED));
}
