//! The shared rate.

use requeue_store::micros_of;

use crate::run::plan::{RATE, RATE_LIMITED};
use crate::run::scenario::Scenario;

/// How many adds may become ready in a span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    interval: u64,
    burst: u64,
    /// The backoff that may be added to a delay, in microseconds.
    slack: u64,
}

impl Bucket {
    /// Returns the limit of a scenario. Each partition has its part of the burst, and at
    /// least one token.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let partitions = scenario.partitions as u64;
        Self {
            interval: micros_of(RATE.interval),
            burst: u64::from(RATE.burst.get()).div_ceil(partitions) * partitions,
            slack: micros_of(RATE_LIMITED.max),
        }
    }

    fn allowed(&self, span: u64) -> u64 {
        self.burst + (span + self.slack) / self.interval + 1
    }

    /// Returns the number of adds and the length of the span that exceeds the limit most, if
    /// one does. An add counts if its whole window lies in the span.
    pub(super) fn worst_excess(
        &self,
        mut windows: Vec<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        windows.sort_unstable();
        let spans = (0..windows.len()).flat_map(|first| spans_from(&windows[first..]));
        let excess =
            |(count, span): &(u64, u64)| count.saturating_sub(self.allowed(*span));
        spans.max_by_key(excess).filter(|span| excess(span) > 0)
    }
}

/// Returns the count and length of each span that starts with the first window.
fn spans_from(windows: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let start = windows[0].0;
    let mut ends: Vec<_> = windows.iter().map(|(_, latest)| latest - start).collect();
    ends.sort_unstable();
    (1..).zip(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Bucket = Bucket { interval: 100, burst: 2, slack: 0 };

    #[test]
    fn a_burst_and_one_add_per_interval_are_allowed() {
        let windows = [0, 0, 100, 200, 300].map(|at| (at, at + 5));
        assert_eq!(BUCKET.worst_excess(windows.to_vec()), None);
        assert_eq!(BUCKET.worst_excess(Vec::new()), None);
    }

    #[test]
    fn two_buckets_instead_of_one_are_found() {
        let windows = [0, 0, 0, 0, 100, 100, 200, 200].map(|at| (at, at + 5));
        assert_eq!(BUCKET.worst_excess(windows.to_vec()), Some((8, 205)));
    }

    #[test]
    fn adds_that_may_lie_outside_the_span_do_not_count() {
        let surely = [0, 0, 0].map(|at| (at, at));
        let perhaps = [0, 0, 0].map(|at| (at, at + 1000));
        assert_eq!(BUCKET.worst_excess([surely, perhaps].concat()), None);
    }
}
