//! Finding the program once, and not in every run.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The command can be run for no key at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CannotRun {
    NotFound(OsString),
    NotExecutable(OsString),
}

impl CannotRun {
    /// The code that shells use for it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }

    /// What a failed start says about the command, if it is not about this key or moment.
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
                    f.write_str(" (--shell takes a command in one word)")?;
                }
                Ok(())
            }
            Self::NotExecutable(program) => {
                write!(f, "command cannot be executed: {}", program.to_string_lossy())
            }
        }
    }
}

impl std::error::Error for CannotRun {}

/// Finds a program as a shell does: by its path if it has a slash, or else in `PATH`.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf, CannotRun> {
    if program.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return check(&path).map(|()| path).map_err(|why| why.of(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut why = Unfit::Absent;
    for folder in std::env::split_paths(&path).filter(|_| !program.is_empty()) {
        let candidate = Path::new(".").join(folder).join(program);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Unfit::Absent) => {}
            Err(found @ Unfit::NotExecutable) => why = found,
        }
    }
    Err(why.of(program))
}

/// Why a file is not the program.
#[derive(Clone, Copy)]
enum Unfit {
    Absent,
    NotExecutable,
}

impl Unfit {
    fn of(self, program: &OsStr) -> CannotRun {
        match self {
            Self::Absent => CannotRun::NotFound(program.to_owned()),
            Self::NotExecutable => CannotRun::NotExecutable(program.to_owned()),
        }
    }
}

fn check(path: &Path) -> Result<(), Unfit> {
    let metadata = std::fs::metadata(path).map_err(|_| Unfit::Absent)?;
    let executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if executable { Ok(()) } else { Err(Unfit::NotExecutable) }
}
