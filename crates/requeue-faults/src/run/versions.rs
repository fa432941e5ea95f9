//! The file of version counters, one for each key and lane.
//!
//! A lane is one task that adds keys. It increments its counter of a key and then adds the
//! key. A run that starts after that add must read at least that version.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::plan::{Plan, number_of};

#[derive(Debug)]
pub(crate) struct VersionFile {
    file: File,
    lanes: usize,
}

impl VersionFile {
    pub(crate) fn open(folder: &Path, plan: &Plan) -> Result<Self> {
        let path = folder.join("versions");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).open(path);
        let file = file.context("cannot open the version file")?;
        Ok(Self { file, lanes: plan.lanes() })
    }

    /// Increments the version of a key in a lane and returns it. Only that lane may call
    /// this.
    pub(crate) fn increment(&self, key: &str, lane: usize) -> Result<u64> {
        let version = self.read(key)?.get(lane).copied().unwrap_or(0) + 1;
        let offset = self.offset(key)? + (lane * 8) as u64;
        self.file.write_all_at(&version.to_le_bytes(), offset)?;
        Ok(version)
    }

    /// Reads the versions of a key in all lanes.
    pub(crate) fn read(&self, key: &str) -> Result<Vec<u64>> {
        let mut row = vec![0; self.lanes * 8];
        let (mut filled, offset) = (0, self.offset(key)?);
        // Counters beyond the end of the file are 0.
        while filled < row.len() {
            match self.file.read_at(&mut row[filled..], offset + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        let counters =
            row.chunks_exact(8).map(|bytes| bytes.try_into().map(u64::from_le_bytes));
        Ok(counters.collect::<Result<_, _>>()?)
    }

    fn offset(&self, key: &str) -> Result<u64> {
        let number = number_of(key);
        let number =
            number.with_context(|| format!("{key:?} is not a key of this run"))?;
        Ok(number * (self.lanes * 8) as u64)
    }
}
