//! The whole queue under random schedules: producers, workers of every kind, delays,
//! retries, cancelled getters and closing, all at once.
//!
//! `RUSTFLAGS="--cfg requeue_shuttle" cargo test -p requeue --lib --release shuttle`
//!
//! In every run, no key is processed by two workers at once, the last accepted add of each
//! key is seen by a worker that began after it (or the key is returned), and all threads
//! end. Shuttle reports a thread that waits forever as a deadlock.

mod clock;
mod ledger;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use self::clock::LeapClock;
use self::ledger::{KEYS, Ledger};
use super::{AddOptions, Finish, Get, Lease, Queue};
use crate::error::GetTimeoutError;

const STEP: Duration = Duration::from_millis(3);

/// How often each producer changes something.
const CHANGES: usize = 4;

/// How often a key fails before it succeeds.
const FAILURES: u32 = 2;

/// Runs `scenario` under schedules that switch anywhere, and under some that switch
/// seldom but where it hurts.
fn explore(scenario: fn()) {
    shuttle::check_random(scenario, 3000);
    shuttle::check_pct(scenario, 3000, 3);
}

#[derive(Clone)]
struct World {
    queue: Queue<usize>,
    clock: LeapClock,
    ledger: Arc<Ledger>,
}

fn chance(part: u32) -> bool {
    thread_rng().gen_ratio(1, part)
}

impl World {
    fn new() -> Self {
        let clock = LeapClock::new();
        let queue =
            Queue::builder().clock(clock.clone()).absorb_delays(chance(2)).build();
        Self { queue, clock, ledger: Arc::new(Ledger::new()) }
    }

    fn spawn(&self, part: impl FnOnce(Self) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || part(world))
    }

    /// Two producers.
    fn producers(&self) -> Vec<JoinHandle<()>> {
        (0..2).map(|_| self.spawn(|world| world.produce())).collect()
    }

    /// A worker of each kind that stays until the queue is closed.
    fn workers(&self) -> Vec<JoinHandle<()>> {
        vec![
            self.spawn(|world| world.work_on_a_thread()),
            self.spawn(|world| block_on(world.ledger.work_in_a_task(world.queue.get()))),
            self.spawn(|world| world.work_in_batches()),
        ]
    }

    /// Workers that do not stay.
    fn passers_by(&self) -> Vec<JoinHandle<()>> {
        vec![
            self.spawn(|world| world.work_for_a_while()),
            self.spawn(|world| world.cancel_getters()),
        ]
    }

    fn produce(&self) {
        for _ in 0..CHANGES {
            let key = thread_rng().gen_range(0..KEYS);
            self.ledger.change(key, |key| match thread_rng().gen_range(0..4) {
                0 => self.queue.add_after(key, STEP),
                1 => self.queue.add_rate_limited(key),
                2 => self.queue.add_with(key, AddOptions::new().priority(1)),
                _ => self.queue.add(key),
            });
        }
        self.clock.advance(STEP);
    }

    fn work_on_a_thread(&self) {
        let mut lease = self.queue.get_blocking();
        while let Some(key) = lease {
            let finish = self.ledger.work(&key);
            lease = key.next_blocking_with(finish);
        }
    }

    fn work_in_batches(&self) {
        while let Some(batch) = self.queue.get_many_blocking(2) {
            for lease in batch {
                self.ledger.work_and_finish(lease);
            }
        }
    }

    fn work_for_a_while(&self) {
        for _ in 0..3 {
            match self.queue.get_blocking_timeout(STEP) {
                Ok(lease) => self.ledger.work_and_finish(lease),
                Err(GetTimeoutError::Timeout) => {}
                Err(GetTimeoutError::Closed) => break,
            }
        }
        self.take_the_rest();
    }

    /// Takes the ready keys of a closed queue. Workers leave once nothing is ready. A worker
    /// that then finished a dirty key made it ready again, and once in some hundred thousand
    /// runs a drain waited forever for that key.
    fn take_the_rest(&self) {
        while self.queue.is_closed() {
            let Ok(lease) = self.queue.try_get() else { return };
            self.ledger.work_and_finish(lease);
        }
    }

    /// Polls getters and drops them, woken or not.
    fn cancel_getters(&self) {
        for _ in 0..3 {
            let mut get = self.queue.get();
            for _ in 0..2 {
                let polled =
                    Pin::new(&mut get).poll(&mut Context::from_waker(Waker::noop()));
                match polled {
                    Poll::Pending => thread::yield_now(),
                    Poll::Ready(None) => return,
                    Poll::Ready(Some(lease)) => {
                        self.ledger.work_and_finish(lease);
                        break;
                    }
                }
            }
        }
        self.take_the_rest();
    }
}

