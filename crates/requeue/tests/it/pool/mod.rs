//! Pools. Tests on threads cover what holds for any pool; `tasks.rs` covers what only tasks
//! can do.

mod accounting;
mod handlers;
mod hostile;
mod names;
mod recording;
mod runs;
#[cfg(feature = "tokio")]
mod shutdown;
mod sizing;
mod sources;
mod stopping;
#[cfg(feature = "tokio")]
mod tasks;
#[cfg(feature = "tracing")]
mod traces;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use requeue::pool::{Failure, Handle, Pool, Run};
use requeue::retry::{Exponential, RetryPolicy};
use requeue::testing::FakeClock;
use requeue::{Finish, Queue};

const SECOND: Duration = Duration::from_secs(1);
/// A deadline that no test reaches: a test that does fails instead of hanging.
const LONG: Duration = Duration::from_secs(60);

/// A queue on a fake clock whose keys wait one second for their first retry.
fn queue_on(clock: &FakeClock) -> Queue<&'static str> {
    let backoff = Exponential::new(SECOND, SECOND * 1000);
    Queue::builder().clock(clock.clone()).retry(backoff).build()
}

/// The keys in the order in which they ran.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<&'static str>>>);

impl Runs {
    /// Notes a run. Returns how many runs of that key came before.
    fn note(&self, key: &'static str) -> usize {
        let mut runs = self.0.lock().unwrap();
        let before = runs.iter().filter(|run| **run == key).count();
        runs.push(key);
        before
    }

    fn of(&self, key: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|run| **run == key).count()
    }
}

/// Collects keys and failures from a callback of a pool.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Failures {
    fn callback(&self) -> impl Fn(&&'static str, &Failure) + Send + Sync + use<> {
        let failures = Arc::clone(&self.0);
        move |key, failure| failures.lock().unwrap().push((*key, failure.to_string()))
    }

    fn take(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn failed(key: &'static str, text: &str) -> (&'static str, String) {
    (key, text.to_owned())
}

#[test]
fn success_forgets_the_failures_of_a_key() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).spawn_threads(move |run| {
        if seen.note(run.key()) == 0 { Err("not yet") } else { Ok(()) }
    });
    let pool = pool.unwrap();
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1); // the retry waits
    assert_eq!(queue.num_requeues(&"a"), 1);
    clock.advance(SECOND);
    queue.wait_idle_blocking();
    assert_eq!((runs.of("a"), queue.num_requeues(&"a")), (2, 0));
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

#[test]
fn requeued_key_runs_again_after_its_delay() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    let pool =
        Pool::new(queue.clone()).spawn_threads(move |run| match seen.note(run.key()) {
            0 => Finish::RequeueAfter(SECOND * 90),
            _ => Finish::Succeed,
        });
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1);
    clock.advance(SECOND * 89);
    assert_eq!((queue.counts().delayed, runs.of("a")), (1, 1));
    clock.advance(SECOND);
    queue.wait_idle_blocking();
    assert_eq!(runs.of("a"), 2);
    drop(pool);
}

#[test]
fn key_that_the_handler_gives_up_is_dead() {
    let (queue, dead) = (Queue::new(), Failures::default());
    queue.add("a").unwrap();
    let pool = Pool::new(queue.clone())
        .on_dead(dead.callback())
        .spawn_threads(|_| Finish::GiveUp)
        .unwrap();
    queue.wait_idle_blocking();
    assert_eq!(dead.take(), [failed("a", "the handler gave up")]);
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert!(pool.drain_blocking(LONG).in_time());
}

