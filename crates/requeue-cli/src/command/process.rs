//! One run of a command: its process, its output, its time limit.
//!
//! # Invariants
//!
//! 1. A process is not reaped before [`Process::reap`]. Until then, its pid and process group
//!    cannot be reused, so a signal never hits an unrelated process.
//! 2. A run ends when the started process exits. Descendants that keep its output open are
//!    not waited for.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::plan::TimeLimits;

/// An output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Receives the output of a command as it is written.
pub(crate) trait Sink {
    fn take(&mut self, stream: Stream, bytes: &[u8]);
}

/// The process group of one run: the started process and its descendants, unless they changed
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    /// Sends TERM. Does nothing if all processes have exited.
    pub(crate) fn terminate(self) {
        kill_process_group(self.0, Signal::TERM).unwrap_or_default();
        // A stopped process handles TERM only once it is continued.
        kill_process_group(self.0, Signal::CONT).unwrap_or_default();
    }

    /// Sends KILL. Does nothing if all processes have exited.
    pub(crate) fn kill(self) {
        kill_process_group(self.0, Signal::KILL).unwrap_or_default();
    }

    /// Sends STOP, for Ctrl-Z.
    pub(crate) fn suspend(self) {
        kill_process_group(self.0, Signal::STOP).unwrap_or_default();
    }

    /// Sends CONT.
    pub(crate) fn resume(self) {
        kill_process_group(self.0, Signal::CONT).unwrap_or_default();
    }

    /// Returns the group with this leader.
    pub(crate) fn of(leader: Pid) -> Self {
        Self(leader)
    }

    pub(crate) fn pid(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }
}

/// The destination of the output streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// Pipes that requeue reads.
    Pipes,
    /// Files, already set on the command.
    Files,
}

/// A running command.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    out: Option<File>,
    err: Option<File>,
    exit: ExitDetection,
    /// Holds our copies of the write ends of the pipes. While they are open, the streams do
    /// not end with the process, so its exit causes one wake-up instead of three.
    write_ends: Option<Command>,
    /// The last poll found no output.
    quiet: bool,
}

/// How the exit of the process is detected.
enum ExitDetection {
    /// By a pidfd.
    PidFd(OwnedFd),
    /// By the end of its streams, then by waiting. For short runs without a pidfd.
    Streams,
    /// By polling. For long runs if there are no pidfds.
    Polling,
}

/// How long a run counts as short, see [`ExitDetection::Streams`].
const SHORT: Duration = Duration::from_millis(50);

/// Time between two polls, see [`ExitDetection::Polling`].
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The most bytes read after the exit: the default maximum of a pipe. Without a bound, a
/// descendant that keeps writing would keep the run alive.
const LEFT_IN_PIPE: usize = 1024 * 1024;

/// Bytes per read: a quarter of the default size of a pipe.
const CHUNK: usize = 16 * 1024;

impl Process {
    /// Starts a command. On success, pass the command to [`keep`](Self::keep).
    pub(crate) fn start(command: &mut Command, wiring: Wiring) -> io::Result<Self> {
        let (out, err) = match wiring {
            Wiring::Files => (None, None),
            Wiring::Pipes => {
                let (out, to_out) = pipe_with(PipeFlags::CLOEXEC)?;
                let (err, to_err) = pipe_with(PipeFlags::CLOEXEC)?;
                command.stdout(to_out).stderr(to_err);
                (Some(File::from(out)), Some(File::from(err)))
            }
        };
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a pid is a positive i32");
        let exit = match wiring {
            Wiring::Pipes => pidfd(pid).unwrap_or(ExitDetection::Streams),
            Wiring::Files => ExitDetection::Streams,
        };
        Ok(Self { child, pid, out, err, exit, write_ends: None, quiet: true })
    }

    /// Takes the command that this process was started from, with the write ends of its pipes.
    pub(crate) fn keep(&mut self, command: Command) {
        match self.exit {
            ExitDetection::PidFd(_) => self.write_ends = Some(command),
            // The streams must end with the process.
            ExitDetection::Streams | ExitDetection::Polling => drop(command),
        }
    }

    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Passes output to `sink` until the process exits. Returns whether it exceeded its time
    /// limit and was terminated.
    pub(crate) fn watch(&mut self, sink: &mut dyn Sink, limits: TimeLimits) -> bool {
        let began = SystemClock.now();
        let mut limit = TimeLimit::new(limits, began);
        while !self.has_exited(sink, began, &limit) {
            limit.enforce(self.group());
        }
        if !self.quiet {
            self.read_rest(sink);
        }
        limit.exceeded
    }

    /// Waits for output, the exit, the time limit, or the end of a short run. Returns whether
    /// the process has exited.
    fn has_exited(
        &mut self,
        sink: &mut dyn Sink,
        began: Instant,
        limit: &TimeLimit,
    ) -> bool {
        let silent = self.out.is_none() && self.err.is_none();
        if silent && limit.deadline.is_none() {
            return wait_for_exit(self.pid, WaitIdOptions::empty());
        }
        let now = SystemClock.now();
        if matches!(self.exit, ExitDetection::Streams) && (silent || now >= began + SHORT)
        {
            self.exit = pidfd(self.pid).unwrap_or(ExitDetection::Polling);
        }
        let wake = [limit.deadline, self.exit.wake(began, now)];
        let timeout = wake.into_iter().flatten().min();
        let timeout = timeout.map(|moment| moment.saturating_duration_since(now));
        let ready = self.poll(timeout);
        self.quiet = ready.out.is_empty() && ready.err.is_empty();
        self.read(ready, sink);
        match self.exit {
            ExitDetection::Streams => false,
            ExitDetection::PidFd(_) => ready.exit,
            ExitDetection::Polling => wait_for_exit(self.pid, WaitIdOptions::NOHANG),
        }
    }

