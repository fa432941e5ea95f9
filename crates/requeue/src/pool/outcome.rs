//! How a run ended, and how its lease ends because of it.
//!
//! | the run | the lease ends with | the key is dead |
//! |---|---|---|
//! | succeeded | `Succeed`, `RequeueAfter` or `Done` | no |
//! | failed, below the maximum of retries | `Retry` or `RetryAfter` | no |
//! | failed, at the maximum of retries | `GiveUp` | yes |
//! | gave up | `GiveUp` | yes |
//! | panicked or timed out | as if it failed with `Retry` | |
//! | was cancelled or not processed | `Release` | no |

use super::failure::Failure;
use super::handler::{Failed, HandlerResult};
use crate::Finish;
use crate::metrics::RunResult;

/// How a run ended.
#[must_use = "a lease ends because of it"]
pub(super) struct Outcome {
    pub(super) result: RunResult,
    pub(super) finish: Finish,
    pub(super) failure: Option<Failure>,
}

impl Outcome {
    /// Returns the outcome of a handler that has returned.
    pub(super) fn of(returned: impl HandlerResult) -> Self {
        match returned.into_result() {
            Ok(finish) => Self::finished(finish),
            Err(failed) => Self::from(failed),
        }
    }

    fn finished(finish: Finish) -> Self {
        let result = match finish {
            Finish::Succeed | Finish::Done => RunResult::Succeeded,
            Finish::RequeueAfter(_) => RunResult::Requeued,
            Finish::Release => RunResult::Released,
            Finish::GiveUp => return Self::new(Failure::GaveUp, finish),
            Finish::Retry | Finish::RetryAfter(_) => {
                return Self::new(Failure::Retried, finish);
            }
        };
        Self { result, finish, failure: None }
    }

    fn new(failure: Failure, finish: Finish) -> Self {
        let result = match (&failure, finish) {
            (Failure::Panicked(_), _) => RunResult::Panicked,
            (Failure::TimedOut(_), _) => RunResult::TimedOut,
            (_, Finish::GiveUp) => RunResult::GaveUp,
            _ => RunResult::Failed,
        };
        Self { result, finish, failure: Some(failure) }
    }

    /// Returns the outcome of a run that is retried.
    pub(super) fn retried(failure: Failure) -> Self {
        Self::new(failure, Finish::Retry)
    }

    /// Returns the outcome of a cancelled run.
    pub(super) fn released() -> Self {
        Self::finished(Finish::Release)
    }

    /// Gives up on a key that would be retried, unless `may_retry`.
    pub(super) fn limit_retries(&mut self, may_retry: impl FnOnce() -> bool) {
        let retried = matches!(self.finish, Finish::Retry | Finish::RetryAfter(_));
        if retried && !may_retry() {
            self.finish = Finish::GiveUp;
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.finish == Finish::GiveUp
    }
}

impl From<Failed> for Outcome {
    fn from(failed: Failed) -> Self {
        let finish = failed.finish();
        Self::new(Failure::Error(failed.into_error()), finish)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DELAY: Duration = Duration::from_secs(3);

    fn limited(mut outcome: Outcome, may_retry: bool) -> (Finish, RunResult, bool) {
        outcome.limit_retries(|| may_retry);
        (outcome.finish, outcome.result, outcome.failure.is_some())
    }

    #[test]
    fn success_ends_the_lease_as_the_handler_says() {
        let results = [
            (Finish::Succeed, RunResult::Succeeded),
            (Finish::Done, RunResult::Succeeded),
            (Finish::RequeueAfter(DELAY), RunResult::Requeued),
            (Finish::Release, RunResult::Released),
        ];
        for (finish, result) in results {
            assert_eq!(limited(Outcome::of(finish), false), (finish, result, false));
        }
        let unit = limited(Outcome::of(()), false);
        assert_eq!(unit, (Finish::Succeed, RunResult::Succeeded, false));
    }

    #[test]
    fn failed_key_is_retried_below_the_maximum_and_dead_at_it() {
        let failed = |finish| Outcome::from(Failed::new("no", finish));
        let outcomes: [(fn() -> Outcome, _, _); 6] = [
            (|| Outcome::of(Err::<(), _>("no")), Finish::Retry, RunResult::Failed),
            (
                || Outcome::of(Err::<(), _>(Failed::retry_after("no", DELAY))),
                Finish::RetryAfter(DELAY),
                RunResult::Failed,
            ),
            (|| Outcome::of(Finish::Retry), Finish::Retry, RunResult::Failed),
            (
                || Outcome::of(Finish::RetryAfter(DELAY)),
                Finish::RetryAfter(DELAY),
                RunResult::Failed,
            ),
            (
                || Outcome::retried(Failure::Panicked("ouch".into())),
                Finish::Retry,
                RunResult::Panicked,
            ),
            (
                || Outcome::retried(Failure::TimedOut(DELAY)),
                Finish::Retry,
                RunResult::TimedOut,
            ),
        ];
        for (outcome, finish, result) in outcomes {
            assert_eq!(limited(outcome(), true), (finish, result, true));
            assert_eq!(limited(outcome(), false), (Finish::GiveUp, result, true));
        }
        let again = failed(Finish::RequeueAfter(DELAY));
        let expected = (Finish::RequeueAfter(DELAY), RunResult::Failed, true);
        assert_eq!(limited(again, false), expected, "it counts as no failure");
    }

    #[test]
    fn giving_up_is_dead_in_any_case() {
        for may_retry in [false, true] {
            for outcome in [
                Outcome::of(Finish::GiveUp),
                Outcome::of(Err::<(), _>(Failed::give_up("no"))),
            ] {
                assert!(outcome.is_dead());
                let ended = limited(outcome, may_retry);
                assert_eq!(ended, (Finish::GiveUp, RunResult::GaveUp, true));
            }
        }
    }

    #[test]
    fn cancelled_run_is_not_a_failure() {
        let released = limited(Outcome::released(), false);
        assert_eq!(released, (Finish::Release, RunResult::Released, false));
    }
}
