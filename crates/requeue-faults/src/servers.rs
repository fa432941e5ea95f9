//! The servers of a store, each behind a proxy: one, or the nodes of a cluster.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::Result;

use crate::engine::{Engine, Keeping};
use crate::proxy::Proxy;
use crate::shortcuts::Shortcuts;
use crate::stores::Kind;

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) proxy: Proxy,
}

impl Server {
    fn start(kind: Kind, folder: &Path, keeping: Keeping) -> Result<Self> {
        let mut engine = Engine::new(kind, folder.to_owned(), keeping)?;
        let proxy = Proxy::start(engine.port)?;
        engine.announced = proxy.port;
        engine.ensure_running()?;
        Ok(Self { engine, proxy })
    }
}

/// All of them; none for a store that is embedded.
#[derive(Debug)]
pub(crate) struct Servers(Vec<Server>);

impl Servers {
    /// Starts them with files in `folder`.
    pub(crate) fn start(kind: Kind, folder: &Path, keeping: Keeping) -> Result<Self> {
        let start = |number| {
            Server::start(kind, &folder.join(format!("engine-{number}")), keeping)
        };
        let mut servers =
            Self((0..kind.servers()).map(start).collect::<Result<Vec<_>>>()?);
        if kind == Kind::Cluster {
            servers.join()?;
        }
        servers.wait_until_they_answer()?;
        Ok(servers)
    }

    /// Makes the nodes of a cluster know each other and share the slots.
    fn join(&mut self) -> Result<()> {
        let (count, first) = (self.len(), self[0].engine.port);
        for (number, Server { engine, .. }) in self.iter_mut().enumerate() {
            engine.wait_until_it_pings()?;
            engine.take_slots(number, count)?;
            if number > 0 {
                engine.tell(&format!("CLUSTER MEET 127.0.0.1 {first}"))?;
            }
        }
        Ok(())
    }

    /// Where clients find the store.
    pub(crate) fn address(&self, kind: Kind) -> String {
        let ports: Vec<_> = self.iter().map(|server| server.proxy.port).collect();
        kind.address(&ports)
    }

    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.iter_mut().try_for_each(|server| server.engine.ensure_running())
    }

    pub(crate) fn wait_until_they_answer(&mut self) -> Result<()> {
        self.ensure_running()?;
        self.iter_mut().try_for_each(|server| server.engine.wait_until_it_answers())
    }

    /// Ends all trouble with connections.
    pub(crate) fn heal(&self) {
        self.iter().for_each(|server| server.proxy.heal());
    }

    /// How often short scripts were used.
    pub(crate) fn shortcuts(&self) -> Shortcuts {
        self.iter().map(|server| server.proxy.shortcuts()).sum()
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
