//! Prepares the folder of a queue before fjall opens it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use requeue_store::{Error, ErrorKind};

/// fjall writes this file last when it creates a database. A folder without it has never
/// stored a record.
const VERSION_FILE: &str = "version";

/// Locked while a database is open.
const LOCK_FILE: &str = "lock";

/// fjall creates these before [`VERSION_FILE`], in addition to [`LOCK_FILE`].
const FIRST_JOURNAL: &str = "0.jnl";
const KEYSPACES_FOLDER: &str = "keyspaces";

/// Our own file.
pub(crate) const RESERVE_FILE: &str = "reserve";

/// Creates the folder if necessary, and checks that fjall can use it.
///
/// # Errors
///
/// If the path is a file, or the folder cannot be created or contains other files.
pub(crate) fn prepare(path: &Path) -> Result<(), Error> {
    if path.exists() && !path.is_dir() {
        let text = format!("{} is a file, not a folder", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    fs::create_dir_all(path).map_err(|error| create_error(path, error))?;
    let names = names(path).map_err(|error| open_error(path, error))?;
    if names.iter().any(|name| name == VERSION_FILE) || names.is_empty() {
        return Ok(());
    }
    let is_foreign = |name: &&OsString| {
        ![LOCK_FILE, FIRST_JOURNAL, KEYSPACES_FOLDER, RESERVE_FILE]
            .iter()
            .any(|ours| *name == ours)
    };
    match names.iter().find(is_foreign) {
        Some(name) => Err(not_a_queue(path, &name.to_string_lossy())),
        None => clear(path).map_err(|error| open_error(path, error)),
    }
}

/// Checks that the folder contains a queue.
pub(crate) fn check_exists(path: &Path) -> Result<(), Error> {
    if path.join(VERSION_FILE).exists() {
        return Ok(());
    }
    let text = format!("the folder {} does not contain a queue", path.display());
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Returns whether an error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), QuotaExceeded | StorageFull)
}

/// Empties a folder whose creation was interrupted, so that fjall can create it again.
///
/// A process that is creating the database holds the lock; its folder is left alone.
fn clear(path: &Path) -> io::Result<()> {
    let lock = File::options().create(true).append(true).open(path.join(LOCK_FILE))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
        Ok(()) => {}
    }
    // Another process may have finished creating it before we took the lock.
    if path.join(VERSION_FILE).exists() {
        return Ok(());
    }
    ignore_missing(fs::remove_file(path.join(FIRST_JOURNAL)))?;
    ignore_missing(fs::remove_dir_all(path.join(KEYSPACES_FOLDER)))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn names(path: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn create_error(path: &Path, error: io::Error) -> Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let kind = if denied { ErrorKind::Denied } else { ErrorKind::Invalid };
    let text = format!("cannot create the folder {}", path.display());
    Error::new(kind, text).because(error)
}

fn not_a_queue(path: &Path, name: &str) -> Error {
    let text = format!(
        "the folder {} is not a queue: it contains {name:?}; use an empty folder or a new \
         path",
        path.display()
    );
    Error::new(ErrorKind::Invalid, text)
}

/// Classifies an I/O error that occurred while a folder was being opened.
pub(crate) fn open_error(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let kind = if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) {
        ErrorKind::Denied
    } else if is_full(&error) {
        ErrorKind::Full
    } else {
        ErrorKind::Corrupt
    };
    let text = format!("cannot open the queue at {}", path.display());
    Error::new(kind, text).because(error)
}
