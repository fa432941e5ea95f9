//! A cluster of three nodes without replicas, for tests.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;

use super::{connect, wait_until_up};

const NODES: usize = 3;

/// Starts a node for each port in the arguments, and later for each port in its input. Kills
/// all nodes when the input ends, which it does with the tests, even if they are killed.
const KEEPER: &str = r#"
folder=$1; shift
start() {
    mkdir -p "$folder/$1"
    redis-server --port "$1" --bind 127.0.0.1 --dir "$folder/$1" --save "" \
        --appendonly no --cluster-enabled yes --cluster-node-timeout 2000 \
        --repl-diskless-sync-delay 0 \
        >>"$folder/$1/log" 2>&1 &
    pids="$pids $!"
}
for port in "$@"; do start "$port"; done
while read -r port; do start "$port"; done
kill -KILL $pids 2>/dev/null
wait
rm -rf "$folder"
"#;

/// A running cluster. Dropping it stops the nodes.
#[derive(Debug)]
pub(crate) struct TestCluster {
    ports: Vec<u16>,
    keeper: Child,
}

impl TestCluster {
    /// Starts a cluster, if the machine has a server.
    pub(crate) async fn start() -> Option<Self> {
        if !has_server() {
            return None;
        }
        let ports: Vec<_> = (0..NODES).map(|_| free_port()).collect();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(folder());
        keeper.args(ports.iter().map(ToString::to_string));
        let keeper = keeper.stdin(Stdio::piped()).spawn().unwrap();
        let cluster = Self { ports, keeper };
        cluster.create().await;
        Some(cluster)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses().join(","))
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Stops a node. Its data is lost.
    pub(crate) async fn stop(&self, number: usize) {
        let mut node = self.node(number).await;
        let mut stop = redis::cmd("SHUTDOWN");
        // The reply is a closed connection.
        stop.arg("NOSAVE").exec_async(&mut node).await.unwrap_err();
    }

    /// Sends a signal to a node. The node is resumed when the result is dropped.
    pub(crate) async fn signal(&self, number: usize, name: &str) -> StoppedNode {
        let mut info = redis::cmd("INFO");
        let mut node = self.node(number).await;
        let info: String = info.arg("server").query_async(&mut node).await.unwrap();
        let pid = info.lines().find_map(|line| line.strip_prefix("process_id:"));
        let stopped = StoppedNode { pid: pid.unwrap().trim().to_owned() };
        stopped.signal(name);
        stopped
    }

    pub(crate) async fn restart(&self, number: usize) {
        let port = self.ports[number];
        writeln!(self.keeper.stdin.as_ref().unwrap(), "{port}").unwrap();
        wait_until_up(&url_of(port)).await;
        for port in &self.ports {
            wait_until_complete(*port).await;
        }
    }

    /// Lets nodes serve their slots while other nodes are down.
    pub(crate) async fn allow_missing_nodes(&self) {
        for number in 0..NODES {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg("cluster-require-full-coverage").arg("no");
            set.exec_async(&mut self.node(number).await).await.unwrap();
        }
    }

    /// Waits until a client is blocked by a command on any node.
    pub(crate) async fn wait_until_blocked(&self) {
        loop {
            for number in 0..NODES {
                let mut info = redis::cmd("INFO");
                info.arg("clients");
                let clients: String =
                    info.query_async(&mut self.node(number).await).await.unwrap();
                if !clients.contains("blocked_clients:0") {
                    return;
                }
            }
        }
    }

    /// Moves the slot of a Redis key to another node.
    pub(crate) async fn move_slot(&self, key: &str) {
        let migration = self.start_migration(key).await;
        migration.move_keys(&migration.remaining_keys().await).await;
        migration.finish().await;
    }

