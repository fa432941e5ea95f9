//! The stores under test, and the layers around them.

pub(crate) mod bug;
mod buggy;
pub(crate) mod crashed;
pub(crate) mod recorder;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use requeue::{Clock, SystemClock};
use requeue_fjall::FjallStore;
use requeue_postgres::PostgresStore;
use requeue_redis::RedisStore;
use requeue_store::{Error, MemoryStore, Store};
use serde::{Deserialize, Serialize};

use self::bug::Bug;
use self::buggy::BuggyStore;
pub(crate) use self::buggy::record_server_start;
use crate::run::scenario::{Durability, Scenario};
use crate::time::sleep;

/// How long a store may stay unavailable.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The time limit of a call. It is shorter than every lease, so that a half-open connection
/// costs at most one lease.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);

/// The name of the queue.
const QUEUE: &str = "faults";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// In memory; its process is stopped but never killed
    Memory,
    /// On disk, embedded in the process
    Fjall,
    /// Redis, with every write on disk before its reply
    Redis,
    /// A Redis Cluster of three nodes, with every write on disk before its reply
    Cluster,
    /// PostgreSQL with its default settings
    Postgres,
}

impl Kind {
    /// Returns whether the store lives in the process that uses it.
    pub(crate) fn is_embedded(self) -> bool {
        match self {
            Self::Memory | Self::Fjall => true,
            Self::Redis | Self::Cluster | Self::Postgres => false,
        }
    }

    /// Returns the number of servers.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Memory | Self::Fjall => 0,
            Self::Redis | Self::Postgres => 1,
            Self::Cluster => 3,
        }
    }

    /// Returns the address of a store whose servers listen on these ports.
    pub(crate) fn address(self, ports: &[u16]) -> String {
        let hosts: Vec<_> =
            ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let hosts = hosts.join(",");
        match self {
            Self::Memory | Self::Fjall => String::new(),
            Self::Redis => format!("redis://{hosts}/"),
            Self::Cluster => format!("redis-cluster://{hosts}"),
            Self::Postgres => format!("postgres://requeue@{hosts}/postgres"),
        }
    }
}

/// Returns one Redis key of a partition of the queue.
pub(crate) fn redis_key(partition: usize) -> String {
    format!("rq5:{{{QUEUE}:{partition}}}:m")
}

/// Opens a store as soon as it is available, with a seeded bug if one is given.
pub(crate) async fn open(
    scenario: &Scenario,
    address: &str,
    bug: Option<Bug>,
    folder: &Path,
) -> Result<Arc<dyn Store>> {
    let store = retry_transient(|| open_once(scenario, address)).await?;
    Ok(match bug {
        Some(bug) => Arc::new(BuggyStore::new(store, bug, folder)),
        None => store,
    })
}

/// Repeats a call until it succeeds, fails permanently, or times out.
pub(crate) async fn retry_transient<T, F>(call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T, Error>>,
{
    let deadline = SystemClock.now() + UNAVAILABLE_TIMEOUT;
    loop {
        match call().await {
            Err(error) if error.is_transient() && SystemClock.now() < deadline => {
                sleep(Duration::from_millis(50)).await;
            }
            other => return other.context("cannot use the store"),
        }
    }
}

pub(crate) async fn open_postgres(
    scenario: &Scenario,
    address: &str,
) -> Result<PostgresStore, Error> {
    let builder = PostgresStore::builder(address).queue(QUEUE).connections(3);
    let durability = match scenario.durability {
        Durability::All => requeue_postgres::Durability::Server,
        Durability::Adds => requeue_postgres::Durability::Adds,
    };
    builder.durability(durability).timeout(CALL_TIMEOUT).open().await
}

async fn open_once(scenario: &Scenario, address: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(match scenario.store {
        Kind::Memory => Arc::new(MemoryStore::new()),
        Kind::Fjall => Arc::new(FjallStore::builder(address).open()?),
        Kind::Postgres => Arc::new(open_postgres(scenario, address).await?),
        Kind::Redis | Kind::Cluster => {
            let builder = RedisStore::builder(address).queue(QUEUE);
            let builder = builder.partitions(scenario.partitions).timeout(CALL_TIMEOUT);
            Arc::new(builder.open().await?)
        }
    })
}
