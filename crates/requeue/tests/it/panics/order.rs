//! Orders that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::order::{Fair, Order, Priority, Ticket};
use requeue::{AddOptions, Added, Counts, Finish, Lease, Queue};

use super::{Fuse, Panics, assert_panics};
use crate::helpers::{Task, finished, secs, take_all, timed_with};

/// A fair order whose function panics for one key while the fuse is lit.
fn grouped(fuse: &Arc<Fuse>) -> Fair<u32, u32> {
    let fuse = Arc::clone(fuse);
    Fair::by(move |key: &u32| {
        if *key == 2 {
            fuse.check();
        }
        *key
    })
}

#[test]
fn order_that_panics_in_an_add_leaves_the_queue_as_it_was() {
    let fuse = Arc::new(Fuse::default());
    let queue = Queue::builder().order(grouped(&fuse)).build();
    queue.add(1).unwrap();
    fuse.light(true);
    assert_panics(|| queue.add(2));
    assert_panics(|| queue.add_all([2, 3]));
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    fuse.light(false);
    assert_eq!(queue.add_all([1, 2, 3]).unwrap().ready, 2);
    assert_eq!(take_all(&queue), [1, 2, 3]);
}

/// A queue whose order panics for key 2 while the fuse is lit.
fn fair() -> (Queue<u32>, requeue::testing::FakeClock, Arc<Fuse>, Panics) {
    let (fuse, panics) = (Arc::new(Fuse::default()), Panics::default());
    let builder = Queue::builder().order(grouped(&fuse)).metrics(panics.clone());
    let (queue, clock) = timed_with(builder);
    (queue, clock, fuse, panics)
}

/// An order that panicked for a delayed key once aborted the process if a worker waited.
/// Without one, every later call panicked and the key could not be removed.
#[test]
fn key_whose_order_panics_when_its_delay_ends_is_stranded() {
    let (queue, clock, fuse, panics) = fair();
    let mut worker = Task::parked(queue.get());
    for key in 1..=3 {
        queue.add_after(key, secs(1)).unwrap();
    }
    assert!(worker.poll().is_pending(), "it leads");
    fuse.light(true);
    clock.advance(secs(1));
    let lease = worker.output().unwrap();
    assert_eq!((*lease, queue.len(), queue.stranded()), (1, 1, 1));
    assert_eq!(panics.count(), 1);
    assert_panics(|| queue.add(2));
    assert_eq!(queue.stranded(), 1, "it is stranded again");
    fuse.light(false);
    assert_eq!(queue.add(2), Ok(Added::Ready));
    assert_eq!(take_all(&queue), [3, 2]);
}

#[test]
fn key_that_was_stranded_when_its_delay_ended_can_be_removed_and_returned() {
    let (queue, clock, fuse, _) = fair();
    for close in [false, true] {
        queue.add_after(2, secs(1)).unwrap();
        fuse.light(true);
        clock.advance(secs(1));
        assert_eq!((queue.len(), queue.stranded()), (0, 1));
        if close {
            assert_eq!(queue.close_now(), [2]);
        } else {
            assert!(queue.remove(&2));
        }
        assert_eq!(queue.stranded(), 0);
        fuse.light(false);
    }
}

/// A dirty key whose order panicked when it was done once stayed dirty without a lease, so
/// that no add could make it ready. Later the panic reached the worker instead.
#[test]
fn key_whose_order_panics_when_its_lease_ends_is_stranded() {
    let ends: [fn(Lease<u32>); 4] = [
        |lease| lease.done(),
        |lease| lease.succeed(),
        |lease| lease.give_up(),
        |lease| drop(lease.next()),
    ];
    for end in ends {
        let (queue, _clock, fuse, panics) = fair();
        queue.add(2).unwrap();
        let lease = queue.try_get().unwrap();
        queue.add(2).unwrap();
        fuse.light(true);
        end(lease);
        fuse.light(false);
        assert_eq!((queue.counts(), queue.stranded()), (Counts::default(), 1));
        assert_eq!(panics.count(), 1);
        assert_eq!(queue.add(2), Ok(Added::Ready));
        assert_eq!(take_all(&queue), [2]);
        assert_eq!(queue.counts(), Counts::default());
    }
}

