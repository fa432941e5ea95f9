//! A cluster of three nodes without replicas, for these tests alone.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::OnceCell;

use crate::server;

const COUNT: usize = 3;

/// Starts the nodes that it is given the ports of, each in a folder of its own, and stops
/// them when its input ends: with the tests, however those end.
const KEEPER: &str = r#"
folder=$1; shift
for port in "$@"; do
    mkdir -p "$folder/$port"
    redis-server --port "$port" --bind 127.0.0.1 --dir "$folder/$port" --save "" \
        --appendonly no --cluster-enabled yes --cluster-node-timeout 2000 \
        >"$folder/$port/log" 2>&1 &
    pids="$pids $!"
done
cat >/dev/null
kill -CONT $pids
kill -KILL $pids
wait
rm -rf "$folder"
"#;

/// The nodes; they stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) ports: Vec<u16>,
    keeper: Child,
}

impl Nodes {
    /// Starts a cluster, on a machine that has a server to start.
    pub(crate) async fn start() -> Option<Self> {
        if !has_server() {
            return None;
        }
        let ports: Vec<_> = (0..COUNT).map(|_| free_port()).collect();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(folder());
        keeper.args(ports.iter().map(ToString::to_string));
        let keeper = keeper.stdin(Stdio::piped()).spawn().unwrap();
        let nodes = Self { ports, keeper };
        nodes.join().await;
        Some(nodes)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses().join(","))
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    async fn join(&self) {
        for address in self.addresses() {
            server::until_it_answers(&format!("redis://{address}")).await;
        }
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(self.addresses()).arg("--cluster-yes");
        let created = create.stdout(Stdio::null()).status().unwrap();
        assert!(created.success(), "{created}");
        for address in self.addresses() {
            until_it_is_whole(&address).await;
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().unwrap();
    }
}

/// The address of a cluster that tests share.
pub(crate) async fn shared_url() -> Option<String> {
    static SHARED: OnceCell<Option<Nodes>> = OnceCell::const_new();
    let nodes = SHARED.get_or_init(Nodes::start).await;
    nodes.as_ref().map(Nodes::url)
}

/// Until a node knows of all slots.
pub(crate) async fn until_it_is_whole(address: &str) {
    let mut node = server::connection(&format!("redis://{address}")).await;
    loop {
        let mut command = redis::cmd("CLUSTER");
        let info: String = command.arg("INFO").query_async(&mut node).await.unwrap();
        if info.contains("cluster_state:ok") {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// # Panics
///
/// Where tests must not be left out, if there is no server to start.
#[expect(clippy::print_stdout, reason = "whoever runs the tests is told")]
fn has_server() -> bool {
    let mut version = Command::new("redis-server");
    let there = version.arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!must, "redis-server is missing: install it to test with a cluster");
        println!("left out: redis-server is missing");
    }
    there
}

/// A port that is free, and so is the one 10000 above it, by which nodes talk.
fn free_port() -> u16 {
    loop {
        let port = server::free_port();
        let other = port.checked_add(10_000);
        if other.is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}

fn folder() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("requeue-cluster-{}-{count}", std::process::id());
    std::env::temp_dir().join(name)
}
