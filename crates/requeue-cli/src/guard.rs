//! Ends the commands of a requeue that was killed.
//!
//! A helper process, the guard, reads from a pipe that only requeue holds open. The pipe ends
//! when requeue exits, for whatever reason. The guard then terminates the commands that a
//! table in a shared file still lists. Each slot of the table holds one number:
//!
//! | number | meaning |
//! |---|---|
//! | 0 | no command |
//! | 1 | a command is about to start; it is found by its environment |
//! | more | the process group of the running command |
//!
//! A run costs three writes of four bytes, and wakes no process. A parent-death signal would
//! need `pre_exec`, which turns each spawn into a fork: five times as slow with a million keys
//! in memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use requeue::{Clock, SystemClock};
use rustix::process::{Pid, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::command::{Group, ProcessId};
use crate::report::unnamed_file;

/// The verb of the helper process. It is not listed in the help.
pub(crate) const VERB: &str = "__guard";

/// The variable with the pid of requeue in the environment of a command.
pub(crate) const PARENT: &str = "REQUEUE_PID";

/// Size of a slot in the table, in bytes.
const SLOT: u64 = 4;

const IDLE: i32 = 0;
const STARTING: i32 = 1;

/// Time between two looks at processes that are about to start or exit.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How long a started process may take until its environment can be read.
const START_TIME: Duration = Duration::from_millis(500);

/// The side of requeue.
#[derive(Debug)]
pub(crate) struct Guard {
    table: File,
    /// Holds the pipe open.
    _child: Child,
}

impl Guard {
    /// Starts the helper process. Commands have `grace` between TERM and KILL.
    pub(crate) fn start(grace: Duration) -> io::Result<Self> {
        let table = unnamed_file()?;
        let child = Command::new(std::env::current_exe()?)
            .arg0("requeue")
            .args([VERB, &grace.as_millis().to_string(), &std::process::id().to_string()])
            .env_clear()
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(table.try_clone()?)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { table, _child: child })
    }

    /// Records that a command is about to start.
    pub(crate) fn starting(&self, slot: usize) {
        self.write(slot, STARTING);
    }

    /// Records the process group of a running command.
    pub(crate) fn started(&self, slot: usize, group: Group) {
        self.write(slot, group.pid());
    }

    /// Records that a command has exited. Its process must not be reaped yet.
    pub(crate) fn ended(&self, slot: usize) {
        self.write(slot, IDLE);
    }

    /// Best effort: a full disk must not stop the run.
    fn write(&self, slot: usize, number: i32) {
        let at = slot as u64 * SLOT;
        self.table.write_all_at(&number.to_le_bytes(), at).unwrap_or_default();
    }
}

/// The helper process: waits for the end of requeue, and terminates its commands.
///
/// `words` are the time between TERM and KILL in milliseconds, and the pid of requeue.
pub(crate) fn guard(words: &[String]) -> io::Result<()> {
    let [grace, parent] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let grace = Duration::from_millis(grace.parse().map_err(io::Error::other)?);
    // A service manager sends TERM to all processes. The guard ends with requeue.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // A working directory cannot be unmounted.
    std::env::set_current_dir("/").unwrap_or_default();
    wait_for_end()?;
    let table = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    terminate(&running(&read(&table)?, parent), grace);
    Ok(())
}

/// Waits until the pipe from requeue ends.
fn wait_for_end() -> io::Result<()> {
    loop {
        match io::stdin().read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn read(table: &File) -> io::Result<Vec<i32>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let length = table.read_at(&mut chunk, bytes.len() as u64)?;
        if length == 0 {
            break;
        }
        bytes.extend_from_slice(&chunk[..length]);
    }
    let number = |bytes: &[u8]| bytes.try_into().map_or(IDLE, i32::from_le_bytes);
    Ok(bytes.chunks(4).map(number).collect())
}

/// Returns the process groups of the commands in a table.
fn running(table: &[i32], parent: &str) -> Vec<Pid> {
    let groups = table.iter().enumerate().filter_map(|(slot, number)| match *number {
        IDLE => None,
        STARTING => find(slot, parent),
        group => Pid::from_raw(group),
    });
    groups.collect()
}

/// Finds a command that was about to start.
fn find(slot: usize, parent: &str) -> Option<Pid> {
    let wanted = [format!("{PARENT}={parent}"), format!("REQUEUE_SLOT={}", slot + 1)];
    let wanted = wanted.map(String::into_bytes);
    let give_up = SystemClock.now() + START_TIME;
    loop {
        if let Some(found) = ProcessId::with_environment(&wanted) {
            return Pid::from_raw(found.pid);
        }
        if SystemClock.now() >= give_up {
            return None; // it did not start
        }
        pause();
    }
}

/// Sends TERM to process groups, and KILL to those that still exist after `grace`.
fn terminate(groups: &[Pid], grace: Duration) {
    let groups = groups.iter().map(|pid| Group::of(*pid));
    let mut groups: Vec<_> = groups.collect();
    for group in &groups {
        group.terminate();
    }
    let kill_at = SystemClock.now().checked_add(grace);
    while kill_at.is_none_or(|kill_at| SystemClock.now() < kill_at) {
        groups.retain(|group| exists(*group));
        if groups.is_empty() {
            return;
        }
        pause();
    }
    for group in &groups {
        group.kill();
    }
}

fn exists(group: Group) -> bool {
    Pid::from_raw(group.pid()).is_some_and(|pid| test_kill_process_group(pid).is_ok())
}

fn pause() {
    SystemClock.park_until(SystemClock.now() + LOOK_INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_running_commands() {
        let table = unnamed_file().unwrap();
        let child = crate::command::cat(&[("REQUEUE_PID", "77"), ("REQUEUE_SLOT", "4")]);
        let pid = i32::try_from(child.id()).unwrap();
        for (slot, number) in [(0, 5000), (1, IDLE), (3, STARTING)] {
            table.write_all_at(&i32::to_le_bytes(number), slot * SLOT).unwrap();
        }
        let numbers = read(&table).unwrap();
        assert_eq!(numbers, [5000, 0, 0, STARTING]);
        let found: Vec<_> = running(&numbers, "77")
            .iter()
            .map(|pid| pid.as_raw_nonzero().get())
            .collect();
        assert_eq!(found, [5000, pid]);
        drop(child);
    }
}