    /// Starts to move the slot of a Redis key to another node.
    pub(crate) async fn start_migration(&self, key: &str) -> Migration<'_> {
        let (slot, from) = self.slot_of(key).await;
        let mut ids = Vec::new();
        for number in 0..NODES {
            ids.push(self.cluster::<String>(number, &["MYID"]).await);
        }
        let to = (from + 1) % NODES;
        self.cluster::<()>(to, &["SETSLOT", &slot, "IMPORTING", &ids[from]]).await;
        self.cluster::<()>(from, &["SETSLOT", &slot, "MIGRATING", &ids[to]]).await;
        Migration { cluster: self, slot, from, to, ids }
    }

    /// Returns the slot of a Redis key and the node that has it.
    async fn slot_of(&self, key: &str) -> (String, usize) {
        let slot: u16 = self.cluster(0, &["KEYSLOT", key]).await;
        let slot = slot.to_string();
        for number in 0..NODES {
            let count: u64 = self.cluster(number, &["COUNTKEYSINSLOT", &slot]).await;
            if count > 0 {
                return (slot, number);
            }
        }
        panic!("no node has {key}");
    }

    /// Starts a replica of the node that has a Redis key.
    pub(crate) async fn add_replica(&self, key: &str) -> ReplicaPair {
        let (_, number) = self.slot_of(key).await;
        let id: String = self.cluster(number, &["MYID"]).await;
        let (primary, replica) = (self.ports[number], free_port());
        writeln!(self.keeper.stdin.as_ref().unwrap(), "{replica}").unwrap();
        wait_until_up(&url_of(replica)).await;
        let mut node = connect(&url_of(replica)).await;
        let mut meet = redis::cmd("CLUSTER");
        meet.arg("MEET").arg("127.0.0.1").arg(primary);
        meet.exec_async(&mut node).await.unwrap();
        let mut replicate = redis::cmd("CLUSTER");
        replicate.arg("REPLICATE").arg(id);
        // It fails until the node knows the primary.
        while replicate.exec_async(&mut node).await.is_err() {
            tokio::task::yield_now().await;
        }
        ReplicaPair { primary, replica }
    }

    async fn cluster<T: FromRedisValue>(&self, number: usize, args: &[&str]) -> T {
        let mut command = redis::cmd("CLUSTER");
        command.arg(args).query_async(&mut self.node(number).await).await.unwrap()
    }

    async fn node(&self, number: usize) -> MultiplexedConnection {
        connect(&url_of(self.ports[number])).await
    }

    async fn create(&self) {
        for port in &self.ports {
            wait_until_up(&url_of(*port)).await;
        }
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(self.addresses()).arg("--cluster-yes");
        let created = create.stdout(Stdio::null()).status().unwrap();
        assert!(created.success(), "{created}");
        for port in &self.ports {
            wait_until_complete(*port).await;
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().unwrap();
    }
}

/// A node that does not execute anything.
#[derive(Debug)]
pub(crate) struct StoppedNode {
    pid: String,
}

impl StoppedNode {
    pub(crate) fn resume(self) {
        drop(self);
    }

    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        assert!(kill.arg(format!("-{name}")).arg(&self.pid).status().unwrap().success());
    }
}

impl Drop for StoppedNode {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

/// A primary and its replica.
#[derive(Debug)]
pub(crate) struct ReplicaPair {
    primary: u16,
    replica: u16,
}

impl ReplicaPair {
    /// Lets the replica take over without losing data.
    ///
    /// Writes are paused until the replica has everything and the primary has stepped down.
    /// The takeover needs no votes, because busy nodes may not agree in time.
    pub(crate) async fn fail_over(self) {
        wait_for_info(self.replica, "master_link_status:up").await;
        // A replica that does not know all slots cannot choose its configuration epoch.
        wait_until_complete(self.replica).await;
        wait_for_replica(self.primary).await;
        let mut primary = connect(&url_of(self.primary)).await;
        let mut replica = connect(&url_of(self.replica)).await;
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(u32::MAX).arg("WRITE");
        pause.exec_async(&mut primary).await.unwrap();
        while replication_info(&mut primary, "master_repl_offset:").await
            != replication_info(&mut replica, "slave_repl_offset:").await
        {
            tokio::task::yield_now().await;
        }
        let mut take_over = redis::cmd("CLUSTER");
        take_over.arg("FAILOVER").arg("TAKEOVER");
        take_over.exec_async(&mut replica).await.unwrap();
        wait_for_info(self.replica, "role:master").await;
        wait_for_info(self.primary, "role:slave").await;
        let mut resume = redis::cmd("CLIENT");
        resume.arg("UNPAUSE").exec_async(&mut primary).await.unwrap();
    }
}

/// A slot that is being moved from one node to another.
#[derive(Debug)]
pub(crate) struct Migration<'a> {
    cluster: &'a TestCluster,
    slot: String,
    from: usize,
    to: usize,
    ids: Vec<String>,
}

