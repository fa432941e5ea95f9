//! What every store must do.

use requeue_fjall::FjallStore;
use requeue_store::{EngineClock, Store, forward_store};
use tempfile::TempDir;

/// A store whose folder goes with it.
struct Passing {
    store: FjallStore,
    _folder: TempDir,
}

impl Store for Passing {
    forward_store!(self => self.store; describe, add, lease, extend, finish, reclaim,
        expire, forget, remove, look, stats, failing, workers, dead, revive, drop_dead,
        pause, resume, wait);
}

async fn make(clock: EngineClock) -> Passing {
    let folder = tempfile::tempdir().unwrap();
    let store = FjallStore::builder(folder.path()).clock(clock).open().unwrap();
    Passing { store, _folder: folder }
}

requeue_store::conformance_tests!(make);
