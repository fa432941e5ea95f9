//! What a process of a run does.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use requeue_store::{Owner, Store};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::child::name_of;
use super::{Process, operator, producer, runtime, transactional, worker};
use crate::history::journal::Journal;
use crate::run::FINAL_STATE;
use crate::run::idle::wait_until_idle;
use crate::run::plan::Plan;
use crate::run::versions::VersionFile;
use crate::soak;
use crate::store;
use crate::store::bug::Bug;
use crate::store::crashed::CrashedRuns;
use crate::store::recorder::Recorder;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Processes keys through a queue, as programs do
    Worker,
    /// Processes keys directly on the store
    RawWorker,
    /// Adds keys
    Producer,
    /// Adds keys inside its own transactions
    TransactionalProducer,
    /// Revives and drops dead keys
    Operator,
    /// Does all of that, with an embedded store
    AllInOne,
    /// Adds and processes keys for a long time
    Soak,
}

impl Role {
    /// Returns whether the process adds keys. It then exits at the planned end.
    pub(crate) fn adds(self) -> bool {
        matches!(self, Self::Producer | Self::TransactionalProducer | Self::Operator)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RoleFlags {
    #[arg(long)]
    role: Role,
    #[arg(long)]
    folder: PathBuf,
    /// Number among the processes with this role
    #[arg(long)]
    number: usize,
    /// How often the process was started, including this time
    #[arg(long)]
    incarnation: usize,
    /// Address of the store
    #[arg(long)]
    address: String,
    #[arg(long)]
    bug: Option<Bug>,
}

impl RoleFlags {
    fn name(&self, incarnation: usize) -> String {
        format!("{}-{}-{incarnation}", name_of(&self.role), self.number)
    }
}

/// Runs a process. Producers exit at the planned end, workers at the end of their standard
/// input.
pub(crate) fn run(flags: &RoleFlags) -> Result<()> {
    // No process outlives the run.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let RoleFlags { folder, number, address, bug, .. } = flags;
    runtime()?.block_on(async {
        if flags.role == Role::Soak {
            let plan = Plan::read(folder)?;
            let store = store::open(&plan.scenario, address).await?;
            return soak::work::run(store, &plan, folder, &flags.name(1)).await;
        }
        let process = open(flags).await?;
        match flags.role {
            Role::Worker => run_worker(process).await,
            Role::RawWorker => until_end_of_input(worker::run_raw(process)).await,
            Role::Producer => producer::run(process, *number).await,
            Role::TransactionalProducer => {
                transactional::run(process, address, *number, *bug).await
            }
            Role::Operator => operator::run(process).await,
            Role::AllInOne | Role::Soak => run_all_in_one(process, folder).await,
        }
    })
}

async fn open(flags: &RoleFlags) -> Result<Process> {
    let RoleFlags { folder, incarnation, address, bug, .. } = flags;
    let name = flags.name(*incarnation);
    let plan = Plan::read(folder)?;
    let versions = Arc::new(VersionFile::open(folder, &plan)?);
    let journal = Arc::new(Journal::create(folder, &name)?);
    let store = store::open_disturbed(&plan, address, *bug, folder).await?;
    let crashed_runs = Arc::new(CrashedRuns::new(store));
    let store = Recorder::new(Arc::clone(&crashed_runs) as _, Arc::clone(&journal));
    let process = Process { name, plan, versions, journal, store, crashed_runs };
    if process.plan.scenario.is_calm() && !flags.role.adds() {
        for earlier in 1..*incarnation {
            process.release_leases(&Owner::new(flags.name(earlier))).await;
        }
    }
    Ok(process)
}

async fn run_worker(process: Process) -> Result<()> {
    let queue = process.queue();
    until_end_of_input(worker::run(process, queue.clone())).await?;
    queue.shutdown().await;
    Ok(())
}

/// Runs producers and workers in one process, and waits until the queue is idle after the
/// last add.
async fn run_all_in_one(process: Process, folder: &Path) -> Result<()> {
    let queue = process.queue();
    let raw = Process { name: format!("{}-raw", process.name), ..process.clone() };
    let is_steady = process.plan.scenario.is_steady();
    let raw = (!is_steady).then(|| tokio::spawn(worker::run_raw(raw)));
    let worker = tokio::spawn(worker::run(process.clone(), queue.clone()));
    let producers = (0..process.plan.producers)
        .map(|number| tokio::spawn(producer::run(process.clone(), number)));
    let operator = tokio::spawn(operator::run(process.clone()));
    for task in producers.chain([operator]).collect::<Vec<_>>() {
        task.await??;
    }
    let store: &dyn Store = &process.store;
    let state = wait_until_idle(store, &process.plan).await?;
    std::fs::write(folder.join(FINAL_STATE), serde_json::to_string(&state)?)?;
    queue.close();
    worker.await??;
    if let Some(raw) = raw {
        raw.abort();
    }
    Ok(())
}

async fn until_end_of_input(task: impl Future<Output = Result<()>>) -> Result<()> {
    let (sender, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut input = Vec::new();
        drop(std::io::stdin().read_to_end(&mut input));
        sender.send(()).ok();
    });
    tokio::select! {
        result = task => result.context("the worker stopped by itself"),
        _ = end => Ok(()),
    }
}
