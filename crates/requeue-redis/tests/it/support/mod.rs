//! Servers, queues and requests for the tests.

pub(crate) mod cluster;
pub(crate) mod invariants;
pub(crate) mod proxy;
pub(crate) mod sentinel;
pub(crate) mod server;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::machine::TimeSource;
use requeue_store::{
    Add, EngineClock, Grant, Hold, Key, LeaseRequest, MemoryStore, Owner, Receipt,
    RepliesExt, Store, When,
};

/// Returns the address of the server for all tests. Without one, tests return early.
///
/// # Panics
///
/// If there is no server and `CI` is set.
#[expect(clippy::print_stdout, reason = "tells the user about skipped tests")]
pub(crate) fn url() -> Option<String> {
    let url = std::env::var("REQUEUE_REDIS_URL").ok();
    if url.is_none() {
        let is_required = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(
            !is_required,
            "REQUEUE_REDIS_URL is not set: run the tests with scripts/with-servers"
        );
        println!("skipped: REQUEUE_REDIS_URL is not set");
    }
    url
}

/// Returns a builder for a new queue.
pub(crate) fn new_queue(url: &str) -> RedisStoreBuilder {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = TimeSource::System.now().micros();
    let queue = format!("test-{}-{count}-{now}", std::process::id());
    RedisStore::builder(url).queue(queue)
}

/// Opens a new queue that uses this clock.
pub(crate) async fn open(url: &str, clock: &EngineClock) -> RedisStore {
    new_queue(url).clock(clock.clone()).open().await.unwrap()
}

/// More keys than are searched for one of them, see `lib/stale.lua`.
pub(crate) const LONG: usize = 200;

/// A new queue, and a store in memory that must behave in the same way.
pub(crate) struct WithModel {
    pub(crate) clock: EngineClock,
    pub(crate) builder: RedisStoreBuilder,
    pub(crate) store: RedisStore,
    pub(crate) model: MemoryStore,
    pub(crate) server: MultiplexedConnection,
}

impl WithModel {
    pub(crate) async fn open() -> Option<Self> {
        let url = url()?;
        let clock = EngineClock::new();
        let builder = new_queue(&url).clock(clock.clone());
        let store = builder.clone().open().await.unwrap();
        let model = MemoryStore::with_clock(clock.clone());
        Some(Self { clock, builder, store, model, server: connect(&url).await })
    }

    /// Adds keys to both.
    pub(crate) async fn add(&self, names: &[&str]) {
        let receipts = add(&self.store, names).await;
        assert_eq!(receipts, self.model.add(&adds(names)).all().await.unwrap());
    }

    /// Removes keys from both.
    pub(crate) async fn remove(&self, names: &[&str]) {
        let removed = self.store.remove(&keys(names)).all().await.unwrap();
        assert_eq!(removed, self.model.remove(&keys(names)).all().await.unwrap());
    }

    /// Checks the invariants of the data.
    pub(crate) async fn check(&mut self, context: &str) {
        invariants::check(&mut self.server, &self.builder, context).await;
    }
}

/// Returns the Redis key of a part of the first partition of a queue.
pub(crate) fn part(builder: &RedisStoreBuilder, end: &str) -> String {
    let debug = format!("{builder:?}");
    let queue = debug.split('"').nth(1).unwrap();
    format!("rq5:{{{queue}:0}}:{end}")
}

/// Returns this many key names: `k0`, `k1` and so on.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

/// Selects names by their index.
pub(crate) fn select(names: &[String], by: impl Fn(usize) -> bool) -> Vec<&str> {
    let selected = names.iter().enumerate().filter(|(index, _)| by(*index));
    selected.map(|(_, name)| name.as_str()).collect()
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

pub(crate) fn adds_with_priority(names: &[&str], priority: i8) -> Vec<Add> {
    adds(names).into_iter().map(|add| Add { priority, ..add }).collect()
}

pub(crate) async fn add(store: &RedisStore, names: &[&str]) -> Vec<Receipt> {
    store.add(&adds(names)).all().await.unwrap()
}

pub(crate) fn request(max: usize) -> LeaseRequest {
    LeaseRequest {
        owner: Owner::new("worker"),
        max,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

pub(crate) async fn lease(store: &impl Store, max: usize) -> Vec<Hold> {
    let leased = store.lease(&request(max)).await.unwrap();
    let hold = |grant: Grant| Hold { key: grant.key, token: grant.token };
    leased.grants.into_iter().map(hold).collect()
}

/// Opens a connection for commands of the test.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    // The default timeouts are too short for a busy machine.
    let config = redis::AsyncConnectionConfig::new();
    let config = config.set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Returns how often a server has executed each command.
pub(crate) async fn command_counts(
    server: &mut MultiplexedConnection,
) -> HashMap<String, u64> {
    let text: String =
        redis::cmd("INFO").arg("commandstats").query_async(server).await.unwrap();
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// Returns the commands that were executed between two counts, without the counting itself.
pub(crate) fn commands_between(
    before: &HashMap<String, u64>,
    after: HashMap<String, u64>,
) -> Vec<(String, u64)> {
    let difference = |(name, count): (String, u64)| {
        let more = count - before.get(&name).copied().unwrap_or_default();
        (more > 0 && name != "info").then_some((name, more))
    };
    let mut all: Vec<_> = after.into_iter().filter_map(difference).collect();
    all.sort();
    all
}

/// Returns a free port that no other test gets.
///
/// Processes start at different ports, so that tests of two of them can run at the same time.
/// Both the port and the one 10000 above it, the bus port of a cluster node, are below the
/// ports that the kernel gives to clients. A client once took the bus port for a moment, and
/// the test waited forever for a node that had not started.
pub(crate) fn free_port() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(397);
    loop {
        let count = u32::from(COUNT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(first.wrapping_add(count) % 12_000).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a server answers.
pub(crate) async fn wait_until_up(url: &str) {
    let client = redis::Client::open(url).unwrap();
    while client.get_multiplexed_async_connection().await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Returns an error and its cause as text.
pub(crate) fn error_text(error: &requeue_store::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}
