//! The fault test of requeue's stores.
//!
//! Producers add keys and workers work on them, each a process of its own, while a nemesis
//! kills and stops them, kills the engine, and cuts, delays and silences connections. All
//! write down what they ask and what they are told. In the end a checker reads that and says
//! whether every promise was kept; see the module `check`.

mod check;
mod clerk;
mod conductor;
mod crew;
mod dice;
mod engine;
mod event;
mod journal;
mod loss;
mod mutant;
mod nemesis;
mod process;
mod producer;
mod proxy;
mod recorder;
mod report;
mod rest;
mod roles;
mod stores;
mod worker;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use requeue::{Clock, SystemClock};

use self::check::History;
use self::conductor::{Piece, conduct};
use self::mutant::Bug;
use self::roles::RoleFlags;
use self::stores::Kind;

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
        #[arg(long)]
        store: Kind,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Of all that is left to chance; random if it is not given
        #[arg(long)]
        seed: Option<u64>,
        /// Break this promise on purpose
        #[arg(long)]
        mutant: Option<Bug>,
    },
    /// Run with each seeded bug; exit 1 if one is not found
    Mutants {
        #[arg(long)]
        store: Kind,
        /// How long to look for each
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        #[arg(long)]
        seed: Option<u64>,
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

/// The length of the runs in which a bug is looked for, in seconds.
const SHORT: u64 = 6;

fn main() -> ExitCode {
    let done = match Flags::parse().verb {
        Verb::Run { store, seconds, seed, mutant } => run(&Piece {
            store,
            seconds,
            seed: seed.unwrap_or_else(journal::now),
            mutant,
        }),
        Verb::Mutants { store, seconds, seed, bugs } => {
            let seed = seed.unwrap_or_else(journal::now);
            find_all(&Piece { store, seconds, seed, mutant: None }, &bugs)
        }
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

fn run(piece: &Piece) -> Result<bool> {
    let outcome = conduct(piece)?;
    report::outcome(piece, &outcome);
    let kept = outcome.verdict.violations.is_empty();
    if kept {
        fs::remove_dir_all(&outcome.folder)?;
    }
    Ok(kept)
}

/// Looks for each bug, in short runs with one seed after the other.
fn find_all(piece: &Piece, bugs: &[Bug]) -> Result<bool> {
    let all = Bug::value_variants().iter().copied();
    let mut found = true;
    for bug in all.filter(|bug| bugs.is_empty() || bugs.contains(bug)) {
        if bug.exists_in(piece.store) {
            found &= find(&Piece { mutant: Some(bug), ..*piece }, bug)?;
        }
    }
    Ok(found)
}

fn find(piece: &Piece, bug: Bug) -> Result<bool> {
    let began = SystemClock.now();
    for seed in piece.seed.. {
        let outcome = conduct(&Piece { seconds: SHORT, seed, ..*piece })?;
        fs::remove_dir_all(&outcome.folder)?;
        let took = SystemClock.now() - began;
        if !outcome.verdict.violations.is_empty() {
            report::bug(bug, Some(&outcome.verdict), took);
            return Ok(true);
        }
        if took.as_secs() >= piece.seconds {
            report::bug(bug, None, took);
            return Ok(false);
        }
    }
    Ok(false)
}

fn check_again(folder: &Path) -> Result<bool> {
    let text =
        fs::read(folder.join("rest.json")).context("the folder has no rest.json")?;
    let store = fs::read_to_string(folder.join("store")).context("it says no store")?;
    let store = Kind::from_str(&store, false).map_err(anyhow::Error::msg)?;
    let verdict = check::check(
        &History::read(folder)?,
        &serde_json::from_slice(&text)?,
        store.home(),
    );
    report::verdict(&verdict);
    Ok(verdict.violations.is_empty())
}
