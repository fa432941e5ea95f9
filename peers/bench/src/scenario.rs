//! The measured loops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::{numbers, random_delays};
use crate::measure::{Load, Sample, median, timed};

/// The number of keys in a batch.
pub const BATCH: usize = 64;

/// Adds, gets and finishes one key at a time.
pub fn cycle<K>(keys: &[K], count: usize, mut once: impl FnMut(&K)) -> Sample {
    timed(count, || {
        for key in keys.iter().cycle().take(count) {
            once(key);
        }
    })
}

/// Adds, gets and finishes [`BATCH`] keys at a time.
pub fn cycle_batched<K>(keys: &[K], count: usize, mut once: impl FnMut(&[K])) -> Sample {
    let rounds = count / BATCH;
    timed(rounds * BATCH, || {
        for batch in keys.chunks_exact(BATCH).cycle().take(rounds) {
            once(batch);
        }
    })
}

/// Adds all keys, `batch` at a time, then drains them. Repeats this `times` times.
pub fn fill<K>(
    keys: &[K],
    (batch, times): (usize, usize),
    mut add: impl FnMut(&[K]),
    mut drain: impl FnMut(usize),
) -> Sample {
    timed(times * keys.len(), || {
        for _ in 0..times {
            keys.chunks(batch).for_each(&mut add);
            drain(keys.len());
        }
    })
}

/// Which part of a churn is measured: its start, or the time after many replacements.
#[derive(Clone, Copy)]
pub enum Part {
    Early,
    Late,
}

/// Replaces the oldest of 200,000 queued keys by a new one, over and over.
pub fn churn(
    load: Load,
    part: Part,
    mut add: impl FnMut(u64),
    mut finish_oldest: impl FnMut(),
) -> Sample {
    const QUEUED: usize = 200_000;
    let skipped = match part {
        Part::Early => 0,
        Part::Late => 2_000_000,
    };
    let count = load.ops(1_000_000, 400_000);
    let mut keys = numbers(QUEUED + skipped + count).into_iter();
    keys.by_ref().take(QUEUED).for_each(&mut add);
    let mut replace = |key| {
        add(key);
        finish_oldest();
    };
    keys.by_ref().take(skipped).for_each(&mut replace);
    timed(count, || keys.for_each(replace))
}

/// Adds queued keys again, `batch` at a time.
pub fn duplicates<K>(
    keys: &[K],
    (batch, times): (usize, usize),
    mut add: impl FnMut(&[K]),
) -> Sample {
    keys.chunks(batch).for_each(&mut add);
    timed(times * keys.len(), || {
        for _ in 0..times {
            keys.chunks(batch).for_each(&mut add);
        }
    })
}

/// Runs `pairs` producers and as many consumers. All keys are different.
///
/// `produce` adds its keys. `consume` takes keys until none are left and returns how many it
/// took.
pub fn throughput(
    (pairs, count): (usize, usize),
    produce: impl Fn(&mut dyn Iterator<Item = u64>) + Sync,
    consume: impl Fn() -> usize + Sync,
) -> Sample {
    let delivered = AtomicUsize::new(0);
    let start = Barrier::new(2 * pairs + 1);
    let mut sample = Sample::default();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for first in 0..pairs {
            let (produce, consume, start, delivered) =
                (&produce, &consume, &start, &delivered);
            threads.push(scope.spawn(move || {
                start.wait();
                produce(&mut (first as u64..count as u64).step_by(pairs));
            }));
            threads.push(scope.spawn(move || {
                start.wait();
                delivered.fetch_add(consume(), Ordering::Relaxed);
            }));
        }
        sample = timed(count, || {
            start.wait();
            for thread in threads {
                thread.join().expect("a producer or consumer panicked");
            }
        });
    });
    assert_eq!(delivered.into_inner(), count, "keys were lost or delivered twice");
    sample
}

/// Waits before the producer of [`latency`] adds the key with this number.
pub type Pace = fn(usize, Instant);

