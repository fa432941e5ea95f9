//! Keys are delivered in the order in which they became ready.

use requeue::{Added, Queue};

use crate::helpers::{secs, take_all, timed};

#[test]
fn keys_are_delivered_in_the_order_of_adding() {
    let queue = Queue::new();
    for key in [3, 1, 2] {
        assert_eq!(queue.add(key), Ok(Added::Ready));
    }
    assert_eq!(take_all(&queue), [3, 1, 2]);
}

#[test]
fn ready_key_keeps_its_position_when_it_is_added_again() {
    let queue = Queue::new();
    queue.add_all(["a", "b"]).unwrap();
    assert_eq!(queue.add("a"), Ok(Added::Duplicate));
    assert_eq!(take_all(&queue), ["a", "b"]);
}

#[test]
fn key_added_while_processing_goes_to_the_tail_when_it_is_done() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    queue.add("b").unwrap();
    assert_eq!(queue.len(), 1);
    lease.done();
    queue.add("c").unwrap();
    assert_eq!(take_all(&queue), ["b", "a", "c"]);
}

#[test]
fn key_retried_without_delay_goes_to_the_tail() {
    let queue = Queue::new();
    queue.add_all(["a", "b"]).unwrap();
    queue.try_get().unwrap().retry_after(secs(0));
    assert_eq!(take_all(&queue), ["b", "a"]);
}

#[test]
fn keys_with_equal_deadlines_are_delivered_in_the_order_of_adding() {
    let (queue, clock) = timed();
    for key in (0..100).rev() {
        queue.add_after(key, secs(1)).unwrap();
    }
    clock.advance(secs(1));
    assert_eq!(take_all(&queue), (0..100).rev().collect::<Vec<_>>());
}

#[test]
fn due_key_is_delivered_after_keys_that_were_ready_before_it() {
    let (queue, clock) = timed();
    queue.add_after("late", secs(1)).unwrap();
    queue.add("first").unwrap();
    clock.advance(secs(1));
    queue.add("last").unwrap();
    assert_eq!(take_all(&queue), ["first", "late", "last"]);
}

#[test]
fn batches_take_and_add_in_order() {
    let queue = Queue::new();
    let added = queue.add_all(0..5000).unwrap();
    assert_eq!(added.ready, 5000);
    let first = queue.try_get_many(3000).unwrap();
    assert!(first.keys().copied().eq(0..3000));
    let second = queue.try_get_many(3000).unwrap();
    assert!(second.keys().copied().eq(3000..5000));
}
