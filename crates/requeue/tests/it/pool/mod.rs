//! Pools on threads. What holds for any pool is tested here; `tasks.rs` has what only
//! tasks can do.

mod accounting;
mod ending;
mod hostile;
mod names;
mod recording;
#[cfg(feature = "tokio")]
mod shutdown;
mod sizing;
mod sources;
#[cfg(feature = "tokio")]
mod tasks;
#[cfg(feature = "tracing")]
mod traces;

use std::error::Error;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use requeue::Queue;
use requeue::pool::{Failure, Handle, Outcome, Pool};
use requeue::retry::{Exponential, RetryPolicy};
use requeue::testing::FakeClock;

const SECOND: Duration = Duration::from_secs(1);
/// A deadline that no test reaches: if one does, it fails instead of hanging.
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
    /// Notes a run: how many of that key there were before.
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

#[test]
fn key_that_went_well_is_gone_and_its_failures_forgotten() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).run(move |key: &&'static str| {
        if seen.note(key) == 0 { Err("not yet") } else { Ok(()) }
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
fn key_that_is_to_come_after_a_delay_comes_then() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let runs = Runs::default();
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).run(move |key: &&'static str| {
        let first = seen.note(key) == 0;
        Ok::<_, String>(if first { Outcome::After(SECOND * 90) } else { Outcome::Done })
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
fn key_that_was_given_up_is_dead_and_comes_no_more() {
    let (queue, morgue) = (Queue::new(), Morgue::new());
    queue.add("a").unwrap();
    let pool = Pool::new(queue.clone())
        .on_dead(morgue.callback())
        .run(|_: &&str| Ok::<_, String>(Outcome::GiveUp))
        .unwrap();
    queue.wait_idle_blocking();
    assert_eq!(morgue.bodies(), [("a", Failure::GaveUp)]);
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert!(pool.drain_blocking(LONG).in_time());
}

/// Takes dead keys in.
struct Morgue {
    door: mpsc::Sender<(&'static str, Failure<String>)>,
    inside: Receiver<(&'static str, Failure<String>)>,
}

impl Morgue {
    fn new() -> Self {
        let (door, inside) = mpsc::channel();
        Self { door, inside }
    }

    fn callback(&self) -> impl Fn(&&'static str, &Failure<String>) + Send + Sync + use<> {
        let door = Mutex::new(self.door.clone());
        move |key, failure| {
            door.lock().unwrap().send((*key, failure.clone())).unwrap();
        }
    }

    fn bodies(&self) -> Vec<(&'static str, Failure<String>)> {
        self.inside.try_iter().collect()
    }
}

#[test]
fn key_is_dead_after_so_many_retries_and_starts_afresh_when_added() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (morgue, runs) = (Morgue::new(), Runs::default());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone())
        .max_retries(2)
        .on_dead(morgue.callback())
        .run(move |key: &&'static str| Err::<(), _>(format!("run {}", seen.note(key))));
    for round in 1..=2 {
        queue.add("a").unwrap();
        for backoff in [SECOND, SECOND * 2] {
            clock.wait_for_timers_blocking(1);
            clock.advance(backoff);
        }
        queue.wait_idle_blocking();
        assert_eq!((runs.of("a"), queue.num_requeues(&"a")), (round * 3, 0));
        let last = Failure::Error(format!("run {}", round * 3 - 1));
        assert_eq!(morgue.bodies(), [("a", last)]);
    }
    drop(pool);
}

#[test]
fn panic_is_caught_and_retried_and_costs_no_worker() {
    let clock = FakeClock::new();
    let queue = queue_on(&clock);
    let (failures, runs) = (Morgue::new(), Runs::default());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).on_failure(failures.callback()).run(
        move |key: &&'static str| {
            assert!(seen.note(key) > 0, "the first run of {key}");
            Ok::<_, String>(())
        },
    );
    queue.add("a").unwrap();
    clock.wait_for_timers_blocking(1);
    let message = "the first run of a".to_owned();
    assert_eq!(failures.bodies(), [("a", Failure::Panicked(message))]);
    assert_eq!(queue.num_requeues(&"a"), 1);
    clock.advance(SECOND);
    queue.wait_idle_blocking();
    assert_eq!(runs.of("a"), 2, "by the only worker");
    drop(pool);
}

#[test]
fn panic_of_a_callback_changes_nothing() {
    let (queue, morgue) = (Queue::new(), Morgue::new());
    queue.add_all(["a", "b"]).unwrap();
    let pool = Pool::new(queue.clone())
        .max_retries(0)
        .on_failure(|_, _| panic!("the callback's own"))
        .on_dead(morgue.callback())
        .run(|_| Err::<(), _>("no".to_owned()))
        .unwrap();
    queue.wait_idle_blocking();
    let keys: Vec<_> = morgue.bodies().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "b"]);
    assert!(pool.drain_blocking(LONG).left.is_empty());
}

/// A policy that knows no key and panics instead.
struct Lost;

