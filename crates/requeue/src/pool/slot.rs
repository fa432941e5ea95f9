//! One worker as other threads see it: its key, its orders, and how to wake it.
//!
//! | phase | the worker | its lease |
//! |---|---|---|
//! | `Idle` | has not started, or waits for a key | none |
//! | `Exchanging` | ends its lease and takes the next key | unknown |
//! | `Running` | runs the handler, or is about to end the lease | of the key in the slot |
//!
//! A worker polls its source only while its slot is `Exchanging`. It does not hold the mutex
//! meanwhile: the poll runs user code and wakes other tasks, which may call the pool. A
//! caller that needs the key of such a worker waits until the exchange has ended.
//!
//! # Invariants
//!
//! 1. The slot of a worker that holds a lease is `Running` or `Exchanging`.
//! 2. A dismissed worker begins no exchange. So if all workers are dismissed and none is
//!    exchanging, the `Running` slots name every leased key, and no other key is leased.
//! 3. While the mutex is locked, no waker is cloned, woken or dropped, and the only user
//!    code is the key's `Clone`, contained. A key's `Clone` must not call the pool.

use std::mem::{replace, take};
use std::task::Waker;

use crate::contain::contain;
use crate::sync::{Mutex, lock};
use crate::wake::{DeferredDrop, Wake, Wakes};

/// The shared state of one worker.
pub(super) struct Slot<K>(Mutex<State<K>>);

struct State<K> {
    phase: Phase<K>,
    orders: Orders,
    /// Whether the next pause of the worker is to be skipped.
    hurried: bool,
    /// Wakes the worker while it waits.
    waker: Option<Waker>,
}

enum Phase<K> {
    Idle,
    Exchanging,
    /// Holds a copy of the key. `None` if the copy was moved out by [`Slot::key`].
    Running(Option<K>),
}

/// What the worker is to do after its run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Orders {
    Continue,
    /// Leave after the run.
    Leave,
    /// Leave at once, if the run can be cancelled.
    Cancel,
}

impl<K> Slot<K> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            phase: Phase::Idle,
            orders: Orders::Continue,
            hurried: false,
            waker: None,
        }))
    }

    /// Begins an exchange, unless the worker is dismissed. Returns whether it began.
    pub(super) fn begin_exchange(&self) -> bool {
        let mut state = lock(&self.0);
        if state.orders >= Orders::Leave {
            return false; // invariant 2
        }
        let before = replace(&mut state.phase, Phase::Exchanging);
        drop(state);
        contain(|| drop(before));
        true
    }

    /// Ends the exchange. Returns whether a caller may be waiting for that.
    pub(super) fn end_exchange(&self, key: Option<K>) -> bool {
        let phase = key.map_or(Phase::Idle, |key| Phase::Running(Some(key)));
        let mut state = lock(&self.0);
        state.phase = phase; // it was `Exchanging`: no key is dropped
        state.orders >= Orders::Leave
    }

    pub(super) fn is_exchanging(&self) -> bool {
        matches!(lock(&self.0).phase, Phase::Exchanging)
    }

    /// Returns the key that the worker is running.
    ///
    /// If its `Clone` panics, the registered copy itself is returned, once: the first caller
    /// gets the key in any case.
    pub(super) fn key(&self) -> Option<K>
    where
        K: Clone,
    {
        let mut state = lock(&self.0);
        let Phase::Running(key) = &mut state.phase else { return None };
        contain(|| key.clone()).unwrap_or_else(|| key.take())
    }

    /// Forgets the key of a worker that has left.
    pub(super) fn clear(&self) {
        let before = replace(&mut lock(&self.0).phase, Phase::Idle);
        contain(|| drop(before));
    }

    /// Has the worker leave after its run.
    pub(super) fn dismiss(&self, wakes: &mut Wakes) {
        self.order(Orders::Leave, wakes);
    }

    /// Has the worker leave at once if its run can be cancelled.
    pub(super) fn cancel(&self, wakes: &mut Wakes) {
        self.order(Orders::Cancel, wakes);
    }

    fn order(&self, orders: Orders, wakes: &mut Wakes) {
        let mut state = lock(&self.0);
        state.orders = state.orders.max(orders);
        state.call(wakes);
    }

    /// Ends the pause of a worker whose source panicked, or skips the next one.
    pub(super) fn hurry(&self, wakes: &mut Wakes) {
        let mut state = lock(&self.0);
        state.hurried = true;
        state.call(wakes);
    }

    /// Wakes the worker, so that it looks at what has changed.
    pub(super) fn call(&self, wakes: &mut Wakes) {
        lock(&self.0).call(wakes);
    }

    pub(super) fn is_dismissed(&self) -> bool {
        lock(&self.0).orders >= Orders::Leave
    }

    #[cfg(feature = "tokio")]
    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.0).orders == Orders::Cancel
    }

    /// Returns whether the worker is to skip its pause, this time.
    pub(super) fn take_hurry(&self) -> bool {
        take(&mut lock(&self.0).hurried)
    }

    /// Registers `waker` for the next change. Look for changes after this, not before.
    pub(super) fn listen(&self, waker: &Waker) {
        if lock(&self.0).waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        let waker = waker.clone(); // invariant 3
        let before = lock(&self.0).waker.replace(waker);
        drop(DeferredDrop::new(before.map(Wake::Task)));
    }
}

