//! The stores under test, and the layers around them.

pub(crate) mod bug;
mod buggy;
mod clock;
pub(crate) mod crashed;
mod disturbed;
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
use requeue_store::{EngineClock, Error, MemoryStore, Store};
use serde::{Deserialize, Serialize};

use self::bug::Bug;
use self::buggy::BuggyStore;
pub(crate) use self::buggy::record_server_start;
use self::clock::{ClockedStore, SteppedClock};
use self::disturbed::Disturbed;
use crate::run::plan::Plan;
use crate::run::scenario::{Durability, Scenario};
use crate::server::sentinel::SERVICE;
use crate::time::sleep;

/// How long a store may stay unavailable.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(20);

/// An add is acknowledged once the replica has it, so that a failover does not lose it.
const ON_THE_REPLICA: requeue_redis::Durability =
    requeue_redis::Durability::Replicas { count: 1, within: Duration::from_millis(200) };

/// The name of the queue.
const QUEUE: &str = "faults";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// In memory; its process is stopped but never killed
    Memory,
    /// On disk, embedded in the process
    Folder,
    /// Redis, with every write on disk before its reply
    Redis,
    /// A Redis Cluster of three primaries and three replicas
    Cluster,
    /// A Redis server and its replica, watched by three sentinels
    Sentinel,
    /// PostgreSQL with its default settings
    Postgres,
}

impl Kind {
    /// Returns whether the store lives in the process that uses it.
    pub(crate) fn is_embedded(self) -> bool {
        match self {
            Self::Memory | Self::Folder => true,
            Self::Redis | Self::Cluster | Self::Sentinel | Self::Postgres => false,
        }
    }

    /// Returns the number of servers.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Memory | Self::Folder => 0,
            Self::Redis | Self::Postgres => 1,
            Self::Sentinel => 2,
            Self::Cluster => 6,
        }
    }

    /// Returns the number of primaries.
    pub(crate) fn shards(self) -> usize {
        match self {
            Self::Cluster => 3,
            Self::Memory
            | Self::Folder
            | Self::Redis
            | Self::Sentinel
            | Self::Postgres => 1,
        }
    }

    /// Returns whether a failover can lose writes that were acknowledged.
    pub(crate) fn has_lossy_failovers(self) -> bool {
        self == Self::Sentinel
    }

    /// Returns the address of a store whose servers listen on these ports.
    pub(crate) fn address(self, ports: &[u16]) -> String {
        let hosts: Vec<_> =
            ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let hosts = hosts.join(",");
        match self {
            Self::Memory | Self::Folder => String::new(),
            Self::Redis => format!("redis://{hosts}/"),
            Self::Cluster => format!("redis-cluster://{hosts}"),
            Self::Sentinel => format!("redis+sentinel://{hosts}/{SERVICE}"),
            Self::Postgres => format!("postgres://requeue@{hosts}/postgres"),
        }
    }
}

/// Returns one Redis key of a partition of the queue.
pub(crate) fn redis_key(partition: usize) -> String {
    format!("rq5:{{{QUEUE}:{partition}}}:m")
}

/// Returns the partition of a key in a queue with this many partitions: FNV-1a, modulo the
/// number.
pub(crate) fn partition_of(key: &str, partitions: usize) -> usize {
    let step =
        |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    usize::try_from(hash % partitions.max(1) as u64).unwrap_or(0)
}

/// Opens a store as soon as it is available.
pub(crate) async fn open(scenario: &Scenario, address: &str) -> Result<Arc<dyn Store>> {
    retry_transient(|| open_once(scenario, address, None)).await
}

/// Opens the store of a process, with the clock and the disturbances of the plan, and with a
/// seeded bug if one is given.
pub(crate) async fn open_disturbed(
    plan: &Plan,
    address: &str,
    bug: Option<Bug>,
    folder: &Path,
) -> Result<Arc<dyn Store>> {
    let scenario = &plan.scenario;
    let clock = scenario.has_clock_steps().then(|| SteppedClock::new(plan));
    let engine_clock = clock.as_ref().map(|clock| &clock.clock);
    let open = || open_once(scenario, address, engine_clock.cloned());
    let mut store = retry_transient(open).await?;
    if let Some(clock) = clock {
        store = Arc::new(ClockedStore { store, clock });
    }
    if scenario.is_steady() {
        store = Arc::new(Disturbed::new(store, plan.clone(), bug));
    }
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
    builder.durability(durability).timeout(scenario.call_timeout()).open().await
}

async fn open_once(
    scenario: &Scenario,
    address: &str,
    clock: Option<EngineClock>,
) -> Result<Arc<dyn Store>, Error> {
    Ok(match scenario.store {
        Kind::Memory => {
            Arc::new(clock.map_or_else(MemoryStore::new, MemoryStore::with_clock))
        }
        Kind::Folder => {
            let builder = FjallStore::builder(address);
            let builder = match clock {
                Some(clock) => builder.clock(clock),
                None => builder,
            };
            Arc::new(builder.open()?)
        }
        Kind::Postgres => Arc::new(open_postgres(scenario, address).await?),
        Kind::Redis | Kind::Cluster | Kind::Sentinel => {
            let builder = RedisStore::builder(address).queue(QUEUE);
            let builder = builder.partitions(scenario.partitions);
            let builder = builder.timeout(scenario.call_timeout());
            let is_watched = scenario.store == Kind::Sentinel;
            let durability = if is_watched {
                ON_THE_REPLICA
            } else {
                requeue_redis::Durability::Server
            };
            let builder = builder.durability(durability);
            Arc::new(builder.open().await?)
        }
    })
}
