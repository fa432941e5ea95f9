//! A server for one test.

use std::process::{Child, Command, Stdio};

use super::{connect, free_port, url, wait_until_up};

/// A server that a test may stop, and whose commands it may count.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) url: String,
    port: u16,
    child: Child,
}

impl TestServer {
    /// Starts a server, if the machine has one.
    pub(crate) async fn start() -> Option<Self> {
        url()?;
        let port = free_port();
        let url = format!("redis://127.0.0.1:{port}");
        let server = Self { url, port, child: spawn(port) };
        wait_until_up(&server.url).await;
        Some(server)
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.port);
        wait_until_up(&self.url).await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until a client is blocked by a command.
    pub(crate) async fn wait_until_blocked(&self) {
        let mut server = connect(&self.url).await;
        loop {
            let clients: String =
                redis::cmd("INFO").arg("clients").query_async(&mut server).await.unwrap();
            if !clients.contains("blocked_clients:0") {
                return;
            }
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

fn spawn(port: u16) -> Child {
    let mut server = Command::new("redis-server");
    server.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    server.args(["--port", &port.to_string()]);
    server.stdout(Stdio::null()).spawn().expect("redis-server can be started")
}
