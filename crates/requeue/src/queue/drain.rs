//! Waiting until the queue has nothing left to do.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::shared::Shared;
use super::state::State;
use crate::sync::thread;
use crate::wake::{DeferredDrop, Wake, WatchId};

/// A thread or task that waits until the queue is drained or idle.
struct Watcher<K> {
    shared: Arc<Shared<K>>,
    id: Option<WatchId>,
}

impl<K> Watcher<K> {
    fn new(shared: Arc<Shared<K>>) -> Self {
        Self { shared, id: None }
    }

    /// Checks whether the state is reached, and watches for it if not, in one lock scope.
    fn look<T>(
        &mut self,
        reached: impl FnOnce(&mut State<K>) -> Option<T>,
        wake: Wake,
    ) -> Option<T> {
        // Declared before the lock, so that they are dropped after it.
        let mut wake = DeferredDrop::new(Some(wake));
        let _replaced;
        let mut locked = self.shared.lock();
        let result = reached(&mut locked.state);
        if result.is_none() {
            let (id, replaced) = locked.watch.watch(self.id, wake.take());
            _replaced = replaced;
            self.id = Some(id);
        }
        locked.unlock();
        result
    }

    /// Waits on this thread, until `deadline` if there is one.
    fn block<T>(
        &mut self,
        deadline: Option<Instant>,
        reached: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Option<T> {
        loop {
            let result = self.look(&reached, Wake::Thread(thread::current()));
            let late = deadline.is_some_and(|moment| moment <= self.shared.clock.now());
            if result.is_some() || late {
                return result;
            }
            match deadline {
                Some(moment) => self.shared.clock.park_until(moment),
                None => thread::park(),
            }
        }
    }
}

impl<K> Drop for Watcher<K> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _unwatched;
            let mut locked = self.shared.lock_timeless();
            _unwatched = locked.watch.unwatch(id);
            locked.unlock();
        }
    }
}

/// The keys that will not be delivered, once nothing else is left.
fn drained<K: Clone>(state: &mut State<K>) -> Option<Vec<K>> {
    state.is_drained().then(|| state.take_undelivered())
}

fn idle<K>(state: &mut State<K>) -> Option<()> {
    state.is_idle().then_some(())
}

impl<K: Clone> Shared<K> {
    pub(super) fn drain_blocking(
        self: &Arc<Self>,
        deadline: Option<Instant>,
    ) -> Option<Vec<K>> {
        self.close();
        Watcher::new(Arc::clone(self)).block(deadline, drained)
    }
}

impl<K> Shared<K> {
    pub(super) fn wait_idle_blocking(self: &Arc<Self>) {
        Watcher::new(Arc::clone(self)).block(None, idle);
    }
}

/// The future of [`Queue::drain`](crate::Queue::drain).
///
/// # Cancel safety
///
/// The queue closes with the first poll and stays closed. Dropping the future loses no
/// key: those that are delayed stay where they are for the next drain.
#[must_use = "futures do nothing unless polled"]
pub struct Drain<K> {
    watcher: Watcher<K>,
}

impl<K> Drain<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self { watcher: Watcher::new(shared) }
    }
}

impl<K> Unpin for Drain<K> {}

impl<K: Clone> Future for Drain<K> {
    type Output = Vec<K>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<K>> {
        if self.watcher.id.is_none() {
            self.watcher.shared.close();
        }
        let wake = Wake::Task(cx.waker().clone());
        self.watcher.look(drained, wake).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<K> fmt::Debug for Drain<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

/// The future of [`Queue::wait_idle`](crate::Queue::wait_idle).
///
/// # Cancel safety
///
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct WaitIdle<K> {
    watcher: Watcher<K>,
}

impl<K> WaitIdle<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self { watcher: Watcher::new(shared) }
    }
}

impl<K> Unpin for WaitIdle<K> {}

impl<K> Future for WaitIdle<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let wake = Wake::Task(cx.waker().clone());
        self.watcher.look(idle, wake).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<K> fmt::Debug for WaitIdle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitIdle").finish_non_exhaustive()
    }
}
