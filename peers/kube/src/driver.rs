//! Runs all engines in turn and prints medians.

use std::collections::BTreeMap;
use std::process::Command;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

const ENGINES: [&str; 3] = ["kube-runtime", "requeue-kube", "controller-runtime"];

/// Scenarios, and the number of their objects.
const SCENARIOS: [(&str, usize); 4] =
    [("edits", 100), ("urgent", 2000), ("start", 10_000), ("again", 10_000)];

/// The rows of the table.
const ROWS: [(&str, &str, &str); 10] = [
    ("edits", "event_p50_ms", "event decoded to reconcile, p50, 500 edits (ms)"),
    ("edits", "event_p99_ms", "the same, p99 (ms)"),
    ("edits", "edit_p50_ms", "patch sent to reconcile, p50 (ms)"),
    ("edits", "cpu_ms", "CPU for these 500 edits, the client's included (ms)"),
    ("urgent", "edit_p50_ms", "edit while 2,000 listed objects wait, p50 of 20 (ms)"),
    ("urgent", "edit_max_ms", "the same, maximum (ms)"),
    ("start", "wall_ms", "start with 10,000 objects, all reconciled (ms)"),
    ("start", "bytes_per_object", "resident memory per object (bytes)"),
    ("again", "wall_ms", "reconcile all 10,000 again (ms)"),
    ("again", "cpu_ms", "the same, CPU (ms)"),
];

type Samples = BTreeMap<(&'static str, String, &'static str), Vec<f64>>;

pub async fn run(go: &str, runs: usize) {
    let client = Client::try_default().await.expect("KUBECONFIG names a server");
    let mut samples = Samples::new();
    for (scenario, count) in SCENARIOS {
        let namespace = format!("bench-{scenario}");
        fill(&client, &namespace, count).await;
        for round in 1..=runs {
            for engine in ENGINES {
                eprintln!("{scenario}, run {round} of {runs}: {engine}");
                for (name, value) in measure(go, engine, scenario, &namespace, count) {
                    samples.entry((scenario, name, engine)).or_default().push(value);
                }
            }
        }
    }
    print(&samples, runs);
}

/// Creates a namespace with objects of 200 bytes.
async fn fill(client: &Client, namespace: &str, count: usize) {
    eprintln!("creating {count} objects in {namespace}");
    let metadata =
        ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
    let new = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone())
        .create(&PostParams::default(), &new)
        .await
        .expect("a namespace");
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    futures::stream::iter(0..count)
        .for_each_concurrent(16, |n| {
            let api = &api;
            async move {
                let metadata = ObjectMeta {
                    name: Some(format!("object-{n:05}")),
                    ..ObjectMeta::default()
                };
                let data = BTreeMap::from([
                    ("value".to_owned(), "first".to_owned()),
                    ("filler".to_owned(), "x".repeat(200)),
                ]);
                let object =
                    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
                api.create(&PostParams::default(), &object).await.expect("an object");
            }
        })
        .await;
}

fn measure(
    go: &str,
    engine: &str,
    scenario: &str,
    namespace: &str,
    count: usize,
) -> BTreeMap<String, f64> {
    let mut command = if engine == "controller-runtime" {
        Command::new(go)
    } else {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["run", engine]);
        command
    };
    let output = command
        .args([scenario, namespace, &count.to_string()])
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{engine} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Prints medians, and the lowest and highest run.
fn print(samples: &Samples, runs: usize) {
    println!("Median of {runs} runs, lowest and highest in brackets.\n");
    println!(
        "| | {} | requeue-kube is faster than kube-runtime by |",
        ENGINES.join(" | ")
    );
    println!("|---|---:|---:|---:|---:|");
    for (scenario, name, text) in ROWS {
        let of = |engine| samples.get(&(scenario, name.to_owned(), engine));
        let cells: Vec<_> = ENGINES.iter().map(|engine| cell(of(engine))).collect();
        let ratio = match (of("kube-runtime"), of("requeue-kube")) {
            (Some(theirs), Some(ours)) => {
                format!("{:.1} ×", median(theirs) / median(ours))
            }
            _ => String::new(),
        };
        println!("| {text} | {} | {ratio} |", cells.join(" | "));
    }
}

fn cell(values: Option<&Vec<f64>>) -> String {
    let Some(values) = values else { return "–".to_owned() };
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    format!(
        "{} ({}–{})",
        round(median(values)),
        round(sorted[0]),
        round(sorted[sorted.len() - 1])
    )
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn round(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}
