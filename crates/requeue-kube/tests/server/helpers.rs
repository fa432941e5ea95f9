//! Finalizers and events on a real server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::events::{Event as NewEvent, EventType};
use kube::{Api, Resource, ResourceExt};
use requeue_kube::finalizer::{Error, Event, finalizer};
use requeue_kube::{Action, Published, Recorder};

use crate::cluster::Cluster;
use crate::support::{create, edit};

const NAME: &str = "requeue.test/cleanup";

async fn apply_or_clean(
    api: &Api<ConfigMap>,
    object: ConfigMap,
    cleaned: &AtomicU32,
) -> Result<(), Error<Infallible>> {
    finalizer(api, NAME, Arc::new(object), async |event| {
        if let Event::Cleanup(_) = event {
            cleaned.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Action::await_change())
    })
    .await
    .map(drop)
}

#[tokio::test]
async fn a_finalizer_delays_the_deletion_until_the_clean_up() {
    let Some(cluster) = Cluster::shared().await else { return };
    let (api, cleaned) = (cluster.config_maps(), AtomicU32::new(0));
    let object = create(&api, "a", "1").await;
    apply_or_clean(&api, object, &cleaned).await.unwrap();
    let object = api.get("a").await.unwrap();
    assert_eq!(object.finalizers(), [NAME]);
    apply_or_clean(&api, object, &cleaned).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let object = api.get("a").await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_some());
    assert_eq!(cleaned.load(Ordering::Relaxed), 0);
    apply_or_clean(&api, object.clone(), &cleaned).await.unwrap();
    assert_eq!(cleaned.load(Ordering::Relaxed), 1);
    assert!(api.get_opt("a").await.unwrap().is_none());
    // A stale cache: the object has gone meanwhile.
    apply_or_clean(&api, object, &cleaned).await.unwrap();
}

// Two controllers add their finalizers to the same object, from the same cached copy.
#[tokio::test]
async fn a_stale_copy_never_overwrites_another_finalizer() {
    let Some(cluster) = Cluster::shared().await else { return };
    let (api, cleaned) = (cluster.config_maps(), AtomicU32::new(0));
    let stale = create(&api, "a", "1").await;
    let other = serde_json::json!({"metadata": {"finalizers": ["requeue.test/other"]}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    let error = apply_or_clean(&api, stale, &cleaned).await.unwrap_err();
    assert!(matches!(error, Error::AddFinalizer(_)), "{error}");
    // An edit of other fields is not a conflict.
    let stale = api.get("a").await.unwrap();
    edit(&api, "a", "2").await;
    apply_or_clean(&api, stale, &cleaned).await.unwrap();
    assert_eq!(api.get("a").await.unwrap().finalizers(), ["requeue.test/other", NAME]);
}

#[tokio::test]
async fn a_recreated_object_gets_no_patch_of_its_predecessor() {
    let Some(cluster) = Cluster::shared().await else { return };
    let (api, cleaned) = (cluster.config_maps(), AtomicU32::new(0));
    let old = create(&api, "a", "1").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    create(&api, "a", "2").await;
    let error = apply_or_clean(&api, old, &cleaned).await.unwrap_err();
    assert!(matches!(error, Error::AddFinalizer(_)), "{error}");
    assert!(api.get("a").await.unwrap().finalizers().is_empty());
}

#[tokio::test]
async fn events_are_limited_per_object() {
    let Some(cluster) = Cluster::shared().await else { return };
    let api = cluster.config_maps();
    let (busy, calm) = (create(&api, "busy", "").await, create(&api, "calm", "").await);
    let recorder = Recorder::new(cluster.client.clone(), "test".into());
    let event = |reason: String| NewEvent {
        type_: EventType::Warning,
        reason,
        note: Some("failed".to_owned()),
        action: "Test".to_owned(),
        secondary: None,
    };
    let mut sent = 0;
    for n in 0..100 {
        let published =
            recorder.publish(&event(format!("R{n}")), &busy.object_ref(&())).await;
        sent += u32::from(published.unwrap() == Published::Sent);
    }
    let published =
        recorder.publish(&event("Other".to_owned()), &calm.object_ref(&())).await;
    assert_eq!(published.unwrap(), Published::Sent);
    assert_eq!((sent, recorder.dropped()), (25, 75));
    let events =
        Api::<StoredEvent>::namespaced(cluster.client.clone(), &cluster.namespace);
    assert_eq!(events.list(&ListParams::default()).await.unwrap().items.len(), 26);
}
