//! The stores under test, and how they are opened.

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

use crate::bug::Bug;
use crate::check::Home;
use crate::mutant::Mutant;
use crate::process::pause;
use crate::scene::{Durability, Scene};

/// How long an engine may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time limit of a call, shorter than every lease: a half-open connection must not cost
/// more than one.
const TIMEOUT: Duration = Duration::from_millis(300);

/// The name of the queue.
const QUEUE: &str = "faults";

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// In memory: only stopped, never killed
    Memory,
    /// On disk, in the process that uses it
    Fjall,
    /// Redis, every write on disk before its answer
    Redis,
    /// A Redis cluster of three nodes, every write on disk before its answer
    Cluster,
    /// PostgreSQL as it is by default
    Postgres,
}

impl Kind {
    pub(crate) fn home(self) -> Home {
        match self {
            Self::Memory | Self::Fjall => Home::Embedded,
            Self::Redis | Self::Cluster | Self::Postgres => Home::Server,
        }
    }

    /// How many servers it has.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Memory | Self::Fjall => 0,
            Self::Redis | Self::Postgres => 1,
            Self::Cluster => 3,
        }
    }

    /// Where the store is whose servers are on these ports.
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

/// A Redis key of a partition of the queue.
pub(crate) fn redis_key(partition: usize) -> String {
    format!("rq:{{{QUEUE}:{partition}}}:m")
}

/// Opens a store, with a bug if one is asked for, as soon as its engine is there.
pub(crate) async fn open(
    scene: &Scene,
    place: &str,
    bug: Option<Bug>,
    folder: &Path,
) -> Result<Arc<dyn Store>> {
    let store = patiently(|| open_once(scene, place)).await?;
    Ok(match bug {
        Some(bug) => Arc::new(Mutant::new(store, bug, folder)),
        None => store,
    })
}

/// Opens as soon as the engine is there.
pub(crate) async fn patiently<T, F>(open: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T, Error>>,
{
    let give_up = SystemClock.now() + PATIENCE;
    loop {
        match open().await {
            Err(error) if error.is_transient() && SystemClock.now() < give_up => {
                pause(Duration::from_millis(50)).await;
            }
            other => return other.context("cannot open the store"),
        }
    }
}

/// Opens the queue in PostgreSQL.
pub(crate) async fn open_postgres(
    scene: &Scene,
    place: &str,
) -> Result<PostgresStore, Error> {
    let builder = PostgresStore::builder(place).queue(QUEUE).connections(3);
    let durability = match scene.durability {
        Durability::All => requeue_postgres::Durability::Server,
        Durability::Adds => requeue_postgres::Durability::Adds,
    };
    builder.durability(durability).timeout(TIMEOUT).open().await
}

async fn open_once(scene: &Scene, place: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(match scene.store {
        Kind::Memory => Arc::new(MemoryStore::new()),
        Kind::Fjall => Arc::new(FjallStore::builder(place).open()?),
        Kind::Postgres => Arc::new(open_postgres(scene, place).await?),
        Kind::Redis | Kind::Cluster => {
            let builder = RedisStore::builder(place).queue(QUEUE);
            let builder = builder.partitions(scene.partitions).timeout(TIMEOUT);
            Arc::new(builder.open().await?)
        }
    })
}
