//! Small tools for tests.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use requeue::{Clock, SystemClock};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// For conditions that hold within milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until a condition of the server or of another process holds.
pub(crate) async fn eventually(
    what: &str,
    within: Duration,
    mut holds: impl AsyncFnMut() -> bool,
) {
    let deadline = SystemClock.now() + within;
    while !holds().await {
        assert!(SystemClock.now() < deadline, "not within {within:?}: {what}");
        pause(Duration::from_millis(20)).await;
    }
}

/// Lets time pass: for outages of a given length, and to show that nothing happens.
pub(crate) async fn pause(time: Duration) {
    SystemClock.timer(SystemClock.now() + time).await;
}

pub(crate) fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

pub(crate) fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get("value")).map_or("", String::as_str)
}

pub(crate) async fn create(api: &Api<ConfigMap>, name: &str, value: &str) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name, value)).await.unwrap()
}

pub(crate) async fn edit(api: &Api<ConfigMap>, name: &str, value: &str) -> ConfigMap {
    let patch = serde_json::json!({"data": {"value": value}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Creates many objects, several at a time.
pub(crate) async fn create_many(
    api: &Api<ConfigMap>,
    names: impl Iterator<Item = String>,
) {
    use futures::StreamExt;
    futures::stream::iter(names)
        .for_each_concurrent(16, |name| async move {
            create(api, &name, "first").await;
        })
        .await;
}

/// Returns a client that waits before requests and before parts of their replies.
///
/// `delays` gets the path and the query of a request.
pub(crate) fn slow_client(
    client: &Client,
    delays: impl Fn(&str) -> Delays + Send + Sync + 'static,
) -> Client {
    use http_body_util::BodyExt;
    use kube::client::Body;
    let namespace = client.default_namespace().to_owned();
    let (client, delays) = (client.clone(), std::sync::Arc::new(delays));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, delays) = (client.clone(), std::sync::Arc::clone(&delays));
        async move {
            let path = request.uri().path_and_query().map_or("", |path| path.as_str());
            let delay = delays(path);
            if !delay.request.is_zero() {
                pause(delay.request).await;
            }
            let (head, body) = client.send(request).await?.into_parts();
            let body = body.boxed_unsync();
            if delay.parts.is_zero() {
                return Ok::<_, kube::Error>(http::Response::from_parts(head, body));
            }
            // Each part is late by the same time, so parts do not wait for each other.
            let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(async move {
                let mut body = body;
                while let Some(frame) = body.frame().await {
                    if sender.send((SystemClock.now() + delay.parts, frame)).is_err() {
                        return;
                    }
                }
            });
            let parts = futures::stream::unfold(receiver, |mut receiver| async move {
                let (due, frame) = receiver.recv().await?;
                SystemClock.timer(due).await;
                Some((frame, receiver))
            });
            let body = http_body_util::StreamBody::new(parts).boxed_unsync();
            Ok(http::Response::from_parts(head, body))
        }
    });
    Client::new(service, namespace)
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Delays {
    pub(crate) request: Duration,
    pub(crate) parts: Duration,
}

/// Adds a row to the table that `scripts/test-kube` prints.
pub(crate) fn report(trap: u32, what: &str, kube_runtime: &str, ours: &str) {
    println!("trap {trap}, {what}: kube-runtime: {kube_runtime}; requeue-kube: {ours}");
    if let Some(path) = std::env::var_os("REQUEUE_KUBE_TABLE") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{trap}\t{what}\t{kube_runtime}\t{ours}").unwrap();
    }
}

/// Holds back the requests of its clients while it is closed.
pub(crate) struct Gate(tokio::sync::watch::Sender<bool>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(tokio::sync::watch::Sender::new(true))
    }

    pub(crate) fn close(&self) {
        self.0.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn client(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (client, open) = (client.clone(), self.0.subscribe());
        let service =
            tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let (client, mut open) = (client.clone(), open.clone());
                async move {
                    open.wait_for(|open| *open).await.map(drop).unwrap();
                    client.send(request).await
                }
            });
        Client::new(service, namespace)
    }
}
