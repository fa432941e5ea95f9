//! Measures how much a server loses when it is killed during adds, at each of its settings.
//!
//! A key is lost if its add was acknowledged and the restarted server, or the replica that
//! took over, does not have it. A kill is not a power cut: data in the operating system's
//! cache survives.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue_store::{
    Add, Grant, Key, LeaseRequest, Look, Owner, Phase, RepliesExt, Store, When,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::report;
use crate::run::scenario::{Durability, Load, Scenario};
use crate::server::engine::{Engine, Persistence};
use crate::server::proxy::{ConnectionFault, Proxy};
use crate::store::{self, Kind};
use crate::time::sleep_blocking;

/// How long keys are added before the server is killed.
const ADDING: Duration = Duration::from_secs(2);

/// The number of concurrent calls, and the number of keys per call.
const LANES: u64 = 8;
const BATCH: u64 = 100;

/// Leases last longer than the measurement.
const LEASE: Duration = Duration::from_secs(3600);

/// The lag of a late replica.
const LAG: Duration = Duration::from_millis(50);

/// A setting of a server, and the server that clients use after the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The same server, restarted
    Restart(Persistence),
    /// The same server, restarted; only adds are on disk before the reply. Also leases keys
    AddsOnDisk,
    /// A replica that has received everything
    Failover,
    /// A replica that has received nothing for a moment
    LateFailover,
}

impl Setting {
    fn of(store: Kind) -> &'static [Self] {
        use Persistence::{AfterReply, BeforeReply};
        match store {
            // A cluster node loses as much as a single server.
            Kind::Memory | Kind::Folder | Kind::Cluster | Kind::Sentinel => &[],
            Kind::Redis => &[
                Self::Restart(Persistence::None),
                Self::Restart(AfterReply),
                Self::Restart(BeforeReply),
                Self::Failover,
                Self::LateFailover,
            ],
            Kind::Postgres => {
                &[Self::Restart(AfterReply), Self::AddsOnDisk, Self::Restart(BeforeReply)]
            }
        }
    }

    pub(crate) fn name(self, store: Kind) -> &'static str {
        match (store, self) {
            (_, Self::AddsOnDisk) => "Durability::Adds",
            (_, Self::Failover) => "failover to a replica",
            (_, Self::LateFailover) => "failover to a replica that lags by 50 ms",
            (_, Self::Restart(persistence)) => persistence.name(store),
        }
    }

    fn persistence(self) -> Persistence {
        match self {
            Self::Restart(persistence) => persistence,
            Self::AddsOnDisk => Persistence::BeforeReply,
            Self::Failover | Self::LateFailover => Persistence::AfterReply,
        }
    }

    fn has_replica(self) -> bool {
        matches!(self, Self::Failover | Self::LateFailover)
    }

    fn scenario(self, store: Kind) -> Scenario {
        let adds = self == Self::AddsOnDisk;
        let durability = if adds { Durability::Adds } else { Durability::All };
        Scenario { durability, ..Scenario::new(store, Load::Busy, 0) }
    }
}

/// The losses of several kills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossCounts {
    pub(crate) kills: u64,
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
    /// Leases, and how many of them were undone.
    pub(crate) leased: u64,
    pub(crate) undone: u64,
}

/// Measures and prints each setting of a store with a server.
pub(crate) fn measure(store: Kind, rounds: u64) -> Result<()> {
    for setting in Setting::of(store) {
        let mut counts = LossCounts::default();
        for _ in 0..rounds {
            kill_once(store, *setting, &mut counts)?;
        }
        report::data_loss(store, *setting, &counts);
    }
    Ok(())
}

fn kill_once(store: Kind, setting: Setting, counts: &mut LossCounts) -> Result<()> {
    let micros = crate::time::now();
    let folder = std::env::temp_dir().join(format!("requeue-loss-{micros}"));
    fs::create_dir(&folder)?;
    let result = kill_once_in(&folder, store, setting, counts);
    fs::remove_dir_all(&folder)?;
    result
}

fn kill_once_in(
    folder: &Path,
    store: Kind,
    setting: Setting,
    counts: &mut LossCounts,
) -> Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut engine = start(folder, "server", store, setting)?;
    let replica = || Replica::start(folder, store, setting, engine.port);
    let mut replica = setting.has_replica().then(replica).transpose()?;
    let open = |engine: &Engine| {
        let (address, scenario) =
            (store.address(&[engine.port]), setting.scenario(store));
        runtime.block_on(async { store::open(&scenario, &address).await })
    };
    let traffic = Traffic::start(&runtime, &open(&engine)?, setting);
    sleep_blocking(ADDING);
    if let Some(replica) = replica.as_ref().filter(|_| setting == Setting::LateFailover) {
        replica.link.inject(ConnectionFault::HalfOpen);
        sleep_blocking(LAG);
    }
    engine.kill()?;
    let answers = runtime.block_on(traffic.answers())?;
    let successor = match &mut replica {
        Some(replica) => replica.engine.promote().map(|()| &mut replica.engine)?,
        None => &mut engine,
    };
    successor.ensure_running()?;
    successor.wait_until_available()?;
    let store = open(successor)?;
    runtime.block_on(answers.count_losses(&*store, counts))
}

