//! The faults of a run, and the nemesis that injects them.

mod migration;
pub(crate) mod nemesis;

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
    Connection(ConnectionFault),
    MoveSlot,
}

/// Faults of a store with a server.
const SERVER: [Fault; 16] = [
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
    Fault::Connection(ConnectionFault::Delay),
    Fault::Connection(ConnectionFault::HalfOpen),
    Fault::Connection(ConnectionFault::DropReplies),
];

/// Additional faults of a cluster.
const CLUSTER: [Fault; 4] = [Fault::MoveSlot; 4];

/// Faults of an embedded store.
const EMBEDDED: [Fault; 6] = [
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::StopWorker(100),
    Fault::StopWorker(600),
    Fault::StopWorker(600),
    Fault::StopWorker(1200),
];

/// Faults of a memory store, which would not survive a kill.
const MEMORY: [Fault; 3] =
    [Fault::StopWorker(100), Fault::StopWorker(600), Fault::StopWorker(1200)];

/// Returns the faults of a store. A fault that is listed more often happens more often.
fn faults_of(store: Kind) -> Vec<Fault> {
    let lists: &[&[Fault]] = match store {
        Kind::Memory => &[&MEMORY],
        Kind::Fjall => &[&EMBEDDED],
        Kind::Redis | Kind::Postgres => &[&SERVER],
        Kind::Cluster => &[&SERVER, &CLUSTER],
    };
    lists.concat()
}

/// How often each kind of fault happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultCounts {
    pub(crate) kills: usize,
    pub(crate) stops: usize,
    pub(crate) server_kills: usize,
    pub(crate) cuts: usize,
    pub(crate) connection_faults: usize,
    pub(crate) moves: usize,
}
