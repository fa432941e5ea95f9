//! The workers of one pool: how many there are, how many there should be, and their slots.
//!
//! A worker is registered from before it starts until it has left. Nothing here runs a
//! handler or touches a queue.
//!
//! # Invariants
//!
//! 1. `staying` is the number of registered workers that have not left as surplus, plus
//!    `opening`, the workers that a call of `resize` has yet to start.
//! 2. `wanted <= staying`: workers that are missing are counted as opening at once, and a
//!    worker that leaves for another reason than being surplus lowers `wanted`.
//! 3. `recall` is true if and only if `wanted < staying`. It is written under the lock,
//!    before the workers are woken, so a worker that reads it before it waits either sees it
//!    or is woken.
//! 4. A worker ends its lease before it deregisters: once none is registered, no worker of
//!    this pool holds a key.
//! 5. After `dismiss`, no worker is registered any more.
//! 6. The lock is not held while a slot is locked, nor while a waker is cloned, woken or
//!    dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::slot::Slot;
use crate::sync::{Mutex, lock};
use crate::wake::{Wake, Wakes, Watch, WatchId};

/// The workers of one pool.
pub(super) struct Registry<K> {
    members: Mutex<Members<K>>,
    /// Read by each worker before each key: invariant 3.
    recall: AtomicBool,
}

struct Members<K> {
    wanted: usize,
    staying: usize,
    opening: usize,
    dismissed: bool,
    last_id: u64,
    slots: BTreeMap<u64, Arc<Slot<K>>>,
    /// Callers that wait for workers to leave or to end an exchange.
    watch: Watch,
}

impl<K> Registry<K> {
    pub(super) fn new() -> Self {
        let members = Members {
            wanted: 0,
            staying: 0,
            opening: 0,
            dismissed: false,
            last_id: 0,
            slots: BTreeMap::new(),
            watch: Watch::default(),
        };
        Self { members: Mutex::new(members), recall: AtomicBool::new(false) }
    }

    /// Returns how many workers there should be.
    pub(super) fn wanted(&self) -> usize {
        lock(&self.members).wanted
    }

    /// Sets how many workers there should be. Returns registrations for the missing ones.
    ///
    /// Has no effect after [`dismiss`](Self::dismiss).
    pub(super) fn resize(self: &Arc<Self>, wanted: usize) -> Openings<K> {
        let mut members = lock(&self.members);
        let wanted = if members.dismissed { 0 } else { wanted };
        let missing = wanted.saturating_sub(members.staying);
        members.wanted = wanted;
        members.staying += missing;
        members.opening += missing;
        self.update_recall(&members);
        drop(members);
        self.for_each(Slot::call);
        Openings { registry: Arc::clone(self), remaining: missing }
    }

    /// Has all workers leave after their run, for good.
    pub(super) fn dismiss(&self) {
        let mut members = lock(&self.members);
        members.dismissed = true;
        members.wanted = 0;
        self.update_recall(&members);
        drop(members);
        self.for_each(Slot::dismiss);
    }

    /// Cancels the runs that can be cancelled.
    pub(super) fn cancel(&self) {
        self.for_each(Slot::cancel);
    }

    /// Has workers that pause after a panic of their source try again at once.
    pub(super) fn hurry(&self) {
        self.for_each(Slot::hurry);
    }

    /// Returns whether all workers have left.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.members).is_empty()
    }

    /// Returns whether a worker is exchanging keys.
    pub(super) fn is_exchanging(&self) -> bool {
        self.slots().iter().any(|slot| slot.is_exchanging())
    }

    /// Returns the keys that are running.
    pub(super) fn running(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.slots().iter().filter_map(|slot| slot.key()).collect()
    }

    /// Has `wake` woken when all workers have left and, after [`dismiss`](Self::dismiss),
    /// whenever an exchange ends.
    pub(super) fn watch(&self, id: Option<WatchId>, wake: Wake) -> WatchId {
        let (id, replaced) = lock(&self.members).watch.watch(id, wake);
        drop(replaced);
        id
    }

    pub(super) fn unwatch(&self, id: WatchId) {
        let removed = lock(&self.members).watch.unwatch(id);
        drop(removed);
    }

    /// Changes each slot, one at a time, and wakes the workers after that.
    fn for_each(&self, change: impl Fn(&Slot<K>, &mut Wakes)) {
        let mut wakes = Wakes::default();
        self.slots().iter().for_each(|slot| change(slot, &mut wakes));
        wakes.wake();
    }

    fn slots(&self) -> Vec<Arc<Slot<K>>> {
        lock(&self.members).slots.values().cloned().collect()
    }

    fn update_recall(&self, members: &Members<K>) {
        self.recall.store(members.wanted < members.staying, Ordering::Release);
    }

    /// Removes `left` workers from the count and restores the invariants.
    fn lower(&self, members: &mut Members<K>, left: usize) {
        members.staying -= left;
        members.wanted = members.wanted.min(members.staying);
        self.update_recall(members);
    }

    /// Wakes all callers that wait.
    fn notify(&self) {
        let mut wakes = Wakes::default();
        lock(&self.members).watch.call_all(&mut wakes);
        wakes.wake();
    }
}

