//! The examples, run inside the test, with the rights of their manifests.

use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use requeue_kube::Health;
use serde_json::json;

use crate::cluster::Cluster;
use crate::support::{SOON, config_map, eventually, value};

#[path = "../../examples/configmap_sync.rs"]
#[expect(dead_code, reason = "`main` does not run here")]
mod configmap_sync;
#[path = "../../examples/shared_stores.rs"]
#[expect(dead_code, reason = "`main` does not run here")]
mod shared_stores;
#[path = "../../examples/website_operator.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program elsewhere")]
mod website_operator;

use website_operator::{Website, WebsiteSpec};

#[tokio::test]
async fn configmap_sync_copies_and_deletes() {
    let Some(cluster) = Cluster::shared().await else { return };
    let copies = format!("{}-copies", cluster.namespace);
    cluster.create_namespace(&copies).await;
    let handle =
        configmap_sync::start(&cluster.client, &cluster.namespace, &copies).unwrap();
    let (from, to) = (
        cluster.config_maps(),
        Api::<ConfigMap>::namespaced(cluster.client.clone(), &copies),
    );
    let mut source = config_map("one", "1");
    source.metadata.labels = Some([("sync".to_owned(), "true".to_owned())].into());
    from.create(&PostParams::default(), &source).await.unwrap();
    from.create(&PostParams::default(), &config_map("other", "1")).await.unwrap();
    let shows = async |text: &str| {
        to.get_opt("one").await.unwrap().is_some_and(|copy| value(&copy) == text)
    };
    eventually("it is copied", SOON, async || shows("1").await).await;
    crate::support::edit(&from, "one", "2").await;
    eventually("an edit is copied", SOON, async || shows("2").await).await;
    from.delete("one", &DeleteParams::default()).await.unwrap();
    eventually("a delete is copied", SOON, async || {
        to.get_opt("one").await.unwrap().is_none()
    })
    .await;
    assert!(to.get_opt("other").await.unwrap().is_none());
    handle.stop(SOON).await;
}

/// Applies the manifests of an example with kubectl, or reports that it is missing.
fn apply_manifests(names: &[&str]) -> bool {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/manifests");
    for name in names {
        let output =
            Command::new("kubectl").args(["apply", "-f"]).arg(folder.join(name)).output();
        let Ok(output) = output else {
            println!("skipped: kubectl is missing");
            return false;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn website_operator_runs_with_the_rights_of_its_manifests() {
    let Some(cluster) = Cluster::shared().await else { return };
    if !apply_manifests(&["crd.yaml", "rbac.yaml", "deployment.yaml"]) {
        return;
    }
    let operator: Client =
        cluster.client_as("system:serviceaccount:website-operator:website-operator");
    let health = Health::new();
    let handle = website_operator::start(&operator, "website-operator", &health).unwrap();
    handle.synced().await.unwrap();
    assert!(health.ready().is_ok(), "{}", health.ready());
    let sites = Api::<Website>::namespaced(cluster.client.clone(), &cluster.namespace);
    let pages = [("index.html".to_owned(), "hello".to_owned())].into();
    let site = Website::new("site", WebsiteSpec { pages, port: 80 });
    eventually("the kind is served", SOON, async || {
        sites.list(&ListParams::default()).await.is_ok()
    })
    .await;
    sites.create(&PostParams::default(), &site).await.unwrap();

    let (maps, services) = (
        cluster.config_maps(),
        Api::<Service>::namespaced(cluster.client.clone(), &cluster.namespace),
    );
    eventually("the children exist", SOON, async || {
        maps.get_opt("site").await.unwrap().is_some()
            && services.get_opt("site").await.unwrap().is_some()
    })
    .await;
    eventually("the status is written", SOON, async || {
        sites.get("site").await.unwrap().status.is_some_and(|status| status.pages == 1)
    })
    .await;
    maps.delete("site", &DeleteParams::default()).await.unwrap();
    eventually("a deleted child is restored", SOON, async || {
        maps.get_opt("site").await.unwrap().is_some()
    })
    .await;
    let events = Api::<Event>::namespaced(cluster.client.clone(), &cluster.namespace);
    eventually("an event is published", SOON, async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.iter().any(|event| event.reason.as_deref() == Some("Published"))
    })
    .await;
    sites.delete("site", &DeleteParams::default()).await.unwrap();
    eventually("the finalizer lets it go", SOON, async || {
        sites.get_opt("site").await.unwrap().is_none()
    })
    .await;
    let stopped = handle.drain(SOON).await;
    assert!(stopped.still_running.is_empty(), "{stopped:?}");
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "website-operator");
    let lease = leases.get("website-operator").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""), "released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_stores_counts_secrets_in_both_controllers() {
    let Some(cluster) = Cluster::shared().await else { return };
    let mut map = config_map("map", "1");
    map.metadata.labels = Some([("count".to_owned(), "secrets".to_owned())].into());
    let maps = cluster.config_maps();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let accounts =
        Api::<ServiceAccount>::namespaced(cluster.client.clone(), &cluster.namespace);
    let metadata =
        ObjectMeta { name: Some("account".to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let controllers = shared_stores::start(&cluster.client, &cluster.namespace).unwrap();
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), &cluster.namespace);
    for n in 1..=3 {
        let name = format!("secret-{n}");
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let apply = PatchParams::apply("test");
        secrets
            .patch(&format!("secret-{n}"), &apply, &Patch::Apply(secret))
            .await
            .unwrap();
        let is_counted = |object: Option<&String>| object == Some(&n.to_string());
        eventually("both count", SOON, async || {
            let map = maps.get("map").await.unwrap();
            let account = accounts.get("account").await.unwrap();
            is_counted(map.annotations().get(shared_stores::COUNT))
                && is_counted(account.annotations().get(shared_stores::COUNT))
        })
        .await;
    }
    assert!(controllers.stop(SOON).await, "the lease is released");
}
