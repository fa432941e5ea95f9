//! Fault injection for requeue's stores.
//!
//! A run starts producers and workers as separate processes. A nemesis kills and stops them,
//! kills the server, and cuts, delays and silences connections. Every process records its
//! calls and the answers in a history. At the end a checker reads the histories and reports
//! every broken promise; see the module `check`.

mod check;
mod data_loss;
mod fault;
mod history;
mod process;
mod random;
mod report;
mod run;
mod server;
mod soak;
mod store;
mod time;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use requeue::{Clock, SystemClock};

use self::history::History;
use self::process::role::{self, RoleFlags};
use self::run::plan::Plan;
use self::run::scenario::{Load, Scenario, ScenarioFlags};
use self::run::{FINAL_STATE, RunConfig};
use self::store::Kind;
use self::store::bug::Bug;

#[derive(Debug, Parser)]
#[command(
    about = "Run a store under faults and check that it keeps its promises",
    disable_help_subcommand = true
)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run under faults and check the histories; exit 1 if a promise was broken
    Run {
        #[command(flatten)]
        scenario: ScenarioFlags,
        /// Run with this seeded bug
        #[arg(long)]
        bug: Option<Bug>,
    },
    /// Run with each seeded bug; exit 1 if the checker misses one
    Bugs {
        #[command(flatten)]
        scenario: ScenarioFlags,
        /// Only these bugs
        bugs: Vec<Bug>,
    },
    /// Kill the server during adds and count the keys it loses at each setting
    DataLoss {
        #[arg(long)]
        store: Kind,
        #[arg(long, default_value_t = 3)]
        rounds: u64,
    },
    /// Work for a long time; exit 1 if memory, connections or open files grow
    Soak {
        #[arg(long)]
        store: Kind,
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Check the histories of an earlier run again
    Check { folder: PathBuf },
    #[command(hide = true)]
    Process(RoleFlags),
}

/// Returns how long a run that looks for a bug lasts, in seconds. A killed PostgreSQL is down
/// for most of a shorter run.
fn bug_run_seconds(scenario: &Scenario) -> u64 {
    match (scenario.load, scenario.store) {
        // Two disturbances.
        (Load::Steady, _) => 18,
        (_, Kind::Postgres) => 12,
        _ => 6,
    }
}

fn main() -> ExitCode {
    let result = match Flags::parse().command {
        Command::Run { scenario, bug } => run_all(&scenario, bug),
        Command::Bugs { scenario, bugs } => find_bugs(&scenario, &bugs),
        Command::DataLoss { store, rounds } => {
            data_loss::measure(store, rounds).map(|()| true)
        }
        Command::Soak { store, seconds, seed } => soak::run(store, seconds, seed),
        Command::Check { folder } => check_again(&folder),
        Command::Process(flags) => role::run(&flags).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            report::error(&error);
            ExitCode::from(2)
        }
    }
}

/// Runs the requested scenarios. Returns whether all of them passed.
fn run_all(flags: &ScenarioFlags, bug: Option<Bug>) -> Result<bool> {
    let (seed, seconds) = (flags.seed(), flags.seconds);
    let mut passed = true;
    for scenario in flags.scenarios(seed) {
        let config = RunConfig { scenario, seconds, seed, bug };
        let result = run::run(&config)?;
        report::run(&config, &result);
        let is_correct = result.verdict.violations.is_empty();
        if is_correct {
            fs::remove_dir_all(&result.folder)?;
        }
        passed &= is_correct && result.unreached(&config).is_empty();
    }
    Ok(passed)
}

/// Returns whether the checker found all of the bugs.
fn find_bugs(flags: &ScenarioFlags, bugs: &[Bug]) -> Result<bool> {
    let all = Bug::value_variants().iter().copied();
    let mut found = true;
    for bug in all.filter(|bug| bugs.is_empty() || bugs.contains(bug)) {
        if bug.exists_in(flags.store) {
            found &= find_bug(flags, bug)?;
        }
    }
    Ok(found)
}

/// Runs with consecutive seeds until the checker finds the bug.
fn find_bug(flags: &ScenarioFlags, bug: Bug) -> Result<bool> {
    let started = SystemClock.now();
    for seed in flags.seed().. {
        let scenario = flags.for_bug(bug, seed);
        let seconds = bug_run_seconds(&scenario);
        let result = run::run(&RunConfig { scenario, seconds, seed, bug: Some(bug) })?;
        fs::remove_dir_all(&result.folder)?;
        let elapsed = SystemClock.now() - started;
        if !result.verdict.violations.is_empty() {
            report::bug(bug, Some(&result.verdict), elapsed);
            return Ok(true);
        }
        if elapsed.as_secs() >= flags.seconds {
            report::bug(bug, None, elapsed);
            return Ok(false);
        }
    }
    Ok(false)
}

fn check_again(folder: &Path) -> Result<bool> {
    let text = fs::read(folder.join(FINAL_STATE))
        .with_context(|| format!("the folder has no {FINAL_STATE}"))?;
    let plan = Plan::read(folder)?;
    let state = serde_json::from_slice(&text)?;
    let verdict = check::check(History::read(folder)?, &state, &plan);
    report::verdict(&verdict);
    Ok(verdict.violations.is_empty())
}
