//! The command `requeue`: a deduplicating work queue for the shell.

mod address;
mod command;
mod dry_run;
mod flags;
mod guard;
mod hex;
mod hint;
mod http;
mod input;
mod journal;
mod key_set;
mod password;
mod plan;
mod queue;
mod reader;
mod report;
mod retry;
mod run;
mod signals;
mod slots;
mod start_limiter;
mod values;
mod verbs;
mod worker;

use std::io::{self, IsTerminal, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use self::command::CannotRun;
use self::flags::{Flags, RunFlags, Verb};
use self::plan::Plan;

/// Exit code: wrong usage, or set-up failed.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(words) = guard_words() {
        // It has no terminal to report an error to.
        return guard::guard(&words).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let verb = match Flags::try_parse() {
        Ok(flags) => flags.verb,
        Err(error) => return usage_error(&error),
    };
    // Best effort: a visible password must not keep the command from working.
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
        Verb::Migrate(flags) => verbs::migrate(flags),
        Verb::Completions { shell } => completions(shell),
        Verb::Man { verb } => man(verb.as_deref()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report::error(&error);
            ExitCode::from(error.downcast_ref().map_or(USAGE, CannotRun::code))
        }
    }
}

/// Returns advice about an unknown verb or flag.
fn advice(error: &clap::Error) -> Option<&'static str> {
    let verb = error.get(ContextKind::InvalidSubcommand);
    let flag = error.get(ContextKind::InvalidArg);
    let flag = flag.filter(|_| error.kind() == ErrorKind::UnknownArgument);
    let Some(ContextValue::String(word)) = verb.or(flag) else { return None };
    hint::about_word(word)
}

/// Returns the arguments if this process is a guard.
fn guard_words() -> Option<Vec<String>> {
    let mut words = std::env::args_os().skip(1);
    let is_guard = words.next().is_some_and(|word| word == guard::VERB);
    is_guard.then(|| words.filter_map(|word| word.into_string().ok()).collect())
}

/// Prints a usage error with passwords masked and control characters escaped, or the requested
/// help.
fn usage_error(error: &clap::Error) -> ExitCode {
    let plain = error.to_string();
    let masked = password::masked(&plain);
    let text = masked.as_deref().unwrap_or(&plain);
    let text = match advice(error) {
        Some(advice) => text.replacen("\n\n", &format!("\n\n  tip: {advice}\n\n"), 1),
        None => text.to_owned(),
    };
    let shown = report::escaped_lines(&text);
    if !error.use_stderr() || shown == plain {
        error.exit(); // with colours
    }
    report::print_error(&shown);
    ExitCode::from(USAGE)
}

fn run(flags: RunFlags) -> Result<u8> {
    let plan = Plan::new(flags)?;
    if plan.dry_run { dry_run::dry_run(plan) } else { run::run(plan) }
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
    if io::stdout().is_terminal() && show_manual(text.as_bytes()).is_ok_and(|shown| shown)
    {
        return Ok(0);
    }
    report::page(text.as_bytes())?;
    Ok(0)
}

/// Opens a manual page with `man`. Returns whether it was shown.
fn show_manual(text: &[u8]) -> io::Result<bool> {
    let mut man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = man.stdin.take() {
        stdin.write_all(text)?;
    }
    Ok(man.wait()?.success())
}

/// The heading that clap gives to the notes after the flags.
const EXTRA: &str = "\n.SH EXTRA\n";

/// A better heading, followed by requests not to justify or hyphenate: some lines are meant to
/// be typed.
const NOTES: &str = "\n.SH NOTES\n.ad l\n.nh\n";

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
