//! Closing loses no key and ends every wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use requeue::rate::{Limit, Limiter};
use requeue::retry::RetryPolicy;
use requeue::testing::FakeClock;
use requeue::{AddOptions, Closed, Counts, GetTimeoutError, Queue, TryGetError};

use crate::helpers::{Task, ms, secs, take_all, timed, timed_with, wait_for_parked};

#[test]
fn closed_queue_delivers_its_ready_keys_and_then_none() {
    let queue = Queue::new();
    queue.add_all(["a", "b"]).unwrap();
    queue.close();
    assert!(queue.is_closed());
    assert_eq!(*queue.get_blocking().unwrap(), "a");
    assert_eq!(*Task::new(queue.get()).output().unwrap(), "b");
    assert!(queue.get_blocking().is_none());
    assert!(Task::new(queue.get()).output().is_none());
    assert!(queue.get_many_blocking(1).is_none());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    assert_eq!(queue.get_blocking_timeout(secs(9)).unwrap_err(), GetTimeoutError::Closed);
}

#[test]
fn closed_queue_returns_the_keys_that_are_added() {
    let (queue, clock) = timed();
    queue.close();
    let refused = [
        queue.add(1),
        queue.add_after(2, secs(1)),
        queue.add_at(3, clock.now() + secs(1)),
        queue.add_rate_limited(4),
        queue.add_with(5, AddOptions::new().priority(1)),
        queue.postpone(6, secs(1)),
    ];
    let keys = refused.map(|refused| refused.map_err(Closed::into_key));
    assert_eq!(keys, [Err(1), Err(2), Err(3), Err(4), Err(5), Err(6)]);
    assert!(queue.add_ref(&1).is_err());
    let rest = queue.add_all(0..5000).map_err(Closed::into_key);
    assert_eq!(rest, Err((0..5000).collect()));
    assert_eq!(queue.counts(), Counts::default());
    assert_eq!(queue.num_requeues(&1), 0, "no failure was counted");
}

/// One token of a shared limiter for each failure of any key.
struct Shared(Limiter);

impl<K> RetryPolicy<K> for Shared {
    fn when(&self, _: &K) -> Duration {
        self.0.reserve().map_or(Duration::MAX, |reservation| reservation.delay())
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

#[test]
fn add_after_close_charges_no_limiter() {
    let clock = FakeClock::new();
    let limiter = Limiter::with_clock(Limit::per_second(1.0), 5, clock.clone());
    let policy = Shared(limiter.clone());
    let queue = Queue::builder().clock(clock).retry(policy).build();
    queue.add_rate_limited(1).unwrap();
    assert!(!limiter.allow_n(5), "one token of five was taken");
    queue.close();
    assert!(queue.add_rate_limited(2).is_err());
    let options = AddOptions::new().rate_limited(true).after(secs(1));
    assert!(queue.add_with(3, options).is_err());
    assert!(limiter.allow_n(4), "no token was taken for a key that was refused");
}

#[test]
fn dirty_key_is_still_delivered_after_close() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    queue.close();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    lease.done();
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn closed_queue_keeps_delayed_keys_delayed() {
    let (queue, clock) = timed();
    queue.add_after("due", secs(1)).unwrap();
    queue.add_after("later", secs(2)).unwrap();
    clock.advance(secs(1));
    queue.close();
    clock.advance(secs(10));
    assert_eq!(take_all(&queue), ["due"], "it was ready before the queue was closed");
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    assert_eq!(queue.drain_blocking(), ["later"]);
}

#[test]
fn close_now_returns_every_undelivered_key() {
    let (queue, _clock) = timed();
    queue.add_all(["processing", "dirty"]).unwrap();
    let leases = queue.try_get_many(2).unwrap();
    queue.add_after("later", secs(2)).unwrap();
    queue.add_after("soon", secs(1)).unwrap();
    queue.add_all(["dirty", "first", "second"]).unwrap();
    queue.add_after("first", secs(3)).unwrap();
    let undelivered = queue.close_now();
    assert_eq!(undelivered, ["first", "second", "dirty", "soon", "later"]);
    assert_eq!(queue.counts(), Counts { processing: 2, ..Counts::default() });
    leases.done();
    assert_eq!(queue.counts(), Counts::default());
    assert!(queue.close_now().is_empty());
}

#[test]
fn closing_is_idempotent() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    queue.close();
    queue.close();
    assert_eq!(queue.close_now(), ["a"]);
    queue.close();
    assert!(queue.drain_blocking().is_empty());
    assert!(queue.get_blocking().is_none());
}

#[test]
fn close_ends_every_getter_that_waits() {
    let (queue, _clock) = timed::<u32>();
    queue.add_after(1, secs(60)).unwrap();
    let mut tasks: Vec<_> = (0..3).map(|_| Task::parked(queue.get())).collect();
    let mut many = Task::parked(queue.get_many(2));
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..3).map(|_| scope.spawn(|| queue.get_blocking().is_none())).collect();
        let timed =
            scope.spawn(|| queue.get_blocking_timeout(secs(600)).map(|lease| *lease));
        wait_for_parked(&queue, 8);
        queue.close();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        assert_eq!(timed.join().unwrap(), Err(GetTimeoutError::Closed));
    });
    for task in &mut tasks {
        assert!(task.wakes() > 0);
        assert!(task.output().is_none());
    }
    assert!(many.wakes() > 0 && many.output().is_none());
    assert_eq!(queue.parked(), 0);
}

