//! A Redis server of one test, which may break it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::harness::Dir;

/// A server that is killed at the end of the test.
pub(crate) struct OwnRedis {
    child: Child,
    port: u16,
    password: &'static str,
}

impl OwnRedis {
    pub(crate) fn start(dir: &Dir) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .current_dir(dir.path("."))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            thread::yield_now();
        }
        Self { child, port, password: "" }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a command. Returns the first line of the answer.
    pub(crate) fn send(&mut self, line: &str) -> String {
        let mut client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut answers = BufReader::new(client.try_clone().unwrap()).lines();
        if !self.password.is_empty() {
            write!(client, "AUTH {}\r\n", self.password).unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), "+OK");
        }
        write!(client, "{line}\r\n").unwrap();
        answers.next().unwrap().unwrap()
    }

    /// Requires a password, and ends all connections.
    pub(crate) fn require_password(&mut self, password: &'static str) {
        self.send(&format!("CONFIG SET requirepass {password}"));
        self.password = password;
        self.send("CLIENT KILL TYPE normal SKIPME yes");
    }

    /// Requires no password again.
    pub(crate) fn require_none(&mut self) {
        self.send("CONFIG SET requirepass \"\"");
        self.password = "";
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}
