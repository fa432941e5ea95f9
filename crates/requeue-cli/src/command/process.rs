//! One run of a command: its process, its output, its time limit.
//!
//! # Invariants
//!
//! 1. A process is not reaped before [`Process::reap`]: until then its number, and that of
//!    its group, belong to nobody else, so a signal cannot hit a stranger.
//! 2. A run is over when the process that was started has exited. Descendants that still
//!    hold its output open are not waited for.

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

/// One of the two streams that a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Takes what a command writes, as it comes.
pub(crate) trait Sink {
    fn take(&mut self, stream: Stream, bytes: &[u8]);
}

/// The processes of one run: the one that was started and all that descend from it,
/// unless they left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    /// Asks them to end. Nobody may be left to ask.
    pub(crate) fn terminate(self) {
        kill_process_group(self.0, Signal::TERM).unwrap_or_default();
        // One that is stopped would heed it only when it is continued.
        kill_process_group(self.0, Signal::CONT).unwrap_or_default();
    }

    /// Ends them.
    pub(crate) fn kill(self) {
        kill_process_group(self.0, Signal::KILL).unwrap_or_default();
    }

    pub(crate) fn pid(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }
}

/// Where the streams of a command lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// To us.
    Pipes,
    /// Elsewhere: they are connected already.
    Elsewhere,
}

/// Whether a run kept its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    InTime,
    TooLong,
}

/// A command that runs.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    out: Option<File>,
    err: Option<File>,
    exit: ExitNotice,
    /// Holds our copies of the ends that the process writes to. While they are open, its
    /// exit does not end the streams: we wake once, for the exit, and not for each.
    open_ends: Option<Command>,
    /// Nothing was there to read at the last look.
    quiet: bool,
}

/// How the exit of the process becomes known.
enum ExitNotice {
    /// By a descriptor of the process.
    Descriptor(OwnedFd),
    /// By the end of its streams, and then by waiting: for a short run without a
    /// descriptor.
    Streams,
    /// By asking now and then, for a longer one.
    Asking,
}

/// For this long a run is taken for a short one, see [`ExitNotice::Streams`].
const SHORT: Duration = Duration::from_millis(50);

/// How often to ask, see [`ExitNotice::Asking`].
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The most that is read after the exit: as much as a pipe can hold by default limits. A
/// descendant that writes on could otherwise keep the run alive.
const LEFT_IN_PIPE: usize = 1024 * 1024;

/// How much is read at a time: a quarter of what a pipe holds unless told otherwise.
const CHUNK: usize = 16 * 1024;

impl Process {
    /// Starts a command; on success, [`keep`](Self::keep) what it was started from.
    pub(crate) fn start(command: &mut Command, wiring: Wiring) -> io::Result<Self> {
        let (out, err) = match wiring {
            Wiring::Elsewhere => (None, None),
            Wiring::Pipes => {
                let (out, to_out) = pipe_with(PipeFlags::CLOEXEC)?;
                let (err, to_err) = pipe_with(PipeFlags::CLOEXEC)?;
                command.stdout(to_out).stderr(to_err);
                (Some(File::from(out)), Some(File::from(err)))
            }
        };
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("the number of a process is a positive i32");
        let exit = match wiring {
            Wiring::Pipes => descriptor(pid).unwrap_or(ExitNotice::Streams),
            Wiring::Elsewhere => ExitNotice::Streams,
        };
        Ok(Self { child, pid, out, err, exit, open_ends: None, quiet: true })
    }

    /// Takes the command that this was started from, with our ends of its streams.
    pub(crate) fn keep(&mut self, command: Command) {
        match self.exit {
            ExitNotice::Descriptor(_) => self.open_ends = Some(command),
            // The streams have to end with the process.
            ExitNotice::Streams | ExitNotice::Asking => drop(command),
        }
    }

    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Hands the output to `sink` until the process has exited; ends it if it takes too
    /// long.
    pub(crate) fn watch(&mut self, sink: &mut dyn Sink, limits: TimeLimits) -> Pace {
        let began = SystemClock.now();
        let mut patience = Patience::new(limits, began);
        while !self.has_exited(sink, began, &patience) {
            patience.check(self.group());
        }
        if !self.quiet {
            self.read_rest(sink);
        }
        patience.pace()
    }

