//! What the keys stand for: a file of version counters, one for each key and lane.
//!
//! A lane is one task that adds keys. It raises its counter of a key, then adds the key. A
//! run that begins after that add must find the counter at least that high.

use std::fs::{File, OpenOptions};
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue_store::{Backoff, Key, Rate};
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::journal::now;
use crate::scene::Scene;

/// The delay, in microseconds, of adds that are not to come before the end of a run.
pub(crate) const AN_HOUR: u64 = 3_600_000_000;

/// How many keys are added to at a time.
const HOT: u64 = 24;

/// How many keys of a generation each lane adds by the rate that all share, at once.
const PACED_EACH: u64 = 4;

/// What is added by the shared rate. The keys of a generation are more than it allows at
/// once, and fewer than it allows in that time.
pub(crate) const PACED: Backoff = Backoff {
    base: Duration::from_millis(1),
    max: Duration::from_millis(5),
    rate: Some(RATE),
};

/// The shared rate.
pub(crate) const RATE: Rate =
    Rate { interval: Duration::from_millis(20), burst: NonZeroU32::new(6).unwrap() };

/// How many of the keys of a generation have runs that never go well.
const GRIM: u64 = 1;

/// After how many leases that passed a key is dead.
pub(crate) const MOST_DELIVERIES: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// How the runs of a key go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Mostly well
    Goes,
    /// Never well
    Fails,
    /// So badly that their workers do not live to say so
    Kills,
}

/// How many tasks add keys in each producer.
pub(crate) const LANES_EACH: usize = 4;

/// What all processes of a run agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) start: u64,
    pub(crate) until: u64,
    pub(crate) seed: u64,
    pub(crate) producers: usize,
    pub(crate) scene: Scene,
}

impl Plan {
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string(self)?;
        std::fs::write(folder.join("plan.json"), text).context("cannot write the plan")
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let text =
            std::fs::read(folder.join("plan.json")).context("cannot read the plan")?;
        serde_json::from_slice(&text).context("the plan cannot be understood")
    }

    pub(crate) fn lanes(&self) -> usize {
        self.producers * LANES_EACH
    }

    pub(crate) fn generation(&self) -> u64 {
        now().saturating_sub(self.start) / self.scene.generation()
    }

    fn generations(&self) -> u64 {
        (self.until - self.start) / self.scene.generation() + 1
    }

    /// A key that all lanes add. Of those that never go well, the one of the generation
    /// before is dead by now.
    pub(crate) fn common(&self, generation: u64, dice: &mut Dice) -> String {
        if dice.percent(16) {
            let generation = generation.saturating_sub(dice.below(2));
            return self.key(generation, self.width() - GRIM);
        }
        self.key(generation, dice.below(HOT))
    }

    /// How the runs of a key go: those of each second grim one kill their workers.
    pub(crate) fn fate(&self, key: &str) -> Fate {
        let number = number_of(key).unwrap_or(0);
        let (generation, place) = (number / self.width(), number % self.width());
        match (place < self.width() - GRIM, generation % 2) {
            (true, _) => Fate::Goes,
            (false, 0) => Fate::Kills,
            (false, _) => Fate::Fails,
        }
    }

    /// The key of this generation and lane that is to be delayed for an hour on top of a
    /// short delay.
    pub(crate) fn late(&self, generation: u64, lane: usize) -> String {
        self.key(generation, HOT + lane as u64)
    }

    /// The keys of this generation and lane that are added by the shared rate.
    pub(crate) fn paced(&self, generation: u64, lane: usize) -> Vec<String> {
        let first = HOT + self.lanes() as u64 + lane as u64 * PACED_EACH;
        (first..first + PACED_EACH).map(|place| self.key(generation, place)).collect()
    }

    fn key(&self, generation: u64, place: u64) -> String {
        format!("k{}", generation * self.width() + place)
    }

    /// How many keys a generation has.
    fn width(&self) -> u64 {
        HOT + self.lanes() as u64 * (1 + PACED_EACH) + GRIM
    }

    /// All keys that may be delayed for an hour.
    pub(crate) fn all_late(&self) -> Vec<Key> {
        let lanes = 0..self.lanes();
        let names = (0..self.generations())
            .flat_map(|generation| lanes.clone().map(move |lane| (generation, lane)));
        let keys = names.map(|(generation, lane)| self.late(generation, lane));
        keys.filter_map(|name| Key::new(name.into_bytes()).ok()).collect()
    }
}

/// The file of counters.
#[derive(Debug)]
pub(crate) struct World {
    file: File,
    lanes: usize,
}

impl World {
    pub(crate) fn open(folder: &Path, plan: &Plan) -> Result<Self> {
        let path = folder.join("world");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).open(path);
        let file = file.context("cannot open the file of versions")?;
        Ok(Self { file, lanes: plan.lanes() })
    }

    /// Raises the version of a key in a lane, which nobody else does.
    pub(crate) fn raise(&self, key: &str, lane: usize) -> Result<u64> {
        let version = self.versions(key)?.get(lane).copied().unwrap_or(0) + 1;
        let place = self.row(key)? + (lane * 8) as u64;
        self.file.write_all_at(&version.to_le_bytes(), place)?;
        Ok(version)
    }

    /// The versions of a key in all lanes.
    pub(crate) fn versions(&self, key: &str) -> Result<Vec<u64>> {
        let mut row = vec![0; self.lanes * 8];
        let (mut filled, place) = (0, self.row(key)?);
        // Beyond the end of the file all counters are 0.
        while filled < row.len() {
            match self.file.read_at(&mut row[filled..], place + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        let counters =
            row.chunks_exact(8).map(|bytes| bytes.try_into().map(u64::from_le_bytes));
        Ok(counters.collect::<Result<_, _>>()?)
    }

    fn row(&self, key: &str) -> Result<u64> {
        let number = number_of(key);
        let number = number.with_context(|| format!("{key:?} is no key of this run"))?;
        Ok(number * (self.lanes * 8) as u64)
    }
}

fn number_of(key: &str) -> Option<u64> {
    key.strip_prefix('k')?.parse().ok()
}
