//! Several leases that begin and end in one lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lease::Lease;
use super::shared::{Finish, Shared};
use super::state::Taken;

/// Several leased keys, from [`Queue::get_many`](crate::Queue::get_many) and its variants.
///
/// The rules of a [`Lease`] apply to each key. Finishing the batch takes one lock; iterate
/// over it to finish each key separately.
///
/// # Examples
///
/// ```
/// let queue = requeue::Queue::new();
/// queue.add_all(1..=100);
/// let batch = queue.try_get_many(64).unwrap();
/// assert_eq!(batch.keys().sum::<i32>(), (1..=64).sum());
/// batch.succeed();
///
/// for lease in queue.try_get_many(64).unwrap() {
///     if *lease % 2 == 0 { lease.succeed() } else { lease.done() }
/// }
/// assert_eq!(queue.len(), 0);
/// ```
#[must_use = "a batch that is dropped is done at once"]
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

    /// Ends the lease of every key as [`Lease::done`] does.
    pub fn done(self) {
        self.finish(Finish::Done);
    }

    /// Ends the lease of every key as [`Lease::succeed`] does.
    pub fn succeed(self) {
        self.finish(Finish::Succeed);
    }

    /// Ends the lease of every key as `finish` says.
    pub fn finish(mut self, finish: Finish) {
        let shared = Arc::clone(&self.shared);
        if shared.asks_policy(finish) {
            return self.end(finish, |key| shared.consult(key, finish));
        }
        match finish {
            Finish::Done => self.end_well(false),
            Finish::Succeed => self.end_well(true),
            Finish::Retry | Finish::RetryAfter(_) => self.end(finish, |_| None),
        }
    }

    fn end_well(&mut self, succeeded: bool) {
        self.shared.done_all(std::mem::take(&mut self.taken), succeeded);
    }

    /// Ends the leases. The retry policy of the user is asked for all keys first, without the
    /// lock.
    fn end(&mut self, finish: Finish, consult: impl Fn(&K) -> Option<Duration>) {
        let advice: Vec<_> = self.keys().map(consult).collect();
        let taken = std::mem::take(&mut self.taken);
        let back = taken.into_iter().zip(advice);
        self.shared.finish_all(back.map(|(taken, advice)| taken.end(finish, advice)));
    }
}

impl<K> Drop for Batch<K> {
    fn drop(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        if !std::thread::panicking() {
            return self.end_well(false);
        }
        let shared = Arc::clone(&self.shared);
        shared.record(|recorder| recorder.panicked());
        self.end(Finish::Retry, |key| shared.consult(key, Finish::Retry));
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
