//! Throughput and latency with several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::Queue;

use super::{ASYNC, BATCH64, LEASE, NEXT, finish};
use crate::cli::{Bench, bench};
use crate::keys::MILLION;
use crate::measure::{Load, Sample, timed};
use crate::scenario::{self, BATCH, Pace};
use crate::system::runtime;

pub(super) fn benches() -> Vec<Bench> {
    vec![
        bench("throughput.1p1c", LEASE, |load| throughput(load, 1, lease)),
        bench("throughput.2p2c", LEASE, |load| throughput(load, 2, lease)),
        bench("throughput.8p8c", LEASE, |load| throughput(load, 8, lease)),
        bench("throughput.1p1c", NEXT, |load| throughput(load, 1, next)),
        bench("throughput.2p2c", NEXT, |load| throughput(load, 2, next)),
        bench("throughput.8p8c", NEXT, |load| throughput(load, 8, next)),
        bench("throughput.1p1c", BATCH64, |load| throughput_batched(load, 1)),
        bench("throughput.2p2c", BATCH64, |load| throughput_batched(load, 2)),
        bench("throughput.8p8c", BATCH64, |load| throughput_batched(load, 8)),
        bench("throughput.1p1c", ASYNC, |load| throughput_async(load, 1)),
        bench("throughput.2p2c", ASYNC, |load| throughput_async(load, 2)),
        bench("throughput.8p8c", ASYNC, |load| throughput_async(load, 8)),
        bench("latency.single", LEASE, |load| latency(load, scenario::single)),
        bench("latency.burst", LEASE, |load| latency(load, scenario::burst)),
        bench("latency.single", ASYNC, |load| latency_async(load, scenario::single)),
        bench("latency.burst", ASYNC, |load| latency_async(load, scenario::burst)),
    ]
}

/// A queue that is closed after its last key.
struct Deliveries {
    queue: Queue<u64>,
    left: AtomicUsize,
}

impl Deliveries {
    fn new(count: usize) -> Self {
        Self { queue: Queue::new(), left: AtomicUsize::new(count) }
    }

    /// Counts delivered keys.
    fn count(&self, keys: usize) {
        if self.left.fetch_sub(keys, Ordering::Relaxed) == keys {
            self.queue.close();
        }
    }
}

fn keys(load: Load) -> usize {
    load.ops(2 * MILLION, 400_000)
}

fn throughput(load: Load, pairs: usize, work: fn(&Deliveries) -> usize) -> Sample {
    let deliveries = Deliveries::new(keys(load));
    let produce = |keys: &mut dyn Iterator<Item = u64>| {
        keys.for_each(|key| {
            deliveries.queue.add(key).expect("open");
        });
    };
    scenario::throughput((pairs, keys(load)), produce, || work(&deliveries))
}

fn lease(deliveries: &Deliveries) -> usize {
    let mut delivered = 0;
    while let Some(lease) = deliveries.queue.get_blocking() {
        lease.done();
        deliveries.count(1);
        delivered += 1;
    }
    delivered
}

fn next(deliveries: &Deliveries) -> usize {
    let mut delivered = 0;
    let mut current = deliveries.queue.get_blocking();
    while let Some(lease) = current {
        deliveries.count(1);
        delivered += 1;
        current = lease.next_blocking();
    }
    delivered
}

fn throughput_batched(load: Load, pairs: usize) -> Sample {
    let deliveries = Deliveries::new(keys(load));
    let produce = |keys: &mut dyn Iterator<Item = u64>| {
        while deliveries.queue.add_all(keys.take(BATCH)).expect("open").ready > 0 {}
    };
    let consume = || {
        let mut delivered = 0;
        while let Some(batch) = deliveries.queue.get_many_blocking(BATCH) {
            deliveries.count(batch.len());
            delivered += batch.len();
            batch.done();
        }
        delivered
    };
    scenario::throughput((pairs, keys(load)), produce, consume)
}

/// Runs producers and consumers as tasks on two threads, like goroutines.
fn throughput_async(load: Load, pairs: usize) -> Sample {
    let count = keys(load);
    let deliveries: &'static Deliveries = Box::leak(Box::new(Deliveries::new(count)));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).build().expect("the runtime starts");
    timed(count, || {
        let consumers: Vec<_> =
            (0..pairs).map(|_| runtime.spawn(work(deliveries))).collect();
        for first in 0..pairs {
            runtime.spawn(async move {
                for key in (first as u64..count as u64).step_by(pairs) {
                    deliveries.queue.add(key).expect("open");
                }
            });
        }
        let delivered =
            consumers.into_iter().map(|task| runtime.block_on(task).expect("no panic"));
        assert_eq!(delivered.sum::<usize>(), count, "keys were lost or delivered twice");
    })
}

async fn work(deliveries: &Deliveries) -> usize {
    let mut delivered = 0;
    let mut current = deliveries.queue.get().await;
    while let Some(lease) = current {
        deliveries.count(1);
        delivered += 1;
        current = lease.next().await;
    }
    delivered
}

fn latency(load: Load, pace: Pace) -> Sample {
    let queue = Queue::new();
    let receive = || finish(queue.get_blocking());
    scenario::latency(
        load,
        pace,
        |key| {
            queue.add(key).expect("open");
        },
        receive,
    )
}

fn latency_async(load: Load, pace: Pace) -> Sample {
    let queue = Queue::new();
    let runtime = runtime();
    let receive = || finish(runtime.block_on(queue.get()));
    scenario::latency(
        load,
        pace,
        |key| {
            queue.add(key).expect("open");
        },
        receive,
    )
}
