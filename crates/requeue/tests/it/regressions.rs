//! Bugs of other queues that this one does not have.
//!
//! Each test names the source of the bug: client-go (`k/k` is kubernetes/kubernetes),
//! controller-runtime (`c-r`), kube-rs, or private ports of client-go's queue to Rust. "By
//! reading" means that the bug was found in the source and has no issue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use requeue::order::Priority;
use requeue::{AddOptions, Added, Counts, GetTimeoutError, Lease, Queue, TryGetError};

use crate::helpers::{Task, ms, secs, take_all, timed, timed_with, wait_for_parked};

/// A private port: `add_after` did not wake a parked `get`, so that a consumer parked on
/// an empty queue never saw the delayed key.
#[test]
fn delayed_add_reaches_a_getter_that_parked_on_an_empty_queue() {
    let (queue, clock) = timed();
    let mut task = Task::parked(queue.get());
    thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get_blocking().map(|lease| *lease));
        wait_for_parked(&queue, 2);
        queue.add_after("a", secs(1)).unwrap();
        queue.add_after("b", secs(1)).unwrap();
        assert!(task.poll().is_pending());
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(1));
        let mut keys = vec![*task.output().unwrap()];
        keys.extend(getter.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b"]);
    });
}

/// A private port: a shutdown between looking for a key and waiting lost its wake-up. Here
/// both happen in one lock scope; each round races a close with a getter.
#[test]
fn close_that_races_with_a_getter_always_ends_it() {
    for _ in 0..2000 {
        let queue = Queue::<u32>::new();
        thread::scope(|scope| {
            let blocking = scope.spawn(|| queue.get_blocking().is_none());
            let future =
                scope.spawn(|| futures_executor::block_on(queue.get()).is_none());
            queue.close();
            assert!(blocking.join().unwrap() && future.join().unwrap());
        });
    }
}

/// A private port: backoff in whole milliseconds. A delay counts to the nanosecond.
#[test]
fn delays_are_not_rounded_to_milliseconds() {
    let (queue, clock) = timed();
    let nanos = Duration::from_nanos;
    for (key, delay) in [(3, 1_500_001), (1, 999), (2, 1_500_000)] {
        queue.add_after(key, nanos(delay)).unwrap();
    }
    clock.advance(nanos(999));
    assert_eq!(take_all(&queue), [1]);
    clock.advance(nanos(1_499_001));
    assert_eq!(take_all(&queue), [2]);
    clock.advance(nanos(1));
    assert_eq!(take_all(&queue), [3]);
}

/// A private port, and k/k users who forgot `Done` (kube-batch PR 809, flyteplugins PR 139):
/// a worker that went away left its key processing forever.
#[test]
fn worker_that_goes_away_returns_its_key() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let worker = queue.clone();
    let died = thread::spawn(move || {
        let _lease = worker.get_blocking();
        panic!("the worker dies");
    });
    died.join().unwrap_err();
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    queue.add("a").unwrap();
    assert_eq!(take_all(&queue), ["a"]);
}

/// A private port: delayed duplicates were not merged.
#[test]
fn delayed_duplicates_are_one_delayed_key() {
    let (queue, clock) = timed();
    for delay in (1..=100).rev() {
        queue.add_after("a", secs(delay)).unwrap();
    }
    assert_eq!(queue.counts().delayed, 1);
    clock.advance(secs(200));
    assert_eq!(take_all(&queue), ["a"]);
    assert_eq!(queue.counts(), Counts::default());
}

/// A private port spawned a sleep for each delayed add; client-go piled up timers for
/// keys in the far future (k/k 83895). Here one getter has one timer.
#[test]
fn many_delayed_keys_need_one_timer() {
    let (queue, clock) = timed();
    for key in 0..10_000 {
        queue.add_after(key, secs(key + 1)).unwrap();
    }
    assert_eq!(clock.timers(), 0, "no getter waits");
    let _getters: Vec<_> = (0..10).map(|_| Task::parked(queue.get())).collect();
    assert_eq!(clock.timers(), 1);
}

/// A private port allowed a single consumer only.
#[test]
fn many_consumers_share_one_queue() {
    let queue = Queue::new();
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while queue.get_blocking().is_some() {
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        queue.add_all(0..1000).unwrap();
        queue.drain_blocking();
    });
    assert_eq!(taken.into_inner(), 1000);
}

/// k/k PR 141079: `ShutDownWithDrain` waited for processing keys only, and so returned
/// early while others were queued, or at once if no worker had called `Get`.
#[test]
fn drain_does_not_return_while_a_key_is_ready() {
    let queue = Queue::new();
    queue.add("not taken yet").unwrap();
    let mut drain = Task::parked(queue.drain());
    let lease = queue.try_get().unwrap();
    assert!(drain.poll().is_pending());
    lease.done();
    assert!(drain.output().is_empty());
}

