//! The command that runs for a key: what it is, how it starts, how it ends.

mod process;
mod program;
mod stranger;
mod template;

pub(crate) use process::{Group, Pace, Process, Sink, Stream, Wiring, is_alive};
pub(crate) use program::CannotRun;
pub(crate) use stranger::Stranger;
#[cfg(test)]
pub(crate) use stranger::cat;
pub(crate) use template::Template;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It exited, or a signal ended it.
    Exited(ExitStatus),
    /// It took too long and was ended.
    TimedOut,
    /// It could not be started this time, for want of something.
    NotStarted,
    /// It can never be started: no command takes this key as an argument.
    UnfitKey,
}

/// What GNU timeout exits with.
const TIMED_OUT: u8 = 124;

/// What a shell says of a command that it cannot execute.
const NOT_STARTED: u8 = 126;

impl Ending {
    /// What a failed start means, if it is about this key or this moment.
    pub(crate) fn not_started(error: &io::Error) -> Self {
        let has_nul = error.kind() == io::ErrorKind::InvalidInput;
        let too_long = error.kind() == io::ErrorKind::ArgumentListTooLong;
        if has_nul || too_long { Self::UnfitKey } else { Self::NotStarted }
    }

    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }

    /// The code as a shell would tell it: 128 and the signal if there was one.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::NotStarted | Self::UnfitKey => NOT_STARTED,
            Self::Exited(status) => {
                let signal = || status.signal().map(|signal| 128 + signal);
                let code = status.code().or_else(signal).unwrap_or(1);
                u8::try_from(code & 0xff).unwrap_or(u8::MAX)
            }
        }
    }

    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Self::Exited(status) => status.signal(),
            Self::TimedOut | Self::NotStarted | Self::UnfitKey => None,
        }
    }
}
