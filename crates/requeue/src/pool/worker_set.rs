//! The workers of one pool: how many there are, and how many there should be.
//!
//! A worker is registered from before it starts until it has left. It looks here for orders
//! before each key. Nothing here runs a handler or touches a queue.
//!
//! # Invariants
//!
//! 1. `staying` is the number of registered workers that are not surplus.
//! 2. A worker that leaves without being surplus lowers `wanted`, so no worker is replaced.
//! 3. `changes` grows under the lock, together with the removal of all listeners, which are
//!    woken after that. So a listener that registers before it looks misses no change.
//! 4. A worker ends its lease before it is deregistered: while none is registered, no worker
//!    of this pool holds a key.
//! 5. After `shut_down`, no worker is registered.
//! 6. No waker is cloned, woken or dropped with the lock held.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};
use crate::wake::{Wake, Wakes, Watch, WatchId};

/// The workers of one pool.
#[derive(Default)]
pub(super) struct WorkerSet {
    state: Mutex<Membership>,
    /// Read by each worker before each key: invariant 3.
    changes: AtomicU64,
    cancelled: AtomicBool,
}

#[derive(Default)]
struct Membership {
    wanted: usize,
    staying: usize,
    registered: usize,
    shut_down: bool,
    last_id: u64,
    listeners: Watch,
}

impl WorkerSet {
    /// Returns how many workers there should be.
    pub(super) fn wanted(&self) -> usize {
        lock(&self.state).wanted
    }

    /// Sets how many workers there should be. Has no effect after
    /// [`shut_down`](Self::shut_down).
    pub(super) fn resize(&self, wanted: usize) {
        self.change(|state| state.wanted = if state.shut_down { 0 } else { wanted });
    }

    /// Registers a worker, if one is missing.
    pub(super) fn register(self: &Arc<Self>) -> Option<Registration> {
        let mut state = lock(&self.state);
        if state.staying >= state.wanted {
            return None;
        }
        state.staying += 1;
        state.registered += 1;
        state.last_id += 1;
        let (id, seen) = (state.last_id, self.changes.load(Ordering::Acquire));
        drop(state);
        Some(Registration { worker_set: Arc::clone(self), id, seen, surplus: false })
    }

