//! A server process: Redis or PostgreSQL from the distribution's packages.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use requeue::{Clock, SystemClock};

use crate::store::{Kind, record_server_start};
use crate::time::sleep_blocking;

/// How long a server may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of slots of a Redis Cluster.
const SLOTS: usize = 16384;

/// Redis nodes talk to each other on their port plus this.
const BUS_OFFSET: u16 = 10_000;

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
    kind: Kind,
    folder: PathBuf,
    pub(crate) port: u16,
    /// The port that a cluster node announces to clients: that of its proxy.
    pub(crate) announced_port: u16,
    persistence: Persistence,
    child: Option<Child>,
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
        let engine =
            Self { kind, folder, port, announced_port, persistence, child: None };
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

    /// Starts the server unless it is running. A server exits by itself if it was started
    /// while its killed predecessor still held the port or a lock file.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
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
            Kind::Redis | Kind::Cluster => Ok(self.redis()),
            Kind::Postgres => self.postgres(),
            Kind::Memory | Kind::Fjall => bail!("this store has no server"),
        }
    }

    fn redis(&self) -> Command {
        let mut command = killed_with_parent();
        command.args(["redis-server", "--bind", "127.0.0.1"]);
        command.args(["--port", &self.port.to_string(), "--save", "", "--dir"]);
        command.arg(&self.folder);
        match self.persistence {
            Persistence::None => {}
            Persistence::AfterReply => drop(command.args(["--appendonly", "yes"])),
            Persistence::BeforeReply => {
                command.args(["--appendonly", "yes", "--appendfsync", "always"]);
            }
        }
        if self.kind == Kind::Cluster {
            self.add_cluster_options(&mut command);
        }
        command
    }

    /// Adds the options of a cluster node. A node serves its slots even if other nodes are
    /// down. It sends clients to the proxies, but talks to other nodes directly.
    fn add_cluster_options(&self, command: &mut Command) {
        let port = self.announced_port.to_string();
        let bus = (self.port + BUS_OFFSET).to_string();
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
        command.args(["--cluster-require-full-coverage", "no"]);
        command.args(["--cluster-announce-ip", "127.0.0.1"]);
        command.args(["--cluster-announce-port", &port]);
        command.args(["--cluster-announce-bus-port", &bus]);
    }

    /// Assigns a node its share of the slots.
    pub(crate) fn take_slots(&self, number: usize, count: usize) -> Result<()> {
        let slots = SLOTS * number / count..SLOTS * (number + 1) / count;
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        self.command_ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
        self.command_ok(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
    }

    /// Returns the node that owns a slot before any slot has moved.
    pub(crate) fn initial_node(slot: u16, count: usize) -> usize {
        let owns = |number: &usize| usize::from(slot) < SLOTS * (number + 1) / count;
        (0..count).find(owns).unwrap_or(0)
    }

    pub(crate) fn slot_of(&self, key: &str) -> Result<u16> {
        let answer = self.command(&format!("CLUSTER KEYSLOT {key}"))?;
        let slot = answer.lines().next().and_then(|line| line.strip_prefix(':'));
        slot.and_then(|slot| slot.parse().ok()).with_context(|| unexpected(&answer))
    }

    /// Returns the cluster id of a node.
    pub(crate) fn node_id(&self) -> Result<String> {
        let answer = self.command("CLUSTER MYID")?;
        first_string(&answer).with_context(|| unexpected(&answer))
    }

    /// Returns one Redis key of a slot on this node.
    pub(crate) fn key_in(&self, slot: u16) -> Result<Option<String>> {
        let answer = self.command(&format!("CLUSTER GETKEYSINSLOT {slot} 1"))?;
        ensure!(answer.starts_with('*'), unexpected(&answer));
        Ok(first_string(&answer))
    }

    /// Moves a Redis key to another node. `REPLACE`, because the key is already there if this
    /// node was killed before it deleted its copy.
    pub(crate) fn migrate_key(&self, key: &str, to: u16, timeout: u32) -> Result<()> {
        self.command_ok(&format!("MIGRATE 127.0.0.1 {to} {key} 0 {timeout} REPLACE"))
    }

    fn postgres(&self) -> Result<Command> {
        let mut command = killed_with_parent();
        as_postgres(&mut command);
        command
            .arg(postgres_program("postgres")?)
            .arg("-D")
            .arg(self.folder.join("data"));
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "unix_socket_directories=", "-c", "max_connections=100"]);
        let commit = match self.persistence {
            Persistence::None | Persistence::AfterReply => "synchronous_commit=off",
            Persistence::BeforeReply => "synchronous_commit=on",
        };
        command.args(["-c", commit, "-c", "fsync=on"]);
        if self.persistence == Persistence::None {
            // The maximum. The server still writes when its buffers are full.
            command.args(["-c", "wal_writer_delay=10s"]);
        }
        Ok(command)
    }

    /// Creates an empty database cluster that trusts every user of this machine.
    fn init_postgres(&self) -> Result<()> {
        if is_root() {
            let parent = self.folder.parent().context("the folder has a parent")?;
            fs::set_permissions(parent, fs::Permissions::from_mode(0o711))?;
            let mut own = Command::new("chown");
            ensure!(
                own.arg("postgres:").arg(&self.folder).status()?.success(),
                "chown failed"
            );
        }
        let mut command = killed_with_parent();
        as_postgres(&mut command);
        command.arg(postgres_program("initdb")?).arg("-D").arg(self.folder.join("data"));
        command.args(["-U", "requeue", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        let output = command.arg("--no-sync").output().context("cannot run initdb")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed: {error}");
        Ok(())
    }

    fn pg_isready(&self) -> Result<bool> {
        let mut command = Command::new(postgres_program("pg_isready")?);
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        Ok(command.status()?.success())
    }

    pub(crate) fn wait_until_available(&mut self) -> Result<()> {
        self.wait_until(Self::is_available)
    }

    /// Waits until a node answers, even if it has not joined its cluster.
    pub(crate) fn wait_until_it_pings(&mut self) -> Result<()> {
        self.wait_until(Self::pings)
    }

    /// Makes a Redis server a replica of the server on this port, and waits until it is in
    /// sync.
    pub(crate) fn follow(&mut self, port: u16) -> Result<()> {
        self.command_ok(&format!("REPLICAOF 127.0.0.1 {port}"))?;
        self.wait_until(|replica| replica.has_link("up"))
    }

    /// Promotes a replica once it has applied everything that its killed primary sent.
    pub(crate) fn promote(&mut self) -> Result<()> {
        self.wait_until(|replica| replica.has_link("down"))?;
        self.command_ok("REPLICAOF NO ONE")
    }

    fn has_link(&self, state: &str) -> bool {
        let link = format!("master_link_status:{state}");
        self.command("INFO replication").is_ok_and(|answer| answer.contains(&link))
    }

    fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<()> {
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

    fn is_available(&self) -> bool {
        match self.kind {
            Kind::Redis => self.pings(),
            Kind::Cluster => self.knows_all_slots(),
            Kind::Postgres => self.pg_isready().unwrap_or(false),
            Kind::Memory | Kind::Fjall => true,
        }
    }

    fn pings(&self) -> bool {
        self.command("PING").is_ok_and(|answer| answer.starts_with("+PONG"))
    }

    fn knows_all_slots(&self) -> bool {
        let all = format!("cluster_slots_ok:{SLOTS}");
        self.command("CLUSTER INFO").is_ok_and(|answer| {
            answer.contains("cluster_state:ok") && answer.contains(&all)
        })
    }

    /// Sends a command to a Redis server. Fails unless it answers OK.
    pub(crate) fn command_ok(&self, command: &str) -> Result<()> {
        let answer = self.command(command)?;
        ensure!(answer.starts_with("+OK"), unexpected(&answer));
        Ok(())
    }

    /// Sends a command to a Redis server on a new connection and returns its answer.
    fn command(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

fn unexpected(answer: &str) -> String {
    format!("unexpected answer from the server: {answer:?}")
}

/// Returns the first bulk string of an answer.
fn first_string(answer: &str) -> Option<String> {
    let mut lines = answer.lines();
    lines.find(|line| line.starts_with('$'))?;
    lines.next().map(str::to_owned)
}

/// Returns a command prefix: the kernel kills the process when this one exits.
fn killed_with_parent() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command
}

/// PostgreSQL refuses to run as root.
fn as_postgres(command: &mut Command) {
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the path of a program of the newest installed PostgreSQL. Debian keeps each
/// version in its own folder.
fn postgres_program(name: &str) -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let programs =
        versions.map(|entry| (version(&entry.path()), entry.path().join("bin")));
    let programs = programs.map(|(version, bin)| (version, bin.join(name)));
    let newest = programs.filter(|(_, program)| program.exists()).max();
    let newest = newest.map(|(_, program)| program);
    newest.with_context(|| {
        format!("{name} is missing: install Debian's package postgresql")
    })
}

/// Returns a free port whose cluster bus port is free too. Both are below the ephemeral
/// ports, which clients could take while the server is down.
fn free_port() -> u16 {
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
