mod histogram;
mod pools;
mod tallies;
mod texts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::{Gauges, Metrics, PoolRecorder, Probe, Prometheus, Recorder};
use crate::Counts;
use crate::metrics::{Gauge, GaugeValue, Probed};
use texts::parse;

/// A queue with the gauges that a test gives it.
#[derive(Default)]
struct Fake(Mutex<Gauges>);

impl Probed for Fake {
    fn gauges(&self) -> Gauges {
        self.0.lock().unwrap().clone()
    }
}

impl Fake {
    fn join(gauges: Gauges, prometheus: &Prometheus, name: &str) -> Joined {
        let queue = Arc::new(Self(Mutex::new(gauges)));
        let weak = Arc::downgrade(&queue);
        let recorder = prometheus.queue(name, Probe::new(weak));
        let pool = prometheus.pool(name);
        Joined { queue, recorder, pool }
    }
}

struct Joined {
    queue: Arc<Fake>,
    recorder: Box<dyn Recorder>,
    pool: Box<dyn PoolRecorder>,
}

fn busy() -> Gauges {
    Gauges {
        keys: Some(Counts { ready: 5, delayed: 7, processing: 3, dirty: 2 }),
        shared: false,
        parked: 1,
        unfinished: Duration::from_millis(4500),
        longest_running: Duration::from_secs(2),
        extra: Vec::new(),
    }
}

/// An adapter with a queue called `deployment` to which everything has happened.
fn eventful() -> (Prometheus, Joined) {
    let prometheus = Prometheus::new();
    let joined = Fake::join(busy(), &prometheus, "deployment");
    (0..6).for_each(|_| joined.recorder.added());
    (0..4).for_each(|_| joined.recorder.delayed());
    joined.recorder.got(Duration::from_micros(10));
    joined.recorder.got(Duration::from_secs(11));
    joined.recorder.done(Duration::from_millis(1));
    joined.recorder.panicked();
    joined.pool.workers(4);
    (prometheus, joined)
}

