//! A number of things that are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts what there is, and tells when there is none.
#[derive(Debug)]
pub(crate) struct Tally {
    number: AtomicUsize,
    none: Arc<Notify>,
}

impl Tally {
    /// None yet; `none` is told when there is none again.
    pub(crate) fn new(none: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { number: AtomicUsize::new(0), none })
    }

    /// Counts one more, until what this returns is dropped.
    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        // Before a look at something that is said before a look at this number: of both,
        // one sees the other.
        self.number.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(self))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.number.load(Ordering::SeqCst) == 0
    }
}

/// One that is counted.
#[derive(Debug)]
#[must_use = "it is counted for as long as this is there"]
pub(crate) struct Counted(Arc<Tally>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.number.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
