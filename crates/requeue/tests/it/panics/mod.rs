//! User code that panics leaves the queue usable and loses no other key.

mod clock;
mod order;
mod policy;
mod stress;
mod waker;

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use requeue::metrics::{Metrics, Probe, Recorder};
use requeue::{Added, Counts, Queue};

use crate::helpers::{Task, secs, take_all, timed_with};

/// A key whose code panics while its fuse is lit.
#[derive(Debug)]
struct Bomb {
    number: u32,
    fuses: Arc<Fuses>,
}

#[derive(Debug, Default)]
struct Fuses {
    hash: Fuse,
    eq: Fuse,
    clone: Fuse,
}

#[derive(Debug, Default)]
struct Fuse(AtomicBool);

impl Fuse {
    fn light(&self, burns: bool) {
        self.0.store(burns, Ordering::SeqCst);
    }

    fn check(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "a key that panics, on purpose");
    }
}

impl Hash for Bomb {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuses.hash.check();
        // All keys collide, so that each probe compares.
        0.hash(state);
    }
}

impl PartialEq for Bomb {
    fn eq(&self, other: &Self) -> bool {
        self.fuses.eq.check();
        self.number == other.number
    }
}

impl Eq for Bomb {}

impl Clone for Bomb {
    fn clone(&self) -> Self {
        self.fuses.clone.check();
        Self { number: self.number, fuses: Arc::clone(&self.fuses) }
    }
}

/// A queue with keys 0 and 1 ready, 2 processing, 3 delayed; and a way to make keys.
fn loaded() -> (Queue<Bomb>, requeue::Lease<Bomb>, Arc<Fuses>) {
    let fuses = Arc::new(Fuses::default());
    let queue = Queue::new();
    queue.add(bomb(&fuses, 2)).unwrap();
    let lease = queue.try_get().expect("a key was added");
    queue.add_all([bomb(&fuses, 0), bomb(&fuses, 1)]).unwrap();
    queue.add_after(bomb(&fuses, 3), secs(3600)).unwrap();
    (queue, lease, fuses)
}

fn bomb(fuses: &Arc<Fuses>, number: u32) -> Bomb {
    Bomb { number, fuses: Arc::clone(fuses) }
}

#[track_caller]
fn assert_panics<R>(action: impl FnOnce() -> R) {
    let result = catch_unwind(AssertUnwindSafe(action));
    assert!(result.is_err(), "it did not panic");
}

/// Runs every call that takes a key.
fn call_all(queue: &Queue<Bomb>, fuses: &Arc<Fuses>, number: u32) {
    let key = || bomb(fuses, number);
    assert_panics(|| queue.add(key()));
    assert_panics(|| queue.add_ref(&key()));
    assert_panics(|| queue.add_all([key()]));
    assert_panics(|| queue.add_after(key(), secs(1)));
    assert_panics(|| queue.add_rate_limited(key()));
    assert_panics(|| queue.postpone(key(), secs(1)));
    assert_panics(|| queue.remove(&key()));
    assert_panics(|| queue.contains(&key()));
    assert_panics(|| queue.forget(&key()));
    assert_panics(|| queue.num_requeues(&key()));
}

#[track_caller]
fn assert_whole(queue: &Queue<Bomb>, lease: requeue::Lease<Bomb>, fuses: &Arc<Fuses>) {
    let counts = Counts { ready: 2, delayed: 1, processing: 1, dirty: 0 };
    assert_eq!(queue.counts(), counts);
    assert_eq!(queue.add(bomb(fuses, 0)), Ok(Added::Duplicate));
    assert_eq!(queue.add(bomb(fuses, 2)), Ok(Added::Dirty));
    assert_eq!(queue.add(bomb(fuses, 9)), Ok(Added::Ready));
    lease.done();
    let numbers: Vec<_> = queue.close_now().iter().map(|key| key.number).collect();
    assert_eq!(numbers, [0, 1, 9, 2, 3]);
}

#[test]
fn panicking_hash_leaves_the_queue_as_it_was() {
    let (queue, lease, fuses) = loaded();
    fuses.hash.light(true);
    for number in [0, 2, 3, 5] {
        call_all(&queue, &fuses, number);
    }
    fuses.hash.light(false);
    assert_whole(&queue, lease, &fuses);
}

#[test]
fn panicking_eq_leaves_the_queue_as_it_was() {
    let (queue, lease, fuses) = loaded();
    fuses.eq.light(true);
    for number in [0, 2, 3, 5] {
        call_all(&queue, &fuses, number);
    }
    fuses.eq.light(false);
    assert_whole(&queue, lease, &fuses);
}

