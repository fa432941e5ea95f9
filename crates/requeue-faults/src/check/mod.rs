//! Checks the histories of a run against the promises of a store.
//!
//! One call precedes another if it was answered before the other was sent. Of two leases of
//! a key, the one with the smaller token is the earlier one. The checker concludes nothing
//! else from times, so a process that is stopped between an answer and its line can hide a
//! violation but not cause one. A call without an answer is in doubt: it may have been
//! carried out or not, and the checker assumes whichever is correct. The server's clock is
//! trusted only this far: a lease is not shorter on it than on the clients' clock, which is
//! the same machine's.
//!
//! # Invariants
//!
//! 1. No key is lost. For each acknowledged add of a version, a run that counts (its finish
//!    was accepted or is in doubt) saw that version or a later one. Otherwise the key died
//!    after that add, and is dead at the end or was dropped, or is delayed because the add
//!    revived it. At the end no key is ready or processing, and none is delayed except as
//!    planned.
//! 2. A token is granted once, and later leases of a key have greater tokens. At most one
//!    finish of a token is accepted. An accepted finish is final: after it, deliveries of
//!    the key count from 1 again, and each further delivery needs at least a lease's time.
//! 3. Once a key is leased again, no finish or extension of the earlier lease is accepted.
//! 4. A key is leased again only if the earlier lease was finished, or may have been, or if
//!    it has expired, counting all extensions.
//! 5. Extra runs are bounded. For each key: leases ≤ adds that changed something or are in
//!    doubt + possible revivals + leases that did not surely end with success or giving up.
//!    Each of the last kind brings the key back once: by its retry or release, or when the
//!    lease expires.
//! 6. Dead keys stay dead. A key is dead because a worker gave up on it or because it reached
//!    the limit of deliveries, and its record has a reason. It stays dead until it is added,
//!    revived or dropped, and no longer.
//! 7. The shared rate holds. In any span of time, no more rate-limited adds become ready than
//!    the burst plus the rate allows, and none earlier than its receipt said.
//! 8. A lease survives any single fault. In a steady run, no lease expires while its holder
//!    lives, unless its own key was locked or its own server did not answer.
//! 9. Delays are noticed. In a steady run, a key that is delayed while workers wait is leased
//!    soon after its delay.
//!
//! The leases of an embedded store end with its process. There, invariant 4 treats a lease of
//! an earlier process as expired, and invariant 2 allows one delivery more per process.
//!
//! With [`Durability::Adds`], a kill of the server may undo its latest leases and finishes.
//! Those are in doubt as if they had not been answered. So are the answers near a failover to
//! a replica that may not have received them.
//!
//! A step of the store's clock may end leases and delays early or late. Invariants that
//! depend on durations skip spans with a step.

mod dead;
mod invariants;
mod liveness;
mod rate;
#[cfg(test)]
mod tests;
mod undone;

use std::collections::HashMap;
use std::fmt;

use self::invariants::KeyCheck;
use self::rate::Bucket;
use crate::history::History;
use crate::history::event::{DeadKey, FinalState};
use crate::history::key::{AddCall, KeyHistory};
use crate::run::plan::{AN_HOUR, MAX_DELIVERIES, Plan};
use crate::run::scenario::Durability;

/// The number of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<Violation>,
}

/// How much the checker had to judge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) keys: usize,
    pub(crate) adds: usize,
    pub(crate) acknowledged: usize,
    /// Adds of a key that was ready, dirty or delayed.
    pub(crate) duplicates: usize,
    pub(crate) grants: usize,
    pub(crate) accepted: usize,
    /// Finishes without an answer.
    pub(crate) in_doubt: usize,
    /// Finishes with a stale token.
    pub(crate) refused: usize,
    /// Leases of a key whose earlier lease was never finished.
    pub(crate) redelivered: usize,
    /// Successful extensions of leases.
    pub(crate) extended: usize,
    /// Keys that were seen dead, and those of them that reached the limit of deliveries.
    pub(crate) dead: usize,
    pub(crate) exhausted: usize,
    pub(crate) rate_limited: usize,
    /// Successful calls that revived or dropped a dead key.
    pub(crate) revived: usize,
    pub(crate) dropped: usize,
}

