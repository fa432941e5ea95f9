use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Fake, busy};
use crate::metrics::prometheus::Prometheus;
use crate::metrics::prometheus::histogram::{Bounds, Histogram};

#[test]
fn bounds_are_what_multiplying_by_ten_gives() {
    let bounds = std::iter::successors(Some(10e-9), |bound| Some(bound * 10.0));
    assert!(bounds.take(10).eq(Prometheus::KUBERNETES_BOUNDS));
}

#[test]
fn sum_goes_on_past_what_64_bits_hold() {
    let histogram = Histogram::new(Arc::new(Bounds::new([1.0])));
    let longest = Duration::from_nanos(u64::MAX);
    histogram.observe(longest);
    histogram.observe(longest);
    histogram.observe(longest);
    histogram.observe(Duration::MAX);
    let snapshot = histogram.snapshot();
    let expected = longest.as_secs_f64() * 4.0;
    assert!((snapshot.sum / expected - 1.0).abs() < 1e-9, "{snapshot:?}");
    assert_eq!(snapshot.buckets, [(1.0, 0), (f64::INFINITY, 4)]);
}

proptest! {
    #[test]
    fn time_is_in_the_first_bucket_whose_bound_is_not_below_it(
        bounds in prop::collection::vec(1e-10..1e10_f64, 0..12),
        nanos in prop_oneof![0..1_000_u64, 0..20_000_000_000_u64, any::<u64>()],
    ) {
        let bounds = bounds.into_iter().chain(Prometheus::KUBERNETES_BOUNDS);
        let histogram = Histogram::new(Arc::new(Bounds::new(bounds)));
        let took = Duration::from_nanos(nanos);
        histogram.observe(took);
        for (bound, count) in histogram.snapshot().cumulative() {
            prop_assert_eq!(count, u64::from(took.as_secs_f64() <= bound), "{}", bound);
        }
    }
}

#[test]
fn observations_of_many_threads_are_all_counted() {
    let prometheus = Prometheus::new();
    let joined = Fake::join(busy(), &prometheus, "a");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..500).for_each(|_| joined.recorder.done(Duration::from_millis(500)));
            });
        }
    });
    let text = prometheus.encode();
    assert!(text.contains("workqueue_work_duration_seconds_count{name=\"a\"} 2000\n"));
    assert!(text.contains("workqueue_work_duration_seconds_sum{name=\"a\"} 1000\n"));
}