/// The rest of the batch once stayed processing without a lease, and the add of the dirty
/// key was lost.
#[test]
fn batch_ends_completely_even_if_the_order_panics_for_one_key() {
    for finish in [Finish::Done, Finish::Succeed, Finish::Retry] {
        let (queue, clock, fuse, _) = fair();
        queue.add_all(1..=4).unwrap();
        let batch = queue.try_get_many(4).unwrap();
        queue.add_all([2, 3]).unwrap();
        fuse.light(true);
        batch.finish(finish);
        fuse.light(false);
        assert_eq!((queue.counts().processing, queue.counts().dirty), (0, 0));
        assert_eq!((queue.len(), queue.stranded()), (1, 1), "3 is ready, 2 stranded");
        queue.add(2).unwrap();
        assert_eq!(take_all(&queue), [3, 2]);
        clock.advance(secs(1));
        let retried = if finish == Finish::Retry { 4 } else { 0 };
        assert_eq!(take_all(&queue).len(), retried);
    }
}

/// Keys that were added before the panic once woke no getter.
#[test]
fn getters_are_woken_for_the_keys_before_the_one_that_panicked() {
    let (queue, _clock, fuse, _) = fair();
    let mut getter = Task::parked(queue.get());
    fuse.light(true);
    assert_panics(|| queue.add_all([1, 2]));
    assert_eq!(getter.wakes(), 1);
    assert_eq!(finished(getter.output().unwrap()), 1);
}

/// A priority order that panics in the call whose fuse is lit.
#[derive(Default)]
struct Fused {
    inner: Priority,
    fuses: Arc<OrderFuses>,
}

#[derive(Default)]
struct OrderFuses {
    push: Fuse,
    touch: Fuse,
    pop: Fuse,
    remove: Fuse,
    pops: AtomicUsize,
}

impl Order<u32> for Fused {
    fn push(&mut self, ticket: Ticket, key: &u32, priority: i32) {
        self.fuses.push.check();
        self.inner.push(ticket, key, priority);
    }

    fn touch(&mut self, ticket: Ticket, key: &u32, priority: i32) {
        self.fuses.touch.check();
        self.inner.touch(ticket, key, priority);
    }

    fn pop(&mut self) -> Option<Ticket> {
        self.fuses.pops.fetch_add(1, Ordering::SeqCst);
        self.fuses.pop.check();
        Order::<u32>::pop(&mut self.inner)
    }

    fn remove(&mut self, ticket: Ticket, key: &u32) {
        self.fuses.remove.check();
        self.inner.remove(ticket, key);
    }

    fn shrink(&mut self) {
        self.fuses.remove.check();
    }
}

fn fused(absorb: bool) -> (Queue<u32>, requeue::testing::FakeClock, Arc<OrderFuses>) {
    let order = Fused { inner: Priority::strict(), fuses: Arc::default() };
    let fuses = Arc::clone(&order.fuses);
    let (queue, clock) = timed_with(Queue::builder().order(order).absorb_delays(absorb));
    (queue, clock, fuses)
}

fn priority(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

/// After a panic in `remove` the delay of the key was once gone.
#[test]
fn order_that_panics_in_remove_leaves_the_queue_as_it_was() {
    let (queue, clock, fuses) = fused(false);
    queue.add_with(1, priority(3)).unwrap();
    queue.add_after(1, secs(1)).unwrap();
    fuses.remove.light(true);
    assert_panics(|| queue.remove(&1));
    assert_panics(|| queue.postpone(1, secs(9)));
    fuses.remove.light(false);
    assert_eq!(queue.counts(), Counts { ready: 1, delayed: 1, ..Counts::default() });
    assert_eq!(queue.try_get().unwrap().priority(), 3);
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), [1]);
}

