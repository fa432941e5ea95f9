//! Leader election on real Leases, with several processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use requeue_kube::{Candidate, Election, Term};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::cluster::Cluster;
use crate::support::{SECOND, SOON, create, eventually, pause, report};

/// A short lease, so that a round takes seconds.
fn election(client: Client, namespace: &str) -> Election {
    Election::new(client, namespace, "test")
        .duration(4 * SECOND)
        .renew_within(2 * SECOND)
        .retry_every(SECOND / 2)
}

#[tokio::test]
async fn one_of_three_leads_and_a_release_is_noticed_at_once() {
    let Some(cluster) = Cluster::shared().await else { return };
    let join = |name: &str| -> Candidate {
        // Long waits, so that only the watch can explain a quick take-over.
        Election::new(cluster.new_client(), &cluster.namespace, "test")
            .duration(60 * SECOND)
            .renew_within(40 * SECOND)
            .retry_every(20 * SECOND)
            .identity(name)
            .start()
            .unwrap()
    };
    let first = join("one");
    let term = first.won().await.unwrap();
    assert_eq!(term.number(), 0);
    let others = [join("two"), join("three")];
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &cluster.namespace);
    let lease = leases.get("test").await.unwrap();
    assert_eq!(lease.metadata.uid.as_deref(), Some(term.uid()));
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("one"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(60), Some(0))
    );
    pause(2 * SECOND).await; // both watches are open
    assert!(others.iter().all(|other| other.term().is_none()));
    drop(term);

    let released = now();
    assert!(first.stop(SOON).await);
    let won =
        futures::future::select_ok(others.iter().map(|other| Box::pin(other.won())));
    let (term, _) = won.await.unwrap();
    let waited = now().saturating_sub(released);
    assert_eq!(term.number(), 1);
    assert!(waited < 15 * SECOND, "a released lease was noticed after {waited:?}");
    println!("a released lease was taken over after {waited:?}");
}

#[tokio::test]
async fn a_candidate_without_rights_waits_and_can_be_stopped() {
    let Some(cluster) = Cluster::shared().await else { return };
    let candidate =
        election(cluster.client_as("visitor"), &cluster.namespace).start().unwrap();
    pause(2 * SECOND).await;
    assert!(candidate.term().is_none());
    assert!(candidate.stop(SECOND).await);
}

// The holder stops before the lease can expire for others, and rejoins with a new term.
#[tokio::test]
async fn a_holder_stops_while_the_server_is_away() {
    let Some(cluster) = Cluster::alone().await else { return };
    let candidate = election(cluster.new_client(), &cluster.namespace).start().unwrap();
    let term = candidate.won().await.unwrap();
    cluster.kill_apiserver().await;
    eventually("the term has ended", 10 * SECOND, async || !term.is_held()).await;
    term.ended().await;
    cluster.start_apiserver().await;
    let next = candidate.won().await.unwrap();
    assert!(next.number() > term.number());
    assert_eq!(next.uid(), term.uid());
}

// Trap 22. The clock of the last holder was wrong by decades. A candidate waits for the lease
// duration from its own first sight, not less and not for decades.
#[tokio::test]
async fn the_wall_clock_of_a_dead_holder_does_not_matter() {
    let Some(cluster) = Cluster::shared().await else { return };
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &cluster.namespace);
    for (name, renewed) in [
        ("past", "1990-01-01T00:00:00.000000Z"),
        ("future", "2090-01-01T00:00:00.000000Z"),
    ] {
        let lease = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name},
            "spec": {
                "holderIdentity": "dead", "leaseDurationSeconds": 3, "leaseTransitions": 4,
                "acquireTime": renewed, "renewTime": renewed,
            },
        }));
        leases.create(&PostParams::default(), &lease.unwrap()).await.unwrap();
        let began = now();
        let candidate = Election::new(cluster.new_client(), &cluster.namespace, name)
            .duration(4 * SECOND)
            .renew_within(2 * SECOND)
            .retry_every(SECOND / 2)
            .start()
            .unwrap();
        let term = candidate.won().await.unwrap();
        assert!(
            now().saturating_sub(began) >= 3 * SECOND,
            "took over a lease of a running holder"
        );
        assert_eq!(term.number(), 5);
        drop(term);
        assert!(candidate.stop(SOON).await);
    }
    report(
        22,
        "holder with a wrong wall clock",
        "no election",
        "replaced after the lease duration",
    );
}

/// One run of a child process.
#[derive(Debug, Clone, Copy)]
enum Line {
    /// A run of this term started at this time.
    Start(u64, Duration),
    /// A write of this term succeeded and has this resourceVersion, or was refused.
    Write(u64, Option<u64>),
}

/// A process that works while it leads.
struct Worker {
    process: Child,
}

impl Worker {
    fn start(cluster: &Cluster, name: &str, lines: &mpsc::Sender<Line>) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "election::worker_process", "--nocapture"])
            .env("REQUEUE_KUBE_WORKER", name)
            .env("REQUEUE_KUBE_NAMESPACE", &cluster.namespace)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let lines = lines.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some(line) = parse(&line) else { continue };
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let term = words.next()?.parse().ok()?;
    let value = words.next()?;
    match kind {
        "start" => Some(Line::Start(term, Duration::from_nanos(value.parse().ok()?))),
        "write" => Some(Line::Write(term, value.parse().ok())),
        _ => None,
    }
}

