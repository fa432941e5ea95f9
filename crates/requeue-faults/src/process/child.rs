//! The processes of a run as their parent sees them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use requeue::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use super::role::Role;
use crate::store::bug::Bug;
use crate::time::sleep_blocking;

/// Arguments that all processes of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) folder: PathBuf,
    pub(crate) address: String,
    pub(crate) bug: Option<Bug>,
}

/// A process that is restarted whenever it is killed.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    launch: Launch,
    pub(crate) role: Role,
    number: usize,
    incarnation: usize,
    child: Child,
}

impl ChildProcess {
    /// Starts a process. `number` distinguishes processes with the same role.
    pub(crate) fn start(launch: &Launch, role: Role, number: usize) -> Result<Self> {
        let incarnation = 1;
        let child = spawn(launch, role, number, incarnation)?;
        Ok(Self { launch: launch.clone(), role, number, incarnation, child })
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("invalid process id")?, signal)?;
        Ok(())
    }

    /// Stops the process until `resume`.
    pub(crate) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    pub(crate) fn kill_and_restart(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.incarnation += 1;
        self.child = spawn(&self.launch, self.role, self.number, self.incarnation)?;
        Ok(())
    }

    /// Waits until the process has exited. Fails if it does not exit successfully in time.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<()> {
        let deadline = SystemClock.now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the {:?} failed: {status}", self.role);
                return Ok(());
            }
            ensure!(SystemClock.now() < deadline, "the {:?} does not exit", self.role);
            sleep_blocking(Duration::from_millis(10));
        }
    }

    /// Asks a worker to exit, by closing its standard input.
    pub(crate) fn request_exit(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

fn spawn(
    launch: &Launch,
    role: Role,
    number: usize,
    incarnation: usize,
) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["process", "--role", &name_of(&role)]);
    command.args(["--number", &number.to_string()]);
    command.args(["--incarnation", &incarnation.to_string()]);
    command.args(["--address", &launch.address]);
    command.arg("--folder").arg(&launch.folder);
    if let Some(bug) = launch.bug {
        command.args(["--bug", &name_of(&bug)]);
    }
    command.stdin(Stdio::piped()).spawn().context("cannot start a process of the run")
}

/// Returns the name of a value on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}