/// One key every 20 µs.
pub fn single(number: usize, began: Instant) {
    let due = Duration::from_micros(20) * number as u32;
    while began.elapsed() < due {
        std::hint::spin_loop();
    }
}

/// 100 keys every millisecond.
pub fn burst(number: usize, began: Instant) {
    if number.is_multiple_of(100) {
        let due = Duration::from_millis(number as u64 / 100);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

/// Measures the time from add to get, with one producer and one waiting consumer.
pub fn latency(
    load: Load,
    pace: Pace,
    mut send: impl FnMut(u64),
    mut receive: impl FnMut() -> u64 + Send,
) -> Sample {
    let count = load.ops(20_000, 5000);
    let added: Vec<OnceLock<Instant>> = (0..count).map(|_| OnceLock::new()).collect();
    let waits = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut wait = || {
                let key = receive();
                added[key as usize].get().expect("sent before received").elapsed()
            };
            (0..count).map(|_| wait()).collect()
        });
        let began = Instant::now();
        for (number, slot) in added.iter().enumerate() {
            pace(number, began);
            slot.set(Instant::now()).expect("a key is sent once");
            send(number as u64);
        }
        consumer.join().expect("the consumer panicked")
    });
    median(waits)
}

/// Returns delays of 10 to 20 s, longer than the insertion of all keys.
pub fn long_delays(count: usize) -> Vec<Duration> {
    random_delays(count, Duration::from_secs(10), Duration::from_secs(10))
}

/// Adds keys with a delay.
pub fn insert<K>(keys: &[K], mut add: impl FnMut(&K, Duration)) -> Sample {
    let delays = long_delays(keys.len());
    timed(keys.len(), || {
        for (key, &delay) in keys.iter().zip(&delays) {
            add(key, delay);
        }
    })
}

/// The delayed keys of [`lateness`]: their number, and the time over which they are spread.
#[derive(Clone, Copy)]
pub struct Delays {
    pub count: usize,
    pub width: Duration,
}

impl Delays {
    pub fn few(load: Load) -> Self {
        let width = Duration::from_millis(load.ops(1000, 300) as u64);
        Self { count: 1000, width }
    }

    pub fn many(_: Load) -> Self {
        Self { count: 100_000, width: Duration::from_secs(2) }
    }

    /// Adds all keys. Returns their deadlines.
    pub fn insert(self, mut add: impl FnMut(u64, Duration)) -> Vec<Instant> {
        let delays = random_delays(self.count, Duration::from_millis(200), self.width);
        let mut put = |(key, delay): (usize, Duration)| {
            let due = Instant::now() + delay;
            add(key as u64, delay);
            due
        };
        delays.into_iter().enumerate().map(&mut put).collect()
    }
}

/// Measures the time from the deadline of a delayed key to its delivery.
pub fn lateness(due: &[Instant], mut next: impl FnMut() -> u64) -> Sample {
    let mut late = || {
        let deadline = due[next() as usize];
        Instant::now().checked_duration_since(deadline).expect("no key is early")
    };
    median((0..due.len()).map(|_| late()).collect())
}

/// Makes one call for each key.
pub fn pass<K>(keys: &[K], mut call: impl FnMut(&K)) -> Sample {
    timed(keys.len(), || keys.iter().for_each(&mut call))
}

/// Repeats one call on each of `threads` threads.
pub fn calls(load: Load, threads: usize, call: impl Fn() + Sync) -> Sample {
    let count = load.ops(10_000_000, 2_000_000) / threads;
    let repeat = || (0..count).for_each(|_| call());
    timed(count * threads, || {
        thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(repeat)));
            repeat();
        });
    })
}

/// Calls a keyed limiter that already knows all keys.
pub fn keyed(load: Load, keys: u64, allow: impl Fn(u64)) -> Sample {
    (0..keys).for_each(&allow);
    let count = load.ops(10_000_000, 2_000_000);
    timed(count, || (0..keys).cycle().take(count).for_each(&allow))
}
