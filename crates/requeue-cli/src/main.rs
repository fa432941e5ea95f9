//! The command `requeue`: a queue of keys at the shell.

mod command;
mod flags;
mod gate;
mod input;
mod metrics;
mod plan;
mod report;
mod run;
mod signals;
mod slots;
mod values;
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
    let done = match Flags::parse().verb {
        Verb::Run(flags) => run(*flags),
        Verb::Completions { shell } => completions(shell),
        Verb::Man => man(),
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

fn run(flags: RunFlags) -> Result<u8> {
    run::run(Plan::new(flags)?)
}

fn completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "requeue", &mut text);
    report::page(&text)?;
    Ok(0)
}

/// One page for the command and all its verbs.
fn man() -> Result<u8> {
    let command = Flags::command();
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() == "run") {
        let man = clap_mangen::Man::new(verb.clone().bin_name("requeue run"));
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        man.render_extra_section(&mut text)?;
    }
    report::page(&text)?;
    Ok(0)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
