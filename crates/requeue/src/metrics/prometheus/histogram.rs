//! How long things took, counted in buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of buckets.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Finite, not negative and ascending, as they are exposed.
    seconds: Vec<f64>,
    /// For each bound, the longest time that is not above it: comparing these gives what
    /// comparing seconds gives, without a division for each observation.
    nanos: Vec<u64>,
}

impl Bounds {
    /// Sorts the bounds, and leaves out what cannot be one.
    pub(super) fn new(seconds: impl IntoIterator<Item = f64>) -> Self {
        let possible = |bound: &f64| bound.is_finite() && *bound >= 0.0;
        let mut seconds: Vec<f64> = seconds.into_iter().filter(possible).collect();
        seconds.sort_by(f64::total_cmp);
        seconds.dedup();
        let nanos = seconds.iter().map(|bound| longest_within(*bound)).collect();
        Self { seconds, nanos }
    }

    fn bucket(&self, nanos: u64) -> usize {
        self.nanos.partition_point(|bound| *bound < nanos)
    }
}

/// The highest number of nanoseconds that is not above `bound` when written in seconds.
fn longest_within(bound: f64) -> u64 {
    let (mut within, mut highest) = (0, u64::MAX);
    while within < highest {
        let middle = within + (highest - within).div_ceil(2);
        if Duration::from_nanos(middle).as_secs_f64() <= bound {
            within = middle;
        } else {
            highest = middle - 1;
        }
    }
    within
}

/// A histogram that threads fill without waiting for each other.
///
/// Every access is relaxed: an observation orders nothing else, and a snapshot that is
/// taken in the middle of one may hold its count without its sum.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Arc<Bounds>,
    /// One count for each bound, then one for everything above the last bound.
    counts: Box<[AtomicU64]>,
    /// The sum in nanoseconds, modulo 2^64.
    sum: AtomicU64,
    /// How often the sum went past 2^64. A million keys that wait for five hours do that.
    carry: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    /// In seconds.
    pub(super) sum: f64,
    /// Upper bound, and how many values are in that bucket alone. The last bound is
    /// infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub(super) fn new(bounds: Arc<Bounds>) -> Self {
        let counts = (0..=bounds.seconds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0), carry: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, took: Duration) {
        self.observe_many(took, 1);
    }

    /// Observes the same time so often.
    pub(super) fn observe_many(&self, took: Duration, count: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[self.bounds.bucket(nanos)].fetch_add(count, Ordering::Relaxed);
        match nanos.checked_mul(count) {
            Some(all) => self.add_to_sum(all),
            None => (0..count).for_each(|_| self.add_to_sum(nanos)),
        }
    }

    fn add_to_sum(&self, nanos: u64) {
        let before = self.sum.fetch_add(nanos, Ordering::Relaxed);
        if before.checked_add(nanos).is_none() {
            self.carry.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let bounds = self.bounds.seconds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        Snapshot { sum: self.seconds(), buckets: bounds.zip(counts).collect() }
    }

    fn seconds(&self) -> f64 {
        let sum = Duration::from_nanos(self.sum.load(Ordering::Relaxed));
        let carry = Duration::from_nanos(u64::MAX).as_secs_f64();
        let carried =
            u32::try_from(self.carry.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        carry.mul_add(f64::from(carried), sum.as_secs_f64())
    }
}

impl Snapshot {
    /// Counted from the buckets, so that the two always agree.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Upper bound, and how many values are not above it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().scan(0, |total, (bound, count)| {
            *total += count;
            Some((*bound, *total))
        })
    }
}
