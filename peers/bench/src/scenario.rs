//! How things are measured: the loops around the calls of a system.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::spread;
use crate::measure::{Load, Sample, quantiles, timed};

/// Keys in one call of the batched rows.
pub const BATCH: usize = 64;

/// One key in, out and finished, over and over.
pub fn cycle<K>(keys: &[K], count: usize, mut once: impl FnMut(&K)) -> Sample {
    timed(count, || {
        for key in keys.iter().cycle().take(count) {
            once(key);
        }
    })
}

/// The same for [`BATCH`] keys at a time.
pub fn cycle_batched<K>(keys: &[K], count: usize, mut once: impl FnMut(&[K])) -> Sample {
    let rounds = count / BATCH;
    timed(rounds * BATCH, || {
        for batch in keys.chunks_exact(BATCH).cycle().take(rounds) {
            once(batch);
        }
    })
}

/// All keys in, then all keys out; `keys` is cut into pieces of `piece`.
pub fn fill<K>(
    keys: &[K],
    (piece, times): (usize, usize),
    mut add: impl FnMut(&[K]),
    mut drain: impl FnMut(usize),
) -> Sample {
    timed(times * keys.len(), || {
        for _ in 0..times {
            keys.chunks(piece).for_each(&mut add);
            drain(keys.len());
        }
    })
}

/// Adds of keys that are ready already, `piece` at a time.
pub fn duplicates<K>(
    keys: &[K],
    (piece, times): (usize, usize),
    mut add: impl FnMut(&[K]),
) -> Sample {
    keys.chunks(piece).for_each(&mut add);
    timed(times * keys.len(), || {
        for _ in 0..times {
            keys.chunks(piece).for_each(&mut add);
        }
    })
}

/// `pairs` producers and as many consumers, all keys different.
///
/// `produce` sends the keys it is given; `consume` takes keys until there are no more
/// and says how many it had.
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
    assert_eq!(delivered.into_inner(), count, "keys were lost or came twice");
    sample
}

/// How a producer of [`latency`] waits before it sends the key with this number.
pub type Pace = fn(usize, Instant);

/// One key each 20 µs.
pub fn single(number: usize, began: Instant) {
    let due = Duration::from_micros(20) * number as u32;
    while began.elapsed() < due {
        std::hint::spin_loop();
    }
}

/// A hundred keys each millisecond.
pub fn burst(number: usize, began: Instant) {
    if number.is_multiple_of(100) {
        let due = Duration::from_millis(number as u64 / 100);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

/// The time from add to get, with one producer and one waiting consumer.
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
    quantiles(waits)
}

/// Delays of 10 to 20 s, so that no key comes due before the end of an insertion.
pub fn far(count: usize) -> Vec<Duration> {
    spread(count, Duration::from_secs(10), Duration::from_secs(10))
}

/// Keys put off to a later time.
pub fn insert<K>(keys: &[K], mut add: impl FnMut(&K, Duration)) -> Sample {
    let delays = far(keys.len());
    timed(keys.len(), || {
        for (key, &delay) in keys.iter().zip(&delays) {
            add(key, delay);
        }
    })
}

/// What [`lateness`] delays: some keys over a short time, or many over a longer one.
#[derive(Clone, Copy)]
pub struct Delays {
    pub count: usize,
    pub width: Duration,
}

impl Delays {
    pub fn some(load: Load) -> Self {
        let width = Duration::from_millis(load.ops(1000, 300) as u64);
        Self { count: 1000, width }
    }

    pub fn many(_: Load) -> Self {
        Self { count: 100_000, width: Duration::from_secs(2) }
    }

    /// Inserts all keys and gives the deadline of each.
    pub fn insert(self, mut add: impl FnMut(u64, Duration)) -> Vec<Instant> {
        let delays = spread(self.count, Duration::from_millis(200), self.width);
        let mut put = |(key, delay): (usize, Duration)| {
            let due = Instant::now() + delay;
            add(key as u64, delay);
            due
        };
        delays.into_iter().enumerate().map(&mut put).collect()
    }
}

/// How long after its deadline a delayed key is with the worker.
pub fn lateness(due: &[Instant], mut next: impl FnMut() -> u64) -> Sample {
    let mut late = || {
        let deadline = due[next() as usize];
        Instant::now().checked_duration_since(deadline).expect("no key comes early")
    };
    quantiles((0..due.len()).map(|_| late()).collect())
}

/// One call for each key, over all keys.
pub fn pass<K>(keys: &[K], mut call: impl FnMut(&K)) -> Sample {
    timed(keys.len(), || keys.iter().for_each(&mut call))
}

/// One call over and over from each of `threads` threads.
pub fn calls(load: Load, threads: usize, call: impl Fn() + Sync) -> Sample {
    let each = load.ops(10_000_000, 2_000_000) / threads;
    let repeat = || (0..each).for_each(|_| call());
    timed(each * threads, || {
        thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(repeat)));
            repeat();
        });
    })
}

/// One limiter for each key, all keys known.
pub fn keyed(load: Load, keys: u64, allow: impl Fn(u64)) -> Sample {
    (0..keys).for_each(&allow);
    let count = load.ops(10_000_000, 2_000_000);
    timed(count, || (0..keys).cycle().take(count).for_each(&allow))
}
