use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::catalogue::CATALOGUE;
use super::text::GoFloat;
use super::{Gauges, Metrics, Probe, Prometheus, Recorder};
use crate::metrics::Probed;

/// A queue that has the gauges it is told to have.
#[derive(Default)]
struct Fake(Mutex<Gauges>);

impl Probed for Fake {
    fn gauges(&self) -> Gauges {
        *self.0.lock().unwrap()
    }
}

impl Fake {
    fn join(gauges: Gauges, prometheus: &Prometheus, name: &str) -> Joined {
        let queue = Arc::new(Self(Mutex::new(gauges)));
        let weak = Arc::downgrade(&queue);
        let recorder = prometheus.queue(name, Probe::new(weak));
        Joined { queue, recorder }
    }
}

struct Joined {
    queue: Arc<Fake>,
    recorder: Box<dyn Recorder>,
}

fn busy() -> Gauges {
    Gauges {
        ready: 5,
        delayed: 7,
        processing: 3,
        dirty: 2,
        parked: 1,
        unfinished: Duration::from_millis(4500),
        longest_running: Duration::from_secs(2),
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
    (prometheus, joined)
}

fn openmetrics(prometheus: &Prometheus) -> String {
    let mut registry = Registry::default();
    prometheus.register_in(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

/// What a text says of one metric.
#[derive(Debug, Default, PartialEq)]
struct Family {
    type_name: String,
    help: String,
    labels: BTreeSet<String>,
    bounds: Vec<f64>,
}

/// Parses either text format. A counter goes by the name of its samples.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            families.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some(header) = line.strip_prefix("# TYPE ") {
            let (name, type_name) = header.split_once(' ').unwrap();
            families.entry(name.to_owned()).or_default().type_name = type_name.to_owned();
        } else {
            parse_sample(&mut families, line);
        }
    }
    families
        .into_iter()
        .map(|(name, family)| (sample_name(name, &family), family))
        .collect()
}

fn parse_sample(families: &mut BTreeMap<String, Family>, line: &str) {
    let (name, rest) = line.split_once('{').unwrap();
    let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
    let mut stems = suffixes.iter().filter_map(|suffix| name.strip_suffix(suffix));
    let stem = stems.find(|stem| families.contains_key(*stem)).expect("a header");
    let family = families.get_mut(stem).unwrap();
    for label in rest.split_once('}').unwrap().0.split(',') {
        let (label, value) = label.split_once('=').unwrap();
        family.labels.insert(label.to_owned());
        if label == "le" {
            family.bounds.push(value.trim_matches('"').parse().unwrap());
        }
    }
}

fn sample_name(name: String, family: &Family) -> String {
    let bare = family.type_name == "counter" && !name.ends_with("_total");
    if bare { name + "_total" } else { name }
}

/// What Kubernetes exposes: `tests/data/workqueue-metrics.txt`.
fn kubernetes() -> BTreeMap<String, Family> {
    let facts = include_str!("../../../tests/data/workqueue-metrics.txt");
    let bounds = facts.lines().find_map(|line| line.strip_prefix("bounds: ")).unwrap();
    let bounds: Vec<f64> =
        bounds.split(' ').map(|bound| bound.parse().unwrap()).collect();
    let rows = facts.lines().filter(|line| line.starts_with("workqueue_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[2].split(' ').map(str::to_owned).collect();
        let bounds = if cells[1] == "histogram" { bounds.clone() } else { Vec::new() };
        let (type_name, help) = (cells[1].to_owned(), cells[3].to_owned());
        (cells[0].to_owned(), Family { type_name, help, labels, bounds })
    })
    .collect()
}

fn of_kubernetes(mut families: BTreeMap<String, Family>) -> BTreeMap<String, Family> {
    families.retain(|name, _| name.starts_with("workqueue_"));
    families
}

#[test]
fn both_texts_have_the_names_types_labels_help_and_bounds_of_kubernetes() {
    let (prometheus, _joined) = eventful();
    let facts = kubernetes();
    assert_eq!(facts.len(), 7);
    assert_eq!(of_kubernetes(parse(&prometheus.encode())), facts);
    assert_eq!(of_kubernetes(parse(&openmetrics(&prometheus))), facts);
}

#[test]
fn both_texts_have_the_same_metrics() {
    let (prometheus, _joined) = eventful();
    let families = parse(&prometheus.encode());
    assert_eq!(families, parse(&openmetrics(&prometheus)));
    let names: Vec<&str> = CATALOGUE.iter().map(|metric| metric.name).collect();
    assert!(names.is_sorted());
    assert!(families.keys().eq(names), "{families:?}");
}

