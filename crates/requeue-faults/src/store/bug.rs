//! The seeded bugs.

use clap::ValueEnum;

use crate::run::scenario::Load;
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
    /// A heartbeat sleeps after its call, however long that took
    HeartbeatSleeps,
    /// One locked key fails the extension of all leases
    BatchFails,
    /// An add of a key at its last delivery is buried with the key
    BuriedAdd,
    /// Tokens go back by seconds, as after a failover to a replica with a slow clock
    TokensGoBack,
    /// A waiter does not notice a delay that starts while it waits
    UnnoticedDelay,
}

impl Bug {
    /// Returns the load that shows the bug.
    pub(crate) fn load(self) -> Load {
        match self {
            Self::HeartbeatSleeps | Self::BatchFails | Self::UnnoticedDelay => {
                Load::Steady
            }
            Self::NoFence
            | Self::NoDirtyBit
            | Self::ClientClock
            | Self::DoNothingAdd
            | Self::DirtyFinishIgnored
            | Self::TokensRestart
            | Self::EarlyExpiry
            | Self::LatestDelay
            | Self::ExtraRun
            | Self::NoPersistence
            | Self::DeadKeysVanish
            | Self::DeadKeysStayDead
            | Self::BucketPerProcess
            | Self::BuriedAdd
            | Self::TokensGoBack => Load::Busy,
        }
    }

    /// Returns whether faults hide the bug: a lease call without an answer may have delivered
    /// the key after the add.
    pub(crate) fn is_hidden_by_faults(self) -> bool {
        self == Self::BuriedAdd
    }

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
