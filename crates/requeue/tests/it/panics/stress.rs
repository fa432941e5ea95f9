//! Keys, orders, clocks and wakers that panic at random calls and call back into the queue.
//!
//! A panic here does not run the panic hook: there are thousands of them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use requeue::order::{Fair, Order, Priority, Ticket};
use requeue::testing::FakeClock;
use requeue::{AddOptions, Added, Clock, Closed, Finish, Get, Lease, Queue, Timer};

use crate::helpers::{ms, secs};

/// Decides at each call of user code whether it panics.
#[derive(Debug)]
struct Chaos {
    seed: AtomicU64,
    armed: AtomicBool,
    strikes: AtomicU64,
}

impl Chaos {
    fn new(seed: u64) -> Arc<Self> {
        let seed = AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let armed = AtomicBool::new(true);
        Arc::new(Self { seed, armed, strikes: AtomicU64::new(0) })
    }

    /// Returns a number below `below`.
    fn random(&self, below: u32) -> u32 {
        let step = |mut x: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            Some(x ^ (x << 17))
        };
        let old = self.seed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        let bits = old.unwrap_or_else(|seed| seed) >> 40;
        u32::try_from(bits).expect("24 bits are left") % below
    }

    /// Panics once in a while, but never while another panic unwinds: that aborts.
    fn strike(&self) {
        let armed = self.armed.load(Ordering::SeqCst) && !thread::panicking();
        if armed && self.random(40) == 0 {
            self.strikes.fetch_add(1, Ordering::SeqCst);
            resume_unwind(Box::new("user code panics"));
        }
    }

    fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }
}

/// A key whose trait methods may panic and whose `Drop` calls the queue.
#[derive(Debug)]
struct Key {
    number: u32,
    chaos: Arc<Chaos>,
}

