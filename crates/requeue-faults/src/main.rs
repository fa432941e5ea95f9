//! The fault test of requeue's stores.
//!
//! Producers add keys and workers work on them, each a process of its own, while a nemesis
//! kills and stops them, kills the engine, and cuts, delays and silences connections. All
//! write down what they ask and what they are told. In the end a checker reads that and says
//! whether every promise was kept; see the module `check`.

mod bug;
mod check;
mod clerk;
mod conductor;
mod crew;
mod dice;
mod engine;
mod event;
mod journal;
mod loss;
mod migration;
mod mutant;
mod muted;
mod nemesis;
mod process;
mod producer;
mod proxy;
mod recorder;
mod report;
mod rest;
mod roles;
mod scene;
mod servers;
mod sexton;
mod shortcuts;
mod stores;
mod worker;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use requeue::{Clock, SystemClock};

use self::bug::Bug;
use self::check::History;
use self::conductor::{Piece, conduct};
use self::roles::RoleFlags;
use self::scene::SceneFlags;
use self::stores::Kind;
use self::world::Plan;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    about = "Kill, stop and cut off what uses a store, and check what became of it"
)]
struct Flags {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run, disturb and check; exit 1 if a promise was broken
    Run {
        #[command(flatten)]
        scene: SceneFlags,
        /// Break this promise on purpose
        #[arg(long)]
        mutant: Option<Bug>,
    },
    /// Run with each seeded bug; exit 1 if one is not found
    Mutants {
        #[command(flatten)]
        scene: SceneFlags,
        /// Only these
        bugs: Vec<Bug>,
    },
    /// Kill the engine in the middle of adds, and count what is lost at each setting
    Loss {
        #[arg(long)]
        store: Kind,
        #[arg(long, default_value_t = 3)]
        rounds: u64,
    },
    /// Check the histories that a run has left in a folder
    Check { folder: PathBuf },
    #[command(hide = true)]
    Play(RoleFlags),
}

/// The length of the runs in which a bug is looked for, in seconds. A PostgreSQL that was
/// killed is away for most of a shorter one.
fn short(store: Kind) -> u64 {
    if store == Kind::Postgres { 12 } else { 6 }
}

fn main() -> ExitCode {
    let done = match Flags::parse().verb {
        Verb::Run { scene, mutant } => run(&scene, mutant),
        Verb::Mutants { scene, bugs } => find_all(&scene, &bugs),
        Verb::Loss { store, rounds } => loss::measure(store, rounds).map(|()| true),
        Verb::Check { folder } => check_again(&folder),
        Verb::Play(flags) => roles::play(&flags).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            report::complaint(&error);
            ExitCode::from(2)
        }
    }
}

/// Runs each scene that was asked for, one after the other.
fn run(flags: &SceneFlags, mutant: Option<Bug>) -> Result<bool> {
    let (seed, seconds) = (flags.seed(), flags.seconds);
    let mut all_well = true;
    for scene in flags.scenes(seed) {
        let piece = Piece { scene, seconds, seed, mutant };
        let outcome = conduct(&piece)?;
        report::outcome(&piece, &outcome);
        let kept = outcome.verdict.violations.is_empty();
        if kept {
            fs::remove_dir_all(&outcome.folder)?;
        }
        all_well &= kept && outcome.missed(&piece).is_empty();
    }
    Ok(all_well)
}

/// Looks for each bug, in short runs with one seed after the other.
fn find_all(flags: &SceneFlags, bugs: &[Bug]) -> Result<bool> {
    let all = Bug::value_variants().iter().copied();
    let mut found = true;
    for bug in all.filter(|bug| bugs.is_empty() || bugs.contains(bug)) {
        if bug.exists_in(flags.store) {
            found &= find(flags, bug)?;
        }
    }
    Ok(found)
}

fn find(flags: &SceneFlags, bug: Bug) -> Result<bool> {
    let began = SystemClock.now();
    for seed in flags.seed().. {
        let (scene, mutant) = (flags.busy(seed), Some(bug));
        let outcome =
            conduct(&Piece { scene, seconds: short(flags.store), seed, mutant })?;
        fs::remove_dir_all(&outcome.folder)?;
        let took = SystemClock.now() - began;
        if !outcome.verdict.violations.is_empty() {
            report::bug(bug, Some(&outcome.verdict), took);
            return Ok(true);
        }
        if took.as_secs() >= flags.seconds {
            report::bug(bug, None, took);
            return Ok(false);
        }
    }
    Ok(false)
}

fn check_again(folder: &Path) -> Result<bool> {
    let text =
        fs::read(folder.join("rest.json")).context("the folder has no rest.json")?;
    let plan = Plan::read(folder)?;
    let verdict = check::check(
        History::read(folder)?,
        &serde_json::from_slice(&text)?,
        &plan.scene,
    );
    report::verdict(&verdict);
    Ok(verdict.violations.is_empty())
}
