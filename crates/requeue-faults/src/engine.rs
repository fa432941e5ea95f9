//! The engine: a server from the distribution's packages, on a port of its own.

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

use crate::mutant::begin_epoch;
use crate::proxy::park;
use crate::stores::Kind;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The slots of a cluster.
const SLOTS: usize = 16384;

/// When a server has what it acknowledges on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Never
    Nothing,
    /// A moment later
    Soon,
    /// Before it answers
    AtOnce,
}

impl Keeping {
    /// What the server calls it.
    pub(crate) fn name(self, store: Kind) -> &'static str {
        match (store, self) {
            (Kind::Postgres, Self::AtOnce) => "synchronous_commit=on",
            (Kind::Postgres, Self::Soon) => "synchronous_commit=off",
            (Kind::Postgres, Self::Nothing) => {
                "synchronous_commit=off, wal_writer_delay=10s"
            }
            (_, Self::Nothing) => "no persistence",
            (_, Self::Soon) => "appendfsync everysec",
            (_, Self::AtOnce) => "appendfsync always",
        }
    }
}

/// A server that is started, killed and started again on the same port and files.
#[derive(Debug)]
pub(crate) struct Engine {
    kind: Kind,
    folder: PathBuf,
    pub(crate) port: u16,
    /// The port on which a node of a cluster says that it is.
    pub(crate) announced: u16,
    keeping: Keeping,
    child: Option<Child>,
}

impl Engine {
    /// A server with files in `folder`, which is made. It is not started yet.
    pub(crate) fn new(kind: Kind, folder: PathBuf, keeping: Keeping) -> Result<Self> {
        fs::create_dir(&folder)?;
        let port = free_port();
        let engine = Self { kind, folder, port, announced: port, keeping, child: None };
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
        let log =
            File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start the server")
    }

    fn command(&self) -> Result<Command> {
        match self.kind {
            Kind::Redis | Kind::Cluster => Ok(self.redis()),
            Kind::Postgres => self.postgres(),
            Kind::Memory | Kind::Fjall => bail!("this store has no server"),
        }
    }

    fn redis(&self) -> Command {
        let mut command = mortal();
        command.args(["redis-server", "--bind", "127.0.0.1"]);
        command.args(["--port", &self.port.to_string(), "--save", "", "--dir"]);
        command.arg(&self.folder);
        match self.keeping {
            Keeping::Nothing => {}
            Keeping::Soon => drop(command.args(["--appendonly", "yes"])),
            Keeping::AtOnce => {
                command.args(["--appendonly", "yes", "--appendfsync", "always"]);
            }
        }
        if self.kind == Kind::Cluster {
            self.as_node(&mut command);
        }
        command
    }

    /// A node serves its slots whatever the others do, and sends clients to the proxies. Nodes
    /// talk among themselves without them.
    fn as_node(&self, command: &mut Command) {
        let (port, bus) = (self.announced.to_string(), bus_of(self.port).to_string());
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
        command.args(["--cluster-require-full-coverage", "no"]);
        command.args(["--cluster-announce-ip", "127.0.0.1"]);
        command.args(["--cluster-announce-port", &port]);
        command.args(["--cluster-announce-bus-port", &bus]);
    }

