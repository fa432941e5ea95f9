//! Pools under random schedules, whose number of workers changes while keys are added.
//!
//! `RUSTFLAGS="--cfg requeue_shuttle" cargo test -p requeue --lib --release shuttle`
//!
//! In every schedule, no key is processed by two workers at once, and each added key is run
//! or returned. Shuttle reports a worker or caller that waits forever as a deadlock.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::{Handle, HandlerResult, Pool, Run, Stopped};
use crate::sync::{Mutex, lock};
use crate::testing::FakeClock;
use crate::{Finish, Queue};

const KEYS: usize = 3;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, 2000);
    shuttle::check_pct(scenario, 2000, 3);
}

type Ledger = Arc<Mutex<[Entry; KEYS]>>;

/// The runs of one key.
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

/// Starts a pool of two workers on shuttle's threads.
fn start<R: HandlerResult + 'static>(
    queue: Queue<usize>,
    handler: impl Fn(&Run<usize>) -> R + Send + Sync + 'static,
) -> Handle<Queue<usize>> {
    let handler = Arc::new(handler);
    let pool = Pool::new(queue).workers(2).start(move |worker| {
        let handler = Arc::clone(&handler);
        thread::spawn(move || worker.work(&*handler));
        Ok(())
    });
    pool.expect("shuttle refuses no thread")
}

/// Starts a pool that enters its runs in a ledger.
fn pool(ledger: &Ledger) -> Handle<Queue<usize>> {
    let ledger = Arc::clone(ledger);
    start(Queue::new(), move |run| {
        lock(&ledger)[*run.key()].begin();
        thread::yield_now();
        lock(&ledger)[*run.key()].end();
    })
}

/// Adds each key once or twice. Returns those that were accepted.
fn produce(queue: &Queue<usize>) -> Vec<usize> {
    let keys = (0..KEYS).chain([0, 1]);
    keys.filter(|key| queue.add(*key).is_ok()).collect()
}

fn resize_often(pool: &Handle<Queue<usize>>) {
    for _ in 0..3 {
        let workers = thread_rng().gen_range(0..3);
        pool.set_workers(workers).expect("shuttle refuses no thread");
    }
}

/// Adds keys and resizes the pool at the same time, ends it, and looks for each key.
fn scenario(end: fn(&Handle<Queue<usize>>) -> Vec<usize>) {
    let ledger = Ledger::default();
    let pool = pool(&ledger);
    let queue = pool.queue().clone();
    let producer = thread::spawn(move || produce(&queue));
    let resized = pool.clone();
    let resizing = thread::spawn(move || resize_often(&resized));
    let mut left = end(&pool);
    let accepted = producer.join().expect("the producer ends");
    resizing.join().expect("the pool is resized");
    pool.join_blocking();
    left.extend(pool.queue().close_now());
    for key in accepted {
        let entry = &lock(&ledger)[key];
        assert!(
            !entry.running && !entry.overlapped,
            "{key} was processed by two workers"
        );
        assert!(entry.runs > 0 || left.contains(&key), "{key} is lost");
    }
}

#[test]
fn stopped_pool_loses_no_key_and_no_worker_stays() {
    explore(|| scenario(|pool| pool.stop_blocking(Duration::MAX).left));
}

#[test]
fn drained_pool_loses_no_key_and_no_worker_stays() {
    explore(|| scenario(|pool| pool.drain_blocking(Duration::MAX).left));
}

#[test]
fn paused_pool_leaves_its_keys_and_resumes() {
    explore(|| {
        let ledger = Ledger::default();
        let pool = pool(&ledger);
        let queue = pool.queue().clone();
        let producer = thread::spawn(move || produce(&queue).len());
        pool.set_workers(0).expect("no thread is needed");
        pool.join_blocking();
        assert_eq!(producer.join().expect("the producer ends"), KEYS + 2);
        assert_eq!(pool.queue().counts().processing, 0);
        pool.set_workers(2).expect("shuttle refuses no thread");
        pool.queue().wait_idle_blocking();
        assert!(lock(&ledger).iter().all(|entry| entry.runs > 0));
        pool.stop_blocking(Duration::MAX);
    });
}

/// Without a key or a close, only the order to leave can wake a worker.
#[test]
fn order_to_leave_reaches_every_worker() {
    explore(|| {
        let pool = pool(&Ledger::default());
        resize_often(&pool);
        pool.set_workers(0).expect("no thread is needed");
        pool.join_blocking();
        assert_eq!(pool.queue().parked(), 0);
    });
}

/// Starts a pool whose first key succeeds, whose second fails, and whose third is requeued,
/// on a clock that stands still.
fn failing_pool(succeeded: &Arc<Mutex<Vec<usize>>>) -> Handle<Queue<usize>> {
    let succeeded = Arc::clone(succeeded);
    let queue = Queue::builder().clock(FakeClock::new()).build();
    start(queue, move |run| {
        thread::yield_now();
        match *run.key() {
            0 => lock(&succeeded).push(0),
            1 => return Err("fails"),
            _ => return Ok(Finish::RequeueAfter(Duration::from_secs(1))),
        }
        Ok(Finish::Succeed)
    })
}

/// The deadline comes at any point of a worker's cycle. A key that was leased and not
/// registered yet, or just returned, was in neither list.
fn deadline(end: fn(&Handle<Queue<usize>>) -> Stopped<usize>) {
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

/// A dropped stop takes no key and cancels no run: the next one lists them all.
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