impl RetryPolicy<&'static str> for Lost {
    fn when(&self, key: &&'static str) -> Duration {
        panic!("when {key}?");
    }

    fn forget(&self, key: &&'static str) {
        panic!("forget {key}?");
    }

    fn num_requeues(&self, key: &&'static str) -> u32 {
        panic!("how often {key}?");
    }
}

/// A policy that panicked over the outcome of a run ended the worker, and the key did not
/// come again.
#[test]
fn panic_of_the_policy_costs_neither_worker_nor_key() {
    let clock = FakeClock::new();
    let queue = Queue::builder().clock(clock.clone()).retry(Lost).build();
    let runs = Runs::default();
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).max_retries(3).run(move |key: &&'static str| {
        if seen.note(key) == 0 { Err("not yet") } else { Ok(()) }
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
fn failure_has_the_cause_of_its_error() {
    assert!(Failure::<Wrapped>::GaveUp.source().is_none());
    let number = "seven".parse::<u32>().unwrap_err();
    let failure = Failure::Error(Wrapped(number.clone()));
    assert_eq!(failure.source().map(ToString::to_string), Some(number.to_string()));
}

/// An error with a cause.
#[derive(Debug)]
struct Wrapped(std::num::ParseIntError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no number")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn key_added_while_its_handler_runs_is_run_once_more() {
    let queue = Queue::new();
    let (runs, adder) = (Runs::default(), queue.clone());
    let seen = runs.clone();
    let pool = Pool::new(queue.clone()).workers(3).run(move |key: &&'static str| {
        if seen.note(key) == 0 {
            adder.add(*key).unwrap();
            adder.add(*key).unwrap();
        }
        Ok::<_, String>(())
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
    let pool = Pool::new(queue.clone()).workers(4).run(move |_| {
        four.wait();
        Ok::<_, String>(())
    });
    queue.wait_idle_blocking();
    assert_eq!(pool.unwrap().workers(), 4);
}

/// Lets a test hold handlers back.
struct Gate {
    begun: Receiver<u32>,
    leave: mpsc::Sender<()>,
}

/// A pool whose runs each tell that they have begun and wait to be let go.
fn gated(queue: &Queue<u32>, workers: usize) -> (Gate, Handle<u32>) {
    let (start, begun) = mpsc::channel();
    let (leave, left) = mpsc::channel();
    let (start, left) = (Mutex::new(start), Mutex::new(left));
    let pool = Pool::new(queue.clone()).workers(workers).run(move |key| {
        start.lock().unwrap().send(*key).unwrap();
        left.lock().unwrap().recv().map_err(|error| error.to_string())
    });
    (Gate { begun, leave }, pool.unwrap())
}

#[test]
fn workers_that_are_added_start_at_once() {
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
fn worker_that_is_too_many_finishes_its_run_and_takes_no_other_key() {
    let queue = Queue::new();
    let (gate, pool) = gated(&queue, 2);
    queue.add_all([1, 2, 3, 4]).unwrap();
    gate.begun.recv().unwrap();
    gate.begun.recv().unwrap();
    pool.set_workers(1).unwrap();
    assert_eq!(queue.counts().processing, 2, "no run is disturbed");
    (0..2).for_each(|_| gate.leave.send(()).unwrap());
    gate.begun.recv().unwrap();
    // Whoever stayed runs the third key. Nobody is there to take the fourth.
    pool.set_workers(0).unwrap();
    gate.leave.send(()).unwrap();
    pool.join_blocking();
    assert_eq!((queue.len(), queue.counts().processing), (1, 0));
    assert!(gate.begun.try_recv().is_err());
}

#[test]
fn workers_without_a_key_leave_at_once_and_come_back() {
    let queue = Queue::<u32>::new();
    let pool = Pool::new(queue.clone()).workers(8).run(|_| Ok::<_, String>(())).unwrap();
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

    /// However many workers there are, come and go: each key that is added is run, and
    /// none by two workers at a time.
    #[test]
    fn no_key_is_with_two_workers(
        keys in prop::collection::vec(0..6_usize, 1..200),
        staffing in prop::collection::vec(1..6_usize, 1..6),
    ) {
        let queue = Queue::new();
        let busy: Arc<[Mutex<u32>; 6]> = Arc::default();
        let held = Arc::clone(&busy);
        let pool = Pool::new(queue.clone()).workers(2).run(move |key: &usize| {
            let mut runs = held[*key].try_lock().map_err(|_| "with two workers")?;
            *runs += 1;
            Ok::<_, &str>(())
        }).unwrap();
        for (index, chunk) in keys.chunks(keys.len().div_ceil(staffing.len())).enumerate() {
            queue.add_all(chunk.iter().copied()).unwrap();
            pool.set_workers(staffing[index]).unwrap();
        }
        queue.wait_idle_blocking();
        let stopped = pool.drain_blocking(LONG);
        prop_assert!(stopped.left.is_empty() && stopped.in_time());
        for key in keys {
            let runs = *busy[key].lock().unwrap();
            prop_assert!(runs > 0, "{} never ran", key);
            prop_assert_eq!(queue.num_requeues(&key), 0);
        }
    }
}
