//! Kinds that are known at run time only, and metadata without the rest.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::core::PartialObjectMeta;

use super::*;

fn zoo() -> ApiResource {
    let kind = GroupVersionKind::gvk("example.org", "v1", "Zoo");
    ApiResource::from_gvk_with_plural(&kind, "zoos")
}

/// The scope of a dynamic kind is not known: the objects in the store decide.
#[tokio::test(start_paused = true)]
async fn dynamic_cluster_scoped_owner_has_one_key() {
    let cluster = FakeCluster::new();
    let object = serde_json::json!({
        "apiVersion": "example.org/v1", "kind": "Zoo", "metadata": {"name": "berlin"},
    });
    cluster.put_value("example.org", "zoos", object);
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &zoo());
    let (sender, mut keys) = unbounded_channel();
    let reconcile = move |request: Request<DynamicObject>, _: Arc<()>| {
        assert!(request.object.is_some());
        sender.send((request.key.namespace, request.reasons)).unwrap();
        async { Ok::<_, String>(Action::await_change()) }
    };
    let _handle = Controller::new_with(api, watcher::Config::default(), zoo())
        .owns(secrets(&cluster), watcher::Config::default())
        .clock(TokioClock::new())
        .start(reconcile, Arc::new(()))
        .expect("there is a runtime");
    assert_eq!(within(keys.recv()).await, Some((None, Reasons::LISTED)));
    cluster.put(&secret("a", "child", owned_by("example.org/v1beta1", "Zoo", "berlin")));
    assert_eq!(within(keys.recv()).await, Some((None, Reasons::OWNED)));
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_can_be_reconciled() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::all(cluster.client());
    let (sender, mut names) = unbounded_channel();
    let reconcile = move |request: Request<PartialObjectMeta<ConfigMap>>, _: Arc<()>| {
        sender.send(request.object.map(|object| object.name_any())).unwrap();
        async { Ok::<_, String>(Action::await_change()) }
    };
    let _handle = Controller::new(api, watcher::Config::default())
        .clock(TokioClock::new())
        .start(reconcile, Arc::new(()))
        .expect("there is a runtime");
    assert_eq!(within(names.recv()).await, Some(Some("a".to_owned())));
}

/// A namespaced `Api` watches one namespace only, for owned kinds as well.
#[tokio::test(start_paused = true)]
async fn namespace_of_an_api_is_kept() {
    let cluster = FakeCluster::new();
    cluster.put(&config_map("a", "1"));
    let mut other = config_map("b", "1");
    other.metadata.namespace = Some("other".to_owned());
    cluster.put(&other);
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "other");
    let children: Api<Secret> = Api::namespaced(cluster.client(), "other");
    let controller = Controller::new(api, watcher::Config::default())
        .owns(children, watcher::Config::default())
        .clock(TokioClock::new());
    let (_handle, mut calls) = start(controller);
    assert_eq!(calls.next().await.name, "b");
    assert_eq!(calls.rest().await, []);
    let namespaces: Vec<_> =
        cluster.calls().into_iter().map(|call| call.namespace).collect();
    assert!(
        namespaces.iter().all(|name| name.as_deref() == Some("other")),
        "{namespaces:?}"
    );
}
