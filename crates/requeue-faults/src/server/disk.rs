//! A small disk that a fault can fill.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The size of the disk. The files of every server fit, and filling it takes little time.
const SIZE: &str = "size=192m,mode=755";

/// A file system in memory, mounted on a folder of the run.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk. Returns `None` without the permission to mount, which is root's.
    pub(crate) fn mount(path: &Path) -> Result<Option<Self>> {
        fs::create_dir(path)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", SIZE, "requeue-faults"]).arg(path);
        let output = command.output().context("cannot run mount")?;
        let disk = Self { path: path.to_owned() };
        Ok(output.status.success().then_some(disk))
    }

    /// Writes until no byte is left.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler())?;
        let mut block = &[0; 16 * 1024][..];
        while !block.is_empty() {
            if file.write_all(block).is_err() {
                // Smaller blocks fill the rest.
                block = &block[..block.len() / 16];
            }
        }
        Ok(())
    }

    /// Deletes the data of `fill`.
    pub(crate) fn free(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("cannot free the disk")
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a killed server may still be closing its files.
        drop(Command::new("umount").arg("-l").arg(&self.path).output());
    }
}
