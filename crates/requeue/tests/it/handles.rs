//! Handles of a queue: weak ones, borrowed keys, iterators and streams.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use requeue::{Added, Closed, GetTimeoutError, Lease, Queue, ToKey};

use crate::helpers::{Task, finished, ms, secs, take_all, timed};

#[test]
fn weak_handle_does_not_keep_the_queue_open() {
    let queue = Queue::new();
    let weak = queue.downgrade();
    let upgraded = weak.upgrade().unwrap();
    assert_eq!(upgraded.add(1), Ok(Added::Ready));
    drop(queue);
    assert!(!upgraded.is_closed(), "an upgraded handle keeps it open");
    assert_eq!(take_all(&upgraded), [1]);
    let mut waiting = Task::parked(upgraded.get());
    drop(upgraded);
    assert!(weak.clone().upgrade().is_none());
    assert!(waiting.output().is_none(), "the queue is closed");
}

/// A worker that held a strong handle to add keys kept its own queue open forever.
#[test]
fn worker_that_adds_keys_through_a_weak_handle_leaves() {
    let queue = Queue::<u32>::new();
    let weak = queue.downgrade();
    let worker = thread::spawn({
        let leases = queue.leases_blocking();
        move || {
            for lease in leases {
                if let Some(queue) = weak.upgrade().filter(|_| *lease < 10) {
                    queue.add(*lease + 1).unwrap();
                }
                lease.succeed();
            }
        }
    });
    queue.add(1).unwrap();
    queue.wait_idle_blocking();
    drop(queue);
    worker.join().unwrap();
}

#[test]
fn borrowed_forms_of_a_key_find_it() {
    let queue = Queue::<Arc<str>>::new();
    assert_eq!(queue.add_ref("a"), Ok(Added::Ready));
    assert_eq!(queue.add_ref("a"), Ok(Added::Duplicate));
    queue.try_get().unwrap().retry();
    assert_eq!(queue.num_requeues("a"), 1);
    queue.forget("a");
    assert_eq!((queue.num_requeues("a"), queue.contains("a")), (0, true));
    assert!(queue.remove("a"));
}

#[test]
fn slices_paths_and_keys_themselves_can_be_borrowed() {
    let bytes = Queue::<Box<[u8]>>::new();
    assert_eq!(bytes.add_ref(&b"key"[..]), Ok(Added::Ready));
    let paths = Queue::<Arc<Path>>::new();
    assert_eq!(paths.add_ref(Path::new("a/b")), Ok(Added::Ready));
    let numbers = Queue::<u64>::new();
    assert_eq!(numbers.add_ref(&7), Ok(Added::Ready));
    let owned: Vec<u8> = b"key"[..].to_key();
    assert_eq!(owned, b"key");
}

#[test]
fn extend_adds_keys_and_ignores_a_closed_queue() {
    let mut queue = Queue::new();
    queue.extend([1, 2]);
    (&queue).extend([2, 3]);
    assert_eq!(take_all(&queue), [1, 2, 3]);
    queue.close();
    queue.extend([4]);
    assert!(queue.is_empty());
}

#[test]
fn blocking_iterator_ends_when_the_queue_is_closed_and_empty() {
    let queue = Queue::new();
    queue.add_all(0..3).unwrap();
    queue.close();
    let mut keys: Vec<_> = queue.leases_blocking().map(finished).collect();
    keys.extend(queue.leases_blocking().map(finished));
    assert_eq!(keys, [0, 1, 2]);
}

#[test]
fn async_getter_with_a_timeout_returns_a_key_a_timeout_or_that_the_queue_is_closed() {
    let (queue, clock) = timed();
    let mut get = Task::parked(Box::pin(queue.get_timeout(secs(2))));
    clock.advance(secs(2));
    assert_eq!(get.output().unwrap_err(), GetTimeoutError::Timeout);
    assert_eq!((queue.parked(), clock.timers()), (0, 0));

    let mut get = Task::parked(Box::pin(queue.get_timeout(secs(2))));
    queue.add("a").unwrap();
    assert_eq!(finished(get.output().unwrap()), "a");

    let mut get = Task::parked(Box::pin(queue.get_timeout(secs(2))));
    queue.close();
    assert_eq!(get.output().unwrap_err(), GetTimeoutError::Closed);
}