impl Migration<'_> {
    /// Returns the Redis keys that were not moved yet.
    pub(crate) async fn remaining_keys(&self) -> Vec<String> {
        self.cluster.cluster(self.from, &["GETKEYSINSLOT", &self.slot, "99"]).await
    }

    pub(crate) async fn move_keys(&self, keys: &[String]) {
        let to = self.cluster.ports[self.to];
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(to).arg("").arg(0).arg(5000);
        migrate.arg("KEYS").arg(keys);
        migrate.exec_async(&mut self.cluster.node(self.from).await).await.unwrap();
    }

    /// Assigns the slot to the new node, after all keys were moved.
    pub(crate) async fn finish(self) {
        for number in [self.to, self.from, (self.from + 2) % NODES] {
            self.set_slot(number, &["NODE", &self.ids[self.to]]).await;
        }
    }

    /// Leaves the slot where it is, before any key was moved.
    pub(crate) async fn cancel(self) {
        for number in [self.from, self.to] {
            self.set_slot(number, &["STABLE"]).await;
        }
    }

    async fn set_slot(&self, number: usize, state: &[&str]) {
        let args = [&["SETSLOT", &self.slot], state].concat();
        self.cluster.cluster::<()>(number, &args).await;
    }
}

/// Returns the address of a cluster that tests share.
pub(crate) async fn shared_url() -> Option<String> {
    static SHARED: OnceCell<Option<TestCluster>> = OnceCell::const_new();
    let cluster = SHARED.get_or_init(TestCluster::start).await;
    cluster.as_ref().map(TestCluster::url)
}

/// Returns the value of a field of INFO replication.
async fn replication_info(
    node: &mut MultiplexedConnection,
    field: &str,
) -> Option<String> {
    let mut info = redis::cmd("INFO");
    let text: String = info.arg("replication").query_async(node).await.unwrap();
    text.lines().find_map(|line| line.strip_prefix(field)).map(str::to_owned)
}

/// Waits until INFO replication of a node has this line.
async fn wait_for_info(port: u16, line: &str) {
    let mut node = connect(&url_of(port)).await;
    while replication_info(&mut node, line).await.is_none() {
        tokio::task::yield_now().await;
    }
}

/// Waits until a primary knows its replica. Before that it would ignore a takeover.
async fn wait_for_replica(port: u16) {
    let mut node = connect(&url_of(port)).await;
    let mut own = redis::cmd("CLUSTER");
    let id: String = own.arg("MYID").query_async(&mut node).await.unwrap();
    loop {
        let mut list = redis::cmd("CLUSTER");
        list.arg("REPLICAS").arg(&id);
        let replicas: Vec<String> = list.query_async(&mut node).await.unwrap();
        if !replicas.is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until a node knows the nodes of all slots.
async fn wait_until_complete(port: u16) {
    let mut node = connect(&url_of(port)).await;
    loop {
        let mut command = redis::cmd("CLUSTER");
        let info: String = command.arg("INFO").query_async(&mut node).await.unwrap();
        if info.contains("cluster_state:ok") {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn url_of(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Returns whether the machine has a server.
///
/// # Panics
///
/// If it has none and `CI` is set.
#[expect(clippy::print_stdout, reason = "tells the user about skipped tests")]
fn has_server() -> bool {
    let mut version = Command::new("redis-server");
    let has_server = version.arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_server {
        let is_required = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!is_required, "redis-server is missing: install it to test clusters");
        println!("skipped: redis-server is missing");
    }
    has_server
}

/// Returns a free port whose bus port, 10000 above it, is free, too.
fn free_port() -> u16 {
    loop {
        let port = super::free_port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
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
