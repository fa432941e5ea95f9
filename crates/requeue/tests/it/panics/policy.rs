//! Retry policies that panic.

use std::sync::Arc;
use std::time::Duration;

use requeue::retry::{ByCount, RetryPolicy};
use requeue::testing::FakeClock;
use requeue::{Added, Counts, Finish, Queue};

use super::{Fuse, Panics, assert_panics};
use crate::helpers::{Task, ms, secs, take_all, timed_with};

/// A policy that panics while the fuse burns.
struct PanicsWhileLit(Arc<Fuse>);

impl RetryPolicy<u32> for PanicsWhileLit {
    fn when(&self, _: &u32) -> Duration {
        self.0.check();
        secs(1)
    }

    fn forget(&self, _: &u32) {
        self.0.check();
    }

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

/// A queue with keys 0 to 7 ready whose policy panics.
fn with_panicking_policy() -> (Queue<u32>, FakeClock, Panics) {
    let (fuse, panics) = (Arc::new(Fuse::default()), Panics::default());
    let builder = Queue::builder().retry(PanicsWhileLit(Arc::clone(&fuse)));
    let (queue, clock) = timed_with(builder.metrics(panics.clone()));
    queue.add_all(0..8).expect("the queue is open");
    fuse.light(true);
    (queue, clock, panics)
}

/// A policy that panicked left its key processing forever. After a first fix the worker died,
/// and the key was not retried.
#[test]
fn panicking_policy_loses_no_key() {
    let (queue, clock, panics) = with_panicking_policy();
    assert_eq!(queue.try_get().unwrap().retry(), ms(5));
    queue.try_get().unwrap().succeed();
    queue.try_get().unwrap().retry_after(ms(1));
    let lease = queue.try_get().unwrap().next_blocking_with(Finish::Retry).unwrap();
    let lease = Task::new(lease.next_with(Finish::Retry)).output().unwrap();
    lease.done();
    queue.try_get_many(2).unwrap().finish(Finish::Retry);
    assert_eq!(queue.add_rate_limited(100), Ok(Added::Delayed));
    assert_eq!(queue.counts(), Counts { delayed: 7, ..Counts::default() });
    assert_eq!(panics.count(), 8);
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [2, 0, 3, 4, 6, 7, 100]);
}

#[test]
fn policy_that_keeps_panicking_backs_off() {
    let (queue, clock, _) = with_panicking_policy();
    queue.try_get_many(7).unwrap().done();
    for delay in [5, 10, 20] {
        let lease = queue.try_get().unwrap();
        assert_eq!(lease.retry(), ms(delay));
        clock.advance(ms(delay));
    }
    queue.try_get().unwrap().succeed();
    queue.add(7).unwrap();
    assert_eq!(queue.try_get().unwrap().retry(), ms(5), "the success was recorded");
}

/// A policy that panicked for a lease dropped by a panic aborted the process. After a first fix
/// the key was lost.
#[test]
fn policy_that_panics_during_a_panic_loses_no_key() {
    let (queue, clock, panics) = with_panicking_policy();
    queue.try_get_many(5).unwrap().done();
    assert_panics(|| {
        let _lease = queue.try_get();
        panic!("the work failed");
    });
    assert_panics(|| {
        let _batch = queue.try_get_many(2);
        panic!("the work failed");
    });
    assert_eq!(queue.counts(), Counts { delayed: 3, ..Counts::default() });
    assert_eq!(panics.count(), 5, "two workers, and the policy for three keys");
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [5, 6, 7]);
}

/// A policy by count whose delay overflows at the second failure.
struct Overflows;

impl RetryPolicy<u32> for Overflows {
    fn when(&self, _: &u32) -> Duration {
        self.delay(0)
    }

    fn forget(&self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        Some(self)
    }
}

impl ByCount for Overflows {
    fn delay(&self, retries: u32) -> Duration {
        Duration::MAX / 2 * (2 * retries + 1)
    }
}

/// A policy by count is called with the lock held. When it panicked there, its key stayed
/// processing without a worker.
#[test]
fn panicking_policy_by_count_loses_no_key() {
    let panics = Panics::default();
    let builder = Queue::builder().retry(Overflows).metrics(panics.clone());
    let (queue, clock) = timed_with(builder);
    queue.add_rate_limited(1).unwrap();
    queue.postpone(1, Duration::ZERO).unwrap();
    assert_eq!(queue.try_get().unwrap().retry(), ms(10), "the second failure");
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(ms(10));
    queue.try_get().unwrap().done();
    assert_eq!(queue.add_rate_limited(1), Ok(Added::Delayed));
    assert_eq!((queue.num_requeues(&1), panics.count()), (3, 2));
    clock.advance(ms(20));
    assert_eq!(take_all(&queue), [1]);
}
