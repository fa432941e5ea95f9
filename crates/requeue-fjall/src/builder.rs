//! Options for opening a store.

use std::path::{Path, PathBuf};

use requeue_store::machine::TimeSource;
use requeue_store::{EngineClock, Error, Migration};

use crate::fjall_journal::FjallJournal;
use crate::{FjallStore, folder, migration};

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
    /// * [`Version`](requeue_store::ErrorKind::Version): another version of this program or
    ///   of fjall wrote the queue. Nothing is changed; see [`migrate`](Self::migrate).
    /// * [`Corrupt`](requeue_store::ErrorKind::Corrupt): the files are damaged.
    /// * [`Full`](requeue_store::ErrorKind::Full): the disk is full.
    /// * [`Unavailable`](requeue_store::ErrorKind::Unavailable): the writer thread cannot be
    ///   started.
    pub fn open(self) -> Result<FjallStore, Error> {
        folder::prepare(&self.path)?;
        let journal = FjallJournal::open(&self.path)?;
        FjallStore::restore(Box::new(journal), self.path, self.time)
    }

    /// Rewrites a queue that an older version of this program wrote, or only says what it
    /// would do.
    ///
    /// Opening never does this. A folder of an older version is refused until it is migrated,
    /// so the older program can still use it. An interrupted migration can be repeated.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open), and [`Invalid`](requeue_store::ErrorKind::Invalid)
    /// if the folder does not contain a queue.
    #[expect(clippy::unused_async, reason = "the same signature on every store")]
    pub async fn migrate(self, dry_run: bool) -> Result<Migration, Error> {
        folder::check_exists(&self.path)?;
        let mut journal = FjallJournal::open(&self.path)?;
        migration::migrate(&mut journal, dry_run)
    }
}
