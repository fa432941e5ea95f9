//! The servers of a store, each behind a proxy.

pub(crate) mod disk;
pub(crate) mod engine;
mod postgres;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod sentinel;

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::{Context, Result};

use self::engine::{Engine, Persistence};
use self::proxy::Proxy;
use self::redis::ReplicationRole;
use self::sentinel::Sentinel;
use crate::store::Kind;

/// The number of sentinels.
const SENTINELS: usize = 3;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) proxy: Proxy,
}

impl Server {
    fn start(kind: Kind, folder: &Path, persistence: Persistence) -> Result<Self> {
        let mut engine = Engine::new(kind, folder.to_owned(), persistence)?;
        let proxy = Proxy::start(engine.port)?;
        engine.announced_port = proxy.port;
        engine.ensure_running()?;
        Ok(Self { engine, proxy })
    }
}

/// All servers of a run. An embedded store has none.
///
/// A *shard* is a primary and its replicas. A cluster of n shards has its n first primaries
/// at the indices 0 to n - 1, and the replica of number i at n + i.
#[derive(Debug)]
pub(crate) struct Servers {
    nodes: Vec<Server>,
    sentinels: Vec<Sentinel>,
    pub(crate) shards: usize,
}

impl Servers {
    /// Starts the servers with their files in `folder`.
    pub(crate) fn start(
        kind: Kind,
        folder: &Path,
        persistence: Persistence,
    ) -> Result<Self> {
        let start = |number| {
            Server::start(kind, &folder.join(format!("server-{number}")), persistence)
        };
        let nodes = (0..kind.servers()).map(start).collect::<Result<Vec<_>>>()?;
        let mut servers = Self { nodes, sentinels: Vec::new(), shards: kind.shards() };
        match kind {
            Kind::Cluster => servers.form_cluster()?,
            Kind::Sentinel => servers.start_sentinels(folder)?,
            Kind::Memory | Kind::Folder | Kind::Redis | Kind::Postgres => {}
        }
        servers.wait_until_available()?;
        Ok(servers)
    }

    /// Introduces the nodes to each other, divides the slots among the primaries, and starts
    /// the replication.
    fn form_cluster(&mut self) -> Result<()> {
        let (shards, first) = (self.shards, self[0].engine.port);
        for (number, Server { engine, .. }) in self.iter_mut().enumerate() {
            engine.wait_until_it_pings()?;
            if number < shards {
                engine.take_slots(number, shards)?;
            }
            if number > 0 {
                engine.command_ok(&format!("CLUSTER MEET 127.0.0.1 {first}"))?;
            }
        }
        for shard in 0..shards {
            let primary = self[shard].engine.node_id()?;
            self[shards + shard].engine.replicate(&primary)?;
        }
        Ok(())
    }

    fn start_sentinels(&mut self, folder: &Path) -> Result<()> {
        let primary = self[0].proxy.port;
        for server in self.iter_mut() {
            server.engine.wait_until_it_pings()?;
        }
        self[1].engine.follow(primary)?;
        // It restarts as a replica.
        self[1].engine.command_ok("CONFIG REWRITE")?;
        let start =
            |number| Sentinel::start(folder.join(format!("sentinel-{number}")), primary);
        self.sentinels = (0..SENTINELS).map(start).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the address of the store, through the proxies.
    pub(crate) fn address(&self, kind: Kind) -> String {
        let ports: Vec<_> = if kind == Kind::Sentinel {
            self.sentinels.iter().map(|sentinel| sentinel.port).collect()
        } else {
            self.iter().map(|server| server.proxy.port).collect()
        };
        kind.address(&ports)
    }

    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.sentinels.iter_mut().try_for_each(Sentinel::ensure_running)?;
        self.iter_mut().try_for_each(|server| server.engine.ensure_running())
    }

    pub(crate) fn wait_until_available(&mut self) -> Result<()> {
        self.ensure_running()?;
        self.iter_mut().try_for_each(|server| server.engine.wait_until_available())
    }

    /// Ends all connection faults.
    pub(crate) fn heal(&self) {
        self.iter().for_each(|server| server.proxy.heal());
    }

    /// Returns the indices of the servers of a shard.
    pub(crate) fn members(&self, shard: usize) -> impl Iterator<Item = usize> {
        (shard..self.len()).step_by(self.shards)
    }

    fn member_with(&self, shard: usize, role: ReplicationRole) -> Option<usize> {
        let mut members = self.members(shard);
        members.find(|index| self[*index].engine.replication_role() == Some(role))
    }

    /// Returns the index of the primary of a shard, if it answers.
    pub(crate) fn primary(&self, shard: usize) -> Option<usize> {
        self.member_with(shard, ReplicationRole::Primary)
    }

    /// Returns the index of a replica of a shard, if one answers.
    pub(crate) fn replica(&self, shard: usize) -> Option<usize> {
        self.member_with(shard, ReplicationRole::Replica)
    }

    pub(crate) fn is_primary(&self, index: usize) -> bool {
        self[index].engine.replication_role() == Some(ReplicationRole::Primary)
    }

    /// Returns the engine of the primary of a shard.
    pub(crate) fn primary_engine(&self, shard: usize) -> Result<&Engine> {
        let index = self.primary(shard).context("the shard has no primary")?;
        Ok(&self[index].engine)
    }

    /// Returns the ids of all server processes.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        self.iter().filter_map(|server| server.engine.process_id()).collect()
    }

    /// Returns the number of connections of clients.
    pub(crate) fn connections(&self) -> usize {
        self.iter().map(|server| server.proxy.connections()).sum()
    }
}

impl Deref for Servers {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.nodes
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut [Server] {
        &mut self.nodes
    }
}
