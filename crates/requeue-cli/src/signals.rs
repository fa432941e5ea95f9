//! The stages of `requeue run`, and the signals that advance them.
//!
//! | stage         | keys start | running commands | next                                    |
//! |---------------|------------|------------------|-----------------------------------------|
//! | `Reading`     | yes        | continue         | `Draining` at the end of the input      |
//! | `Draining`    | yes        | continue         | exit when no key is left                |
//! | `Finishing`   | no         | continue         | `Terminating` on another signal         |
//! | `Terminating` | no         | were sent TERM   | `Killing` on a signal or `--kill-after` |
//! | `Killing`     | no         | were sent KILL   | exit, at once on another signal         |
//!
//! Stages are entered only in this order; some may be skipped.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1};
use signal_hook::iterator::Signals;

/// A stage of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Reading,
    Draining,
    Finishing,
    Terminating,
    Killing,
}

/// Why no more keys start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Signal(i32),
    /// A key failed for good, and `--fail-fast` was given.
    Failure,
    /// The reader of the output is gone.
    BrokenPipe,
    /// The command cannot run for any key. Contains the exit code.
    CannotRun(u8),
    /// The log, output or store failed, or the input cannot be read.
    Fault,
}

/// The current stage, shared by all threads.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ControlState {
    stage: Stage,
    /// The first reason to stop.
    reason: Option<Reason>,
    /// All input was read. This can become true after the run was stopped.
    all_read: bool,
    /// Ctrl-Z was pressed; commands are stopped.
    suspended: bool,
}

impl Control {
    pub(crate) fn new() -> Self {
        let state = ControlState {
            stage: Stage::Reading,
            reason: None,
            all_read: false,
            suspended: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().stage
    }

    /// Returns whether keys still start.
    pub(crate) fn starts(&self) -> bool {
        self.stage() < Stage::Finishing
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.lock().reason
    }

    /// Records the end of the input.
    pub(crate) fn input_ended(&self) {
        self.lock().all_read = true;
        self.enter(Stage::Draining, None);
    }

    /// Records that there is no input to read. The stage does not change: a worker runs until
    /// it is stopped.
    pub(crate) fn no_input(&self) {
        self.lock().all_read = true;
    }

    pub(crate) fn all_read(&self) -> bool {
        self.lock().all_read
    }

    /// Records that commands are stopped, or continued.
    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.lock().suspended = suspended;
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.lock().suspended
    }

    /// Enters `stage` unless it was reached before. Returns whether the stage changed.
    fn enter(&self, stage: Stage, reason: Option<Reason>) -> bool {
        let mut control = self.lock();
        control.reason = control.reason.or(reason);
        let changes = control.stage < stage;
        if changes {
            control.stage = stage;
            self.changed.notify_all();
        }
        changes
    }

    /// Starts no more keys.
    pub(crate) fn stop(&self, reason: Reason) {
        self.enter(Stage::Finishing, Some(reason));
    }

    /// Stops workers that wait for the rate limit, because no key is left.
    pub(crate) fn idle(&self) {
        self.enter(Stage::Finishing, None);
    }

    /// Enters the last stage. Returns whether it was not entered before.
    pub(crate) fn kill(&self) -> bool {
        self.enter(Stage::Killing, None)
    }

    /// Handles a signal that ends the run, and enters the next stage.
    fn advance(&self, signal: i32) -> Request {
        let next = match self.stage() {
            Stage::Killing => return Request::Exit(signal),
            _ if signal == SIGQUIT => Stage::Killing,
            Stage::Reading | Stage::Draining => Stage::Finishing,
            Stage::Finishing => Stage::Terminating,
            Stage::Terminating => Stage::Killing,
        };
        self.enter(next, Some(Reason::Signal(signal)));
        Request::Stop(next)
    }

    /// Waits until the input has ended or no more keys start.
    pub(crate) fn wait_while_reading(&self) {
        let reading = |state: &mut ControlState| state.stage == Stage::Reading;
        drop(self.changed.wait_while(self.lock(), reading));
    }

    /// Waits until `deadline` or until no more keys start. Returns whether keys still start.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        let starts = |state: &ControlState| state.stage < Stage::Finishing;
        let mut state = self.lock();
        while starts(&state) {
            let left = deadline.saturating_duration_since(SystemClock.now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        starts(&state)
    }

    /// Waits until `stage` is reached or `timeout` has passed. Returns whether it is reached.
    pub(crate) fn wait_for(&self, stage: Stage, timeout: Duration) -> bool {
        let before = |state: &mut ControlState| state.stage < stage;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, before);
        waited.unwrap_or_else(PoisonError::into_inner).0.stage >= stage
    }
}

/// What to do about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Carry out this stage, which is already entered.
    Stop(Stage),
    /// Exit at once because of this signal.
    Exit(i32),
    /// Print a summary.
    Summary,
    /// Stop until the shell continues this process.
    Suspend,
}

/// Installs the signal handlers. A HUP ignored by `nohup` stays ignored.
pub(crate) fn listen() -> std::io::Result<Signals> {
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    // A shell without job control ignores it.
    if !is_ignored(SIGTSTP) {
        signals.push(SIGTSTP);
    }
    signals.push(SIGUSR1);
    Signals::new(signals)
}

/// Returns whether this process was started with a signal ignored. Known only on Linux.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Calls `act` for each signal, forever.
pub(crate) fn handle(mut signals: Signals, control: &Control, act: impl Fn(Request)) {
    for signal in signals.forever() {
        act(match signal {
            SIGUSR1 => Request::Summary,
            SIGTSTP => Request::Suspend,
            _ => control.advance(signal),
        });
    }
}

/// Returns the exit code for a signal.
pub(crate) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Stops this process until another one continues it.
pub(crate) fn stop_here() {
    // Fails only for an unknown signal.
    signal_hook::low_level::emulate_default_handler(SIGTSTP).unwrap_or_default();
}

/// Exits at once, without waiting for locks or output.
pub(crate) fn exit_now(signal: i32) -> ! {
    signal_hook::low_level::exit(exit_code(signal).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_enters_the_next_stage() {
        let control = Control::new();
        let requests =
            [SIGINT, SIGTERM, SIGINT, SIGTERM].map(|signal| control.advance(signal));
        let wanted = [
            Request::Stop(Stage::Finishing),
            Request::Stop(Stage::Terminating),
            Request::Stop(Stage::Killing),
            Request::Exit(SIGTERM),
        ];
        assert_eq!(requests, wanted);
        assert_eq!(
            control.reason(),
            Some(Reason::Signal(SIGINT)),
            "the first signal is the reason"
        );
    }

    #[test]
    fn stages_never_go_back() {
        let control = Control::new();
        control.stop(Reason::Failure);
        control.input_ended();
        assert_eq!(control.stage(), Stage::Finishing);
        control.stop(Reason::BrokenPipe);
        assert_eq!(control.reason(), Some(Reason::Failure));
    }

    #[test]
    fn quit_kills_at_once() {
        let control = Control::new();
        assert_eq!(control.advance(SIGQUIT), Request::Stop(Stage::Killing));
        assert!(!control.wait_until(SystemClock.now() + Duration::from_secs(3600)));
        assert!(control.wait_for(Stage::Terminating, Duration::ZERO));
    }
}
