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
    /// Steps of the store's clock.
    #[serde(default)]
    pub(crate) clock_steps: Vec<ClockStep>,
}

/// A step of the store's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockStep {
    pub(crate) at: u64,
    /// How far the clock is ahead of the machine's clock from then on.
    pub(crate) ahead: u64,
}

/// How often the clock steps forward, and how long it stays there.
const STEP_INTERVAL: u64 = 4_000_000;
const STEP_LENGTH: u64 = 1_500_000;

/// How long one disturbance of a steady run lasts.
const DISTURBANCE: u64 = 6_000_000;

/// One key in this many is locked during a disturbance.
const LOCKED_PART: u64 = 2;

/// What a store layer does to the calls of a steady run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// Each process gets no answer to one extension. The number is that of the disturbance.
    HungCall(u64),
    /// Some keys are locked and cannot be extended.
    LockedKeys(u64),
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

    /// Plans the steps of the store's clock: forward and back, in turn.
    pub(crate) fn plan_clock_steps(&mut self) {
        if !self.scenario.has_clock_steps() {
            return;
        }
        let mut random = Random::new(self.seed, "clock");
        let mut at = self.start + STEP_INTERVAL / 2;
        while at + STEP_LENGTH < self.until {
            let ahead = 200_000 + random.below(3_000_000);
            self.clock_steps.push(ClockStep { at, ahead });
            self.clock_steps.push(ClockStep { at: at + STEP_LENGTH, ahead: 0 });
            at += STEP_INTERVAL;
        }
    }

    /// Returns how far the store's clock is ahead of the machine's at a time.
    pub(crate) fn clock_offset(&self, time: u64) -> u64 {
        let past = self.clock_steps.iter().rev().find(|step| step.at <= time);
        past.map_or(0, |step| step.ahead)
    }

    /// Returns whether the clock stepped in a span of time.
    pub(crate) fn has_clock_step(&self, from: u64, to: u64) -> bool {
        self.clock_steps.iter().any(|step| from <= step.at && step.at <= to)
    }

    /// Returns the number of the disturbance of a steady run at a time if a connection fault
    /// may begin then: it must end long before a call hangs, because a lease survives only
    /// one of them.
    pub(crate) fn fault_window(&self, time: u64) -> Option<u64> {
        let elapsed = time.saturating_sub(self.start);
        let is_early = elapsed % DISTURBANCE < DISTURBANCE / 2;
        match self.disturbance(time) {
            Disturbance::LockedKeys(number) if is_early => Some(number),
            Disturbance::LockedKeys(_) | Disturbance::HungCall(_) => None,
        }
    }

    /// Returns the disturbance of a steady run at a time.
    pub(crate) fn disturbance(&self, time: u64) -> Disturbance {
        match time.saturating_sub(self.start) / DISTURBANCE {
            number if number.is_multiple_of(2) => Disturbance::HungCall(number),
            number => Disturbance::LockedKeys(number),
        }
    }

    /// Returns whether a steady run locks a key at a time.
    pub(crate) fn is_locked(&self, key: &str, time: u64) -> bool {
        let Disturbance::LockedKeys(number) = self.disturbance(time) else {
            return false;
        };
        let key = number_of(key).unwrap_or(0);
        self.scenario.is_steady() && (key + number / 2).is_multiple_of(LOCKED_PART)
    }

    /// Returns whether a steady run locked a key at any time in a span.
    pub(crate) fn was_locked(&self, key: &str, from: u64, to: u64) -> bool {
        let mut times = (from..to).step_by(1_000_000).chain([to]);
        times.any(|time| self.is_locked(key, time))
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

    /// Returns the key that only this lane adds in a steady run, once and with a delay.
    pub(crate) fn delayed_key(&self, generation: u64, lane: usize) -> String {
        self.hour_long_key(generation, lane)
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

    /// Returns all keys that are never delayed for an hour.
    pub(crate) fn all_but_hour_long(&self) -> Vec<Key> {
        let hour_long = COMMON..COMMON + self.lanes() as u64;
        let indices =
            (0..self.keys_per_generation()).filter(|index| !hour_long.contains(index));
        let names = (0..self.generations()).flat_map(|generation| {
            indices.clone().map(move |index| self.key(generation, index))
        });
        names.filter_map(|name| Key::new(name.into_bytes()).ok()).collect()
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
