//! How long the hot paths of the queue take.
//!
//! `cargo bench -p requeue --bench queue NAME` runs the benchmarks whose name contains NAME.
//! The time is that of a run; `thrpt` counts operations.

mod work;

use std::thread;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use requeue::Queue;

use self::work::{ALL, OPEN, Run, Work, add_after, cycle_strings, fill_and_drain};

const MILLION: usize = 1_000_000;

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, work: &Work) {
    group.throughput(Throughput::Elements(work.count as u64));
    // criterion calls the function for every sample; only the first call sets up.
    let mut run = None;
    group.bench_function(work.name, |bencher| {
        bencher.iter(run.get_or_insert_with(work.start));
    });
}

fn one_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    for work in ALL {
        measure(&mut group, work);
    }
    group.finish();
}

fn many_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("million");
    group.sample_size(10);
    for work in [
        Work { name: "cycle string", count: 1024, start: || cycle_strings(MILLION) },
        Work {
            name: "fill and drain u64",
            count: MILLION,
            start: || fill_and_drain(MILLION),
        },
        Work { name: "add_after", count: MILLION, start: || add_after(MILLION) },
    ] {
        measure(&mut group, &work);
    }
    group.finish();
}

/// How many keys each producer adds.
const EACH: usize = 20_000;

fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("contended");
    group.sample_size(10);
    for work in [
        Work {
            name: "2 producers, 2 workers, next",
            count: 2 * EACH,
            start: || share(one_by_one),
        },
        Work {
            name: "2 producers, 2 workers, batches of 64",
            count: 2 * EACH,
            start: || share(in_batches),
        },
    ] {
        measure(&mut group, &work);
    }
    group.finish();
}

/// Runs two producers and two workers. `part` is given the number of a producer, and `None`
/// for a worker.
fn share(part: fn(&Queue<usize>, Option<usize>)) -> Run {
    Box::new(move || {
        let queue = &Queue::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || part(queue, None));
            }
            let producers =
                [0, 1].map(|number| scope.spawn(move || part(queue, Some(number))));
            for producer in producers {
                producer.join().expect("producers do not panic");
            }
            queue.close();
        });
    })
}

fn keys(producer: usize) -> impl Iterator<Item = usize> {
    producer * EACH..(producer + 1) * EACH
}

fn one_by_one(queue: &Queue<usize>, producer: Option<usize>) {
    if let Some(number) = producer {
        for key in keys(number) {
            queue.add(key).expect(OPEN);
        }
        return;
    }
    let mut lease = queue.get_blocking();
    while let Some(held) = lease {
        lease = held.next_blocking();
    }
}

fn in_batches(queue: &Queue<usize>, producer: Option<usize>) {
    if let Some(number) = producer {
        let keys: Vec<_> = keys(number).collect();
        for batch in keys.chunks(64) {
            queue.add_all(batch.iter().copied()).expect(OPEN);
        }
        return;
    }
    while let Some(batch) = queue.get_many_blocking(64) {
        batch.done();
    }
}

criterion_group!(benches, one_thread, many_keys, contended);
criterion_main!(benches);
