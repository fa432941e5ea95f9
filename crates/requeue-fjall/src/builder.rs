//! Opening a queue on disk.

use std::path::{Path, PathBuf};

use requeue_store::{EngineClock, Error, Now};

use crate::engine::Engine;
use crate::{FjallStore, place};

/// How a queue on disk is opened; see [`FjallStore::builder`].
#[derive(Clone, Debug)]
pub struct FjallStoreBuilder {
    path: PathBuf,
    now: Now,
}

impl FjallStoreBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), now: Now::default() }
    }

    /// Takes the time from `clock` instead of the system: for tests, which move it.
    #[must_use]
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.now = Now::Told(clock);
        self
    }

    /// Opens the queue with all that it kept, or makes an empty one.
    ///
    /// It reads every key and blocks meanwhile: some seconds for a million.
    ///
    /// # Errors
    ///
    /// * [`Conflict`](requeue_store::ErrorKind::Conflict): the queue is open already, in
    ///   this process or another.
    /// * [`Invalid`](requeue_store::ErrorKind::Invalid): the path is a file, or a folder
    ///   that cannot be made or holds something else;
    ///   [`Denied`](requeue_store::ErrorKind::Denied) if that is for want of rights.
    /// * [`Version`](requeue_store::ErrorKind::Version): it was written by a program of
    ///   another version.
    /// * [`Corrupt`](requeue_store::ErrorKind::Corrupt): what it holds cannot be read.
    /// * [`Unavailable`](requeue_store::ErrorKind::Unavailable): the disk is full, or there
    ///   is no thread to be had.
    pub fn open(self) -> Result<FjallStore, Error> {
        place::prepare(&self.path)?;
        let engine = Engine::open(&self.path)?;
        FjallStore::on(Box::new(engine), self.path, self.now)
    }
}
