//! Redis servers: alone, as nodes of a cluster, and watched by sentinels.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::engine::{BUS_OFFSET, Engine, Persistence, killed_with_parent};
use crate::store::Kind;

/// The number of slots of a Redis Cluster.
const SLOTS: usize = 16384;

/// Whether a server accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicationRole {
    Primary,
    Replica,
}

impl Engine {
    pub(super) fn redis(&self) -> Result<Command> {
        let mut command = killed_with_parent();
        command.arg("redis-server");
        if self.kind == Kind::Sentinel {
            command.arg(self.redis_config()?);
        } else {
            for (name, value) in self.redis_options() {
                command.args([name, value]);
            }
        }
        Ok(command)
    }

    /// Returns the path of the configuration, which is written before the first start. The
    /// sentinels change it: a demoted primary restarts as a replica.
    fn redis_config(&self) -> Result<PathBuf> {
        let path = self.folder.join("redis.conf");
        if !path.exists() {
            let line = |(name, value): (String, String)| {
                let value = if value.is_empty() { "\"\"" } else { &value };
                format!("{} {value}\n", name.trim_start_matches("--"))
            };
            let lines = self.redis_options().into_iter().map(line);
            fs::write(&path, lines.collect::<String>())?;
        }
        Ok(path)
    }

    fn redis_options(&self) -> Vec<(String, String)> {
        let mut options = vec![
            ("--bind", "127.0.0.1".to_owned()),
            ("--port", self.port.to_string()),
            ("--dir", self.folder.display().to_string()),
            ("--save", String::new()),
            ("--repl-diskless-sync-delay", "0".to_owned()),
        ];
        if self.persistence != Persistence::None {
            options.push(("--appendonly", "yes".to_owned()));
        }
        if self.persistence == Persistence::BeforeReply {
            options.push(("--appendfsync", "always".to_owned()));
        }
        match self.kind {
            Kind::Cluster => options.extend(self.cluster_options()),
            Kind::Sentinel => options.extend(self.announce_options("--replica")),
            Kind::Redis | Kind::Memory | Kind::Folder | Kind::Postgres => {}
        }
        options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the options of a cluster node. A node serves its slots even if other nodes are
    /// down. It sends clients to the proxies. Replicas take over only when asked, because
    /// another failover could lose acknowledged writes.
    fn cluster_options(&self) -> Vec<(&'static str, String)> {
        let bus = (self.port + BUS_OFFSET).to_string();
        let yes = || "yes".to_owned();
        let mut options = vec![
            ("--cluster-enabled", yes()),
            ("--cluster-node-timeout", "1000".to_owned()),
            ("--cluster-require-full-coverage", "no".to_owned()),
            ("--cluster-replica-no-failover", yes()),
            ("--cluster-announce-bus-port", bus),
        ];
        options.extend(self.announce_options("--cluster"));
        options
    }

    /// Returns the options that make other servers send clients to the proxy.
    fn announce_options(&self, prefix: &str) -> [(&'static str, String); 2] {
        let names = match prefix {
            "--cluster" => ["--cluster-announce-ip", "--cluster-announce-port"],
            _ => ["--replica-announce-ip", "--replica-announce-port"],
        };
        [(names[0], "127.0.0.1".to_owned()), (names[1], self.announced_port.to_string())]
    }

    /// Assigns a node its share of the slots.
    pub(crate) fn take_slots(&self, number: usize, count: usize) -> Result<()> {
        let slots = SLOTS * number / count..SLOTS * (number + 1) / count;
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        self.command_ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
        self.command_ok(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
    }

    /// Returns the shard that owns a slot before any slot has moved.
    pub(crate) fn initial_shard(slot: u16, count: usize) -> usize {
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

    /// Makes a Redis server a replica of the server on this port, and waits until it is in
    /// sync.
    pub(crate) fn follow(&mut self, port: u16) -> Result<()> {
        self.command_ok(&format!("REPLICAOF 127.0.0.1 {port}"))?;
        self.wait_until_in_sync()
    }

    /// Makes a cluster node the replica of another, and waits until it is in sync.
    pub(super) fn replicate(&mut self, primary: &str) -> Result<()> {
        let command = format!("CLUSTER REPLICATE {primary}");
        self.wait_until(|replica| replica.command_ok(&command).is_ok())?;
        self.wait_until_in_sync()
    }

    pub(super) fn wait_until_in_sync(&mut self) -> Result<()> {
        self.wait_until(Self::is_in_sync)
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

    /// Makes a server a replica of the server behind this port, now or when it starts again.
    pub(crate) fn restart_as_replica(&mut self, primary: u16) -> Result<()> {
        let address = format!("127.0.0.1 {primary}");
        if self.is_held_down {
            let path = self.redis_config()?;
            let before = fs::read_to_string(&path)?;
            let lines = before.lines().filter(|line| !line.starts_with("replicaof"));
            let lines: Vec<_> = lines.collect();
            let config = format!("{}\nreplicaof {address}\n", lines.join("\n"));
            fs::write(path, config)?;
            return Ok(());
        }
        self.command_ok(&format!("REPLICAOF {address}"))?;
        self.command_ok("CONFIG REWRITE")
    }

    /// Returns whether this is a replica that receives writes.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.has_link("up")
    }

    /// Returns the role of a server, or `None` if it does not answer.
    pub(crate) fn replication_role(&self) -> Option<ReplicationRole> {
        let answer = self.command("ROLE").ok()?;
        match first_string(&answer)?.as_str() {
            "master" => Some(ReplicationRole::Primary),
            _ => Some(ReplicationRole::Replica),
        }
    }

    /// Lets the server refuse writes for lack of memory, or ends that.
    pub(crate) fn set_out_of_memory(&self, is_out: bool) -> Result<()> {
        let bytes = usize::from(is_out);
        self.command_ok(&format!("CONFIG SET maxmemory {bytes}"))
    }

    /// Ends all connections of clients.
    pub(super) fn kill_clients(&self) -> Result<()> {
        let answer = self.command("CLIENT KILL TYPE normal SKIPME yes")?;
        ensure!(answer.starts_with(':'), unexpected(&answer));
        Ok(())
    }

    pub(super) fn pings(&self) -> bool {
        self.command("PING").is_ok_and(|answer| answer.starts_with("+PONG"))
    }

    pub(super) fn knows_all_slots(&self) -> bool {
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
    pub(super) fn command(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
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
