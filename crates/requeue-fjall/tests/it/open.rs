//! Opening a store, and the errors it reports.

use std::fs;
use std::path::Path;

use requeue_fjall::FjallStore;
use requeue_store::{Error, ErrorKind, Store};

use crate::support::{TestQueue, add, lease_keys};

fn refused(path: &Path) -> (ErrorKind, String) {
    let error: Error = FjallStore::builder(path).open().unwrap_err();
    let text = error.to_string().replace(path.to_str().unwrap(), "PATH");
    (error.kind(), text)
}

#[tokio::test]
async fn queue_can_be_open_only_once_and_reopened_after_close() {
    let queue = TestQueue::new();
    let store = queue.open();
    let conflict =
        "the queue at PATH is already open, in this process or another one".to_owned();
    assert_eq!(refused(&queue.path()), (ErrorKind::Conflict, conflict.clone()));
    add(&store, "a").await;
    store.close().unwrap();
    let again = queue.open();
    assert_eq!(lease_keys(&again).await, ["a"]);
    assert_eq!(store.stats().await.unwrap_err().kind(), ErrorKind::Closed);
    let clone = again.clone();
    drop(again);
    assert_eq!(
        refused(&queue.path()),
        (ErrorKind::Conflict, conflict),
        "a clone still has it open"
    );
    drop(clone);
    drop(queue.open());
}

#[tokio::test]
async fn dropped_store_closes_its_files_before_drop_returns() {
    let queue = TestQueue::new();
    for round in 0..5 {
        let store = queue.open();
        assert_eq!(store.stats().await.unwrap().ready, round);
        add(&store, &round.to_string()).await;
    }
}

#[test]
fn path_of_a_file_is_refused() {
    let queue = TestQueue::new();
    fs::write(queue.path(), "x").unwrap();
    let text = "PATH is a file, not a folder".to_owned();
    assert_eq!(refused(&queue.path()), (ErrorKind::Invalid, text));
    assert_eq!(fs::read(queue.path()).unwrap(), b"x");
}

#[test]
fn folder_that_cannot_be_created_is_refused() {
    let queue = TestQueue::new();
    fs::write(queue.path(), "x").unwrap();
    let below = queue.path().join("queue");
    let text = "cannot create the folder PATH".to_owned();
    assert_eq!(refused(&below), (ErrorKind::Invalid, text));
}

#[test]
fn folder_with_other_files_is_refused_and_left_unchanged() {
    let queue = TestQueue::new();
    fs::create_dir(queue.path()).unwrap();
    fs::write(queue.path().join("main.c"), "x").unwrap();
    let text = "the folder PATH is not a queue: it contains \"main.c\"; use an empty folder or \
                a new path";
    assert_eq!(refused(&queue.path()), (ErrorKind::Invalid, text.to_owned()));
    assert_eq!(fs::read_dir(queue.path()).unwrap().count(), 1);
}

#[test]
fn files_of_another_fjall_version_are_refused() {
    let queue = TestQueue::new();
    drop(queue.open());
    fs::write(queue.path().join("version"), b"FJL\x02").unwrap();
    let text = "the queue at PATH has an unsupported fjall format: version 2, expected 3"
        .to_owned();
    assert_eq!(refused(&queue.path()), (ErrorKind::Version, text));
    fs::write(queue.path().join("version"), b"nonsense").unwrap();
    assert_eq!(refused(&queue.path()).0, ErrorKind::Version);
}

/// fjall creates the file `version` last and refuses a folder without it. A process that
/// was killed while it created the queue left a folder that could never be opened.
#[tokio::test]
async fn folder_of_an_interrupted_creation_is_usable() {
    let queue = TestQueue::new();
    drop(queue.open());
    fs::remove_file(queue.path().join("version")).unwrap();
    let store = queue.open();
    add(&store, "a").await;
    drop(store);
    assert_eq!(lease_keys(&queue.open()).await, ["a"]);
}

#[test]
fn description_and_debug_show_the_path_and_no_keys() {
    let queue = TestQueue::new();
    let store = queue.open();
    let path = queue.path();
    assert_eq!(store.describe(), format!("the queue at {}", path.display()));
    assert!(format!("{store:?}").starts_with("FjallStore { path: "));
    assert!(
        format!("{:?}", FjallStore::builder(&path))
            .starts_with("FjallStoreBuilder { path: ")
    );
}
