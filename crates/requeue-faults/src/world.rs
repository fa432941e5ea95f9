//! What the keys stand for: a file of version counters, one for each key and lane.
//!
//! A lane is one task that adds keys. It raises its counter of a key, then adds the key. A
//! run that begins after that add must find the counter at least that high.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use requeue_store::Key;
use serde::{Deserialize, Serialize};

use crate::journal::now;
use crate::scene::Scene;

/// The delay, in microseconds, of adds that are not to come before the end of a run.
pub(crate) const AN_HOUR: u64 = 3_600_000_000;

/// How many keys are added to at a time.
const HOT: u64 = 24;

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

    /// A key of this generation that all lanes add.
    pub(crate) fn hot(&self, generation: u64, choice: u64) -> String {
        format!("k{}", generation * (HOT + self.lanes() as u64) + choice % HOT)
    }

    /// The key of this generation and lane that is to be delayed for an hour on top of a
    /// short delay.
    pub(crate) fn late(&self, generation: u64, lane: usize) -> String {
        let lanes = self.lanes() as u64;
        format!("k{}", generation * (HOT + lanes) + HOT + lane as u64)
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
        let number = key.strip_prefix('k').and_then(|number| number.parse::<u64>().ok());
        let number = number.with_context(|| format!("{key:?} is no key of this run"))?;
        Ok(number * (self.lanes * 8) as u64)
    }
}
