//! Crash images: what a folder would hold if the machine had stopped at some moment.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::Store;

use crate::support::{Place, add, finish, is_there, key, lease, open};

/// How long the engine makes a journal ahead of what is written: the rest is zeros.
const AHEAD: u64 = 64 << 20;

/// Copies a folder; of journals only what is written.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> =
        fs::read_dir(from).unwrap().map(|it| it.unwrap().path()).collect();
    // The journal last: it must know of no less than the rest.
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

/// The keys of an image that are there.
async fn keys(store: &FjallStore, all: u64) -> BTreeSet<u64> {
    let names: Vec<_> = (0..all).map(|number| key(&number.to_string())).collect();
    let looks = store.look(&names).await.unwrap();
    (0..all)
        .zip(looks)
        .filter(|(_, look)| is_there(look))
        .map(|(number, _)| number)
        .collect()
}

/// Step `n` adds key `n`, and each third one finishes the oldest key.
async fn step(store: &FjallStore, number: u64) {
    add(store, &number.to_string()).await;
    if number % 3 == 2 {
        let grant = lease(store, 1).await.remove(0);
        finish(store, &grant, Finish::Succeed).await;
    }
}

/// What is there after each write of `steps` steps, the state before the first included.
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

/// However much of the end of the journal is lost, and whether or not zeros stand there,
/// the queue opens with what it held after some write, and with no less the longer it is.
#[tokio::test]
async fn a_journal_that_is_cut_off_anywhere_opens_as_it_was_after_some_write() {
    const STEPS: u64 = 30;
    let (place, image) = (Place::new(), Place::new());
    let store = place.open();
    for number in 0..STEPS {
        step(&store, number).await;
    }
    copy(&place.path(), &image.path());
    let whole = written(&newest_journal(&image.path()));
    let states = states(STEPS);
    let mut last = 0;
    for cut in (0..=whole.len()).filter(|cut| cut % 113 == 0 || *cut == whole.len()) {
        for zeros in [false, true] {
            let left = reopen_cut(&image, &whole[..cut], zeros, STEPS).await;
            let at = states.iter().rposition(|state| *state == left);
            let at =
                at.unwrap_or_else(|| panic!("{cut} bytes: {left:?} was never there"));
            assert!(at >= last, "{cut} bytes hold less than fewer did");
            last = at;
        }
    }
    assert_eq!(last, states.len() - 1, "the whole journal holds everything");
}

async fn reopen_cut(image: &Place, left: &[u8], zeros: bool, all: u64) -> BTreeSet<u64> {
    let cut = Place::new();
    copy(&image.path(), &cut.path());
    let journal = newest_journal(&cut.path());
    fs::write(&journal, left).unwrap();
    if zeros {
        File::options().write(true).open(&journal).unwrap().set_len(AHEAD).unwrap();
    }
    let store = cut.open();
    let there = keys(&store, all).await;
    // What is written after that is kept as well.
    add(&store, "later").await;
    drop(store);
    let store = cut.open();
    assert!(is_there(&store.look(&[key("later")]).await.unwrap()[0]));
    assert_eq!(keys(&store, all).await, there);
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_made_during_writes_holds_all_that_was_acknowledged_before() {
    let place = Place::new();
    let store = place.open();
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
        let image = Place::new();
        copy(&place.path(), &image.path());
        let there = keys(&open(&image.path(), &image.clock), before).await;
        assert_eq!(there.len() as u64, before, "of {before} acknowledged keys");
    }
    writer.abort();
}
