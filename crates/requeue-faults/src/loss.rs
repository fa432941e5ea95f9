//! What an engine loses that is killed in the middle of adds, at each of its settings:
//! keys that were acknowledged and are not there when it runs again, or when a replica has
//! taken its place.
//!
//! A kill is not a power cut: what the system was given survives it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue_store::{Add, Grant, Key, LeaseRequest, Look, Owner, Phase, Store, When};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::engine::{Engine, Keeping};
use crate::proxy::{Proxy, Trouble, park};
use crate::report;
use crate::scene::{Durability, Load, Scene};
use crate::stores::{self, Kind};

/// How long keys are added before the engine is killed.
const ADDING: Duration = Duration::from_secs(2);

/// Calls that are on their way at a time, and the keys of each.
const LANES: u64 = 8;
const BATCH: u64 = 100;

/// How long leases last: longer than all this.
const LEASE: Duration = Duration::from_secs(3600);

/// How far a replica that is late is behind.
const BEHIND: Duration = Duration::from_millis(50);

/// A setting of an engine, and what takes its place when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// The same engine, started again
    Restart(Keeping),
    /// The same, where only adds are on disk when they are answered. Keys are leased, too
    Adds,
    /// A replica of it, that has all it was sent
    Failover,
    /// One that has received nothing for a moment
    LateFailover,
}

impl Case {
    fn of(store: Kind) -> &'static [Self] {
        use Keeping::{AtOnce, Nothing, Soon};
        match store {
            // A node loses what a server does.
            Kind::Memory | Kind::Fjall | Kind::Cluster => &[],
            Kind::Redis => &[
                Self::Restart(Nothing),
                Self::Restart(Soon),
                Self::Restart(AtOnce),
                Self::Failover,
                Self::LateFailover,
            ],
            Kind::Postgres => &[Self::Restart(Soon), Self::Adds, Self::Restart(AtOnce)],
        }
    }

    pub(crate) fn name(self, store: Kind) -> &'static str {
        match (store, self) {
            (_, Self::Adds) => "Durability::Adds",
            (_, Self::Failover) => "failover to a replica",
            (_, Self::LateFailover) => "failover to a replica that is 50 ms behind",
            (_, Self::Restart(keeping)) => keeping.name(store),
        }
    }

    fn keeping(self) -> Keeping {
        match self {
            Self::Restart(keeping) => keeping,
            Self::Adds => Keeping::AtOnce,
            Self::Failover | Self::LateFailover => Keeping::Soon,
        }
    }

    fn has_replica(self) -> bool {
        matches!(self, Self::Failover | Self::LateFailover)
    }

    fn scene(self, store: Kind) -> Scene {
        let adds = self == Self::Adds;
        let durability = if adds { Durability::Adds } else { Durability::All };
        Scene { durability, ..Scene::new(store, Load::Busy, 0) }
    }
}

/// What was lost, over several kills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    pub(crate) kills: u64,
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
    /// Leases, and those of them that were undone.
    pub(crate) leased: u64,
    pub(crate) undone: u64,
}

/// Measures each setting of a store that has a server.
pub(crate) fn measure(store: Kind, rounds: u64) -> Result<()> {
    for case in Case::of(store) {
        let mut loss = Loss::default();
        for _ in 0..rounds {
            kill_once(store, *case, &mut loss)?;
        }
        report::loss(store, *case, &loss);
    }
    Ok(())
}

fn kill_once(store: Kind, case: Case, loss: &mut Loss) -> Result<()> {
    let micros = crate::journal::now();
    let folder = std::env::temp_dir().join(format!("requeue-loss-{micros}"));
    fs::create_dir(&folder)?;
    let done = kill_once_in(&folder, store, case, loss);
    fs::remove_dir_all(&folder)?;
    done
}

fn kill_once_in(folder: &Path, store: Kind, case: Case, loss: &mut Loss) -> Result<()> {
    let runtime = Runtime::new().context("no runtime")?;
    let mut engine = start(folder, "engine", store, case)?;
    let replica = || Replica::start(folder, store, case, engine.port);
    let mut replica = case.has_replica().then(replica).transpose()?;
    let open = |engine: &Engine| {
        let (place, scene) = (store.address(&[engine.port]), case.scene(store));
        runtime.block_on(async { stores::open(&scene, &place, None, folder).await })
    };
    let traffic = Traffic::begin(&runtime, &open(&engine)?, case);
    park(ADDING);
    if let Some(replica) = replica.as_ref().filter(|_| case == Case::LateFailover) {
        replica.link.make(Trouble::HalfOpen);
        park(BEHIND);
    }
    engine.kill()?;
    let told = runtime.block_on(traffic.told())?;
    let heir = match &mut replica {
        Some(replica) => replica.engine.take_over().map(|()| &mut replica.engine)?,
        None => &mut engine,
    };
    heir.ensure_running()?;
    heir.wait_until_it_answers()?;
    let queue = open(heir)?;
    runtime.block_on(told.compare(&*queue, loss))
}

