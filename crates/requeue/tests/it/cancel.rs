//! Cancelling a wait loses no key and no wake-up.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use requeue::{Counts, Finish, GetTimeoutError, Queue};

use crate::helpers::{Task, Wakes, finished, secs, timed, wait_for_parked};

#[test]
fn getter_dropped_before_it_is_polled_takes_nothing() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    drop(queue.get());
    drop(queue.get_many(1));
    assert_eq!(queue.len(), 1);
}

#[test]
fn getter_dropped_after_it_was_woken_wakes_another() {
    let queue = Queue::new();
    let first = Task::parked(queue.get());
    let mut second = Task::parked(queue.get());
    queue.add("a").unwrap();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert_eq!(finished(second.output().unwrap()), "a");
}

#[test]
fn getter_dropped_after_it_was_woken_wakes_a_thread() {
    let queue = Queue::new();
    let task = Task::parked(queue.get());
    thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get_blocking().map(finished));
        wait_for_parked(&queue, 2);
        queue.add("a").unwrap();
        assert_eq!(task.wakes(), 1, "it has waited longest");
        drop(task);
        assert_eq!(getter.join().unwrap(), Some("a"));
    });
}

#[test]
fn getter_of_many_that_is_dropped_wakes_another() {
    let queue = Queue::new();
    let first = Task::parked(queue.get_many(8));
    let mut second = Task::parked(queue.get_many(8));
    queue.add("a").unwrap();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert_eq!(second.output().unwrap().len(), 1);
}

#[test]
fn getter_that_was_not_woken_wakes_no_other_when_it_is_dropped() {
    let queue = Queue::<u32>::new();
    let first = Task::parked(queue.get());
    let second = Task::parked(queue.get());
    drop(first);
    assert_eq!(second.wakes(), 0);
    assert_eq!(queue.parked(), 1);
}

#[test]
fn one_key_wakes_one_getter() {
    let queue = Queue::new();
    let getters: Vec<_> = (0..4).map(|_| Task::parked(queue.get())).collect();
    queue.add("a").unwrap();
    queue.add("a").unwrap();
    let wakes: Vec<_> = getters.iter().map(Task::wakes).collect();
    assert_eq!(wakes, [1, 0, 0, 0]);
    queue.add_all(["b", "c"]).unwrap();
    let wakes: Vec<_> = getters.iter().map(Task::wakes).collect();
    assert_eq!(wakes, [1, 1, 1, 0]);
}

#[test]
fn getter_woken_in_vain_keeps_its_place() {
    let queue = Queue::new();
    let mut first = Task::parked(queue.get());
    let second = Task::parked(queue.get());
    queue.add("a").unwrap();
    let thief = queue.try_get().unwrap();
    assert!(first.poll().is_pending());
    queue.add("b").unwrap();
    assert_eq!((first.wakes(), second.wakes()), (2, 0));
    thief.done();
}

#[test]
fn finishing_a_dirty_key_wakes_a_getter() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    let mut getter = Task::parked(queue.get());
    lease.done();
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "a");
}

#[test]
fn next_that_is_dropped_while_it_waits_has_ended_its_lease() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let next = Task::parked(queue.try_get().unwrap().next_with(Finish::Retry));
    drop(next);
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    assert_eq!(queue.parked(), 0);
}

#[test]
fn dropped_leader_passes_the_timer_on_to_a_task() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    let leader = Task::parked(queue.get());
    let mut other = Task::parked(queue.get());
    assert_eq!(clock.timers(), 1);
    drop(leader);
    assert_eq!((clock.timers(), other.wakes()), (0, 1));
    assert!(other.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(other.wakes(), 2);
    assert_eq!(*other.output().unwrap(), "a");
}

#[test]
fn dropped_leader_passes_the_timer_on_to_a_thread() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    let leader = Task::parked(queue.get());
    thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get_blocking().map(finished));
        wait_for_parked(&queue, 2);
        assert_eq!(clock.timers(), 1);
        drop(leader);
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(1));
        assert_eq!(getter.join().unwrap(), Some("a"));
    });
}

#[test]
fn leader_that_times_out_passes_the_timer_on() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(10)).unwrap();
    thread::scope(|scope| {
        let leader =
            scope.spawn(|| queue.get_blocking_timeout(secs(1)).map(|lease| *lease));
        wait_for_parked(&queue, 1);
        clock.wait_for_timers_blocking(1);
        let mut other = Task::parked(queue.get());
        clock.advance(secs(1));
        assert_eq!(leader.join().unwrap(), Err(GetTimeoutError::Timeout));
        assert_eq!(other.wakes(), 1);
        assert!(other.poll().is_pending());
        clock.advance(secs(9));
        assert_eq!(*other.output().unwrap(), "a");
    });
}

