//! The retry policy, asked in a way that a panic of it costs neither a key nor a worker.
//!
//! A policy that panics has said nothing. Where it was to say how long a key waits, the
//! default backoff does, by the failures that the key's slot has counted; all else happens
//! as if it had not panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Finish, Shared};
use crate::queue::nanos::Nanos;
use crate::retry::{ByCount, QueueDefault, RetryPolicy};

/// The delay of a failed key.
#[derive(Clone, Copy)]
pub(in crate::queue) struct Backoff {
    pub(in crate::queue) delay: Duration,
    /// Whether the policy panicked, and that has not been reported.
    pub(in crate::queue) panicked: bool,
}

impl From<Duration> for Backoff {
    fn from(delay: Duration) -> Self {
        Self { delay, panicked: false }
    }
}

impl<K> Shared<K> {
    /// Asks a policy that does not depend on the count only for the delay of a key whose
    /// lease ends. It is user code: this happens without the lock.
    #[inline]
    pub(in crate::queue) fn consult(&self, key: &K, finish: Finish) -> Option<Duration> {
        if self.asks_policy(finish) { self.consult_policy(key, finish) } else { None }
    }

    /// Returns whether the user's policy takes part in the end of a lease.
    #[inline]
    pub(in crate::queue) fn asks_policy(&self, finish: Finish) -> bool {
        !self.counted && finish != Finish::Done
    }

    #[inline(never)]
    fn consult_policy(&self, key: &K, finish: Finish) -> Option<Duration> {
        match finish {
            Finish::Done => None,
            Finish::Retry => self.ask(|policy| policy.when(key)),
            Finish::Succeed | Finish::RetryAfter(_) => {
                self.ask(|policy| policy.forget(key));
                None
            }
        }
    }

    /// Asks the policy, without the lock. Returns `None` if it panics.
    fn ask<R>(&self, question: impl FnOnce(&dyn RetryPolicy<K>) -> R) -> Option<R> {
        let answer = catch_unwind(AssertUnwindSafe(|| question(&*self.retry)));
        if answer.is_err() {
            self.record(|recorder| recorder.panicked());
        }
        answer.ok()
    }

    /// Returns the delay of a key that is added after a failure; asked without the lock.
    pub(super) fn when(&self, key: &K) -> Duration {
        self.ask(|policy| policy.when(key)).unwrap_or_else(|| default_delay(0))
    }

    /// Counts a failure, if failures are counted, and returns the delay of the key.
    pub(super) fn charge(&self, retries: &mut u32, now: Option<Nanos>) -> Backoff {
        let before = *retries;
        let answer = catch_unwind(AssertUnwindSafe(|| self.delay_by_count(before, now)));
        let panicked = answer.is_err();
        if self.counts || panicked {
            *retries = before.saturating_add(1);
        }
        let delay = answer.ok().flatten().unwrap_or_else(|| default_delay(before));
        Backoff { delay, panicked }
    }

    /// Returns the delay by a policy that depends on the count only.
    #[inline]
    fn delay_by_count(&self, retries: u32, now: Option<Nanos>) -> Option<Duration> {
        let policy = self.retry.by_count()?;
        // What another clock says means nothing to the policy.
        let now = now.filter(|_| self.clock.is_system()).and_then(|now| self.moment(now));
        Some(match now {
            Some(now) => policy.delay_at(retries, now),
            None => policy.delay(retries),
        })
    }

    /// Returns how often a leased key has failed.
    pub(in crate::queue) fn num_requeues_of(&self, slot: u32, key: &K) -> u32 {
        let told = if self.counted { None } else { self.ask(|it| it.num_requeues(key)) };
        told.unwrap_or_else(|| self.peek(|state| state.retries(slot)))
    }

    /// Reports a delayed key, and the panic of its policy if there was one.
    pub(super) fn tell_backoff(&self, backoff: Backoff) {
        self.record(|recorder| {
            recorder.delayed();
            if backoff.panicked {
                recorder.panicked();
            }
        });
    }
}

/// The delay by the default policy.
#[cold]
fn default_delay(retries: u32) -> Duration {
    QueueDefault::default().delay(retries)
}
