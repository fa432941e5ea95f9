//! A lease is exclusive access to its key, and ends in one of seven ways.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use requeue::{Counts, Finish, Queue};

use crate::helpers::{Task, ms, secs, take_all, timed, timed_with};

#[test]
fn lease_dereferences_to_its_key() {
    let queue = Queue::new();
    queue.add("key".to_owned()).unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.key(), "key");
    assert_eq!(lease.len(), 3);
    assert_eq!((lease.priority(), lease.num_requeues()), (0, 0));
}

#[test]
fn dropped_lease_is_retried_with_backoff() {
    let (queue, clock) = timed();
    queue.add(1).unwrap();
    for delay in [5, 10, 20] {
        drop(queue.try_get().unwrap());
        assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
        clock.advance(ms(delay - 1));
        assert_eq!(queue.len(), 0);
        clock.advance(ms(1));
    }
    assert_eq!((queue.len(), queue.num_requeues(&1)), (1, 3));
}

#[test]
fn dropped_batch_is_retried() {
    let (queue, clock) = timed();
    queue.add_all(0..3).unwrap();
    drop(queue.try_get_many(3).unwrap());
    assert_eq!(queue.counts(), Counts { delayed: 3, ..Counts::default() });
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [0, 1, 2]);
    assert_eq!(queue.num_requeues(&1), 1);
}

#[test]
fn dropped_lease_ends_as_the_builder_says() {
    for (finish, ready, failures) in [(Finish::Release, 1, 0), (Finish::Done, 0, 0)] {
        let (queue, _clock) = timed_with(Queue::builder().on_drop(finish));
        queue.add(1).unwrap();
        drop(queue.try_get().unwrap());
        drop(queue.try_get_many(1));
        let counts = Counts { ready, ..Counts::default() };
        assert_eq!((queue.counts(), queue.num_requeues(&1)), (counts, failures));
    }
}

#[test]
fn requeued_key_runs_again_and_has_no_failures() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ms(5));
    queue.try_get().unwrap().requeue_after(secs(30));
    assert_eq!(queue.num_requeues(&"a"), 0);
    clock.advance(secs(30));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn released_key_is_ready_again_and_keeps_its_failures() {
    let (queue, clock) = timed();
    queue.add_all(["a", "b"]).unwrap();
    queue.try_get().unwrap().retry();
    queue.try_get().unwrap().done();
    clock.advance(ms(5));
    let lease = queue.try_get().unwrap();
    queue.add("b").unwrap();
    lease.release();
    assert_eq!(queue.num_requeues(&"a"), 1);
    assert_eq!(take_all(&queue), ["b", "a"], "the released key goes to the tail");
}

#[test]
fn key_that_is_given_up_is_not_retried_and_starts_afresh() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ms(5));
    queue.try_get().unwrap().give_up();
    assert_eq!((queue.counts(), queue.num_requeues(&"a")), (Counts::default(), 0));
}

#[test]
fn closed_queue_returns_keys_that_are_retried_requeued_or_released() {
    let (queue, _clock) = timed();
    queue.add_all(0..4).unwrap();
    let leases = queue.try_get_many(4).unwrap();
    queue.close();
    let finishes = [
        Finish::Retry,
        Finish::RetryAfter(secs(1)),
        Finish::RequeueAfter(secs(0)),
        Finish::Release,
    ];
    leases.into_iter().zip(finishes).for_each(|(lease, finish)| lease.finish(finish));
    let mut left = queue.drain_blocking();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3]);
}

#[test]
fn done_remembers_failures_and_succeed_forgets_them() {
    let (queue, clock) = timed();
    queue.add(1).unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ms(5));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.num_requeues(), 1);
    lease.done();
    assert_eq!(queue.num_requeues(&1), 1);
    assert!(!queue.contains(&1));
    queue.add(1).unwrap();
    queue.try_get().unwrap().succeed();
    assert_eq!(queue.num_requeues(&1), 0);
}

