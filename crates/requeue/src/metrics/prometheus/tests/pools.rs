//! Metrics of pools, under the names of controller-runtime.

use std::time::Duration;

use super::*;
use crate::metrics::RunResult;

fn value(prometheus: &Prometheus, series: &str) -> Option<String> {
    let text = prometheus.encode();
    let value =
        |line: &str| Some(line.strip_prefix(series)?.strip_prefix(' ')?.to_owned());
    text.lines().find_map(value)
}

#[test]
fn each_run_is_counted_under_its_result() {
    let results = [
        (RunResult::Succeeded, "success", None),
        (RunResult::Requeued, "requeue_after", None),
        (RunResult::Failed, "error", None),
        (RunResult::GaveUp, "error", Some("terminal_reconcile_errors")),
        (RunResult::Panicked, "error", Some("reconcile_panics")),
        (RunResult::TimedOut, "error", Some("reconcile_timeouts")),
    ];
    for (run, result, cause) in results {
        let prometheus = Prometheus::new();
        let pool = prometheus.pool("p");
        pool.started();
        pool.ended(run, Duration::from_millis(30));
        let name = "controller_runtime_reconcile_total";
        for other in ["error", "requeue_after", "success"] {
            let series = format!("{name}{{controller=\"p\",result=\"{other}\"}}");
            let expected = if other == result { "1" } else { "0" };
            assert_eq!(value(&prometheus, &series).as_deref(), Some(expected), "{run:?}");
        }
        for other in
            ["terminal_reconcile_errors", "reconcile_panics", "reconcile_timeouts"]
        {
            let series = format!("controller_runtime_{other}_total{{controller=\"p\"}}");
            let expected = if cause == Some(other) { "1" } else { "0" };
            assert_eq!(value(&prometheus, &series).as_deref(), Some(expected), "{run:?}");
        }
    }
}

#[test]
fn released_run_has_no_result() {
    let prometheus = Prometheus::new();
    let pool = prometheus.pool("p");
    pool.started();
    pool.ended(RunResult::Released, Duration::from_secs(1));
    let text = prometheus.encode();
    assert!(text.contains("controller_runtime_active_workers{controller=\"p\"} 0\n"));
    let counted = |line: &&str| line.starts_with("controller_runtime_reconcile_total");
    assert!(text.lines().filter(counted).all(|line| line.ends_with(" 0")), "{text}");
}

#[test]
fn durations_are_in_the_buckets_of_controller_runtime() {
    let prometheus = Prometheus::new();
    let pool = prometheus.pool("p");
    pool.started();
    pool.ended(RunResult::Succeeded, Duration::from_millis(30));
    let family = parse(&prometheus.encode())
        .remove("controller_runtime_reconcile_time_seconds")
        .unwrap();
    assert_eq!(family.bounds.len(), 41);
    assert_eq!(family.bounds[..3], [0.005, 0.01, 0.025]);
    assert_eq!(family.bounds[39..], [60.0, f64::INFINITY]);
    let bucket = |le: &str| {
        let name = "controller_runtime_reconcile_time_seconds_bucket";
        value(&prometheus, &format!("{name}{{controller=\"p\",le=\"{le}\"}}")).unwrap()
    };
    assert_eq!([bucket("0.025"), bucket("0.05"), bucket("60")], ["0", "1", "1"]);
}

#[test]
fn pools_of_one_name_are_summed_and_dropped_pools_leave_the_gauges() {
    let prometheus = Prometheus::new();
    let (one, other) = (prometheus.pool("p"), prometheus.pool("p"));
    one.workers(4);
    other.workers(3);
    other.started();
    let max = "controller_runtime_max_concurrent_reconciles{controller=\"p\"}";
    let active = "controller_runtime_active_workers{controller=\"p\"}";
    assert_eq!(value(&prometheus, max).as_deref(), Some("7"));
    assert_eq!(value(&prometheus, active).as_deref(), Some("1"));
    one.workers(1);
    drop(other);
    assert_eq!(value(&prometheus, max).as_deref(), Some("1"));
    one.dead();
    drop(one);
    assert_eq!(value(&prometheus, max), None);
    let dead = value(&prometheus, "requeue_dead_total{name=\"p\"}");
    assert_eq!(dead.as_deref(), Some("1"));
}