impl<K> State<K> {
    fn call(&mut self, wakes: &mut Wakes) {
        if let Some(waker) = self.waker.take() {
            wakes.push(Wake::Task(waker));
        }
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use super::*;

    fn running(key: u32) -> Slot<u32> {
        let slot = Slot::new();
        assert!(slot.begin_exchange());
        assert!(!slot.end_exchange(Some(key)), "no caller waits");
        slot
    }

    #[test]
    fn key_is_known_while_it_runs() {
        let slot = running(7);
        assert_eq!((slot.key(), slot.key()), (Some(7), Some(7)));
        assert!(!slot.is_exchanging() && slot.begin_exchange() && slot.is_exchanging());
        assert_eq!(slot.key(), None);
        assert!(!slot.end_exchange(None));
        assert_eq!(slot.key(), None);
        assert!(!slot.is_exchanging());
    }

    #[test]
    fn dismissed_worker_keeps_its_key_and_takes_no_other() {
        let slot = running(7);
        slot.dismiss(&mut Wakes::default());
        assert!(slot.is_dismissed() && !slot.begin_exchange());
        assert_eq!(slot.key(), Some(7));
        slot.clear();
        assert_eq!(slot.key(), None);
    }

    #[test]
    fn exchange_that_ends_after_the_dismissal_is_reported() {
        let slot = Slot::new();
        assert!(slot.begin_exchange());
        slot.dismiss(&mut Wakes::default());
        assert!(slot.is_exchanging());
        assert!(slot.end_exchange(Some(1)));
        assert_eq!(slot.key(), Some(1));
    }

    /// A key that cannot be cloned.
    struct Unclonable;

    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("a clone that panics, on purpose");
        }
    }

    #[test]
    fn key_whose_clone_panics_is_returned_to_the_first_caller() {
        let slot = Slot::new();
        assert!(slot.begin_exchange());
        slot.end_exchange(Some(Unclonable));
        assert!(slot.key().is_some());
        assert!(slot.key().is_none());
        assert!(slot.begin_exchange(), "the mutex is usable");
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn cancelled_worker_stays_cancelled() {
        let (slot, mut wakes) = (running(1), Wakes::default());
        slot.dismiss(&mut wakes);
        assert!(!slot.is_cancelled());
        slot.cancel(&mut wakes);
        slot.dismiss(&mut wakes);
        assert!(slot.is_cancelled() && slot.is_dismissed());
    }

    #[test]
    fn hurry_is_taken_once() {
        let slot = Slot::<u32>::new();
        assert!(!slot.take_hurry());
        slot.hurry(&mut Wakes::default());
        assert!(slot.take_hurry() && !slot.take_hurry());
    }

    #[test]
    fn each_order_wakes_a_worker_that_listens() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};

        #[derive(Default)]
        struct Count(AtomicU32);

        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }

        let (count, slot) = (Arc::new(Count::default()), Slot::<u32>::new());
        let listener = Waker::from(Arc::clone(&count));
        let orders = [Slot::dismiss, Slot::cancel, Slot::hurry, Slot::call];
        for (before, order) in (0..).zip(orders) {
            slot.listen(&listener);
            slot.listen(&listener);
            let mut wakes = Wakes::default();
            order(&slot, &mut wakes);
            order(&slot, &mut wakes);
            wakes.wake();
            assert_eq!(count.0.load(Ordering::SeqCst), before + 1);
        }
        slot.listen(&listener);
        slot.listen(Waker::noop());
        drop(listener);
        assert_eq!(Arc::strong_count(&count), 1, "the replaced waker is dropped");
    }
}