#[test]
fn drain_waits_for_ready_processing_and_dirty_keys() {
    let (queue, _clock) = timed();
    queue.add_all(["a", "b"]).unwrap();
    queue.add_after("later", secs(1)).unwrap();
    let a = queue.try_get().unwrap();
    queue.add("a").unwrap();
    let mut drain = Task::parked(queue.drain());
    assert!(queue.is_closed());
    take_all(&queue);
    assert_eq!(drain.wakes(), 0, "a is processing");
    a.done();
    assert!(drain.poll().is_pending(), "a is ready again");
    let a = queue.try_get().unwrap();
    assert_eq!(drain.wakes(), 0);
    a.done();
    assert_eq!(drain.wakes(), 1);
    assert_eq!(drain.output(), ["later"]);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn drain_of_an_idle_queue_returns_at_once() {
    let queue = Queue::<u32>::new();
    assert!(queue.drain_blocking().is_empty());
    assert!(Task::new(queue.drain()).output().is_empty());
    assert_eq!(queue.drain_blocking_timeout(Duration::ZERO), Ok(vec![]));
}

#[test]
fn drain_waits_for_a_thread_that_works() {
    let queue = Queue::new();
    queue.add_all(0..100).unwrap();
    let worked = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(lease) = queue.get_blocking() {
                    worked.fetch_add(1, Ordering::SeqCst);
                    lease.succeed();
                }
            });
        }
        assert!(queue.drain_blocking().is_empty());
        assert_eq!(worked.load(Ordering::SeqCst), 100);
    });
}

#[test]
fn drain_with_a_deadline_reports_what_is_left() {
    let (queue, clock) = timed();
    queue.add_all(["a", "b"]).unwrap();
    let lease = queue.try_get().unwrap();
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.drain_blocking_timeout(secs(30)));
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(30));
        let left = drain.join().unwrap().unwrap_err().left;
        assert_eq!(left, Counts { ready: 1, processing: 1, ..Counts::default() });
    });
    lease.done();
    take_all(&queue);
    assert_eq!(
        queue.drain_blocking_timeout(Duration::MAX),
        Ok(vec![]),
        "draining can be repeated"
    );
}

#[test]
fn several_drains_all_end_and_one_gets_the_delayed_keys() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("later", secs(1)).unwrap();
    let lease = queue.try_get().unwrap();
    let mut drains: Vec<_> = (0..3).map(|_| Task::parked(queue.drain())).collect();
    thread::scope(|scope| {
        let blocking: Vec<_> =
            (0..2).map(|_| scope.spawn(|| queue.drain_blocking())).collect();
        lease.done();
        let mut keys: Vec<&str> = drains.iter_mut().flat_map(Task::output).collect();
        for drain in blocking {
            keys.extend(drain.join().unwrap());
        }
        assert_eq!(keys, ["later"]);
    });
}

