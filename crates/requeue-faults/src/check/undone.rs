//! Finds the answers that a killed server or a failover may have undone.

use crate::history::History;
use crate::history::key::KeyHistory;

/// How long an answer may precede its write to disk, in microseconds. PostgreSQL's limit is
/// 600 ms with its default settings.
const WRITE_DELAY: u64 = 1_000_000;

/// How long a backend process of a killed server may go on answering, in microseconds.
const BACKEND_SURVIVAL: u64 = 500_000;

/// How long a replica may lag, and a demoted primary may go on answering, in microseconds.
const REPLICATION_LAG: u64 = 1_500_000;

/// The spans of time whose answers may be undone, except adds.
#[derive(Debug)]
struct Doubts(Vec<(u64, u64)>);

impl Doubts {
    /// Returns whether a call with these times may have been undone.
    fn may_undo(&self, sent: u64, answered: u64) -> bool {
        self.0.iter().any(|(from, to)| sent <= *to && *from <= answered)
    }
}

impl History {
    /// Puts all answers in doubt that a kill may have undone, except adds.
    pub(super) fn doubt_kills(&mut self) {
        let span = |kill: &u64| {
            (kill.saturating_sub(WRITE_DELAY), kill.saturating_add(BACKEND_SURVIVAL))
        };
        let spans = self.kills.iter().map(span).collect();
        self.doubt(&Doubts(spans));
    }

    /// Puts all answers in doubt that a failover may have undone, except adds: they are
    /// acknowledged once the replica has them.
    pub(super) fn doubt_failovers(&mut self) {
        let span = |(from, to): &(u64, u64)| {
            (from.saturating_sub(REPLICATION_LAG), to.saturating_add(REPLICATION_LAG))
        };
        let spans = self.failovers.iter().map(span).collect();
        self.doubt(&Doubts(spans));
    }

    fn doubt(&mut self, doubts: &Doubts) {
        self.keys.values_mut().for_each(|key| doubt_key(key, doubts));
    }
}

fn doubt_key(key: &mut KeyHistory, doubts: &Doubts) {
    key.sightings.retain(|seen| !doubts.may_undo(seen.sent, seen.answered));
    for removal in &mut key.removals {
        removal.answer =
            removal.answer.filter(|(at, _)| !doubts.may_undo(removal.sent, *at));
    }
    for grant in &mut key.grants {
        grant.may_be_undone = doubts.may_undo(grant.sent, grant.answered);
        grant.extensions.retain(|more| !doubts.may_undo(more.sent, more.answered));
        for finish in grant.finishes.iter_mut().filter(|finish| finish.is_accepted()) {
            finish.answer =
                finish.answer.filter(|(at, _)| !doubts.may_undo(finish.sent, *at));
        }
    }
}
