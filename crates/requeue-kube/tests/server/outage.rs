//! An API server that is away, and credentials that expire.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use requeue::{Clock, SystemClock};
use requeue_kube::{Action, Controller, Handle, Request};
use serde_json::json;

use crate::cluster::Cluster;
use crate::journal::Journal;
use crate::support::{SECOND, SOON, create, edit, eventually, pause, report, value};

async fn note(
    request: Request<ConfigMap>,
    journal: Arc<Journal>,
) -> Result<Action, kube::Error> {
    journal.note(&request.key, request.object.as_deref().map(value));
    Ok(Action::await_change())
}

/// Returns the number of open sockets of this process.
fn sockets() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let target = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(file.ok()?.path()).ok()
    };
    files
        .filter_map(target)
        .filter(|path| path.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Kills the API server for a while, with ten watches open.
async fn outage(cluster: &Cluster, length: Duration) {
    let api = cluster.config_maps();
    create(&api, "root", "1").await;
    let journal = Journal::default();
    let client = cluster.new_client();
    let mut controller = Controller::new(
        Api::<ConfigMap>::namespaced(client.clone(), &cluster.namespace),
        watcher::Config::default(),
    );
    for _ in 0..9 {
        let secrets = Api::<Secret>::namespaced(client.clone(), &cluster.namespace);
        controller = controller.owns(secrets, watcher::Config::default());
    }
    let handle: Handle<ConfigMap> =
        controller.start(note, Arc::new(journal.clone())).unwrap();
    eventually("the root is reconciled", SOON, async || journal.saw("root", "1")).await;
    let before = sockets();
    cluster.kill_apiserver().await;
    let deadline = SystemClock.now() + length;
    let mut most = 0;
    while SystemClock.now() < deadline {
        most = most.max(sockets());
        pause(SECOND / 10).await;
    }
    assert!(most <= before + 10, "{most} sockets during the outage, {before} before");
    cluster.start_apiserver().await;
    let back = SystemClock.now();
    edit(&Api::namespaced(cluster.new_client(), &cluster.namespace), "root", "2").await;
    eventually("the controller recovers", SOON, async || journal.saw("root", "2")).await;
    let waited = SystemClock.now() - back;
    assert!(waited < 45 * SECOND, "recovered after {waited:?}");
    let errors: u64 = handle.watches().iter().map(|watch| watch.errors).sum();
    report(
        20,
        &format!("API server away for {} s, 10 watches", length.as_secs()),
        "not compared",
        &format!(
            "{errors} errors, at most {most} sockets ({before} before), back after {waited:.1?}"
        ),
    );
    handle.stop(SOON).await;
}

// Trap 20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_needs_few_sockets() {
    let Some(cluster) = Cluster::alone().await else { return };
    outage(&cluster, 5 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_two_minutes_needs_few_sockets() {
    let Some(cluster) = Cluster::alone_and_slow().await else { return };
    outage(&cluster, 120 * SECOND).await;
}

/// Returns a client whose token can be replaced, as a rotated file would.
fn client_with_token(cluster: &Cluster, token: &Arc<Mutex<String>>) -> Client {
    let client = cluster.anonymous_client();
    let token = Arc::clone(token);
    let namespace = cluster.namespace.clone();
    let service =
        tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            let client = client.clone();
            let value = format!("Bearer {}", token.lock().unwrap()).parse().unwrap();
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
            async move { client.send(request).await }
        });
    Client::new(service, namespace)
}

async fn account(cluster: &Cluster, name: &str) -> String {
    let api =
        Api::<ServiceAccount>::namespaced(cluster.client.clone(), &cluster.namespace);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let new = ServiceAccount { metadata, ..ServiceAccount::default() };
    api.create(&PostParams::default(), &new).await.unwrap();
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token =
        api.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    token.status.unwrap().token.unwrap()
}

// A token that is no longer valid: each watch says so, and recovers with the next token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_is_reported_and_replaced() {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "root", "1").await;
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
    }))
    .unwrap();
    let roles = Api::<Role>::namespaced(cluster.client.clone(), &cluster.namespace);
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "accounts"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": format!("system:serviceaccounts:{}", cluster.namespace),
        }],
    }))
    .unwrap();
    let bindings =
        Api::<RoleBinding>::namespaced(cluster.client.clone(), &cluster.namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let token = Arc::new(Mutex::new(account(&cluster, "first").await));
    let api = Api::<ConfigMap>::namespaced(
        client_with_token(&cluster, &token),
        &cluster.namespace,
    );
    let journal = Journal::default();
    let handle = Controller::new(api, watcher::Config::default().timeout(2))
        .start(note, Arc::new(journal.clone()))
        .unwrap();
    eventually("the root is reconciled", SOON, async || journal.saw("root", "1")).await;
    let accounts =
        Api::<ServiceAccount>::namespaced(cluster.client.clone(), &cluster.namespace);
    accounts.delete("first", &DeleteParams::default()).await.unwrap();
    eventually("the watch fails", 2 * SOON, async || handle.watches()[0].errors > 0)
        .await;
    let error = handle.watches()[0].last_error.clone().unwrap();
    assert!(error.contains("Unauthorized"), "{error}");
    *token.lock().unwrap() = account(&cluster, "second").await;
    edit(&cluster.config_maps(), "root", "2").await;
    eventually("the watch recovers", 2 * SOON, async || journal.saw("root", "2")).await;
    handle.stop(SOON).await;
}
