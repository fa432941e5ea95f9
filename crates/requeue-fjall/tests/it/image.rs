//! Crash images: copies of a folder as a power failure could leave it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{RepliesExt, Store};

use crate::support::{TestQueue, add, finish, is_there, key, lease, open};

/// The size to which fjall preallocates a journal with zeros.
const PREALLOCATED: u64 = 64 << 20;

/// Copies a folder, and only the written part of its journals.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> =
        fs::read_dir(from).unwrap().map(|it| it.unwrap().path()).collect();
    // The journal last: it must be at least as new as the other files.
    entries.sort_by_key(|path| is_journal(path));
    for entry in entries {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else if is_journal(&entry) {
            fs::write(target, written(&entry)).unwrap();
        } else {
            fs::copy(&entry, target).unwrap();
        }
    }
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

fn written(journal: &Path) -> Vec<u8> {
    let mut bytes = fs::read(journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

fn newest_journal(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries.filter(|path| is_journal(path)).max().unwrap()
}

/// Returns which of the first `all` keys are in the store.
async fn keys(store: &FjallStore, all: u64) -> BTreeSet<u64> {
    let names: Vec<_> = (0..all).map(|number| key(&number.to_string())).collect();
    let looks = store.look(&names).all().await.unwrap();
    (0..all)
        .zip(looks)
        .filter(|(_, look)| is_there(look))
        .map(|(number, _)| number)
        .collect()
}

/// Adds key `number`, and finishes the oldest key in every third step.
async fn step(store: &FjallStore, number: u64) {
    add(store, &number.to_string()).await;
    if number % 3 == 2 {
        let grant = lease(store, 1).await.remove(0);
        finish(store, &grant, Finish::Succeed).await;
    }
}

/// Returns the keys before the first write and after each write of `steps` steps.
fn states(steps: u64) -> Vec<BTreeSet<u64>> {
    let mut states = vec![BTreeSet::new()];
    let mut now = BTreeSet::new();
    for number in 0..steps {
        now.insert(number);
        states.push(now.clone());
        if number % 3 == 2 {
            now.pop_first();
            states.push(now.clone());
        }
    }
    states
}

/// Cuts the journal at many lengths, with and without zeros behind the cut. The queue must
/// open in its state after some write, and a longer journal must not contain less.
#[tokio::test]
async fn truncated_journal_opens_in_the_state_after_some_write() {
    const STEPS: u64 = 30;
    let (queue, image) = (TestQueue::new(), TestQueue::new());
    let store = queue.open();
    for number in 0..STEPS {
        step(&store, number).await;
    }
    copy(&queue.path(), &image.path());
    let whole = written(&newest_journal(&image.path()));
    let states = states(STEPS);
    let mut last = 0;
    for cut in (0..=whole.len()).filter(|cut| cut % 113 == 0 || *cut == whole.len()) {
        for zeros in [false, true] {
            let left = reopen_cut(&image, &whole[..cut], zeros, STEPS).await;
            let at = states.iter().rposition(|state| *state == left);
            let at =
                at.unwrap_or_else(|| panic!("{cut} bytes: {left:?} was never the state"));
            assert!(at >= last, "{cut} bytes contain less than a shorter journal");
            last = at;
        }
    }
    assert_eq!(last, states.len() - 1, "the whole journal contains every write");
}

async fn reopen_cut(
    image: &TestQueue,
    left: &[u8],
    zeros: bool,
    all: u64,
) -> BTreeSet<u64> {
    let cut = TestQueue::new();
    copy(&image.path(), &cut.path());
    let journal = newest_journal(&cut.path());
    fs::write(&journal, left).unwrap();
    if zeros {
        File::options()
            .write(true)
            .open(&journal)
            .unwrap()
            .set_len(PREALLOCATED)
            .unwrap();
    }
    let store = cut.open();
    let there = keys(&store, all).await;
    // Later writes are kept as well.
    add(&store, "later").await;
    drop(store);
    let store = cut.open();
    assert!(is_there(&store.look(&[key("later")]).all().await.unwrap()[0]));
    assert_eq!(keys(&store, all).await, there);
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_during_writes_contains_all_acknowledged_keys() {
    let queue = TestQueue::new();
    let store = queue.open();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&acknowledged);
    let writer = tokio::spawn(async move {
        for number in 0.. {
            add(&store, &number.to_string()).await;
            count.store(number + 1, Ordering::Release);
        }
    });
    for round in 1..=5 {
        while acknowledged.load(Ordering::Acquire) < round * 20 {
            tokio::task::yield_now().await;
        }
        let before = acknowledged.load(Ordering::Acquire);
        let image = TestQueue::new();
        copy(&queue.path(), &image.path());
        let there = keys(&open(&image.path(), &image.clock), before).await;
        assert_eq!(there.len() as u64, before, "{before} keys were acknowledged");
    }
    writer.abort();
}
