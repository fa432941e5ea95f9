//! A run from its beginning to its verdict.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::{Clock, SystemClock};

use crate::bug::Bug;
use crate::check::{Counts, History, Home, Verdict, check};
use crate::crew::{Member, Terms, name_of};
use crate::engine::Keeping;
use crate::event::Rest;
use crate::journal::{Journal, now};
use crate::nemesis::{Faults, Nemesis, Targets};
use crate::process::runtime;
use crate::rest::rest;
use crate::roles::Role;
use crate::scene::Scene;
use crate::servers::Servers;
use crate::shortcuts::Shortcuts;
use crate::stores::{self, Kind};
use crate::world::Plan;

/// Workers with a queue; one more works on the bare store.
const WORKERS: usize = 3;
const PRODUCERS: usize = 2;

/// How long a run is in which all that can happen does, however busy the machine is, in
/// seconds.
const LONG: u64 = 30;

/// How long the processes may take to end when they are asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) scene: Scene,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) mutant: Option<Bug>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) folder: PathBuf,
    pub(crate) faults: Faults,
    pub(crate) shortcuts: Shortcuts,
    pub(crate) verdict: Verdict,
}

impl Outcome {
    /// What the run should have done and did not: it proves less than it seems to.
    pub(crate) fn missed(&self, piece: &Piece) -> Vec<&'static str> {
        let Counts { waited, dead, paced, .. } = self.verdict.counts;
        let Shortcuts { adds, leases, ends } = self.shortcuts;
        let short = [
            (adds, "the short script for an add"),
            (leases, "the short script for a lease"),
            (ends, "the short script for an end"),
            (waited, "a lease that comes with the end of a wait"),
        ];
        let in_time = [(dead, "a key that dies"), (paced, "the shared rate")];
        let moves = [(self.faults.moves, "a slot that moves")];
        let moves = moves.into_iter().filter(|_| piece.scene.store == Kind::Cluster);
        let is_long = piece.seconds >= LONG;
        let short = short.into_iter().filter(|_| piece.scene.has_shortcuts());
        let in_time = in_time.into_iter().chain(moves).filter(|_| is_long);
        let ways = short.chain(in_time);
        ways.filter(|(count, _)| *count == 0).map(|(_, way)| way).collect()
    }
}

/// Runs it. The folder is left to the caller.
pub(crate) fn conduct(piece: &Piece) -> Result<Outcome> {
    let folder = make_folder(piece)?;
    let place = folder.display().to_string();
    let conducted = conduct_in(piece, &folder);
    let (faults, shortcuts, verdict) =
        conducted.with_context(|| format!("the run failed; its files are in {place}"))?;
    Ok(Outcome { folder, faults, shortcuts, verdict })
}

fn conduct_in(piece: &Piece, folder: &Path) -> Result<(Faults, Shortcuts, Verdict)> {
    let mut targets = prepare(piece, folder)?;
    let end = SystemClock.now() + Duration::from_secs(piece.seconds);
    let journal = Journal::create(folder, "nemesis")?;
    let nemesis = Nemesis::new(&mut targets, &piece.scene, piece.seed, &journal)?;
    let faults = nemesis.disturb(end)?;
    let rest = calm(folder, &mut targets)?;
    fs::write(folder.join("rest.json"), serde_json::to_string(&rest)?)?;
    let shortcuts = targets.servers.shortcuts();
    drop(targets);
    let verdict = check(History::read(folder)?, &rest, &piece.scene);
    Ok((faults, shortcuts, verdict))
}

fn make_folder(piece: &Piece) -> Result<PathBuf> {
    let name = format!(
        "requeue-faults-{}-{}-{}-{}",
        name_of(&piece.scene.store),
        piece.seed,
        std::process::id(),
        now()
    );
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Starts everything.
fn prepare(piece: &Piece, folder: &Path) -> Result<Targets> {
    let servers = start_servers(piece, folder)?;
    let start = now();
    let until = start + piece.seconds * 1_000_000;
    let (scene, seed, mutant) = (piece.scene, piece.seed, piece.mutant);
    let producers = PRODUCERS + usize::from(scene.store == Kind::Postgres);
    let plan = Plan { start, until, seed, producers, scene };
    plan.write(folder)?;
    let place = match scene.store.home() {
        Home::Server => servers.address(scene.store),
        Home::Embedded => folder.join("queue").display().to_string(),
    };
    let terms = Terms { folder: folder.to_owned(), place, mutant };
    let crew = roles(scene.store)
        .map(|(role, number)| Member::start(&terms, role, number))
        .collect::<Result<_>>()?;
    Ok(Targets { crew, servers })
}

fn start_servers(piece: &Piece, folder: &Path) -> Result<Servers> {
    let forgets = piece.mutant == Some(Bug::ForgetfulEngine);
    let keeping = if forgets { Keeping::Nothing } else { Keeping::AtOnce };
    Servers::start(piece.scene.store, folder, keeping)
}

fn roles(store: Kind) -> Box<dyn Iterator<Item = (Role, usize)>> {
    match store.home() {
        Home::Embedded => Box::new(std::iter::once((Role::Station, 0))),
        Home::Server => {
            let workers = (0..WORKERS).map(|number| (Role::Worker, number));
            let producers = (0..PRODUCERS).map(|number| (Role::Producer, number));
            // The first lanes are those of the producers.
            let clerk = (store == Kind::Postgres).then_some((Role::Clerk, PRODUCERS));
            let others = [(Role::Raw, 0), (Role::Sexton, 0)];
            Box::new(workers.chain(others).chain(producers).chain(clerk))
        }
    }
}

/// Waits until the producers have ended, the queue has come to rest and the workers have
/// gone: what is left.
fn calm(folder: &Path, targets: &mut Targets) -> Result<Rest> {
    let plan = Plan::read(folder)?;
    let kind = plan.scene.store;
    if kind.home() == Home::Embedded {
        targets.crew.iter_mut().try_for_each(|station| station.wait(PATIENCE))?;
        let text =
            fs::read(folder.join("rest.json")).context("the station wrote no rest")?;
        return Ok(serde_json::from_slice(&text)?);
    }
    targets.servers.heal();
    targets.servers.wait_until_they_answer()?;
    let is_producer = |member: &&mut Member| member.role.adds();
    for producer in targets.crew.iter_mut().filter(is_producer) {
        producer.wait(PATIENCE)?;
    }
    let address = targets.servers.address(kind);
    let rest = runtime()?.block_on(async {
        let store = stores::open(&plan.scene, &address, None, folder).await?;
        rest(&*store, &plan).await
    })?;
    targets.crew.iter_mut().for_each(Member::dismiss);
    for worker in &mut targets.crew {
        worker.wait(PATIENCE)?;
    }
    Ok(rest)
}
