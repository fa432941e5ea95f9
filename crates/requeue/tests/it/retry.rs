//! A failing key waits longer each time, and each key counts separately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use requeue::retry::{ByCount, Exponential, RetryPolicy};
use requeue::{AddOptions, Added, Counts, Queue};

use crate::helpers::{ms, secs, take_all, timed, timed_with};

/// Returns the delays after the first failures of a key.
fn delays(queue: &Queue<u32>, failures: usize) -> Vec<Duration> {
    let fail = |_| {
        queue.add(7).expect("the queue is open");
        let lease = queue.try_get().expect("a key was added");
        let delay = lease.retry();
        queue.remove(&7);
        delay
    };
    (0..failures).map(fail).collect()
}

#[test]
fn default_policy_doubles_from_5_ms_to_1000_s() {
    let (queue, _clock) = timed();
    let mut expected: Vec<_> = (0..18).map(|n| ms(5 << n)).collect();
    expected.extend([secs(1000); 3]);
    assert_eq!(expected[17], Duration::from_secs_f64(655.36));
    assert_eq!(delays(&queue, 21), expected);
    assert_eq!(queue.num_requeues(&7), 21);
}

#[test]
fn failures_of_one_key_do_not_delay_another() {
    let (queue, _clock) = timed();
    delays(&queue, 5);
    queue.add(8).unwrap();
    assert_eq!(queue.try_get().unwrap().retry(), ms(5));
    assert_eq!((queue.num_requeues(&7), queue.num_requeues(&8)), (5, 1));
}

#[test]
fn forget_only_resets_the_failures() {
    let (queue, clock) = timed();
    queue.add_rate_limited(1).unwrap();
    queue.add_rate_limited(1).unwrap();
    queue.forget(&1);
    queue.forget(&2);
    assert_eq!(queue.num_requeues(&1), 0);
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(ms(5));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.num_requeues(), 0);
    assert_eq!(lease.retry(), ms(5));
}