#[test]
fn retried_key_is_ready_after_the_delay_that_retry_returns() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let delay = queue.try_get().unwrap().retry();
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(delay);
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn retry_after_counts_a_failure() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ms(5));
    queue.try_get().unwrap().retry_after(secs(30));
    assert_eq!(queue.num_requeues(&"a"), 2);
    clock.advance(secs(30));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn dirty_key_that_is_retried_runs_at_once_and_again_after_its_delay() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    let delay = lease.retry();
    assert_eq!(queue.counts(), Counts { ready: 1, delayed: 1, ..Counts::default() });
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(delay);
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn lease_dropped_by_a_panic_is_retried() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let work = || {
        let _lease = queue.try_get().unwrap();
        panic!("the work failed");
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    assert_eq!(queue.num_requeues(&"a"), 1);
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn batch_dropped_by_a_panic_is_retried() {
    let (queue, _clock) = timed();
    queue.add_all(["a", "b"]).unwrap();
    let work = || {
        let _batch = queue.try_get_many(2).unwrap();
        panic!("the work failed");
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    assert_eq!(queue.counts(), Counts { delayed: 2, ..Counts::default() });
    assert_eq!(queue.num_requeues(&"b"), 1);
}

#[test]
fn lease_moves_into_another_thread() {
    let queue = Queue::new();
    queue.add("a".to_owned()).unwrap();
    let lease = queue.try_get().unwrap();
    let len = thread::spawn(move || {
        let len = lease.len();
        lease.succeed();
        len
    });
    assert_eq!(len.join().unwrap(), 1);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn lease_moves_into_a_task() {
    let queue = Queue::new();
    queue.add("a".to_owned()).unwrap();
    let lease = queue.try_get().unwrap();
    let task: Box<dyn Future<Output = ()> + Send> = Box::new(async move {
        assert_eq!(lease.key(), "a");
        lease.done();
    });
    futures_executor::block_on(Box::into_pin(task));
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn key_of_an_aborted_task_is_retried() {
    let queue = Queue::new();
    queue.add("a".to_owned()).unwrap();
    let lease = queue.try_get().unwrap();
    let task = async move {
        std::future::pending::<()>().await;
        lease.succeed();
    };
    let mut task = Task::parked(Box::pin(task));
    assert!(task.poll().is_pending());
    drop(task);
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}

#[test]
fn next_ends_a_lease_and_takes_the_next_key() {
    let queue = Queue::new();
    queue.add_all(["a", "b"]).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    let lease = lease.next_blocking().unwrap();
    assert_eq!(*lease, "b");
    let lease = Task::new(lease.next()).output().unwrap();
    assert_eq!(*lease, "a", "it was dirty");
    queue.close();
    assert!(lease.next_blocking().is_none());
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn next_waits_for_a_key() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let mut next = Task::parked(queue.try_get().unwrap().next());
    assert_eq!(queue.counts(), Counts::default(), "the lease ends with the first poll");
    queue.add("b").unwrap();
    assert_eq!(*next.output().unwrap(), "b");
}

#[test]
fn next_that_is_dropped_unpolled_ends_its_lease() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let next = queue.try_get().unwrap().next_with(Finish::Retry);
    assert_eq!(queue.counts().processing, 1);
    drop(next);
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
}

#[test]
fn next_with_ends_the_lease_as_requested() {
    let (queue, _clock) = timed();
    queue.add_all(0..5).unwrap();
    let lease = queue.try_get().unwrap();
    let lease = lease.next_blocking_with(Finish::Retry).unwrap();
    let lease = Task::new(lease.next_with(Finish::RetryAfter(secs(1)))).output().unwrap();
    let lease = lease.next_blocking_with(Finish::Succeed).unwrap();
    let lease = lease.next_blocking_with(Finish::Done).unwrap();
    assert_eq!(*lease, 4);
    assert_eq!((queue.num_requeues(&0), queue.num_requeues(&1)), (1, 1));
    assert_eq!(queue.counts(), Counts { delayed: 2, processing: 1, ..Counts::default() });
}

#[test]
fn key_retried_without_delay_can_be_the_next_key() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let lease = lease.next_blocking_with(Finish::RetryAfter(secs(0))).unwrap();
    assert_eq!(*lease, "a");
}

#[test]
fn finish_covers_every_method() {
    let (queue, _clock) = timed();
    queue.add_all(0..4).unwrap();
    let ends =
        [Finish::Done, Finish::Succeed, Finish::Retry, Finish::RetryAfter(secs(9))];
    for finish in ends {
        queue.try_get().unwrap().finish(finish);
    }
    assert_eq!(queue.counts(), Counts { delayed: 2, ..Counts::default() });
    assert_eq!(queue.num_requeues(&2), 1);
}

#[test]
fn batch_takes_at_most_the_requested_number() {
    let queue = Queue::new();
    queue.add_all(0..5).unwrap();
    let batch = queue.try_get_many(3).unwrap();
    assert_eq!((batch.len(), batch.is_empty()), (3, false));
    assert_eq!(batch.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(queue.counts().processing, 3);
    batch.done();
    let rest = queue.get_many_blocking(10).unwrap();
    assert_eq!(rest.len(), 2);
}

#[test]
fn batch_of_zero_keys_does_not_wait() {
    let queue = Queue::<u32>::new();
    assert!(queue.try_get_many(0).unwrap().is_empty());
    assert!(queue.get_many_blocking(0).unwrap().is_empty());
    assert!(Task::new(queue.get_many(0)).output().unwrap().is_empty());
    let no_key = queue.try_get_many(1).unwrap_err();
    assert_eq!(no_key, requeue::TryGetError::Empty);
}

#[test]
fn batch_waits_for_one_key_and_takes_all_ready_ones() {
    let queue = Queue::new();
    let mut batch = Task::parked(queue.get_many(10));
    queue.add_all(0..3).unwrap();
    assert_eq!(batch.wakes(), 1);
    assert_eq!(batch.output().unwrap().len(), 3);
}

#[test]
fn batch_ends_as_a_whole_or_key_by_key() {
    let (queue, _clock) = timed();
    queue.add_all(0..4).unwrap();
    queue.try_get_many(2).unwrap().finish(Finish::Retry);
    assert_eq!((queue.num_requeues(&0), queue.num_requeues(&1)), (1, 1));
    for lease in queue.try_get_many(2).unwrap() {
        let finish = if *lease == 2 { Finish::Succeed } else { Finish::Retry };
        lease.finish(finish);
    }
    assert_eq!((queue.num_requeues(&2), queue.num_requeues(&3)), (0, 1));
    assert_eq!(queue.counts(), Counts { delayed: 3, ..Counts::default() });
}

#[test]
fn rest_of_a_batch_that_is_not_iterated_is_retried() {
    let queue = Queue::new();
    queue.add_all(0..4).unwrap();
    let mut leases = queue.try_get_many(4).unwrap().into_iter();
    let first = leases.next().unwrap();
    drop(leases);
    assert_eq!(queue.counts().processing, 1);
    first.done();
}

#[test]
fn dirty_keys_of_a_batch_run_again() {
    let queue = Queue::new();
    queue.add_all(0..3).unwrap();
    let batch = queue.try_get_many(3).unwrap();
    queue.add(1).unwrap();
    batch.succeed();
    assert_eq!(take_all(&queue), [1]);
}
