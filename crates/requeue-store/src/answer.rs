//! What a store answers.

use std::time::Duration;

use requeue::Added;

use crate::{Key, Owner, Token};

/// What became of an added key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What adding it changed.
    pub added: Added,
    /// How long it was told to wait; nothing if it was added for now.
    pub delay: Duration,
}

/// What was leased.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leased {
    /// The keys, in the order in which they are to be worked on.
    pub grants: Vec<Grant>,
    /// How long until another key may become ready by itself, because its delay is over or
    /// its lease runs out. Nothing, if some are ready now; `None`, if no key waits. A store
    /// that handed out as many as were wanted may say nothing without having looked. While
    /// the queue is paused this is no reason to look again.
    pub more_in: Option<Duration>,
    /// The queue is paused: nothing is handed out until it is resumed.
    pub paused: bool,
}

/// The right to work on one key for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// The number of this grant.
    pub token: Token,
    /// How often the key was granted since a lease of it last ended by its holder, this
    /// time included: 1, unless workers were lost.
    pub deliveries: u32,
    /// How often in a row the key has failed.
    pub failures: u32,
    /// The priority with which the key came.
    pub priority: i8,
    /// How long the key was ready before that.
    pub waited: Duration,
}

/// How the end of a lease was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The lease has ended, and the key is not ready.
    Done,
    /// The lease has ended and the key is ready again: it was added meanwhile, or
    /// released.
    Requeued,
    /// The lease has ended and the key comes again after this delay.
    Delayed(Duration),
    /// The lease has ended and the key is dead.
    Buried,
    /// The lease was not held any more. Nothing was changed.
    LeaseLost,
    /// Somebody has the key to themselves for a while, as a transaction of a database may.
    /// Nothing was changed; say it again.
    Busy,
}

/// What [`Store::expire`](crate::Store::expire) moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Keys whose delay was over.
    pub due: u64,
    /// Keys whose lease had run out and that are ready again.
    pub returned: u64,
    /// Keys whose lease had run out once too often.
    pub dead: u64,
}

/// What a store knows of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Where it stands.
    pub phase: Phase,
    /// How long until its delay is over, if it has one besides.
    pub delayed: Option<Duration>,
    /// How often in a row it has failed.
    pub failures: u32,
    /// How often it was granted since a lease of it last ended by its holder.
    pub deliveries: u32,
}

/// Where a key stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Neither ready nor with a worker nor dead. It may be delayed.
    #[default]
    Absent,
    /// It can be handed out now.
    Ready,
    /// It is with a worker.
    Processing {
        /// Which one.
        owner: Owner,
        /// By which grant.
        token: Token,
        /// It was added meanwhile.
        dirty: bool,
    },
    /// It failed for good.
    Dead,
}

/// How a queue stands.
///
/// A key that is ready or processing and has a delay besides counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that can be handed out now.
    pub ready: u64,
    /// Keys with a delay.
    pub delayed: u64,
    /// Keys that are with a worker.
    pub processing: u64,
    /// Keys that are with a worker and were added again meanwhile; part of `processing`.
    pub dirty: u64,
    /// Keys that have failed since they last succeeded, and are not dead.
    pub failing: u64,
    /// Keys that failed for good.
    pub dead: u64,
    /// How long the key that is ready for the longest has been so.
    pub oldest_ready: Option<Duration>,
    /// Nothing is handed out.
    pub paused: bool,
}

/// A key that has failed and will be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The key.
    pub key: Key,
    /// How often in a row it has failed.
    pub failures: u32,
    /// What went wrong the last time.
    pub error: String,
    /// How long until it is tried again, if it waits.
    pub retry_in: Option<Duration>,
}

/// A key that failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The key.
    pub key: Key,
    /// Why it is dead.
    pub reason: String,
    /// How long it has been.
    pub since: Duration,
    /// How often in a row it had failed.
    pub failures: u32,
    /// How often it had been granted without an end.
    pub deliveries: u32,
    /// Who had it last.
    pub owner: Owner,
}

/// A worker that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Which one.
    pub owner: Owner,
    /// How long ago it last spoke.
    pub seen: Duration,
    /// How many keys are with it.
    pub processing: u64,
}