#[test]
fn key_is_dead_after_its_last_retry_and_starts_afresh_when_added() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (dead, runs) = (Failures::default(), Runs::default());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone())
        .max_retries(2)
        .on_dead(dead.callback())
        .spawn_threads(move |run| Err::<(), _>(format!("run {}", seen.note(run.key()))));
    for round in 1..=2 {
        queue.add("a").unwrap();
        for backoff in [SECOND, SECOND * 2] {
            clock.wait_for_timers_blocking(1);
            clock.advance(backoff);
        }
        queue.wait_idle_blocking();
        assert_eq!((runs.of("a"), queue.num_requeues(&"a")), (round * 3, 0));
        assert_eq!(dead.take(), [failed("a", &format!("run {}", round * 3 - 1))]);
    }
    drop(pool);
}

#[test]
fn panic_of_a_handler_is_retried_and_costs_no_worker() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (failures, runs) = (Failures::default(), Runs::default());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).on_failure(failures.callback()).spawn_threads(
        move |run| assert!(seen.note(run.key()) > 0, "the first run of {}", run.key()),
    );
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1);
    let message = "the handler panicked: the first run of a";
    assert_eq!(failures.take(), [failed("a", message)]);
    assert_eq!(queue.num_requeues(&"a"), 1);
    clock.advance(SECOND);
    queue.wait_idle_blocking();
    assert_eq!(runs.of("a"), 2, "by the only worker");
    drop(pool);
}

#[test]
fn panic_of_a_callback_has_no_effect() {
    let (queue, dead) = (Queue::new(), Failures::default());
    queue.add_all(["a", "b"]).unwrap();
    let pool = Pool::new(queue.clone())
        .max_retries(0)
        .on_failure(|_, _| panic!("a callback that panics, on purpose"))
        .on_dead(dead.callback())
        .spawn_threads(|_| Err::<(), _>("no"))
        .unwrap();
    queue.wait_idle_blocking();
    assert_eq!(dead.take(), [failed("a", "no"), failed("b", "no")]);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

/// A policy that panics in every call.
struct PanickingPolicy;

impl RetryPolicy<&'static str> for PanickingPolicy {
    fn when(&self, _: &&'static str) -> Duration {
        panic!("when");
    }

    fn forget(&self, _: &&'static str) {
        panic!("forget");
    }

    fn num_requeues(&self, _: &&'static str) -> u32 {
        panic!("num_requeues");
    }
}

/// The first panic of the policy ended the worker, and the key did not run again.
#[test]
fn panic_of_the_policy_costs_neither_worker_nor_key() {
    let clock = FakeClock::new();
    let queue = Queue::builder().clock(clock.clone()).retry(PanickingPolicy).build();
    let runs = Runs::default();
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).max_retries(3).spawn_threads(move |run| {
        if seen.note(run.key()) == 0 { Err("not yet") } else { Ok(()) }
    });
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1);
    assert_eq!((runs.of("a"), queue.counts().delayed), (1, 1));
    clock.advance(SECOND);
    queue.wait_idle_blocking();
    queue.add("b").unwrap();
    clock.wait_for_timers_blocking(1);
    assert_eq!((runs.of("a"), runs.of("b")), (2, 1), "by the only worker");
    drop(pool);
}

#[test]
fn key_added_during_its_run_is_run_once_more() {
    let queue = Queue::<&str>::new();
    let (runs, weak) = (Runs::default(), queue.downgrade());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).workers(3).spawn_threads(move |run| {
        if seen.note(run.key()) == 0 {
            let queue = weak.upgrade().unwrap();
            queue.add(*run.key()).unwrap();
            queue.add(*run.key()).unwrap();
        }
    });
    queue.add("a").unwrap();
    queue.wait_idle_blocking();
    assert_eq!(runs.of("a"), 2);
    drop(pool);
}

#[test]
fn workers_run_at_the_same_time() {
    let queue = Queue::new();
    queue.add_all(0..12).unwrap();
    // Each run waits for three others: with fewer than four workers this hangs.
    let four = Arc::new(Barrier::new(4));
    let pool = Pool::new(queue.clone()).workers(4).spawn_threads(move |_| {
        four.wait();
    });
    queue.wait_idle_blocking();
    assert_eq!(pool.unwrap().workers(), 4);
}

