//! The recent speed of a run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The speed is measured over this time, or since the start if that is shorter.
const WINDOW: Duration = Duration::from_secs(10);

/// The time between two samples.
const SAMPLE: Duration = Duration::from_millis(250);

/// Measures events per second over the last seconds.
#[derive(Debug)]
pub(super) struct Speed {
    /// When the counter had which value, oldest first. At most 42 samples.
    samples: VecDeque<(Instant, u64)>,
}

impl Speed {
    pub(super) fn new(began: Instant) -> Self {
        Self { samples: VecDeque::from([(began, 0)]) }
    }

    /// Returns the number of events per second before `now`, when `total` events had happened.
    #[expect(clippy::cast_precision_loss, reason = "a speed is shown without decimals")]
    pub(super) fn at(&mut self, now: Instant, total: u64) -> f64 {
        let age = |moment: Instant| now.saturating_duration_since(moment);
        // The second sample is old enough to replace the first.
        while self.samples.get(1).is_some_and(|(moment, _)| age(*moment) >= WINDOW) {
            self.samples.pop_front();
        }
        let since = self.samples.front().copied();
        if self.samples.back().is_none_or(|(moment, _)| age(*moment) >= SAMPLE) {
            self.samples.push_back((now, total));
        }
        let Some((moment, before)) =
            since.filter(|(moment, _)| age(*moment) > Duration::ZERO)
        else {
            return 0.0;
        };
        total.saturating_sub(before) as f64 / age(moment).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use requeue::{Clock, SystemClock};

    use super::*;

    /// The first number was once computed from the first few milliseconds, and then shown for
    /// two seconds.
    #[test]
    fn speed_is_right_from_the_first_second() {
        let began = SystemClock.now();
        let mut speed = Speed::new(began);
        let millis = Duration::from_millis;
        assert!(speed.at(began, 0).abs() < 1e-9);
        assert!((speed.at(began + millis(100), 1) - 10.0).abs() < 1e-9);
        assert!((speed.at(began + millis(1000), 20) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn old_events_do_not_count() {
        let began = SystemClock.now();
        let mut speed = Speed::new(began);
        let at = |quarter: u32| began + SAMPLE * quarter;
        for quarter in 1..=100 {
            speed.at(at(quarter), 50);
        }
        assert!(speed.at(at(101), 50).abs() < 1e-9, "the last 10 seconds were idle");
        assert!(speed.samples.len() <= 42, "{}", speed.samples.len());
    }
}
