//! Opening a queue.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use requeue_store::{EngineClock, Error, ErrorKind};

use crate::address::clients_of;
use crate::cluster::Cluster;
use crate::fault::senseless;
use crate::link::Link;
use crate::script::VERSION;
use crate::servers::Servers;
use crate::store::RedisStore;

/// The oldest server that has all that the scripts use: `ZADD LT`, `ZMSCORE` and `LPOP`
/// with a count.
const OLDEST: (u32, u32) = (6, 2);

/// The most partitions of a queue. Whoever looks for keys, or asks how a queue stands, asks
/// each: with 1024 that is some tens of milliseconds, with 100,000 it is a minute. It is
/// also more than the nodes that a Redis Cluster is meant for.
const MOST_PARTITIONS: usize = 1024;

/// Settings of a [`RedisStore`]; made by [`RedisStore::builder`].
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    pub(crate) queue: String,
    /// As many as the queue has, if nothing is said.
    partitions: Option<NonZeroUsize>,
    absence: Absence,
    pub(crate) clock: Option<EngineClock>,
    timeout: Duration,
}

/// What is done if there is no queue of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Makes,
    Fails,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue: "default".to_owned(),
            partitions: None,
            absence: Absence::Makes,
            clock: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// Sets the name of the queue: `default`, if this is not called. Braces are not
    /// allowed in it.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Sets into how many partitions the queue is split. If this is not called, a queue
    /// that is there has as many as it was made with, and a new one has one.
    ///
    /// Every key belongs to one of them, and keys are handed out by priority and in order
    /// in each of them only. In a cluster each is on one node. Leasing visits all, so there
    /// should be few, and there are at most 1024. The number is fixed when the queue is
    /// first opened; zero is taken for one.
    ///
    /// A shared [`Rate`](requeue_store::Rate) is split too: each partition has its part of
    /// it, which is right for the whole if keys are spread evenly.
    #[must_use]
    pub fn partitions(mut self, count: usize) -> Self {
        self.partitions = Some(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN));
        self
    }

    /// Makes no queue: one of this name must be there. For whoever only looks at a queue,
    /// so that a mistyped name leaves nothing behind.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.absence = Absence::Fails;
        self
    }

    /// Tells the time instead of the server: for tests.
    #[must_use]
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets how long to wait for a connection, and for each answer: 5 seconds, if this is
    /// not called. After that the call has failed with [`ErrorKind::Unknown`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects, and makes the queue if there is none of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the address, the name or the number of partitions cannot
    /// be used, or if there is no queue that [`must_exist`](Self::must_exist),
    /// [`ErrorKind::Unavailable`] if the server cannot be reached, [`ErrorKind::Denied`] if
    /// it refuses the password, [`ErrorKind::Version`] if it is older than 6.2 or the queue
    /// was made by a version of this crate that keeps it otherwise,
    /// [`ErrorKind::Conflict`] if the queue has another number of partitions.
    pub async fn open(self) -> Result<RedisStore, Error> {
        check_name(&self.queue)?;
        check_partitions(self.partitions)?;
        let servers = Arc::new(self.servers()?);
        let says_node = check_server(&servers).await?;
        let is_node = says_node || matches!(*servers, Servers::Many(_));
        let store = RedisStore::new(servers, &self, is_node);
        let found = store.declare(VERSION, self.made_with()).await?;
        let (version, partitions) = found.ok_or_else(|| self.absent(&store))?;
        let store = store.split(check_queue(&self, version, partitions)?);
        store.load_ballast().await?;
        store.forget_owners().await?;
        Ok(store)
    }

    /// How many partitions a queue is made with that is not there; `None` makes none.
    fn made_with(&self) -> Option<NonZeroUsize> {
        match self.absence {
            Absence::Makes => Some(self.partitions.unwrap_or(NonZeroUsize::MIN)),
            Absence::Fails => None,
        }
    }

    fn absent(&self, store: &RedisStore) -> Error {
        let (queue, place) = (&self.queue, store.servers.place());
        let text = format!(
            "no queue {queue} on {place}: expected one that somebody has added keys to or \
             worked on"
        );
        Error::new(ErrorKind::Invalid, text)
    }

    fn servers(&self) -> Result<Servers, Error> {
        let (clients, is_cluster) = clients_of(&self.url)?;
        let mut links = clients.into_iter().map(|client| Link::new(client, self.timeout));
        Ok(match links.next() {
            Some(link) if !is_cluster => Servers::One(Arc::new(link)),
            first => {
                Servers::Many(Cluster::new(first.into_iter().chain(links).collect()))
            }
        })
    }
}

