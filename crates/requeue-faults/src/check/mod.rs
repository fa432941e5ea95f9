//! Whether a store kept its promises, judged by what the processes of a run wrote down.
//!
//! Of two calls, one came before the other in the engine if it was answered before the
//! other was sent; of two grants of a key, the one with the smaller token came first.
//! Nothing else is concluded from times, so a process that is stopped between an answer and
//! its line can hide a violation but not make one up. A call without an answer is in doubt:
//! it may have been carried out, or not, whichever excuses the store. Of the engine's clock
//! no more is believed than that a lease is no shorter on it than on that of the clients,
//! which are on the same machine.
//!
//! # Invariants
//!
//! 1. No key is lost. For each acknowledged add of a version, a run that counts (its end
//!    was accepted, or is in doubt) saw that version or a later one; or the key died after
//!    that add, and is dead in the end or was dropped by somebody. In the end nothing is
//!    ready or processing, and nothing is delayed that should not be.
//! 2. A token is granted once, and later grants of a key have greater ones. It is completed
//!    at most once, and what was completed stays so: from then on the deliveries of the key
//!    count from 1, and each further one takes at least the time of a lease.
//! 3. After a newer grant of its key, no end of a lease is accepted and no extension made.
//! 4. A key is granted again only if the grant before it was ended, or may have been, or if
//!    its lease, with all its extensions, has passed.
//! 5. Extra runs are bounded. For each key: grants ≤ adds that changed something or are in
//!    doubt + times it may have been revived + grants that were not surely ended as done or
//!    for good. Of the latter each brings the key back once: by its retry or release, or
//!    when its lease passes.
//! 6. The dead rest. A key is dead for a reason that it tells: somebody ended a lease of it
//!    for good, or it was delivered as often as is allowed. It stays so until it is added,
//!    revived or dropped, and no longer than that.
//! 7. The shared rate is kept. Of what was added by it, no more may come in any span of time
//!    than its burst and what it lets through in that time; and nothing comes earlier than
//!    it was told.
//!
//! An embedded store dies with its process, and all leases with it: there a grant of an
//! earlier process has passed in invariant 4, and each new process excuses one delivery in
//! invariant 2.
//!
//! With [`Durability::Adds`] an engine that is killed may undo the leases and ends that it
//! answered last: those are in doubt as if they had not been answered.

mod dead;
mod history;
mod rate;
mod rules;
mod story;
#[cfg(test)]
mod tests;
mod undone;

use std::collections::HashMap;
use std::fmt;

pub(crate) use self::history::History;
use self::rate::Bucket;
use self::story::{Attempt, Story};
use crate::event::{Corpse, Rest};
use crate::scene::{Durability, Scene};
use crate::world::{AN_HOUR, MOST_DELIVERIES};

/// Which promise was broken: the number of the invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A promise that was broken, and how.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

/// What a checker found.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<Violation>,
}

/// How much there was to judge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) keys: usize,
    pub(crate) adds: usize,
    pub(crate) acknowledged: usize,
    /// Adds of a key while it was ready, dirty or delayed.
    pub(crate) merged: usize,
    pub(crate) grants: usize,
    pub(crate) accepted: usize,
    /// Ends whose answer never came.
    pub(crate) in_doubt: usize,
    /// Ends with a token that was not the present one.
    pub(crate) refused: usize,
    /// Grants of a key whose grant before was never ended.
    pub(crate) taken_over: usize,
    /// Grants that came with the end of a wait.
    pub(crate) waited: usize,
    /// Keys that were seen dead, and those of them that had worn out their workers.
    pub(crate) dead: usize,
    pub(crate) worn_out: usize,
    /// Adds that had to wait for their share of the rate.
    pub(crate) paced: usize,
    /// Calls that took a key from the dead.
    pub(crate) revived: usize,
    pub(crate) dropped: usize,
}

/// Whether the store lives in the process that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Embedded,
    Server,
}

/// Judges a run.
pub(crate) fn check(mut history: History, rest: &Rest, scene: &Scene) -> Verdict {
    let home = scene.store.home();
    if scene.durability == Durability::Adds {
        history.excuse_undone();
    }
    let history = &history;
    let mut violations = Vec::new();
    if !rest.is_quiet() {
        let text = format!("the queue did not come to rest: {rest:?}");
        violations.push(Violation { rule: Rule::I1, text });
    }
    let dead: HashMap<_, _> =
        rest.dead.iter().map(|corpse| (corpse.key.as_str(), corpse)).collect();
    for (key, story) in &history.keys {
        let corpse = dead.get(key.as_str()).copied();
        let reclaims = &history.reclaims;
        let view = rules::View { key, story, corpse, reclaims, home };
        view.judge(&mut violations);
    }
    violations.extend(crowd(history, scene));
    violations.sort_by_key(|violation| violation.rule);
    Verdict { counts: count(history), violations }
}

fn shares(history: &History) -> impl Iterator<Item = (u64, u64)> {
    let attempts = history.keys.values().flat_map(|story| &story.attempts);
    attempts.filter_map(Attempt::share)
}

fn crowd(history: &History, scene: &Scene) -> Option<Violation> {
    let (count, span) = Bucket::of(scene).crowd(shares(history).collect())?;
    let text = format!("the shared rate let {count} keys come in {} ms", span / 1000);
    Some(Violation { rule: Rule::I7, text })
}

fn count(history: &History) -> Counts {
    let (keys, paced) = (history.keys.len(), shares(history).count());
    let mut counts = Counts { keys, paced, ..Counts::default() };
    for story in history.keys.values() {
        let is_merged = |attempt: &&Attempt| attempt.is_merged();
        counts.adds += story.adds.len();
        counts.acknowledged += story.adds.iter().filter(|add| add.acknowledged).count();
        counts.merged += story.attempts.iter().filter(is_merged).count();
        counts.grants += story.grants.len();
        for grant in &story.grants {
            counts.accepted += usize::from(grant.accepted().is_some());
            counts.in_doubt += grant.ends.iter().filter(|e| e.answer.is_none()).count();
            counts.refused += grant.ends.iter().filter(|end| end.is_refused()).count();
            counts.taken_over += usize::from(grant.deliveries > 1);
            counts.waited += usize::from(grant.waited);
        }
        count_dead(story, &mut counts);
    }
    counts
}

fn count_dead(story: &Story, counts: &mut Counts) {
    let mut corpses = story.deaths.iter().filter_map(|death| death.corpse.as_ref());
    let is_worn_out = |corpse: &Corpse| corpse.deliveries >= MOST_DELIVERIES.get();
    counts.dead += usize::from(!story.deaths.is_empty());
    counts.worn_out += usize::from(corpses.any(is_worn_out));
    for taken in story.exhumations.iter().filter(|taken| taken.was_dead().is_some()) {
        counts.dropped += usize::from(taken.drops);
        counts.revived += usize::from(!taken.drops);
    }
}

/// Whether an add is to be seen by a run before the end: not if it is for much later.
fn is_due(delay: u64) -> bool {
    delay < AN_HOUR
}
