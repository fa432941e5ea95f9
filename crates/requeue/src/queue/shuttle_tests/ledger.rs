//! A record of the calls to a queue and of the runs of its workers.

use std::array;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{Added, Closed};

/// How many keys there are: few, so that they meet each other.
pub(super) const KEYS: usize = 3;

/// One page for each key.
#[derive(Default)]
struct Page {
    /// Counts adds; each is a change of the thing that the key stands for.
    version: AtomicU64,
    /// The last version whose add was accepted.
    accepted: AtomicU64,
    /// The last version that a worker saw and dealt with.
    settled: AtomicU64,
    busy: AtomicBool,
}

pub(super) struct Ledger([Page; KEYS]);

impl Ledger {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| Page::default()))
    }

    /// Changes the thing behind `key`, then has `add` tell the queue.
    pub(super) fn change(
        &self,
        key: usize,
        add: impl FnOnce(usize) -> Result<Added, Closed<usize>>,
    ) {
        let page = &self.0[key];
        let version = page.version.fetch_add(1, SeqCst) + 1;
        if add(key).is_ok() {
            page.accepted.fetch_max(version, SeqCst);
        }
    }

    /// A worker begins: the version that it sees.
    pub(super) fn begin(&self, key: usize) -> u64 {
        let page = &self.0[key];
        assert!(!page.busy.swap(true, SeqCst), "key {key} is with two workers");
        page.version.load(SeqCst)
    }

    /// Records the end of a run; `settled` is its version if it succeeded. Call it while the
    /// lease exists.
    pub(super) fn end(&self, key: usize, settled: Option<u64>) {
        let page = &self.0[key];
        page.settled.fetch_max(settled.unwrap_or(0), SeqCst);
        assert!(page.busy.swap(false, SeqCst), "key {key} was not with a worker");
    }

    pub(super) fn assert_nobody_works(&self) {
        for (key, page) in self.0.iter().enumerate() {
            assert!(!page.busy.load(SeqCst), "key {key} is still with a worker");
        }
    }

    /// Every accepted add was seen by a worker that began after it, or handed back.
    pub(super) fn assert_nothing_lost(&self, handed_back: &[usize]) {
        for (key, page) in self.0.iter().enumerate() {
            let settled = page.settled.load(SeqCst) >= page.accepted.load(SeqCst);
            assert!(settled || handed_back.contains(&key), "key {key} was lost");
        }
    }
}
