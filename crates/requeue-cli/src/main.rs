//! The command `requeue`: a queue of keys at the shell.

mod command;
mod desk;
mod flags;
mod gate;
mod hex;
mod input;
mod ledger;
mod metrics;
mod outage;
mod password;
mod plan;
mod reader;
mod report;
mod run;
mod shared;
mod sieve;
mod signals;
mod slots;
mod store;
mod stored;
mod supply;
mod values;
mod verbs;
mod worker;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};

use self::command::CannotRun;
use self::flags::{Flags, RunFlags, Verb};
use self::plan::Plan;

/// Wrong usage, or something could not be set up.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let verb = match Flags::try_parse() {
        Ok(flags) => flags.verb,
        Err(error) => return refuse(&error),
    };
    // If it cannot be hidden, the run goes on: whoever typed it can see it too.
    drop(password::hide(verb.address()));
    let done = match verb {
        Verb::Run(flags) => run(*flags),
        Verb::Add(flags) => verbs::add(flags),
        Verb::Status(flags) => verbs::status(flags),
        Verb::Watch(flags) => verbs::watch(flags),
        Verb::Dead(verb) => verbs::dead(verb),
        Verb::Forget(flags) => verbs::forget(flags),
        Verb::Pause(flags) => verbs::pause(flags),
        Verb::Resume(flags) => verbs::resume(flags),
        Verb::Completions { shell } => completions(shell),
        Verb::Man { verb } => man(verb.as_deref()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report::complaint(&error);
            ExitCode::from(error.downcast_ref().map_or(USAGE, CannotRun::code))
        }
    }
}

/// Says what is wrong with what was typed, or gives the help that was asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    match password::masked(&error.to_string()) {
        Some(text) => report::warn(&text),
        None => error.exit(),
    }
    ExitCode::from(USAGE)
}

fn run(flags: RunFlags) -> Result<u8> {
    run::run(Plan::new(flags)?)
}

fn completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "requeue", &mut text);
    report::page(&text)?;
    Ok(0)
}

fn man(verb: Option<&str>) -> Result<u8> {
    let mut command = Flags::command();
    command.build();
    let chosen = verb.and_then(|verb| command.find_subcommand(verb)).unwrap_or(&command);
    let mut text = Vec::new();
    clap_mangen::Man::new(chosen.clone()).render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replacen(EXTRA, NOTES, 1);
    report::page(text.as_bytes())?;
    Ok(0)
}

/// How the part of a manual page begins that holds what help says after the flags.
const EXTRA: &str = "\n.SH EXTRA\n";

/// A name that says more, and no spaces inside lines to make them equally long: some are
/// to be typed.
const NOTES: &str = "\n.SH NOTES\n.ad l\n.nh\n";

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