#[test]
fn panicking_clone_of_a_borrowed_key_leaves_the_queue_as_it_was() {
    let (queue, lease, fuses) = loaded();
    fuses.clone.light(true);
    assert_panics(|| queue.add_ref(bomb(&fuses, 5).borrow()));
    assert_eq!(queue.add_ref(&bomb(&fuses, 0)), Ok(Added::Duplicate), "it is not cloned");
    fuses.clone.light(false);
    assert_whole(&queue, lease, &fuses);
}

/// Keys are hashed before the lock is taken, about a thousand at a time. Those added before
/// the panic stay.
#[test]
fn panicking_hash_among_many_keys_keeps_what_was_added_before() {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Fused(u32);
    impl Hash for Fused {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert_ne!(self.0, 2500, "a key that panics, on purpose");
            self.0.hash(state);
        }
    }
    let queue = Queue::new();
    assert_panics(|| queue.add_all((0..3000).map(Fused)));
    let added = take_all(&queue);
    assert!((1000..2500).contains(&added.len()), "{} keys were added", added.len());
    assert!(added.into_iter().zip(0..).all(|(key, number)| key.0 == number));
    assert_eq!(queue.add_all((0..2500).map(Fused)).unwrap().ready, 2500);
}

#[test]
fn getters_are_woken_after_a_panic() {
    let (queue, lease, fuses) = loaded();
    queue.try_get_many(2).unwrap().succeed();
    let mut getter = Task::parked(queue.get());
    fuses.eq.light(true);
    assert_panics(|| queue.add(bomb(&fuses, 2)));
    fuses.eq.light(false);
    queue.add(bomb(&fuses, 2)).unwrap();
    lease.done();
    assert_eq!(getter.wakes(), 1);
    assert_eq!(getter.output().unwrap().number, 2);
}

/// Adds keys and strands them: their `Clone` panics when they are leased.
fn strand(queue: &Queue<Bomb>, fuses: &Arc<Fuses>, numbers: &[u32]) {
    fuses.clone.light(true);
    for number in numbers {
        queue.add(bomb(fuses, *number)).unwrap();
        assert_panics(|| queue.try_get().is_ok());
    }
    fuses.clone.light(false);
}

fn numbers(keys: &[Bomb]) -> Vec<u32> {
    keys.iter().map(|key| key.number).collect()
}

/// If `Clone` panicked when a key was leased, the key was once lost: neither ready nor
/// processing, and neither `remove` nor `close_now` found it.
#[test]
fn key_whose_clone_panics_when_it_is_leased_is_stranded_until_it_is_added_again() {
    let (fuses, queue) = (Arc::new(Fuses::default()), Queue::new());
    strand(&queue, &fuses, &[10, 20, 30]);
    queue.add(bomb(&fuses, 1)).unwrap();
    assert_eq!(queue.stranded(), 3);
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    assert!(queue.contains(&bomb(&fuses, 10)));
    assert_eq!(queue.add(bomb(&fuses, 10)), Ok(Added::Ready));
    let second = bomb(&fuses, 20);
    assert!(queue.remove(&second) && !queue.remove(&second));
    assert_eq!(numbers(&take_all(&queue)), [1, 10]);
    assert_eq!(numbers(&queue.close_now()), [30]);
    assert_eq!(queue.stranded(), 0);
}

#[test]
fn stranded_key_is_returned_by_drain_and_does_not_hold_it_up() {
    let (fuses, queue) = (Arc::new(Fuses::default()), Queue::new());
    strand(&queue, &fuses, &[10]);
    queue.wait_idle_blocking();
    queue.add_after(bomb(&fuses, 20), secs(3600)).unwrap();
    assert_eq!(numbers(&queue.drain_blocking()), [20, 10]);
}

#[test]
fn stranded_key_can_be_delayed_and_is_ready_afterwards() {
    let fuses = Arc::new(Fuses::default());
    let (queue, clock) = timed_with(Queue::builder());
    strand(&queue, &fuses, &[10, 20]);
    assert_eq!(queue.add_after(bomb(&fuses, 10), secs(1)), Ok(Added::Delayed));
    assert_eq!(queue.stranded(), 2, "until then it is stranded");
    assert_eq!(queue.postpone(bomb(&fuses, 20), secs(1)), Ok(Added::Delayed));
    assert_eq!(queue.stranded(), 1, "it is delayed instead");
    clock.advance(secs(1));
    assert_eq!((queue.len(), queue.stranded()), (2, 0));
    assert_eq!(numbers(&take_all(&queue)), [10, 20]);
}