/// Who adds and leases when the engine is killed.
struct Traffic {
    adding: Vec<JoinHandle<Vec<Key>>>,
    leasing: Option<JoinHandle<Vec<Grant>>>,
}

impl Traffic {
    fn begin(runtime: &Runtime, store: &Arc<dyn Store>, case: Case) -> Self {
        let add = |lane| runtime.spawn(add_until_it_fails(Arc::clone(store), lane));
        let lease = || runtime.spawn(lease_until_it_fails(Arc::clone(store)));
        let adding = (0..LANES).map(add).collect();
        Self { adding, leasing: (case == Case::Adds).then(lease) }
    }

    async fn told(self) -> Result<Told> {
        let mut told = Told::default();
        for lane in self.adding {
            told.acknowledged.extend(lane.await?);
        }
        if let Some(leasing) = self.leasing {
            told.leased = leasing.await?;
        }
        Ok(told)
    }
}

/// What they were told.
#[derive(Default)]
struct Told {
    acknowledged: Vec<Key>,
    leased: Vec<Grant>,
}

impl Told {
    async fn compare(&self, store: &dyn Store, loss: &mut Loss) -> Result<()> {
        loss.acknowledged += self.acknowledged.len() as u64;
        loss.lost += missing(store, &self.acknowledged).await?;
        loss.leased += self.leased.len() as u64;
        loss.undone += undone(store, &self.leased).await?;
        loss.kills += 1;
        Ok(())
    }
}

/// A server that follows another.
struct Replica {
    engine: Engine,
    link: Proxy,
}

impl Replica {
    fn start(folder: &Path, store: Kind, case: Case, port: u16) -> Result<Self> {
        let mut engine = start(folder, "replica", store, case)?;
        let link = Proxy::start(port)?;
        engine.follow(link.port)?;
        Ok(Self { engine, link })
    }
}

fn start(folder: &Path, name: &str, store: Kind, case: Case) -> Result<Engine> {
    let mut engine = Engine::new(store, folder.join(name), case.keeping())?;
    engine.ensure_running()?;
    engine.wait_until_it_answers()?;
    Ok(engine)
}

/// Adds keys of its own, batch by batch: those that were acknowledged.
async fn add_until_it_fails(store: Arc<dyn Store>, lane: u64) -> Vec<Key> {
    let mut acknowledged = Vec::new();
    for batch in 0_u64.. {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let keys: Vec<_> = numbers
            .filter_map(|n| Key::new(format!("{lane}/{n}").into_bytes()).ok())
            .collect();
        let add = |key: &Key| Add::new(key.clone(), When::Now);
        let adds: Vec<_> = keys.iter().map(add).collect();
        if store.add(&adds).await.is_err() {
            break;
        }
        acknowledged.extend(keys);
    }
    acknowledged
}

/// How many of these keys are not there.
async fn missing(store: &dyn Store, keys: &[Key]) -> Result<u64> {
    let mut missing = 0;
    for keys in keys.chunks(500) {
        let looks = stores::patiently(|| store.look(keys)).await?;
        missing += looks.iter().filter(|look| **look == Look::default()).count() as u64;
    }
    Ok(missing)
}

/// Leases keys, batch by batch: what was granted.
async fn lease_until_it_fails(store: Arc<dyn Store>) -> Vec<Grant> {
    let (owner, max) = (Owner::new("leases"), BATCH.try_into().unwrap_or(1));
    let request = LeaseRequest { owner, max, lease: LEASE, max_deliveries: None };
    let mut granted = Vec::new();
    while let Ok(leased) = store.lease(&request).await {
        granted.extend(leased.grants);
    }
    granted
}

/// How many of these leases are not there.
async fn undone(store: &dyn Store, grants: &[Grant]) -> Result<u64> {
    let mut undone = 0;
    for grants in grants.chunks(500) {
        let keys: Vec<_> = grants.iter().map(|grant| grant.key.clone()).collect();
        let looks = stores::patiently(|| store.look(&keys)).await?;
        let pairs = grants.iter().zip(&looks);
        undone += pairs.filter(|(grant, look)| !stands(grant, look)).count() as u64;
    }
    Ok(undone)
}

fn stands(grant: &Grant, look: &Look) -> bool {
    matches!(look.phase, Phase::Processing { token, .. } if token == grant.token)
}
