//! A histogram of run times.

use std::time::Duration;

/// Buckets per doubling: the error of a quantile is about 1 %.
const PER_DOUBLING: f64 = 64.0;

/// From one microsecond to about fifty days.
const BUCKETS: usize = 64 * 42;

/// A histogram of run times.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    shortest: Duration,
    longest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        let (shortest, longest) = (Duration::MAX, Duration::ZERO);
        Self { counts: vec![0; BUCKETS], total: 0, shortest, longest }
    }
}

impl Histogram {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of at least one microsecond is small and not negative"
    )]
    pub(super) fn add(&mut self, took: Duration) {
        let micros = (took.as_secs_f64() * 1e6).max(1.0);
        let bucket = (micros.log2() * PER_DOUBLING) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.shortest = self.shortest.min(took);
        self.longest = self.longest.max(took);
    }

    /// Returns a quantile of the run times. It is exact if it is the shortest or longest run,
    /// which is the usual case if there are few.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a fraction of the number of runs is not greater than that number"
    )]
    pub(super) fn quantile(&self, part: f64) -> Duration {
        let rank = (self.total as f64 * part).ceil() as u64;
        if rank <= 1 {
            return self.shortest;
        }
        if rank >= self.total {
            return self.longest;
        }
        let mut left = rank;
        let bucket = self.counts.iter().position(|count| {
            left = left.saturating_sub(*count);
            left == 0
        });
        let micros = ((bucket.unwrap_or(BUCKETS) as f64 + 0.5) / PER_DOUBLING).exp2();
        Duration::from_secs_f64(micros / 1e6).clamp(self.shortest, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::duration;
    use super::*;

    #[test]
    fn quantiles_are_nearly_exact() {
        let mut times = Histogram::default();
        for millis in 1..=100 {
            times.add(Duration::from_millis(millis));
        }
        for (part, exact) in [(0.5, 50.0), (0.99, 99.0)] {
            let quantile = times.quantile(part).as_secs_f64() * 1e3;
            assert!((quantile / exact - 1.0).abs() < 0.01, "{quantile} is not {exact}");
        }
        times.add(Duration::MAX);
        times.add(Duration::ZERO);
    }

    /// A single run of 7 seconds was once reported as 7.3 seconds, and the longer one of two
    /// runs as shorter than it was.
    #[test]
    fn quantiles_of_few_runs_are_exact() {
        let second = Duration::from_secs(1);
        let quantiles = |seconds: &[u32]| {
            let mut times = Histogram::default();
            for count in seconds {
                times.add(second * *count);
            }
            (times.quantile(0.5), times.quantile(0.99))
        };
        assert_eq!(quantiles(&[7]), (second * 7, second * 7));
        assert_eq!(quantiles(&[900, 7]), (second * 7, second * 900));
        let (half, most) = quantiles(&[900, 7, 30]);
        assert_eq!((duration(half).as_str(), most), ("29.9s", second * 900));
        assert_eq!(quantiles(&[7, 7, 7]).0, second * 7);
    }
}