fn openmetrics(prometheus: &Prometheus) -> String {
    let mut registry = Registry::default();
    prometheus.register_in(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn values_are_those_of_the_queue() {
    let (prometheus, _joined) = eventful();
    let text = prometheus.encode();
    let value = |series: &str| {
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{series} in {text}"))
    };
    assert_eq!(value("requeue_delayed{name=\"deployment\"}"), "7");
    assert_eq!(value("requeue_dirty{name=\"deployment\"}"), "2");
    assert_eq!(value("requeue_panics_total{name=\"deployment\"}"), "1");
    assert_eq!(value("requeue_parked{name=\"deployment\"}"), "1");
    assert_eq!(value("requeue_processing{name=\"deployment\"}"), "3");
    assert_eq!(value("requeue_ready{name=\"deployment\"}"), "5");
    assert_eq!(value("workqueue_adds_total{name=\"deployment\"}"), "6");
    assert_eq!(value("workqueue_depth{name=\"deployment\"}"), "7");
    assert_eq!(value("workqueue_retries_total{name=\"deployment\"}"), "4");
    let longest = "workqueue_longest_running_processor_seconds{name=\"deployment\"}";
    assert_eq!(value(longest), "2");
    assert_eq!(value("workqueue_unfinished_work_seconds{name=\"deployment\"}"), "4.5");
    let waited = |rest: &str| value(&format!("workqueue_queue_duration_seconds{rest}"));
    assert_eq!(waited("_count{name=\"deployment\"}"), "2");
    assert_eq!(waited("_sum{name=\"deployment\"}"), "11.00001");
    // Ten microseconds are just above the bound that is almost as long.
    let below = "_bucket{name=\"deployment\",le=\"9.999999999999999e-06\"}";
    assert_eq!(waited(below), "0");
    assert_eq!(waited("_bucket{name=\"deployment\",le=\"10\"}"), "1");
    assert_eq!(waited("_bucket{name=\"deployment\",le=\"+Inf\"}"), "2");
    // A value that equals a bound is not above it.
    let worked =
        "workqueue_work_duration_seconds_bucket{name=\"deployment\",le=\"0.001\"}";
    assert_eq!(value(worked), "1");
}

#[test]
fn gauges_are_read_when_scraped() {
    let (prometheus, joined) = eventful();
    assert!(prometheus.encode().contains("requeue_ready{name=\"deployment\"} 5\n"));
    joined.queue.0.lock().unwrap().keys.as_mut().unwrap().ready = 9;
    assert!(prometheus.encode().contains("requeue_ready{name=\"deployment\"} 9\n"));
    assert!(openmetrics(&prometheus).contains("requeue_ready{name=\"deployment\"} 9\n"));
}

#[test]
fn queue_that_is_gone_keeps_its_counters_and_loses_its_gauges() {
    let (prometheus, Joined { queue, recorder, pool }) = eventful();
    drop((queue, recorder, pool));
    for text in [prometheus.encode(), openmetrics(&prometheus)] {
        assert!(text.contains("workqueue_adds_total{name=\"deployment\"} 6\n"));
        let families = parse(&text);
        assert!(families.values().all(|family| family.type_name != "gauge"), "{text}");
    }
}

#[test]
fn queues_of_one_name_are_added_up() {
    let (prometheus, first) = eventful();
    let second = Fake::join(busy(), &prometheus, "deployment");
    second.recorder.added();
    let text = prometheus.encode();
    assert!(text.contains("workqueue_adds_total{name=\"deployment\"} 7\n"));
    assert!(text.contains("workqueue_depth{name=\"deployment\"} 14\n"));
    assert!(text.contains("workqueue_unfinished_work_seconds{name=\"deployment\"} 9\n"));
    let longest = "workqueue_longest_running_processor_seconds{name=\"deployment\"} 2\n";
    assert!(text.contains(longest));

    drop(first.queue);
    let text = prometheus.encode();
    assert!(text.contains("workqueue_depth{name=\"deployment\"} 7\n"));
    assert!(text.contains("workqueue_adds_total{name=\"deployment\"} 7\n"));
}

/// A queue that other processes share, with two extra gauges.
fn shared(ready: usize, dead: usize) -> Gauges {
    let dead = Gauge { name: "dead", help: "Dead keys.", value: GaugeValue::Count(dead) };
    let age = GaugeValue::Seconds(Duration::from_millis(9500));
    let age = Gauge { name: "age_seconds", help: "Age.", value: age };
    let keys = Some(Counts { ready, ..busy().keys.unwrap() });
    Gauges { keys, shared: true, extra: vec![dead, age], ..busy() }
}

#[test]
fn further_gauges_of_a_queue_are_exposed() {
    let prometheus = Prometheus::new();
    let _joined = Fake::join(shared(5, 3), &prometheus, "a");
    let _plain = Fake::join(busy(), &prometheus, "b");
    for text in [prometheus.encode(), openmetrics(&prometheus)] {
        assert!(text.contains("# HELP dead Dead keys.\n# TYPE dead gauge\n"), "{text}");
        assert!(text.contains("\ndead{name=\"a\"} 3\n"));
        assert!(text.contains("\nage_seconds{name=\"a\"} 9.5\n"));
        assert!(!text.contains("\ndead{name=\"b\"}"));
        assert!(text.contains("workqueue_depth{name=\"a\"} 7\n"));
    }
}

#[test]
fn unknown_numbers_of_keys_are_left_out() {
    let prometheus = Prometheus::new();
    let _joined = Fake::join(Gauges { keys: None, ..busy() }, &prometheus, "a");
    let text = prometheus.encode();
    assert!(text.contains("requeue_parked{name=\"a\"} 1\n"));
    assert!(text.contains("workqueue_unfinished_work_seconds{name=\"a\"} 4.5\n"));
    for name in ["depth", "requeue_ready", "requeue_processing"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
}

#[test]
fn handles_of_one_shared_queue_are_not_added_up() {
    let prometheus = Prometheus::new();
    let unknown = Gauges { shared: true, ..Gauges::default() };
    let handles = [shared(5, 4), shared(6, 3), unknown];
    let _joined = handles.map(|gauges| Fake::join(gauges, &prometheus, "a"));
    let text = prometheus.encode();
    assert!(text.contains("requeue_ready{name=\"a\"} 6\n"), "{text}");
    assert!(text.contains("dead{name=\"a\"} 4\n"));
    assert!(text.contains("requeue_parked{name=\"a\"} 2\n"), "parked in this process");
}

#[test]
fn gone_queues_of_one_name_do_not_pile_up() {
    let prometheus = Prometheus::new();
    for _ in 0..100 {
        let joined = Fake::join(busy(), &prometheus, "short-lived");
        joined.recorder.added();
    }
    assert_eq!(prometheus.reports.queues.lock()["short-lived"].probes.len(), 1);
    let text = prometheus.encode();
    assert!(text.contains("workqueue_adds_total{name=\"short-lived\"} 100\n"));
}

#[test]
fn each_queue_has_its_own_label_and_clones_share_them() {
    let prometheus = Prometheus::new();
    let one = Fake::join(busy(), &prometheus.clone(), "one");
    let other = Fake::join(Gauges::default(), &prometheus, "other");
    one.recorder.added();
    let text = prometheus.encode();
    assert!(text.contains("workqueue_adds_total{name=\"one\"} 1\n"));
    assert!(text.contains("workqueue_adds_total{name=\"other\"} 0\n"));
    assert_eq!(text.matches("# TYPE workqueue_adds_total counter\n").count(), 1);
    drop(other);
}

#[test]
fn strange_names_are_escaped() {
    let prometheus = Prometheus::new();
    let _joined = Fake::join(busy(), &prometheus, "a\"b\\c\nd");
    assert!(prometheus.encode().contains(r#"requeue_ready{name="a\"b\\c\nd"} 5"#));
    assert!(openmetrics(&prometheus).contains(r#"requeue_ready{name="a\"b\\c\nd"} 5"#));
}

#[test]
fn own_bounds_are_sorted_and_freed_of_what_cannot_be_one() {
    let bounds = [10.0, f64::NAN, 0.5, -1.0, f64::INFINITY, 10.0, 1000.0];
    let prometheus = Prometheus::with_bounds(bounds);
    let _joined = Fake::join(busy(), &prometheus, "a");
    let family = parse(&prometheus.encode()).remove("workqueue_queue_duration_seconds");
    assert_eq!(family.unwrap().bounds, [0.5, 10.0, 1000.0, f64::INFINITY]);
}

#[test]
fn debug_shows_counts_only() {
    let (prometheus, _joined) = eventful();
    assert_eq!(format!("{prometheus:?}"), "Prometheus { names: 1, .. }");
}
