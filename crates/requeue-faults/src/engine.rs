//! The engine: a server from the distribution's packages, on a port of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use requeue::{Clock, SystemClock};

use crate::mutant::begin_epoch;
use crate::proxy::park;
use crate::stores::Kind;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is started, killed and started again on the same port and files.
#[derive(Debug)]
pub(crate) struct Engine {
    kind: Kind,
    folder: PathBuf,
    pub(crate) port: u16,
    /// Whether what is acknowledged is on disk.
    durable: bool,
    child: Option<Child>,
}

impl Engine {
    /// Starts a server with files in `folder`.
    pub(crate) fn start(kind: Kind, folder: &Path, durable: bool) -> Result<Self> {
        let folder = folder.join("engine");
        fs::create_dir(&folder)?;
        let port = free_port()?;
        let mut engine = Self { kind, folder, port, durable, child: None };
        engine.ensure_running()?;
        engine.wait_until_it_answers()?;
        Ok(engine)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts the server unless it runs. It may have ended by itself, if it was started
    /// before the last traces of the one that was killed were gone.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        let runs = match &mut self.child {
            Some(child) => child.try_wait()?.is_none(),
            None => false,
        };
        if !runs {
            begin_epoch(self.folder.parent().context("the folder has a parent")?)?;
            self.child = Some(self.spawn()?);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start the server")
    }

    fn command(&self) -> Result<Command> {
        match self.kind {
            Kind::Redis => Ok(self.redis()),
            Kind::Memory => bail!("this store has no server"),
        }
    }

    fn redis(&self) -> Command {
        // The server ends with the conductor, whatever ends that.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1"]);
        command.args(["--port", &self.port.to_string(), "--save", "", "--dir"]);
        command.arg(&self.folder);
        if self.durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        command
    }

    pub(crate) fn wait_until_it_answers(&mut self) -> Result<()> {
        let give_up = SystemClock.now() + PATIENCE;
        while !self.answers() {
            ensure!(SystemClock.now() < give_up, "the server does not answer; see its log");
            self.ensure_running()?;
            park(Duration::from_millis(20));
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        match self.kind {
            Kind::Redis => self.ping().is_ok_and(|answer| answer == *b"+PONG"),
            Kind::Memory => true,
        }
    }

    fn ping(&self) -> std::io::Result<[u8; 5]> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
