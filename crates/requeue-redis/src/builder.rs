//! Opening a queue.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use requeue_store::{EngineClock, Error, ErrorKind};

use crate::address::Address;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::node::Node;
use crate::script::VERSION;
use crate::store::RedisStore;

/// The oldest server with all commands that the scripts use: `ZADD LT` and `ZMSCORE`.
const MIN_SERVER_VERSION: (u32, u32) = (6, 2);

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

    /// Opens only a queue that exists.
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
    /// A call without a reply fails with [`ErrorKind::Unknown`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
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
    /// - [`ErrorKind::Version`] if the server is older than 6.2, or the queue was created by
    ///   an incompatible version of this crate.
    /// - [`ErrorKind::Conflict`] if the queue has another number of partitions.
    pub async fn open(self) -> Result<RedisStore, Error> {
        check_name(&self.queue)?;
        check_partitions(self.partitions)?;
        let engine = self.engine()?;
        let may_be_node = check_server(&engine).await?;
        let is_node = may_be_node || matches!(engine, Engine::Cluster(_));
        let client = Client::new(engine, &self.queue, self.clock.clone());
        let client = if is_node { client.with_guards() } else { client };
        let new = Some(self.partitions.unwrap_or(NonZeroUsize::MIN));
        let found = client.open(new.filter(|_| !self.must_exist)).await?;
        let (version, partitions) = found.ok_or_else(|| self.missing(&client))?;
        self.check_queue(version, partitions)?;
        RedisStore::new(client.with_partitions(partitions)).await
    }

    fn engine(&self) -> Result<Engine, Error> {
        let Address { clients, is_cluster } = Address::parse(&self.url)?;
        let mut nodes = clients.into_iter().map(|client| Node::new(client, self.timeout));
        Ok(match nodes.next() {
            Some(node) if !is_cluster => Engine::Server(Arc::new(node)),
            first => {
                Engine::Cluster(Cluster::new(first.into_iter().chain(nodes).collect()))
            }
        })
    }

    fn missing(&self, client: &Client) -> Error {
        let (queue, server) = (&self.queue, client.engine.name());
        let text = format!(
            "queue {queue:?} does not exist on {server}; adding a key creates it"
        );
        Error::new(ErrorKind::Invalid, text)
    }

    fn check_queue(&self, version: u64, partitions: usize) -> Result<(), Error> {
        let queue = &self.queue;
        if version != u64::from(VERSION) {
            let other = if version > u64::from(VERSION) { "a newer" } else { "an older" };
            let text = format!(
                "queue {queue:?} has format version {version}, this program needs \
                 {VERSION}; use {other} program or another queue"
            );
            return Err(Error::new(ErrorKind::Version, text));
        }
        if let Some(asked) = self.partitions.filter(|asked| asked.get() != partitions) {
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

/// Checks the version of the server. Returns whether it may be a node of a cluster.
async fn check_server(engine: &Engine) -> Result<bool, Error> {
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let info = match engine.send_to_any(command).await {
        Ok(info) => info,
        // A user without the permission for INFO can still use a queue.
        Err(error) if is_no_permission(&error) => return Ok(true),
        Err(error) => return Err(error),
    };
    match version_in(&info) {
        Some((version, numbers)) if numbers < MIN_SERVER_VERSION => {
            let (major, minor) = MIN_SERVER_VERSION;
            let text = format!(
                "{} has version {version}; at least {major}.{minor} is required",
                engine.name()
            );
            Err(Error::new(ErrorKind::Version, text))
        }
        _ => Ok(is_node(&info)),
    }
}

fn is_node(info: &Value) -> bool {
    let text: Result<String, _> = redis::from_redis_value(info.clone());
    let is_cluster =
        |line: &str| matches!(line, "redis_mode:cluster" | "server_mode:cluster");
    text.is_ok_and(|text| text.lines().any(is_cluster))
}

fn is_no_permission(error: &Error) -> bool {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.is_some_and(|cause| cause.contains("NOPERM"))
}

/// Finds the version of the server in its INFO, as text and as numbers.
fn version_in(info: &Value) -> Option<(String, (u32, u32))> {
    let text: String = redis::from_redis_value(info.clone()).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = version.trim().split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    Some((version.trim().to_owned(), (major, minor)))
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
