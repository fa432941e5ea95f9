//! The processes of a run, as their own program sees them.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use requeue_store::{Owner, Store};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::bug::Bug;
use crate::crew::name_of;
use crate::muted::Muted;
use crate::process::{Process, belongings, runtime};
use crate::recorder::Recorder;
use crate::rest::rest;
use crate::stores;
use crate::{clerk, producer, sexton, worker};

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Works as programs do, with a queue on the store
    Worker,
    /// Works on the bare store
    Raw,
    /// Adds keys
    Producer,
    /// Adds keys inside transactions of its own
    Clerk,
    /// Brings some of the dead back, and drops some
    Sexton,
    /// Does all of that, with the store inside
    Station,
}

impl RoleFlags {
    /// The name of the process in one of its lives.
    fn name(&self, life: usize) -> String {
        format!("{}-{}-{life}", name_of(&self.role), self.number)
    }
}

impl Role {
    /// Whether it brings keys into the queue, and ends by the plan.
    pub(crate) fn adds(self) -> bool {
        matches!(self, Self::Producer | Self::Clerk | Self::Sexton)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RoleFlags {
    #[arg(long)]
    pub(crate) role: Role,
    #[arg(long)]
    pub(crate) folder: std::path::PathBuf,
    /// Which of those with this role it is.
    #[arg(long)]
    pub(crate) number: usize,
    /// How often it was started, this time included.
    #[arg(long)]
    pub(crate) life: usize,
    /// Where the store is.
    #[arg(long)]
    pub(crate) place: String,
    #[arg(long)]
    pub(crate) mutant: Option<Bug>,
}

/// Plays a role until it is over: a producer ends by the plan, a worker when its standard
/// input does.
pub(crate) fn play(flags: &RoleFlags) -> Result<()> {
    // Nothing is left behind, whatever ends the conductor.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    runtime()?.block_on(async {
        let process = begin(flags).await?;
        match flags.role {
            Role::Worker => work(process).await,
            Role::Raw => until_end_of_input(worker::work_raw(process)).await,
            Role::Producer => producer::produce(process, flags.number).await,
            Role::Clerk => {
                clerk::work(process, &flags.place, flags.number, flags.mutant).await
            }
            Role::Sexton => sexton::tend(process).await,
            Role::Station => station(process, &flags.folder).await,
        }
    })
}

async fn begin(flags: &RoleFlags) -> Result<Process> {
    let RoleFlags { folder, life, place, mutant, .. } = flags;
    let name = flags.name(*life);
    let (plan, world, journal) = belongings(folder, &name)?;
    let (world, journal) = (Arc::new(world), Arc::new(journal));
    let store = stores::open(&plan.scene, place, *mutant, folder).await?;
    let muted = Arc::new(Muted::new(store));
    let store = Recorder::new(Arc::clone(&muted) as _, Arc::clone(&journal));
    let process = Process { name, plan, world, journal, store, muted };
    if process.plan.scene.is_calm() && !flags.role.adds() {
        for before in 1..*life {
            process.give_back(&Owner::new(flags.name(before))).await;
        }
    }
    Ok(process)
}

async fn work(process: Process) -> Result<()> {
    let queue = process.queue();
    until_end_of_input(worker::work(process, queue.clone())).await?;
    queue.drain().await;
    Ok(())
}

/// Producers and workers in one process, and the wait for rest once nothing is added.
async fn station(process: Process, folder: &Path) -> Result<()> {
    let queue = process.queue();
    let raw = Process { name: format!("{}-raw", process.name), ..process.clone() };
    let raw = tokio::spawn(worker::work_raw(raw));
    let worker = tokio::spawn(worker::work(process.clone(), queue.clone()));
    let producers = (0..process.plan.producers)
        .map(|number| tokio::spawn(producer::produce(process.clone(), number)));
    let sexton = tokio::spawn(sexton::tend(process.clone()));
    for task in producers.chain([sexton]).collect::<Vec<_>>() {
        task.await??;
    }
    let store: &dyn Store = &process.store;
    let rest = rest(store, &process.plan).await?;
    std::fs::write(folder.join("rest.json"), serde_json::to_string(&rest)?)?;
    queue.close();
    worker.await??;
    raw.abort();
    Ok(())
}

/// Goes on until the standard input ends.
async fn until_end_of_input(task: impl Future<Output = Result<()>>) -> Result<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        drop(std::io::stdin().read_to_end(&mut rest));
        ended.send(()).ok();
    });
    tokio::select! {
        done = task => done.context("the work ended by itself"),
        _ = end => Ok(()),
    }
}
