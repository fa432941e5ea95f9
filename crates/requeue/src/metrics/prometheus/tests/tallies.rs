//! Counters that a queue updates under its own lock.

use std::thread;
use std::time::Duration;

use crate::Queue;
use crate::metrics::Prometheus;
use crate::testing::FakeClock;

fn queue(prometheus: &Prometheus, clock: &FakeClock) -> Queue<u32> {
    let builder = Queue::builder().name("q").clock(clock.clone());
    builder.metrics(prometheus.clone()).build()
}

/// Adds, leases and finishes one key, which waits for 1 s and runs for 2 s.
fn cycle(queue: &Queue<u32>, clock: &FakeClock) {
    queue.add(1).expect("open");
    clock.advance(Duration::from_secs(1));
    let lease = queue.try_get().expect("the key is ready");
    clock.advance(Duration::from_secs(2));
    lease.done();
}

/// Reads the value of a series.
fn value(prometheus: &Prometheus, series: &str) -> u64 {
    let text = prometheus.encode();
    let line = text.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.unwrap_or_else(|| panic!("{series} in {text}")).parse().expect("a number")
}

#[test]
fn dropped_queues_keep_their_counters_in_the_sum() {
    let (prometheus, clock) = (Prometheus::new(), FakeClock::new());
    let first = queue(&prometheus, &clock);
    cycle(&first, &clock);
    let second = queue(&prometheus, &clock);
    cycle(&second, &clock);
    drop(first);
    let sums = || {
        [
            value(&prometheus, "workqueue_adds_total"),
            value(&prometheus, "workqueue_queue_duration_seconds_sum"),
            value(&prometheus, "workqueue_queue_duration_seconds_count"),
            value(&prometheus, "workqueue_work_duration_seconds_sum"),
            value(
                &prometheus,
                "workqueue_work_duration_seconds_bucket{name=\"q\",le=\"1\"}",
            ),
            value(
                &prometheus,
                "workqueue_work_duration_seconds_bucket{name=\"q\",le=\"10\"}",
            ),
        ]
    };
    assert_eq!(sums(), [2, 2, 2, 4, 0, 2]);
    let third = queue(&prometheus, &clock); // merges what the first has left behind
    assert_eq!(sums(), [2, 2, 2, 4, 0, 2]);
    cycle(&third, &clock);
    assert_eq!(sums(), [3, 3, 3, 6, 0, 3]);
}

#[test]
fn tallies_of_dropped_queues_do_not_pile_up() {
    let (prometheus, clock) = (Prometheus::new(), FakeClock::new());
    for _ in 0..10 {
        cycle(&queue(&prometheus, &clock), &clock);
    }
    assert_eq!(prometheus.reports.queues.lock()["q"].tallies.len(), 1);
    assert_eq!(value(&prometheus, "workqueue_adds_total"), 10);
}

/// A counter without a read-modify-write loses updates unless the queue's lock protects it,
/// and a sum that is taken while a tally is merged counts it twice.
#[test]
fn scrapes_of_busy_queues_never_go_back_and_end_exact() {
    let prometheus = Prometheus::new();
    let work = || {
        for _ in 0..10 {
            let queue = Queue::builder().name("q").metrics(prometheus.clone()).build();
            thread::scope(|scope| {
                for first in [0, 1000] {
                    let queue = &queue;
                    scope.spawn(move || {
                        for key in first..first + 100 {
                            queue.add(key).expect("open");
                            queue.try_get().expect("a key is ready").succeed();
                        }
                    });
                }
            });
        }
    };
    thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        let mut last = 0;
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            if prometheus.encode().is_empty() {
                continue;
            }
            let adds = value(&prometheus, "workqueue_adds_total");
            assert!(adds >= last, "{adds} after {last}");
            last = adds;
        }
    });
    assert_eq!(value(&prometheus, "workqueue_adds_total"), 4000);
    assert_eq!(value(&prometheus, "workqueue_queue_duration_seconds_count"), 4000);
    assert_eq!(value(&prometheus, "workqueue_work_duration_seconds_count"), 4000);
}
