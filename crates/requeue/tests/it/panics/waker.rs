//! Wakers that panic.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use requeue::Queue;

use crate::helpers::Task;

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, on purpose");
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Panics));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// The wake-ups of all getters woken together with it were once lost.
#[test]
fn waker_that_panics_does_not_keep_other_getters_asleep() {
    let queue = Queue::new();
    let mut hostile = [queue.get(), queue.get()];
    for get in &mut hostile {
        assert!(poll(get).is_pending());
    }
    let mut others = [Task::parked(queue.get()), Task::parked(queue.get())];
    queue.add_all([1, 2, 3, 4]).unwrap();
    assert_eq!(others.each_ref().map(Task::wakes), [1, 1]);
    for other in &mut others {
        other.output().unwrap().done();
    }
    drop(hostile);
    queue.add_all([1, 2]).unwrap();
    queue.drain_blocking_timeout(std::time::Duration::ZERO).unwrap_err();
}

#[test]
fn waker_that_panics_does_not_prevent_closing() {
    let queue = Queue::<u32>::new();
    queue.add(1).unwrap();
    let lease = queue.try_get().unwrap();
    let (mut get, mut idle) = (queue.get(), queue.wait_idle());
    assert!(poll(&mut get).is_pending() && poll(&mut idle).is_pending());
    let (mut other, mut drain) = (Task::parked(queue.get()), Task::parked(queue.drain()));
    assert!(other.output().is_none(), "the drain has closed the queue");
    lease.done();
    assert_eq!(drain.wakes(), 1);
    assert!(drain.output().is_empty());
}