/// Holds the runs of a pool until the test lets them end.
struct Gate {
    begun: Receiver<u32>,
    leave: mpsc::Sender<()>,
}

/// A pool whose runs report that they have begun, and then wait for the gate.
fn gated(queue: &Queue<u32>, workers: usize) -> (Gate, Handle<Queue<u32>>) {
    let (start, begun) = mpsc::channel();
    let (leave, left) = mpsc::channel();
    let left = Mutex::new(left);
    let pool = Pool::new(queue.clone()).workers(workers).spawn_threads(move |run| {
        start.send(*run.key()).unwrap();
        left.lock().unwrap().recv()
    });
    (Gate { begun, leave }, pool.unwrap())
}

#[test]
fn new_workers_start_at_once() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 1);
    queue.add_all([1, 2, 3]).unwrap();
    assert_eq!(gate.begun.recv(), Ok(1));
    assert_eq!(queue.len(), 2);
    pool.set_workers(3).unwrap();
    let mut begun = [gate.begun.recv().unwrap(), gate.begun.recv().unwrap()];
    begun.sort_unstable();
    assert_eq!(begun, [2, 3], "while the first is still running");
    (0..3).for_each(|_| gate.leave.send(()).unwrap());
    queue.wait_idle_blocking();
    assert_eq!(pool.workers(), 3);
}

#[test]
fn surplus_worker_finishes_its_run_and_takes_no_other_key() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 2);
    queue.add_all([1, 2, 3, 4]).unwrap();
    gate.begun.recv().unwrap();
    gate.begun.recv().unwrap();
    pool.set_workers(1).unwrap();
    assert_eq!(queue.counts().processing, 2, "no run is disturbed");
    (0..2).for_each(|_| gate.leave.send(()).unwrap());
    gate.begun.recv().unwrap();
    // The remaining worker runs the third key. The fourth stays in the queue.
    pool.set_workers(0).unwrap();
    gate.leave.send(()).unwrap();
    pool.join_blocking();
    assert_eq!((queue.len(), queue.counts().processing), (1, 0));
    assert!(gate.begun.try_recv().is_err());
}

#[test]
fn idle_workers_leave_at_once_and_can_be_replaced() {
    let queue = Queue::<u32>::new();
    let pool = Pool::new(queue.clone()).workers(8).spawn_threads(|_| ()).unwrap();
    pool.set_workers(0).unwrap();
    pool.join_blocking();
    assert_eq!(queue.parked(), 0);
    queue.add(1).unwrap();
    assert_eq!(queue.len(), 1, "the pool pauses");
    pool.set_workers(2).unwrap();
    queue.wait_idle_blocking();
    assert!(!queue.is_closed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the number of workers, each key is run, and never by two workers at once.
    #[test]
    fn no_key_is_processed_by_two_workers(
        keys in prop::collection::vec(0..6_usize, 1..200),
        numbers in prop::collection::vec(1..6_usize, 1..6),
    ) {
        let queue = Queue::<usize>::new();
        let runs: Arc<[Mutex<u32>; 6]> = Arc::default();
        let held = Arc::clone(&runs);
        let pool = Pool::new(queue.clone()).workers(2).spawn_threads(move |run| {
            let mut runs = held[*run.key()].try_lock().map_err(|_| "two workers")?;
            *runs += 1;
            Ok::<_, &str>(())
        }).unwrap();
        for (index, chunk) in keys.chunks(keys.len().div_ceil(numbers.len())).enumerate() {
            queue.add_all(chunk.iter().copied()).unwrap();
            pool.set_workers(numbers[index]).unwrap();
        }
        queue.wait_idle_blocking();
        let stopped = pool.drain_blocking(LONG);
        prop_assert!(stopped.left.is_empty() && stopped.in_time());
        for key in keys {
            let runs = *runs[key].lock().unwrap();
            prop_assert!(runs > 0, "{} never ran", key);
            prop_assert_eq!(queue.num_requeues(&key), 0);
        }
    }
}
