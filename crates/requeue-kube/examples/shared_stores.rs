//! Two controllers with one shared store of Secrets and one leader election.
//!
//! Both annotate their objects with the number of Secrets in the namespace: one controls
//! `ConfigMap`s with the label `count=secrets`, the other `ServiceAccount`s. Run it with
//! `cargo run -p requeue-kube --example shared_stores`.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use requeue_kube::{
    Action, Candidate, Controller, Election, Handle, Index, Informer, Request,
};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The annotation that both controllers write.
pub(crate) const COUNT: &str = "example.com/secrets";

/// What both reconcilers need.
struct Context {
    client: Client,
    /// Secrets by namespace, updated with each event.
    secrets: Index<Secret, String>,
}

async fn annotate<K>(
    request: Request<K>,
    context: Arc<Context>,
) -> Result<Action, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let Some(object) = &request.object else { return Ok(Action::await_change()) };
    let namespace = object.namespace().unwrap_or_default();
    let count = context.secrets.get(&namespace).len().to_string();
    if object.annotations().get(COUNT) == Some(&count) {
        return Ok(Action::await_change());
    }
    // Another process may lead by now: check before the write, and send the resourceVersion
    // that was read in this term.
    if request.term.as_ref().is_some_and(|term| !term.is_held()) {
        return Ok(Action::backoff());
    }
    let patch = json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "annotations": {COUNT: count},
    }});
    let api = Api::<K>::namespaced(context.client.clone(), &namespace);
    let written = api
        .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    request.wrote(&written);
    Ok(Action::await_change())
}

/// Both controllers, and their common candidate.
pub(crate) struct Controllers {
    config_maps: Handle<ConfigMap>,
    accounts: Handle<ServiceAccount>,
    candidate: Candidate,
}

/// Starts both controllers for one namespace.
pub(crate) fn start(
    client: &Client,
    namespace: &str,
) -> Result<Controllers, Box<dyn std::error::Error>> {
    let config = watcher::Config::default;
    let candidate = Election::new(client.clone(), namespace, "shared-stores").start()?;
    let secrets =
        Informer::new(Api::<Secret>::namespaced(client.clone(), namespace), config());
    let index = secrets.index(|secret: &Secret| secret.namespace().into_iter().collect());
    let context = Arc::new(Context { client: client.clone(), secrets: index });

    // A Secret concerns all objects of its namespace.
    let maps = Controller::new(
        Api::<ConfigMap>::namespaced(client.clone(), namespace),
        config().labels("count=secrets"),
    );
    let store = maps.store();
    let all_maps = move |_: &Secret| -> Vec<_> {
        store.state().iter().map(|map| ObjectRef::from_obj(&**map)).collect()
    };
    let config_maps = maps
        .watches_informer(&secrets, all_maps)
        .leader(&candidate)
        .start(annotate, Arc::clone(&context))?;

    let accounts = Controller::new(
        Api::<ServiceAccount>::namespaced(client.clone(), namespace),
        config(),
    );
    let store = accounts.store();
    let all_accounts = move |_: &Secret| -> Vec<_> {
        store.state().iter().map(|account| ObjectRef::from_obj(&**account)).collect()
    };
    let accounts = accounts
        .watches_informer(&secrets, all_accounts)
        .leader(&candidate)
        .start(annotate, context)?;
    Ok(Controllers { config_maps, accounts, candidate })
}

impl Controllers {
    /// Stops both controllers, then releases the lease. Returns whether it is free.
    pub(crate) async fn stop(&self, within: Duration) -> bool {
        tokio::join!(self.config_maps.drain(within), self.accounts.drain(within));
        self.candidate.stop(within).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let controllers = start(&client, client.default_namespace())?;
    tokio::signal::ctrl_c().await?;
    controllers.stop(Duration::from_secs(20)).await;
    Ok(())
}
