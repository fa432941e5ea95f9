//! Measures memory with a counting allocator.

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use cap::Cap;
use requeue::Queue;
use requeue::retry::{Exponential, RetryPolicy};
use requeue_peers::cli::{self, bench};
use requeue_peers::keys::{MILLION, names, numbers};
use requeue_peers::measure::Sample;
use tokio_util::time::DelayQueue;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const HOUR: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    cli::main(&[
        bench("memory.ready.u64", "requeue", |_| {
            let queue = Queue::new();
            heap(numbers(MILLION), |key| {
                queue.add(key).expect("open");
            })
        }),
        bench("memory.ready.str", "requeue", |_| {
            let queue = Queue::new();
            heap(names(MILLION), |key| {
                queue.add(key).expect("open");
            })
        }),
        bench("memory.delayed.u64", "requeue", |_| {
            let queue = Queue::new();
            heap(numbers(MILLION), |key| {
                queue.add_after(key, HOUR).expect("open");
            })
        }),
        bench("memory.delayed.str", "requeue", |_| {
            let queue = Queue::new();
            heap(names(MILLION), |key| {
                queue.add_after(key, HOUR).expect("open");
            })
        }),
        bench("memory.retry.u64", "requeue", |_| {
            let policy = Exponential::default();
            heap(numbers(MILLION), |key| {
                policy.when(&key);
            })
        }),
        bench("memory.idle", "requeue", |_| {
            let before = HEAP.allocated();
            let queue = Queue::new();
            queue.add_after(1_u64, HOUR).expect("open");
            let bytes = HEAP.allocated().saturating_sub(before) as f64;
            Sample { bytes: Some(bytes), ..Sample::default() }
        }),
        bench("memory.ready.u64", "crossbeam", |_| {
            let (sender, _receiver) = crossbeam_channel::unbounded();
            heap(numbers(MILLION), |key| sender.send(key).expect("open"))
        }),
        bench("memory.delayed.u64", "tokio-delay-queue", |_| {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_time().build().expect("no I/O");
            let _context = runtime.enter();
            let mut queue = DelayQueue::new();
            heap(numbers(MILLION), |key| {
                black_box(queue.insert(key, HOUR));
            })
        }),
    ])
}

/// Measures the live heap per key, without the bytes of its string.
fn heap<K>(keys: Vec<K>, add: impl FnMut(K)) -> Sample {
    let count = keys.len();
    let keys = keys.into_iter();
    let before = HEAP.allocated();
    keys.for_each(add);
    let grown = (HEAP.allocated() + count * size_of::<K>()).saturating_sub(before);
    Sample { bytes: Some(grown as f64 / count as f64), ..Sample::default() }
}