#[test]
fn dropped_drain_leaves_the_delayed_keys_for_the_next() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("later", secs(1)).unwrap();
    let lease = queue.try_get().unwrap();
    drop(Task::parked(queue.drain()));
    lease.done();
    assert!(queue.is_closed());
    assert_eq!(queue.drain_blocking(), ["later"]);
}

#[test]
fn key_retried_on_a_closed_queue_is_returned() {
    let (queue, clock) = timed();
    queue.add_all(["policy", "delay", "at once"]).unwrap();
    let leases: Vec<_> = queue.try_get_many(3).unwrap().into_iter().collect();
    let mut drain = Task::parked(queue.drain());
    let [policy, delay, at_once] = leases.try_into().unwrap();
    assert_eq!(policy.retry(), ms(5));
    delay.retry_after(secs(60));
    at_once.retry_after(Duration::ZERO);
    clock.advance(secs(600));
    assert_eq!(drain.output(), ["at once", "policy", "delay"]);
}

#[test]
fn key_of_a_worker_that_panics_on_a_closed_queue_is_returned() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.close();
    thread::spawn(move || {
        let _lease = lease;
        panic!("the work failed");
    })
    .join()
    .unwrap_err();
    assert_eq!(queue.close_now(), ["a"]);
}

#[test]
fn wait_idle_waits_for_delayed_keys_too_and_does_not_close() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("later", secs(1)).unwrap();
    let mut idle = Task::parked(queue.wait_idle());
    take_all(&queue);
    assert!(idle.poll().is_pending());
    clock.advance(secs(1));
    take_all(&queue);
    assert!(idle.wakes() > 0);
    idle.output();
    assert!(!queue.is_closed());
    queue.wait_idle_blocking();
}

/// If only a delayed key was left, callers of `wait_idle` were once woken each time they
/// looked, so that they spun.
#[test]
fn wait_idle_sleeps_while_a_key_is_delayed() {
    let (queue, _clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    let mut idle = Task::parked(queue.wait_idle());
    assert!(idle.poll().is_pending());
    queue.add_after("b", secs(1)).unwrap();
    assert_eq!(idle.wakes(), 0);
    queue.remove("a");
    queue.remove("b");
    assert_eq!(idle.wakes(), 1);
    idle.output();
}

#[test]
fn wait_idle_of_a_closed_queue_does_not_wait_for_delayed_keys() {
    let (queue, _clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    let mut idle = Task::parked(queue.wait_idle());
    thread::scope(|scope| {
        scope.spawn(|| queue.wait_idle_blocking());
        queue.close();
    });
    assert!(idle.wakes() > 0);
    idle.output();
}

#[test]
fn last_handle_closes_the_queue_for_getters_that_wait() {
    let (queue, _clock) = timed::<u32>();
    let other = queue.clone();
    queue.add_after(1, secs(60)).unwrap();
    let mut get = Task::parked(queue.get());
    let mut idle = Task::parked(queue.wait_idle());
    drop(queue);
    assert_eq!(get.wakes(), 0, "there is another handle");
    drop(other);
    assert!(get.wakes() > 0 && get.output().is_none());
    idle.output();
}

#[test]
fn worker_without_a_handle_leaves_when_the_last_handle_is_dropped() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let lease = queue.get_blocking().unwrap();
    let worker = thread::spawn(move || lease.next_blocking().is_none());
    wait_for_parked(&queue, 1);
    drop(queue);
    assert!(worker.join().unwrap());
}

#[test]
fn lease_outlives_its_queue() {
    let queue = Queue::new();
    queue.add_all(["a".to_owned(), "b".to_owned()]).unwrap();
    let lease = queue.try_get().unwrap();
    drop(queue);
    assert_eq!(lease.key(), "a");
    let lease = lease.next_blocking().unwrap();
    assert_eq!(lease.key(), "b", "ready keys are still delivered");
    assert!(lease.next_blocking().is_none());
}

#[test]
fn remove_and_forget_work_on_a_closed_queue() {
    let (queue, _clock) = timed_with(Queue::builder());
    queue.add_all(["a", "b"]).unwrap();
    queue.try_get().unwrap().retry();
    queue.close();
    assert!(queue.remove("a") && queue.remove("b"));
    assert_eq!(queue.num_requeues(&"a"), 1);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert!(queue.close_now().is_empty());
}