impl Ledger {
    /// Processes a key and returns how its lease ends. It fails at first, and now and then
    /// requeues the key.
    fn work(&self, lease: &Lease<usize>) -> Finish {
        let seen = self.begin(**lease);
        thread::yield_now();
        let failed = lease.num_requeues() < FAILURES && chance(2);
        self.end(**lease, (!failed).then_some(seen));
        match failed {
            true => Finish::Retry,
            false if chance(8) => Finish::RetryAfter(STEP),
            false => Finish::Succeed,
        }
    }

    fn work_and_finish(&self, lease: Lease<usize>) {
        let finish = self.work(&lease);
        lease.finish(finish);
    }

    async fn work_in_a_task(&self, first: Get<usize>) {
        let mut lease = first.await;
        while let Some(key) = lease {
            let finish = self.work(&key);
            lease = key.next_with(finish).await;
        }
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn everything_that_is_added_is_worked_on() {
    explore(|| {
        let world = World::new();
        let time = world.clock.start();
        let (workers, others) = (world.workers(), world.passers_by());
        join(world.producers());
        join(others);
        if chance(2) {
            world.queue.wait_idle_blocking();
        } else {
            block_on(world.queue.wait_idle());
        }
        world.ledger.assert_nobody_works();
        world.ledger.assert_nothing_lost(&[]);
        world.queue.close();
        join(workers);
        world.clock.stop();
        join([time]);
    });
}

#[test]
fn draining_waits_for_all_and_hands_the_rest_back() {
    explore(|| {
        let world = World::new();
        let time = world.clock.start();
        let parts = [world.workers(), world.passers_by(), world.producers()]
            .into_iter()
            .flatten();
        let parts: Vec<_> = parts.collect();
        let left = if chance(2) {
            world.queue.drain_blocking()
        } else {
            block_on(world.queue.drain())
        };
        world.ledger.assert_nobody_works();
        let counts = world.queue.counts();
        assert_eq!((counts.ready, counts.processing, counts.delayed), (0, 0, 0));
        join(parts);
        world.ledger.assert_nothing_lost(&left);
        world.clock.stop();
        join([time]);
    });
}

#[test]
fn closing_now_hands_back_what_no_worker_has() {
    explore(|| {
        let world = World::new();
        let time = world.clock.start();
        let parts: Vec<_> =
            world.workers().into_iter().chain(world.producers()).collect();
        let mut left = world.queue.close_now();
        join(parts);
        left.extend(world.queue.close_now());
        world.ledger.assert_nobody_works();
        world.ledger.assert_nothing_lost(&left);
        world.clock.stop();
        join([time]);
    });
}

/// Workers that hold no handle end when the producers have gone, and leave nothing ready.
#[test]
fn workers_end_when_the_last_producer_goes() {
    explore(|| {
        let world = World::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (ledger, first) = (Arc::clone(&world.ledger), world.queue.get());
                thread::spawn(move || block_on(ledger.work_gladly(first)))
            })
            .collect();
        let World { queue, clock: _, ledger } = world;
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (queue, ledger) = (queue.clone(), Arc::clone(&ledger));
                thread::spawn(move || {
                    for key in 0..KEYS {
                        ledger.change(key, |key| queue.add(key));
                    }
                })
            })
            .collect();
        drop(queue);
        join(producers);
        join(workers);
        ledger.assert_nothing_lost(&[]);
    });
}

impl Ledger {
    async fn work_gladly(&self, first: Get<usize>) {
        let mut lease = first.await;
        while let Some(key) = lease {
            let seen = self.begin(*key);
            thread::yield_now();
            self.end(*key, Some(seen));
            lease = key.next().await;
        }
    }
}
