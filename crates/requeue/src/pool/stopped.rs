//! What a stopped pool has not finished.

/// The keys that a stopped pool has not finished.
///
/// Every key that was in the queue, or with a worker of this pool, is in at least one of the
/// two lists, unless it is finished: its last run succeeded, or the key is dead. Keep both
/// lists to lose nothing.
///
/// A key is in both lists only if
///
/// * it was added again, or with a delay, while it was running, or
/// * its run ended while the keys were collected, and the key was returned to the queue.
///
/// A key in `still_running` may have been finished since. If several calls stop a pool at the
/// same time, each key is in the result of at least one of them. A queue on a store keeps its
/// keys itself: there, `left` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped<K> {
    /// The keys whose run had not ended at the deadline. Runs on threads continue, runs of
    /// tasks are cancelled. Empty if all ended in time.
    pub still_running: Vec<K>,
    /// The keys that were not delivered to a worker: ready ones, then those added while they
    /// were running, then delayed ones, which include keys to be retried.
    pub left: Vec<K>,
}

impl<K> Stopped<K> {
    /// Returns whether every run had ended in time.
    pub fn in_time(&self) -> bool {
        self.still_running.is_empty()
    }
}