thread_local! {
    /// The queue that the drop of a key calls.
    static QUEUE: RefCell<Option<Queue<Key>>> = const { RefCell::new(None) };
    static DROPPING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the queue. A queue whose lock is held would hang here.
fn call_back() {
    if !DROPPING.replace(true) {
        QUEUE.with_borrow(|queue| queue.as_ref().map(|queue| queue.counts().ready));
        DROPPING.set(false);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        call_back();
        self.chaos.strike();
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.chaos.strike();
        Self { number: self.number, chaos: Arc::clone(&self.chaos) }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.chaos.strike();
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.chaos.strike();
        (self.number % 5).hash(state);
    }
}

/// An order that panics before it changes anything.
struct Hostile(Box<dyn Order<Key>>, Arc<Chaos>);

impl Order<Key> for Hostile {
    fn push(&mut self, ticket: Ticket, key: &Key, priority: i32) {
        self.1.strike();
        self.0.push(ticket, key, priority);
    }

    fn touch(&mut self, ticket: Ticket, key: &Key, priority: i32) {
        self.1.strike();
        self.0.touch(ticket, key, priority);
    }

    fn pop(&mut self) -> Option<Ticket> {
        self.1.strike();
        self.0.pop()
    }

    fn remove(&mut self, ticket: Ticket, key: &Key) {
        self.1.strike();
        self.0.remove(ticket, key);
    }

    fn shrink(&mut self) {
        self.1.strike();
        self.0.shrink();
    }
}

struct HostileClock(FakeClock, Arc<Chaos>);

impl Clock for HostileClock {
    fn now(&self) -> Instant {
        self.1.strike();
        self.0.now()
    }

    fn timer(&self, deadline: Instant) -> Timer {
        self.0.timer(deadline)
    }

    fn park_until(&self, deadline: Instant) {
        self.0.park_until(deadline);
    }
}

/// A waker that calls the queue when it is woken or dropped, and may panic then.
struct HostileWaker(Arc<Chaos>);

impl Wake for HostileWaker {
    fn wake(self: Arc<Self>) {
        call_back();
        self.0.strike();
    }
}

impl Drop for HostileWaker {
    fn drop(&mut self) {
        call_back();
        self.0.strike();
    }
}

/// Runs user code that may panic.
fn attempt<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

const KEYS: u32 = 12;

/// A queue with hostile user code, and the keys that it must still deliver.
struct World {
    queue: Queue<Key>,
    clock: FakeClock,
    chaos: Arc<Chaos>,
    leases: Vec<Lease<Key>>,
    getters: Vec<Get<Key>>,
    /// Keys that were added and neither delivered nor removed since.
    owed: HashSet<u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        let (chaos, clock) = (Chaos::new(seed), FakeClock::new());
        chaos.armed.store(false, Ordering::SeqCst);
        let order: Box<dyn Order<Key>> = if seed % 2 == 0 {
            Box::new(Priority::ageing(3))
        } else {
            Box::new(Fair::by(|key: &Key| key.number % 3))
        };
        let mut builder = Queue::builder()
            .clock(HostileClock(clock.clone(), Arc::clone(&chaos)))
            .absorb_delays(seed % 4 < 2);
        if seed % 5 != 0 {
            builder = builder.order(Hostile(order, Arc::clone(&chaos)));
        }
        let queue = builder.build();
        chaos.armed.store(true, Ordering::SeqCst);
        QUEUE.set(Some(queue.clone()));
        let (leases, getters, owed) = (Vec::new(), Vec::new(), HashSet::new());
        Self { queue, clock, chaos, leases, getters, owed }
    }

    fn key(&self) -> Key {
        let number = self.chaos.random(KEYS);
        Key { number, chaos: Arc::clone(&self.chaos) }
    }

    fn step(&mut self) {
        match self.chaos.random(14) {
            0..=2 => self.add(Queue::add),
            3 => self.add(|queue, key| queue.add_after(key, ms(7))),
            4 => self.add(Queue::add_rate_limited),
            5 => {
                let priority = [-9, -1, 0, 3, 7][self.chaos.random(5) as usize];
                let options = AddOptions::new().priority(priority).after(ms(3));
                self.add(|queue, key| queue.add_with(key, options));
            }
            6 => self.add(|queue, key| queue.postpone(key, ms(5))),
            7 => self.remove(),
            8 => self.take(),
            9 => self.take_many(),
            10 => self.poll(),
            11 => self.finish(),
            12 => self.clock.advance(ms(2)),
            _ => {
                attempt(|| self.queue.len());
                attempt(|| drop(self.getters.pop()));
            }
        }
    }

    fn add(&mut self, add: impl FnOnce(&Queue<Key>, Key) -> Result<Added, Closed<Key>>) {
        let key = self.key();
        let number = key.number;
        if attempt(|| add(&self.queue, key).is_ok()) == Some(true) {
            self.owed.insert(number);
        }
    }

    fn remove(&mut self) {
        let key = self.key();
        // A panic may come from the drop of the key after it was removed.
        if attempt(|| self.queue.remove(&key)) != Some(false) {
            self.owed.remove(&key.number);
        }
        attempt(|| drop(key));
    }

    fn take(&mut self) {
        let lease = attempt(|| self.queue.try_get());
        self.leased(lease.and_then(Result::ok));
    }

    fn take_many(&mut self) {
        let batch = attempt(|| self.queue.try_get_many(3));
        for lease in batch.and_then(Result::ok).into_iter().flatten() {
            self.leased(Some(lease));
        }
    }

    fn poll(&mut self) {
        let mut get = self.getters.pop().unwrap_or_else(|| self.queue.get());
        let waker = Waker::from(Arc::new(HostileWaker(Arc::clone(&self.chaos))));
        let poll =
            |get: &mut Get<Key>| Pin::new(get).poll(&mut Context::from_waker(&waker));
        match attempt(|| poll(&mut get)) {
            Some(Poll::Ready(lease)) => self.leased(lease),
            Some(Poll::Pending) | None => self.getters.insert(0, get),
        }
        attempt(|| drop(waker));
    }

    fn leased(&mut self, lease: Option<Lease<Key>>) {
        let Some(lease) = lease else { return };
        let twice = self.leases.iter().any(|other| other.number == lease.number);
        assert!(!twice, "two leases of key {}", lease.number);
        self.owed.remove(&lease.number);
        self.leases.push(lease);
    }

    fn finish(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases.remove(0);
        let finishes = [
            Finish::Done,
            Finish::Succeed,
            Finish::Retry,
            Finish::RetryAfter(Duration::ZERO),
            Finish::RetryAfter(ms(4)),
        ];
        let finish = finishes[self.chaos.random(5) as usize];
        if !matches!(finish, Finish::Done | Finish::Succeed) {
            self.owed.insert(lease.number);
        }
        let ended = attempt(|| lease.finish(finish));
        assert!(ended.is_some(), "the end of a lease panicked");
    }

    /// Checks that every owed key is still in the queue.
    fn account(mut self) {
        self.chaos.disarm();
        self.getters.clear();
        self.leases.drain(..).for_each(Lease::done);
        let left = self.queue.close_now();
        let left: HashSet<u32> = left.iter().map(|key| key.number).collect();
        let lost: Vec<_> = self.owed.difference(&left).collect();
        assert!(lost.is_empty(), "keys {lost:?} are lost");
        let counts = self.queue.counts();
        assert_eq!((counts.ready, counts.processing, counts.delayed), (0, 0, 0));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.chaos.disarm();
        drop(QUEUE.take());
    }
}

