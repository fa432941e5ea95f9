//! Models of waking, leading, cancelling and closing, run in every order that matters.
//!
//! `RUSTFLAGS="--cfg requeue_loom" cargo test -p requeue --lib --release loom`
//!
//! A getter that is not woken is a deadlock, which loom reports; so most models assert
//! only delivered keys.

mod tools;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::task::Poll;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread::{self, JoinHandle};

use self::tools::{HandClock, block_on, model, poll_once};
use super::{Added, Lease, Queue};
use crate::clock::Clock;
use crate::error::GetTimeoutError;

const STEP: Duration = Duration::from_millis(10);

type Keys = Queue<u32>;

fn timed() -> (HandClock, Keys) {
    let clock = HandClock::new();
    (clock.clone(), Queue::builder().clock(clock).build())
}

/// Runs `work` on a thread with a separate handle.
fn spawn<T: 'static>(
    queue: &Keys,
    work: impl FnOnce(Keys) -> T + 'static,
) -> JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || work(queue))
}

/// Ends a lease and returns its key. A dropped lease would be retried.
fn end(lease: Lease<u32>) -> u32 {
    let key = *lease;
    lease.done();
    key
}

/// A worker that takes one key.
fn taker(queue: &Keys) -> JoinHandle<Option<u32>> {
    spawn(queue, |queue| queue.get_blocking().map(end))
}

/// The same as a task.
fn task(queue: &Keys) -> JoinHandle<Option<u32>> {
    spawn(queue, |queue| block_on(queue.get()).map(end))
}

