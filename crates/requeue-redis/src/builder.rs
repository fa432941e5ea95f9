//! Opening a queue.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use requeue_store::{EngineClock, Error, ErrorKind, Migration};

use crate::address::Address;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::durability::Durability;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::has_code;
use crate::inspect::{self, is_no_permission};
use crate::migrate::{OLDEST, migrate};
use crate::node::Node;
use crate::script::VERSION;
use crate::store::RedisStore;

/// The oldest server with all commands that the scripts use: `ZADD LT` and `ZMSCORE`.
const MIN_SERVER_VERSION: (u32, u32) = (6, 2);

/// The oldest server with `WAITAOF`.
const MIN_DISK_VERSION: (u32, u32) = (7, 2);

/// The most partitions of a queue. Leases and statistics ask every partition: with 1024 that
/// takes tens of milliseconds, with 100,000 a minute. It is also more than the number of
/// nodes that Redis Cluster supports.
const MAX_PARTITIONS: usize = 1024;

/// Settings of a [`RedisStore`], created by [`RedisStore::builder`].
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    queue: String,
    partitions: Option<NonZeroUsize>,
    must_exist: bool,
    clock: Option<EngineClock>,
    timeout: Duration,
    durability: Durability,
    on_warning: Arc<dyn Fn(&str) + Send + Sync>,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue: "default".to_owned(),
            partitions: None,
            must_exist: false,
            clock: None,
            timeout: Duration::from_secs(5),
            durability: Durability::Server,
            on_warning: Arc::new(|_| {}),
        }
    }

    /// Sets the name of the queue. The default is `default`. It cannot contain braces.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Sets the number of partitions of the queue.
    ///
    /// The number is fixed when the queue is created. By default, a new queue has one
    /// partition, and an existing queue is opened with the number it has. The maximum is
    /// 1024; zero means one.
    ///
    /// Every key belongs to one partition. Priorities and order hold within a partition. In a
    /// cluster, each partition is on one node. A lease visits all partitions, so use few.
    ///
    /// A shared [`Rate`](requeue_store::Rate) is divided between the partitions. The total is
    /// right if keys are spread evenly.
    #[must_use]
    pub fn partitions(mut self, count: usize) -> Self {
        self.partitions = Some(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN));
        self
    }

    /// Opens only a queue that exists, without writing anything.
    ///
    /// For programs that inspect a queue: a mistyped name creates nothing.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Uses this clock instead of the server's, in tests.
    #[must_use]
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the timeout for connecting and for each reply. The default is 5 seconds.
    ///
    /// A call without a reply fails with [`ErrorKind::Unknown`], and the next call uses a new
    /// connection. Extensions of leases wait for at most a quarter of the lease.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets what adds wait for. The default is [`Durability::Server`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets a function that is called with a warning when the queue is opened.
    ///
    /// It warns of a `maxmemory-policy` other than `noeviction`: when memory is full, such a
    /// server deletes parts of queues instead of refusing adds.
    #[must_use]
    pub fn on_warning(mut self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_warning = Arc::new(warn);
        self
    }

    /// Connects to the server, and creates the queue if it does not exist.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if the address, the name or the number of partitions is not
    ///   valid, or the queue does not exist and [`must_exist`](Self::must_exist) is set.
    /// - [`ErrorKind::Unavailable`] if the server cannot be reached.
    /// - [`ErrorKind::Denied`] if the server refuses the user or password.
    /// - [`ErrorKind::Version`] if the server is too old, or the queue has another version of
    ///   the data. An older version can be [migrated](Self::migrate).
    /// - [`ErrorKind::Conflict`] if the queue has another number of partitions.
    pub async fn open(self) -> Result<RedisStore, Error> {
        let client = self.connect().await?;
        let new = Some(self.partitions.unwrap_or(NonZeroUsize::MIN));
        let found = client.open(new.filter(|_| !self.must_exist)).await;
        let found = found.map_err(explain_moved)?;
        let (version, partitions) = found.ok_or_else(|| self.missing(&client))?;
        self.check_version(version)?;
        self.check_queue(partitions)?;
        let client = client.with_partitions(partitions);
        if !self.must_exist {
            prepare(&client).await.map_err(explain_moved)?;
        }
        self.warn_of_eviction(&client).await;
        Ok(RedisStore::new(client, self.durability))
    }

    /// Migrates the data of the queue from an older version, which
    /// [`open`](Self::open) refuses. A dry run changes nothing.
    ///
    /// Programs of the older version get errors from then on, and change nothing. Leases and
    /// keys are kept. A migration that was interrupted can be repeated.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). The queue must exist.
    pub async fn migrate(self, dry_run: bool) -> Result<Migration, Error> {
        let client = self.connect().await?;
        let found = client.open(None).await.map_err(explain_moved)?;
        let (version, partitions) = found.ok_or_else(|| self.missing(&client))?;
        let from = u32::try_from(version).unwrap_or(u32::MAX);
        if !(OLDEST..=VERSION).contains(&from) {
            return Err(self.wrong_version(version));
        }
        migrate(&client.with_partitions(partitions), from, dry_run).await
    }

    /// Connects to the server and checks its version.
    async fn connect(&self) -> Result<Client, Error> {
        check_name(&self.queue)?;
        check_partitions(self.partitions)?;
        let engine = self.engine()?;
        let may_be_node = self.check_server(&engine).await?;
        let is_node = may_be_node || engine.is_cluster();
        let client = Client::new(engine, &self.queue, self.clock.clone());
        Ok(if is_node { client.with_guards() } else { client })
    }

    fn engine(&self) -> Result<Engine, Error> {
        let node = |endpoint| Node::new(endpoint, self.timeout);
        Ok(match Address::parse(&self.url)? {
            Address::Server(client) => {
                Engine::Server(Arc::new(node(Endpoint::Server(client))))
            }
            Address::Sentinels(sentinels) => {
                Engine::Server(Arc::new(node(Endpoint::Sentinels(sentinels))))
            }
            Address::Cluster(clients) => {
                let seeds = clients.into_iter().map(Endpoint::Server).map(node);
                Engine::Cluster(Arc::new(Cluster::new(seeds.collect())))
            }
        })
    }

    /// Checks the version of the server. Returns whether it may be a node of a cluster.
    async fn check_server(&self, engine: &Engine) -> Result<bool, Error> {
        let mut command = redis::cmd("INFO");
        command.arg("server");
        let info = match engine.send_to_any(command).await {
            Ok(info) => info,
            // A user without the permission for INFO can still use a queue.
            Err(error) if is_no_permission(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let (oldest, purpose) = match self.durability {
            Durability::Disk { .. } => (MIN_DISK_VERSION, " for Durability::Disk"),
            Durability::Server | Durability::Replicas { .. } => (MIN_SERVER_VERSION, ""),
        };
        match version_in(&info) {
            Some((version, numbers)) if numbers < oldest => {
                let (major, minor) = oldest;
                let text = format!(
                    "{} has version {version}; at least {major}.{minor} is \
                     required{purpose}",
                    engine.name()
                );
                Err(Error::new(ErrorKind::Version, text))
            }
            _ => Ok(is_node(&info)),
        }
    }

    /// Warns of servers that delete data when memory is full. A user without the permission
    /// for INFO gets no warning.
    async fn warn_of_eviction(&self, client: &Client) {
        for node in client.engine.nodes() {
            let mut command = redis::cmd("INFO");
            command.arg("memory");
            let Ok(info) = node.send(command).await else { continue };
            let policy = field_in(&info, "maxmemory_policy:");
            if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
                (self.on_warning)(&format!(
                    "{} has maxmemory-policy {policy}: it deletes parts of queues when \
                     memory is full; set it to noeviction",
                    node.name()
                ));
            }
        }
    }

    fn missing(&self, client: &Client) -> Error {
        let (queue, server) = (&self.queue, client.engine.name());
        let text = format!(
            "queue {queue:?} does not exist on {server}; adding a key creates it"
        );
        Error::new(ErrorKind::Invalid, text)
    }

    fn check_version(&self, version: u64) -> Result<(), Error> {
        if version == u64::from(VERSION) {
            return Ok(());
        }
        Err(self.wrong_version(version))
    }

    fn wrong_version(&self, version: u64) -> Error {
        let queue = &self.queue;
        let advice = if version > u64::from(VERSION) {
            "use the newer program that migrated it".to_owned()
        } else if version < u64::from(OLDEST) {
            "use an older program or another queue".to_owned()
        } else {
            format!("run `requeue migrate --store {}`", self.url_without_password())
        };
        let text = format!(
            "queue {queue:?} has data of version {version}, this program needs version \
             {VERSION}; {advice}"
        );
        Error::new(ErrorKind::Version, text)
    }

    /// Returns the address for a command line. Without a password, it may have to be completed.
    fn url_without_password(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
        let rest = rest[start..].split('?').next().unwrap_or_default();
        format!("{scheme}://{rest} --queue {}", self.queue)
    }

    fn check_queue(&self, partitions: usize) -> Result<(), Error> {
        if let Some(asked) = self.partitions.filter(|asked| asked.get() != partitions) {
            let queue = &self.queue;
            let text = format!(
                "queue {queue:?} has {partitions} partitions, not {asked}; the number \
                 cannot be changed: open it with {partitions} or without a number"
            );
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        Ok(())
    }
}

/// Omits the address, which may contain a password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("queue", &self.queue)
            .field("partitions", &self.partitions)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A brace would change the node of a partition in a cluster.
fn check_name(queue: &str) -> Result<(), Error> {
    if queue.is_empty() || queue.contains(['{', '}']) {
        let text =
            format!("invalid queue name {queue:?}: it is empty or contains braces");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

fn check_partitions(asked: Option<NonZeroUsize>) -> Result<(), Error> {
    match asked {
        Some(asked) if asked.get() > MAX_PARTITIONS => {
            let text = format!(
                "a queue cannot have {asked} partitions; the maximum is {MAX_PARTITIONS}"
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// Does what speeds up later calls. A user who lacks a permission for it, such as a producer,
/// can still use the queue.
async fn prepare(client: &Client) -> Result<(), Error> {
    for result in [client.load_ballast().await, inspect::forget_workers(client).await] {
        match result {
            Err(error) if is_no_permission(&error) => {}
            result => result?,
        }
    }
    Ok(())
}

/// A node of a cluster cannot be used as a server. While a queue is open, a slot may move away
/// and back.
fn explain_moved(error: Error) -> Error {
    if !has_code(&error, "MOVED") {
        return error;
    }
    Error::new(ErrorKind::Invalid, error.to_string()).because(error)
}

fn is_node(info: &Value) -> bool {
    let text: Result<String, _> = redis::from_redis_value(info.clone());
    let is_cluster =
        |line: &str| matches!(line, "redis_mode:cluster" | "server_mode:cluster");
    text.is_ok_and(|text| text.lines().any(is_cluster))
}

/// Finds the version of the server in its INFO, as text and as numbers.
fn version_in(info: &Value) -> Option<(String, (u32, u32))> {
    let version = field_in(info, "redis_version:")?;
    let mut numbers = version.split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    Some((version, (major, minor)))
}

/// Finds the value of a field of INFO.
fn field_in(info: &Value, field: &str) -> Option<String> {
    let text: String = redis::from_redis_value(info.clone()).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_server_is_found_in_its_info() {
        let info = "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n";
        let (text, numbers) = version_in(&Value::BulkString(info.into())).unwrap();
        assert_eq!((text.as_str(), numbers), ("6.0.16", (6, 0)));
        assert!(numbers < MIN_SERVER_VERSION);
    }

    #[test]
    fn nodes_of_redis_and_valkey_clusters_are_recognized() {
        for info in ["redis_mode:cluster\r\n", "a:b\r\nserver_mode:cluster\r\nc:d"] {
            assert!(is_node(&Value::BulkString(info.into())), "{info}");
        }
        assert!(!is_node(&Value::BulkString("redis_mode:standalone\r\n".into())));
    }

    #[test]
    fn debug_output_omits_the_password() {
        let builder = RedisStore::builder("redis://:secret@localhost").queue("mail");
        assert!(!format!("{builder:?}").contains("secret"));
    }
}
