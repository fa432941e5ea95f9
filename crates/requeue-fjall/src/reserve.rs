//! Disk space that is kept for the last group before the disk is full.
//!
//! A change is made in memory before it is written. If the disk is full, it cannot be taken
//! back, because other calls may have built on it. So a store keeps some space: when a write
//! fails for lack of space, the reserve is freed and the write is repeated. Until the reserve
//! is back, calls that change something are refused before they do.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::folder::RESERVE_FILE;

/// Enough for several ten thousand small records.
const SIZE: usize = 4 << 20;

/// A file of zeros.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    is_there: bool,
}

impl Reserve {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join(RESERVE_FILE);
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        Self { path, is_there: size == SIZE as u64 }
    }

    /// Creates the file unless it is there. Returns whether it is.
    pub(crate) fn ensure(&mut self) -> bool {
        if !self.is_there {
            self.is_there = self.create().is_ok();
            if !self.is_there {
                self.remove();
            }
        }
        self.is_there
    }

    /// Writes the zeros: a file that is only set to its length takes no space.
    fn create(&self) -> io::Result<()> {
        let mut file = File::create(&self.path)?;
        let zeros = [0; 16 << 10];
        (0..SIZE / zeros.len()).try_for_each(|_| file.write_all(&zeros))?;
        file.sync_data()
    }

    /// Frees the space.
    pub(crate) fn remove(&mut self) {
        self.is_there = false;
        // If the file cannot be removed, the write is repeated without its space.
        drop(fs::remove_file(&self.path));
    }
}
