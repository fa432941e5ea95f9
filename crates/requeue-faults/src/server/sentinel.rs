//! Sentinels: processes that watch a primary and promote its replica when it is down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use super::engine::{free_port, killed_with_parent};

/// The name under which the sentinels know the primary.
pub(crate) const SERVICE: &str = "faults";

/// How long the primary may be silent, in milliseconds. It is longer than all faults that
/// are not meant to cause a failover.
const DOWN_AFTER: u32 = 2000;

#[derive(Debug)]
pub(super) struct Sentinel {
    pub(super) port: u16,
    folder: PathBuf,
    child: Child,
}

impl Sentinel {
    /// Starts a sentinel for the primary behind this port. Two sentinels must agree that it
    /// is down.
    pub(super) fn start(folder: PathBuf, primary: u16) -> Result<Self> {
        fs::create_dir(&folder)?;
        let port = free_port();
        fs::write(folder.join("sentinel.conf"), config(port, primary, &folder))?;
        let child = spawn(&folder)?;
        Ok(Self { port, folder, child })
    }

    /// Starts the sentinel again if it has exited, for example because its disk was full.
    pub(super) fn ensure_running(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            self.child = spawn(&self.folder)?;
        }
        Ok(())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

fn config(port: u16, primary: u16, folder: &Path) -> String {
    format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n\
         sentinel failover-timeout {SERVICE} 2500\n",
        folder.display()
    )
}

fn spawn(folder: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = killed_with_parent();
    command.arg("redis-server").arg(folder.join("sentinel.conf")).arg("--sentinel");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().context("cannot start a sentinel")
}
