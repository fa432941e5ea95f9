//! Failovers: a replica takes over from its primary.
//!
//! In a cluster the replica is asked to take over, which loses nothing. The primary of
//! sentinels is killed or cut off, and the sentinels promote the replica. Writes that it has
//! not received are lost, so answers near the failover are in doubt.

use std::time::Duration;

use anyhow::Result;
use requeue::{Clock, SystemClock};

use crate::server::Servers;
use crate::server::proxy::ConnectionFault;
use crate::store::Kind;

/// How long a failover may take. A failover that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The pause between two looks at the servers.
pub(super) const STEP_DELAY: Duration = Duration::from_millis(100);

/// How the primary of sentinels disappears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Kill,
    /// Its clients and the sentinels do not reach it, but it runs.
    Isolation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The replica has not taken over.
    Promotion,
    /// The old primary is not a replica yet.
    Demotion,
}

#[derive(Debug)]
pub(super) struct Failover {
    kind: Kind,
    shard: usize,
    old: usize,
    new: usize,
    stage: Stage,
    deadline: std::time::Instant,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Continues,
    Succeeded,
    /// The replica did not take over in time.
    GivenUp,
}

impl Failover {
    /// Starts a failover. Returns `None` if the shard is not healthy.
    pub(super) fn start(
        servers: &mut Servers,
        kind: Kind,
        shard: usize,
        cause: Cause,
    ) -> Result<Option<Self>> {
        let (Some(old), Some(new)) = (servers.primary(shard), servers.replica(shard))
        else {
            return Ok(None);
        };
        if !servers[new].engine.is_in_sync() {
            return Ok(None);
        }
        if kind == Kind::Cluster {
            if servers[new].engine.command_ok("CLUSTER FAILOVER").is_err() {
                return Ok(None);
            }
        } else {
            match cause {
                Cause::Kill => servers[old].engine.hold_down()?,
                Cause::Isolation => servers[old].proxy.inject(ConnectionFault::HalfOpen),
            }
        }
        let deadline = SystemClock.now() + TIMEOUT;
        Ok(Some(Self { kind, shard, old, new, stage: Stage::Promotion, deadline }))
    }

    /// Returns whether the connections of this server must stay silent.
    pub(super) fn isolates(&self, server: usize) -> bool {
        self.stage == Stage::Promotion && server == self.old
    }

    /// Looks at the servers, and restarts the old primary once the new one has taken over.
    pub(super) fn step(&mut self, servers: &mut Servers) -> Result<Progress> {
        let is_over = SystemClock.now() >= self.deadline;
        match self.stage {
            Stage::Promotion if servers.is_primary(self.new) => {
                self.stage = Stage::Demotion;
                if self.kind == Kind::Sentinel {
                    self.demote(servers)?;
                }
                self.restore(servers)?;
                Ok(Progress::Continues)
            }
            Stage::Promotion if is_over => {
                self.restore(servers)?;
                Ok(Progress::GivenUp)
            }
            Stage::Demotion
                if is_over
                    || servers.replica(self.shard) == Some(self.old)
                        && servers[self.old].engine.is_in_sync() =>
            {
                Ok(Progress::Succeeded)
            }
            Stage::Promotion | Stage::Demotion => Ok(Progress::Continues),
        }
    }

    /// Makes the old primary a replica of the new one. The sentinels would do that too, but
    /// only after many seconds, in which two primaries accept writes.
    fn demote(&self, servers: &mut Servers) -> Result<()> {
        let primary = servers[self.new].proxy.port;
        servers[self.old].engine.restart_as_replica(primary)
    }

    fn restore(&self, servers: &mut Servers) -> Result<()> {
        servers[self.old].proxy.heal();
        servers[self.old].engine.release()
    }
}
