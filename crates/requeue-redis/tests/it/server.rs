//! The server that tests use, and queues on it.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{Add, EngineClock, Key, LeaseRequest, Owner, Receipt, Store, When};

/// The address of the server, if there is one: tests without it end at once.
///
/// # Panics
///
/// Where tests must not be left out, if there is none.
#[expect(clippy::print_stdout, reason = "whoever runs the tests is told")]
pub(crate) fn url() -> Option<String> {
    let url = std::env::var("REQUEUE_REDIS_URL").ok();
    if url.is_none() {
        let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(
            !must,
            "REQUEUE_REDIS_URL is not set: run the tests by scripts/with-servers"
        );
        println!("left out: REQUEUE_REDIS_URL is not set");
    }
    url
}

/// Settings for a queue that nobody else uses.
pub(crate) fn fresh(url: &str) -> RedisStoreBuilder {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = requeue_store::machine::TimeSource::System.now().micros();
    let queue = format!("test-{}-{count}-{now}", std::process::id());
    RedisStore::builder(url).queue(queue)
}

pub(crate) async fn open(url: &str, clock: &EngineClock) -> RedisStore {
    fresh(url).clock(clock.clone()).open().await.unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

pub(crate) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

pub(crate) fn adds(names: &[&str]) -> Vec<Add> {
    let revive_after = Duration::ZERO;
    let add = |name: &&str| Add { revive_after, ..Add::new(key(name), When::Now) };
    names.iter().map(add).collect()
}

/// The same for keys of this priority.
pub(crate) fn ranked(names: &[&str], priority: i8) -> Vec<Add> {
    adds(names).into_iter().map(|add| Add { priority, ..add }).collect()
}

pub(crate) async fn add(store: &RedisStore, names: &[&str]) -> Vec<Receipt> {
    store.add(&adds(names)).await.unwrap()
}

pub(crate) fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("worker"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

/// A connection that sends what a test wants.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The Redis key of a part of a queue's first partition.
pub(crate) fn part(builder: &RedisStoreBuilder, end: &str) -> String {
    let shown = format!("{builder:?}");
    let queue = shown.split('"').nth(1).unwrap();
    format!("rq:{{{queue}:0}}:{end}")
}

/// A server for one test alone, which may stop it and count its commands.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) url: String,
    port: u16,
    child: Child,
}

impl Own {
    /// Starts one, on a machine that has one to start.
    pub(crate) async fn start() -> Option<Self> {
        url()?;
        let port = free_port();
        let url = format!("redis://127.0.0.1:{port}");
        let own = Self { url, port, child: spawn(port) };
        until_it_answers(&own.url).await;
        Some(own)
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.port);
        until_it_answers(&self.url).await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let mut kill = Command::new("kill");
        let sent = kill.arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) async fn until_somebody_waits(&self) {
        let mut server = connection(&self.url).await;
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

impl Drop for Own {
    fn drop(&mut self) {
        self.signal("CONT");
        self.stop();
    }
}

/// A port that is free, and that no other test was given before its server has taken it.
///
/// It is below those that the kernel gives to clients, and so is the one 10000 above it, by
/// which nodes talk: a client had taken that for a moment, and a test waited for ever for a
/// node that had not started.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + given % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) async fn until_it_answers(url: &str) {
    let client = redis::Client::open(url).unwrap();
    while client.get_multiplexed_async_connection().await.is_err() {
        tokio::task::yield_now().await;
    }
}

fn spawn(port: u16) -> Child {
    let mut server = Command::new("redis-server");
    server.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    server.args(["--port", &port.to_string()]);
    server.stdout(Stdio::null()).spawn().expect("redis-server can be started")
}
