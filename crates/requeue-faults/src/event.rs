//! What processes write down of what they do.
//!
//! Every call to a store is two lines: one before it is sent and one after its answer came.
//! A call without the second line is in doubt. Times are read before the first line is
//! written and after the answer came, so whatever the engine did lies between them, also
//! for a process that was stopped in the middle.

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// A producer has written a version and is about to add the key.
    Adding { op: u64, key: String, lane: usize, version: u64, delay: u64 },
    /// That add was acknowledged, or not.
    Added { op: u64, acknowledged: bool },
    /// A call is about to be sent to the store.
    Sent { call: u64, request: Request },
    /// Its answer came.
    Answered { call: u64, answer: Answer },
    /// A run has begun, and has seen these versions of its key, one for each lane.
    Run { key: String, token: u64, versions: Vec<u64> },
    /// The engine is about to be killed.
    KillingEngine,
}

/// A key and the token of its grant.
pub(crate) type Held = (String, u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Add(Vec<String>),
    /// With a wait before it, asked for at once, or without.
    Lease {
        owner: String,
        lease: u64,
        waits: bool,
    },
    Extend {
        held: Vec<Held>,
        lease: u64,
    },
    Finish(Vec<(String, u64, Ending)>),
    Reclaim {
        owner: String,
        held: Vec<Held>,
    },
    /// Who is dead.
    Dead,
    /// Keys are taken from the dead, to be ready or dropped.
    Exhume {
        keys: Vec<String>,
        drops: bool,
    },
}

/// How a lease was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// The run counts, and the key need not come again.
    Done,
    /// The key comes again after a delay.
    Retry,
    /// The key is ready again.
    Release,
    /// The key is to be dead.
    Bury,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Added(Vec<Receipt>),
    Leased(Vec<Grant>),
    Extended(Vec<bool>),
    Finished(Vec<Finished>),
    Reclaimed(u64),
    Dead(Vec<Corpse>),
    Exhumed(u64),
    /// An error: whether the call was carried out is not known.
    Failed(String),
}

/// What an add changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Added {
    /// The key is ready, dirty or delayed by it.
    Changed,
    /// It was so before.
    Duplicate,
}

/// What became of an added key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) added: Added,
    /// If it had to wait for its share of the rate: for how long, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paced: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) key: String,
    pub(crate) token: u64,
    pub(crate) deliveries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finished {
    Accepted,
    /// It was, and the key is dead.
    Buried,
    /// The lease was lost.
    Refused,
    /// Nothing was changed, since somebody had the key: as if it had not been asked.
    Busy,
}

/// A dead key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Corpse {
    pub(crate) key: String,
    pub(crate) reason: String,
    pub(crate) deliveries: u32,
}

impl From<&requeue_store::Dead> for Corpse {
    fn from(dead: &requeue_store::Dead) -> Self {
        let (key, reason) = (dead.key.to_string(), dead.reason.clone());
        Self { key, reason, deliveries: dead.deliveries }
    }
}

/// How the queue stood when all had come to rest, or did not within the time allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) ready: u64,
    pub(crate) processing: u64,
    pub(crate) dead: Vec<Corpse>,
    /// Delayed keys, except those that are to wait for an hour.
    pub(crate) delayed: u64,
}

impl Rest {
    pub(crate) fn is_quiet(&self) -> bool {
        let Self { ready, processing, delayed, dead: _ } = self;
        ready + processing + delayed == 0
    }
}