#[test]
fn rate_limited_add_counts_a_failure_and_delays() {
    let (queue, clock) = timed();
    assert_eq!(queue.add_rate_limited(1), Ok(Added::Delayed));
    assert_eq!(queue.num_requeues(&1), 1);
    assert_eq!(queue.add_rate_limited(1), Ok(Added::Duplicate), "5 ms is before 10 ms");
    assert_eq!(queue.num_requeues(&1), 2);
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [1]);
    queue.add_rate_limited(1).unwrap();
    clock.advance(Duration::from_nanos(19_999_999));
    assert_eq!(queue.len(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(queue.len(), 1);
}

#[test]
fn earlier_of_a_delay_and_a_retry_wins() {
    let (queue, clock) = timed();
    let limited = AddOptions::new().rate_limited(true);
    queue.add_with(1, limited.after(ms(1))).unwrap();
    queue.add_with(2, limited.after(ms(100))).unwrap();
    assert_eq!(queue.add_with(3, limited.after(Duration::ZERO)), Ok(Added::Ready));
    assert_eq!(take_all(&queue), [3]);
    clock.advance(ms(1));
    assert_eq!(take_all(&queue), [1]);
    clock.advance(ms(4));
    assert_eq!(take_all(&queue), [2]);
    assert_eq!(queue.num_requeues(&3), 1);
}

#[test]
fn policy_is_chosen_by_the_builder() {
    let policy = Exponential::new(secs(1), secs(3));
    let (queue, _clock) = timed_with(Queue::builder().retry(policy));
    assert_eq!(delays(&queue, 4), [secs(1), secs(2), secs(3), secs(3)]);
}

#[test]
fn failures_of_keys_that_are_not_in_the_queue_are_bounded() {
    let (queue, _clock) = timed_with(Queue::builder().max_tracked(2));
    for key in 0..4 {
        queue.add(key).unwrap();
        queue.try_get().unwrap().retry();
        queue.remove(&key);
    }
    let failures: Vec<_> = (0..4).map(|key| queue.num_requeues(&key)).collect();
    assert_eq!(failures, [0, 0, 1, 1], "the oldest are forgotten");
}

#[test]
fn failures_of_keys_in_the_queue_are_not_bounded() {
    let (queue, clock) = timed_with(Queue::builder().max_tracked(0));
    for key in 0..100 {
        queue.add_rate_limited(key).unwrap();
    }
    assert!((0..100).all(|key| queue.num_requeues(&key) == 1));
    clock.advance(ms(5));
    let batch = queue.try_get_many(100).unwrap();
    assert!((0..100).all(|key| queue.num_requeues(&key) == 1));
    batch.done();
    assert!((0..100).all(|key| queue.num_requeues(&key) == 0));
}

/// A policy that is not by count, and calls the queue from each of its methods.
#[derive(Clone, Default)]
struct CallsQueue {
    queue: Arc<OnceLock<Queue<u32>>>,
    failures: Arc<Mutex<HashMap<u32, u32>>>,
}

impl CallsQueue {
    fn look(&self) -> usize {
        self.queue.get().map_or(0, Queue::len)
    }

    fn with<R>(&self, change: impl FnOnce(&mut HashMap<u32, u32>) -> R) -> R {
        self.look();
        change(&mut self.failures.lock().expect("no test panics with this lock"))
    }
}

impl RetryPolicy<u32> for CallsQueue {
    fn when(&self, key: &u32) -> Duration {
        let failures = self.with(|failures| {
            let count = failures.entry(*key).or_default();
            *count += 1;
            *count
        });
        secs(u64::from(failures))
    }

    fn forget(&self, key: &u32) {
        self.with(|failures| failures.remove(key));
    }

    fn num_requeues(&self, key: &u32) -> u32 {
        self.with(|failures| failures.get(key).copied().unwrap_or(0))
    }
}

#[test]
fn user_policy_is_called_without_the_lock() {
    let policy = CallsQueue::default();
    let (queue, clock) = timed_with(Queue::builder().retry(policy.clone()));
    assert!(policy.queue.set(queue.clone()).is_ok());
    queue.add(1).unwrap();
    assert_eq!(queue.try_get().unwrap().retry(), secs(1));
    assert_eq!(queue.add_rate_limited(2), Ok(Added::Delayed));
    clock.advance(secs(1));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.num_requeues(), 1);
    let lease = lease.next_blocking_with(requeue::Finish::Retry).unwrap();
    assert_eq!((*lease, queue.num_requeues(&1)), (2, 2));
    lease.succeed();
    assert_eq!(queue.num_requeues(&2), 0);
    clock.advance(secs(2));
    queue.try_get_many(1).unwrap().finish(requeue::Finish::Retry);
    assert_eq!(queue.num_requeues(&1), 3);
    queue.forget(&1);
    assert_eq!(queue.num_requeues(&1), 0);
    clock.advance(secs(3));
    queue.try_get().unwrap().retry_after(secs(9));
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}

#[test]
fn policy_that_does_not_count_reports_no_failures() {
    struct Constant;
    impl RetryPolicy<u32> for Constant {
        fn when(&self, _: &u32) -> Duration {
            secs(2)
        }
        fn forget(&self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            0
        }
        fn by_count(&self) -> Option<&dyn ByCount> {
            Some(self)
        }
    }
    impl ByCount for Constant {
        fn delay(&self, _: u32) -> Duration {
            secs(2)
        }
        fn counts(&self) -> bool {
            false
        }
    }
    let (queue, _clock) = timed_with(Queue::builder().retry(Constant));
    assert_eq!(delays(&queue, 3), [secs(2); 3]);
    assert_eq!(queue.num_requeues(&7), 0);
}

#[test]
fn delay_of_zero_makes_the_key_ready_at_once() {
    let policy = Exponential::new(Duration::ZERO, Duration::ZERO);
    let (queue, _clock) = timed_with(Queue::builder().retry(policy));
    queue.add(1).unwrap();
    assert_eq!(queue.try_get().unwrap().retry(), Duration::ZERO);
    assert_eq!(queue.add_rate_limited(2), Ok(Added::Ready));
    assert_eq!(take_all(&queue), [1, 2]);
    assert_eq!((queue.num_requeues(&1), queue.num_requeues(&2)), (1, 1));
}

#[test]
fn endless_delay_does_not_panic() {
    let policy = Exponential::new(Duration::MAX, Duration::MAX);
    let (queue, clock) = timed_with(Queue::builder().retry(policy));
    queue.add(1).unwrap();
    assert!(queue.try_get().unwrap().retry() > secs(18_000_000_000));
    queue.add_rate_limited(1).unwrap();
    clock.advance(secs(1_000_000_000));
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}
