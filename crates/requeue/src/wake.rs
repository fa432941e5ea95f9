//! Waking threads and tasks that wait.
//!
//! A waker is foreign code: cloning, waking or dropping one may run a task, free it, call
//! back into the queue, or panic. All three happen without any lock of ours.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::contain::contain;
use crate::sync::thread::Thread;

/// How to wake a waiting thread or task.
#[derive(Debug)]
pub(crate) enum Wake {
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => {
                contain(|| waker.wake());
            }
        }
    }
}

/// A waker that is no longer needed, to be dropped after the lock is released.
#[derive(Default)]
#[must_use = "drop it after the lock is released"]
pub(crate) struct DeferredDrop(Option<Wake>);

impl DeferredDrop {
    pub(crate) fn new(wake: Option<Wake>) -> Self {
        Self(wake)
    }

    /// Takes the waker out after all.
    pub(crate) fn take(&mut self) -> Wake {
        self.0.take().expect("a waker is registered once")
    }
}

impl Drop for DeferredDrop {
    fn drop(&mut self) {
        if let Some(wake) = self.0.take() {
            contain(|| drop(wake));
        }
    }
}

/// Waiters to wake, and wakers to drop, after the lock is released.
#[derive(Debug, Default)]
#[must_use = "a waiter that is not woken sleeps forever"]
pub(crate) struct Wakes {
    /// Most calls wake at most one waiter: no allocation for that.
    first: Option<Wake>,
    rest: Vec<Wake>,
    unneeded: Vec<Wake>,
}

impl Wakes {
    pub(crate) fn push(&mut self, wake: impl Into<Option<Wake>>) {
        let Some(wake) = wake.into() else { return };
        if self.first.is_none() {
            self.first = Some(wake);
        } else {
            self.rest.push(wake);
        }
    }

    /// Keeps a waker that is no longer needed, to be dropped without waking.
    pub(crate) fn discard(&mut self, wake: Option<Wake>) {
        self.unneeded.extend(wake);
    }

    pub(crate) fn append(&mut self, other: Self) {
        let Self { first, rest, unneeded } = other;
        first.into_iter().chain(rest).for_each(|wake| self.push(wake));
        self.unneeded.extend(unneeded);
    }

    /// Wakes the waiters and drops the wakers that are not needed. A waker that panics does
    /// not stop the others.
    pub(crate) fn wake(self) {
        if let Some(wake) = self.first {
            wake.wake();
            self.rest.into_iter().for_each(Wake::wake);
        }
        for wake in self.unneeded {
            contain(|| drop(wake));
        }
    }
}

/// Identifies one waiter of a [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(u64);

/// Callers that wait for an event which concerns all of them. Each time it happens, all of
/// them wake and look again.
#[derive(Default)]
pub(crate) struct Watch {
    waiting: BTreeMap<WatchId, Wake>,
    last_id: u64,
}

impl Watch {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Registers a waiter, or replaces the wake-up of a waiter that is registered.
    pub(crate) fn watch(
        &mut self,
        id: Option<WatchId>,
        wake: Wake,
    ) -> (WatchId, DeferredDrop) {
        let id = id.unwrap_or_else(|| {
            self.last_id += 1;
            WatchId(self.last_id)
        });
        (id, DeferredDrop(self.waiting.insert(id, wake)))
    }

    /// Removes a waiter. One that has been woken is already gone.
    pub(crate) fn unwatch(&mut self, id: WatchId) -> DeferredDrop {
        DeferredDrop(self.waiting.remove(&id))
    }

    /// Takes all waiters out, to be woken.
    pub(crate) fn call_all(&mut self, wakes: &mut Wakes) {
        for wake in std::mem::take(&mut self.waiting).into_values() {
            wakes.push(wake);
        }
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, on purpose");
        }
    }

    fn counted(counter: &Arc<Counter>) -> Wake {
        Wake::Task(Waker::from(Arc::clone(counter)))
    }

    /// A waker that panicked took the wake-ups of all waiters behind it along.
    #[test]
    fn waker_that_panics_does_not_stop_the_others() {
        let counter = Arc::new(Counter::default());
        let mut wakes = Wakes::default();
        for _ in 0..2 {
            wakes.push(Wake::Task(Waker::from(Arc::new(Panics))));
            wakes.push(counted(&counter));
        }
        wakes.wake();
        assert_eq!(counter.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn discarded_waker_is_dropped_and_not_woken() {
        let counter = Arc::new(Counter::default());
        let (mut wakes, mut more) = (Wakes::default(), Wakes::default());
        more.push(counted(&counter));
        more.push(None);
        more.push(counted(&counter));
        more.discard(Some(counted(&counter)));
        wakes.append(more);
        wakes.discard(None);
        wakes.wake();
        assert_eq!(counter.0.load(Ordering::SeqCst), 2);
        assert_eq!(Arc::strong_count(&counter), 1);
    }

    #[test]
    fn thread_is_unparked() {
        let mut wakes = Wakes::default();
        wakes.push(Wake::Thread(crate::sync::thread::current()));
        wakes.wake();
        crate::sync::thread::park();
    }

    #[test]
    fn waiter_that_leaves_is_not_woken_and_its_waker_is_freed() {
        let counter = Arc::new(Counter::default());
        let mut watch = Watch::default();
        let (id, _) = watch.watch(None, counted(&counter));
        let (same, replaced) = watch.watch(Some(id), counted(&counter));
        assert_eq!(same, id);
        drop(replaced);
        let (other, _) = watch.watch(None, counted(&counter));
        assert_ne!(other, id);
        drop(watch.unwatch(id));
        assert_eq!(Arc::strong_count(&counter), 2, "the other waiter's");
        let mut wakes = Wakes::default();
        watch.call_all(&mut wakes);
        assert!(watch.is_empty());
        wakes.wake();
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    }
}
