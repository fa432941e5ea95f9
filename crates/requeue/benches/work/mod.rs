//! The hot paths of the queue and the limiters, each as repeatable work.
//!
//! `benches/queue.rs` times them, `benches/instructions.rs` counts their instructions. Each
//! run leaves its queue as it was before.

mod rate;

use std::time::Duration;

use requeue::retry::Exponential;
use requeue::{Lease, Queue};

/// Operations on a hot path of the queue.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// The number of operations in a run.
    pub(crate) count: usize,
    /// Sets up and returns a function that makes one run.
    pub(crate) start: fn() -> Run,
}

pub(crate) type Run = Box<dyn FnMut()>;

const fn work(name: &'static str, start: fn() -> Run) -> Work {
    Work { name, count: COUNT, start }
}

/// A multiple of [`BATCH`].
const COUNT: usize = 1024;

/// The number of keys in a batch.
const BATCH: usize = 64;

/// Why an add succeeds.
pub(crate) const OPEN: &str = "the queue is open";

/// Longer than any measurement.
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) const ALL: &[Work] = &[
    work("cycle u64, lease", || cycle(Queue::new())),
    work("cycle u64, next", || cycle_next(Queue::new())),
    work("cycle u64, batches of 64", || cycle_batches(Queue::new())),
    work("cycle u64, lease, metrics", || cycle(measured())),
    work("cycle u64, next, metrics", || cycle_next(measured())),
    work("cycle u64, batches of 64, metrics", || cycle_batches(measured())),
    work("cycle u64, 1k other keys delayed", || cycle(delayed_queue())),
    work("cycle string, lease", || cycle_strings(COUNT)),
    work("cycle string, next", cycle_strings_next),
    work("fill and drain u64", || fill_and_drain(COUNT)),
    work("duplicate add u64", duplicate),
    work("duplicate add string", duplicate_string),
    work("duplicate add u64, batches of 64", duplicate_batches),
    work("add_after of a new key", || add_after(COUNT)),
    work("add_rate_limited, forget", add_rate_limited),
    work("limiter allow", rate::allow),
    work("limiter allow, denied", rate::denied),
    work("limiter reserve", rate::reserve),
    work("limiter wait, polled once", rate::wait),
    work("limiter wait_blocking", rate::wait_blocking),
    work("pacer take_blocking", rate::take),
    work("keyed allow, known key", rate::keyed_known),
    work("keyed allow, new key", rate::keyed_new),
    work("retry when and forget", rate::when_first),
    work("retry when, known key", rate::when_repeated),
];

fn keys() -> impl Iterator<Item = u64> {
    0..COUNT as u64
}

/// Returns names of 33 bytes, as pods have.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("namespace-{:04}/name-{key:013}", key % 1000)).collect()
}

fn delayed_queue() -> Queue<u64> {
    let queue = Queue::new();
    for key in 0..1000 {
        queue.add_after(u64::MAX - key, HOUR).expect(OPEN);
    }
    queue
}

fn cycle(queue: Queue<u64>) -> Run {
    Box::new(move || {
        for key in keys() {
            queue.add(key).expect(OPEN);
            queue.get_blocking().expect("a key is ready").done();
        }
    })
}

fn cycle_next(queue: Queue<u64>) -> Run {
    queue.add(u64::MAX).expect(OPEN);
    let mut held = queue.get_blocking();
    Box::new(move || {
        for key in keys() {
            queue.add(key).expect(OPEN);
            held = held.take().and_then(Lease::next_blocking);
        }
    })
}

fn cycle_batches(queue: Queue<u64>) -> Run {
    let keys: Vec<_> = keys().collect();
    Box::new(move || {
        for batch in keys.chunks(BATCH) {
            queue.add_all(batch.iter().copied()).expect(OPEN);
            queue.get_many_blocking(BATCH).expect("keys are ready").done();
        }
    })
}

/// Cycles over `count` different names, [`COUNT`] of them in a run.
pub(crate) fn cycle_strings(count: usize) -> Run {
    let (queue, names) = (Queue::<String>::new(), names(count));
    let mut at = 0;
    Box::new(move || {
        for _ in 0..COUNT {
            queue.add_ref(names[at].as_str()).expect(OPEN);
            queue.get_blocking().expect("a key is ready").done();
            at = (at + 1) % names.len();
        }
    })
}

fn cycle_strings_next() -> Run {
    let (queue, names) = (Queue::<String>::new(), names(COUNT));
    queue.add_ref("first").expect(OPEN);
    let mut held = queue.get_blocking();
    Box::new(move || {
        for name in &names {
            queue.add_ref(name.as_str()).expect(OPEN);
            held = held.take().and_then(Lease::next_blocking);
        }
    })
}

/// Adds `count` keys, then takes and finishes all of them.
pub(crate) fn fill_and_drain(count: usize) -> Run {
    let queue = Queue::new();
    Box::new(move || {
        for key in 0..count {
            queue.add(key).expect(OPEN);
        }
        let mut lease = queue.try_get().ok();
        for _ in 1..count {
            lease = lease.and_then(Lease::next_blocking);
        }
        lease.expect("a key is ready").done();
    })
}

fn duplicate() -> Run {
    let queue = Queue::new();
    queue.add_all(keys()).expect(OPEN);
    Box::new(move || {
        for key in keys() {
            queue.add(key).expect(OPEN);
        }
    })
}

fn duplicate_string() -> Run {
    let (queue, names) = (Queue::<String>::new(), names(COUNT));
    queue.add_all(names.iter().cloned()).expect(OPEN);
    Box::new(move || {
        for name in &names {
            queue.add_ref(name.as_str()).expect(OPEN);
        }
    })
}

fn duplicate_batches() -> Run {
    let queue = Queue::new();
    let keys: Vec<_> = keys().collect();
    queue.add_all(keys.iter().copied()).expect(OPEN);
    Box::new(move || {
        for batch in keys.chunks(BATCH) {
            queue.add_all(batch.iter().copied()).expect(OPEN);
        }
    })
}

/// Delays `count` keys, far apart and in no order. Each run also creates and drops a queue,
/// which costs little compared with the adds.
pub(crate) fn add_after(count: usize) -> Run {
    Box::new(move || {
        let queue = Queue::new();
        for key in 0..count as u64 {
            queue
                .add_after(key, HOUR + Duration::from_micros(key * 7919 % 1_048_576))
                .expect(OPEN);
        }
    })
}

/// As [`add_after`].
fn add_rate_limited() -> Run {
    Box::new(|| {
        let slow = Exponential::new(HOUR, 24 * HOUR);
        let queue = Queue::builder().capacity(COUNT).retry(slow).build();
        for key in keys() {
            queue.add_rate_limited(key).expect(OPEN);
            queue.forget(&key);
        }
    })
}

/// A queue that reports to Prometheus.
#[cfg(feature = "prometheus")]
fn measured() -> Queue<u64> {
    Queue::builder().metrics(requeue::metrics::Prometheus::new()).build()
}

/// A queue that reports to a recorder that does nothing.
#[cfg(not(feature = "prometheus"))]
fn measured() -> Queue<u64> {
    struct NoOp;

    impl requeue::metrics::Recorder for NoOp {}

    impl requeue::metrics::Metrics for NoOp {
        fn queue(
            &self,
            _: &str,
            _: requeue::metrics::Probe,
        ) -> Box<dyn requeue::metrics::Recorder> {
            Box::new(Self)
        }
    }

    Queue::builder().metrics(NoOp).build()
}
