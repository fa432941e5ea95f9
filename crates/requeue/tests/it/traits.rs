//! Auto traits of the public types, and their `Debug` output.

use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};

use requeue::order::{Fair, Fifo, Order, Priority};
use requeue::testing::FakeClock;
use requeue::{
    AddOptions, Added, AddedAll, Batch, Builder, Closed, Counts, Drain, DrainTimeout,
    Finish, Get, GetMany, GetTimeoutError, Lease, LeasesBlocking, Queue, SystemClock,
    TryGetError, WaitIdle, WeakQueue,
};

use crate::helpers::{Task, secs, timed};

fn shareable<T: Send + Sync + Unpin + Debug + 'static>() {}
fn sendable<T: Send + Debug + 'static>() {}
fn value<T: Copy + Eq + Send + Sync + Debug + 'static>() {}
fn future<F: Future + Send + Unpin + 'static>(_: &F) {}

#[test]
fn handles_leases_and_futures_can_be_moved_and_shared_between_threads() {
    shareable::<Queue<String>>();
    shareable::<Lease<String>>();
    shareable::<Batch<String>>();
    shareable::<WeakQueue<String>>();
    shareable::<LeasesBlocking<String>>();
    shareable::<Closed<String>>();
    #[cfg(feature = "futures")]
    sendable::<requeue::Leases<String>>();
    sendable::<Builder<String>>();
    sendable::<Get<String>>();
    sendable::<GetMany<String>>();
    sendable::<Drain<String>>();
    sendable::<WaitIdle<String>>();
    let queue = Queue::<String>::new();
    future(&queue.get());
    future(&queue.get_many(1));
    future(&queue.drain());
    future(&queue.wait_idle());
    future(&Box::pin(queue.get_timeout(secs(1))));
    future(&Box::pin(queue.drain_timeout(secs(1))));
}

#[test]
fn handles_can_be_cloned_if_the_key_cannot() {
    #[derive(PartialEq, Eq, Hash)]
    struct Unclonable;
    let queue = Queue::default();
    let other = queue.clone();
    queue.add(Unclonable).unwrap();
    assert_eq!(other.len(), 1);
}

#[test]
fn plain_data_is_copy() {
    value::<Added>();
    value::<AddedAll>();
    value::<Counts>();
    value::<AddOptions>();
    value::<Finish>();
    value::<TryGetError>();
    value::<GetTimeoutError>();
    value::<Closed>();
    value::<DrainTimeout>();
    value::<SystemClock>();
    shareable::<FakeClock>();
}

#[test]
fn orders_can_be_boxed() {
    fn order<O: Order<u32> + Debug + 'static>() {}
    order::<Fifo>();
    order::<Priority>();
    order::<Fair<u32, u32>>();
    let boxed: Box<dyn Order<u32>> = Box::new(Priority::new());
    let queue = Queue::builder().order(boxed).build();
    queue.add_with(1, AddOptions::new().priority(-1)).unwrap();
    queue.add(2).unwrap();
    assert_eq!(*queue.try_get().unwrap(), 2);
}

#[test]
fn key_needs_no_debug_and_no_default() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Opaque(u32);
    let queue = Queue::new();
    queue.add(Opaque(1)).unwrap();
    assert_eq!(queue.try_get().unwrap().0, 1);
    assert!(format!("{queue:?}").starts_with("Queue"));
}

#[test]
fn errors_are_unwind_safe() {
    fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}
    unwinds::<TryGetError>();
    unwinds::<Added>();
}

#[test]
fn debug_shows_counts_and_never_keys() {
    let (queue, _clock) = timed();
    let keys = ["secret-ready", "secret-delayed", "secret-processing"];
    queue.add(keys[2]).unwrap();
    let batch = queue.try_get_many(1).unwrap();
    queue.add_all([keys[2], keys[0]]).unwrap();
    queue.add_after(keys[1], secs(1)).unwrap();
    let get = queue.get();
    let waiting = Task::parked(queue.wait_idle());
    let shown = [
        format!("{queue:?}"),
        format!("{batch:?}"),
        format!("{get:?}"),
        format!("{:?}", queue.get_many(3)),
        format!("{:?}", queue.drain()),
        format!("{:?}", queue.wait_idle()),
        format!("{:?}", Builder::<String>::default().name("named")),
    ];
    drop(waiting);
    assert!(shown.iter().all(|text| !text.contains("secret")), "{shown:?}");
    let counts =
        "Queue { name: \"\", ready: 1, delayed: 1, processing: 1, dirty: 1, .. }";
    assert_eq!(shown[0], counts);
    assert_eq!(shown[1], "Batch { len: 1, .. }");
    assert_eq!(shown[2], "Get { parked: false, .. }");
    assert_eq!(shown[3], "GetMany { max: 3, .. }");
    assert!(shown[6].contains("named"));
}

#[test]
fn lease_shows_its_key() {
    let queue = Queue::new();
    queue.add("key").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(format!("{lease:?}"), "Lease { key: \"key\", priority: 0 }");
}

#[test]
fn builder_names_the_queue() {
    let queue = Queue::<u32>::builder().name("deployments").capacity(100).build();
    assert_eq!(queue.name(), "deployments");
    assert_eq!(Queue::<u32>::new().name(), "");
}

/// A capacity beyond the memory of the machine once panicked. It is only a hint.
#[test]
fn capacity_of_any_size_is_accepted() {
    let queue = Queue::builder().capacity(usize::MAX).max_tracked(usize::MAX).build();
    assert_eq!(queue.add(1), Ok(Added::Ready));
}
