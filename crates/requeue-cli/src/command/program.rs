//! Finds the program once instead of before every run.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A command that cannot run for any key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CannotRun {
    NotFound(OsString),
    NotExecutable(OsString),
}

impl CannotRun {
    /// Returns the exit code that shells use.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }

    /// Classifies a failed start. Returns `None` if it concerns only this key or this moment.
    pub(crate) fn from_start(error: &io::Error, program: &OsStr) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::NOENT => Some(Self::NotFound(program.to_owned())),
            Errno::ACCESS | Errno::NOEXEC => {
                Some(Self::NotExecutable(program.to_owned()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(program) => {
                let program = program.to_string_lossy();
                write!(f, "command not found: {program}")?;
                if program.contains(char::is_whitespace) {
                    f.write_str(" (to run a command line, add --shell)")?;
                }
                Ok(())
            }
            Self::NotExecutable(program) => {
                write!(f, "cannot execute command: {}", program.to_string_lossy())
            }
        }
    }
}

impl std::error::Error for CannotRun {}

/// Finds a program like a shell: by path if it has a slash, else in `PATH`.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf, CannotRun> {
    if program.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return check(&path).map(|()| path).map_err(|why| why.error(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut why = Rejected::Missing;
    for dir in std::env::split_paths(&path).filter(|_| !program.is_empty()) {
        let candidate = Path::new(".").join(dir).join(program);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Rejected::Missing) => {}
            Err(found @ Rejected::NotExecutable) => why = found,
        }
    }
    Err(why.error(program))
}

/// Why a path is not the program.
#[derive(Clone, Copy)]
enum Rejected {
    Missing,
    NotExecutable,
}

impl Rejected {
    fn error(self, program: &OsStr) -> CannotRun {
        match self {
            Self::Missing => CannotRun::NotFound(program.to_owned()),
            Self::NotExecutable => CannotRun::NotExecutable(program.to_owned()),
        }
    }
}

fn check(path: &Path) -> Result<(), Rejected> {
    let metadata = std::fs::metadata(path).map_err(|_| Rejected::Missing)?;
    let executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if executable { Ok(()) } else { Err(Rejected::NotExecutable) }
}