/// k/k PR 141079: `Done` signalled one waiter only, so that a second drainer could hang.
#[test]
fn last_done_ends_every_drain() {
    let queue = Queue::new();
    queue.add(1).unwrap();
    let lease = queue.try_get().unwrap();
    let mut drains: Vec<_> = (0..4).map(|_| Task::parked(queue.drain())).collect();
    lease.done();
    for drain in &mut drains {
        assert_eq!(drain.wakes(), 1);
        drain.output();
    }
}

/// Client-go, by reading: a drain that began after `ShutDown` could not be released by a
/// second `ShutDown`. Here closing does not end a drain, and its deadline form does.
#[test]
fn drain_after_close_ends_at_its_deadline() {
    let (queue, clock) = timed();
    queue.add("stuck").unwrap();
    let _stuck = queue.try_get().unwrap();
    queue.close();
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.drain_blocking_timeout(secs(10)));
        clock.wait_for_timers_blocking(1);
        queue.close();
        clock.advance(secs(10));
        assert_eq!(drain.join().unwrap().unwrap_err().left.processing, 1);
    });
}

/// Client-go, by reading: keys that waited were silently lost at shutdown.
#[test]
fn delayed_keys_are_returned_when_the_queue_closes() {
    let (queue, _clock) = timed();
    queue.add_after("later", secs(2)).unwrap();
    queue.add_rate_limited("failed").unwrap();
    queue.close();
    assert_eq!(queue.drain_blocking(), ["failed", "later"]);
}

/// Client-go, by reading: `AddAfter` blocked once 1000 adds were pending, and forever after a
/// drain.
#[test]
fn delayed_add_never_blocks() {
    let (queue, _clock) = timed();
    for key in 0..5000 {
        assert_eq!(queue.add_after(key, secs(1)), Ok(Added::Delayed));
    }
    let mut drain = Task::new(queue.drain());
    assert_eq!(drain.output().len(), 5000);
    for key in 0..5000 {
        assert!(queue.add_after(key, secs(1)).is_err());
    }
}

/// Client-go, by reading: equal deadlines were delivered in the order of a heap.
#[test]
fn equal_deadlines_are_delivered_in_the_order_of_the_adds() {
    let (queue, clock) = timed();
    let keys: Vec<u64> = (0..1000).map(|n| n * 7919 % 1000).collect();
    for key in &keys {
        queue.add_after(*key, ms(key % 3 + 1)).unwrap();
    }
    clock.advance(ms(3));
    let mut expected = keys;
    expected.sort_by_key(|key| key % 3);
    assert_eq!(take_all(&queue), expected);
}

/// Client-go: `Done` of a key that was not processing put it into the queue twice, and two
/// workers got it (k/k 79934). Here only a lease can be finished, and only once.
#[test]
fn key_cannot_be_finished_into_the_queue_twice() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    lease.done();
    assert_eq!(queue.len(), 1);
    let _lease = queue.try_get().unwrap();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
}

/// Client-go: `AddRateLimited` on a closed queue was charged although the key was refused,
/// since the limiter was asked first.
#[test]
fn refused_key_counts_no_failure() {
    let (queue, _clock) = timed();
    queue.close();
    assert!(queue.add_rate_limited("a").is_err());
    assert_eq!(queue.num_requeues(&"a"), 0);
}

/// Client-go, by reading: a delay beyond the largest number wrapped to a negative one, and
/// the key was added at once.
#[test]
fn endless_failures_never_make_a_key_ready_at_once() {
    let (queue, _clock) = timed();
    for _ in 0..2000 {
        queue.add_rate_limited("a").unwrap();
        queue.remove("a");
    }
    assert_eq!(queue.num_requeues(&"a"), 2000);
    queue.add_rate_limited("a").unwrap();
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}

/// k/k 110642, 112325 and others: an immediate add leaves the delayed one behind, so that
/// the key runs a superfluous second time. That is the default, and an option changes it.
#[test]
fn superfluous_second_run_can_be_switched_off() {
    let (queue, clock) = timed_with(Queue::builder().absorb_delays(true));
    queue.add_after("a", secs(1)).unwrap();
    queue.add("a").unwrap();
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(secs(1));
    assert_eq!(queue.counts(), Counts::default());
}

/// k/k 133560: a delayed add could only be moved forward, not postponed or cancelled.
#[test]
fn delayed_key_can_be_postponed_and_cancelled() {
    let (queue, clock) = timed();
    queue.add_after("a", secs(1)).unwrap();
    queue.add_after("b", secs(1)).unwrap();
    queue.postpone("a", secs(5)).unwrap();
    assert!(queue.remove("b"));
    clock.advance(secs(4));
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}

