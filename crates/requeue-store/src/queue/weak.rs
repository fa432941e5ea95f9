//! A handle that does not keep the queue open.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Weak;

use super::{OpenClient, SharedQueue};
use crate::Store;

/// A handle of a [`SharedQueue`] that does not keep it open.
///
/// # Examples
///
/// ```
/// use requeue_store::{MemoryStore, SharedQueue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
/// let weak = queue.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(queue);
/// assert!(weak.upgrade().is_none());
/// # });
/// ```
pub struct WeakSharedQueue<K, S: Store> {
    pub(super) handle: Weak<OpenClient<S>>,
    pub(super) key: PhantomData<fn() -> K>,
}

impl<K, S: Store> WeakSharedQueue<K, S> {
    /// Returns the queue, or `None` if all its handles were dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<SharedQueue<K, S>> {
        Some(SharedQueue { handle: self.handle.upgrade()?, key: PhantomData })
    }
}

impl<K, S: Store> Clone for WeakSharedQueue<K, S> {
    fn clone(&self) -> Self {
        Self { handle: Weak::clone(&self.handle), key: PhantomData }
    }
}

impl<K, S: Store> fmt::Debug for WeakSharedQueue<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSharedQueue").finish_non_exhaustive()
    }
}
