//! The seeded bugs.

use clap::ValueEnum;

use crate::store::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bug {
    /// A stale finish ends the current lease
    NoFence,
    /// An add of a processing key is acknowledged and dropped
    NoDirtyBit,
    /// Leases expire by the clock of a client, which is ahead
    ClientClock,
    /// An add of a known key does nothing
    DoNothingAdd,
    /// A finish of a dirty key neither deletes nor requeues it
    DirtyFinishIgnored,
    /// Tokens restart at 1 when the server restarts
    TokensRestart,
    /// Leases expire one heartbeat too early
    EarlyExpiry,
    /// A later delay replaces an earlier one
    LatestDelay,
    /// Some finished keys run again
    ExtraRun,
    /// The server keeps nothing on disk
    NoPersistence,
    /// Dead keys disappear
    DeadKeysVanish,
    /// An add of a dead key is acknowledged and dropped
    DeadKeysStayDead,
    /// Every process has its own bucket for the shared rate
    BucketPerProcess,
}

impl Bug {
    /// Returns whether a store can have this bug. A memory store never restarts, and an
    /// embedded store has neither a server nor other processes.
    pub(crate) fn exists_in(self, store: Kind) -> bool {
        let needs_restart = self == Self::TokensRestart;
        let needs_server = matches!(self, Self::NoPersistence | Self::BucketPerProcess);
        let is_missing =
            needs_restart && store == Kind::Memory || needs_server && store.is_embedded();
        !is_missing
    }
}
