//! A server process: Redis or PostgreSQL from the distribution's packages.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use requeue::{Clock, SystemClock};

use crate::store::{Kind, record_server_start};
use crate::time::sleep_blocking;

/// How long a server may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Redis nodes talk to each other on their port plus this.
pub(super) const BUS_OFFSET: u16 = 10_000;

/// When a server writes acknowledged changes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Never
    None,
    /// A moment after the reply
    AfterReply,
    /// Before the reply
    BeforeReply,
}

impl Persistence {
    /// Returns the server's name for this setting.
    pub(crate) fn name(self, store: Kind) -> &'static str {
        match (store, self) {
            (Kind::Postgres, Self::BeforeReply) => "synchronous_commit=on",
            (Kind::Postgres, Self::AfterReply) => "synchronous_commit=off",
            (Kind::Postgres, Self::None) => {
                "synchronous_commit=off, wal_writer_delay=10s"
            }
            (_, Self::None) => "no persistence",
            (_, Self::AfterReply) => "appendfsync everysec",
            (_, Self::BeforeReply) => "appendfsync always",
        }
    }
}

/// A server that can be killed and restarted with the same port and files.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) kind: Kind,
    pub(super) folder: PathBuf,
    pub(crate) port: u16,
    /// The port that a server with replicas announces to clients: that of its proxy.
    pub(crate) announced_port: u16,
    pub(super) persistence: Persistence,
    child: Option<Child>,
    /// Set while the server must stay down.
    pub(super) is_held_down: bool,
}

impl Engine {
    /// Creates `folder` for the files of a server. Does not start the server.
    pub(crate) fn new(
        kind: Kind,
        folder: PathBuf,
        persistence: Persistence,
    ) -> Result<Self> {
        fs::create_dir(&folder)?;
        let port = free_port();
        let announced_port = port;
        let engine = Self {
            kind,
            folder,
            port,
            announced_port,
            persistence,
            child: None,
            is_held_down: false,
        };
        if kind == Kind::Postgres {
            engine.init_postgres()?;
        }
        Ok(engine)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Kills the server. It stays down until `release`.
    pub(crate) fn hold_down(&mut self) -> Result<()> {
        self.is_held_down = true;
        self.kill()
    }

    /// Starts a server that was held down.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.is_held_down = false;
        self.ensure_running()
    }

    /// Returns the id of the server process, if it was started.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the server unless it is running or held down. A server exits by itself if it
    /// was started while its killed predecessor still held the port or a lock file.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        if self.is_held_down {
            return Ok(());
        }
        let is_running = match &mut self.child {
            Some(child) => child.try_wait()?.is_none(),
            None => false,
        };
        if !is_running {
            record_server_start(
                self.folder.parent().context("the folder has a parent")?,
            )?;
            self.child = Some(self.spawn()?);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child> {
        let log =
            File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.server_command()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start the server")
    }

    fn server_command(&self) -> Result<Command> {
        match self.kind {
            Kind::Redis | Kind::Cluster | Kind::Sentinel => self.redis(),
            Kind::Postgres => self.postgres(),
            Kind::Memory | Kind::Folder => bail!("this store has no server"),
        }
    }

    pub(crate) fn wait_until_available(&mut self) -> Result<()> {
        self.wait_until(Self::is_available)
    }

    /// Waits until a node answers, even if it has not joined its cluster.
    pub(crate) fn wait_until_it_pings(&mut self) -> Result<()> {
        self.wait_until(Self::pings)
    }

    pub(super) fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = SystemClock.now() + START_TIMEOUT;
        while !condition(self) {
            ensure!(
                SystemClock.now() < deadline,
                "the server does not answer; see its log"
            );
            self.ensure_running()?;
            sleep_blocking(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends all connections of clients from the server's side.
    pub(crate) fn end_connections(&self) -> Result<()> {
        match self.kind {
            Kind::Postgres => self.terminate_backends(),
            Kind::Redis | Kind::Cluster | Kind::Sentinel => self.kill_clients(),
            Kind::Memory | Kind::Folder => bail!("this store has no server"),
        }
    }

    fn is_available(&self) -> bool {
        match self.kind {
            Kind::Redis | Kind::Sentinel => self.pings(),
            Kind::Cluster => self.knows_all_slots(),
            Kind::Postgres => self.pg_isready().unwrap_or(false),
            Kind::Memory | Kind::Folder => true,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// Returns a command prefix: the kernel kills the process when this one exits.
pub(super) fn killed_with_parent() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command
}

/// Returns a free port whose cluster bus port is free too. Both are below the ephemeral
/// ports, which clients could take while the server is down.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent runs start at different ports.
    let first = (std::process::id() % 200) as u16 * 60;
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + first.wrapping_add(next) % 12_000;
        if is_free(port) && is_free(port + BUS_OFFSET) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