    fn poll(&self, timeout: Option<Duration>) -> Ready {
        let descriptor = match &self.exit {
            ExitDetection::PidFd(fd) => Some(fd.as_fd()),
            ExitDetection::Streams | ExitDetection::Polling => None,
        };
        let watched = [
            self.out.as_ref().map(AsFd::as_fd),
            self.err.as_ref().map(AsFd::as_fd),
            descriptor,
        ];
        let [out, err, exit] = poll_all(watched, timeout);
        Ready { out, err, exit: !exit.is_empty() }
    }

    fn read(&mut self, ready: Ready, sink: &mut dyn Sink) {
        read_some(&mut self.out, Stream::Out, ready.out, sink);
        read_some(&mut self.err, Stream::Err, ready.err, sink);
    }

    /// Reads the remaining output of an exited process.
    fn read_rest(&mut self, sink: &mut dyn Sink) {
        let mut left = LEFT_IN_PIPE / CHUNK;
        while left > 0 && (self.out.is_some() || self.err.is_some()) {
            let ready = self.poll(Some(Duration::ZERO));
            if ready.out.is_empty() && ready.err.is_empty() {
                return;
            }
            self.read(ready, sink);
            left -= 1;
        }
    }

    /// Reaps an exited process (invariant 1).
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl ExitDetection {
    /// Returns the latest time for the next check.
    fn wake(&self, began: Instant, now: Instant) -> Option<Instant> {
        match self {
            Self::Streams => Some(began + SHORT),
            Self::PidFd(_) => None,
            Self::Polling => Some(now + POLL_INTERVAL),
        }
    }
}

/// The result of a poll.
#[derive(Clone, Copy)]
struct Ready {
    out: PollFlags,
    err: PollFlags,
    exit: bool,
}

#[cfg(target_os = "linux")]
fn pidfd(pid: Pid) -> Option<ExitDetection> {
    use rustix::process::{PidfdFlags, pidfd_open};
    pidfd_open(pid, PidfdFlags::empty()).ok().map(ExitDetection::PidFd)
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_: Pid) -> Option<ExitDetection> {
    None
}

/// Waits for the exit of a process without reaping it (invariant 1). Returns whether it has
/// exited.
fn wait_for_exit(pid: Pid, how: WaitIdOptions) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | how;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            // An error means that there is no such child: it is already reaped.
            result => return result.map_or(true, |status| status.is_some()),
        }
    }
}

/// Polls the given descriptors for input. Returns the events of each.
pub(super) fn poll_all<const N: usize>(
    watched: [Option<BorrowedFd<'_>>; N],
    timeout: Option<Duration>,
) -> [PollFlags; N] {
    let open = watched.iter().flatten();
    let mut polled: Vec<_> =
        open.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // An interrupted poll counts as a timeout: the caller checks again anyway.
    if poll(&mut polled, timeout.as_ref()).is_err() {
        return [PollFlags::empty(); N];
    }
    let mut events = polled.iter().map(PollFd::revents);
    watched.map(|fd| match fd {
        Some(_) => events.next().unwrap_or(PollFlags::empty()),
        None => PollFlags::empty(),
    })
}

/// Reads once from a ready stream, and closes it at its end.
fn read_some(
    from: &mut Option<impl Read>,
    stream: Stream,
    ready: PollFlags,
    sink: &mut dyn Sink,
) {
    if ready.is_empty() {
        return;
    }
    if !ready.contains(PollFlags::IN) {
        *from = None;
        return;
    }
    let mut chunk = [0; CHUNK];
    match from.as_mut().map(|from| from.read(&mut chunk)) {
        Some(Ok(0)) => *from = None,
        Some(Ok(length)) => sink.take(stream, &chunk[..length]),
        Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
        Some(Err(_)) => *from = None,
        None => {}
    }
}

/// The time limit of a run: first the timeout, then the time between TERM and KILL.
struct TimeLimit {
    deadline: Option<Instant>,
    kill_after: Duration,
    exceeded: bool,
}

impl TimeLimit {
    fn new(limits: TimeLimits, began: Instant) -> Self {
        let deadline = limits.timeout.and_then(|timeout| began.checked_add(timeout));
        Self { deadline, kill_after: limits.kill_after, exceeded: false }
    }

    /// Sends TERM after the timeout, and KILL `kill_after` later.
    fn enforce(&mut self, group: Group) {
        let now = SystemClock.now();
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.exceeded {
            group.kill();
            self.deadline = None;
        } else {
            group.terminate();
            self.exceeded = true;
            self.deadline = now.checked_add(self.kill_after);
        }
    }
}

/// Returns whether a process with this pid exists.
pub(crate) fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
