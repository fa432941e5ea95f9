//! What follows from how a run ended: the rules, and nothing else.
//!
//! | the run | failures so far | the lease ends with | the key is dead |
//! |---|---|---|---|
//! | went well | any | `Succeed` | no |
//! | is to come again after a delay | any | `RequeueAfter` | no |
//! | gave up | any | `GiveUp` | yes |
//! | failed, panicked or timed out | below the maximum | `Retry` | no |
//! | failed, panicked or timed out | at the maximum | `GiveUp` | yes |
//! | was cancelled by a stop | any | `Release` | no |
//!
//! `GiveUp` forgets the failures of a dead key: if it is ever added again, it starts afresh.

use std::fmt::Display;

use super::display::ContainedDisplay;
use super::outcome::{Failure, Outcome};
use super::source::Conclusion;
use crate::Finish;
use crate::metrics::Ended;

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ran<E> {
    Ended(Outcome),
    Failed(Failure<E>),
    #[cfg_attr(
        not(feature = "tokio"),
        allow(dead_code, reason = "threads cannot be cancelled")
    )]
    Cancelled,
}

/// What is to be done about it.
#[derive(Debug, PartialEq)]
#[must_use = "a lease is to be ended by it"]
pub(super) struct Verdict<E> {
    pub(super) finish: Finish,
    pub(super) ended: Ended,
    pub(super) failure: Option<ContainedDisplay<Failure<E>>>,
    pub(super) dead: bool,
}

impl<E> Verdict<E> {
    /// Judges a run; `may_retry` is asked only if that matters.
    pub(super) fn on(ran: Ran<E>, may_retry: impl FnOnce() -> bool) -> Self {
        match ran {
            Ran::Ended(Outcome::Done) => Self::plain(Finish::Succeed, Ended::Done),
            Ran::Ended(Outcome::After(delay)) => {
                Self::plain(Finish::RequeueAfter(delay), Ended::After)
            }
            Ran::Ended(Outcome::GiveUp) => Self::dead(Failure::GaveUp),
            Ran::Failed(failure) if may_retry() => Self::retry(failure),
            Ran::Failed(failure) => Self::dead(failure),
            Ran::Cancelled => Self::plain(Finish::Release, Ended::Cancelled),
        }
    }

    fn plain(finish: Finish, ended: Ended) -> Self {
        Self { finish, ended, failure: None, dead: false }
    }

    fn retry(failure: Failure<E>) -> Self {
        let ended = ended_by(&failure);
        let failure = Some(ContainedDisplay(failure));
        Self { finish: Finish::Retry, ended, failure, dead: false }
    }

    fn dead(failure: Failure<E>) -> Self {
        let ended = ended_by(&failure);
        let failure = Some(ContainedDisplay(failure));
        Self { finish: Finish::GiveUp, ended, failure, dead: true }
    }
}

impl<E: Display> Verdict<E> {
    /// What the queue is told.
    pub(super) fn conclusion(&self) -> Conclusion<'_> {
        let Self { finish, ended, dead, .. } = *self;
        let failure = self.failure.as_ref().map(|failure| failure as &dyn Display);
        Conclusion { finish, ended, failure, dead }
    }
}

fn ended_by<E>(failure: &Failure<E>) -> Ended {
    match failure {
        Failure::Error(_) => Ended::Failed,
        Failure::Panicked(_) => Ended::Panicked,
        Failure::TimedOut(_) => Ended::TimedOut,
        Failure::GaveUp => Ended::GaveUp,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn judge(ran: Ran<&'static str>, may_retry: bool) -> (Finish, Ended, bool) {
        let verdict = Verdict::on(ran, || may_retry);
        (verdict.finish, verdict.ended, verdict.dead)
    }

    #[test]
    fn run_that_went_well_is_over_or_comes_again() {
        let delay = Duration::from_secs(3);
        for may_retry in [false, true] {
            let done = judge(Ran::Ended(Outcome::Done), may_retry);
            assert_eq!(done, (Finish::Succeed, Ended::Done, false));
            let after = judge(Ran::Ended(Outcome::After(delay)), may_retry);
            assert_eq!(after, (Finish::RequeueAfter(delay), Ended::After, false));
        }
    }

    #[test]
    fn failure_is_retried_while_it_may_be_and_dead_then() {
        let failures = [
            (Failure::Error("no"), Ended::Failed),
            (Failure::Panicked("ouch".into()), Ended::Panicked),
            (Failure::TimedOut(Duration::from_secs(1)), Ended::TimedOut),
        ];
        for (failure, ended) in failures {
            let again = judge(Ran::Failed(failure.clone()), true);
            assert_eq!(again, (Finish::Retry, ended, false));
            let dead = judge(Ran::Failed(failure), false);
            assert_eq!(dead, (Finish::GiveUp, ended, true));
        }
    }

    #[test]
    fn giving_up_is_dead_whatever_is_left() {
        let verdict = Verdict::<()>::on(Ran::Ended(Outcome::GiveUp), || true);
        assert_eq!(verdict.failure, Some(ContainedDisplay(Failure::GaveUp)));
        assert_eq!((verdict.finish, verdict.dead), (Finish::GiveUp, true));
    }

    #[test]
    fn cancelled_run_counts_as_no_failure() {
        let cancelled = judge(Ran::Cancelled, true);
        assert_eq!(cancelled, (Finish::Release, Ended::Cancelled, false));
    }
}
