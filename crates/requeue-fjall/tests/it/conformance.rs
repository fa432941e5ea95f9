//! Runs the conformance suite of requeue-store.

use requeue_fjall::FjallStore;
use requeue_store::{EngineClock, Store, forward_store};
use tempfile::TempDir;

/// A store that deletes its folder when it is dropped.
struct TemporaryStore {
    store: FjallStore,
    _folder: TempDir,
}

impl Store for TemporaryStore {
    forward_store!(self => self.store; describe, add, lease, extend, heartbeat, finish, reclaim,
        expire, forget, remove, look, take, lane, stats, failing, workers, dead, revive, drop_dead,
        pause, resume, wait);
}

async fn make(clock: EngineClock) -> TemporaryStore {
    let folder = tempfile::tempdir().unwrap();
    let store = FjallStore::builder(folder.path()).clock(clock).open().unwrap();
    TemporaryStore { store, _folder: folder }
}

requeue_store::conformance_tests!(make);
