//! Answers of a store.

use std::time::Duration;

use requeue::Added;

use crate::{Key, Owner, Token};

/// The answer to one [`Add`](crate::Add).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What the add changed.
    pub added: Added,
    /// The delay of the add; zero if the key was added without one.
    pub delay: Duration,
}

/// The answer to a [`LeaseRequest`](crate::LeaseRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leased {
    /// The leased keys, in order.
    pub grants: Vec<Grant>,
    /// When to look again: the time until a delay ends or a lease expires.
    ///
    /// Zero if keys are ready now, and `None` if nothing is due later. A store that leased
    /// as many keys as requested may answer zero without checking. Ignore it while the queue
    /// is paused.
    pub more_in: Option<Duration>,
    /// Whether the queue is paused. Nothing is leased until it is resumed.
    pub paused: bool,
}

/// One leased key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// The token of the lease.
    pub token: Token,
    /// How often the key was delivered since a holder last finished it, this time included.
    /// It is 1 unless workers were lost.
    pub deliveries: u32,
    /// How often the key has failed since its failures were last forgotten.
    pub failures: u32,
    /// The priority of the key.
    pub priority: i8,
    /// How long the key was ready.
    pub waited: Duration,
}

/// The answer to one [`FinishRequest`](crate::FinishRequest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The lease has ended, and the key is not pending.
    Done,
    /// The lease has ended, and the key is ready again: it was dirty, released or requeued
    /// without a delay.
    Requeued,
    /// The lease has ended, and the key is delayed.
    Delayed(Duration),
    /// The lease has ended, and the key is dead.
    Dead,
    /// The lease was no longer held. Nothing was changed.
    LeaseLost,
}

/// What [`Store::expire`](crate::Store::expire) moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// The number of keys whose delay had ended.
    pub due: u64,
    /// The number of keys that are pending again because their lease had expired: ready, or
    /// delayed if a dirty key was revived.
    pub returned: u64,
    /// The number of keys that are dead because their lease had expired too often.
    pub dead: u64,
}

/// The state of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The phase.
    pub phase: Phase,
    /// The time until the delay ends, if the key is delayed. Independent of the phase.
    pub delayed: Option<Duration>,
    /// How often the key has failed since its failures were last forgotten.
    pub failures: u32,
    /// How often the key was delivered since a holder last finished it.
    pub deliveries: u32,
}

/// The phase of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Neither ready, processing nor dead. The key may be delayed.
    #[default]
    Absent,
    /// The key can be leased.
    Ready,
    /// The key is leased.
    Processing {
        /// The holder.
        owner: Owner,
        /// The token of the lease.
        token: Token,
        /// Whether the key was added during the lease.
        dirty: bool,
    },
    /// The key failed for good.
    Dead,
}

/// The number of keys in each state.
///
/// A key that is ready or processing and also delayed counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that can be leased.
    pub ready: u64,
    /// Keys with a delay.
    pub delayed: u64,
    /// Keys that are leased.
    pub processing: u64,
    /// Keys that were added during their lease. Included in `processing`.
    pub dirty: u64,
    /// Keys with failures that are not dead.
    pub failing: u64,
    /// Dead keys.
    pub dead: u64,
    /// The age of the oldest ready key.
    pub oldest_ready: Option<Duration>,
    /// Whether the queue is paused.
    pub paused: bool,
}

/// A key that has failed and will be retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The key.
    pub key: Key,
    /// How often it has failed since its failures were last forgotten.
    pub failures: u32,
    /// The last error.
    pub error: String,
    /// The time until the next attempt, if the key is delayed.
    pub retry_in: Option<Duration>,
}

/// A dead key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The key.
    pub key: Key,
    /// Why it is dead.
    pub reason: String,
    /// How long it has been dead.
    pub since: Duration,
    /// How often it had failed.
    pub failures: u32,
    /// How often it had been delivered without a finish.
    pub deliveries: u32,
    /// The last holder.
    pub owner: Owner,
}

/// The answer to a [`TakeRequest`](crate::TakeRequest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// The tokens were taken. The caller must wait for this long before it acts.
    Granted {
        /// The time until the tokens are available; zero if they are available now.
        after: Duration,
    },
    /// The tokens would not be available in time. Nothing was taken.
    Refused {
        /// The time until the same request can be granted, if no other caller takes tokens.
        retry_in: Duration,
    },
}

/// What a migration of stored data did, or would do.
///
/// Returned by the `migrate` methods of the builders of stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// The version of the stored data before.
    pub from: u32,
    /// The version that this program writes.
    pub to: u32,
    /// A description of each step, in order. Empty if there was nothing to do.
    pub steps: Vec<String>,
    /// Whether the steps were executed. `false` for a dry run.
    pub applied: bool,
}

/// An owner that was active recently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The owner.
    pub owner: Owner,
    /// The time since its last call.
    pub seen: Duration,
    /// The number of keys it holds.
    pub processing: u64,
}
