//! Seeded bugs, and where they can be.

use clap::ValueEnum;

use crate::check::Home;
use crate::stores::Kind;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bug {
    /// The end of a lease is taken for that of the present one
    NoFence,
    /// An add of a key that is processing is acknowledged and dropped
    NoDirtyBit,
    /// Leases are judged by the clock of a client, which is ahead
    ClientClock,
    /// An add of a key that is there already does nothing
    DoNothingAdd,
    /// The end of a lease whose key was added meanwhile neither deletes nor requeues
    TwoBranchDone,
    /// Tokens are counted, and from 1 again after the engine was restarted
    IncrToken,
    /// Leases are taken to have passed one heartbeat too early
    EarlyExpiry,
    /// A later delay replaces an earlier one
    LatestDelay,
    /// Some keys that are done come again
    ExtraRun,
    /// The engine keeps nothing on disk
    ForgetfulEngine,
    /// A key that dies is gone
    NoGrave,
    /// An add of a dead key is acknowledged and dropped
    DeadStayDead,
    /// Each process has a bucket of its own for the rate that all share
    OwnBucket,
}

impl Bug {
    /// Whether a store can have it: one in memory is never restarted, and one that is
    /// embedded has no engine of its own, nor other processes.
    pub(crate) fn exists_in(self, store: Kind) -> bool {
        let is_restarted = store != Kind::Memory;
        let is_shared = store.home() == Home::Server;
        (self != Self::IncrToken || is_restarted)
            && (self != Self::ForgetfulEngine || is_shared)
            && (self != Self::OwnBucket || is_shared)
    }
}
