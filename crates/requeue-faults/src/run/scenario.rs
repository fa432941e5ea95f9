//! The scenario of a run: store, load and lease duration.

use std::ops::Range;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::store::Kind;
use crate::store::bug::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Workers always have keys, and faults last longer than leases
    Busy,
    /// Workers mostly wait, and leases last longer than the run
    Calm,
    /// Some runs last several leases, and no single fault may cost a lease or delay a key
    Steady,
}

/// Which answers of the server are on disk before they are sent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize,
)]
pub(crate) enum Durability {
    /// All answers
    #[default]
    All,
    /// Only adds; a kill may undo recent leases and finishes. PostgreSQL only
    Adds,
}

/// Command line flags that select a scenario.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScenarioFlags {
    #[arg(long)]
    pub(crate) store: Kind,
    /// Duration of each run, or of the search for one bug
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Seed of all random choices [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// How much work there is [default: one run of each]
    #[arg(long)]
    load: Option<Load>,
    /// Number of partitions on Redis [default: chosen by the seed]
    #[arg(long)]
    partitions: Option<usize>,
    /// Lease duration in milliseconds [default: chosen by the load]
    #[arg(long)]
    lease: Option<u64>,
    /// Which answers are on disk before they are sent
    #[arg(long, default_value = "all")]
    durability: Durability,
}

impl ScenarioFlags {
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(crate::time::now)
    }

    pub(crate) fn scenarios(&self, seed: u64) -> Vec<Scenario> {
        let loads = Load::value_variants().to_vec();
        let loads = self.load.map_or(loads, |load| vec![load]);
        loads.into_iter().map(|load| self.scenario(load, seed)).collect()
    }

    /// Returns the scenario for finding a bug, with the best load unless one was given.
    pub(crate) fn for_bug(&self, bug: Bug, seed: u64) -> Scenario {
        self.scenario(self.load.unwrap_or(bug.load()), seed)
    }

    fn scenario(&self, load: Load, seed: u64) -> Scenario {
        let scenario = Scenario::new(self.store, load, seed);
        let lease = self.lease.map_or(scenario.lease, Duration::from_millis);
        let (partitions, durability) = (self.partitions, self.durability);
        let partitions = partitions.unwrap_or(scenario.partitions);
        Scenario { partitions, lease, durability, ..scenario }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) store: Kind,
    pub(crate) load: Load,
    /// Always 1 except on Redis. A cluster spreads them over its nodes.
    pub(crate) partitions: usize,
    pub(crate) lease: Duration,
    #[serde(default)]
    pub(crate) durability: Durability,
}

impl Scenario {
    pub(crate) fn new(store: Kind, load: Load, seed: u64) -> Self {
        let random = Random::new(seed, "partitions").index(3) + 1;
        let partitions = match (store, load) {
            (Kind::Cluster, _) => 6,
            (Kind::Redis, Load::Busy) => random,
            (Kind::Redis, Load::Calm | Load::Steady)
            | (Kind::Memory | Kind::Folder | Kind::Sentinel | Kind::Postgres, _) => 1,
        };
        let lease = match load {
            Load::Busy => Duration::from_millis(400),
            Load::Calm => Duration::from_secs(30),
            Load::Steady => Duration::from_millis(4500),
        };
        Self { store, load, partitions, lease, durability: Durability::All }
    }

    /// Returns how long a key can stay processing after a kill undid its finish.
    pub(crate) fn undone_finish_delay(&self) -> Duration {
        match self.durability {
            Durability::All => Duration::ZERO,
            Durability::Adds => self.lease,
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.load == Load::Calm
    }

    pub(crate) fn is_steady(&self) -> bool {
        self.load == Load::Steady
    }

    /// Returns whether some runs crash. Elsewhere leases are too long to wait for.
    pub(crate) fn has_crashes(&self) -> bool {
        self.load == Load::Busy
    }

    /// Returns whether the clock of the store steps. Only a store in the process of its users
    /// can have such a clock.
    pub(crate) fn has_clock_steps(&self) -> bool {
        self.store.is_embedded() && self.load == Load::Busy
    }

    /// Returns the time limit of a call to a server. It is shorter than every lease, so that
    /// a half-open connection costs at most one lease.
    pub(crate) fn call_timeout(&self) -> Duration {
        match self.load {
            Load::Busy | Load::Calm => Duration::from_millis(300),
            Load::Steady => Duration::from_secs(1),
        }
    }

    /// Returns the pause between two faults, in milliseconds.
    pub(crate) fn fault_pause(&self) -> Range<u64> {
        match self.load {
            Load::Busy | Load::Calm => 100..500,
            Load::Steady => 500..1500,
        }
    }

    /// Returns how long a server stays silent: longer than a lease, unless that is long.
    pub(crate) fn black_hole(&self) -> Duration {
        match self.load {
            Load::Busy | Load::Calm => Duration::from_millis(2500),
            Load::Steady => self.lease * 2,
        }
    }

    /// Returns how many keys a worker process runs at a time. With one, workers request one
    /// key per call, which is a different code path in the stores.
    pub(crate) fn concurrency(&self) -> usize {
        match self.load {
            Load::Calm => 1,
            Load::Steady if self.store.is_embedded() => 24,
            Load::Steady => 8,
            // An embedded store has only one worker process.
            Load::Busy if self.store.is_embedded() => 18,
            Load::Busy => 6,
        }
    }

    /// Returns the length of a generation. In a calm run it is much longer than any delay.
    pub(crate) fn generation_micros(&self) -> u64 {
        match self.load {
            Load::Busy => 700_000,
            Load::Calm => 3_000_000,
            Load::Steady => 6_000_000,
        }
    }

    /// Picks how many keys a lane adds in a row, and the pause after them.
    pub(crate) fn burst(&self, random: &mut Random) -> (u64, Duration) {
        match self.load {
            Load::Busy => (1, random.millis(0..40)),
            Load::Calm | Load::Steady => (1 + random.below(4), random.millis(200..1600)),
        }
    }

    /// Picks the priority of an add. It is always 0 in a calm run.
    pub(crate) fn priority(&self, random: &mut Random) -> i32 {
        let priorities = [-1, 1, 9];
        let has_priority = self.load == Load::Busy && random.percent(20);
        if has_priority { random.pick(&priorities).copied().unwrap_or(0) } else { 0 }
    }
}
