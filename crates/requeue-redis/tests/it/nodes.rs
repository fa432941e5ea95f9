//! A cluster of three nodes without replicas, for these tests alone.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;

use crate::server;

const COUNT: usize = 3;

/// Starts the nodes that it is given the ports of, each in a folder of its own, and later, or
/// again, those whose ports are its input. It stops them when that ends: with the tests, however
/// those end.
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

    /// Stops a node, with all that it has in memory.
    pub(crate) async fn stop(&self, number: usize) {
        let mut node = self.node(number).await;
        let mut stop = redis::cmd("SHUTDOWN");
        // It answers by closing the connection.
        stop.arg("NOSAVE").exec_async(&mut node).await.unwrap_err();
    }

    pub(crate) async fn start_again(&self, number: usize) {
        let port = self.ports[number];
        writeln!(self.keeper.stdin.as_ref().unwrap(), "{port}").unwrap();
        let address = &self.addresses()[number];
        server::until_it_answers(&format!("redis://{address}")).await;
        for address in self.addresses() {
            until_it_is_whole(&address).await;
        }
    }

    /// Lets nodes serve their slots when another is gone.
    pub(crate) async fn serve_what_is_there(&self) {
        for number in 0..COUNT {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg("cluster-require-full-coverage").arg("no");
            set.exec_async(&mut self.node(number).await).await.unwrap();
        }
    }

    pub(crate) async fn until_somebody_waits(&self) {
        loop {
            for number in 0..COUNT {
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

    /// Moves the slot of a Redis key, with all that is in it, to another node.
    pub(crate) async fn move_slot(&self, key: &str) {
        let moving = self.open_slot(key).await;
        moving.carry(&moving.left().await).await;
        moving.settle().await;
    }

    /// The slot of a Redis key, and the node that has it.
    async fn home_of(&self, key: &str) -> (String, usize) {
        let slot: u16 = self.cluster(0, &["KEYSLOT", key]).await;
        let slot = slot.to_string();
        for number in 0..COUNT {
            let count: u64 = self.cluster(number, &["COUNTKEYSINSLOT", &slot]).await;
            if count > 0 {
                return (slot, number);
            }
        }
        panic!("no node has {key}");
    }

    /// Adds a node that is a replica of the one that has a Redis key.
    pub(crate) async fn add_replica(&self, key: &str) -> Pair {
        let (_, number) = self.home_of(key).await;
        let (id, of) =
            (self.cluster::<String>(number, &["MYID"]).await, self.ports[number]);
        let port = free_port();
        writeln!(self.keeper.stdin.as_ref().unwrap(), "{port}").unwrap();
        server::until_it_answers(&url_of(port)).await;
        let mut replica = server::connection(&url_of(port)).await;
        let mut meet = redis::cmd("CLUSTER");
        meet.arg("MEET").arg("127.0.0.1").arg(of);
        meet.exec_async(&mut replica).await.unwrap();
        let mut replicate = redis::cmd("CLUSTER");
        replicate.arg("REPLICATE").arg(id);
        // It has to hear of the others first.
        while replicate.exec_async(&mut replica).await.is_err() {
            tokio::task::yield_now().await;
        }
        Pair { first: of, second: port }
    }

    /// Begins to move the slot of a Redis key to another node.
    pub(crate) async fn open_slot(&self, key: &str) -> Moving<'_> {
        let (slot, from) = self.home_of(key).await;
        let mut ids = Vec::new();
        for number in 0..COUNT {
            ids.push(self.cluster::<String>(number, &["MYID"]).await);
        }
        let to = (from + 1) % COUNT;
        self.cluster::<()>(to, &["SETSLOT", &slot, "IMPORTING", &ids[from]]).await;
        self.cluster::<()>(from, &["SETSLOT", &slot, "MIGRATING", &ids[to]]).await;
        Moving { nodes: self, slot, from, to, ids }
    }

    async fn cluster<T: FromRedisValue>(&self, number: usize, args: &[&str]) -> T {
        let mut command = redis::cmd("CLUSTER");
        command.arg(args).query_async(&mut self.node(number).await).await.unwrap()
    }

    async fn node(&self, number: usize) -> MultiplexedConnection {
        server::connection(&format!("redis://{}", self.addresses()[number])).await
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

/// Two nodes, of which one is the replica of the other.
#[derive(Debug)]
pub(crate) struct Pair {
    first: u16,
    second: u16,
}

impl Pair {
    /// Lets the replica take over, with all that there is. Nothing is written between its
    /// having all and the first one's hearing of it; and it asks nobody, since nodes that
    /// are busy may not agree in the time that they give themselves.
    pub(crate) async fn fail_over(self) {
        until_it_tells(self.second, "master_link_status:up").await;
        // One that has not heard of all slots does not know whom it has to outdo.
        until_it_is_whole(&format!("127.0.0.1:{}", self.second)).await;
        until_it_knows_a_replica(self.first).await;
        let mut first = server::connection(&url_of(self.first)).await;
        let mut second = server::connection(&url_of(self.second)).await;
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(u32::MAX).arg("WRITE");
        pause.exec_async(&mut first).await.unwrap();
        while told(&mut first, "master_repl_offset:").await
            != told(&mut second, "slave_repl_offset:").await
        {
            tokio::task::yield_now().await;
        }
        let mut take_over = redis::cmd("CLUSTER");
        take_over.arg("FAILOVER").arg("TAKEOVER");
        take_over.exec_async(&mut second).await.unwrap();
        until_it_tells(self.second, "role:master").await;
        until_it_tells(self.first, "role:slave").await;
        let mut go_on = redis::cmd("CLIENT");
        go_on.arg("UNPAUSE").exec_async(&mut first).await.unwrap();
    }
}

/// What a node says of who follows whom, behind these words.
async fn told(node: &mut MultiplexedConnection, words: &str) -> Option<String> {
    let mut info = redis::cmd("INFO");
    let text: String = info.arg("replication").query_async(node).await.unwrap();
    text.lines().find_map(|line| line.strip_prefix(words)).map(str::to_owned)
}

/// Until a node says this of who follows whom.
async fn until_it_tells(port: u16, words: &str) {
    let mut node = server::connection(&url_of(port)).await;
    while told(&mut node, words).await.is_none() {
        tokio::task::yield_now().await;
    }
}

/// A node does not heed one of which it has not heard yet that it is its replica.
async fn until_it_knows_a_replica(port: u16) {
    let mut node = server::connection(&url_of(port)).await;
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

fn url_of(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// A slot on its way from one node to another.
#[derive(Debug)]
pub(crate) struct Moving<'a> {
    nodes: &'a Nodes,
    slot: String,
    from: usize,
    to: usize,
    ids: Vec<String>,
}

impl Moving<'_> {
    /// The Redis keys that are not there yet.
    pub(crate) async fn left(&self) -> Vec<String> {
        self.nodes.cluster(self.from, &["GETKEYSINSLOT", &self.slot, "99"]).await
    }

    pub(crate) async fn carry(&self, keys: &[String]) {
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.nodes.ports[self.to]).arg("").arg(0).arg(5000);
        migrate.arg("KEYS").arg(keys);
        migrate.exec_async(&mut self.nodes.node(self.from).await).await.unwrap();
    }

    /// Once all is there: the node has the slot.
    pub(crate) async fn settle(self) {
        for number in [self.to, self.from, (self.from + 2) % COUNT] {
            self.set(number, &["NODE", &self.ids[self.to]]).await;
        }
    }

    /// Before anything is there: the slot stays where it is.
    pub(crate) async fn call_off(self) {
        for number in [self.from, self.to] {
            self.set(number, &["STABLE"]).await;
        }
    }

    async fn set(&self, number: usize, state: &[&str]) {
        let words = [&["SETSLOT", &self.slot], state].concat();
        self.nodes.cluster::<()>(number, &words).await;
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