impl<K> Members<K> {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.opening == 0
    }
}

/// The workers that one call of [`Registry::resize`] has to start. Dropping it gives up on
/// the remaining ones.
#[must_use = "the workers are to be started"]
pub(super) struct Openings<K> {
    registry: Arc<Registry<K>>,
    remaining: usize,
}

impl<K> Iterator for Openings<K> {
    type Item = Registration<K>;

    fn next(&mut self) -> Option<Registration<K>> {
        let mut members = lock(&self.registry.members);
        // Workers that became surplus meanwhile are not started.
        let surplus = self.remaining.min(members.staying - members.wanted);
        members.opening -= surplus;
        self.remaining -= surplus;
        self.registry.lower(&mut members, surplus);
        if self.remaining == 0 {
            return None;
        }
        members.opening -= 1;
        self.remaining -= 1;
        members.last_id += 1;
        let (id, slot) = (members.last_id, Arc::new(Slot::new()));
        members.slots.insert(id, Arc::clone(&slot));
        drop(members);
        let registry = Arc::clone(&self.registry);
        Some(Registration { registry, slot, id, surplus: false })
    }
}

impl<K> Drop for Openings<K> {
    fn drop(&mut self) {
        let mut members = lock(&self.registry.members);
        members.opening -= self.remaining;
        self.registry.lower(&mut members, self.remaining);
        drop(members);
        self.registry.notify();
    }
}

/// The registration of one worker. Dropping it deregisters the worker.
pub(super) struct Registration<K> {
    registry: Arc<Registry<K>>,
    slot: Arc<Slot<K>>,
    id: u64,
    /// Whether this worker is no longer counted, because it was one too many.
    surplus: bool,
}

impl<K> Registration<K> {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn slot(&self) -> &Slot<K> {
        &self.slot
    }

    /// Returns whether this worker is to leave.
    pub(super) fn is_leaving(&mut self) -> bool {
        self.is_surplus() || self.slot.is_dismissed()
    }

    /// Begins an exchange, unless this worker is to leave. Returns whether it began.
    pub(super) fn begin_exchange(&mut self) -> bool {
        !self.is_surplus() && self.slot.begin_exchange()
    }

    /// Ends an exchange, after which the worker runs `key`.
    pub(super) fn end_exchange(&self, key: Option<K>) {
        if self.slot.end_exchange(key) {
            self.registry.notify();
        }
    }

    /// Returns whether this worker is one too many. If so, it is not counted from then on.
    fn is_surplus(&mut self) -> bool {
        if !self.surplus && self.registry.recall.load(Ordering::Acquire) {
            let mut members = lock(&self.registry.members);
            if members.wanted < members.staying {
                self.registry.lower(&mut members, 1);
                self.surplus = true;
            }
        }
        self.surplus
    }
}

