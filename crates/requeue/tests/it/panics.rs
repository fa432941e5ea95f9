//! Code of the user's that panics leaves the queue whole.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use requeue::metrics::{Metrics, Probe, Recorder};
use requeue::order::Fair;
use requeue::retry::{ByCount, RetryPolicy};
use requeue::testing::FakeClock;
use requeue::{Added, Counts, Finish, Queue};

use crate::helpers::{Task, ms, secs, take_all, timed_with};

/// A key whose code panics while its fuse burns.
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
        assert!(!self.0.load(Ordering::SeqCst), "the key's code panics");
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
    queue.add(bomb(&fuses, 2));
    let lease = queue.try_get().expect("a key was added");
    queue.add_all([bomb(&fuses, 0), bomb(&fuses, 1)]);
    queue.add_after(bomb(&fuses, 3), secs(3600));
    (queue, lease, fuses)
}

fn bomb(fuses: &Arc<Fuses>, number: u32) -> Bomb {
    Bomb { number, fuses: Arc::clone(fuses) }
}

#[track_caller]
fn assert_panics<R>(action: impl FnOnce() -> R) {
    let result = catch_unwind(AssertUnwindSafe(action));
    assert!(result.is_err(), "it was meant to panic");
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
    assert_eq!(queue.add(bomb(fuses, 0)), Added::Duplicate);
    assert_eq!(queue.add(bomb(fuses, 2)), Added::Dirty);
    assert_eq!(queue.add(bomb(fuses, 9)), Added::Ready);
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
    assert_eq!(queue.add_ref(&bomb(&fuses, 0)), Added::Duplicate, "it is not cloned");
    fuses.clone.light(false);
    assert_whole(&queue, lease, &fuses);
}

/// Keys are hashed before the lock is taken, a thousand or so at a time: those that were
/// added before the panic stay.
#[test]
fn panicking_hash_among_many_keys_keeps_what_was_added_before() {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Fused(u32);
    impl Hash for Fused {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert_ne!(self.0, 2500, "the key's code panics");
            self.0.hash(state);
        }
    }
    let queue = Queue::new();
    assert_panics(|| queue.add_all((0..3000).map(Fused)));
    let added = take_all(&queue);
    assert!((1000..2500).contains(&added.len()), "{} keys were added", added.len());
    assert!(added.into_iter().zip(0..).all(|(key, number)| key.0 == number));
    assert_eq!(queue.add_all((0..2500).map(Fused)).ready, 2500);
}

#[test]
fn queue_goes_on_waking_getters_after_a_panic() {
    let (queue, lease, fuses) = loaded();
    drop(queue.try_get_many(2).unwrap());
    let mut getter = Task::parked(queue.get());
    fuses.eq.light(true);
    assert_panics(|| queue.add(bomb(&fuses, 2)));
    fuses.eq.light(false);
    queue.add(bomb(&fuses, 2));
    lease.done();
    assert_eq!(getter.wakes(), 1);
    assert_eq!(getter.output().unwrap().number, 2);
}

/// A key that owns nothing is cloned to be handed out. If that panicked, the key was once
/// lost: neither ready nor with a worker.
#[test]
fn key_whose_clone_panics_when_it_is_handed_out_can_be_added_again() {
    static BURNS: AtomicBool = AtomicBool::new(false);
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Plain(u32);
    impl Clone for Plain {
        fn clone(&self) -> Self {
            assert!(!BURNS.load(Ordering::SeqCst), "the key's code panics");
            Self(self.0)
        }
    }
    let queue = Queue::new();
    queue.add_all([Plain(1), Plain(2)]);
    BURNS.store(true, Ordering::SeqCst);
    assert_panics(|| queue.try_get().is_ok());
    BURNS.store(false, Ordering::SeqCst);
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    assert_eq!(queue.add(Plain(1)), Added::Ready);
    assert_eq!(take_all(&queue), [Plain(2), Plain(1)]);
    assert_eq!(queue.counts(), Counts::default());
}

