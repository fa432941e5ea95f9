//! The invariants of one key.

use super::{RESERVED, Rule, Violation, is_due};
use crate::history::History;
use crate::history::event::{DeadKey, FinishKind};
use crate::history::key::{
    AddCall, DeadRemoval, FinishCall, Granted, KeyHistory, Reclaim,
};
use crate::run::plan::Plan;

/// A key and everything needed to check it.
pub(super) struct KeyCheck<'a> {
    pub(super) key: &'a str,
    pub(super) history: &'a KeyHistory,
    /// The record of the key, if it is dead at the end.
    pub(super) dead: Option<&'a DeadKey>,
    /// Whether the key is delayed at the end, because it was added during its last delivery.
    pub(super) is_revived: bool,
    /// The history of all keys.
    pub(super) all: &'a History,
    pub(super) plan: &'a Plan,
}

impl KeyCheck<'_> {
    pub(super) fn run(&self, violations: &mut Vec<Violation>) {
        let mut found = |rule, text| {
            let text = format!("{}: {text}", self.key);
            violations.push(Violation { rule, text });
        };
        self.find_lost_adds(&mut |text| found(Rule::I1, text));
        self.find_wrong_tokens(&mut |text| found(Rule::I2, text));
        self.find_double_finishes(&mut |text| found(Rule::I2, text));
        self.find_wrong_deliveries(&mut |text| found(Rule::I2, text));
        self.find_stale_calls(&mut |text| found(Rule::I3, text));
        self.find_overlaps(&mut |text| found(Rule::I4, text));
        self.find_extra_runs(&mut |text| found(Rule::I5, text));
        self.find_early_runs(&mut |text| found(Rule::I7, text));
        self.find_unexplained_deaths(&mut |text| found(Rule::I6, text));
        self.find_unexplained_revivals(&mut |text| found(Rule::I6, text));
        self.find_ignored_adds(&mut |text| found(Rule::I6, text));
        self.find_buried_adds(&mut |text| found(Rule::I6, text));
        self.find_lost_leases(&mut |text| found(Rule::I8, text));
        self.find_late_runs(&mut |text| found(Rule::I9, text));
    }

    pub(super) fn grants(&self) -> &[Granted] {
        &self.history.grants
    }

    pub(super) fn is_embedded(&self) -> bool {
        self.plan.scenario.store.is_embedded()
    }

    /// Returns how often the store's clock stepped in a span of time.
    fn clock_steps(&self, from: u64, to: u64) -> u64 {
        let steps = self.plan.clock_steps.iter();
        steps.filter(|step| from <= step.at && step.at <= to).count() as u64
    }

    /// Returns every pair of an earlier and a later lease.
    fn pairs(&self) -> impl Iterator<Item = (&Granted, &Granted)> {
        let later = |index: usize| self.grants()[index + 1..].iter();
        let grants = self.grants().iter().enumerate();
        grants.flat_map(move |(index, grant)| later(index).map(move |next| (grant, next)))
    }

    fn find_lost_adds(&self, found: &mut dyn FnMut(String)) {
        let runs: Vec<_> = self.grants().iter().filter(|grant| grant.counts()).collect();
        let last_seen = |lane: usize| {
            let versions = runs.iter().filter_map(|run| run.versions.as_ref());
            versions.filter_map(|versions| versions.get(lane)).max().copied().unwrap_or(0)
        };
        for add in &self.history.adds {
            let (lane, version, last) = (add.lane, add.version, last_seen(add.lane));
            let must_be_seen = add.acknowledged && is_due(add.delay) && !self.is_revived;
            if must_be_seen && last < version && !self.died_after(add) {
                found(format!(
                    "version {version} of lane {lane} was acknowledged, but the last \
                     version that a run saw is {last}"
                ));
            }
        }
    }

    fn find_wrong_tokens(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs() {
            let (token, greater) = (grant.token, next.token);
            if token == greater {
                found(format!("token {token} was granted twice"));
            } else if next.answered < grant.sent {
                found(format!("token {token} was granted after {greater}"));
            }
        }
    }

    fn find_double_finishes(&self, found: &mut dyn FnMut(String)) {
        for grant in self.grants() {
            let accepted = grant.finishes.iter().filter(|finish| finish.is_accepted());
            let times = accepted.count();
            if times > 1 {
                found(format!("token {} was finished {times} times", grant.token));
            }
        }
    }

    fn find_wrong_deliveries(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs() {
            let Some(finish) = grant.accepted() else { continue };
            if finish.kind == FinishKind::Release || !is_before(finish, next) {
                continue;
            }
            let expired = (next.answered - finish.sent) / next.lease.max(1);
            let steps = self.clock_steps(grant.sent, next.answered);
            let restarts = if self.is_embedded() {
                next.process.abs_diff(grant.process) as u64
            } else {
                0
            };
            if u64::from(next.deliveries) > 1 + expired + restarts + steps {
                found(format!(
                    "token {} was finished, but {} was delivery {}",
                    grant.token, next.token, next.deliveries
                ));
            }
        }
    }

    fn find_stale_calls(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs() {
            let (old, new) = (grant.token, next.token);
            if old == new || next.may_be_undone {
                continue;
            }
            if grant.accepted().is_some_and(|finish| next.answered <= finish.sent) {
                found(format!("{old} was finished after {new} was granted"));
            }
            if grant.extensions.iter().any(|more| next.answered <= more.sent) {
                found(format!("{old} was extended after {new} was granted"));
            }
        }
    }

    fn find_overlaps(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs().filter(|(old, new)| old.token < new.token) {
            let has_exited = self.is_embedded() && grant.process != next.process;
            let has_step = self.clock_steps(grant.sent, next.answered) > 0;
            let is_gone = has_exited || has_step || grant.may_be_undone;
            let expiry = grant.earliest_expiry();
            if next.answered < expiry && !is_gone && !self.may_have_ended(grant, next) {
                let early = (expiry - next.answered) / 1000;
                let (old, new) = (grant.token, next.token);
                found(format!("{new} was granted {early} ms before {old} expired"));
            }
        }
    }

    /// Returns whether a call that was sent before `next` was answered may have ended
    /// `grant`.
    pub(super) fn may_have_ended(&self, grant: &Granted, next: &Granted) -> bool {
        let ends =
            |finish: &FinishCall| finish.sent < next.answered && !finish.is_refused();
        let hold = (self.key.to_owned(), grant.token);
        let reclaims = |reclaim: &Reclaim| {
            reclaim.sent < next.answered
                && reclaim.owner == grant.owner
                && !reclaim.held.contains(&hold)
        };
        grant.finishes.iter().any(ends) || self.all.reclaims.iter().any(reclaims)
    }

    fn find_extra_runs(&self, found: &mut dyn FnMut(String)) {
        let may_change = |call: &&AddCall| !call.is_duplicate();
        let adds = self.history.add_calls.iter().filter(may_change).count();
        let may_revive = |removal: &&DeadRemoval| !removal.drops && removal.may_follow(0);
        let revivals = self.history.removals.iter().filter(may_revive).count();
        let is_final = |finish: &FinishCall| {
            matches!(finish.kind, FinishKind::Done | FinishKind::GiveUp)
        };
        let may_repeat = |grant: &&Granted| {
            grant.may_be_undone || !grant.accepted().is_some_and(is_final)
        };
        let repeats = self.grants().iter().filter(may_repeat).count();
        let grants = self.grants().len();
        if grants > adds + revivals + repeats {
            found(format!(
                "{grants} leases from {adds} adds, {revivals} revivals and {repeats} \
                 repeated leases"
            ));
        }
    }

    /// Finds a run before the time that the shared rate assigned. Skips keys that were added
    /// twice: an unanswered call may have been assigned an earlier time.
    fn find_early_runs(&self, found: &mut dyn FnMut(String)) {
        let ([add], Some(first)) = (&self.history.add_calls[..], self.grants().first())
        else {
            return;
        };
        if self.clock_steps(add.sent.saturating_sub(RESERVED), first.answered) > 0 {
            return;
        }
        let window = add.rate_window().filter(|(at, _)| first.answered < *at);
        if let Some((earliest, _)) = window {
            let early = earliest - first.answered;
            found(format!("{} was granted {early} us too early", first.token));
        }
    }
}

/// Returns whether an accepted finish precedes the request for `next`.
fn is_before(finish: &FinishCall, next: &Granted) -> bool {
    finish.answer.is_some_and(|(at, _)| at < next.sent)
}
