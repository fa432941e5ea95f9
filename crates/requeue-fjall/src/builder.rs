//! Options for opening a store.

use std::path::{Path, PathBuf};

use requeue_store::machine::TimeSource;
use requeue_store::{EngineClock, Error};

use crate::fjall_journal::FjallJournal;
use crate::{FjallStore, folder};

/// Configures and opens a [`FjallStore`]; see [`FjallStore::builder`].
#[derive(Clone, Debug)]
pub struct FjallStoreBuilder {
    path: PathBuf,
    time: TimeSource,
}

impl FjallStoreBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), time: TimeSource::default() }
    }

    /// Reads the time from `clock` instead of the system clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.time = TimeSource::Test(clock);
        self
    }

    /// Opens the queue, or creates an empty one.
    ///
    /// This reads all keys into memory and blocks until it has done so: a few seconds for a
    /// million keys.
    ///
    /// # Errors
    ///
    /// * [`Conflict`](requeue_store::ErrorKind::Conflict): the queue is already open, in
    ///   this process or another one.
    /// * [`Invalid`](requeue_store::ErrorKind::Invalid): the path is a file, or the folder
    ///   cannot be created or contains other files.
    /// * [`Denied`](requeue_store::ErrorKind::Denied): missing permissions.
    /// * [`Version`](requeue_store::ErrorKind::Version): an incompatible version of this
    ///   program or of fjall wrote the queue.
    /// * [`Corrupt`](requeue_store::ErrorKind::Corrupt): the files are damaged.
    /// * [`Unavailable`](requeue_store::ErrorKind::Unavailable): the disk is full, or the
    ///   writer thread cannot be started.
    pub fn open(self) -> Result<FjallStore, Error> {
        folder::prepare(&self.path)?;
        let journal = FjallJournal::open(&self.path)?;
        FjallStore::restore(Box::new(journal), self.path, self.time)
    }
}
