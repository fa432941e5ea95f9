//! The memory that a queue takes. A separate binary, because it counts allocations.

#![allow(clippy::unwrap_used, reason = "a panic fails the test, in helpers as well")]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use requeue::order::{Fair, Priority};
use requeue::testing::FakeClock;
use requeue::{Builder, Queue};

const MILLION: u32 = 1_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn timed<K>(builder: Builder<K>) -> (Queue<K>, FakeClock) {
    let clock = FakeClock::new();
    (builder.clock(clock.clone()).build(), clock)
}

/// Asserts that `cycle` allocates nothing once the queue has seen some keys.
#[track_caller]
fn assert_allocates_nothing<K>(keys: impl Iterator<Item = K>, cycle: impl FnMut(K)) {
    assert_allocates(0, keys, cycle);
}

/// Asserts that `cycle` allocates nothing but the clone of the key in its lease.
#[track_caller]
fn assert_allocates_one_clone<K>(keys: impl Iterator<Item = K>, cycle: impl FnMut(K)) {
    assert_allocates(1, keys, cycle);
}

#[track_caller]
fn assert_allocates<K>(
    times: u64,
    mut keys: impl Iterator<Item = K>,
    mut cycle: impl FnMut(K),
) {
    keys.by_ref().take(2000).for_each(&mut cycle);
    let keys: Vec<K> = keys.take(2000).collect();
    let allocated = measure(|| keys.into_iter().for_each(&mut cycle));
    assert_eq!(allocated.count_total, 2000 * times, "{allocated:?}");
}

#[test]
fn cycle_of_numbers_allocates_nothing() {
    let queue = Queue::new();
    assert_allocates_nothing(0u64.., |key| {
        queue.add(key).unwrap();
        queue.get_blocking().unwrap().done();
    });
}

#[test]
fn cycle_of_strings_allocates_one_clone() {
    let queue = Queue::new();
    assert_allocates_one_clone((0..).map(|key: u32| key.to_string()), |key| {
        queue.add(key).unwrap();
        let lease = queue.get_blocking().unwrap();
        assert!(!lease.is_empty());
        lease.succeed();
    });
}

#[test]
fn loop_over_the_next_key_allocates_one_clone() {
    let queue = Queue::new();
    queue.add_all((0..10).map(|key: u32| key.to_string())).unwrap();
    let mut lease = queue.get_blocking();
    assert_allocates_one_clone((10..).map(|key: u32| key.to_string()), |key| {
        queue.add(key).unwrap();
        lease = lease.take().unwrap().next_blocking();
    });
}

#[test]
fn cycle_of_a_task_allocates_one_clone() {
    let queue = Queue::new();
    assert_allocates_one_clone((0..).map(|key: u32| key.to_string()), |key| {
        queue.add(key).unwrap();
        let mut get = std::pin::pin!(queue.get());
        let polled = get.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(lease)) = polled else { panic!("a key was added") };
        lease.done();
    });
}

#[test]
fn cycle_of_a_dirty_key_allocates_one_clone() {
    let queue = Queue::<String>::new();
    queue.add_ref("dirty").unwrap();
    assert_allocates_one_clone(0.., |_: u32| {
        let lease = queue.try_get().unwrap();
        queue.add_ref("dirty").unwrap();
        lease.done();
    });
}

#[test]
fn duplicate_given_by_reference_allocates_nothing() {
    let queue = Queue::<String>::new();
    queue.add_ref("namespace/name").unwrap();
    assert_allocates_nothing(0.., |_: u32| {
        queue.add_ref("namespace/name").unwrap();
    });
}

/// Bytes for each of a million keys that `fill` puts into the queue.
fn bytes_a_key<K>(queue: &Queue<K>, fill: impl FnOnce(&Queue<K>)) -> f64 {
    let allocated = measure(|| fill(queue));
    let bytes = u32::try_from(allocated.bytes_current).expect("less than 4 GB");
    f64::from(bytes) / f64::from(MILLION)
}

#[test]
fn ready_number_takes_at_most_40_bytes() {
    let bytes = bytes_a_key(&Queue::new(), |queue| {
        for key in 0..u64::from(MILLION) {
            queue.add(key).unwrap();
        }
    });
    println!("{bytes} bytes a ready key");
    assert!(bytes <= 40.0, "{bytes} bytes a key");
}

