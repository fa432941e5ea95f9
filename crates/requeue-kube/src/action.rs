//! The answer of a reconciler.

use std::time::Duration;

use requeue::Finish;

/// Says when an object is reconciled next. Returned by a reconciler.
///
/// The constructors [`requeue`](Action::requeue) and [`await_change`](Action::await_change)
/// are those of kube-runtime. [`backoff`](Action::backoff) and [`give_up`](Action::give_up)
/// are failures without an error value.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue_kube::Action;
///
/// let hourly = Action::requeue(Duration::from_secs(3600));
/// assert_eq!(hourly.requeue_after(), Some(Duration::from_secs(3600)));
/// assert_eq!(Action::await_change().requeue_after(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an action has an effect only if the reconciler returns it"]
pub struct Action(Finish);

impl Action {
    /// Succeeds, and reconciles the object again after `delay`, or earlier if it changes.
    pub const fn requeue(delay: Duration) -> Self {
        Self(Finish::RequeueAfter(delay))
    }

    /// Succeeds, and waits for the next change of the object.
    pub const fn await_change() -> Self {
        Self(Finish::Succeed)
    }

    /// Fails, and lets the retry policy choose the delay.
    ///
    /// The failure counts for [`Controller::max_retries`](crate::Controller::max_retries).
    pub const fn backoff() -> Self {
        Self(Finish::Retry)
    }

    /// Fails for good: the object is dead until it changes.
    #[doc(alias = "TerminalError")]
    pub const fn give_up() -> Self {
        Self(Finish::GiveUp)
    }

    /// Fails, and reconciles the object again after `delay`. The failure counts.
    pub const fn retry_after(delay: Duration) -> Self {
        Self(Finish::RetryAfter(delay))
    }

    /// Returns the delay of [`requeue`](Self::requeue) or
    /// [`retry_after`](Self::retry_after).
    pub const fn requeue_after(&self) -> Option<Duration> {
        if let Finish::RequeueAfter(delay) | Finish::RetryAfter(delay) = self.0 {
            Some(delay)
        } else {
            None
        }
    }

    /// Returns whether the action is a failure.
    pub const fn is_failure(&self) -> bool {
        matches!(self.0, Finish::Retry | Finish::RetryAfter(_) | Finish::GiveUp)
    }

    /// Returns how the lease on the object's key ends.
    pub const fn finish(&self) -> Finish {
        self.0
    }
}

impl From<Action> for Finish {
    fn from(action: Action) -> Self {
        action.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_are_failures() {
        let delay = Duration::from_secs(1);
        for action in [Action::requeue(delay), Action::await_change()] {
            assert!(!action.is_failure(), "{action:?}");
        }
        for action in [Action::backoff(), Action::give_up(), Action::retry_after(delay)] {
            assert!(action.is_failure(), "{action:?}");
        }
    }
}
