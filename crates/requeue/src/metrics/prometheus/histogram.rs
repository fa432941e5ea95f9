//! How long things took, counted in buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram that threads fill without waiting for each other.
///
/// Every access is relaxed: an observation orders nothing else, and a snapshot that is
/// taken in the middle of one may hold its count without its sum.
#[derive(Debug)]
pub(super) struct Histogram {
    /// Finite, ascending upper bounds in seconds.
    bounds: Arc<[f64]>,
    /// One count for each bound, then one for everything above the last bound.
    counts: Box<[AtomicU64]>,
    /// The bits of an `f64`: seconds. Whole nanoseconds would overflow after a million
    /// keys that waited five hours.
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub(super) sum: f64,
    /// Upper bound, and how many values are in that bucket alone. The last bound is
    /// infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub(super) fn new(bounds: Arc<[f64]>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let mut before = self.sum.load(Ordering::Relaxed);
        loop {
            let after = (f64::from_bits(before) + seconds).to_bits();
            let swap = self.sum.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) => return,
                Err(newer) => before = newer,
            }
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        Snapshot { sum, buckets: bounds.zip(counts).collect() }
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
