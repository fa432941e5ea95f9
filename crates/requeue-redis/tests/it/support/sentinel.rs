//! A primary, a replica and three sentinels, for tests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redis::aio::MultiplexedConnection;

use super::server::TestServer;
use super::{connect, free_port, wait_until_up};

const SENTINELS: usize = 3;

/// Sentinels and their servers. Dropping them stops all.
pub(crate) struct TestSentinels {
    pub(crate) servers: [TestServer; 2],
    ports: Vec<u16>,
    children: Vec<Child>,
    folder: PathBuf,
}

impl TestSentinels {
    /// Starts them, if the machine has a server.
    pub(crate) async fn start() -> Option<Self> {
        let primary = TestServer::start().await?;
        let replica = TestServer::start().await?;
        replica.replicate(&primary).await;
        let folder = format!("requeue-sentinels-{}-{}", std::process::id(), primary.port);
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let ports: Vec<_> = (0..SENTINELS).map(|_| free_port()).collect();
        let mut all =
            Self { servers: [primary, replica], children: Vec::new(), ports, folder };
        for port in all.ports.clone() {
            all.children.push(all.spawn(port));
        }
        for port in &all.ports {
            wait_until_up(&format!("redis://127.0.0.1:{port}")).await;
        }
        all.wait_until_complete().await;
        Some(all)
    }

    /// Returns an address with a sentinel that does not exist, and all others.
    pub(crate) fn url(&self) -> String {
        let hosts = self.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let hosts: Vec<_> = hosts.collect();
        format!("redis+sentinel://127.0.0.1:{},{}/main", free_port(), hosts.join(","))
    }

    /// Waits until all sentinels know each other and the replica: before, they cannot fail
    /// over.
    async fn wait_until_complete(&self) {
        for port in &self.ports {
            let mut sentinel = self.sentinel(*port).await;
            loop {
                let mut info = redis::cmd("INFO");
                let info: String =
                    info.arg("sentinel").query_async(&mut sentinel).await.unwrap();
                if info.contains(&format!(
                    "status=ok,address=127.0.0.1:{}",
                    self.servers[0].port
                )) && info.contains("slaves=1,sentinels=3")
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    async fn sentinel(&self, port: u16) -> MultiplexedConnection {
        connect(&format!("redis://127.0.0.1:{port}")).await
    }

    /// A sentinel writes to its configuration.
    fn spawn(&self, port: u16) -> Child {
        let file = self.folder.join(format!("{port}.conf"));
        let primary = self.servers[0].port;
        let settings = format!(
            "port {port}\nbind 127.0.0.1\n\
             sentinel monitor main 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 5000\n"
        );
        std::fs::write(&file, settings).unwrap();
        let mut sentinel = Command::new("redis-server");
        sentinel.arg(file).arg("--sentinel").stdout(Stdio::null());
        sentinel.spawn().expect("redis-server can be started")
    }
}

impl Drop for TestSentinels {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}