/// Without the address, which may hold a password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("queue", &self.queue)
            .field("partitions", &self.partitions)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A brace would change which node of a cluster a partition is on.
fn check_name(queue: &str) -> Result<(), Error> {
    if queue.is_empty() || queue.contains(['{', '}']) {
        let text =
            format!("{queue:?} cannot be the name of a queue: it is empty or has braces");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

fn check_partitions(asked: Option<NonZeroUsize>) -> Result<(), Error> {
    match asked {
        Some(asked) if asked.get() > MOST_PARTITIONS => {
            let text = format!(
                "a queue cannot have {asked} partitions; the most are {MOST_PARTITIONS}"
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether the server says that it is a node of a cluster, or may be one.
async fn check_server(servers: &Servers) -> Result<bool, Error> {
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let info = match servers.ask_any(command).await {
        Ok(info) => info,
        // A user without the right to ask may still have a queue.
        Err(error) if is_about_info(&error) => return Ok(true),
        Err(error) => return Err(error),
    };
    match version_in(&info) {
        Some((version, numbers)) if numbers < OLDEST => {
            let (major, minor) = OLDEST;
            let text = format!(
                "{} is version {version}; {major}.{minor} is the oldest that will do",
                servers.place()
            );
            Err(Error::new(ErrorKind::Version, text))
        }
        _ => Ok(is_node(&info)),
    }
}

fn is_node(info: &Value) -> bool {
    let text: Result<String, _> = redis::from_redis_value(info.clone());
    let says_so =
        |line: &str| matches!(line, "redis_mode:cluster" | "server_mode:cluster");
    text.is_ok_and(|text| text.lines().any(says_so))
}

fn is_about_info(error: &Error) -> bool {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.is_some_and(|cause| cause.contains("NOPERM"))
}

/// The version that a server says it has, as it says it and in numbers.
fn version_in(info: &Value) -> Option<(String, (u32, u32))> {
    let text: String = redis::from_redis_value(info.clone()).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = version.trim().split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    Some((version.trim().to_owned(), (major, minor)))
}

/// How many partitions a queue has, if it is one that was asked for.
fn check_queue(
    asked: &RedisStoreBuilder,
    version: u64,
    partitions: u64,
) -> Result<usize, Error> {
    let queue = &asked.queue;
    if version != u64::from(VERSION) {
        let better = if version > u64::from(VERSION) { "a newer" } else { "an older" };
        let text = format!(
            "the queue {queue} is of version {version}, this program knows {VERSION}: \
             use {better} one, or another queue"
        );
        return Err(Error::new(ErrorKind::Version, text));
    }
    if let Some(other) = asked.partitions.filter(|asked| asked.get() as u64 != partitions)
    {
        let text = format!(
            "the queue {queue} has partitions: {partitions}, and was opened with {other}; \
             that cannot be changed: open it with {partitions}, or without a number"
        );
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    usize::try_from(partitions).map_err(|_| senseless("the queue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_server_is_found_among_what_it_says() {
        let info = "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n";
        let (text, numbers) = version_in(&Value::BulkString(info.into())).unwrap();
        assert_eq!((text.as_str(), numbers), ("6.0.16", (6, 0)));
        assert!(numbers < OLDEST);
    }

    /// Redis and Valkey call it differently.
    #[test]
    fn a_node_of_a_cluster_says_so() {
        for info in ["redis_mode:cluster\r\n", "a:b\r\nserver_mode:cluster\r\nc:d"] {
            assert!(is_node(&Value::BulkString(info.into())), "{info}");
        }
        assert!(!is_node(&Value::BulkString("redis_mode:standalone\r\n".into())));
    }

    #[test]
    fn a_builder_does_not_show_its_password() {
        let builder = RedisStore::builder("redis://:secret@localhost").queue("mail");
        assert!(!format!("{builder:?}").contains("secret"));
    }
}