/// The time since boot: all processes of the machine agree on it.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// The body of a worker process. Does nothing when it runs as a test.
#[tokio::test]
async fn worker_process() {
    let Ok(name) = std::env::var("REQUEUE_KUBE_WORKER") else { return };
    let namespace = std::env::var("REQUEUE_KUBE_NAMESPACE").unwrap();
    let client = Client::try_default().await.unwrap();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let candidate = election(client, &namespace).identity(name).start().unwrap();
    loop {
        let term = candidate.won().await.unwrap();
        while term.is_held() {
            run(&api, &term).await;
        }
    }
}

/// Reads, works for a while and writes with the resourceVersion that was read.
async fn run(api: &Api<ConfigMap>, term: &Term) {
    let Ok(mut object) = api.get("fenced").await else { return };
    if !term.is_held() {
        return;
    }
    say(&format!("start {} {}", term.number(), now().as_nanos()));
    pause(Duration::from_millis(100)).await;
    object
        .data
        .get_or_insert_default()
        .insert("term".to_owned(), term.number().to_string());
    let version = match api.replace("fenced", &PostParams::default(), &object).await {
        Ok(object) => object.metadata.resource_version.unwrap(),
        Err(kube::Error::Api(status)) if status.code == 409 => "refused".to_owned(),
        Err(_) => return,
    };
    say(&format!("write {} {version}", term.number()));
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

async fn stop_leaders(rounds: u32) {
    let Some(cluster) = Cluster::shared().await else { return };
    create(&cluster.config_maps(), "fenced", "").await;
    let (sender, receiver) = mpsc::channel();
    let workers = ["one", "two"].map(|name| Worker::start(&cluster, name, &sender));
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut log = Vec::new();
    for round in 0..rounds {
        let holder = holder_with_a_write(&leases, &receiver, &mut log).await;
        let index = usize::from(holder == "two");
        workers[index].signal(Signal::STOP);
        eventually("the other process leads", SOON, async || {
            holder_of(&leases).await.is_some_and(|now| now != holder)
        })
        .await;
        let other = holder_with_a_write(&leases, &receiver, &mut log).await;
        assert_ne!(other, holder, "round {round}");
        workers[index].signal(Signal::CONT);
        pause(SECOND).await; // the resumed process reacts
    }
    log.extend(receiver.try_iter());
    drop(workers);
    check_terms(&log, rounds);
}

async fn holder_of(leases: &Api<Lease>) -> Option<String> {
    leases.get_opt("test").await.unwrap()?.spec?.holder_identity
}

/// Waits until the current holder has written in its term.
async fn holder_with_a_write(
    leases: &Api<Lease>,
    lines: &mpsc::Receiver<Line>,
    log: &mut Vec<Line>,
) -> String {
    let mut holder = None;
    eventually("the leader writes", SOON, async || {
        let Some(lease) = leases.get_opt("test").await.unwrap() else { return false };
        let spec = lease.spec.unwrap();
        let term = u64::try_from(spec.lease_transitions.unwrap()).unwrap();
        log.extend(lines.try_iter());
        holder = spec.holder_identity;
        log.iter()
            .any(|line| matches!(line, Line::Write(number, Some(_)) if *number == term))
    })
    .await;
    holder.unwrap()
}

fn check_terms(log: &[Line], rounds: u32) {
    let starts = log.iter().filter_map(|line| match *line {
        Line::Start(term, at) => Some((term, at)),
        Line::Write(..) => None,
    });
    let mut starts: Vec<_> = starts.collect();
    starts.sort_by_key(|&(_, at)| at);
    let late = starts.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
    assert_eq!(late, 0, "runs of a lower term started after a higher one: {starts:?}");
    // The server orders writes. A line can be late: its process was stopped after the write.
    let mut writes = Vec::new();
    let mut refused = 0;
    for line in log {
        match *line {
            Line::Write(term, Some(version)) => writes.push((version, term)),
            Line::Write(_, None) => refused += 1,
            Line::Start(..) => {}
        }
    }
    writes.sort_unstable();
    let late = writes.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
    assert_eq!(late, 0, "writes of a lower term after a higher one: {writes:?}");
    let (accepted, highest) = (writes.len(), writes.last().unwrap().1);
    assert!(highest >= u64::from(rounds), "{highest} terms in {rounds} rounds");
    let ours = format!(
        "{rounds} rounds, {accepted} writes, 0 late runs, {refused} writes refused with 409"
    );
    report(19, "two leaders after SIGSTOP", "no election", &ours);
}

#[tokio::test]
async fn a_stopped_leader_does_no_harm() {
    stop_leaders(2).await;
}

#[tokio::test]
async fn ten_stopped_leaders_do_no_harm() {
    if std::env::var_os("REQUEUE_KUBE_SLOW").is_none() {
        println!("skipped: slow; scripts/test-kube runs it");
        return;
    }
    stop_leaders(10).await;
}
