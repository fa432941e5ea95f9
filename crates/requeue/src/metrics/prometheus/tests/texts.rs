//! What the two texts say, against the facts about Kubernetes, `promtool` and our own page.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use super::{Fake, eventful, openmetrics};
use crate::metrics::Gauges;
use crate::metrics::prometheus::Prometheus;
use crate::metrics::prometheus::family::{Family as Exposed, Kind};
use crate::metrics::prometheus::text::GoFloat;

/// One metric in a text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Family {
    pub(super) type_name: String,
    help: String,
    labels: BTreeSet<String>,
    pub(super) bounds: Vec<f64>,
}

/// Parses either text format. A counter has the name of its samples.
pub(super) fn parse(text: &str) -> BTreeMap<String, Family> {
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
    let facts = include_str!("../../../../tests/data/workqueue-metrics.txt");
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

fn exposed(prometheus: &Prometheus) -> Vec<Exposed> {
    prometheus.reports.families()
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
    let exposed = exposed(&prometheus);
    let names: Vec<&str> = exposed.iter().map(|family| family.name).collect();
    assert!(names.is_sorted());
    assert!(families.keys().eq(names), "{families:?}");
}

#[test]
fn bounds_are_spelt_as_kubernetes_spells_them() {
    let facts = include_str!("../../../../tests/data/workqueue-metrics.txt");
    let (prometheus, _joined) = eventful();
    let text = prometheus.encode();
    let bounds = facts.lines().find_map(|line| line.strip_prefix("bounds: ")).unwrap();
    for bound in bounds.split(' ') {
        let label = format!("{{name=\"deployment\",le=\"{bound}\"}}");
        assert_eq!(text.matches(&label).count(), 2, "{label} in both histograms");
    }
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
    let (prometheus, _joined) = eventful();
    let exposed = exposed(&prometheus).into_iter().map(|family| {
        let mut labels: Vec<_> = family.series[0].0.iter().map(|label| label.0).collect();
        labels.extend((family.kind == Kind::Histogram).then_some("le"));
        [family.name, family.kind.name(), &labels.join(", ")].map(str::to_owned)
    });
    assert_eq!(documented(), exposed.collect::<Vec<_>>());
}
