//! Access to one Lease object.

use std::future::Future;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};

/// The requests of an election. A trait, so that tests can lose, delay and refuse them.
pub(super) trait Leases: Send + Sync + 'static {
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, kube::Error>> + Send;

    /// Creates the Lease. Fails with 409 if it exists.
    fn create(
        &self,
        lease: &Lease,
    ) -> impl Future<Output = Result<Lease, kube::Error>> + Send;

    /// Replaces the Lease. Fails with 409 unless it has the resourceVersion of `lease`.
    fn replace(
        &self,
        lease: &Lease,
    ) -> impl Future<Output = Result<Lease, kube::Error>> + Send;

    /// Returns a stream with an item after each change of the Lease, best effort.
    fn changes(&self) -> BoxStream<'static, ()>;
}

#[derive(Clone)]
pub(super) struct KubeLeases {
    api: Api<Lease>,
    name: String,
}

impl KubeLeases {
    pub(super) fn new(api: Api<Lease>, name: &str) -> Self {
        Self { api, name: name.to_owned() }
    }
}

impl Leases for KubeLeases {
    async fn get(&self) -> Result<Option<Lease>, kube::Error> {
        self.api.get_opt(&self.name).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let mut lease = lease.clone();
        lease.metadata.name = Some(self.name.clone());
        self.api.create(&PostParams::default(), &lease).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.api.replace(&self.name, &PostParams::default(), lease).await
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let config =
            watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        watcher(self.api.clone(), config)
            .default_backoff()
            .filter_map(async |event| match event {
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => Some(()),
                // The candidate reads the Lease at its start, and polls after an error.
                Ok(
                    watcher::Event::Init
                    | watcher::Event::InitApply(_)
                    | watcher::Event::InitDone,
                )
                | Err(_) => None,
            })
            .boxed()
    }
}