#[test]
fn stranded_key_that_is_delayed_is_returned_once() {
    let fuses = Arc::new(Fuses::default());
    let queue = Queue::new();
    strand(&queue, &fuses, &[10]);
    queue.add_after(bomb(&fuses, 10), secs(1)).unwrap();
    assert_eq!(numbers(&queue.close_now()), [10]);
    assert_eq!(queue.stranded(), 0);
}

/// A woken getter that met a panicking `Clone` once counted as arrived twice. From then on
/// no getter was woken, or the count overflowed and the process aborted.
#[test]
fn getters_are_woken_after_a_panic_of_one_that_was_woken() {
    let (fuses, queue) = (Arc::new(Fuses::default()), Queue::new());
    let mut first = Task::parked(queue.get());
    let mut second = Task::parked(queue.get());
    let mut many = Task::parked(queue.get_many(2));
    fuses.clone.light(true);
    queue.add(bomb(&fuses, 10)).unwrap();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert_panics(|| first.poll().is_pending());
    queue.add(bomb(&fuses, 10)).unwrap();
    assert_panics(|| second.poll().is_pending());
    queue.add(bomb(&fuses, 10)).unwrap();
    assert_panics(|| many.poll().is_pending());
    fuses.clone.light(false);
    drop((second, many));
    assert!(first.poll().is_pending(), "it can be polled again");
    queue.add(bomb(&fuses, 11)).unwrap();
    assert_eq!(first.wakes(), 2);
    assert_eq!(first.output().unwrap().number, 11);
}

#[test]
fn next_that_panics_has_ended_its_lease_and_can_be_polled_again() {
    let (fuses, queue) = (Arc::new(Fuses::default()), Queue::new());
    queue.add_all([bomb(&fuses, 1), bomb(&fuses, 2), bomb(&fuses, 3)]).unwrap();
    let mut next = Task::new(queue.try_get().unwrap().next());
    fuses.clone.light(true);
    assert_panics(|| next.poll().is_pending());
    fuses.clone.light(false);
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    assert_eq!(next.output().unwrap().number, 3);
}

/// With a panicking `Clone`, `close_now` once neither returned nor delivered ready keys.
#[test]
fn closing_returns_the_other_keys_if_a_clone_panics() {
    let (queue, lease, fuses) = loaded();
    queue.add(bomb(&fuses, 2)).unwrap();
    queue.add_after(bomb(&fuses, 2), secs(7200)).unwrap();
    fuses.clone.light(true);
    assert_eq!(numbers(&queue.close_now()), [0, 1, 3]);
    fuses.clone.light(false);
    lease.done();
    assert_eq!(numbers(&take_all(&queue)), [2], "it was dirty: delivered after all");
    assert_eq!(numbers(&queue.close_now()), [2], "and its delay is not lost either");
}

/// A panicking `Drop` of a key once stopped the end of a lease half-way.
#[test]
fn lease_ends_even_if_the_drop_of_its_key_panics() {
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Grudge(u32);
    impl Drop for Grudge {
        fn drop(&mut self) {
            assert!(
                self.0 != 7 || std::thread::panicking(),
                "a key that panics, on purpose"
            );
        }
    }
    let queue = Queue::new();
    queue.add_all([7, 8, 9].map(Grudge)).unwrap();
    queue.try_get().unwrap().succeed();
    assert_eq!(queue.counts().processing, 0);
    queue.add(Grudge(7)).unwrap();
    queue.try_get_many(3).unwrap().succeed();
    assert_eq!(queue.counts(), Counts::default());
}

/// If a clone panicked, the keys taken before it in the same batch once stayed processing
/// without a lease.
#[test]
fn keys_before_the_one_whose_clone_panics_are_ready_again() {
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Plain(u32);
    static BURNS: AtomicBool = AtomicBool::new(true);
    impl Clone for Plain {
        fn clone(&self) -> Self {
            assert!(
                self.0 != 3 || !BURNS.load(Ordering::SeqCst),
                "a key that panics, on purpose"
            );
            Self(self.0)
        }
    }
    let queue = Queue::new();
    queue.add_all((1..=5).map(Plain)).unwrap();
    assert_panics(|| queue.try_get_many(5).is_ok());
    assert_eq!(queue.counts(), Counts { ready: 4, ..Counts::default() });
    BURNS.store(false, Ordering::SeqCst);
    queue.add(Plain(3)).unwrap();
    assert_eq!(take_all(&queue), [4, 5, 1, 2, 3].map(Plain));
}

/// Counts the panics that a queue reports.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicU32>);

impl Panics {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Recorder for Panics {
    fn panicked(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Metrics for Panics {
    fn queue(&self, _name: &str, _probe: Probe) -> Box<dyn Recorder> {
        Box::new(self.clone())
    }
}