impl<K> Drop for Registration<K> {
    fn drop(&mut self) {
        let mut members = lock(&self.registry.members);
        let slot = members.slots.remove(&self.id);
        self.registry.lower(&mut members, usize::from(!self.surplus));
        let news = members.is_empty() || members.dismissed;
        drop(members);
        drop(slot);
        self.slot.clear();
        if news {
            self.registry.notify();
        }
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Waker;

    use super::*;

    fn staffed(wanted: usize) -> (Arc<Registry<u32>>, Vec<Registration<u32>>) {
        let registry = Arc::new(Registry::new());
        let workers = registry.resize(wanted).collect();
        (registry, workers)
    }

    fn surplus(workers: &mut [Registration<u32>]) -> usize {
        workers.iter_mut().map(|worker| usize::from(worker.is_leaving())).sum()
    }

    #[test]
    fn resize_registers_the_missing_workers_once() {
        let (registry, mut workers) = staffed(3);
        assert_eq!((workers.len(), surplus(&mut workers)), (3, 0));
        assert_eq!(registry.resize(3).count(), 0);
        assert_eq!(registry.resize(5).count(), 2, "which leave again at once");
        assert_eq!(registry.wanted(), 3);
    }

    #[test]
    fn ids_are_never_reused() {
        let (registry, workers) = staffed(2);
        assert_eq!(workers.iter().map(Registration::id).collect::<Vec<_>>(), [1, 2]);
        drop(workers);
        assert_eq!(registry.resize(1).next().map(|worker| worker.id()), Some(3));
    }

    #[test]
    fn worker_that_leaves_unasked_lowers_the_number() {
        let (registry, mut workers) = staffed(3);
        workers.pop();
        assert_eq!(registry.wanted(), 2);
        workers.extend(registry.resize(4));
        assert_eq!((registry.wanted(), workers.len()), (4, 4));
    }

    #[test]
    fn only_the_surplus_leaves() {
        let (registry, mut workers) = staffed(4);
        assert_eq!(registry.resize(1).count(), 0);
        assert_eq!(surplus(&mut workers), 3);
        workers.retain_mut(|worker| !worker.is_leaving());
        assert_eq!((registry.wanted(), workers.len()), (1, 1));
        assert_eq!(registry.resize(2).count(), 1, "surplus workers do not return");
    }

    #[test]
    fn surplus_worker_that_asks_again_takes_no_other_place() {
        let (registry, mut workers) = staffed(3);
        drop(registry.resize(1));
        assert!(workers[0].is_leaving() && workers[0].is_leaving());
        assert!(workers[1].is_leaving());
        assert!(!workers[2].is_leaving());
    }

    #[test]
    fn recall_that_is_revoked_has_no_effect() {
        let (registry, mut workers) = staffed(2);
        drop(registry.resize(0));
        assert_eq!(registry.resize(2).count(), 0);
        assert_eq!(surplus(&mut workers), 0);
    }

    #[test]
    fn surplus_worker_begins_no_exchange() {
        let (registry, mut workers) = staffed(1);
        assert!(workers[0].begin_exchange());
        workers[0].end_exchange(Some(7));
        assert_eq!(registry.running(), [7]);
        drop(registry.resize(0));
        assert!(!workers[0].begin_exchange());
        assert_eq!(registry.running(), [7], "until it has ended its lease");
    }

    #[test]
    fn openings_that_are_dropped_lower_the_number() {
        let registry = Arc::new(Registry::<u32>::new());
        let mut openings = registry.resize(5);
        let workers = [openings.next(), openings.next()];
        assert!(!registry.is_empty());
        drop(openings);
        assert_eq!(registry.wanted(), 2);
        drop(workers);
        assert!(registry.is_empty());
    }

    #[test]
    fn opening_workers_count_as_present() {
        let registry = Arc::new(Registry::<u32>::new());
        let openings = registry.resize(1);
        assert!(!registry.is_empty());
        assert_eq!(registry.resize(1).count(), 0);
        drop(openings);
        assert!(registry.is_empty());
    }

    /// Two calls at the same time: the later one wants fewer, and one of those is missing.
    #[test]
    fn openings_that_became_surplus_are_not_started() {
        let registry = Arc::new(Registry::<u32>::new());
        let first = registry.resize(5);
        drop(registry.resize(2));
        let workers: Vec<_> = first.collect();
        assert_eq!((workers.len(), registry.wanted()), (2, 2));
    }

    #[test]
    fn dismissal_is_final() {
        let (registry, mut workers) = staffed(3);
        let mut openings = registry.resize(5);
        workers.extend(openings.next());
        registry.dismiss();
        assert!(openings.next().is_none());
        assert_eq!((surplus(&mut workers), registry.wanted()), (4, 0));
        drop(workers);
        assert!(registry.is_empty());
        assert_eq!(registry.resize(2).count(), 0);
        assert_eq!(registry.wanted(), 0);
    }

    #[test]
    fn keys_of_all_workers_are_listed() {
        let (registry, mut workers) = staffed(3);
        for (worker, key) in workers.iter_mut().zip([Some(7), None, Some(9)]) {
            assert!(worker.begin_exchange() && registry.is_exchanging());
            worker.end_exchange(key);
        }
        assert!(!registry.is_exchanging());
        assert_eq!(registry.running(), [7, 9]);
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Registers a caller and returns how often it has been woken so far.
    fn watch(registry: &Registry<u32>, count: &Arc<Count>) -> usize {
        registry.watch(None, Wake::Task(Waker::from(Arc::clone(count))));
        count.0.load(Ordering::SeqCst)
    }

    #[test]
    fn callers_are_woken_when_the_last_worker_has_left() {
        let (count, (registry, mut workers)) = (Arc::default(), staffed(2));
        assert_eq!(watch(&registry, &count), 0);
        workers.pop();
        assert_eq!(count.0.load(Ordering::SeqCst), 0, "one is left");
        workers.pop();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn callers_are_woken_when_the_last_opening_is_given_up() {
        let (count, registry) = (Arc::default(), Arc::new(Registry::new()));
        let openings = registry.resize(2);
        assert_eq!(watch(&registry, &count), 0);
        drop(openings);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    /// The other worker runs for long: nothing else would wake the caller.
    #[test]
    fn callers_are_woken_by_each_exchange_that_ends_after_the_dismissal() {
        let (count, (registry, mut workers)) = (Arc::default(), staffed(3));
        for worker in &mut workers {
            assert!(worker.begin_exchange());
        }
        assert_eq!(watch(&registry, &count), 0);
        workers[2].end_exchange(Some(7));
        assert_eq!(count.0.load(Ordering::SeqCst), 0, "no caller waits for that");
        registry.dismiss();
        workers[1].end_exchange(None);
        assert_eq!(watch(&registry, &count), 1);
        drop(workers.remove(0));
        assert_eq!(watch(&registry, &count), 2);
        assert!(!registry.is_exchanging());
    }
}