/// The tasks that use the server when it is killed.
struct Traffic {
    adding: Vec<JoinHandle<Vec<Key>>>,
    leasing: Option<JoinHandle<Vec<Grant>>>,
}

impl Traffic {
    fn start(runtime: &Runtime, store: &Arc<dyn Store>, setting: Setting) -> Self {
        let add = |lane| runtime.spawn(add_until_it_fails(Arc::clone(store), lane));
        let lease = || runtime.spawn(lease_until_it_fails(Arc::clone(store)));
        let adding = (0..LANES).map(add).collect();
        Self { adding, leasing: (setting == Setting::AddsOnDisk).then(lease) }
    }

    async fn answers(self) -> Result<Answers> {
        let mut answers = Answers::default();
        for lane in self.adding {
            answers.acknowledged.extend(lane.await?);
        }
        if let Some(leasing) = self.leasing {
            answers.leased = leasing.await?;
        }
        Ok(answers)
    }
}

/// The successful answers of the killed server.
#[derive(Default)]
struct Answers {
    acknowledged: Vec<Key>,
    leased: Vec<Grant>,
}

impl Answers {
    async fn count_losses(
        &self,
        store: &dyn Store,
        counts: &mut LossCounts,
    ) -> Result<()> {
        counts.acknowledged += self.acknowledged.len() as u64;
        counts.lost += missing(store, &self.acknowledged).await?;
        counts.leased += self.leased.len() as u64;
        counts.undone += undone(store, &self.leased).await?;
        counts.kills += 1;
        Ok(())
    }
}

/// A replica, and the proxy between it and its primary.
struct Replica {
    engine: Engine,
    link: Proxy,
}

impl Replica {
    fn start(folder: &Path, store: Kind, setting: Setting, port: u16) -> Result<Self> {
        let mut engine = start(folder, "replica", store, setting)?;
        let link = Proxy::start(port)?;
        engine.follow(link.port)?;
        Ok(Self { engine, link })
    }
}

fn start(folder: &Path, name: &str, store: Kind, setting: Setting) -> Result<Engine> {
    let mut engine = Engine::new(store, folder.join(name), setting.persistence())?;
    engine.ensure_running()?;
    engine.wait_until_available()?;
    Ok(engine)
}

/// Adds the keys of one lane in batches. Returns the acknowledged keys.
async fn add_until_it_fails(store: Arc<dyn Store>, lane: u64) -> Vec<Key> {
    let mut acknowledged = Vec::new();
    for batch in 0_u64.. {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let keys: Vec<_> = numbers
            .filter_map(|n| Key::new(format!("{lane}/{n}").into_bytes()).ok())
            .collect();
        let add = |key: &Key| Add::new(key.clone(), When::Now);
        let adds: Vec<_> = keys.iter().map(add).collect();
        if store.add(&adds).all().await.is_err() {
            break;
        }
        acknowledged.extend(keys);
    }
    acknowledged
}

/// Returns how many of these keys the store does not have.
async fn missing(store: &dyn Store, keys: &[Key]) -> Result<u64> {
    let mut missing = 0;
    for keys in keys.chunks(500) {
        let looks = store::retry_transient(|| store.look(keys).all()).await?;
        missing += looks.iter().filter(|look| **look == Look::default()).count() as u64;
    }
    Ok(missing)
}

/// Leases keys in batches. Returns the leases.
async fn lease_until_it_fails(store: Arc<dyn Store>) -> Vec<Grant> {
    let (owner, max) = (Owner::new("data-loss"), BATCH.try_into().unwrap_or(1));
    let request = LeaseRequest { owner, max, lease: LEASE, max_deliveries: None };
    let mut granted = Vec::new();
    while let Ok(leased) = store.lease(&request).await {
        granted.extend(leased.grants);
    }
    granted
}

/// Returns how many of these leases the store does not have.
async fn undone(store: &dyn Store, grants: &[Grant]) -> Result<u64> {
    let mut undone = 0;
    for grants in grants.chunks(500) {
        let keys: Vec<_> = grants.iter().map(|grant| grant.key.clone()).collect();
        let looks = store::retry_transient(|| store.look(&keys).all()).await?;
        let pairs = grants.iter().zip(&looks);
        undone += pairs.filter(|(grant, look)| !is_current(grant, look)).count() as u64;
    }
    Ok(undone)
}

fn is_current(grant: &Grant, look: &Look) -> bool {
    matches!(look.phase, Phase::Processing { token, .. } if token == grant.token)
}