/// The key and the timeout come at the same moment: the key must not be lost.
#[test]
fn key_that_is_due_at_the_timeout_is_delivered() {
    let (queue, clock) = timed();
    queue.add_after("a", ms(5)).unwrap();
    let mut get = Task::parked(Box::pin(queue.get_timeout(ms(5))));
    clock.advance(ms(5));
    assert_eq!(finished(get.output().unwrap()), "a");
}

#[test]
fn timeout_of_any_length_is_accepted() {
    let (queue, _clock) = timed::<u32>();
    let get = Task::parked(Box::pin(queue.get_timeout(std::time::Duration::MAX)));
    drop(get);
}

#[test]
fn async_drain_with_a_timeout_reports_what_is_left() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("later", secs(9)).unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Task::parked(Box::pin(queue.drain_timeout(secs(1))));
    clock.advance(secs(1));
    assert_eq!(drain.output().unwrap_err().left.processing, 1);
    lease.succeed();
    let mut drain = Task::new(Box::pin(queue.drain_timeout(secs(1))));
    assert_eq!(drain.output(), Ok(vec!["later"]));
}

#[test]
fn refused_key_comes_back() {
    let queue = Queue::new();
    queue.close();
    let closed = queue.add(String::from("a")).unwrap_err();
    assert_eq!(
        (closed.key().as_str(), format!("{closed:?}")),
        ("a", "Closed { .. }".into())
    );
    assert_eq!(queue.add_all(["b".into(), "c".into()]).map_err(Closed::into_key), {
        Err(vec![String::from("b"), String::from("c")])
    });
}

/// The iterator of `add_all` closes the queue between two chunks.
#[test]
fn queue_that_closes_during_add_all_returns_the_rest() {
    let queue = Queue::new();
    let closes_late = (0..3000).inspect(|key| {
        if *key == 2000 {
            queue.close();
        }
    });
    let rest = queue.add_all(closes_late).unwrap_err().into_key();
    let added = take_all(&queue);
    assert_eq!(added.len() + rest.len(), 3000);
    assert!(added.into_iter().chain(rest).eq(0..3000));
}

#[cfg(feature = "futures")]
#[test]
fn stream_yields_leases_until_the_queue_is_closed_and_empty() {
    use futures::StreamExt;

    let queue = Queue::new();
    queue.add_all(0..3).unwrap();
    queue.close();
    let keys = queue.leases().map(finished).collect::<Vec<_>>();
    assert_eq!(futures::executor::block_on(keys), [0, 1, 2]);
}

#[cfg(feature = "futures")]
#[test]
fn dropped_stream_loses_no_key() {
    use futures::StreamExt;

    let queue = Queue::new();
    let mut stream = queue.leases();
    let next = Task::parked(stream.next());
    queue.add(1).unwrap();
    drop(next);
    drop(stream);
    assert_eq!((take_all(&queue), queue.parked()), (vec![1], 0));
}

#[cfg(feature = "serde")]
#[test]
fn plain_data_can_be_serialized() {
    use requeue::{AddOptions, Counts, Finish};
    use serde_json::{from_value, json, to_value};

    let counts = Counts { ready: 1, delayed: 2, processing: 3, dirty: 4 };
    let value = json!({"ready": 1, "delayed": 2, "processing": 3, "dirty": 4});
    assert_eq!(to_value(counts).unwrap(), value);
    assert_eq!(from_value::<Counts>(value).unwrap(), counts);
    for finish in [Finish::Succeed, Finish::RetryAfter(secs(3))] {
        assert_eq!(from_value::<Finish>(to_value(finish).unwrap()).unwrap(), finish);
    }
    let options = AddOptions::new().priority(3).after(secs(1));
    let value = to_value(options).unwrap();
    assert_eq!(from_value::<AddOptions>(value).unwrap(), options);
}

#[test]
fn lease_can_be_finished_by_a_function() {
    let queue = Queue::new();
    queue.add_all(0..3).unwrap();
    queue.try_get_many(3).unwrap().into_iter().for_each(Lease::succeed);
    assert!(queue.is_empty());
}
