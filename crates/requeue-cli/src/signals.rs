//! How a run comes to its end: by itself, by signals, by a fault.
//!
//! | stage       | keys start | what runs        | next                                  |
//! |-------------|------------|------------------|---------------------------------------|
//! | `Reading`   | yes        | goes on          | `Emptying` at the end of the input    |
//! | `Emptying`  | yes        | goes on          | the end, when nothing is left         |
//! | `Finishing` | no         | goes on          | `Terminating` by a further signal     |
//! | `Terminating` | no       | was sent TERM    | `Killing` by a signal or `--kill-after` |
//! | `Killing`   | no         | is sent KILL     | the end, at once by a further signal  |
//!
//! Stages are entered in this order only; some may be left out.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// How far the run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Reading,
    Emptying,
    Finishing,
    Terminating,
    Killing,
}

/// Why nothing more is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Signal(i32),
    /// A key failed for good, and `--fail-fast` was given.
    Failure,
    /// Nobody reads the output any longer.
    BrokenPipe,
    /// The command cannot be run at all: the code that says so.
    CannotRun(u8),
    /// The log or the output cannot be written, or the input cannot be read.
    Fault,
}

/// The stage of a run, for all its threads.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// The first reason counts.
    reason: Option<Reason>,
    /// All keys were read. A run that starts nothing more may still learn of it.
    all_read: bool,
}

impl Control {
    pub(crate) fn new() -> Self {
        let state = State { stage: Stage::Reading, reason: None, all_read: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().stage
    }

    /// Whether keys are still started.
    pub(crate) fn starts(&self) -> bool {
        self.stage() < Stage::Finishing
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.lock().reason
    }

    /// Takes note that all keys were read.
    pub(crate) fn input_ended(&self) {
        self.lock().all_read = true;
        self.enter(Stage::Emptying, None);
    }

    /// Takes note that no keys are to be read: it goes on until it is told to end.
    pub(crate) fn nothing_to_read(&self) {
        self.lock().all_read = true;
    }

    pub(crate) fn all_read(&self) -> bool {
        self.lock().all_read
    }

    /// Moves on to `stage`, unless it is there or beyond: whether it moved.
    fn enter(&self, stage: Stage, reason: Option<Reason>) -> bool {
        let mut run = self.lock();
        run.reason = run.reason.or(reason);
        let moves = run.stage < stage;
        if moves {
            run.stage = stage;
            self.changed.notify_all();
        }
        moves
    }

    /// Starts nothing more.
    pub(crate) fn finish(&self, reason: Reason) {
        self.enter(Stage::Finishing, Some(reason));
    }

    /// Has workers that wait to start go home, since there is nothing to start.
    pub(crate) fn nothing_left(&self) {
        self.enter(Stage::Finishing, None);
    }

    /// Goes on to killing what runs, unless that was done.
    pub(crate) fn kill(&self) -> bool {
        self.enter(Stage::Killing, None)
    }

    /// What a signal to end asks for; a stage that it leads to has been entered.
    fn end_by(&self, signal: i32) -> Request {
        let next = match self.stage() {
            Stage::Killing => return Request::Leave(signal),
            _ if signal == SIGQUIT => Stage::Killing,
            Stage::Reading | Stage::Emptying => Stage::Finishing,
            Stage::Finishing => Stage::Terminating,
            Stage::Terminating => Stage::Killing,
        };
        self.enter(next, Some(Reason::Signal(signal)));
        Request::End(next)
    }

    /// Waits until the input has ended or nothing more is started.
    pub(crate) fn wait_while_reading(&self) {
        let reading = |state: &mut State| state.stage == Stage::Reading;
        drop(self.changed.wait_while(self.lock(), reading));
    }

    /// Waits until `deadline` or until nothing more is started: whether keys still start.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        let starts = |state: &State| state.stage < Stage::Finishing;
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

    /// Waits for `time`, or until `stage` is reached: whether it is.
    pub(crate) fn wait_for(&self, stage: Stage, time: Duration) -> bool {
        let before = |state: &mut State| state.stage < stage;
        let waited = self.changed.wait_timeout_while(self.lock(), time, before);
        waited.unwrap_or_else(PoisonError::into_inner).0.stage >= stage
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Go over to this stage, which the control has entered.
    End(Stage),
    /// End by this signal without waiting for anything.
    Leave(i32),
    /// Print a summary.
    Summary,
}

/// The signals that are heeded from here on. A hang-up that `nohup` has us ignore stays
/// ignored.
pub(crate) fn listen() -> std::io::Result<Signals> {
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals.push(SIGUSR1);
    Signals::new(signals)
}

/// Whether this process was started with a signal ignored. Only Linux tells.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Hands on what each signal asks for, for ever.
pub(crate) fn heed(mut signals: Signals, control: &Control, act: impl Fn(Request)) {
    for signal in signals.forever() {
        act(match signal {
            SIGUSR1 => Request::Summary,
            _ => control.end_by(signal),
        });
    }
}

/// The code of a process that a signal has ended.
pub(crate) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Ends this process at once: nothing is waited for, not even for what others hold.
pub(crate) fn leave(signal: i32) -> ! {
    signal_hook::low_level::exit(exit_code(signal).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_is_more_earnest_than_the_one_before() {
        let control = Control::new();
        let asked =
            [SIGINT, SIGTERM, SIGINT, SIGTERM].map(|signal| control.end_by(signal));
        let wanted = [
            Request::End(Stage::Finishing),
            Request::End(Stage::Terminating),
            Request::End(Stage::Killing),
            Request::Leave(SIGTERM),
        ];
        assert_eq!(asked, wanted);
        assert_eq!(control.reason(), Some(Reason::Signal(SIGINT)), "the first counts");
    }

    #[test]
    fn stages_never_go_back() {
        let control = Control::new();
        control.finish(Reason::Failure);
        control.input_ended();
        assert_eq!(control.stage(), Stage::Finishing);
        control.finish(Reason::BrokenPipe);
        assert_eq!(control.reason(), Some(Reason::Failure));
    }

    #[test]
    fn quit_kills_at_once() {
        let control = Control::new();
        assert_eq!(control.end_by(SIGQUIT), Request::End(Stage::Killing));
        assert!(!control.wait_until(SystemClock.now() + Duration::from_secs(3600)));
        assert!(control.wait_for(Stage::Terminating, Duration::ZERO));
    }
}
