//! The API server of `scripts/with-apiserver`, and control over it.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::support::{eventually, random};

/// Tests that stop the server hold the write lock; the others share it.
static SERVER: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

pub(crate) struct Cluster {
    folder: PathBuf,
    config: Config,
    pub(crate) client: Client,
    /// A new namespace.
    pub(crate) namespace: String,
    _lock: Lock,
}

enum Lock {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Cluster {
    /// Connects to the server together with other tests. Returns `None` to skip the test.
    pub(crate) async fn shared() -> Option<Self> {
        let folder = folder()?;
        let guard = Arc::clone(&SERVER).read_owned().await;
        Some(Self::connect(folder, Lock::Shared { _guard: guard }).await)
    }

    /// Connects to the server alone, to stop and start it.
    pub(crate) async fn alone() -> Option<Self> {
        let folder = folder()?;
        let guard = Arc::clone(&SERVER).write_owned().await;
        Some(Self::connect(folder, Lock::Alone { _guard: guard }).await)
    }

    /// As [`alone`](Self::alone), for a test that takes minutes.
    pub(crate) async fn alone_and_slow() -> Option<Self> {
        if std::env::var_os("REQUEUE_KUBE_SLOW").is_none() {
            println!("skipped: slow; scripts/test-kube runs it");
            return None;
        }
        Self::alone().await
    }

    async fn connect(folder: PathBuf, lock: Lock) -> Self {
        let config = config().await;
        let client = Client::try_from(config.clone()).unwrap();
        let namespace = format!("test-{:08x}", random());
        let cluster = Self { folder, config, client, namespace, _lock: lock };
        // A failed test may have left it stopped.
        cluster.start_apiserver().await;
        cluster.create_namespace(&cluster.namespace).await;
        cluster
    }

    pub(crate) async fn create_namespace(&self, name: &str) {
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let api = Api::<Namespace>::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns a new connection.
    pub(crate) fn new_client(&self) -> Client {
        Client::try_from(self.config.clone()).unwrap()
    }

    /// Returns a client that acts as another user, who has no rights at first.
    pub(crate) fn client_as(&self, user: &str) -> Client {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).unwrap()
    }

    /// Returns a client without credentials.
    pub(crate) fn anonymous_client(&self) -> Client {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        Client::try_from(config).unwrap()
    }

    /// Kills the API server and waits until it is gone.
    pub(crate) async fn kill_apiserver(&self) {
        std::fs::remove_file(self.folder.join("up")).unwrap();
        let file = self.folder.join("apiserver.pid");
        let pid = std::fs::read_to_string(&file).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        eventually("the API server is gone", Duration::from_secs(10), async || {
            !file.exists()
        })
        .await;
    }

    /// Starts the API server, unless it runs, and waits until it is ready.
    pub(crate) async fn start_apiserver(&self) {
        let client = self.new_client();
        eventually("the API server is ready", Duration::from_secs(180), async || {
            // A server that exits during its start is started again.
            if !self.folder.join("up").exists() {
                self.print_log();
                std::fs::write(self.folder.join("up"), "").unwrap();
            }
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(request).await.is_ok()
        })
        .await;
    }

    /// Prints the reason of an unexpected exit.
    fn print_log(&self) {
        if std::fs::remove_file(self.folder.join("failed")).is_ok() {
            let log = std::fs::read_to_string(self.folder.join("apiserver.log")).unwrap();
            let end: Vec<_> = log.lines().rev().take(10).collect();
            println!(
                "the API server has exited; end of its log, last line first: {end:#?}"
            );
        }
    }

    /// Deletes an object in etcd, behind the back of the API server.
    pub(crate) async fn delete_in_etcd(&self, plural: &str, name: &str) {
        use base64::Engine;
        let key = format!("/registry/{plural}/{}/{name}", self.namespace);
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        let url = std::env::var("REQUEUE_ETCD_URL").unwrap();
        let status = tokio::process::Command::new("curl")
            .args(["--silent", "--fail", "--output", "/dev/null", "--data"])
            .arg(format!("{{\"key\":\"{key}\"}}"))
            .arg(format!("{url}/v3/kv/deleterange"))
            .status()
            .await
            .unwrap();
        assert!(status.success(), "etcd did not delete {name}");
    }
}

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("REQUEUE_APISERVER").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: REQUEUE_APISERVER is not set; run scripts/test-kube");
    }
    folder
}

async fn config() -> Config {
    let path = std::env::var_os("KUBECONFIG").unwrap();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}
