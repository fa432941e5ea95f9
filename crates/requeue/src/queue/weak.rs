//! A handle that does not keep the queue open.

use std::fmt;
use std::sync::{Arc, Weak};

use super::Queue;
use super::shared::Closer;

/// A handle of a queue that does not keep it open; from [`Queue::downgrade`].
///
/// A queue closes when its last [`Queue`] handle is dropped. A handler that adds keys to the
/// queue it works on holds a weak handle, so that it does not keep its own pool running.
///
/// # Examples
///
/// ```
/// use requeue::Queue;
///
/// let queue = Queue::new();
/// let weak = queue.downgrade();
/// if let Some(queue) = weak.upgrade() {
///     queue.add("key")?;
/// }
/// drop(queue);
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), requeue::Closed<&str>>(())
/// ```
pub struct WeakQueue<K>(Weak<Closer<K>>);

impl<K> WeakQueue<K> {
    pub(super) fn new(closer: &Arc<Closer<K>>) -> Self {
        Self(Arc::downgrade(closer))
    }

    /// Returns a handle of the queue, or `None` if all its handles are dropped.
    pub fn upgrade(&self) -> Option<Queue<K>> {
        let closer = self.0.upgrade()?;
        Some(Queue { shared: Arc::clone(&closer.0), closer })
    }
}

impl<K> Clone for WeakQueue<K> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<K> fmt::Debug for WeakQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakQueue").finish_non_exhaustive()
    }
}
