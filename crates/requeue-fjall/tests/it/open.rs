//! Opening, and what stands in the way of it.

use std::fs;
use std::path::Path;

use requeue_fjall::FjallStore;
use requeue_store::{Error, ErrorKind, Store};

use crate::support::{Place, add, lease_keys};

fn refused(path: &Path) -> (ErrorKind, String) {
    let error: Error = FjallStore::builder(path).open().unwrap_err();
    let text = error.to_string().replace(path.to_str().unwrap(), "PATH");
    (error.kind(), text)
}

#[tokio::test]
async fn a_queue_is_open_once_and_again_after_it_was_closed() {
    let place = Place::new();
    let store = place.open();
    let in_use = "the queue at PATH is in use, by another process or this one".to_owned();
    assert_eq!(refused(&place.path()), (ErrorKind::Conflict, in_use.clone()));
    add(&store, "a").await;
    store.close().unwrap();
    let again = place.open();
    assert_eq!(lease_keys(&again).await, ["a"]);
    assert_eq!(store.stats().await.unwrap_err().kind(), ErrorKind::Closed);
    let clone = again.clone();
    drop(again);
    assert_eq!(refused(&place.path()), (ErrorKind::Conflict, in_use), "a clone has it");
    drop(clone);
    drop(place.open());
}

#[tokio::test]
async fn a_store_that_is_dropped_lets_go_of_its_files_at_once() {
    let place = Place::new();
    for round in 0..5 {
        let store = place.open();
        assert_eq!(store.stats().await.unwrap().ready, round);
        add(&store, &round.to_string()).await;
    }
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let place = Place::new();
    fs::write(place.path(), "x").unwrap();
    let text = "PATH is a file; a queue needs a folder".to_owned();
    assert_eq!(refused(&place.path()), (ErrorKind::Invalid, text));
    assert_eq!(fs::read(place.path()).unwrap(), b"x");
}

#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let place = Place::new();
    fs::write(place.path(), "x").unwrap();
    let below = place.path().join("queue");
    let text = "the folder PATH cannot be made".to_owned();
    assert_eq!(refused(&below), (ErrorKind::Invalid, text));
}

#[test]
fn a_folder_with_files_of_others_is_refused_and_left_as_it_is() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    fs::write(place.path().join("main.c"), "x").unwrap();
    let text = "the folder PATH is no queue: it holds \"main.c\"; name one that is empty or \
                not there";
    assert_eq!(refused(&place.path()), (ErrorKind::Invalid, text.to_owned()));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn files_of_another_version_of_the_engine_are_refused() {
    let place = Place::new();
    drop(place.open());
    fs::write(place.path().join("version"), b"FJL\x02").unwrap();
    let text = "the files at PATH are of fjall's version 2, not 3".to_owned();
    assert_eq!(refused(&place.path()), (ErrorKind::Version, text));
    fs::write(place.path().join("version"), b"nonsense").unwrap();
    assert_eq!(refused(&place.path()).0, ErrorKind::Version);
}

/// fjall writes the file `version` last and does not open a folder that lacks only that: a
/// process that was killed while it made the queue left a path that could not be used.
#[tokio::test]
async fn a_folder_that_was_left_half_made_is_made() {
    let place = Place::new();
    drop(place.open());
    fs::remove_file(place.path().join("version")).unwrap();
    let store = place.open();
    add(&store, "a").await;
    drop(store);
    assert_eq!(lease_keys(&place.open()).await, ["a"]);
}

#[test]
fn a_store_says_where_it_is_and_shows_no_keys() {
    let place = Place::new();
    let store = place.open();
    let path = place.path();
    assert_eq!(store.describe(), format!("the queue at {}", path.display()));
    assert!(format!("{store:?}").starts_with("FjallStore { path: "));
    assert!(
        format!("{:?}", FjallStore::builder(&path))
            .starts_with("FjallStoreBuilder { path: ")
    );
}