    /// Waits for one thing to happen: output, the exit, the end of patience or of the time
    /// for which the run is a short one.
    fn has_exited(
        &mut self,
        sink: &mut dyn Sink,
        began: Instant,
        patience: &Patience,
    ) -> bool {
        let silent = self.out.is_none() && self.err.is_none();
        if silent && patience.deadline.is_none() {
            return wait_for_exit(self.pid, WaitIdOptions::empty());
        }
        let now = SystemClock.now();
        if matches!(self.exit, ExitNotice::Streams) && (silent || now >= began + SHORT) {
            self.exit = descriptor(self.pid).unwrap_or(ExitNotice::Asking);
        }
        let wake = [patience.deadline, self.exit.wake(began, now)];
        let timeout = wake.into_iter().flatten().min();
        let timeout = timeout.map(|moment| moment.saturating_duration_since(now));
        let ready = self.poll(timeout);
        self.quiet = ready.out.is_empty() && ready.err.is_empty();
        self.read(ready, sink);
        match self.exit {
            ExitNotice::Streams => false,
            ExitNotice::Descriptor(_) => ready.exit,
            ExitNotice::Asking => wait_for_exit(self.pid, WaitIdOptions::NOHANG),
        }
    }

    fn poll(&self, timeout: Option<Duration>) -> Ready {
        let descriptor = match &self.exit {
            ExitNotice::Descriptor(fd) => Some(fd.as_fd()),
            ExitNotice::Streams | ExitNotice::Asking => None,
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

    /// Reads what the process has left in its streams.
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

    /// Takes note of the end of a process that has exited.
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl ExitNotice {
    /// When to look again at the latest.
    fn wake(&self, began: Instant, now: Instant) -> Option<Instant> {
        match self {
            Self::Streams => Some(began + SHORT),
            Self::Descriptor(_) => None,
            Self::Asking => Some(now + ASK_EVERY),
        }
    }
}

/// What there is to read.
#[derive(Clone, Copy)]
struct Ready {
    out: PollFlags,
    err: PollFlags,
    exit: bool,
}

#[cfg(target_os = "linux")]
fn descriptor(pid: Pid) -> Option<ExitNotice> {
    use rustix::process::{PidfdFlags, pidfd_open};
    pidfd_open(pid, PidfdFlags::empty()).ok().map(ExitNotice::Descriptor)
}

#[cfg(not(target_os = "linux"))]
fn descriptor(_: Pid) -> Option<ExitNotice> {
    None
}

/// Waits until the process has exited, without reaping it (invariant 1).
fn wait_for_exit(pid: Pid, how: WaitIdOptions) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | how;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            // No such child means that nobody is left to wait for.
            answer => return answer.map_or(true, |status| status.is_some()),
        }
    }
}

/// What happened to each of the descriptors that are there.
pub(super) fn poll_all<const N: usize>(
    watched: [Option<BorrowedFd<'_>>; N],
    timeout: Option<Duration>,
) -> [PollFlags; N] {
    let asked = watched.iter().flatten();
    let mut asked: Vec<_> =
        asked.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // A signal that interrupts it is a time that is over: the caller looks again anyway.
    if poll(&mut asked, timeout.as_ref()).is_err() {
        return [PollFlags::empty(); N];
    }
    let mut answers = asked.iter().map(PollFd::revents);
    watched.map(|fd| match fd {
        Some(_) => answers.next().unwrap_or(PollFlags::empty()),
        None => PollFlags::empty(),
    })
}

/// Reads once from a stream that has something or has ended; one that has ended is closed.
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

/// How much longer a run may take: first its time limit, then the time to heed TERM.
struct Patience {
    deadline: Option<Instant>,
    kill_after: Duration,
    pace: Pace,
}

impl Patience {
    fn new(limits: TimeLimits, began: Instant) -> Self {
        let deadline = limits.timeout.and_then(|timeout| began.checked_add(timeout));
        Self { deadline, kill_after: limits.kill_after, pace: Pace::InTime }
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    /// Ends the run if its time is over: with TERM at first, then with KILL.
    fn check(&mut self, group: Group) {
        let now = SystemClock.now();
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.pace {
            Pace::InTime => {
                group.terminate();
                self.pace = Pace::TooLong;
                self.deadline = now.checked_add(self.kill_after);
            }
            Pace::TooLong => {
                group.kill();
                self.deadline = None;
            }
        }
    }
}

/// Whether there is a process with this number.
pub(crate) fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