#[test]
fn delayed_number_takes_at_most_60_bytes() {
    let (queue, _clock) = timed(Queue::builder());
    let bytes = bytes_a_key(&queue, |queue| {
        for key in 0..u64::from(MILLION) {
            // Spread over a minute, in no order.
            queue
                .add_after(key, SECOND + Duration::from_micros(key * 7919 % 60_000_000))
                .unwrap();
        }
    });
    println!("{bytes} bytes a delayed key");
    assert!(bytes <= 60.0, "{bytes} bytes a key");
}

/// Bytes of a queue after `fill`, the queue itself included.
fn bytes_of_a_queue(fill: impl FnOnce(&Queue<u64>)) -> i64 {
    let mut kept = None;
    let allocated = measure(|| {
        let queue = Queue::new();
        fill(&queue);
        kept = Some(queue);
    });
    allocated.bytes_current
}

#[test]
fn idle_queue_takes_at_most_4_kilobytes() {
    let unused = bytes_of_a_queue(|_| ());
    let used = bytes_of_a_queue(|queue| {
        for key in 0..10_000 {
            queue.add(key % 10).unwrap();
            queue.get_blocking().unwrap().succeed();
        }
    });
    println!("{unused} bytes unused, {used} bytes used and idle");
    assert!(unused <= 4096 && used <= 4096, "{unused} and {used} bytes");
}

/// Each level of the wheel takes 4 kB, so a queue with one delayed key took 23 kB.
#[test]
fn queue_with_one_delayed_key_takes_at_most_4_kilobytes() {
    let delayed = bytes_of_a_queue(|queue| {
        queue.add_after(1, SECOND).unwrap();
    });
    let postponed = bytes_of_a_queue(|queue| {
        for micros in 0..10_000 {
            queue.postpone(1, Duration::from_micros(micros)).unwrap();
            queue.postpone(2, SECOND * 3600).unwrap();
        }
    });
    println!("{delayed} bytes delayed, {postponed} bytes postponed");
    assert!(delayed <= 4096 && postponed <= 4096, "{delayed} and {postponed} bytes");
}

/// Returns the memory that a queue keeps after a spike of this many keys.
fn bytes_after_a_spike(builder: Builder<u32>, keys: u32, delay: Duration) -> i64 {
    let (queue, clock) = timed(builder);
    let allocated = measure(|| {
        for key in 0..keys {
            queue.add_after(key, delay).unwrap();
        }
        clock.advance(delay);
        while let Ok(batch) = queue.try_get_many(1000) {
            batch.succeed();
        }
        // A queue that goes on working has time to tidy up.
        for key in 0..10_000 {
            queue.add(key).unwrap();
            queue.try_get().unwrap().done();
        }
    });
    allocated.bytes_current
}

#[test]
fn memory_is_given_back_after_a_spike() {
    let bytes = bytes_after_a_spike(Queue::builder(), MILLION, Duration::ZERO);
    assert!(bytes < 200_000, "{bytes} bytes are kept");
}

#[test]
fn memory_of_delayed_keys_is_given_back_after_a_spike() {
    let bytes = bytes_after_a_spike(Queue::builder(), MILLION, SECOND);
    assert!(bytes < 200_000, "{bytes} bytes are kept");
}

#[test]
fn memory_of_orders_is_given_back_after_a_spike() {
    let priority = Queue::builder().order(Priority::new());
    let bytes = bytes_after_a_spike(priority, MILLION / 8, Duration::ZERO);
    assert!(bytes < 400_000, "{bytes} bytes are kept");
    let fair = Queue::builder().order(Fair::by(|key: &u32| key % 1000));
    let bytes = bytes_after_a_spike(fair, MILLION / 8, Duration::ZERO);
    assert!(bytes < 400_000, "{bytes} bytes are kept");
}

#[test]
fn memory_is_given_back_while_some_keys_stay() {
    let queue = Queue::new();
    let allocated = measure(|| {
        queue.add_all(0..MILLION).unwrap();
        let first = queue.try_get_many(10).unwrap();
        while let Ok(batch) = queue.try_get_many(1000) {
            batch.done();
        }
        first.finish(requeue::Finish::RetryAfter(Duration::ZERO));
        // Memory is given back once as many keys have left as it has room for.
        for key in 0..100 {
            queue.add(MILLION + key).unwrap();
            assert!(queue.remove(&(MILLION + key)));
        }
    });
    assert_eq!(queue.len(), 10);
    let bytes = allocated.bytes_current;
    assert!(bytes < 200_000, "{bytes} bytes are kept for ten keys");
}

