//! What is known of one key.

use crate::event::{Added, Corpse, Ending, Finished, Held, Receipt};

/// All that is known of one key.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) adds: Vec<AddOp>,
    pub(crate) attempts: Vec<Attempt>,
    /// In the order of their tokens, which is the order of the engine.
    pub(crate) grants: Vec<Granted>,
    pub(crate) deaths: Vec<Death>,
    pub(crate) exhumations: Vec<Exhumation>,
}

/// One call of which an add of the key was part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) sent: u64,
    /// When it was answered, and how; `None` leaves it in doubt.
    pub(crate) answer: Option<(u64, Receipt)>,
}

/// That the key was dead at a moment between these two.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// As it was listed; `None` if the end of a lease brought it about.
    pub(crate) corpse: Option<Corpse>,
}

/// A call that took the key from the dead, or would have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhumation {
    pub(crate) sent: u64,
    pub(crate) drops: bool,
    /// When it was answered, and whether the key was dead; `None` leaves it in doubt.
    pub(crate) answer: Option<(u64, bool)>,
}

/// An add as its producer saw it, retries and all.
#[derive(Clone, Debug)]
pub(crate) struct AddOp {
    /// Before it was sent for the first time.
    pub(crate) at: u64,
    pub(crate) lane: usize,
    pub(crate) version: u64,
    pub(crate) delay: u64,
    pub(crate) acknowledged: bool,
}

/// One grant of a key, and what became of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    pub(crate) deliveries: u32,
    pub(crate) owner: String,
    /// Which process of the run it went to, in the order in which they began.
    pub(crate) process: usize,
    /// When the call that brought it was sent, and when it was answered.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// How long the lease lasts from a moment in between.
    pub(crate) lease: u64,
    /// The call waited before it leased.
    pub(crate) waited: bool,
    pub(crate) versions: Option<Vec<u64>>,
    pub(crate) ends: Vec<End>,
    pub(crate) extensions: Vec<Extension>,
    /// The engine may have forgotten it.
    pub(crate) undone: bool,
}

/// One attempt to end a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) sent: u64,
    pub(crate) ending: Ending,
    /// When and how it was answered; `None` leaves it in doubt.
    pub(crate) answer: Option<(u64, Finished)>,
}

/// An extension that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) lease: u64,
}

/// A call by which an owner gave back all but what it named.
#[derive(Clone, Debug)]
pub(crate) struct Reclaim {
    pub(crate) sent: u64,
    pub(crate) owner: String,
    pub(crate) held: Vec<Held>,
}

impl Attempt {
    /// Whether it is known to have changed nothing.
    pub(crate) fn is_merged(&self) -> bool {
        self.answer.is_some_and(|(_, receipt)| receipt.added == Added::Duplicate)
    }

    /// Between which moments the shared rate let it come, if it was asked.
    pub(crate) fn share(&self) -> Option<(u64, u64)> {
        let (answered, receipt) = self.answer?;
        receipt.paced.map(|delay| (self.sent + delay, answered + delay))
    }
}

impl Exhumation {
    /// When it was answered, if it is known to have taken the key.
    pub(crate) fn was_dead(&self) -> Option<u64> {
        self.answer.filter(|(_, was_dead)| *was_dead).map(|(at, _)| at)
    }

    /// Whether it took the key after that moment, or may have.
    pub(crate) fn may_follow(&self, moment: u64) -> bool {
        self.answer.is_none_or(|(at, was_dead)| was_dead && at > moment)
    }
}

impl End {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.answer, Some((_, Finished::Accepted | Finished::Buried)))
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.answer, Some((_, Finished::Refused)))
    }
}

impl Granted {
    /// The end that the engine is known to have accepted.
    pub(crate) fn accepted(&self) -> Option<&End> {
        self.ends.iter().find(|end| end.is_accepted())
    }

    /// Whether a run of this grant counts: its end was accepted, or may have been.
    pub(crate) fn counts(&self) -> bool {
        let done = |end: &End| end.ending == Ending::Done && !end.is_refused();
        self.ends.iter().any(done)
    }

    /// The earliest moment at which the lease can have passed.
    pub(crate) fn deadline(&self) -> u64 {
        let extended = self.extensions.iter().map(|more| more.sent + more.lease);
        extended.fold(self.sent + self.lease, u64::max)
    }
}
