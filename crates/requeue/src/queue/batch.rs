//! Several leases that begin and end in one lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::finish::Finish;
use super::lease::Lease;
use super::shared::Shared;
use super::state::Taken;

/// Several leased keys, from [`Queue::get_many`](crate::Queue::get_many) and its variants.
///
/// The rules of a [`Lease`] apply to each key, and a batch that is dropped is retried.
/// Finishing the batch takes one lock; iterate over it to finish each key separately.
///
/// # Examples
///
/// ```
/// let queue = requeue::Queue::new();
/// queue.add_all(1..=100)?;
/// let batch = queue.try_get_many(64)?;
/// assert_eq!(batch.keys().sum::<i32>(), (1..=64).sum());
/// batch.succeed();
///
/// for lease in queue.try_get_many(64)? {
///     if *lease % 2 == 0 { lease.succeed() } else { lease.give_up() }
/// }
/// assert_eq!(queue.len(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch that is dropped is retried"]
pub struct Batch<K> {
    shared: Arc<Shared<K>>,
    taken: Vec<Taken<K>>,
}

impl<K> Batch<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, taken: Vec<Taken<K>>) -> Self {
        Self { shared, taken }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Returns whether the batch is empty, which it is only if 0 keys were asked for.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Returns the keys, in the order in which they were leased.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.taken.iter().map(|taken| &taken.key)
    }

    /// Ends the lease of every key as [`Lease::succeed`] does.
    pub fn succeed(self) {
        self.finish(Finish::Succeed);
    }

    /// Ends the lease of every key as [`Lease::requeue_after`] does.
    pub fn requeue_after(self, delay: Duration) {
        self.finish(Finish::RequeueAfter(delay));
    }

    /// Ends the lease of every key as [`Lease::retry`] does.
    pub fn retry(self) {
        self.finish(Finish::Retry);
    }

    /// Ends the lease of every key as [`Lease::retry_after`] does.
    pub fn retry_after(self, delay: Duration) {
        self.finish(Finish::RetryAfter(delay));
    }

    /// Ends the lease of every key as [`Lease::give_up`] does.
    pub fn give_up(self) {
        self.finish(Finish::GiveUp);
    }

    /// Ends the lease of every key as [`Lease::release`] does.
    pub fn release(self) {
        self.finish(Finish::Release);
    }

    /// Ends the lease of every key as [`Lease::done`] does.
    pub fn done(self) {
        self.finish(Finish::Done);
    }

    /// Ends the lease of every key as `finish` says.
    pub fn finish(mut self, finish: Finish) {
        let taken = std::mem::take(&mut self.taken);
        self.shared.finish_all(taken, finish);
    }
}

impl<K> Drop for Batch<K> {
    fn drop(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let taken = std::mem::take(&mut self.taken);
        self.shared.record_unwinding();
        self.shared.finish_all(taken, self.shared.on_drop);
    }
}

impl<K> IntoIterator for Batch<K> {
    type Item = Lease<K>;
    type IntoIter = std::vec::IntoIter<Lease<K>>;

    /// Returns the leases, to be ended one by one.
    fn into_iter(mut self) -> Self::IntoIter {
        let taken = std::mem::take(&mut self.taken);
        let leases: Vec<_> = taken
            .into_iter()
            .map(|taken| Lease::new(Arc::clone(&self.shared), taken))
            .collect();
        leases.into_iter()
    }
}

impl<K> fmt::Debug for Batch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
