//! Callers of `join`, `drain` and `stop` that wait for workers.

use std::future::poll_fn;
use std::task::Poll;

use super::registry::Registry;
use crate::wake::{Wake, WatchId};

/// A caller that waits for the workers of one pool.
pub(super) struct Watcher<'a, K> {
    registry: &'a Registry<K>,
    id: Option<WatchId>,
}

impl<'a, K> Watcher<'a, K> {
    pub(super) fn new(registry: &'a Registry<K>) -> Self {
        Self { registry, id: None }
    }

    /// Waits until `reached` returns `true`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future deregisters the caller and its waker.
    pub(super) async fn until(mut self, reached: impl Fn(&Registry<K>) -> bool) {
        poll_fn(|cx| {
            // It registers before it looks, so that it misses no change.
            let wake = Wake::Task(cx.waker().clone());
            self.id = Some(self.registry.watch(self.id, wake));
            if reached(self.registry) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl<K> Drop for Watcher<'_, K> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.registry.unwatch(id);
        }
    }
}
