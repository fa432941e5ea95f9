//! A million keys.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use requeue::{Counts, Queue};

const KEYS: u32 = 1_000_000;
const WORKERS: usize = 4;

fn tally() -> Vec<AtomicU8> {
    (0..KEYS).map(|_| AtomicU8::new(0)).collect()
}

fn count(tally: &[AtomicU8], key: u32) {
    tally[key as usize].fetch_add(1, Ordering::Relaxed);
}

#[track_caller]
fn assert_each_once(tally: Vec<AtomicU8>) {
    assert!(tally.into_iter().all(|count| count.into_inner() == 1));
}

#[test]
fn million_keys_pass_through_blocking_workers_each_exactly_once() {
    let (queue, tally) = (Queue::new(), tally());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut lease = queue.get_blocking();
                while let Some(key) = lease {
                    count(&tally, *key);
                    lease = key.next_blocking();
                }
            });
        }
        for start in (0..KEYS).step_by(1000) {
            queue.add_all(start..start + 1000).unwrap();
        }
        assert!(queue.drain_blocking().is_empty());
    });
    assert_each_once(tally);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn million_keys_pass_through_batches_each_exactly_once() {
    let (queue, tally) = (Queue::new(), tally());
    queue.add_all(0..KEYS).unwrap();
    queue.close();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(batch) = queue.get_many_blocking(100) {
                    batch.keys().for_each(|key| count(&tally, *key));
                    batch.succeed();
                }
            });
        }
    });
    assert_each_once(tally);
}
