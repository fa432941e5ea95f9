//! Test helpers: short forms of long requests.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{
    Add, EngineClock, FinishRequest, Finished, Grant, Hold, Key, LeaseRequest, Look,
    Owner, Phase, Receipt, RepliesExt, Store, When,
};
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A path for a queue, in a temporary folder, and the clock of its stores.
pub(crate) struct TestQueue {
    folder: TempDir,
    pub(crate) clock: EngineClock,
}

impl TestQueue {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: EngineClock::new() }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("queue")
    }

    pub(crate) fn open(&self) -> FjallStore {
        open(&self.path(), &self.clock)
    }
}

pub(crate) fn open(path: &Path, clock: &EngineClock) -> FjallStore {
    FjallStore::builder(path).clock(clock.clone()).open().unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

pub(crate) async fn add_when(store: &FjallStore, text: &str, when: When) -> Receipt {
    let add = Add { revive_after: Duration::ZERO, ..Add::new(key(text), when) };
    store.add(&[add]).all().await.unwrap()[0]
}

pub(crate) async fn add_with_priority(
    store: &FjallStore,
    text: &str,
    when: When,
    priority: i8,
) {
    let add = Add { priority, ..Add::new(key(text), when) };
    store.add(&[add]).all().await.unwrap();
}

pub(crate) async fn add(store: &FjallStore, text: &str) -> Receipt {
    add_when(store, text, When::Now).await
}

pub(crate) async fn add_all(store: &FjallStore, texts: &[&str]) {
    for text in texts {
        add(store, text).await;
    }
}

/// Leases up to `max` keys; a key with `max_deliveries` deliveries becomes dead instead.
pub(crate) async fn lease_at_most(
    store: &FjallStore,
    max: usize,
    max_deliveries: Option<u32>,
) -> Vec<Grant> {
    let owner = Owner::new("w1");
    let max_deliveries = max_deliveries.and_then(NonZeroU32::new);
    let request = LeaseRequest { owner, max, lease: LEASE, max_deliveries };
    store.lease(&request).await.unwrap().grants
}

pub(crate) async fn lease(store: &FjallStore, max: usize) -> Vec<Grant> {
    lease_at_most(store, max, None).await
}

/// Leases all ready keys and returns them in order.
pub(crate) async fn lease_keys(store: &FjallStore) -> Vec<String> {
    let grants = lease(store, usize::MAX).await;
    grants.iter().map(|grant| grant.key.to_string()).collect()
}

pub(crate) fn hold(grant: &Grant) -> Hold {
    Hold { key: grant.key.clone(), token: grant.token }
}

pub(crate) async fn finish(
    store: &FjallStore,
    grant: &Grant,
    finish: Finish,
) -> Finished {
    store
        .finish(&[FinishRequest::new(hold(grant), finish).with_error("bad")])
        .all()
        .await
        .unwrap()[0]
}

pub(crate) async fn look(store: &FjallStore, text: &str) -> Look {
    store.look(&[key(text)]).all().await.unwrap().remove(0)
}

/// Returns whether the key is ready, delayed or leased.
pub(crate) fn is_there(look: &Look) -> bool {
    look.phase != Phase::Absent || look.delayed.is_some()
}
