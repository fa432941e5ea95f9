//! Queues on one thread.

use std::hash::Hash;

use requeue::metrics::Prometheus;
use requeue::{Lease, Queue};

use super::{BATCH64, LEASE, METRICS, NEXT};
use crate::cli::{Bench, bench};
use crate::keys::{MILLION, names, numbers};
use crate::measure::{Load, Sample};
use crate::scenario::{self, BATCH, Part};

pub(super) fn benches() -> Vec<Bench> {
    vec![
        bench("cycle.u64.1k", LEASE, |load| cycle(load, &numbers(1000), Queue::new())),
        bench("cycle.u64.1M", LEASE, |load| cycle(load, &numbers(MILLION), Queue::new())),
        bench("cycle.str.1k", LEASE, |load| cycle(load, &names(1000), Queue::new())),
        bench("cycle.str.1M", LEASE, |load| cycle(load, &names(MILLION), Queue::new())),
        bench("cycle.u64.1k", METRICS, |load| {
            cycle(load, &numbers(1000), with_metrics())
        }),
        bench("cycle.u64.1k", NEXT, |load| cycle_next(load, &numbers(1000))),
        bench("cycle.u64.1M", NEXT, |load| cycle_next(load, &numbers(MILLION))),
        bench("cycle.str.1k", NEXT, |load| cycle_next(load, &names(1000))),
        bench("cycle.str.1M", NEXT, |load| cycle_next(load, &names(MILLION))),
        bench("cycle.u64.1k", BATCH64, |load| cycle_batched(load, &numbers(1000))),
        bench("cycle.u64.1M", BATCH64, |load| cycle_batched(load, &numbers(MILLION))),
        bench("cycle.str.1k", BATCH64, |load| cycle_batched(load, &names(1000))),
        bench("cycle.str.1M", BATCH64, |load| cycle_batched(load, &names(MILLION))),
        bench("fill.u64.1k", LEASE, |load| fill(&numbers(1000), fills(load))),
        bench("fill.u64.1M", LEASE, |_| fill(&numbers(MILLION), 1)),
        bench("fill.str.1k", LEASE, |load| fill(&names(1000), fills(load))),
        bench("fill.str.1M", LEASE, |_| fill(&names(MILLION), 1)),
        bench("fill.u64.1k", NEXT, |load| fill_next(&numbers(1000), fills(load))),
        bench("fill.u64.1M", NEXT, |_| fill_next(&numbers(MILLION), 1)),
        bench("fill.str.1k", NEXT, |load| fill_next(&names(1000), fills(load))),
        bench("fill.str.1M", NEXT, |_| fill_next(&names(MILLION), 1)),
        bench("fill.u64.1k", BATCH64, |load| fill_batched(&numbers(1000), fills(load))),
        bench("fill.u64.1M", BATCH64, |_| fill_batched(&numbers(MILLION), 1)),
        bench("fill.str.1M", BATCH64, |_| fill_batched(&names(MILLION), 1)),
        bench("churn.u64", NEXT, |load| churn(load, Part::Early)),
        bench("churn.u64.late", NEXT, |load| churn(load, Part::Late)),
        bench("dup.u64", LEASE, |load| duplicates(load, &numbers(1000))),
        bench("dup.str", LEASE, |load| duplicates(load, &names(1000))),
        bench("dup.u64", BATCH64, duplicates_batched),
    ]
}

/// A key with the cheapest way to add it.
trait Key: Clone + Eq + Hash + Send + 'static {
    fn add(&self, queue: &Queue<Self>);
}

impl Key for u64 {
    fn add(&self, queue: &Queue<Self>) {
        queue.add(*self).expect("open");
    }
}

impl Key for String {
    fn add(&self, queue: &Queue<Self>) {
        queue.add_ref(self.as_str()).expect("open");
    }
}

fn with_metrics() -> Queue<u64> {
    Queue::builder().name("bench").metrics(Prometheus::new()).build()
}

fn cycles(load: Load) -> usize {
    load.ops(3 * MILLION, MILLION)
}

fn fills(load: Load) -> usize {
    load.ops(1000, 400)
}

fn cycle<K: Key>(load: Load, keys: &[K], queue: Queue<K>) -> Sample {
    scenario::cycle(keys, cycles(load), |key| {
        key.add(&queue);
        queue.get_blocking().expect("open").done();
    })
}

fn cycle_next<K: Key>(load: Load, keys: &[K]) -> Sample {
    let queue = Queue::new();
    keys[keys.len() - 1].add(&queue);
    let mut current = queue.get_blocking();
    scenario::cycle(keys, cycles(load), |key| {
        key.add(&queue);
        current = current.take().and_then(|lease| lease.next_blocking());
    })
}

fn cycle_batched<K: Key>(load: Load, keys: &[K]) -> Sample {
    let queue = Queue::new();
    scenario::cycle_batched(keys, cycles(load), |batch| {
        queue.add_all(batch.iter().cloned()).expect("open");
        queue.get_many_blocking(BATCH).expect("open").done();
    })
}

fn fill<K: Key>(keys: &[K], times: usize) -> Sample {
    let queue = Queue::<K>::new();
    let drain = |count| {
        (0..count).for_each(|_| queue.get_blocking().expect("open").done());
    };
    scenario::fill(keys, (1, times), |keys| keys[0].add(&queue), drain)
}

fn fill_next<K: Key>(keys: &[K], times: usize) -> Sample {
    let queue = Queue::<K>::new();
    let drain = |count| {
        let mut current = queue.get_blocking();
        for _ in 1..count {
            current = current.take().and_then(|lease| lease.next_blocking());
        }
        current.expect("open").done();
    };
    scenario::fill(keys, (1, times), |keys| keys[0].add(&queue), drain)
}

fn fill_batched<K: Key>(keys: &[K], times: usize) -> Sample {
    let queue = Queue::new();
    let add = |keys: &[K]| {
        queue.add_all(keys.iter().cloned()).expect("open");
    };
    let drain = |_| {
        while let Ok(batch) = queue.try_get_many(BATCH) {
            batch.done();
        }
    };
    scenario::fill(keys, (BATCH, times), add, drain)
}

fn churn(load: Load, part: Part) -> Sample {
    let queue = Queue::<u64>::new();
    let mut current = None;
    let finish_oldest = || {
        current = match current.take() {
            Some(lease) => Lease::next_blocking(lease),
            None => queue.get_blocking(),
        };
    };
    scenario::churn(load, part, |key| key.add(&queue), finish_oldest)
}

fn duplicates<K: Key>(load: Load, keys: &[K]) -> Sample {
    let queue = Queue::new();
    let times = load.ops(20_000, 4000);
    scenario::duplicates(keys, (1, times), |keys| keys[0].add(&queue))
}

fn duplicates_batched(load: Load) -> Sample {
    let queue = Queue::new();
    let times = load.ops(20_000, 4000);
    scenario::duplicates(&numbers(1000), (BATCH, times), |keys| {
        queue.add_all(keys.iter().copied()).expect("open");
    })
}