#[test]
fn failures_of_many_keys_are_bounded() {
    let (queue, _clock) = timed(Queue::builder().max_tracked(1000));
    let allocated = measure(|| {
        for key in 0..MILLION / 8 {
            queue.add_rate_limited(key).unwrap();
            queue.remove(&key);
        }
    });
    let bytes = allocated.bytes_current;
    assert!(bytes < 500_000, "{bytes} bytes for 1000 keys");
    assert_eq!(queue.num_requeues(&(MILLION / 8 - 1)), 1);
    assert_eq!(queue.num_requeues(&0), 0);
}

/// Parked getters once left room for as many behind, for the life of the queue.
#[test]
fn memory_of_parked_getters_is_given_back() {
    let queue = Queue::<u32>::new();
    let mut cx = Context::from_waker(Waker::noop());
    let allocated = measure(|| {
        let mut getters: Vec<_> = (0..10_000).map(|_| queue.get()).collect();
        let mut idle: Vec<_> = (0..10_000).map(|_| queue.wait_idle()).collect();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        for getter in &mut getters {
            assert!(std::pin::Pin::new(getter).poll(&mut cx).is_pending());
        }
        for watcher in &mut idle {
            assert!(std::pin::Pin::new(watcher).poll(&mut cx).is_pending());
        }
        drop((getters, idle));
        lease.done();
    });
    let left = allocated.bytes_current;
    assert!(left < 8192, "{left} bytes are left of 20,000 waiters");
}

#[test]
fn queue_that_is_dropped_leaves_nothing_behind() {
    let mut waiting = Vec::with_capacity(1);
    let allocated = measure(|| {
        let (queue, clock) = timed(Queue::builder().name("gone"));
        queue.add_all((0..100).map(|key: u32| key.to_string())).unwrap();
        queue.add_after("later".to_owned(), SECOND).unwrap();
        for lease in queue.try_get_many(50).unwrap() {
            lease.retry();
        }
        let lease = queue.try_get().unwrap();
        drop(queue.get());
        drop((queue, clock));
        waiting.push(lease.key().len());
        lease.retry();
    });
    assert_eq!((allocated.count_current, allocated.bytes_current), (0, 0));
}

/// Each way in which a key leaves the queue drops it.
#[test]
fn key_is_dropped_when_it_leaves_the_queue() {
    let key = Arc::new(7);
    let (queue, clock) = timed(Queue::builder().max_tracked(0));
    let held = || Arc::strong_count(&key) - 1;

    queue.add(Arc::clone(&key)).unwrap();
    queue.add(Arc::clone(&key)).unwrap();
    queue.add_after(Arc::clone(&key), SECOND).unwrap();
    assert_eq!(held(), 1, "a key is stored once, and a duplicate is dropped");
    let lease = queue.try_get().unwrap();
    queue.add_ref(&key).unwrap();
    assert_eq!(held(), 2, "its lease has a clone");
    lease.retry();
    assert_eq!(held(), 1);
    assert!(queue.remove(&key));
    assert_eq!(held(), 0, "removed, and its failures have no room");

    queue.add_rate_limited(Arc::clone(&key)).unwrap();
    clock.advance(SECOND);
    queue.try_get().unwrap().done();
    assert_eq!(held(), 0, "done");

    queue.add(Arc::clone(&key)).unwrap();
    queue.add_after(Arc::clone(&key), SECOND).unwrap();
    let undelivered = queue.close_now();
    assert_eq!((undelivered.len(), held()), (1, 1));
    drop(undelivered);
    let refused = queue.add(Arc::clone(&key));
    assert_eq!(held(), 1, "a refused key is returned");
    assert!(refused.is_err());
}

#[test]
fn keys_are_dropped_with_their_queue() {
    let key = |number| (number, Arc::new(()));
    let keys = [key(0), key(1), key(2)];
    let queue = Queue::new();
    queue.add(keys[0].clone()).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add(keys[0].clone()).unwrap();
    queue.add(keys[1].clone()).unwrap();
    queue.add_after(keys[2].clone(), SECOND).unwrap();
    drop(queue);
    drop(lease);
    assert!(keys.iter().all(|(_, held)| Arc::strong_count(held) == 1));
}
