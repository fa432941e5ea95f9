//! One run, from starting the servers to the verdict.

pub(crate) mod idle;
pub(crate) mod plan;
pub(crate) mod scenario;
pub(crate) mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::{Clock, SystemClock};

use self::idle::wait_until_idle;
use self::plan::Plan;
use self::scenario::{Load, Scenario};
use crate::check::{Verdict, check};
use crate::fault::FaultCounts;
use crate::fault::nemesis::{Nemesis, Targets};
use crate::history::History;
use crate::history::event::FinalState;
use crate::history::journal::Journal;
use crate::process::child::{ChildProcess, Launch, name_of};
use crate::process::role::Role;
use crate::process::runtime;
use crate::server::Servers;
use crate::server::disk::SmallDisk;
use crate::server::engine::Persistence;
use crate::store::bug::Bug;
use crate::store::{self, Kind};
use crate::time::{now, sleep_blocking};

/// The file with the state of the queue after the run.
pub(crate) const FINAL_STATE: &str = "final-state.json";

/// Workers that use a queue. One more works directly on the store.
const WORKERS: usize = 3;
const PRODUCERS: usize = 2;

/// A run of at least this many seconds reaches every code path, even on a busy machine.
const LONG_RUN: u64 = 30;

/// How long a process may take to exit after it was asked to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunConfig {
    pub(crate) scenario: Scenario,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
}

#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) folder: PathBuf,
    pub(crate) faults: FaultCounts,
    pub(crate) verdict: Verdict,
}

impl RunResult {
    /// Returns the code paths that this run should have reached and did not. Such a run
    /// proves less than it claims.
    pub(crate) fn unreached(&self, config: &RunConfig) -> Vec<&'static str> {
        let (counts, faults) = (&self.verdict.counts, &self.faults);
        let Scenario { store, load, .. } = config.scenario;
        let paths: &[(usize, &str)] = match (load, store) {
            (Load::Steady, _) => &[(counts.extended, "an extended lease")],
            (_, Kind::Cluster) => {
                &[(faults.moves, "a moved slot"), (faults.failovers, "a failover")]
            }
            (_, Kind::Sentinel) => &[(faults.failovers, "a failover")],
            _ => &[],
        };
        let always =
            [(counts.dead, "a dead key"), (counts.rate_limited, "the shared rate")];
        let always = always.iter().filter(|_| load != Load::Steady);
        let missed = always.chain(paths).filter(|(count, _)| *count == 0);
        let is_long = config.seconds >= LONG_RUN;
        missed.filter(|_| is_long).map(|(_, path)| *path).collect()
    }
}

/// Executes a run. The caller removes the folder.
pub(crate) fn run(config: &RunConfig) -> Result<RunResult> {
    let folder = create_folder(config)?;
    let (faults, verdict) = run_in(config, &folder).with_context(|| {
        format!("the run failed; its files are in {}", folder.display())
    })?;
    Ok(RunResult { folder, faults, verdict })
}

fn run_in(config: &RunConfig, folder: &Path) -> Result<(FaultCounts, Verdict)> {
    let mut targets = start(config, folder)?;
    let end = SystemClock.now() + Duration::from_secs(config.seconds);
    let journal = Journal::create(folder, "nemesis")?;
    let plan = Plan::read(folder)?;
    let nemesis = Nemesis::new(&mut targets, &plan, &journal)?;
    let faults = if config.bug.is_some_and(Bug::is_hidden_by_faults) {
        sleep_blocking(end.saturating_duration_since(SystemClock.now()));
        FaultCounts::default()
    } else {
        nemesis.run_until(end)?
    };
    let state = finish(folder, &mut targets)?;
    fs::write(folder.join(FINAL_STATE), serde_json::to_string(&state)?)?;
    drop(targets);
    let verdict = check(History::read(folder)?, &state, &plan);
    Ok((faults, verdict))
}