/// The keys of a batch that were taken before the one whose clone panics were once lost:
/// they stayed with a worker that never had them.
#[test]
fn keys_before_the_one_whose_clone_panics_are_ready_again() {
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Plain(u32);
    static BURNS: AtomicBool = AtomicBool::new(true);
    impl Clone for Plain {
        fn clone(&self) -> Self {
            assert!(
                self.0 != 3 || !BURNS.load(Ordering::SeqCst),
                "the key's code panics"
            );
            Self(self.0)
        }
    }
    let queue = Queue::new();
    queue.add_all((1..=5).map(Plain));
    assert_panics(|| queue.try_get_many(5).is_ok());
    assert_eq!(queue.counts(), Counts { ready: 4, ..Counts::default() });
    BURNS.store(false, Ordering::SeqCst);
    queue.add(Plain(3));
    assert_eq!(take_all(&queue), [4, 5, 1, 2, 3].map(Plain));
}

/// An order by groups whose function panics for one key while the fuse burns.
fn grouped(fuse: &Arc<Fuse>) -> Fair<u32, u32> {
    let fuse = Arc::clone(fuse);
    Fair::by(move |key: &u32| {
        if *key == 2 {
            fuse.check();
        }
        *key
    })
}

#[test]
fn order_that_panics_in_an_add_leaves_the_queue_as_it_was() {
    let fuse = Arc::new(Fuse::default());
    let queue = Queue::builder().order(grouped(&fuse)).build();
    queue.add(1);
    fuse.light(true);
    assert_panics(|| queue.add(2));
    assert_panics(|| queue.add_all([2, 3]));
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    fuse.light(false);
    assert_eq!(queue.add_all([1, 2, 3]).ready, 2);
    assert_eq!(take_all(&queue), [1, 2, 3]);
}

