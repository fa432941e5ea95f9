//! An operator of a custom resource: a `Website` owns a `ConfigMap` with its pages and a
//! `Service`, has a status, publishes events, and cleans up with a finalizer.
//!
//! The manifests are in `examples/manifests`. Run it with
//! `cargo run -p requeue-kube --example website_operator`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::runtime::events::{Event as Report, EventType};
use kube::runtime::{predicates, watcher};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use requeue_kube::finalizer::{Error as FinalizerError, Event, finalizer};
use requeue_kube::{Action, Controller, Election, Handle, Health, Recorder, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const FINALIZER: &str = "example.com/website";
const MANAGER: &str = "website-operator";

/// A static site.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Website", namespaced)]
#[kube(status = "WebsiteStatus", derive = "PartialEq")]
#[derive(PartialEq)]
pub struct WebsiteSpec {
    /// File names and their contents.
    pub pages: BTreeMap<String, String>,
    /// The port of the service.
    pub port: i32,
}

/// The state of a site.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// The number of published pages.
    pub pages: usize,
    /// The generation of the spec that was applied.
    pub observed_generation: Option<i64>,
}

/// What the reconciler needs.
pub(crate) struct Operator {
    client: Client,
    recorder: Recorder,
}

async fn reconcile(
    request: Request<Website>,
    operator: Arc<Operator>,
) -> Result<Action, FinalizerError<kube::Error>> {
    // The finalizer has done its work before the object disappears.
    let Some(site) = request.object.clone() else { return Ok(Action::await_change()) };
    let namespace = site.namespace().unwrap_or_default();
    let sites = Api::<Website>::namespaced(operator.client.clone(), &namespace);
    finalizer(&sites, FINALIZER, site, async |event| match event {
        Event::Apply(site) => operator.apply(&sites, &site, &request).await,
        Event::Cleanup(site) => operator.clean_up(&site).await,
    })
    .await
}

impl Operator {
    async fn apply(
        &self,
        sites: &Api<Website>,
        site: &Website,
        request: &Request<Website>,
    ) -> Result<Action, kube::Error> {
        let (namespace, name) = (site.namespace().unwrap_or_default(), site.name_any());
        let apply = PatchParams::apply(MANAGER).force();
        let pages = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let written = pages.patch(&name, &apply, &Patch::Apply(pages_of(site))).await?;
        request.wrote(&written);
        let services = Api::<Service>::namespaced(self.client.clone(), &namespace);
        let written =
            services.patch(&name, &apply, &Patch::Apply(service_of(site))).await?;
        request.wrote(&written);
        let status = WebsiteStatus {
            pages: site.spec.pages.len(),
            observed_generation: site.metadata.generation,
        };
        if site.status.as_ref() != Some(&status) {
            let patch = json!({"status": status});
            sites
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            self.report(site, "Published", format!("{} pages", status.pages)).await;
        }
        Ok(Action::requeue(Duration::from_secs(3600)))
    }

    /// Kubernetes deletes the children. Remove things outside of the cluster here.
    async fn clean_up(&self, site: &Website) -> Result<Action, kube::Error> {
        self.report(site, "Removed", "the site is gone".to_owned()).await;
        Ok(Action::await_change())
    }

    /// Events are best effort: a failure must not fail the run.
    async fn report(&self, site: &Website, reason: &str, note: String) {
        let event = Report {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &site.object_ref(&())).await {
            tracing::warn!(%error, "cannot publish an event");
        }
    }
}

fn owned_by(site: &Website) -> ObjectMeta {
    ObjectMeta {
        name: site.metadata.name.clone(),
        owner_references: site.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn pages_of(site: &Website) -> ConfigMap {
    let data = Some(site.spec.pages.clone());
    ConfigMap { metadata: owned_by(site), data, ..ConfigMap::default() }
}

fn service_of(site: &Website) -> Service {
    let port = ServicePort { port: site.spec.port, ..ServicePort::default() };
    let selector = Some(BTreeMap::from([("site".to_owned(), site.name_any())]));
    let spec =
        ServiceSpec { ports: Some(vec![port]), selector, ..ServiceSpec::default() };
    Service { metadata: owned_by(site), spec: Some(spec), ..Service::default() }
}

/// Starts the controller of the sites in all namespaces.
pub(crate) fn start(
    client: &Client,
    namespace: &str,
    health: &Health,
) -> std::io::Result<Handle<Website>> {
    let config = watcher::Config::default;
    let recorder = Recorder::new(client.clone(), MANAGER.into());
    let operator = Operator { client: client.clone(), recorder };
    Controller::new(Api::<Website>::all(client.clone()), config())
        // Status writes do not change the generation; labels and deletes pass too.
        .predicate(predicates::generation)
        .owns(Api::<ConfigMap>::all(client.clone()), config())
        .owns(Api::<Service>::all(client.clone()), config())
        .timeout(Duration::from_secs(60))
        .leader(Election::new(client.clone(), namespace, MANAGER))
        .health(health)
        .start(reconcile, Arc::new(operator))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let health = Health::new();
    let _probes = health.serve("0.0.0.0:8080".parse()?).await?;
    let controller = start(&client, client.default_namespace(), &health)?;
    tokio::select! {
        result = controller.stopped() => result?,
        result = terminated() => result?,
    }
    let stopped = controller.drain(Duration::from_secs(20)).await;
    tracing::info!(left = stopped.left.len(), "stopped");
    Ok(())
}

/// Waits for the signal that the kubelet sends.
async fn terminated() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}
