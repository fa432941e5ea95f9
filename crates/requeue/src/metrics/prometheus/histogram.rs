//! Histograms of durations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of buckets.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Finite, not negative and ascending, as they are exposed.
    seconds: Vec<f64>,
    /// For each bound, the longest duration within it. Comparing these gives the same result
    /// as comparing seconds, without a division per observation.
    nanos: Vec<u64>,
}

impl Bounds {
    /// Sorts the bounds and drops negative, infinite and NaN ones.
    pub(super) fn new(seconds: impl IntoIterator<Item = f64>) -> Self {
        let possible = |bound: &f64| bound.is_finite() && *bound >= 0.0;
        let mut seconds: Vec<f64> = seconds.into_iter().filter(possible).collect();
        seconds.sort_by(f64::total_cmp);
        seconds.dedup();
        let nanos = seconds.iter().map(|bound| longest_within(*bound)).collect();
        Self { seconds, nanos }
    }

    /// Returns the bucket of a duration. A scan: with ten bounds it takes half as long as a
    /// binary search.
    #[inline]
    fn bucket(&self, nanos: u64) -> usize {
        self.nanos.iter().take_while(|bound| **bound < nanos).count()
    }
}

/// Returns the highest number of nanoseconds that is at most `bound` seconds.
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

/// A histogram that threads update and read without a lock.
///
/// Every access is relaxed: no other memory depends on it, and a snapshot may contain the
/// count of an observation without its sum.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Arc<Bounds>,
    /// One count per bound, and one for everything above the last bound.
    counts: Box<[AtomicU64]>,
    /// The sum in nanoseconds, modulo 2^64.
    sum: AtomicU64,
    /// How often the sum overflowed. A million keys that wait for five hours do that.
    carry: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    /// In seconds.
    pub(super) sum: f64,
    /// The upper bound of each bucket, and the number of values in that bucket alone. The
    /// last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub(super) fn new(bounds: Arc<Bounds>) -> Self {
        let counts = (0..=bounds.seconds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0), carry: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[self.bounds.bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        let before = self.sum.fetch_add(nanos, Ordering::Relaxed);
        if before.checked_add(nanos).is_none() {
            self.carry.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As [`observe`](Self::observe), for a caller that alone updates the histogram.
    pub(super) fn observe_alone(&self, nanos: u64) {
        add_alone(&self.counts[self.bounds.bucket(nanos)], 1);
        if add_alone(&self.sum, nanos) {
            add_alone(&self.carry, 1);
        }
    }

    /// Adds the observations of another histogram with the same bounds.
    pub(super) fn merge(&self, other: &Self) {
        for (count, more) in self.counts.iter().zip(&other.counts) {
            count.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let sum = other.sum.load(Ordering::Relaxed);
        let before = self.sum.fetch_add(sum, Ordering::Relaxed);
        let overflowed = u64::from(before.checked_add(sum).is_none());
        let carry = other.carry.load(Ordering::Relaxed) + overflowed;
        self.carry.fetch_add(carry, Ordering::Relaxed);
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

/// Adds to a counter that only the caller changes, without an atomic read-modify-write.
/// Returns whether it overflowed.
#[inline]
pub(super) fn add_alone(counter: &AtomicU64, by: u64) -> bool {
    let (sum, overflowed) = counter.load(Ordering::Relaxed).overflowing_add(by);
    counter.store(sum, Ordering::Relaxed);
    overflowed
}

impl Snapshot {
    /// Adds up the buckets, so that the count always agrees with them.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns each upper bound with the number of values up to it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().scan(0, |total, (bound, count)| {
            *total += count;
            Some((*bound, *total))
        })
    }
}
