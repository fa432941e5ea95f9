//! The plan of a run: which keys exist, and how their runs behave.
//!
//! Keys come in generations. The last add of each key is the one that can be lost without a
//! later run hiding it, so a run uses many keys for a short time each.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue_store::{Backoff, Key, Rate};
use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use crate::random::Random;
use crate::time::now;

/// A delay that ends after every run, in microseconds.
pub(crate) const AN_HOUR: u64 = 3_600_000_000;

/// The number of keys of a generation that all lanes add.
const COMMON: u64 = 24;

/// The number of keys of a generation that each lane adds through the shared rate.
const RATE_LIMITED_PER_LANE: u64 = 4;

/// The backoff of rate-limited adds. A generation adds more keys than the burst, and fewer
/// than the rate allows in that time.
pub(crate) const RATE_LIMITED: Backoff = Backoff {
    base: Duration::from_millis(1),
    max: Duration::from_millis(5),
    rate: Some(RATE),
};

/// The rate that all processes share.
pub(crate) const RATE: Rate =
    Rate { interval: Duration::from_millis(20), burst: NonZeroU32::new(6).unwrap() };

/// The number of keys of a generation whose runs never succeed.
const FAILING: u64 = 1;

/// A key whose lease expired this often is dead.
pub(crate) const MAX_DELIVERIES: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// The number of tasks that add keys in each producer.
pub(crate) const LANES_PER_PRODUCER: usize = 4;

/// How the runs of a key end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Most runs succeed
    Succeeds,
    /// Every run fails
    Fails,
    /// Every run crashes and never finishes its lease
    Crashes,
}

/// Settings that all processes of a run share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) start: u64,
    pub(crate) until: u64,
    pub(crate) seed: u64,
    pub(crate) producers: usize,
    pub(crate) scenario: Scenario,
}

impl Plan {
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string(self)?;
        std::fs::write(folder.join("plan.json"), text).context("cannot write the plan")
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let text =
            std::fs::read(folder.join("plan.json")).context("cannot read the plan")?;
        serde_json::from_slice(&text).context("cannot parse the plan")
    }

    pub(crate) fn lanes(&self) -> usize {
        self.producers * LANES_PER_PRODUCER
    }

    /// Returns the current generation.
    pub(crate) fn generation(&self) -> u64 {
        now().saturating_sub(self.start) / self.scenario.generation_micros()
    }

    fn generations(&self) -> u64 {
        (self.until - self.start) / self.scenario.generation_micros() + 1
    }

    /// Picks a key that all lanes add. Sometimes this is a failing key of this generation or
    /// of the one before, which is probably dead by now.
    pub(crate) fn common_key(&self, generation: u64, random: &mut Random) -> String {
        if random.percent(16) {
            let generation = generation.saturating_sub(random.below(2));
            return self.key(generation, self.keys_per_generation() - FAILING);
        }
        self.key(generation, random.below(COMMON))
    }

    /// Returns how the runs of a key end. Every second failing key crashes.
    pub(crate) fn behaviour(&self, key: &str) -> Behaviour {
        let (number, width) = (number_of(key).unwrap_or(0), self.keys_per_generation());
        let (generation, index) = (number / width, number % width);
        match (index < width - FAILING, generation % 2) {
            (true, _) => Behaviour::Succeeds,
            (false, 0) => Behaviour::Crashes,
            (false, _) => Behaviour::Fails,
        }
    }

    /// Returns the key that a lane delays shortly and then for an hour.
    pub(crate) fn hour_long_key(&self, generation: u64, lane: usize) -> String {
        self.key(generation, COMMON + lane as u64)
    }

    /// Returns the keys that a lane adds through the shared rate.
    pub(crate) fn rate_limited_keys(&self, generation: u64, lane: usize) -> Vec<String> {
        let first = COMMON + self.lanes() as u64 + lane as u64 * RATE_LIMITED_PER_LANE;
        let indices = first..first + RATE_LIMITED_PER_LANE;
        indices.map(|index| self.key(generation, index)).collect()
    }

    fn key(&self, generation: u64, index: u64) -> String {
        format!("k{}", generation * self.keys_per_generation() + index)
    }

    fn keys_per_generation(&self) -> u64 {
        COMMON + self.lanes() as u64 * (1 + RATE_LIMITED_PER_LANE) + FAILING
    }

    /// Returns all keys that may be delayed for an hour.
    pub(crate) fn all_hour_long(&self) -> Vec<Key> {
        let lanes = 0..self.lanes();
        let pairs = (0..self.generations())
            .flat_map(|generation| lanes.clone().map(move |lane| (generation, lane)));
        let names = pairs.map(|(generation, lane)| self.hour_long_key(generation, lane));
        names.filter_map(|name| Key::new(name.into_bytes()).ok()).collect()
    }
}

/// Returns the number of a key such as `k17`.
pub(crate) fn number_of(key: &str) -> Option<u64> {
    key.strip_prefix('k')?.parse().ok()
}
