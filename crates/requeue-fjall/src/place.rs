//! The folder of a queue, before the engine sees it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use requeue_store::{Error, ErrorKind};

/// The file that the engine writes last when it makes a folder: without it nothing was
/// ever kept there.
const MADE: &str = "version";

/// The file that is locked while a folder is open.
const LOCK: &str = "lock";

/// What the engine makes before [`MADE`], besides [`LOCK`].
const FIRST_JOURNAL: &str = "0.jnl";
const TREES: &str = "keyspaces";

/// Sees to it that there is a folder for the queue that the engine can open or fill.
///
/// # Errors
///
/// If the path is a file, or a folder that cannot be made or that holds files of others.
pub(crate) fn prepare(path: &Path) -> Result<(), Error> {
    if path.exists() && !path.is_dir() {
        let text = format!("{} is a file; a queue needs a folder", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    fs::create_dir_all(path).map_err(|error| not_made(path, error))?;
    let names = names(path).map_err(|error| failed(path, error))?;
    if names.iter().any(|name| name == MADE) || names.is_empty() {
        return Ok(());
    }
    let strange =
        |name: &&OsString| ![LOCK, FIRST_JOURNAL, TREES].iter().any(|it| *name == it);
    match names.iter().find(strange) {
        Some(name) => Err(not_ours(path, &name.to_string_lossy())),
        None => clear(path).map_err(|error| failed(path, error)),
    }
}

/// Empties a folder that was left half made, so that it can be made. Whoever is making it
/// holds the lock, and is left alone.
fn clear(path: &Path) -> io::Result<()> {
    let lock = File::options().create(true).append(true).open(path.join(LOCK))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
        Ok(()) => {}
    }
    if path.join(MADE).exists() {
        return Ok(());
    }
    missing_is_fine(fs::remove_file(path.join(FIRST_JOURNAL)))?;
    missing_is_fine(fs::remove_dir_all(path.join(TREES)))
}

fn missing_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn names(path: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn not_made(path: &Path, error: io::Error) -> Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let kind = if denied { ErrorKind::Denied } else { ErrorKind::Invalid };
    let text = format!("the folder {} cannot be made", path.display());
    Error::new(kind, text).because(error)
}

fn not_ours(path: &Path, name: &str) -> Error {
    let text = format!(
        "the folder {} is no queue: it holds {name:?}; name one that is empty or not there",
        path.display()
    );
    Error::new(ErrorKind::Invalid, text)
}

/// What it means that the system refused something while a folder was opened.
pub(crate) fn failed(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{
        PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    let any_of = |kinds: [io::ErrorKind; 2]| kinds.contains(&error.kind());
    let kind = if any_of([PermissionDenied, ReadOnlyFilesystem]) {
        ErrorKind::Denied
    } else if any_of([StorageFull, QuotaExceeded]) {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Corrupt
    };
    let text = format!("the queue at {} cannot be opened", path.display());
    Error::new(kind, text).because(error)
}