    /// Gives a node its share of the slots.
    pub(crate) fn take_slots(&self, number: usize, count: usize) -> Result<()> {
        let slots = SLOTS * number / count..SLOTS * (number + 1) / count;
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        self.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
        self.tell(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
    }

    /// The node that has a slot in the beginning.
    pub(crate) fn first_home(slot: u16, count: usize) -> usize {
        let has = |number: &usize| usize::from(slot) < SLOTS * (number + 1) / count;
        (0..count).find(has).unwrap_or(0)
    }

    pub(crate) fn slot_of(&self, key: &str) -> Result<u16> {
        let answer = self.ask(&format!("CLUSTER KEYSLOT {key}"))?;
        let slot = answer.lines().next().and_then(|line| line.strip_prefix(':'));
        slot.and_then(|slot| slot.parse().ok()).with_context(|| said(&answer))
    }

    /// What a node is called among others.
    pub(crate) fn id(&self) -> Result<String> {
        let answer = self.ask("CLUSTER MYID")?;
        first_text(&answer).with_context(|| said(&answer))
    }

    /// One of the Redis keys that a node has in a slot.
    pub(crate) fn key_in(&self, slot: u16) -> Result<Option<String>> {
        let answer = self.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 1"))?;
        ensure!(answer.starts_with('*'), said(&answer));
        Ok(first_text(&answer))
    }

    /// Sends a Redis key to another node, where it may be already if this one was killed
    /// before it had it deleted.
    pub(crate) fn send_key(&self, key: &str, to: u16, timeout: u32) -> Result<()> {
        self.tell(&format!("MIGRATE 127.0.0.1 {to} {key} 0 {timeout} REPLACE"))
    }

    fn postgres(&self) -> Result<Command> {
        let mut command = mortal();
        as_postgres(&mut command);
        command
            .arg(postgres_program("postgres")?)
            .arg("-D")
            .arg(self.folder.join("data"));
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "unix_socket_directories=", "-c", "max_connections=100"]);
        let commit = match self.keeping {
            Keeping::Nothing | Keeping::Soon => "synchronous_commit=off",
            Keeping::AtOnce => "synchronous_commit=on",
        };
        command.args(["-c", commit, "-c", "fsync=on"]);
        if self.keeping == Keeping::Nothing {
            // The longest there is. It then writes when its buffers are full.
            command.args(["-c", "wal_writer_delay=10s"]);
        }
        Ok(command)
    }

    /// Makes an empty cluster, in which everybody on this machine is trusted.
    fn init_postgres(&self) -> Result<()> {
        if is_root() {
            let parent = self.folder.parent().context("the folder has a parent")?;
            fs::set_permissions(parent, fs::Permissions::from_mode(0o711))?;
            let mut own = Command::new("chown");
            ensure!(
                own.arg("postgres:").arg(&self.folder).status()?.success(),
                "no chown"
            );
        }
        let mut command = mortal();
        as_postgres(&mut command);
        command.arg(postgres_program("initdb")?).arg("-D").arg(self.folder.join("data"));
        command.args(["-U", "requeue", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        let made = command.arg("--no-sync").output().context("cannot run initdb")?;
        let words = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "initdb failed: {words}");
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        let mut command = Command::new(postgres_program("pg_isready")?);
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        Ok(command.status()?.success())
    }

    pub(crate) fn wait_until_it_answers(&mut self) -> Result<()> {
        self.wait_until(Self::answers)
    }

    /// Waits until a node is there, be it without its cluster.
    pub(crate) fn wait_until_it_pings(&mut self) -> Result<()> {
        self.wait_until(Self::pings)
    }

    /// Makes a Redis server the replica of the one on this port, and waits until it has all.
    pub(crate) fn follow(&mut self, port: u16) -> Result<()> {
        self.tell(&format!("REPLICAOF 127.0.0.1 {port}"))?;
        self.wait_until(|replica| replica.has_link("up"))
    }

    /// Makes a replica the server, once it has all that the one that was killed has sent.
    pub(crate) fn take_over(&mut self) -> Result<()> {
        self.wait_until(|replica| replica.has_link("down"))?;
        self.tell("REPLICAOF NO ONE")
    }

    fn has_link(&self, state: &str) -> bool {
        let link = format!("master_link_status:{state}");
        self.ask("INFO replication").is_ok_and(|answer| answer.contains(&link))
    }

    fn wait_until(&mut self, is_there: impl Fn(&Self) -> bool) -> Result<()> {
        let give_up = SystemClock.now() + PATIENCE;
        while !is_there(self) {
            ensure!(
                SystemClock.now() < give_up,
                "the server does not answer; see its log"
            );
            self.ensure_running()?;
            park(Duration::from_millis(20));
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        match self.kind {
            Kind::Redis => self.pings(),
            Kind::Cluster => self.knows_all_slots(),
            Kind::Postgres => self.is_ready().unwrap_or(false),
            Kind::Memory | Kind::Fjall => true,
        }
    }

    fn pings(&self) -> bool {
        self.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG"))
    }

    fn knows_all_slots(&self) -> bool {
        let all = format!("cluster_slots_ok:{SLOTS}");
        self.ask("CLUSTER INFO").is_ok_and(|answer| {
            answer.contains("cluster_state:ok") && answer.contains(&all)
        })
    }

    /// Tells a Redis server something that it must accept.
    pub(crate) fn tell(&self, command: &str) -> Result<()> {
        let answer = self.ask(command)?;
        ensure!(answer.starts_with("+OK"), said(&answer));
        Ok(())
    }

    /// Asks a Redis server, which then hangs up.
    fn ask(&self, command: &str) -> std::io::Result<String> {
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

fn said(answer: &str) -> String {
    format!("the server said {answer:?}")
}

/// The first text in an answer.
fn first_text(answer: &str) -> Option<String> {
    let mut lines = answer.lines();
    lines.find(|line| line.starts_with('$'))?;
    lines.next().map(str::to_owned)
}

/// A command that ends with the conductor, whatever ends that.
fn mortal() -> Command {
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

/// A program of PostgreSQL, which Debian keeps in a folder for each version: the newest.
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

/// A port that is free now, and so is the one by which nodes would talk. Both are below those
/// that the kernel gives to clients, which would take them while the engine is killed.
fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Runs at the same time begin elsewhere.
    let first = (std::process::id() % 200) as u16 * 60;
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + first.wrapping_add(given) % 12_000;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// The port by which a node talks to others.
fn bus_of(port: u16) -> u32 {
    u32::from(port) + 10_000
}
