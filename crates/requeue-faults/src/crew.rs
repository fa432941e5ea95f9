//! The processes of a run, as the conductor sees them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use requeue::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use crate::bug::Bug;
use crate::proxy::park;
use crate::roles::Role;

/// How the processes of a run are started.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) folder: PathBuf,
    pub(crate) place: String,
    pub(crate) mutant: Option<Bug>,
}

/// One process, which is started again when it was killed.
#[derive(Debug)]
pub(crate) struct Member {
    terms: Terms,
    pub(crate) role: Role,
    number: usize,
    lives: usize,
    child: Child,
}

impl Member {
    /// Starts the process of this number among those with this role.
    pub(crate) fn start(terms: &Terms, role: Role, number: usize) -> Result<Self> {
        let child = spawn(terms, role, number, 1)?;
        Ok(Self { terms: terms.clone(), role, number, lives: 1, child })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has an id")?, signal)?;
        Ok(())
    }

    pub(crate) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the process and starts it anew.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.revive()
    }

    fn revive(&mut self) -> Result<()> {
        self.lives += 1;
        self.child = spawn(&self.terms, self.role, self.number, self.lives)?;
        Ok(())
    }

    /// Waits until the process ends by itself, which it must do well.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<()> {
        let give_up = SystemClock.now() + at_most;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the {:?} failed: {status}", self.role);
                return Ok(());
            }
            ensure!(SystemClock.now() < give_up, "the {:?} does not end", self.role);
            park(Duration::from_millis(10));
        }
    }

    /// Tells a worker to end.
    pub(crate) fn dismiss(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

fn spawn(terms: &Terms, role: Role, number: usize, life: usize) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["play", "--role", &name_of(&role), "--number", &number.to_string()]);
    command.args(["--life", &life.to_string(), "--place", &terms.place]);
    command.arg("--folder").arg(&terms.folder);
    if let Some(bug) = terms.mutant {
        command.args(["--mutant", &name_of(&bug)]);
    }
    command.stdin(Stdio::piped()).spawn().context("cannot start a process of the run")
}

/// What a value is called on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}