/// k/k 91800: a blocked `Get` could be ended only by shutting the queue down.
#[test]
fn blocked_get_can_time_out_while_the_queue_stays_open() {
    let (queue, clock) = timed::<u32>();
    thread::scope(|scope| {
        let getter =
            scope.spawn(|| queue.get_blocking_timeout(secs(1)).map(|lease| *lease));
        clock.wait_for_timers_blocking(1);
        clock.advance(secs(1));
        assert_eq!(getter.join().unwrap(), Err(GetTimeoutError::Timeout));
    });
    assert_eq!(queue.add(1), Ok(Added::Ready));
}

/// k/k PR 104991: the slice behind the queue kept delivered objects alive.
#[test]
fn queue_keeps_no_key_that_is_done() {
    let key = Arc::new(1);
    let (queue, clock) = timed();
    queue.add(Arc::clone(&key)).unwrap();
    take_all(&queue);
    queue.add_after(Arc::clone(&key), secs(1)).unwrap();
    clock.advance(secs(1));
    take_all(&queue);
    queue.add_after(Arc::clone(&key), secs(1)).unwrap();
    queue.remove(&key);
    assert_eq!(Arc::strong_count(&key), 1);
}

/// c-r, by reading: a second `ShutDown` panicked, and queued keys were dropped at shutdown.
#[test]
fn priority_queue_closes_twice_and_delivers_the_rest() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_all(["a", "b"]).unwrap();
    queue.close();
    queue.close();
    assert_eq!(take_all(&queue), ["a", "b"]);
}

/// c-r, by reading: `NumRequeues` was stale right after `AddRateLimited`, which took
/// effect later.
#[test]
fn failure_counts_at_once() {
    let queue = Queue::builder().order(Priority::new()).build();
    for failures in 1..=3 {
        queue.add_rate_limited("a").unwrap();
        assert_eq!(queue.num_requeues(&"a"), failures);
    }
}

/// c-r, by reading: a delayed key that was added again overtook keys of its priority that
/// had become ready before.
#[test]
fn delayed_key_that_is_added_goes_behind_ready_keys_of_its_priority() {
    let builder = Queue::builder().order(Priority::new()).absorb_delays(true);
    let (queue, _clock) = timed_with(builder);
    queue.add_after("early", secs(9)).unwrap();
    queue.add_all(["a", "b"]).unwrap();
    queue.add("early").unwrap();
    assert_eq!(take_all(&queue), ["a", "b", "early"]);
}

/// c-r, by reading: a terminal error never forgot the key's failures.
#[test]
fn key_that_is_given_up_leaves_no_failures() {
    let (queue, clock) = timed();
    queue.add_rate_limited("a").unwrap();
    clock.advance(ms(5));
    queue.try_get().unwrap().succeed();
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(queue.counts(), Counts::default());
}

/// c-r PR 3103: in one call with several keys, the delay of one leaked into the next.
#[test]
fn failures_of_one_key_do_not_leak_into_the_next() {
    let (queue, clock) = timed();
    for _ in 0..10 {
        queue.add_rate_limited("slow").unwrap();
    }
    queue.remove("slow");
    for key in ["slow", "new"] {
        queue.add_with(key, AddOptions::new().rate_limited(true)).unwrap();
    }
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), ["new"]);
}

/// c-r PR 3330: a delayed key of high priority stayed behind ready ones of low priority.
#[test]
fn due_key_of_high_priority_overtakes() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::new()));
    queue.add_with("high", AddOptions::new().after(secs(1)).priority(5)).unwrap();
    queue.add_all(["low", "lower"]).unwrap();
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), ["high", "low", "lower"]);
}

/// c-r 3239 and 3538: `Get` hung after shutdown, and shutdown deadlocked on a channel send
/// under the lock.
#[test]
fn getters_and_close_never_hang_on_each_other() {
    for _ in 0..500 {
        let queue = Queue::builder().order(Priority::new()).build();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| queue.leases_blocking().for_each(Lease::succeed));
            }
            scope.spawn(|| queue.add_all(0..10).is_ok());
            queue.close();
        });
        assert_eq!(queue.counts(), Counts::default());
    }
}

/// kube-rs 1772: a requeue of some years panicked in the timer wheel.
#[test]
fn delay_of_centuries_is_accepted() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry_after(secs(86400 * 365 * 300));
    clock.advance(secs(86400 * 365 * 299));
    assert_eq!(queue.len(), 0);
    clock.advance(secs(86400 * 365));
    assert_eq!(take_all(&queue), ["a"]);
}

/// kube-rs: pending keys were delivered in the order of a hash set.
#[test]
fn keys_held_up_by_busy_workers_stay_in_order() {
    let queue = Queue::new();
    queue.add_all(0..10_000).unwrap();
    let busy = queue.try_get_many(10).unwrap();
    queue.add_all(5..20).unwrap();
    busy.done();
    let expected: Vec<_> = (10..10_000).chain(5..10).collect();
    assert_eq!(take_all(&queue), expected);
}
