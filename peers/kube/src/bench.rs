//! One scenario of one engine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, mpsc};

use crate::document::Document;
use crate::engine;

pub type Values = BTreeMap<&'static str, f64>;

/// What the reconciler has seen.
#[derive(Default)]
pub struct Watched {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    /// For each content: when it was first reconciled, and how long after it was decoded.
    seen: HashMap<String, (Instant, Duration)>,
    names: HashSet<String>,
    runs: usize,
    /// The edits to record. Other contents are only counted.
    record: bool,
}

impl Watched {
    pub fn see(&self, object: &Document) {
        let now = Instant::now();
        let mut state = self.state.lock().expect("no panics");
        state.runs += 1;
        if state.record {
            let late = now - object.decoded;
            state
                .seen
                .entry(format!("{}={}", object.name(), object.value()))
                .or_insert((now, late));
        } else {
            state.names.insert(object.name().to_owned());
        }
        drop(state);
        self.news.notify_one();
    }

    async fn wait<T>(&self, mut holds: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            let news = self.news.notified();
            if let Some(value) = holds(&self.state.lock().expect("no panics")) {
                return value;
            }
            news.await;
        }
    }

    fn record_edits(&self) {
        self.state.lock().expect("no panics").record = true;
    }

    fn runs(&self) -> usize {
        self.state.lock().expect("no panics").runs
    }
}

pub async fn run(engine: &str, scenario: &str, namespace: &str, count: usize) -> Values {
    let client = Client::try_default().await.expect("KUBECONFIG names a server");
    let api = Api::<Document>::namespaced(client, namespace);
    // Connects before the measurement starts.
    api.get("object-00000").await.expect("the objects exist");
    let watched = Arc::new(Watched::default());
    let (again, ticks) = mpsc::unbounded_channel();
    let work =
        if scenario == "urgent" { Duration::from_millis(5) } else { Duration::ZERO };
    let (memory, cpu, began) = (resident(), cpu(), Instant::now());
    let observer = Arc::clone(&watched);
    match engine {
        "kube-runtime" => {
            tokio::spawn(engine::kube_runtime(api.clone(), work, ticks, observer))
        }
        "requeue-kube" => {
            tokio::spawn(engine::requeue_kube(api.clone(), work, ticks, observer))
        }
        other => panic!("unknown engine {other}"),
    };
    let mut values = Values::new();
    match scenario {
        "start" | "again" => {
            watched.wait(|state| (state.names.len() >= count).then_some(())).await;
            values.insert("wall_ms", ms(began.elapsed()));
            values.insert("cpu_ms", ms(self::cpu() - cpu));
            values.insert("bytes_per_object", (resident() - memory) / count as f64);
            if scenario == "again" {
                values = reconcile_again(&watched, &again, count).await;
            }
        }
        "edits" => {
            watched.wait(|state| (state.names.len() >= count).then_some(())).await;
            watched.record_edits();
            let cpu = self::cpu();
            edit(&api, &watched, count, 500, Duration::ZERO, &mut values).await;
            values.insert("cpu_ms", ms(self::cpu() - cpu));
        }
        "urgent" => {
            watched.record_edits();
            watched
                .wait(|state| (state.runs >= usize::from(engine::WORKERS)).then_some(()))
                .await;
            edit(&api, &watched, count, 20, Duration::from_millis(40), &mut values).await;
        }
        other => panic!("unknown scenario {other}"),
    }
    values
}

async fn reconcile_again(
    watched: &Watched,
    again: &mpsc::UnboundedSender<()>,
    count: usize,
) -> Values {
    // Lets late work of the start end.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let target = watched.runs() + count;
    let (cpu, began) = (cpu(), Instant::now());
    again.send(()).expect("the controller runs");
    watched.wait(|state| (state.runs >= target).then_some(())).await;
    Values::from([("wall_ms", ms(began.elapsed())), ("cpu_ms", ms(self::cpu() - cpu))])
}

/// Patches one object after the other. Urgent edits do not wait for each other.
async fn edit(
    api: &Api<Document>,
    watched: &Watched,
    count: usize,
    edits: usize,
    pause: Duration,
    values: &mut Values,
) {
    let mut sent = Vec::new();
    let seen =
        |content: String| watched.wait(move |state| state.seen.get(&content).copied());
    for n in 0..edits {
        let (name, text) = (
            format!("object-{:05}", (n * 7919) % count),
            format!("edit-{}-{n}", std::process::id()),
        );
        let patch = serde_json::json!({"data": {"value": text}});
        sent.push((format!("{name}={text}"), Instant::now()));
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("a patch");
        if pause.is_zero() {
            seen(format!("{name}={text}")).await;
        } else {
            tokio::time::sleep(pause).await;
        }
    }
    let (mut edits, mut events) = (Vec::new(), Vec::new());
    for (content, sent) in sent {
        let (at, late) = seen(content).await;
        edits.push(ms(at - sent));
        events.push(ms(late));
    }
    edits.sort_by(f64::total_cmp);
    events.sort_by(f64::total_cmp);
    values.insert("edit_p50_ms", edits[edits.len() / 2]);
    values.insert("edit_p99_ms", edits[edits.len() * 99 / 100]);
    values.insert("edit_max_ms", edits[edits.len() - 1]);
    values.insert("event_p50_ms", events[events.len() / 2]);
    values.insert("event_p99_ms", events[events.len() * 99 / 100]);
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).expect("below 1 s"),
    )
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<f64>().expect("a number") * 1024.0
}
