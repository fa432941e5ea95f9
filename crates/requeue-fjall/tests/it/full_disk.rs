//! A real disk that is full for a while: a small file system in memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{
    Add, Class, ErrorKind, FinishRequest, Grant, Owner, RepliesExt, Store, When,
};
use tempfile::TempDir;

use crate::support::{LEASE, add, hold, key, lease, lease_keys};

/// A mounted file system of 16 MB.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Returns `None` without the permission to mount.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=16m", "requeue-test"]);
        let mounted = command.arg(folder.path()).output().unwrap().status.success();
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(mounted || !is_ci, "this test needs the permission to mount");
        mounted.then_some(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("queue")
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Writes until no byte is left.
    fn fill(&self) {
        fill(&self.filler());
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.folder.path()).status().unwrap();
    }
}

/// A full disk poisoned the store for good, with all leases of its workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_loses_nothing_and_the_store_recovers() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = FjallStore::open(disk.path()).unwrap();
    add(&store, "leased").await;
    let grant = lease(&store, 1).await.remove(0);
    disk.fill();
    let mut added = 0;
    let refused = loop {
        let name = format!("key-{added}-{}", "x".repeat(900));
        let add = Add::new(key(&name), When::Now);
        match store.add(&[add]).all().await {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
        // The store frees its reserve, which the filler takes.
        disk.fill();
    };
    assert_eq!((refused.kind(), refused.class()), (ErrorKind::Full, Class::RetryHere));
    let owner = Owner::new("w1");
    let held = [hold(&grant)];
    let extended = store.extend(&owner, &held, LEASE).all().await.unwrap();
    assert_eq!(extended, [true], "heartbeats work");
    assert_eq!(store.stats().await.unwrap().ready, added);

    disk.free();
    while let Err(error) = store.finish(&[succeed(&grant)]).all().await {
        assert_eq!(error.kind(), ErrorKind::Full);
        tokio::task::yield_now().await;
    }
    add(&store, "later").await;
    store.close().unwrap();
    let store = FjallStore::open(disk.path()).unwrap();
    assert_eq!(lease_keys(&store).await.len() as u64, added + 1);
}

fn succeed(grant: &Grant) -> FinishRequest {
    FinishRequest::new(hold(grant), Finish::Succeed)
}

#[tokio::test]
async fn queue_opens_on_a_full_disk_and_refuses_changes() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = FjallStore::open(disk.path()).unwrap();
    add(&store, "a").await;
    store.close().unwrap();
    fs::remove_file(disk.path().join("reserve")).unwrap();
    disk.fill();
    let store = match FjallStore::open(disk.path()) {
        Ok(store) => store,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Full),
    };
    assert_eq!(store.stats().await.unwrap().ready, 1);
    let add = Add::new(key("b"), When::Now);
    let refused = store.add(&[add]).all().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
}