#[test]
fn leader_that_takes_a_ready_key_passes_the_timer_on() {
    let (queue, clock) = timed();
    queue.add_after("delayed", secs(1)).unwrap();
    let mut leader = Task::parked(queue.get());
    let mut other = Task::parked(queue.get());
    queue.add("ready").unwrap();
    assert_eq!(finished(leader.output().unwrap()), "ready");
    assert_eq!((clock.timers(), other.wakes()), (0, 1));
    assert!(other.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(*other.output().unwrap(), "delayed");
}

#[test]
fn leader_that_takes_a_due_key_passes_the_timer_on() {
    let (queue, clock) = timed();
    queue.add_after("soon", secs(1)).unwrap();
    queue.add_after("later", secs(5)).unwrap();
    let mut leader = Task::parked(queue.get());
    let mut other = Task::parked(queue.get());
    clock.advance(secs(1));
    assert_eq!(finished(leader.output().unwrap()), "soon");
    assert_eq!((clock.timers(), other.wakes()), (0, 1));
    assert!(other.poll().is_pending());
    clock.advance(secs(4));
    assert_eq!(*other.output().unwrap(), "later");
}

#[test]
fn ready_key_wakes_a_getter_that_is_not_the_leader() {
    let (queue, _clock) = timed();
    queue.add_after("delayed", secs(1)).unwrap();
    let leader = Task::parked(queue.get());
    let other = Task::parked(queue.get());
    queue.add("ready").unwrap();
    assert_eq!((leader.wakes(), other.wakes()), (0, 1));
}

#[test]
fn due_key_reaches_a_getter_even_if_the_leader_is_not_polled_again() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    let stuck = Task::parked(queue.get());
    let mut other = Task::parked(queue.get());
    clock.advance(secs(1));
    assert_eq!(stuck.wakes(), 1);
    assert_eq!(queue.len(), 1, "any call moves due keys");
    assert_eq!(*other.output().unwrap(), "a");
}

#[test]
fn getter_that_loses_a_race_again_and_again_loses_no_key() {
    let queue = Queue::new();
    for key in 0..100 {
        let mut get = Task::parked(queue.get());
        if key % 2 == 0 {
            queue.add(key).unwrap();
            drop(get);
            assert_eq!(finished(queue.try_get().unwrap()), key);
        } else {
            queue.add(key).unwrap();
            assert_eq!(finished(get.output().unwrap()), key);
        }
    }
    assert_eq!((queue.counts(), queue.parked()), (Counts::default(), 0));
}

#[test]
fn getter_can_move_to_another_task_while_it_waits() {
    let queue = Queue::new();
    let (old, new) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut get = queue.get();
    for task in [&old, &new] {
        assert!(poll_once(&mut get, &Waker::from(Arc::clone(task))).is_pending());
    }
    assert_eq!(queue.parked(), 1);
    queue.add("a").unwrap();
    assert_eq!((old.count(), new.count()), (0, 1));
}

#[test]
fn timed_out_getter_that_was_woken_passes_its_wake_up_on() {
    let (queue, clock) = timed();
    thread::scope(|scope| {
        let getter =
            scope.spawn(|| queue.get_blocking_timeout(secs(1)).map(|lease| *lease));
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(1));
        assert_eq!(getter.join().unwrap(), Err(GetTimeoutError::Timeout));
    });
    let mut task = Task::parked(queue.get());
    queue.add("a").unwrap();
    assert_eq!(task.wakes(), 1, "no other getter is counted as in transit");
    assert_eq!(*task.output().unwrap(), "a");
}

/// A waker that calls the queue when it is woken or dropped, like a waker that holds the
/// last reference to a task with a lease.
struct Nosy(OnceLock<Queue<u32>>);

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl Nosy {
    fn look(&self) -> usize {
        self.0.get().map_or(0, Queue::len)
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        self.look();
    }
}

fn nosy(queue: &Queue<u32>) -> Waker {
    Waker::from(Arc::new(Nosy(OnceLock::from(queue.clone()))))
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Wakers were once dropped with the lock held: a getter that moved to another task hung
/// forever if the old task held a lease.
#[test]
fn waker_may_use_the_queue_when_it_is_woken_or_dropped() {
    let queue = Queue::new();
    let mut get = queue.get();
    assert!(poll_once(&mut get, &nosy(&queue)).is_pending());
    assert!(poll_once(&mut get, &nosy(&queue)).is_pending());
    queue.add(1).unwrap();
    let lease = match poll_once(&mut get, &nosy(&queue)) {
        Poll::Ready(Some(lease)) => lease,
        Poll::Ready(None) | Poll::Pending => panic!("a key was added"),
    };
    let mut many = queue.get_many(2);
    assert!(poll_once(&mut many, &nosy(&queue)).is_pending());
    drop(many);
    let mut idle = queue.wait_idle();
    assert!(poll_once(&mut idle, &nosy(&queue)).is_pending());
    assert!(poll_once(&mut idle, Waker::noop()).is_pending());
    let mut drain = queue.drain();
    assert!(poll_once(&mut drain, &nosy(&queue)).is_pending());
    drop(drain);
    lease.done();
    assert!(poll_once(&mut idle, Waker::noop()).is_ready());
    assert_eq!(
        queue.get_blocking_timeout(Duration::ZERO).unwrap_err(),
        GetTimeoutError::Closed
    );
}
