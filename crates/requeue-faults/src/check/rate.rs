//! Whether a rate was kept that all processes share.

use crate::scene::Scene;
use crate::world::{PACED, RATE};

/// What may come in a span of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    interval: u64,
    burst: u64,
    /// By how much something may come later than its share, in microseconds.
    slack: u64,
}

impl Bucket {
    /// Each partition has its part of the rate, and at least one at once.
    pub(crate) fn of(scene: &Scene) -> Self {
        let partitions = scene.partitions as u64;
        Self {
            interval: requeue_store::micros_of(RATE.interval),
            burst: u64::from(RATE.burst.get()).div_ceil(partitions) * partitions,
            slack: requeue_store::micros_of(PACED.max),
        }
    }

    fn allows(&self, span: u64) -> u64 {
        self.burst + (span + self.slack) / self.interval + 1
    }

    /// The most crowded span, if it has more than is allowed: how many came in how many
    /// microseconds. Each came between two moments, and counts if both are in the span.
    pub(crate) fn crowd(&self, mut shares: Vec<(u64, u64)>) -> Option<(u64, u64)> {
        shares.sort_unstable();
        let spans = (0..shares.len()).flat_map(|first| spans_from(&shares[first..]));
        let excess =
            |(count, span): &(u64, u64)| count.saturating_sub(self.allows(*span));
        spans.max_by_key(excess).filter(|span| excess(span) > 0)
    }
}

/// How many came in each span that begins with the first of these.
fn spans_from(shares: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let begin = shares[0].0;
    let mut ends: Vec<_> = shares.iter().map(|(_, latest)| latest - begin).collect();
    ends.sort_unstable();
    (1..).zip(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Bucket = Bucket { interval: 100, burst: 2, slack: 0 };

    #[test]
    fn a_burst_and_then_one_in_each_interval_is_allowed() {
        let shares = [0, 0, 100, 200, 300].map(|at| (at, at + 5));
        assert_eq!(BUCKET.crowd(shares.to_vec()), None);
        assert_eq!(BUCKET.crowd(Vec::new()), None);
    }

    #[test]
    fn two_buckets_instead_of_one_are_found() {
        let shares = [0, 0, 0, 0, 100, 100, 200, 200].map(|at| (at, at + 5));
        assert_eq!(BUCKET.crowd(shares.to_vec()), Some((8, 205)));
    }

    #[test]
    fn what_may_have_come_outside_of_a_span_does_not_count() {
        let surely = [0, 0, 0].map(|at| (at, at));
        let perhaps = [0, 0, 0].map(|at| (at, at + 1000));
        assert_eq!(BUCKET.crowd([surely, perhaps].concat()), None);
    }
}
