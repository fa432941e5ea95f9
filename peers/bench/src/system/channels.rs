//! Channels: kanal, flume and crossbeam. They do not deduplicate.

use std::sync::Mutex;

use crate::cli::{Bench, bench};
use crate::keys::{MILLION, names, numbers};
use crate::measure::{Load, Sample};
use crate::scenario;

/// Returns the benchmarks of one crate. The crates have the same method names.
macro_rules! rows {
    ($system:literal, $unbounded:path) => {{
        fn cycle<K: Clone + Send>(load: Load, keys: &[K]) -> Sample {
            let (sender, receiver) = $unbounded();
            scenario::cycle(keys, load.ops(3 * MILLION, MILLION), |key| {
                sender.send(key.clone()).expect("open");
                receiver.recv().expect("open");
            })
        }
        fn fill<K: Clone + Send>(keys: &[K], times: usize) -> Sample {
            let (sender, receiver) = $unbounded();
            let send = |keys: &[K]| sender.send(keys[0].clone()).expect("open");
            let drain = |count| (0..count).for_each(|_| drop(receiver.recv()));
            scenario::fill(keys, (1, times), send, drain)
        }
        fn throughput(load: Load, pairs: usize) -> Sample {
            let (sender, receiver) = $unbounded();
            let senders = Mutex::new(vec![sender; pairs]);
            let produce = |keys: &mut dyn Iterator<Item = u64>| {
                let sender =
                    senders.lock().unwrap().pop().expect("one sender per producer");
                keys.for_each(|key| sender.send(key).expect("open"));
            };
            let consume = || std::iter::from_fn(|| receiver.recv().ok()).count();
            let count = load.ops(2 * MILLION, 400_000);
            scenario::throughput((pairs, count), produce, consume)
        }
        fn latency(load: Load, pace: scenario::Pace) -> Sample {
            let (sender, receiver) = $unbounded();
            let receive = || receiver.recv().expect("open");
            scenario::latency(load, pace, |key| sender.send(key).expect("open"), receive)
        }
        vec![
            bench("cycle.u64.1k", $system, |load| cycle(load, &numbers(1000))),
            bench("cycle.u64.1M", $system, |load| cycle(load, &numbers(MILLION))),
            bench("cycle.str.1k", $system, |load| cycle(load, &names(1000))),
            bench("cycle.str.1M", $system, |load| cycle(load, &names(MILLION))),
            bench("fill.u64.1k", $system, |load| {
                fill(&numbers(1000), load.ops(1000, 400))
            }),
            bench("fill.u64.1M", $system, |_| fill(&numbers(MILLION), 1)),
            bench("throughput.1p1c", $system, |load| throughput(load, 1)),
            bench("throughput.2p2c", $system, |load| throughput(load, 2)),
            bench("throughput.8p8c", $system, |load| throughput(load, 8)),
            bench("latency.single", $system, |load| latency(load, scenario::single)),
            bench("latency.burst", $system, |load| latency(load, scenario::burst)),
        ]
    }};
}

pub fn benches() -> Vec<Bench> {
    let mut benches = rows!("kanal", kanal::unbounded);
    benches.extend(rows!("flume", flume::unbounded));
    benches.extend(rows!("crossbeam", crossbeam_channel::unbounded));
    benches
}