#[test]
fn hundred_thousand_hostile_calls_lose_no_key() {
    let mut strikes = 0;
    for seed in 0..200 {
        let mut world = World::new(seed);
        (0..500).for_each(|_| world.step());
        strikes += world.chaos.strikes.load(Ordering::SeqCst);
        world.account();
    }
    assert!(strikes > 5_000, "only {strikes} panics");
}

/// Hostile threads add keys and wait for them. After the last panic each key is added once
/// more and must be delivered.
#[test]
fn threads_that_wait_for_hostile_keys_do_not_hang() {
    let chaos = Chaos::new(7);
    chaos.armed.store(false, Ordering::SeqCst);
    let order = Hostile(Box::new(Priority::new()), Arc::clone(&chaos));
    let queue = Queue::builder().order(order).build();
    chaos.armed.store(true, Ordering::SeqCst);
    let key = |number| Key { number, chaos: Arc::clone(&chaos) };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| work(&queue, &chaos))).collect();
        for round in 0..10_000_u32 {
            attempt(|| queue.add(key(round % 100)));
            attempt(|| queue.add_after(key(round % 70), Duration::from_micros(10)));
        }
        chaos.disarm();
        for number in 0..100 {
            queue.add(key(number)).unwrap();
        }
        queue.wait_idle_blocking();
        queue.close();
        let mut delivered = HashMap::new();
        for worker in workers {
            for number in worker.join().unwrap() {
                *delivered.entry(number).or_insert(0) += 1;
            }
        }
        assert_eq!(delivered.len(), 100, "each key was delivered");
    });
    assert_eq!(queue.drain_blocking_timeout(secs(0)).unwrap().len(), 0);
}

/// Leases keys until the queue is closed. Returns those delivered after the last panic.
fn work(queue: &Queue<Key>, chaos: &Chaos) -> Vec<u32> {
    let mut delivered = Vec::new();
    loop {
        match attempt(|| queue.get_blocking()) {
            None => {}
            Some(None) => return delivered,
            Some(Some(lease)) => {
                if !chaos.armed.load(Ordering::SeqCst) {
                    delivered.push(lease.number);
                }
                let finish =
                    if chaos.random(3) == 0 { Finish::Retry } else { Finish::Succeed };
                let finish = if chaos.armed.load(Ordering::SeqCst) {
                    finish
                } else {
                    Finish::Succeed
                };
                assert!(attempt(|| lease.finish(finish)).is_some(), "a lease must end");
            }
        }
    }
}