/// After a panic in `touch` the priority was once changed, and the delay absorbed.
#[test]
fn order_that_panics_in_touch_leaves_the_queue_as_it_was() {
    for absorb in [false, true] {
        let (queue, _clock, fuses) = fused(absorb);
        queue.add_with(1, priority(3)).unwrap();
        queue.add(2).unwrap();
        fuses.touch.light(true);
        assert_panics(|| queue.add_with(1, priority(5)));
        assert_panics(|| queue.add_all([1]));
        if absorb {
            assert_panics(|| queue.add_with(1, priority(5).after(secs(1))));
            assert_panics(|| queue.add_rate_limited(1));
            assert_eq!(queue.num_requeues(&1), 0, "and no failure is counted");
        }
        fuses.touch.light(false);
        let lease = queue.try_get().unwrap();
        assert_eq!((*lease, lease.priority()), (1, 3));
        assert_eq!(queue.counts().delayed, 0);
    }
}

#[test]
fn order_that_panics_in_push_leaves_failures_and_delays_as_they_were() {
    let (queue, clock, fuses) = fused(true);
    queue.add_rate_limited(1).unwrap();
    clock.advance(secs(1));
    queue.try_get().unwrap().done();
    queue.add_after(2, secs(1)).unwrap();
    fuses.push.light(true);
    assert_panics(|| queue.add(1));
    assert_panics(|| queue.add(2));
    fuses.push.light(false);
    assert_eq!(queue.num_requeues(&1), 1);
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(secs(1));
    assert_eq!(queue.add(1), Ok(Added::Ready));
    assert_eq!(take_all(&queue), [2, 1]);
}

/// A failed key without a delay is added to the order at once, which may panic.
#[test]
fn order_that_panics_for_a_failed_key_leaves_the_queue_as_it_was() {
    let fuses = Arc::new(OrderFuses::default());
    let order = Fused { inner: Priority::strict(), fuses: Arc::clone(&fuses) };
    let at_once = requeue::retry::Exponential::new(secs(0), secs(0));
    let queue = Queue::builder().order(order).retry(at_once).build();
    fuses.push.light(true);
    assert_panics(|| queue.add_rate_limited(1));
    fuses.push.light(false);
    assert!(!queue.contains(&1));
    assert_eq!(queue.num_requeues(&1), 0);
    assert_eq!(queue.add_rate_limited(1), Ok(Added::Ready));
    assert_eq!(queue.num_requeues(&1), 1);
}

/// The panic reaches one getter. The key is still ready, so another getter is woken for it.
#[test]
fn order_that_panics_in_pop_leaves_the_key_to_another_getter() {
    let (queue, _clock, fuses) = fused(false);
    let mut first = Task::parked(queue.get());
    let mut second = Task::parked(queue.get());
    queue.add(1).unwrap();
    fuses.pop.light(true);
    assert_panics(|| first.poll().is_pending());
    assert_panics(|| queue.try_get().is_ok());
    fuses.pop.light(false);
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    assert_eq!(*second.output().unwrap(), 1);
    assert!(first.poll().is_pending());
}

#[test]
fn closing_returns_keys_even_if_the_order_panics_in_pop() {
    let (queue, _clock, fuses) = fused(false);
    queue.add_all([1, 2]).unwrap();
    queue.add_with(3, priority(9)).unwrap();
    fuses.pop.light(true);
    fuses.remove.light(true);
    let mut keys = queue.close_now();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3]);
    assert_eq!(queue.counts(), Counts::default());
}

/// Shrinking after a spike calls the order too.
#[test]
fn order_that_panics_in_shrink_costs_no_lease() {
    let (queue, _clock, fuses) = fused(false);
    queue.add_all(0..5000).unwrap();
    let mut leases: Vec<_> = queue.try_get_many(5000).unwrap().into_iter().collect();
    fuses.remove.light(true);
    leases.drain(..).for_each(Lease::done);
    assert_eq!(queue.counts(), Counts::default());
}

/// A group whose `Drop` panicked in `pop` once left its key ready but not in the order.
#[test]
fn group_whose_drop_panics_costs_no_key() {
    #[derive(PartialEq, Eq, Hash)]
    struct Group(u32);
    impl Drop for Group {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a group that panics, on purpose");
        }
    }
    let queue = Queue::builder().order(Fair::by(|key: &u32| Group(*key))).build();
    queue.add_all([1, 2]).unwrap();
    assert_eq!(take_all(&queue), [1, 2]);
    queue.add(3).unwrap();
    assert!(queue.remove(&3));
    assert_eq!(queue.counts(), Counts::default());
}
