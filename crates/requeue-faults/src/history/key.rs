//! The history of one key.

use super::event::{Added, DeadKey, FinishAnswer, FinishKind, Held, Receipt};

#[derive(Debug, Default)]
pub(crate) struct KeyHistory {
    pub(crate) adds: Vec<AddOp>,
    pub(crate) add_calls: Vec<AddCall>,
    /// In the order of their tokens, which is the order on the server.
    pub(crate) grants: Vec<Granted>,
    pub(crate) sightings: Vec<DeadSighting>,
    pub(crate) removals: Vec<DeadRemoval>,
}

/// An add as its producer sees it, including all retries.
#[derive(Clone, Debug)]
pub(crate) struct AddOp {
    /// Before it was sent for the first time.
    pub(crate) at: u64,
    pub(crate) lane: usize,
    pub(crate) version: u64,
    pub(crate) delay: u64,
    /// When it returned.
    pub(crate) answered: Option<u64>,
    pub(crate) acknowledged: bool,
}

/// One call to the store that adds the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddCall {
    pub(crate) sent: u64,
    /// The time and content of the answer; `None` if in doubt.
    pub(crate) answer: Option<(u64, Receipt)>,
}

/// An observation that the key was dead at some time between `sent` and `answered`.
#[derive(Clone, Debug)]
pub(crate) struct DeadSighting {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// The listed record; `None` if the answer to a finish was the observation.
    pub(crate) record: Option<DeadKey>,
}

/// A call that revives or drops the key if it is dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadRemoval {
    pub(crate) sent: u64,
    pub(crate) drops: bool,
    /// The time of the answer, and whether the key was dead; `None` if in doubt.
    pub(crate) answer: Option<(u64, bool)>,
}

/// One lease of the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    pub(crate) deliveries: u32,
    pub(crate) owner: String,
    /// The number of the process, in the order in which processes started.
    pub(crate) process: usize,
    /// When the call that granted it was sent and answered.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// The duration of the lease, which starts between `sent` and `answered`.
    pub(crate) lease: u64,
    /// The versions that the run read.
    pub(crate) versions: Option<Vec<u64>>,
    pub(crate) finishes: Vec<FinishCall>,
    pub(crate) extensions: Vec<Extension>,
    /// Whether a killed server may have forgotten this lease.
    pub(crate) may_be_undone: bool,
}

/// One call that finishes a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishCall {
    pub(crate) sent: u64,
    pub(crate) kind: FinishKind,
    /// The time and content of the answer; `None` if in doubt.
    pub(crate) answer: Option<(u64, FinishAnswer)>,
}

/// A successful extension of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) lease: u64,
}

/// A call that releases all leases of an owner except those in `held`.
#[derive(Clone, Debug)]
pub(crate) struct Reclaim {
    pub(crate) sent: u64,
    pub(crate) owner: String,
    pub(crate) held: Vec<Held>,
}

impl AddCall {
    /// Returns whether the answer says that nothing changed.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.answer.is_some_and(|(_, receipt)| receipt.added == Added::Duplicate)
    }

    /// Returns the earliest and latest time at which the shared rate made the key ready, if
    /// the add was rate-limited.
    pub(crate) fn rate_window(&self) -> Option<(u64, u64)> {
        let (answered, receipt) = self.answer?;
        receipt.rate_delay.map(|delay| (self.sent + delay, answered + delay))
    }
}

impl DeadRemoval {
    /// Returns the time of the answer, if it says that the key was dead.
    pub(crate) fn removed_at(&self) -> Option<u64> {
        self.answer.filter(|(_, was_dead)| *was_dead).map(|(at, _)| at)
    }

    /// Returns whether it removed the key after `time`, or may have.
    pub(crate) fn may_follow(&self, time: u64) -> bool {
        self.answer.is_none_or(|(at, was_dead)| was_dead && at > time)
    }
}

impl FinishCall {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.answer, Some((_, FinishAnswer::Accepted | FinishAnswer::Dead)))
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.answer, Some((_, FinishAnswer::Refused)))
    }
}

impl Granted {
    /// Returns the finish that the server accepted.
    pub(crate) fn accepted(&self) -> Option<&FinishCall> {
        self.finishes.iter().find(|finish| finish.is_accepted())
    }

    /// Returns whether the run counts: its success was accepted, or may have been.
    pub(crate) fn counts(&self) -> bool {
        let is_done =
            |finish: &FinishCall| finish.kind == FinishKind::Done && !finish.is_refused();
        self.finishes.iter().any(is_done)
    }

    /// Returns the earliest time at which the lease can have expired.
    pub(crate) fn earliest_expiry(&self) -> u64 {
        let extended = self.extensions.iter().map(|more| more.sent + more.lease);
        extended.fold(self.sent + self.lease, u64::max)
    }
}
