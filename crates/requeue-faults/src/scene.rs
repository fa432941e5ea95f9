//! The circumstances of a run: which store, how much there is to do, how long leases last.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::check::Home;
use crate::dice::Dice;
use crate::stores::Kind;

/// The shortest lease with which a wait leases by itself.
const LEASE_AFTER_WAIT: Duration = Duration::from_secs(30);

/// How much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Workers always have keys, and faults outlast the leases
    Busy,
    /// Workers mostly wait, and leases outlast the run
    Calm,
}

/// What of its answers an engine has on disk.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize,
)]
pub(crate) enum Durability {
    /// All of them
    #[default]
    All,
    /// Adds; leases and ends of the last moments may be undone by a kill. Only on PostgreSQL
    Adds,
}

/// What is run, as it was typed; the same for every verb that runs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SceneFlags {
    #[arg(long)]
    pub(crate) store: Kind,
    /// How long each run is disturbed, or a bug looked for
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Of all that is left to chance; random if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// How much there is to do; first one, then the other, if it is not given
    #[arg(long)]
    load: Option<Load>,
    /// Into how many partitions Redis splits the queue, instead of what the seed says
    #[arg(long)]
    partitions: Option<usize>,
    /// How many milliseconds a lease lasts, instead of what fits the load
    #[arg(long)]
    lease: Option<u64>,
    /// What of its answers the engine has on disk
    #[arg(long, default_value = "all")]
    durability: Durability,
}

impl SceneFlags {
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(crate::journal::now)
    }

    /// The scenes that were asked for.
    pub(crate) fn scenes(&self, seed: u64) -> Vec<Scene> {
        let loads = self.load.map_or(vec![Load::Busy, Load::Calm], |load| vec![load]);
        loads.into_iter().map(|load| self.scene(load, seed)).collect()
    }

    /// The scene in which bugs show, unless another was asked for.
    pub(crate) fn busy(&self, seed: u64) -> Scene {
        self.scene(self.load.unwrap_or(Load::Busy), seed)
    }

    fn scene(&self, load: Load, seed: u64) -> Scene {
        let scene = Scene::new(self.store, load, seed);
        let lease = self.lease.map_or(scene.lease, Duration::from_millis);
        let (partitions, durability) = (self.partitions, self.durability);
        let partitions = partitions.unwrap_or(scene.partitions);
        Scene { partitions, lease, durability, ..scene }
    }
}

/// What all processes of a run agree on, whatever the time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) store: Kind,
    pub(crate) load: Load,
    /// Only Redis has them. Those of a cluster are on all nodes.
    pub(crate) partitions: usize,
    pub(crate) lease: Duration,
    #[serde(default)]
    pub(crate) durability: Durability,
}

impl Scene {
    pub(crate) fn new(store: Kind, load: Load, seed: u64) -> Self {
        let chance = Dice::new(seed, "partitions").below(3) + 1;
        let partitions = match (store, load) {
            (Kind::Cluster, _) => 6,
            (Kind::Redis, Load::Busy) => usize::try_from(chance).unwrap_or(1),
            // No other store has them, and with more no wait leases by itself.
            (Kind::Redis, Load::Calm)
            | (Kind::Memory | Kind::Fjall | Kind::Postgres, _) => 1,
        };
        let lease = match load {
            Load::Busy => Duration::from_millis(400),
            Load::Calm => LEASE_AFTER_WAIT,
        };
        Self { store, load, partitions, lease, durability: Durability::All }
    }

    /// An end that was undone leaves its key processing for as long as the lease lasts.
    pub(crate) fn until_undone_ends_pass(&self) -> Duration {
        match self.durability {
            Durability::All => Duration::ZERO,
            Durability::Adds => self.lease,
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.load == Load::Calm
    }

    /// Whether the store has ways of its own for a single key and for who waits.
    pub(crate) fn has_shortcuts(&self) -> bool {
        let is_alone = self.store == Kind::Redis && self.partitions == 1;
        is_alone && self.is_calm() && self.lease >= LEASE_AFTER_WAIT
    }

    /// How many runs a worker has at a time, which for an embedded store is the only one. Who
    /// asks for one key at a time goes other ways than who asks for more.
    pub(crate) fn tasks(&self) -> usize {
        match (self.load, self.store.home()) {
            (Load::Calm, _) => 1,
            (Load::Busy, Home::Server) => 6,
            (Load::Busy, Home::Embedded) => 18,
        }
    }

    /// How long a generation of keys is added to, in microseconds. The last add of each key
    /// is the one that can be lost without a later run to hide it. If all is calm, no key
    /// is delayed for much of it.
    pub(crate) fn generation(&self) -> u64 {
        if self.is_calm() { 3_000_000 } else { 700_000 }
    }

    /// How many keys are added one after the other, and how long the pause after them is.
    pub(crate) fn volley(&self, dice: &mut Dice) -> (u64, Duration) {
        match self.load {
            Load::Busy => (1, dice.millis(0..40)),
            Load::Calm => (1 + dice.below(4), dice.millis(200..1600)),
        }
    }

    /// With which priority a key is added. A calm run has none but the usual one, or the
    /// scripts for single keys would not be reached.
    pub(crate) fn priority(&self, dice: &mut Dice) -> i32 {
        let priorities = [-1, 1, 9];
        let ranked = !self.is_calm() && dice.percent(20);
        if ranked { dice.pick(&priorities).copied().unwrap_or_default() } else { 0 }
    }
}
