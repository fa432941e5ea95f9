//! Controllers on the fake API server, with the paused time of tokio.

mod election;
mod feeds;
mod kinds;
mod lifecycle;
mod metrics;
mod owners;
mod queueing;
mod relist;
mod run;
mod sharing;
mod writes;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use requeue::TokioClock;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::*;
use crate::testing::{FakeCluster, Fault, Verb};
use crate::{Action, Handle, Reasons, Request};

/// One call of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    /// The value of the object's only entry; `None` if the object is gone.
    value: Option<String>,
    reasons: Reasons,
}

/// Receives the calls of a reconciler.
struct Calls(UnboundedReceiver<Seen>);

impl Calls {
    fn new() -> (UnboundedSender<Seen>, Self) {
        let (sender, receiver) = unbounded_channel();
        (sender, Self(receiver))
    }

    /// Waits for a call.
    async fn next(&mut self) -> Seen {
        within(self.0.recv()).await.expect("the controller runs")
    }

    /// Waits for calls and returns the values by name; the last of a name counts.
    async fn take(&mut self, count: usize) -> BTreeMap<String, Option<String>> {
        let mut seen = BTreeMap::new();
        for _ in 0..count {
            let Seen { name, value, .. } = self.next().await;
            seen.insert(name, value);
        }
        seen
    }

    /// Returns the calls that have been made, once all tasks wait.
    async fn rest(&mut self) -> Vec<Seen> {
        settle().await;
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// Waits for a future, for at most an hour of paused time.
async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(3600), future).await.expect("it takes less than an hour")
}

/// Lets all other tasks run until they wait. Time stands still.
async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        ..ObjectMeta::default()
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let data = BTreeMap::from([("key".to_owned(), value.to_owned())]);
    ConfigMap {
        metadata: meta("default", name),
        data: Some(data),
        ..ConfigMap::default()
    }
}

fn value_of(map: &ConfigMap) -> String {
    map.data.iter().flatten().map(|(_, value)| value.clone()).collect()
}

fn secret(
    namespace: &str,
    name: &str,
    owner: impl Into<Option<OwnerReference>>,
) -> Secret {
    let mut secret = Secret { metadata: meta(namespace, name), ..Secret::default() };
    secret.metadata.owner_references = owner.into().map(|owner| vec![owner]);
    secret
}

fn owned_by(api_version: &str, kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: "1".to_owned(),
        ..OwnerReference::default()
    }
}

/// A controller of config maps on paused time.
fn controller(cluster: &FakeCluster) -> Controller<ConfigMap> {
    controller_with(cluster, watcher::Config::default())
}

fn controller_with(
    cluster: &FakeCluster,
    config: watcher::Config,
) -> Controller<ConfigMap> {
    Controller::new(Api::all(cluster.client()), config).clock(TokioClock::new())
}

fn secrets(cluster: &FakeCluster) -> Api<Secret> {
    Api::all(cluster.client())
}

/// Starts a controller whose reconciler only reports its calls.
fn start(controller: Controller<ConfigMap>) -> (Handle<ConfigMap>, Calls) {
    let (sender, calls) = Calls::new();
    let handle = controller.start(record, Arc::new(sender)).expect("there is a runtime");
    (handle, calls)
}

fn seen(request: &Request<ConfigMap>) -> Seen {
    Seen {
        name: request.key.name.clone(),
        value: request.object.as_deref().map(value_of),
        reasons: request.reasons,
    }
}

async fn record(
    request: Request<ConfigMap>,
    calls: Arc<UnboundedSender<Seen>>,
) -> Result<Action, String> {
    calls.send(seen(&request)).map_err(|error| error.to_string())?;
    Ok(Action::await_change())
}