/// An order that panicked when delayed keys became ready once lost the key that it panicked
/// for and all that were due with it.
#[test]
fn order_that_panics_when_keys_are_due_loses_none_of_them() {
    let fuse = Arc::new(Fuse::default());
    let (queue, clock) = timed_with(Queue::builder().order(grouped(&fuse)));
    for key in 1..=3 {
        queue.add_after(key, secs(1));
    }
    clock.advance(secs(1));
    fuse.light(true);
    assert_panics(|| queue.len());
    assert_panics(|| queue.len());
    fuse.light(false);
    assert_eq!(queue.len(), 3);
    assert_eq!(take_all(&queue), [1, 2, 3]);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn keys_that_an_order_refused_when_they_were_due_are_still_delayed() {
    let fuse = Arc::new(Fuse::default());
    let (queue, clock) = timed_with(Queue::builder().order(grouped(&fuse)));
    for key in [2, 3] {
        queue.add_after(key, secs(1));
    }
    clock.advance(secs(1));
    fuse.light(true);
    assert_panics(|| queue.len());
    fuse.light(false);
    assert!(queue.remove(&2) && queue.remove(&3), "they can be removed");
    assert_eq!(queue.counts(), Counts::default());
    queue.add(4);
    assert_eq!(take_all(&queue), [4]);
}

/// A dirty key whose order panicked when it was done once stayed dirty without a worker,
/// so that no add could make it ready.
#[test]
fn order_that_panics_when_a_dirty_key_is_done_lets_it_be_added_again() {
    let fuse = Arc::new(Fuse::default());
    let queue = Queue::builder().order(grouped(&fuse)).build();
    queue.add(2);
    let lease = queue.try_get().unwrap();
    queue.add(2);
    fuse.light(true);
    assert_panics(|| lease.done());
    fuse.light(false);
    assert_eq!(queue.counts().processing, 0);
    queue.add(2);
    assert_eq!(take_all(&queue), [2]);
    assert_eq!(queue.counts(), Counts::default());
}

/// A policy that panics while the fuse burns.
struct Moody(Arc<Fuse>);

impl RetryPolicy<u32> for Moody {
    fn when(&self, _: &u32) -> Duration {
        self.0.check();
        secs(1)
    }

    fn forget(&self, _: &u32) {
        self.0.check();
    }

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

/// A queue with keys 0 to 7 ready whose policy panics.
fn with_moody_policy() -> (Queue<u32>, FakeClock, Panics) {
    let (fuse, panics) = (Arc::new(Fuse::default()), Panics::default());
    let builder = Queue::builder().retry(Moody(Arc::clone(&fuse)));
    let (queue, clock) = timed_with(builder.metrics(panics.clone()));
    queue.add_all(0..8);
    fuse.light(true);
    (queue, clock, panics)
}

/// Counts what a queue tells of panics.
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

/// A policy that panicked once left its key processing for ever; then it cost its worker,
/// and the key did not come again.
#[test]
fn policy_that_panics_costs_no_key() {
    let (queue, clock, panics) = with_moody_policy();
    assert_eq!(queue.try_get().unwrap().retry(), ms(5));
    queue.try_get().unwrap().succeed();
    queue.try_get().unwrap().retry_after(ms(1));
    let lease = queue.try_get().unwrap().next_blocking_with(Finish::Retry).unwrap();
    let lease = Task::new(lease.next_with(Finish::Retry)).output().unwrap();
    lease.done();
    queue.try_get_many(2).unwrap().finish(Finish::Retry);
    assert_eq!(queue.add_rate_limited(100), Added::Delayed);
    assert_eq!(queue.counts(), Counts { delayed: 7, ..Counts::default() });
    assert_eq!(panics.count(), 8);
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [2, 0, 3, 4, 6, 7, 100]);
}

#[test]
fn policy_that_panics_again_and_again_backs_off() {
    let (queue, clock, _) = with_moody_policy();
    drop(queue.try_get_many(7));
    for delay in [5, 10, 20] {
        let lease = queue.try_get().unwrap();
        assert_eq!(lease.retry(), ms(delay));
        clock.advance(ms(delay));
    }
    queue.try_get().unwrap().succeed();
    queue.add(7);
    assert_eq!(queue.try_get().unwrap().retry(), ms(5), "success is success");
}

/// A policy that panicked for a lease dropped by a panic would end the process; once it did
/// not, the key was lost.
#[test]
fn policy_that_panics_while_its_worker_panics_costs_no_key() {
    let (queue, clock, panics) = with_moody_policy();
    drop(queue.try_get_many(5));
    assert_panics(|| {
        let _lease = queue.try_get();
        panic!("the work failed");
    });
    assert_panics(|| {
        let _batch = queue.try_get_many(2);
        panic!("the work failed");
    });
    assert_eq!(queue.counts(), Counts { delayed: 3, ..Counts::default() });
    assert_eq!(panics.count(), 5, "two workers, and the policy over three keys");
    clock.advance(ms(5));
    assert_eq!(take_all(&queue), [5, 6, 7]);
}

/// A policy by count whose delay overflows at the second failure.
struct Overflows;

impl RetryPolicy<u32> for Overflows {
    fn when(&self, _: &u32) -> Duration {
        self.delay(0)
    }

    fn forget(&self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }

    fn by_count(&self) -> Option<&dyn ByCount> {
        Some(self)
    }
}

impl ByCount for Overflows {
    fn delay(&self, retries: u32) -> Duration {
        Duration::MAX / 2 * (2 * retries + 1)
    }
}

/// A policy by count is asked with the lock held. When it panicked there, its key stayed
/// with a worker that had given it back.
#[test]
fn policy_by_count_that_panics_costs_no_key() {
    let panics = Panics::default();
    let builder = Queue::builder().retry(Overflows).metrics(panics.clone());
    let (queue, clock) = timed_with(builder);
    queue.add_rate_limited(1);
    queue.postpone(1, Duration::ZERO);
    assert_eq!(queue.try_get().unwrap().retry(), ms(10), "the second failure");
    assert_eq!(queue.counts(), Counts { delayed: 1, ..Counts::default() });
    clock.advance(ms(10));
    queue.try_get().unwrap().done();
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    assert_eq!((queue.num_requeues(&1), panics.count()), (3, 2));
    clock.advance(ms(20));
    assert_eq!(take_all(&queue), [1]);
}