    /// Gives up on the missing workers.
    pub(super) fn accept_current(&self) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.min(state.staying);
    }

    /// Tells all workers to leave after their run, for good.
    pub(super) fn shut_down(&self) {
        self.change(|state| {
            state.shut_down = true;
            state.wanted = 0;
        });
    }

    /// Cancels the runs that can be cancelled.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.change(|_| ());
    }

    /// Wakes all workers, to end their pauses.
    pub(super) fn wake_all(&self) {
        self.change(|_| ());
    }

    /// Returns whether all workers have left.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.state).registered == 0
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits until `reached` returns `true`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future deregisters its waker.
    pub(super) async fn until(self: &Arc<Self>, reached: impl Fn(&Self) -> bool) {
        let mut listener = Listener::new(self);
        poll_fn(|cx| {
            listener.listen(cx.waker());
            if reached(self) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn change(&self, change: impl FnOnce(&mut Membership)) {
        let mut wakes = Wakes::default();
        let mut state = lock(&self.state);
        change(&mut state);
        self.changes.fetch_add(1, Ordering::Release);
        state.listeners.call_all(&mut wakes);
        drop(state);
        wakes.wake();
    }
}

/// The registration of one worker. Dropping it deregisters the worker.
pub(super) struct Registration {
    worker_set: Arc<WorkerSet>,
    id: u64,
    /// The changes that this worker has looked at.
    seen: u64,
    /// Whether this worker is no longer counted, because it was one too many.
    surplus: bool,
}

impl Registration {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether this worker is to leave: it is one too many, or the pool shuts down.
    pub(super) fn is_leaving(&mut self) -> bool {
        let changes = self.worker_set.changes.load(Ordering::Acquire);
        if changes != self.seen && !self.surplus {
            self.seen = changes;
            let mut state = lock(&self.worker_set.state);
            if state.wanted < state.staying {
                state.staying -= 1;
                self.surplus = true;
            }
        }
        self.surplus
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = lock(&self.worker_set.state);
        state.registered -= 1;
        if !self.surplus {
            if state.wanted >= state.staying {
                state.wanted -= 1; // invariant 2
            }
            state.staying -= 1;
        }
        let empty = state.registered == 0;
        drop(state);
        if empty {
            self.worker_set.change(|_| ());
        }
    }
}

/// A task or thread that is woken by each change. Dropping it deregisters its waker.
pub(super) struct Listener {
    worker_set: Arc<WorkerSet>,
    registered: Option<(WatchId, Waker)>,
    /// The changes before the waker was registered.
    seen: u64,
}

impl Listener {
    pub(super) fn new(worker_set: &Arc<WorkerSet>) -> Self {
        Self { worker_set: Arc::clone(worker_set), registered: None, seen: 0 }
    }

    pub(super) fn worker_set(&self) -> &WorkerSet {
        &self.worker_set
    }

    /// Registers `waker` for the next change. Look for changes after this, not before.
    pub(super) fn listen(&mut self, waker: &Waker) {
        if !self.is_registered(waker) {
            let id = self.registered.as_ref().map(|(id, _)| *id);
            let (wake, copy) = (Wake::Task(waker.clone()), waker.clone());
            let mut state = lock(&self.worker_set.state);
            let (id, replaced) = state.listeners.watch(id, wake);
            self.seen = self.worker_set.changes.load(Ordering::Acquire);
            drop(state);
            drop(replaced);
            self.registered = Some((id, copy));
        }
    }

    /// As [`listen`](Self::listen). Returns whether a change came since the last call.
    pub(super) fn has_news(&mut self, waker: &Waker) -> bool {
        let seen = self.seen;
        self.listen(waker);
        self.seen != seen
    }

    fn is_registered(&self, waker: &Waker) -> bool {
        let known = self.registered.as_ref();
        known.is_some_and(|(_, known)| known.will_wake(waker))
            && self.seen == self.worker_set.changes.load(Ordering::Acquire)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((id, _)) = self.registered {
            let removed = lock(&self.worker_set.state).listeners.unwatch(id);
            drop(removed);
        }
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn with_workers(wanted: usize) -> (Arc<WorkerSet>, Vec<Registration>) {
        let worker_set = Arc::new(WorkerSet::default());
        worker_set.resize(wanted);
        let workers = register_all(&worker_set);
        (worker_set, workers)
    }

    fn register_all(worker_set: &Arc<WorkerSet>) -> Vec<Registration> {
        std::iter::from_fn(|| worker_set.register()).collect()
    }

    fn leaving(workers: &mut [Registration]) -> usize {
        workers.iter_mut().map(|worker| usize::from(worker.is_leaving())).sum()
    }

    #[test]
    fn missing_workers_are_registered_once() {
        let (worker_set, mut workers) = with_workers(3);
        assert_eq!((workers.len(), leaving(&mut workers)), (3, 0));
        worker_set.resize(3);
        assert!(worker_set.register().is_none());
        worker_set.resize(5);
        workers.extend(register_all(&worker_set));
        assert_eq!((workers.len(), worker_set.wanted()), (5, 5));
    }

    #[test]
    fn ids_are_never_reused() {
        let (worker_set, workers) = with_workers(2);
        assert_eq!(workers.iter().map(Registration::id).collect::<Vec<_>>(), [1, 2]);
        drop(workers);
        worker_set.resize(1);
        assert_eq!(worker_set.register().map(|worker| worker.id()), Some(3));
    }

    #[test]
    fn worker_that_leaves_unasked_is_not_replaced() {
        let (worker_set, mut workers) = with_workers(3);
        workers.pop();
        assert_eq!(worker_set.wanted(), 2);
        assert!(worker_set.register().is_none());
        worker_set.resize(4);
        workers.extend(register_all(&worker_set));
        assert_eq!((worker_set.wanted(), workers.len()), (4, 4));
    }

    /// Workers on a closed queue leave while others are still to be started.
    #[test]
    fn each_missing_worker_is_registered_even_if_others_leave_meanwhile() {
        let worker_set = Arc::new(WorkerSet::default());
        worker_set.resize(3);
        let registered = std::iter::from_fn(|| worker_set.register().map(drop)).count();
        assert_eq!((registered, worker_set.wanted()), (3, 0));
    }

    #[test]
    fn only_surplus_workers_leave() {
        let (worker_set, mut workers) = with_workers(4);
        worker_set.resize(1);
        assert_eq!((leaving(&mut workers), leaving(&mut workers)), (3, 3));
        workers.retain_mut(|worker| !worker.is_leaving());
        assert_eq!((worker_set.wanted(), workers.len()), (1, 1));
        worker_set.resize(2);
        assert_eq!(register_all(&worker_set).len(), 1, "surplus workers do not return");
    }

    /// A worker whose queue is closed leaves in place of a surplus one.
    #[test]
    fn worker_that_leaves_unasked_takes_the_place_of_a_surplus_one() {
        let (worker_set, mut workers) = with_workers(3);
        worker_set.resize(2);
        workers.pop();
        assert_eq!((leaving(&mut workers), worker_set.wanted()), (0, 2));
    }

    #[test]
    fn surplus_that_is_wanted_again_stays() {
        let (worker_set, mut workers) = with_workers(2);
        worker_set.resize(0);
        worker_set.resize(2);
        assert!(worker_set.register().is_none());
        assert_eq!(leaving(&mut workers), 0);
    }

    #[test]
    fn missing_workers_can_be_given_up() {
        let (worker_set, _workers) = with_workers(2);
        worker_set.resize(5);
        worker_set.accept_current();
        assert_eq!(worker_set.wanted(), 2);
        assert!(worker_set.register().is_none());
    }

    #[test]
    fn shutdown_is_final() {
        let (worker_set, mut workers) = with_workers(3);
        worker_set.shut_down();
        assert_eq!((leaving(&mut workers), worker_set.wanted()), (3, 0));
        assert!(!worker_set.is_empty());
        drop(workers);
        assert!(worker_set.is_empty());
        worker_set.resize(2);
        assert!(worker_set.register().is_none());
        assert_eq!(worker_set.wanted(), 0);
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn each_change_wakes_a_listener_once() {
        let (worker_set, workers) = with_workers(1);
        let count = Arc::new(Count::default());
        let (waker, mut listener) =
            (Waker::from(Arc::clone(&count)), Listener::new(&worker_set));
        let changes: [fn(&WorkerSet); 4] = [
            |worker_set| worker_set.resize(1),
            WorkerSet::wake_all,
            WorkerSet::shut_down,
            WorkerSet::cancel,
        ];
        listener.listen(&waker);
        for (woken, change) in (1..).zip(changes) {
            assert!(!listener.has_news(&waker));
            change(&worker_set);
            change(&worker_set);
            assert_eq!(count.0.load(Ordering::SeqCst), woken);
            assert!(listener.has_news(&waker));
        }
        drop(workers);
        assert_eq!(count.0.load(Ordering::SeqCst), 5, "the last worker has left");
    }

    #[test]
    fn replaced_and_dropped_listeners_release_their_wakers() {
        let (worker_set, count) = (Arc::default(), Arc::new(Count::default()));
        let (waker, mut listener) =
            (Waker::from(Arc::clone(&count)), Listener::new(&worker_set));
        listener.listen(&waker);
        listener.listen(&waker);
        assert_eq!(Arc::strong_count(&count), 4);
        listener.listen(Waker::noop());
        assert_eq!(Arc::strong_count(&count), 2);
        listener.listen(&waker);
        drop(listener);
        assert_eq!(Arc::strong_count(&count), 2);
    }
}
