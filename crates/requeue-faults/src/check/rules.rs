//! The invariants, for one key.

use super::story::{Attempt, End, Exhumation, Granted, Reclaim, Story};
use super::{Home, Rule, Violation, is_due};
use crate::event::{Corpse, Ending};

/// One key, and what else is needed to judge it.
pub(crate) struct View<'a> {
    pub(crate) key: &'a str,
    pub(crate) story: &'a Story,
    /// If it is dead in the end.
    pub(crate) corpse: Option<&'a Corpse>,
    pub(crate) reclaims: &'a [Reclaim],
    pub(crate) home: Home,
}

impl View<'_> {
    pub(crate) fn judge(&self, violations: &mut Vec<Violation>) {
        let mut found = |rule, text| {
            let text = format!("{}: {text}", self.key);
            violations.push(Violation { rule, text });
        };
        self.lost(&mut |text| found(Rule::I1, text));
        self.tokens(&mut |text| found(Rule::I2, text));
        self.completions(&mut |text| found(Rule::I2, text));
        self.deliveries(&mut |text| found(Rule::I2, text));
        self.fences(&mut |text| found(Rule::I3, text));
        self.overlaps(&mut |text| found(Rule::I4, text));
        self.extra_runs(&mut |text| found(Rule::I5, text));
        self.early(&mut |text| found(Rule::I7, text));
        self.reasons(&mut |text| found(Rule::I6, text));
        self.risen(&mut |text| found(Rule::I6, text));
        self.ignored(&mut |text| found(Rule::I6, text));
    }

    pub(super) fn grants(&self) -> &[Granted] {
        &self.story.grants
    }

    /// Pairs of a grant and each later one.
    fn pairs(&self) -> impl Iterator<Item = (&Granted, &Granted)> {
        let later = |place: usize| self.grants()[place + 1..].iter();
        let grants = self.grants().iter().enumerate();
        grants.flat_map(move |(place, grant)| later(place).map(move |next| (grant, next)))
    }

    fn lost(&self, found: &mut dyn FnMut(String)) {
        let runs: Vec<_> = self.grants().iter().filter(|grant| grant.counts()).collect();
        let seen = |lane: usize| {
            let versions = runs.iter().filter_map(|run| run.versions.as_ref());
            versions.filter_map(|versions| versions.get(lane)).max().copied().unwrap_or(0)
        };
        for add in &self.story.adds {
            let expected = add.acknowledged && is_due(add.delay);
            if expected && seen(add.lane) < add.version && !self.died_after(add) {
                let (lane, version, last) = (add.lane, add.version, seen(add.lane));
                found(format!(
                    "version {version} of lane {lane} was acknowledged, but no run that \
                     counts saw more than {last}"
                ));
            }
        }
    }

    fn tokens(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs() {
            let (token, greater) = (grant.token, next.token);
            if token == greater {
                found(format!("token {token} was granted twice"));
            } else if next.answered < grant.sent {
                found(format!("token {token} was granted after {greater}"));
            }
        }
    }

    fn completions(&self, found: &mut dyn FnMut(String)) {
        for grant in self.grants() {
            let times = grant.ends.iter().filter(|end| end.is_accepted()).count();
            if times > 1 {
                found(format!("token {} was completed {times} times", grant.token));
            }
        }
    }

    fn deliveries(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs() {
            let Some(end) = grant.accepted() else { continue };
            if end.ending == Ending::Release || !is_before(end, next) {
                continue;
            }
            let passed = (next.answered - end.sent) / next.lease.max(1);
            let lives = match self.home {
                Home::Embedded => next.process.abs_diff(grant.process) as u64,
                Home::Server => 0,
            };
            if u64::from(next.deliveries) > 1 + passed + lives {
                found(format!(
                    "token {} was completed, and yet {} was delivery {}",
                    grant.token, next.token, next.deliveries
                ));
            }
        }
    }

    fn fences(&self, found: &mut dyn FnMut(String)) {
        let follow = |(old, new): &(&Granted, &Granted)| old.token < new.token;
        for (grant, next) in self.pairs().filter(follow).filter(|(_, new)| !new.undone) {
            let (old, new) = (grant.token, next.token);
            if grant.accepted().is_some_and(|end| next.answered <= end.sent) {
                found(format!("the end of {old} was accepted after {new} was granted"));
            }
            if grant.extensions.iter().any(|more| next.answered <= more.sent) {
                found(format!("{old} was extended after {new} was granted"));
            }
        }
    }

    fn overlaps(&self, found: &mut dyn FnMut(String)) {
        for (grant, next) in self.pairs().filter(|(old, new)| old.token < new.token) {
            let is_dead = self.home == Home::Embedded && grant.process != next.process;
            let is_dead = is_dead || grant.undone;
            let deadline = grant.deadline();
            if next.answered < deadline && !is_dead && !self.may_have_ended(grant, next) {
                let early = (deadline - next.answered) / 1000;
                let (old, new) = (grant.token, next.token);
                found(format!("{new} was granted {early} ms before {old} had passed"));
            }
        }
    }

    /// Whether anything that was sent before `next` was known can have ended `grant`.
    fn may_have_ended(&self, grant: &Granted, next: &Granted) -> bool {
        let ends = |end: &End| end.sent < next.answered && !end.is_refused();
        let hold = (self.key.to_owned(), grant.token);
        let reclaims = |reclaim: &Reclaim| {
            reclaim.sent < next.answered
                && reclaim.owner == grant.owner
                && !reclaim.held.contains(&hold)
        };
        grant.ends.iter().any(ends) || self.reclaims.iter().any(reclaims)
    }

    fn extra_runs(&self, found: &mut dyn FnMut(String)) {
        let changed = |attempt: &&Attempt| !attempt.is_merged();
        let adds = self.story.attempts.iter().filter(changed).count();
        let is_back = |taken: &&Exhumation| !taken.drops && taken.may_follow(0);
        let revived = self.story.exhumations.iter().filter(is_back).count();
        let is_over = |end: &End| matches!(end.ending, Ending::Done | Ending::Bury);
        let comes_again =
            |grant: &&Granted| grant.undone || !grant.accepted().is_some_and(is_over);
        let again = self.grants().iter().filter(comes_again).count();
        let grants = self.grants().len();
        if grants > adds + revived + again {
            found(format!(
                "{grants} grants from {adds} adds, {revived} times revived, and {again} \
                 leases to repeat"
            ));
        }
    }

    /// Whether a key came before the shared rate let it. One that was asked for twice may
    /// have been allowed to come earlier by the call that was not answered.
    fn early(&self, found: &mut dyn FnMut(String)) {
        let ([attempt], Some(first)) = (&self.story.attempts[..], self.grants().first())
        else {
            return;
        };
        if let Some((earliest, _)) =
            attempt.share().filter(|(at, _)| first.answered < *at)
        {
            let early = earliest - first.answered;
            found(format!("{} was granted {early} us before its time", first.token));
        }
    }
}

/// Whether an accepted end came before `next` was asked for.
fn is_before(end: &End, next: &Granted) -> bool {
    end.answer.is_some_and(|(at, _)| at < next.sent)
}
