//! Processes that are not our children: those that an earlier run has left behind.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// A process that another run of ours has started, told apart from a later one with the
/// same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stranger {
    pub(crate) pid: i32,
    /// In ticks of the kernel since the machine has started.
    pub(crate) started: u64,
}

/// How often to look whether the process, or the wish to wait for it, is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Stranger {
    /// The process of this number, if it is there.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        Stat::read(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// The leader of a process group that was started with these in its environment.
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

    /// Waits until it has ended, or until nobody wants to know: whether it has.
    pub(crate) fn wait(self, wanted: impl Fn() -> bool) -> bool {
        let notice = Notice::of(self.pid);
        // Looks after the descriptor was opened: it is that of this process if it is there.
        while self.is_alive() {
            if !wanted() {
                return false;
            }
            notice.wait(LOOK_EVERY);
        }
        true
    }
}

/// What the kernel tells of a process that has not ended.
struct Stat {
    group: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program stands in brackets and may hold anything.
        let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
        let ended = matches!(*fields.first()?, "Z" | "X");
        let (group, started) =
            (fields.get(2)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        (!ended).then_some(Self { group, started })
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

/// Wakes when a process ends, where the system can do that.
struct Notice(Option<std::os::fd::OwnedFd>);

impl Notice {
    #[cfg(target_os = "linux")]
    fn of(pid: i32) -> Self {
        use rustix::process::{PidfdFlags, pidfd_open};
        Self(Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_: i32) -> Self {
        Self(None)
    }

    fn wait(&self, at_most: Duration) {
        use std::os::fd::AsFd;
        super::process::poll_all([self.0.as_ref().map(AsFd::as_fd)], Some(at_most));
    }
}

/// A `cat` with these in its environment, in a group of its own. It has spoken: a moment
/// after `spawn` returns, the kernel may not have given a process its environment yet.
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
    fn a_process_is_told_from_a_later_one_of_its_number() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let this = Stranger::find(pid).unwrap();
        assert!(this.is_alive());
        let other = Stranger { started: this.started + 1, ..this };
        assert!(!other.is_alive());
        assert!(other.wait(|| true), "it has ended");
        assert!(!this.wait(|| false), "nobody wants to know");
    }

    #[test]
    fn a_process_is_found_by_its_environment() {
        let mut child = cat(&[("REQUEUE_TEST", "a b")]);
        let pid = i32::try_from(child.id()).unwrap();
        let wanted = [b"REQUEUE_TEST=a b".to_vec()];
        let found = Stranger::with_environment(&wanted);
        child.wait().unwrap();
        assert_eq!(found.map(|found| found.pid), Some(pid));
        assert_eq!(Stranger::with_environment(&wanted), None);
    }
}