#[test]
fn an_add_reaches_a_thread_that_goes_to_sleep() {
    model(|| {
        let queue = Queue::new();
        let worker = taker(&queue);
        queue.add(7).unwrap();
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn an_add_reaches_a_task_that_goes_to_sleep() {
    model(|| {
        let queue = Queue::new();
        let worker = task(&queue);
        queue.add(7).unwrap();
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn two_keys_reach_a_thread_and_a_task() {
    model(|| {
        let queue = Queue::new();
        let workers = [taker(&queue), task(&queue)];
        queue.add(1).unwrap();
        queue.add(2).unwrap();
        let mut keys = workers.map(|worker| worker.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [Some(1), Some(2)]);
    });
}

#[test]
fn a_batch_wakes_as_many_as_it_has_keys() {
    model(|| {
        let queue = Queue::new();
        let workers = [taker(&queue), taker(&queue)];
        queue.add_all([1, 2]).unwrap();
        // There is a key for each getter, so each must be woken.
        assert_eq!(queue.parked(), 0);
        let mut keys = workers.map(|worker| worker.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [Some(1), Some(2)]);
    });
}

/// The worker that is woken may find its key gone: it parks again, and is not forgotten.
#[test]
fn a_key_snatched_from_a_woken_getter_does_not_strand_it() {
    model(|| {
        let queue = Queue::new();
        let worker = taker(&queue);
        queue.add(1).unwrap();
        let snatched = queue.try_get().map(end);
        queue.add(2).unwrap();
        let expected = if snatched == Ok(1) { 2 } else { 1 };
        assert_eq!(worker.join().unwrap(), Some(expected));
    });
}

/// A key that is added while it is processed is seen once more after its last add, and
/// never by two at a time.
#[test]
fn the_last_add_is_seen_and_no_key_is_with_two_workers() {
    model(|| {
        let queue = Keys::new();
        let (version, seen) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let busy = Arc::new(AtomicBool::new(false));
        let workers = [(); 2].map(|()| {
            let (version, seen, busy) =
                (Arc::clone(&version), Arc::clone(&seen), Arc::clone(&busy));
            spawn(&queue, move |queue| {
                let mut lease = queue.get_blocking();
                while let Some(key) = lease {
                    assert!(!busy.swap(true, SeqCst), "two leases of one key");
                    seen.store(version.load(Acquire), Release);
                    busy.store(false, SeqCst);
                    lease = key.next_blocking();
                }
            })
        });
        for _ in 0..2 {
            version.fetch_add(1, SeqCst);
            queue.add(7).unwrap();
        }
        queue.close();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(seen.load(Acquire), 2);
    });
}

#[test]
fn a_cancelled_getter_passes_its_wake_on() {
    model(|| {
        let queue = Queue::new();
        let mut cancelled = queue.get();
        assert!(poll_once(&mut cancelled).is_pending());
        let worker = taker(&queue);
        let producer = spawn(&queue, |queue| queue.add(7));
        drop(cancelled);
        assert_eq!(worker.join().unwrap(), Some(7));
        assert_eq!(producer.join().unwrap(), Ok(Added::Ready));
    });
}

#[test]
fn a_getter_that_runs_out_of_time_passes_its_wake_on() {
    model(|| {
        let (clock, queue) = timed();
        let deadline = clock.now() + STEP;
        let hurried = spawn(&queue, move |queue| {
            let lease = queue.get_blocking_deadline(deadline);
            // Who got the key gives it to the other one: dirty, then ready again.
            lease.map(|lease| queue.add(*lease).unwrap()).map_err(|error| {
                assert_eq!(error, GetTimeoutError::Timeout);
            })
        });
        let worker = taker(&queue);
        queue.add(7).unwrap();
        clock.advance(STEP);
        let hurried = hurried.join().unwrap();
        assert!(matches!(hurried, Err(()) | Ok(Added::Dirty)));
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn a_delayed_key_reaches_a_thread_that_goes_to_sleep() {
    model(|| {
        let (clock, queue) = timed();
        let worker = taker(&queue);
        queue.add_after(7, STEP).unwrap();
        clock.advance(STEP);
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn a_delayed_key_reaches_a_task_that_goes_to_sleep() {
    model(|| {
        let (clock, queue) = timed();
        let worker = task(&queue);
        queue.add_after(7, STEP).unwrap();
        clock.advance(STEP);
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn an_earlier_delay_shortens_the_leaders_sleep() {
    model(|| {
        let (clock, queue) = timed();
        queue.add_after(2, 2 * STEP).unwrap();
        let worker = taker(&queue);
        queue.add_after(1, STEP).unwrap();
        clock.advance(STEP);
        assert_eq!(worker.join().unwrap(), Some(1));
    });
}

#[test]
fn a_cancelled_leader_hands_the_lead_over() {
    model(|| {
        let (clock, queue) = timed();
        queue.add_after(7, STEP).unwrap();
        let mut leader = queue.get();
        assert!(poll_once(&mut leader).is_pending());
        let worker = taker(&queue);
        let time = thread::spawn(move || clock.advance(STEP));
        drop(leader);
        assert_eq!(worker.join().unwrap(), Some(7));
        time.join().unwrap();
    });
}

#[test]
fn a_leader_that_runs_out_of_time_hands_the_lead_over() {
    model(|| {
        let (clock, queue) = timed();
        queue.add_after(7, 2 * STEP).unwrap();
        let deadline = clock.now() + STEP;
        let hurried =
            spawn(&queue, move |queue| queue.get_blocking_deadline(deadline).map(end));
        let worker = task(&queue);
        clock.advance(STEP);
        assert_eq!(hurried.join().unwrap(), Err(GetTimeoutError::Timeout));
        clock.advance(STEP);
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

/// The leader may be woken for the ready key: the other getter must then wake in time.
#[test]
fn a_leader_that_is_called_for_a_key_hands_the_lead_over() {
    model(|| {
        let (clock, queue) = timed();
        queue.add_after(1, STEP).unwrap();
        let workers = [taker(&queue), task(&queue)];
        queue.add(2).unwrap();
        clock.advance(STEP);
        let mut keys = workers.map(|worker| worker.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [Some(1), Some(2)]);
    });
}

#[test]
fn a_lease_that_retries_wakes_a_getter_when_it_is_due() {
    model(|| {
        let (clock, queue) = timed();
        queue.add(7).unwrap();
        let lease = queue.try_get().unwrap();
        let worker = taker(&queue);
        lease.retry_after(STEP);
        clock.advance(STEP);
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn closing_ends_every_getter() {
    model(|| {
        let (_clock, queue) = timed();
        queue.add_after(7, STEP).unwrap();
        let workers = [taker(&queue), task(&queue)];
        queue.close();
        assert_eq!(workers.map(|worker| worker.join().unwrap()), [None, None]);
    });
}

#[test]
fn key_accepted_before_the_close_is_delivered() {
    model(|| {
        let queue = Queue::new();
        let worker = taker(&queue);
        let producer = spawn(&queue, |queue| queue.add(7));
        queue.close();
        let accepted = producer.join().unwrap().is_ok();
        assert_eq!(worker.join().unwrap(), accepted.then_some(7));
    });
}

#[test]
fn the_last_handle_to_go_ends_a_waiting_future() {
    model(|| {
        let queue = Keys::new();
        let mut waiting = queue.get();
        assert!(poll_once(&mut waiting).is_pending());
        let worker = thread::spawn(move || block_on(waiting).map(end));
        let other = spawn(&queue, drop);
        drop(queue);
        assert_eq!(worker.join().unwrap(), None);
        other.join().unwrap();
    });
}

/// Drains while a worker has the only key, and twice if that is dirty.
fn drain_against(dirty: bool, drain: impl FnOnce(&Keys) -> Vec<u32>) {
    let queue = Keys::new();
    queue.add(7).unwrap();
    let lease = queue.try_get().unwrap();
    if dirty {
        queue.add(7).unwrap();
    }
    let ends = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ends);
    let worker = thread::spawn(move || {
        let mut lease = Some(lease);
        while let Some(key) = lease {
            counted.fetch_add(1, SeqCst);
            lease = key.next_blocking();
        }
    });
    assert_eq!(drain(&queue), []);
    assert_eq!(ends.load(SeqCst), 1 + usize::from(dirty));
    worker.join().unwrap();
}

#[test]
fn draining_waits_for_the_last_lease() {
    model(|| drain_against(false, Queue::drain_blocking));
    model(|| drain_against(true, Queue::drain_blocking));
    model(|| drain_against(true, |queue| block_on(queue.drain())));
}

#[test]
fn two_who_drain_at_once_both_return() {
    model(|| {
        let queue = Queue::new();
        queue.add(7).unwrap();
        let lease = queue.try_get().unwrap();
        let other = spawn(&queue, |queue| block_on(queue.drain()));
        let worker = thread::spawn(move || lease.retry());
        let mut left = queue.drain_blocking();
        left.extend(other.join().unwrap());
        worker.join().unwrap();
        // A retry before the close is delayed; one after it joins the keys handed back.
        assert_eq!(left, [7]);
    });
}

#[test]
fn waiting_for_idleness_outlasts_delays() {
    model(|| {
        let (clock, queue) = timed();
        queue.add_after(7, STEP).unwrap();
        let worked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&worked);
        let worker = spawn(&queue, move |queue| {
            let lease = queue.get_blocking().unwrap();
            flag.store(true, Release);
            lease.done();
        });
        let time = thread::spawn(move || clock.advance(STEP));
        queue.wait_idle_blocking();
        assert!(worked.load(Acquire));
        worker.join().unwrap();
        time.join().unwrap();
    });
}

#[test]
fn an_abandoned_wait_for_idleness_leaves_the_others_alone() {
    model(|| {
        let queue = Queue::new();
        queue.add(7).unwrap();
        let lease = queue.try_get().unwrap();
        let mut abandoned = queue.wait_idle();
        assert_eq!(poll_once(&mut abandoned), Poll::Pending);
        let waiter = spawn(&queue, |queue| block_on(queue.wait_idle()));
        let worker = thread::spawn(move || lease.done());
        drop(abandoned);
        waiter.join().unwrap();
        worker.join().unwrap();
        assert_eq!(queue.counts().processing, 0);
    });
}
