//! A server for one test.

use std::process::{Child, Command, Stdio};

use super::{connect, free_port, url, wait_until_up};

/// A server that a test may stop, and whose commands it may count.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) port: u16,
    child: Child,
    args: Vec<String>,
}

impl TestServer {
    /// Starts a server, if the machine has one.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// As [`start`](Self::start), with more settings.
    pub(crate) async fn start_with(args: &[&str]) -> Option<Self> {
        url()?;
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        let port = free_port();
        let url = format!("redis://127.0.0.1:{port}");
        let server = Self { url, port, child: spawn(port, &args), args };
        wait_until_up(&server.url).await;
        Some(server)
    }

    pub(crate) async fn command(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        let mut server = connect(&self.url).await;
        command.arg(&words[1..]).query_async(&mut server).await.unwrap()
    }

    /// Makes this a replica. Waits until it has all data.
    pub(crate) async fn replicate(&self, primary: &Self) {
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]).await;
        while !self.info("replication").await.contains("master_link_status:up") {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Waits until a replica has all data of this server.
    pub(crate) async fn wait_for_replica(&self) {
        let mut server = connect(&self.url).await;
        // Only writes of the same connection are waited for.
        loop {
            let mut set = redis::cmd("SET");
            set.arg("waiting").arg("x").exec_async(&mut server).await.unwrap();
            let mut wait = redis::cmd("WAIT");
            let count: u64 = wait.arg(1).arg(400).query_async(&mut server).await.unwrap();
            if count > 0 {
                return;
            }
        }
    }

    pub(crate) async fn info(&self, section: &str) -> String {
        let value = self.command(&["INFO", section]).await;
        redis::from_redis_value(value).unwrap()
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a stopped server, without waiting until it answers.
    pub(crate) fn respawn(&mut self) {
        self.child = spawn(self.port, &self.args);
    }

    pub(crate) async fn restart(&mut self) {
        self.respawn();
        wait_until_up(&self.url).await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until a client is blocked by a command.
    pub(crate) async fn wait_until_blocked(&self) {
        while self.info("clients").await.contains("blocked_clients:0") {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.signal("CONT");
        self.stop();
    }
}

fn spawn(port: u16, args: &[String]) -> Child {
    let mut server = Command::new("redis-server");
    server.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    // A replica keeps what it loads in a file, which the next server would load.
    server.args(["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb"]);
    server.args(["--dir", std::env::temp_dir().to_str().unwrap()]);
    server.args(["--dbfilename", &format!("requeue-{port}.rdb")]);
    server.args(["--port", &port.to_string()]).args(args);
    server.stdout(Stdio::null()).spawn().expect("redis-server can be started")
}