pub(crate) fn check(mut history: History, state: &FinalState, plan: &Plan) -> Verdict {
    let scenario = &plan.scenario;
    if scenario.durability == Durability::Adds {
        history.doubt_kills();
    }
    if scenario.store.has_lossy_failovers() {
        history.doubt_failovers();
    }
    let history = &history;
    let mut violations = Vec::new();
    if !state.is_idle() {
        let text = format!("the queue did not become idle: {state:?}");
        violations.push(Violation { rule: Rule::I1, text });
    }
    let dead: HashMap<_, _> =
        state.dead.iter().map(|dead| (dead.key.as_str(), dead)).collect();
    for (key, history_of_key) in &history.keys {
        let check = KeyCheck {
            key,
            history: history_of_key,
            dead: dead.get(key.as_str()).copied(),
            is_revived: state.revived.contains(key) && may_be_revived(history_of_key),
            all: history,
            plan,
        };
        check.run(&mut violations);
    }
    violations.extend(check_rate(history, plan));
    violations.sort_by_key(|violation| violation.rule);
    Verdict { counts: count(history), violations }
}

/// Returns whether a key may have been at its last delivery. The answer to the last lease may
/// be lost.
fn may_be_revived(history: &KeyHistory) -> bool {
    history.grants.iter().any(|grant| grant.deliveries + 1 >= MAX_DELIVERIES.get())
}

fn rate_windows(history: &History) -> impl Iterator<Item = (u64, u64)> {
    let calls = history.keys.values().flat_map(|key| &key.add_calls);
    calls.filter_map(AddCall::rate_window)
}

fn check_rate(history: &History, plan: &Plan) -> Option<Violation> {
    let is_steady = |(from, to): &(u64, u64)| {
        // A step moves all tokens that are reserved at that time.
        !plan.has_clock_step(from.saturating_sub(RESERVED), to + RESERVED)
    };
    let windows = rate_windows(history).filter(is_steady).collect();
    let (count, span) = Bucket::of(&plan.scenario).worst_excess(windows)?;
    let text = format!("the shared rate allowed {count} keys in {} ms", span / 1000);
    Some(Violation { rule: Rule::I7, text })
}

fn count(history: &History) -> Counts {
    let (keys, rate_limited) = (history.keys.len(), rate_windows(history).count());
    let mut counts = Counts { keys, rate_limited, ..Counts::default() };
    for key in history.keys.values() {
        let is_duplicate = |call: &&AddCall| call.is_duplicate();
        counts.adds += key.adds.len();
        counts.acknowledged += key.adds.iter().filter(|add| add.acknowledged).count();
        counts.duplicates += key.add_calls.iter().filter(is_duplicate).count();
        count_grants(key, &mut counts);
        count_dead(key, &mut counts);
    }
    counts
}

/// The longest time for which the shared rate is reserved in advance, in microseconds.
const RESERVED: u64 = 1_000_000;

fn count_grants(key: &KeyHistory, counts: &mut Counts) {
    counts.grants += key.grants.len();
    for grant in &key.grants {
        let finishes = || grant.finishes.iter();
        counts.accepted += usize::from(grant.accepted().is_some());
        counts.in_doubt += finishes().filter(|finish| finish.answer.is_none()).count();
        counts.refused += finishes().filter(|finish| finish.is_refused()).count();
        counts.redelivered += usize::from(grant.deliveries > 1);
        counts.extended += grant.extensions.len();
    }
}

fn count_dead(key: &KeyHistory, counts: &mut Counts) {
    let mut records = key.sightings.iter().filter_map(|seen| seen.record.as_ref());
    let is_exhausted = |dead: &DeadKey| dead.deliveries >= MAX_DELIVERIES.get();
    counts.dead += usize::from(!key.sightings.is_empty());
    counts.exhausted += usize::from(records.any(is_exhausted));
    let removals = key.removals.iter().filter(|removal| removal.removed_at().is_some());
    for removal in removals {
        counts.dropped += usize::from(removal.drops);
        counts.revived += usize::from(!removal.drops);
    }
}

/// Returns whether an add with this delay must be seen by a run before the end.
fn is_due(delay: u64) -> bool {
    delay < AN_HOUR
}
