//! Finds the answers that a killed server may have undone, if only adds are on disk.

use crate::history::History;
use crate::history::key::KeyHistory;

/// How long an answer may precede its write to disk, in microseconds. PostgreSQL's limit is
/// 600 ms with its default settings.
const WRITE_DELAY: u64 = 1_000_000;

/// How long a backend process of a killed server may go on answering, in microseconds.
const BACKEND_SURVIVAL: u64 = 500_000;

/// The times at which the server was killed.
#[derive(Debug)]
struct Kills<'a>(&'a [u64]);

impl Kills<'_> {
    /// Returns whether a kill may have undone a call with these times.
    fn may_undo(&self, sent: u64, answered: u64) -> bool {
        let is_near = |kill: &u64| {
            sent <= kill + BACKEND_SURVIVAL && *kill <= answered + WRITE_DELAY
        };
        self.0.iter().any(is_near)
    }
}

impl History {
    /// Puts all answers in doubt that a kill may have undone.
    pub(super) fn doubt_undone(&mut self) {
        let kills = Kills(&self.kills);
        self.keys.values_mut().for_each(|key| doubt_key(key, &kills));
    }
}

fn doubt_key(key: &mut KeyHistory, kills: &Kills<'_>) {
    key.sightings.retain(|seen| !kills.may_undo(seen.sent, seen.answered));
    for grant in &mut key.grants {
        grant.may_be_undone = kills.may_undo(grant.sent, grant.answered);
        grant.extensions.retain(|more| !kills.may_undo(more.sent, more.answered));
        for finish in grant.finishes.iter_mut().filter(|finish| finish.is_accepted()) {
            finish.answer =
                finish.answer.filter(|(at, _)| !kills.may_undo(finish.sent, *at));
        }
    }
}
