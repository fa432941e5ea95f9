//! Identifies processes, also those that are not our children.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// A process. The start time distinguishes it from a later process with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    /// Kernel ticks since boot.
    pub(crate) started: u64,
}

/// Time between two checks of the process and of the caller's condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl ProcessId {
    /// Finds a process by pid.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        Stat::read(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// Finds a process group leader by entries of its environment.
    pub(crate) fn with_environment(wanted: &[Vec<u8>]) -> Option<Self> {
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let mut pids =
            processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pid =
            pids.find(|pid| leads_a_group(*pid) && has_environment(*pid, wanted))?;
        Self::find(pid)
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Waits for the process to exit while `keep_waiting` returns `true`. Returns whether it
    /// has exited.
    pub(crate) fn wait(self, keep_waiting: impl Fn() -> bool) -> bool {
        let exit = ExitEvent::of(self.pid);
        // Only after opening the pidfd: if the process is alive now, the pidfd is its own.
        while self.is_alive() {
            if !keep_waiting() {
                return false;
            }
            exit.wait(CHECK_INTERVAL);
        }
        true
    }
}

/// Kernel information about a process that has not exited.
struct Stat {
    group: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program name is in parentheses and may contain any characters.
        let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
        let exited = matches!(*fields.first()?, "Z" | "X");
        let (group, started) =
            (fields.get(2)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        (!exited).then_some(Self { group, started })
    }
}

fn leads_a_group(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.group == pid)
}

fn has_environment(pid: i32, wanted: &[Vec<u8>]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries: Vec<_> = environment.split(|byte| *byte == 0).collect();
    wanted.iter().all(|entry| entries.contains(&&entry[..]))
}

/// Wakes a waiter when a process exits, if the system has pidfds.
struct ExitEvent(Option<std::os::fd::OwnedFd>);

impl ExitEvent {
    #[cfg(target_os = "linux")]
    fn of(pid: i32) -> Self {
        use rustix::process::{PidfdFlags, pidfd_open};
        Self(Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_: i32) -> Self {
        Self(None)
    }

    fn wait(&self, timeout: Duration) {
        use std::os::fd::AsFd;
        super::process::poll_all([self.0.as_ref().map(AsFd::as_fd)], Some(timeout));
    }
}

/// Starts a `cat` with these environment variables as a process group leader.
///
/// Waits for its first output: right after `spawn`, the kernel may not show its environment
/// yet.
#[cfg(test)]
pub(crate) fn cat(environment: &[(&str, &str)]) -> std::process::Child {
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    let mut cat = Command::new("cat");
    cat.envs(environment.iter().copied()).process_group(0);
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_process_with_the_same_pid_is_another_one() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let this = ProcessId::find(pid).unwrap();
        assert!(this.is_alive());
        let other = ProcessId { started: this.started + 1, ..this };
        assert!(!other.is_alive());
        assert!(other.wait(|| true), "it has exited");
        assert!(!this.wait(|| false), "the wait was cancelled");
    }

    #[test]
    fn process_is_found_by_its_environment() {
        let mut child = cat(&[("REQUEUE_TEST", "a b")]);
        let pid = i32::try_from(child.id()).unwrap();
        let wanted = [b"REQUEUE_TEST=a b".to_vec()];
        let found = ProcessId::with_environment(&wanted);
        child.wait().unwrap();
        assert_eq!(found.map(|found| found.pid), Some(pid));
        assert_eq!(ProcessId::with_environment(&wanted), None);
    }
}
