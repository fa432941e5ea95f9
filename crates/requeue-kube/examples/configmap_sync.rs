//! Copies `ConfigMap`s with the label `sync=true` from one namespace to another.
//!
//! Run it with `cargo run -p requeue-kube --example configmap_sync`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, runtime::watcher};
use requeue_kube::{Action, Controller, Handle, Request};

async fn sync(
    request: Request<ConfigMap>,
    copies: Arc<Api<ConfigMap>>,
) -> kube::Result<Action> {
    let name = &request.key.name;
    if let Some(source) = request.object {
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let copy =
            ConfigMap { metadata, data: source.data.clone(), ..ConfigMap::default() };
        copies
            .patch(
                name,
                &PatchParams::apply("configmap-sync").force(),
                &Patch::Apply(copy),
            )
            .await?;
    } else if copies.get_opt(name).await?.is_some() {
        copies.delete(name, &DeleteParams::default()).await?;
    }
    Ok(Action::await_change())
}

/// Starts the controller.
pub(crate) fn start(
    client: &Client,
    from: &str,
    to: &str,
) -> std::io::Result<Handle<ConfigMap>> {
    let sources = Api::namespaced(client.clone(), from);
    let copies = Arc::new(Api::namespaced(client.clone(), to));
    Controller::new(sources, watcher::Config::default().labels("sync=true"))
        .start(sync, copies)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let controller = start(&Client::try_default().await?, "default", "copies")?;
    controller.synced().await?;
    tokio::signal::ctrl_c().await?;
    controller.drain(Duration::from_secs(30)).await;
    Ok(())
}
