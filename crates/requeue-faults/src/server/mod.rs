//! The servers of a store, each behind a proxy: one server, or the nodes of a cluster.

pub(crate) mod engine;
pub(crate) mod proxy;

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::Result;

use self::engine::{Engine, Persistence};
use self::proxy::Proxy;
use crate::store::Kind;

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
#[derive(Debug)]
pub(crate) struct Servers(Vec<Server>);

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
        let mut servers =
            Self((0..kind.servers()).map(start).collect::<Result<Vec<_>>>()?);
        if kind == Kind::Cluster {
            servers.form_cluster()?;
        }
        servers.wait_until_available()?;
        Ok(servers)
    }

    /// Introduces the nodes to each other and divides the slots among them.
    fn form_cluster(&mut self) -> Result<()> {
        let (count, first) = (self.len(), self[0].engine.port);
        for (number, Server { engine, .. }) in self.iter_mut().enumerate() {
            engine.wait_until_it_pings()?;
            engine.take_slots(number, count)?;
            if number > 0 {
                engine.command_ok(&format!("CLUSTER MEET 127.0.0.1 {first}"))?;
            }
        }
        Ok(())
    }

    /// Returns the address of the store, through the proxies.
    pub(crate) fn address(&self, kind: Kind) -> String {
        let ports: Vec<_> = self.iter().map(|server| server.proxy.port).collect();
        kind.address(&ports)
    }

    pub(crate) fn ensure_running(&mut self) -> Result<()> {
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
}

impl Deref for Servers {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.0
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut [Server] {
        &mut self.0
    }
}
