//! The faults of a run, and the nemesis that injects them.

mod failover;
mod migration;
pub(crate) mod nemesis;

use crate::run::scenario::Load;
use crate::server::proxy::ConnectionFault;
use crate::store::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillWorker,
    KillProducer,
    /// Stops a worker for this many milliseconds; a short lease lasts 400.
    StopWorker(u64),
    KillServer,
    CutConnections,
    /// The server ends the connections of all clients.
    EndConnections,
    Connection(ConnectionFault),
    /// A server accepts connections and never answers, for several short leases.
    BlackHole,
    /// The server refuses writes for lack of memory.
    OutOfMemory,
    FillDisk,
    MoveSlot,
    /// A replica takes over from its primary.
    FailOver,
}

/// Faults of a store with a server.
const SERVER: [Fault; 20] = [
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillProducer,
    Fault::StopWorker(100),
    Fault::StopWorker(600),
    Fault::StopWorker(600),
    Fault::StopWorker(600),
    Fault::StopWorker(1200),
    Fault::StopWorker(1200),
    Fault::KillServer,
    Fault::CutConnections,
    Fault::CutConnections,
    Fault::EndConnections,
    Fault::EndConnections,
    Fault::Connection(ConnectionFault::Delay),
    Fault::Connection(ConnectionFault::HalfOpen),
    Fault::Connection(ConnectionFault::DropReplies),
    Fault::BlackHole,
    Fault::FillDisk,
];

/// Additional faults of Redis.
const REDIS: [Fault; 2] = [Fault::OutOfMemory; 2];

/// Additional faults of a cluster.
const CLUSTER: [Fault; 6] = [
    Fault::MoveSlot,
    Fault::MoveSlot,
    Fault::MoveSlot,
    Fault::MoveSlot,
    Fault::FailOver,
    Fault::FailOver,
];

/// Additional faults of a primary with sentinels.
const SENTINEL: [Fault; 1] = [Fault::FailOver];

/// Faults of an embedded store.
const EMBEDDED: [Fault; 8] = [
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::StopWorker(100),
    Fault::StopWorker(600),
    Fault::StopWorker(600),
    Fault::StopWorker(1200),
    Fault::FillDisk,
    Fault::FillDisk,
];

/// Faults of a memory store, which would not survive a kill.
const MEMORY: [Fault; 3] =
    [Fault::StopWorker(100), Fault::StopWorker(600), Fault::StopWorker(1200)];

/// Faults of a steady run: each lasts shorter than a tick of the heartbeat, or affects only
/// one server.
const STEADY: [Fault; 4] = [
    Fault::CutConnections,
    Fault::EndConnections,
    Fault::Connection(ConnectionFault::HalfOpen),
    Fault::Connection(ConnectionFault::DropReplies),
];

/// Returns the faults of a store. A fault that is listed more often happens more often.
fn faults_of(store: Kind, load: Load) -> Vec<Fault> {
    let lists: &[&[Fault]] = match (store, load) {
        (Kind::Memory | Kind::Folder, Load::Steady) => &[],
        // There a black hole is longer than a lease: it costs the keys of its node only.
        (Kind::Cluster, Load::Steady) => &[&[Fault::BlackHole]],
        (_, Load::Steady) => &[&STEADY],
        (Kind::Memory, _) => &[&MEMORY],
        (Kind::Folder, _) => &[&EMBEDDED],
        (Kind::Postgres, _) => &[&SERVER],
        (Kind::Redis, _) => &[&SERVER, &REDIS],
        (Kind::Cluster, _) => &[&SERVER, &REDIS, &CLUSTER],
        (Kind::Sentinel, _) => &[&SERVER, &REDIS, &SENTINEL],
    };
    let mut faults = lists.concat();
    if store == Kind::Sentinel {
        // On a full disk both servers would exit, and stay down for longer than the sentinels
        // wait. A silent primary is one of the failovers.
        faults.retain(|fault| !matches!(fault, Fault::FillDisk | Fault::BlackHole));
    }
    faults
}

/// How often each kind of fault happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultCounts {
    pub(crate) kills: usize,
    pub(crate) stops: usize,
    pub(crate) server_kills: usize,
    /// Connections that the proxy or the server ended.
    pub(crate) cuts: usize,
    pub(crate) connection_faults: usize,
    pub(crate) black_holes: usize,
    pub(crate) out_of_memory: usize,
    pub(crate) full_disks: usize,
    pub(crate) moves: usize,
    pub(crate) failovers: usize,
    /// Failovers that no fault asked for.
    pub(crate) unplanned_failovers: usize,
}
