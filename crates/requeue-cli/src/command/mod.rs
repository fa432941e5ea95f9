//! The command to run for a key: its template, its process, its exit.

mod placeholder;
mod process;
mod process_id;
mod program;
mod shell;
mod template;

pub(crate) use process::{Group, Process, Sink, Stream, Wiring, is_alive};
pub(crate) use process_id::ProcessId;
#[cfg(test)]
pub(crate) use process_id::cat;
pub(crate) use program::CannotRun;
pub(crate) use template::{Subject, Template};

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited, or was killed by a signal.
    Status(ExitStatus),
    /// It was terminated at its time limit.
    TimedOut,
    /// It could not start for lack of a resource. A retry may succeed.
    NotStarted,
    /// It can never start: the key cannot be an argument.
    InvalidKey,
}

/// The exit code of GNU timeout.
const TIMED_OUT: u8 = 124;

/// The exit code of a shell for a command that cannot be executed.
const NOT_STARTED: u8 = 126;

impl Exit {
    /// Classifies a failed start that concerns only this key or this moment.
    pub(crate) fn not_started(error: &io::Error) -> Self {
        let has_nul = error.kind() == io::ErrorKind::InvalidInput;
        let too_long = error.kind() == io::ErrorKind::ArgumentListTooLong;
        if has_nul || too_long { Self::InvalidKey } else { Self::NotStarted }
    }

    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Status(status) if status.success())
    }

    /// Returns the exit code as a shell reports it: 128 plus the signal, if there was one.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::NotStarted | Self::InvalidKey => NOT_STARTED,
            Self::Status(status) => {
                let signal = || status.signal().map(|signal| 128 + signal);
                let code = status.code().or_else(signal).unwrap_or(1);
                u8::try_from(code & 0xff).unwrap_or(u8::MAX)
            }
        }
    }

    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Self::Status(status) => status.signal(),
            Self::TimedOut | Self::NotStarted | Self::InvalidKey => None,
        }
    }
}
