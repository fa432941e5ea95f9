//! Pools under random schedules: the number of workers changes while keys are added, and all
//! workers leave.
//!
//! `RUSTFLAGS="--cfg requeue_shuttle" cargo test -p requeue --lib --release shuttle`
//!
//! In every schedule no key is with two workers at a time, and each added key is run or
//! returned. Shuttle reports a worker or caller that waits forever as a deadlock.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::handle::Handle;
use super::{Outcome, Pool, Stopped};
use crate::sync::{Mutex, lock};
use crate::testing::FakeClock;
use crate::{Added, Queue};

const KEYS: usize = 3;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, 2000);
    shuttle::check_pct(scenario, 2000, 3);
}

type Ledger = Arc<Mutex<[Entry; KEYS]>>;

/// What is known of one key.
#[derive(Default)]
struct Entry {
    runs: u32,
    running: bool,
    overlapped: bool,
}

impl Entry {
    fn begin(&mut self) {
        self.overlapped |= self.running;
        self.running = true;
    }

    fn end(&mut self) {
        self.running = false;
        self.runs += 1;
    }
}

/// A pool whose threads are shuttle's.
fn pool(workers: usize, ledger: &Ledger) -> Handle<usize> {
    let ledger = Arc::clone(ledger);
    let handler = move |key: &usize| {
        lock(&ledger)[*key].begin();
        thread::yield_now();
        lock(&ledger)[*key].end();
        Ok::<_, Infallible>(())
    };
    let handler = Arc::new(handler);
    let pool = Pool::new(Queue::new()).workers(workers).start(|config| {
        Box::new(move |worker| {
            let (config, handler) = (Arc::clone(&config), Arc::clone(&handler));
            thread::spawn(move || worker.work(&config, &*handler));
            Ok(())
        })
    });
    pool.expect("shuttle refuses no thread")
}

/// Adds each key once or twice: those that were accepted.
fn produce(queue: &Queue<usize>) -> Vec<usize> {
    let keys = (0..KEYS).chain([0, 1]);
    keys.filter(|key| queue.add(*key) != Added::Closed).collect()
}

fn vary(pool: &Handle<usize>) {
    for _ in 0..3 {
        let workers = thread_rng().gen_range(0..3);
        pool.set_workers(workers).expect("shuttle refuses no thread");
    }
}

/// Produces and varies at once, ends the pool by `end`, and looks at what became of the
/// keys.
fn scenario(end: fn(&Handle<usize>) -> Vec<usize>) {
    let ledger = Ledger::default();
    let pool = pool(2, &ledger);
    let queue = pool.queue().clone();
    let producer = thread::spawn(move || produce(&queue));
    let varied = pool.clone();
    let varying = thread::spawn(move || vary(&varied));
    let mut left = end(&pool);
    let accepted = producer.join().expect("the producer ends");
    varying.join().expect("the pool was varied");
    pool.join_blocking();
    left.extend(pool.queue().close_now());
    for key in accepted {
        let entry = &lock(&ledger)[key];
        assert!(!entry.running && !entry.overlapped, "{key} was with two workers");
        assert!(entry.runs > 0 || left.contains(&key), "{key} is lost");
    }
}

#[test]
fn stopped_pool_loses_no_key_and_leaves_nobody_behind() {
    explore(|| scenario(|pool| pool.stop_blocking(Duration::MAX).left));
}

#[test]
fn drained_pool_loses_no_key_and_leaves_nobody_behind() {
    explore(|| scenario(|pool| pool.drain_blocking(Duration::MAX).left));
}

#[test]
fn pool_that_is_recalled_leaves_and_comes_back() {
    explore(|| {
        let ledger = Ledger::default();
        let pool = pool(2, &ledger);
        let queue = pool.queue().clone();
        let producer = thread::spawn(move || produce(&queue).len());
        pool.set_workers(0).expect("nobody is hired");
        pool.join_blocking();
        assert_eq!(producer.join().expect("the producer ends"), KEYS + 2);
        assert_eq!(pool.queue().counts().processing, 0);
        pool.set_workers(2).expect("shuttle refuses no thread");
        pool.queue().wait_idle_blocking();
        assert!(lock(&ledger).iter().all(|entry| entry.runs > 0));
        pool.stop_blocking(Duration::MAX);
    });
}

/// Without a key or a close, nothing but the recall can wake a worker.
#[test]
fn recall_passes_no_worker_by() {
    explore(|| {
        let pool = pool(2, &Ledger::default());
        vary(&pool);
        pool.set_workers(0).expect("nobody is hired");
        pool.join_blocking();
        assert_eq!(pool.queue().parked(), 0);
    });
}

/// How a key of the deadline model ends: the first succeeds, the second fails, and the third
/// is to run again later.
fn run_once(key: usize, succeeded: &Mutex<Vec<usize>>) -> Result<Outcome, &'static str> {
    thread::yield_now();
    match key {
        0 => lock(succeeded).push(key),
        1 => return Err("fails"),
        _ => return Ok(Outcome::After(Duration::from_secs(1))),
    }
    Ok(Outcome::Done)
}

/// A pool whose keys are delayed on a clock that does not move.
fn failing_pool(succeeded: &Arc<Mutex<Vec<usize>>>) -> Handle<usize> {
    let succeeded = Arc::clone(succeeded);
    let handler = Arc::new(move |key: &usize| run_once(*key, &succeeded));
    let queue = Queue::builder().clock(FakeClock::new()).build();
    let pool = Pool::new(queue).workers(2).start(|config| {
        Box::new(move |worker| {
            let (config, handler) = (Arc::clone(&config), Arc::clone(&handler));
            thread::spawn(move || worker.work(&config, &*handler));
            Ok(())
        })
    });
    pool.expect("shuttle refuses no thread")
}

/// The deadline comes at any point of a worker's cycle. A key that was leased and not
/// registered yet, or just given back, was once in neither list.
fn deadline(end: fn(&Handle<usize>) -> Stopped<usize>) {
    let succeeded = Arc::default();
    let pool = failing_pool(&succeeded);
    let queue = pool.queue().clone();
    let producer = thread::spawn(move || produce(&queue));
    let stopped = end(&pool);
    let accepted = producer.join().expect("the producer ends");
    for key in accepted {
        let listed = stopped.left.contains(&key) || stopped.still_running.contains(&key);
        assert!(listed || lock(&succeeded).contains(&key), "{key} is lost");
    }
    pool.join_blocking();
}

#[test]
fn stop_accounts_for_every_key_at_its_deadline() {
    explore(|| deadline(|pool| pool.stop_blocking(Duration::ZERO)));
}

#[test]
fn drain_accounts_for_every_key_at_its_deadline() {
    explore(|| deadline(|pool| pool.drain_blocking(Duration::ZERO)));
}

/// A stop that is dropped takes no key and cancels no run: the next one lists them all.
#[test]
fn cancelled_stop_loses_no_key() {
    explore(|| {
        deadline(|pool| {
            let mut stop = std::pin::pin!(pool.stop(Duration::ZERO));
            let mut cx = Context::from_waker(Waker::noop());
            match stop.as_mut().poll(&mut cx) {
                Poll::Ready(stopped) => stopped,
                Poll::Pending => pool.stop_blocking(Duration::ZERO),
            }
        });
    });
}
