//! The events that processes record.
//!
//! Every call to a store has two lines: one before it is sent and one after its answer. A
//! call without the second line is in doubt. The time of the first line is read before it is
//! written, and the time of the second after the answer arrived. So the effect on the server
//! lies between the two times, even if the process was stopped in the middle.

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
    /// The add returned.
    Added { op: u64, acknowledged: bool },
    /// A call is about to be sent to the store.
    Sent { call: u64, request: Request },
    /// The answer to a call arrived.
    Answered { call: u64, answer: Answer },
    /// A run has started and has read these versions of its key, one for each lane.
    Run { key: String, token: u64, versions: Vec<u64> },
    /// The server is about to be killed.
    KillingServer,
    /// A replica is about to take over from its primary.
    FailoverBegins,
    /// The servers agree on the primary again.
    FailoverEnds,
    /// The replica did not take over.
    FailoverFails,
    /// A replica took over a moment ago, although no fault asked for it.
    UnplannedFailover,
    /// The shard of each partition of a cluster, at the start.
    Partitions { shards: Vec<usize> },
    /// A server of a shard does not answer for this long.
    BlackHole { shard: usize, micros: u64 },
}

/// A key and the token of its lease.
pub(crate) type Held = (String, u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Add(Vec<String>),
    Lease {
        owner: String,
        lease: u64,
    },
    Extend {
        held: Vec<Held>,
        lease: u64,
    },
    Finish(Vec<(String, u64, FinishKind)>),
    Reclaim {
        owner: String,
        held: Vec<Held>,
    },
    /// List the dead keys.
    Dead,
    /// Make these dead keys ready.
    Revive(Vec<String>),
    /// Delete these dead keys.
    DropDead(Vec<String>),
}

/// How a worker finishes a lease, as far as the invariants care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishKind {
    /// The key need not run again.
    Done,
    /// The key runs again after a delay.
    Retry,
    /// The key is ready again.
    Release,
    /// The key is dead.
    GiveUp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Added(Vec<Receipt>),
    Leased(Vec<Grant>),
    Extended(Vec<bool>),
    Finished(Vec<FinishAnswer>),
    Reclaimed(u64),
    Dead(Vec<DeadKey>),
    /// The number of keys that `Revive` or `DropDead` took from the dead keys.
    Removed(u64),
    /// An error. The call may have been carried out or not.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Added {
    /// The add made the key ready, dirty or delayed.
    Changed,
    /// The key was ready, dirty or delayed before.
    Duplicate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) added: Added,
    /// The delay of a rate-limited add, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_delay: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) key: String,
    pub(crate) token: u64,
    pub(crate) deliveries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishAnswer {
    Accepted,
    /// Accepted, and the key is dead.
    Dead,
    /// The lease was lost.
    Refused,
    /// Nothing changed, for example because the key was locked: the same as no call at all.
    NotExecuted,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeadKey {
    pub(crate) key: String,
    pub(crate) reason: String,
    pub(crate) deliveries: u32,
}

impl From<&requeue_store::Dead> for DeadKey {
    fn from(dead: &requeue_store::Dead) -> Self {
        let (key, reason) = (dead.key.to_string(), dead.reason.clone());
        Self { key, reason, deliveries: dead.deliveries }
    }
}

/// The state of the queue when it was idle, or when waiting for that timed out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinalState {
    pub(crate) ready: u64,
    pub(crate) processing: u64,
    pub(crate) dead: Vec<DeadKey>,
    /// Delayed keys, except those that are delayed for an hour or revived.
    pub(crate) delayed: u64,
    /// Keys that died and are delayed because they were added meanwhile.
    #[serde(default)]
    pub(crate) revived: Vec<String>,
}

impl FinalState {
    pub(crate) fn is_idle(&self) -> bool {
        let Self { ready, processing, delayed, dead: _, revived: _ } = self;
        ready + processing + delayed == 0
    }
}
