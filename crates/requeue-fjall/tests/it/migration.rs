//! Folders of other versions: refused, left unchanged, and migrated on request.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{ErrorKind, Migration, Phase, Store, When};

use crate::support::{TestQueue, add, add_when, finish, lease, lease_keys, look};

/// The length of the state of a queue up to version 2.
const OLD_STATE: usize = 26;

fn with_records<T>(path: &Path, act: impl FnOnce(&Database, &Keyspace) -> T) -> T {
    let database = Database::builder(path).open().unwrap();
    let records = database.keyspace("queue", KeyspaceCreateOptions::default).unwrap();
    act(&database, &records)
}

fn records(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    with_records(path, |_, records| {
        let records = records.iter().map(|record| record.into_inner().unwrap());
        records.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    })
}

/// Rewrites a folder as if a program of this version had written it.
fn set_version(path: &Path, version: u8) {
    let all = records(path);
    with_records(path, |database, records| {
        for (name, mut value) in all {
            value[0] = version;
            if name == [0] && version < 3 {
                value.truncate(OLD_STATE);
            }
            records.insert(name, value).unwrap();
        }
        database.persist(PersistMode::SyncAll).unwrap();
    });
}

/// Returns a folder with a ready, a delayed, a failed and a dead key.
async fn folder_of_version(version: u8) -> TestQueue {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "failed").await;
    let grant = lease(&store, 1).await.remove(0);
    finish(&store, &grant, Finish::Retry).await;
    add(&store, "dead").await;
    let grant = lease(&store, 1).await.remove(0);
    finish(&store, &grant, Finish::GiveUp).await;
    add_when(&store, "delayed", When::After(Duration::from_secs(60))).await;
    add(&store, "ready").await;
    drop(store);
    set_version(&queue.path(), version);
    queue
}

#[tokio::test]
async fn folder_of_an_older_version_is_refused_and_left_unchanged() {
    for version in [1, 2] {
        let queue = folder_of_version(version).await;
        let before = records(&queue.path());
        let refused = FjallStore::open(queue.path()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Version);
        let shown = queue.path().display().to_string();
        assert_eq!(
            refused.to_string(),
            format!(
                "the queue at {shown} has format version {version}; this program needs \
                 version 3; run `requeue migrate --store {shown}`"
            )
        );
        let planned = FjallStore::builder(queue.path()).migrate(true).await.unwrap();
        let steps = vec!["rewrite 5 records in format version 3".to_owned()];
        let from = version.into();
        assert_eq!(planned, Migration { from, to: 3, steps, applied: false });
        assert_eq!(records(&queue.path()), before);
    }
}

#[tokio::test]
async fn migrated_folder_has_all_its_keys() {
    let queue = folder_of_version(2).await;
    let done = FjallStore::builder(queue.path()).migrate(false).await.unwrap();
    assert!(done.applied);
    let again = FjallStore::builder(queue.path()).migrate(false).await.unwrap();
    let nothing = Migration { from: 3, to: 3, steps: Vec::new(), applied: false };
    assert_eq!(again, nothing);
    let store = queue.open();
    assert_eq!(look(&store, "dead").await.phase, Phase::Dead);
    assert_eq!(look(&store, "failed").await.failures, 1);
    assert!(look(&store, "delayed").await.delayed.is_some());
    assert_eq!(lease_keys(&store).await, ["ready"]);
}

/// A migration that was interrupted leaves records of both versions.
#[tokio::test]
async fn interrupted_migration_can_be_repeated() {
    let queue = folder_of_version(2).await;
    let old = records(&queue.path());
    FjallStore::builder(queue.path()).migrate(false).await.unwrap();
    with_records(&queue.path(), |_, records| {
        let (name, value) = old.iter().next_back().unwrap();
        records.insert(name.clone(), value.clone()).unwrap();
    });
    let refused = FjallStore::open(queue.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Version);
    let done = FjallStore::builder(queue.path()).migrate(false).await.unwrap();
    assert_eq!(done.steps, ["rewrite 1 record in format version 3"]);
    assert_eq!(queue.open().stats().await.unwrap().dead, 1);
}

#[tokio::test]
async fn folder_of_a_newer_version_is_refused_by_open_and_migrate() {
    let queue = folder_of_version(4).await;
    let before = records(&queue.path());
    let refused = FjallStore::open(queue.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Version);
    assert!(refused.to_string().contains("use a newer one"), "{refused}");
    let refused = FjallStore::builder(queue.path()).migrate(false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Version);
    assert_eq!(records(&queue.path()), before);
}

#[tokio::test]
async fn migrating_a_missing_queue_creates_nothing() {
    let queue = TestQueue::new();
    let refused = FjallStore::builder(queue.path()).migrate(false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(!queue.path().exists());
}