fn create_folder(config: &RunConfig) -> Result<PathBuf> {
    let name = format!(
        "requeue-faults-{}-{}-{}-{}",
        name_of(&config.scenario.store),
        config.seed,
        std::process::id(),
        now()
    );
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Starts the servers and the processes.
fn start(config: &RunConfig, folder: &Path) -> Result<Targets> {
    let (data, disk) = mount_disk(config, folder)?;
    let servers = start_servers(config, &data)?;
    let start = now();
    let until = start + config.seconds * 1_000_000;
    let (scenario, seed, bug) = (config.scenario, config.seed, config.bug);
    let producers = PRODUCERS + usize::from(scenario.store == Kind::Postgres);
    let clock_steps = Vec::new();
    let mut plan = Plan { start, until, seed, producers, scenario, clock_steps };
    plan.plan_clock_steps();
    plan.write(folder)?;
    let address = if scenario.store.is_embedded() {
        data.join("queue").display().to_string()
    } else {
        servers.address(scenario.store)
    };
    let launch = Launch { folder: folder.to_owned(), address, bug };
    let children = roles(&scenario)
        .into_iter()
        .map(|(role, number)| ChildProcess::start(&launch, role, number))
        .collect::<Result<_>>()?;
    Ok(Targets { children, servers, disk })
}

/// Returns the folder for the files of the store: on a small disk if faults fill it.
fn mount_disk(config: &RunConfig, folder: &Path) -> Result<(PathBuf, Option<SmallDisk>)> {
    let Scenario { store, load, .. } = config.scenario;
    if store == Kind::Memory || load == Load::Steady {
        return Ok((folder.to_owned(), None));
    }
    let data = folder.join("disk");
    let disk = SmallDisk::mount(&data)?;
    Ok((data, disk))
}

fn start_servers(config: &RunConfig, folder: &Path) -> Result<Servers> {
    let persistence = if config.bug == Some(Bug::NoPersistence) {
        Persistence::None
    } else {
        Persistence::BeforeReply
    };
    Servers::start(config.scenario.store, folder, persistence)
}

fn roles(scenario: &Scenario) -> Vec<(Role, usize)> {
    let store = scenario.store;
    if store.is_embedded() {
        return vec![(Role::AllInOne, 0)];
    }
    let workers = (0..WORKERS).map(|number| (Role::Worker, number));
    let producers = (0..PRODUCERS).map(|number| (Role::Producer, number));
    // The producers own the first lanes.
    // In a steady run its many keys would occupy all workers.
    let is_transactional = store == Kind::Postgres && !scenario.is_steady();
    let transactional =
        is_transactional.then_some((Role::TransactionalProducer, PRODUCERS));
    // A raw worker has no heartbeat and looks for keys all the time.
    let raw = (!scenario.is_steady()).then_some((Role::RawWorker, 0));
    let operator = [(Role::Operator, 0)];
    workers.chain(raw).chain(operator).chain(producers).chain(transactional).collect()
}

/// Waits until the producers have exited, the queue is idle and the workers have exited.
/// Returns the state of the idle queue.
fn finish(folder: &Path, targets: &mut Targets) -> Result<FinalState> {
    let plan = Plan::read(folder)?;
    let kind = plan.scenario.store;
    if kind.is_embedded() {
        targets.children.iter_mut().try_for_each(|child| child.wait(EXIT_TIMEOUT))?;
        let text = fs::read(folder.join(FINAL_STATE))
            .with_context(|| format!("the process wrote no {FINAL_STATE}"))?;
        return Ok(serde_json::from_slice(&text)?);
    }
    targets.servers.heal();
    targets.servers.wait_until_available()?;
    let producers = targets.children.iter_mut().filter(|child| child.role.adds());
    for producer in producers {
        producer.wait(EXIT_TIMEOUT)?;
    }
    let address = targets.servers.address(kind);
    let state = runtime()?.block_on(async {
        let store = store::open(&plan.scenario, &address).await?;
        wait_until_idle(&*store, &plan).await
    })?;
    targets.children.iter_mut().for_each(ChildProcess::request_exit);
    for worker in &mut targets.children {
        worker.wait(EXIT_TIMEOUT)?;
    }
    Ok(state)
}
