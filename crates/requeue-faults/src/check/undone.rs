//! What an engine may have undone that was killed, if only adds are on disk when they are
//! answered.

use super::history::History;
use super::story::Story;

/// How long an answer may stand before it is on disk, in microseconds: PostgreSQL says
/// 600 ms, as it comes.
const ON_DISK: u64 = 1_000_000;

/// How much longer than the server a process of it may live that answers.
const OUTLIVES: u64 = 500_000;

/// When the engine was killed.
#[derive(Debug)]
struct Kills<'a>(&'a [u64]);

impl Kills<'_> {
    /// Whether what was carried out in this span may have been undone.
    fn undo(&self, sent: u64, answered: u64) -> bool {
        let near = |kill: &u64| sent <= kill + OUTLIVES && *kill <= answered + ON_DISK;
        self.0.iter().any(near)
    }
}

impl History {
    /// Puts in doubt what may have been undone.
    pub(super) fn excuse_undone(&mut self) {
        let kills = Kills(&self.kills);
        self.keys.values_mut().for_each(|story| excuse(story, &kills));
    }
}

fn excuse(story: &mut Story, kills: &Kills<'_>) {
    story.deaths.retain(|death| !kills.undo(death.sent, death.answered));
    for grant in &mut story.grants {
        grant.undone = kills.undo(grant.sent, grant.answered);
        grant.extensions.retain(|more| !kills.undo(more.sent, more.answered));
        for end in grant.ends.iter_mut().filter(|end| end.is_accepted()) {
            end.answer = end.answer.filter(|(at, _)| !kills.undo(end.sent, *at));
        }
    }
}
