//! The invariants of dead keys.

use super::invariants::KeyCheck;
use crate::history::event::{DeadKey, FinishKind};
use crate::history::key::{AddCall, AddOp, DeadRemoval, DeadSighting, FinishCall};
use crate::run::plan::MAX_DELIVERIES;

impl KeyCheck<'_> {
    /// Returns whether the key is dead at the end, or was dropped after this add.
    pub(super) fn died_after(&self, add: &AddOp) -> bool {
        let dropped = |removal: &DeadRemoval| removal.drops && removal.may_follow(add.at);
        self.dead.is_some() || self.history.removals.iter().any(dropped)
    }

    /// Finds adds that did not revive a dead key: the key was dead before and after, with no
    /// lease between that could have killed it again.
    pub(super) fn find_ignored_adds(&self, found: &mut dyn FnMut(String)) {
        for add in &self.history.add_calls {
            let Some((answered, _)) = add.answer else { continue };
            let Some(before) = self.dead_before(add.sent) else { continue };
            let Some(after) = self.dead_after(answered) else { continue };
            let mut grants = self.grants().iter();
            if !grants.any(|grant| grant.answered > before && grant.sent < after) {
                found("was added while it was dead, and stayed dead".to_owned());
            }
        }
    }

    /// Finds adds that were buried: the key was leased and died of too many deliveries after
    /// the add, with no delivery after it. The add should have revived the key.
    pub(super) fn find_buried_adds(&self, found: &mut dyn FnMut(String)) {
        for seen in &self.history.sightings {
            let is_exhausted = |dead: &DeadKey| dead.deliveries >= MAX_DELIVERIES.get();
            if !seen.record.as_ref().is_some_and(is_exhausted) {
                continue;
            }
            // A delay may end after the death, which cancels it.
            let counts = |add: &&AddOp| {
                let answered = add.answered.is_some_and(|at| at < seen.sent);
                add.acknowledged && add.delay == 0 && answered
            };
            let adds = self.history.adds.iter().filter(counts);
            let Some(add) = adds.max_by_key(|add| add.at) else { continue };
            let mut grants = self.grants().iter();
            let was_delivered = grants.any(|grant| grant.answered > add.at);
            let may_have_been =
                self.all.may_have_lost_lease(add.at, seen.answered, self.is_embedded());
            let was_removed = self.history.removals.iter().any(|removal| {
                removal.may_follow(add.at) && removal.sent < seen.answered
            });
            if !was_delivered && !may_have_been && !was_removed {
                found(
                    "was added while it was leased, and buried with that add".to_owned(),
                );
            }
        }
    }

    /// Returns the start of the last sighting before `time`.
    fn dead_before(&self, time: u64) -> Option<u64> {
        let earlier = self.history.sightings.iter().filter(|seen| seen.answered < time);
        earlier.map(|seen| seen.sent).max()
    }

    /// Returns the end of the first sighting after `time`.
    fn dead_after(&self, time: u64) -> Option<u64> {
        let later = self.history.sightings.iter().filter(|seen| seen.sent > time);
        let seen = later.map(|seen| seen.answered);
        let removals = self.history.removals.iter().filter(|removal| removal.sent > time);
        let removed = removals.filter_map(DeadRemoval::removed_at);
        seen.chain(removed).chain(self.dead.map(|_| u64::MAX)).min()
    }

    pub(super) fn find_unexplained_deaths(&self, found: &mut dyn FnMut(String)) {
        let gives_up = |finish: &FinishCall| {
            finish.kind == FinishKind::GiveUp && !finish.is_refused()
        };
        let mut grants = self.grants().iter();
        let was_given_up = grants.any(|grant| grant.finishes.iter().any(gives_up));
        let listed =
            self.history.sightings.iter().filter_map(|seen| seen.record.as_ref());
        for dead in listed.chain(self.dead) {
            if dead.reason.is_empty() {
                found("is dead without a reason".to_owned());
            }
            if dead.deliveries < MAX_DELIVERIES.get() && !was_given_up {
                let deliveries = dead.deliveries;
                found(format!(
                    "is dead after {deliveries} deliveries, but no worker gave up on it"
                ));
            }
        }
    }

    /// Finds keys that were dead and then were not, although no call could have revived or
    /// dropped them.
    pub(super) fn find_unexplained_revivals(&self, found: &mut dyn FnMut(String)) {
        for seen in &self.history.sightings {
            let grant = self.grants().iter().find(|grant| grant.sent > seen.answered);
            let event = match (grant, self.dead) {
                (Some(grant), _) => format!("was leased with token {}", grant.token),
                (None, None) => "disappeared".to_owned(),
                (None, Some(_)) => continue,
            };
            if !self.may_have_revived(seen) {
                found(format!("was dead and then {event}, without an add or a revival"));
            }
        }
    }

    fn may_have_revived(&self, seen: &DeadSighting) -> bool {
        let adds = |call: &AddCall| call.answer.is_none_or(|(at, _)| at > seen.sent);
        let removes = |removal: &DeadRemoval| removal.may_follow(seen.sent);
        self.history.add_calls.iter().any(adds)
            || self.history.removals.iter().any(removes)
    }
}