#[test]
fn bounds_are_spelt_as_kubernetes_spells_them() {
    let facts = include_str!("../../../tests/data/workqueue-metrics.txt");
    let (prometheus, _joined) = eventful();
    let text = prometheus.encode();
    let bounds = facts.lines().find_map(|line| line.strip_prefix("bounds: ")).unwrap();
    for bound in bounds.split(' ') {
        let label = format!("{{name=\"deployment\",le=\"{bound}\"}}");
        assert_eq!(text.matches(&label).count(), 2, "{label} in both histograms");
    }
}

#[test]
fn bounds_are_what_multiplying_by_ten_gives() {
    let bounds = std::iter::successors(Some(10e-9), |bound| Some(bound * 10.0));
    assert!(bounds.take(10).eq(Prometheus::KUBERNETES_BOUNDS));
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
    joined.queue.0.lock().unwrap().ready = 9;
    assert!(prometheus.encode().contains("requeue_ready{name=\"deployment\"} 9\n"));
    assert!(openmetrics(&prometheus).contains("requeue_ready{name=\"deployment\"} 9\n"));
}

#[test]
fn queue_that_is_gone_keeps_its_counters_and_loses_its_gauges() {
    let (prometheus, Joined { queue, recorder }) = eventful();
    drop((queue, recorder));
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

#[test]
fn gone_queues_of_one_name_do_not_pile_up() {
    let prometheus = Prometheus::new();
    for _ in 0..100 {
        let joined = Fake::join(busy(), &prometheus, "short-lived");
        joined.recorder.added();
    }
    assert_eq!(prometheus.queues.lock()["short-lived"].probes.len(), 1);
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
fn own_bounds_are_sorted_and_freed_of_what_is_no_number() {
    let prometheus =
        Prometheus::with_bounds([10.0, f64::NAN, 0.5, f64::INFINITY, 10.0, 1000.0]);
    let joined = Fake::join(busy(), &prometheus, "a");
    joined.recorder.got(Duration::MAX);
    joined.recorder.got(Duration::ZERO);
    let family = parse(&prometheus.encode()).remove("workqueue_queue_duration_seconds");
    assert_eq!(family.unwrap().bounds, [0.5, 10.0, 1000.0, f64::INFINITY]);
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

#[test]
fn numbers_are_spelt_as_go_spells_them() {
    let spelt = [
        (0.0, "0"),
        (1.0, "1"),
        (100_000.0, "100000"),
        (1_000_000.0, "1e+06"),
        (1_234_567.5, "1.2345675e+06"),
        (1e22, "1e+22"),
        (123_456.789, "123456.789"),
        (0.0001, "0.0001"),
        (0.000_01, "1e-05"),
        (1e-100, "1e-100"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ];
    for (number, text) in spelt {
        assert_eq!(GoFloat(number).to_string(), text);
    }
}

#[test]
fn debug_shows_counts_only() {
    let (prometheus, _joined) = eventful();
    assert_eq!(format!("{prometheus:?}"), "Prometheus { names: 1, .. }");
}

#[test]
fn promtool_accepts_the_text() {
    let (prometheus, _joined) = eventful();
    let _second = Fake::join(Gauges::default(), &prometheus, "a\"b\\c\nd");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    promtool.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else {
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!in_ci, "promtool is missing: install the package `prometheus`");
        return println!("promtool is missing: its check is left out");
    };
    child.stdin.take().unwrap().write_all(prometheus.encode().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

/// Name, type and labels of each row in the table of `docs/METRICS.md`.
fn documented() -> Vec<[String; 3]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section =
        page.split("\n## ").find(|part| part.starts_with("Every metric")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cell = |row: &str, index| {
        let cell: &str = row.split('|').nth(index).unwrap();
        cell.trim().replace('`', "")
    };
    rows.map(|row| [cell(row, 1), cell(row, 2), cell(row, 3)]).collect()
}

#[test]
fn page_on_metrics_lists_what_the_code_exposes() {
    let exposed = CATALOGUE.iter().map(|metric| {
        let histogram = metric.type_name() == "histogram";
        let labels = if histogram { "name, le" } else { "name" };
        [metric.name, metric.type_name(), labels].map(str::to_owned)
    });
    assert_eq!(documented(), exposed.collect::<Vec<_>>());
}
