//! Clocks that panic.

use std::sync::Arc;
use std::time::Instant;

use requeue::testing::FakeClock;
use requeue::{Added, Clock, Counts, Finish, Queue};

use super::{Fuse, Panics, assert_panics};
use crate::helpers::{Task, ms, secs, take_all};

/// A clock that panics while its fuse burns.
#[derive(Clone)]
struct Broken {
    inner: FakeClock,
    fuse: Arc<Fuse>,
}

impl Clock for Broken {
    fn now(&self) -> Instant {
        self.fuse.check();
        self.inner.now()
    }

    fn timer(&self, deadline: Instant) -> requeue::Timer {
        self.inner.timer(deadline)
    }

    fn park_until(&self, deadline: Instant) {
        self.inner.park_until(deadline);
    }
}

fn broken() -> (Queue<u32>, Broken, Panics) {
    let (clock, panics) =
        (Broken { inner: FakeClock::new(), fuse: Arc::default() }, Panics::default());
    let queue = Queue::builder().clock(clock.clone()).metrics(panics.clone()).build();
    (queue, clock, panics)
}

/// A clock that panicked at the end of a lease once left the key processing forever.
#[test]
fn lease_ends_even_if_the_clock_panics() {
    let (queue, clock, panics) = broken();
    queue.add_all(1..=5).unwrap();
    queue.add_after(9, secs(1)).unwrap();
    let mut leases = queue.try_get_many(5).unwrap().into_iter();
    queue.add_all(1..=5).unwrap();
    clock.inner.advance(ms(100));
    assert_eq!(queue.len(), 0, "reads the time");
    clock.fuse.light(true);
    leases.next().unwrap().done();
    leases.next().unwrap().finish(Finish::Retry);
    leases.next().unwrap().retry_after(secs(7));
    leases.next().unwrap().succeed();
    let next = leases.next().unwrap().next_blocking().unwrap();
    clock.fuse.light(false);
    assert_eq!(*next, 1);
    assert!(panics.count() > 0);
    next.done();
    assert_eq!(queue.counts(), Counts { ready: 4, delayed: 3, ..Counts::default() });
    assert_eq!(take_all(&queue), [2, 3, 4, 5]);
    clock.inner.advance(ms(900));
    assert_eq!(take_all(&queue), [2, 9], "its backoff started at the last known time");
    clock.inner.advance(secs(7));
    assert_eq!(take_all(&queue), [3]);
}

#[test]
fn delayed_add_panics_with_the_clock_and_changes_nothing() {
    let (queue, clock, _) = broken();
    clock.fuse.light(true);
    assert_panics(|| queue.add_after(1, secs(1)));
    assert_panics(|| queue.postpone(1, secs(1)));
    clock.fuse.light(false);
    assert_eq!((queue.counts(), queue.contains(&1)), (Counts::default(), false));
    assert_eq!(queue.add_after(1, secs(1)), Ok(Added::Delayed));
}

#[test]
fn waiting_getter_survives_a_clock_that_panics() {
    let (queue, clock, _) = broken();
    queue.add_after(1, secs(1)).unwrap();
    let mut getter = Task::parked(queue.get());
    let mut other = Task::parked(queue.get());
    clock.fuse.light(true);
    clock.inner.advance(secs(1));
    assert_panics(|| getter.poll().is_pending());
    assert_panics(|| other.poll().is_pending());
    drop(other);
    assert_panics(|| queue.len());
    clock.fuse.light(false);
    assert_eq!(*getter.output().unwrap(), 1);
}
