//! The retry policy of a queue, asked in a way that its panic costs neither a key nor a
//! worker.
//!
//! There are two kinds of policies. One that depends on the number of failures only
//! ([`ByCount`]) is asked under the lock, and the key's slot counts. Any other policy counts
//! by itself and is asked without the lock.
//!
//! If a policy panics when a lease ends, the default backoff takes its place, by the
//! failures that the key's slot has counted. In `add_rate_limited`, a policy that counts by
//! itself is replaced by the first delay of the default backoff.

use std::time::Duration;

use super::finish::Finish;
use crate::contain::contain;
use crate::retry::{ByCount, QueueDefault, RetryPolicy};

pub(super) struct Policy<K> {
    retry: Box<dyn RetryPolicy<K>>,
    kind: PolicyKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyKind {
    /// Depends on the count only.
    ByCount {
        /// Whether failures are counted at all.
        counts: bool,
    },
    /// Counts by itself.
    ByKey,
}

/// The delay of a key that is added again.
#[derive(Clone, Copy)]
pub(super) struct Backoff {
    pub(super) delay: Duration,
    /// Whether the policy panicked, and that has not been reported.
    pub(super) panicked: bool,
}

/// The answer of a policy that counts by itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Advice {
    /// The delay, if the policy was asked for one and did not panic.
    pub(super) delay: Option<Duration>,
    pub(super) panicked: bool,
}

impl<K> Policy<K> {
    pub(super) fn new(retry: Box<dyn RetryPolicy<K>>) -> Self {
        let by_count = retry.by_count().map(ByCount::counts);
        let kind =
            by_count.map_or(PolicyKind::ByKey, |counts| PolicyKind::ByCount { counts });
        Self { retry, kind }
    }

    /// Returns whether the key's slot counts its failures.
    pub(super) fn is_by_count(&self) -> bool {
        self.kind != PolicyKind::ByKey
    }

    /// Returns whether the policy must be asked, without the lock, when a lease ends.
    #[inline]
    pub(super) fn takes_part(&self, finish: Finish) -> bool {
        self.kind == PolicyKind::ByKey
            && !matches!(finish, Finish::Done | Finish::Release)
    }

    /// Tells a policy that counts by itself how a lease ends; called without the lock.
    pub(super) fn advise(&self, key: &K, finish: Finish) -> Advice {
        match finish {
            Finish::Retry | Finish::RetryAfter(_) => self.when(key),
            Finish::Succeed | Finish::RequeueAfter(_) | Finish::GiveUp => {
                let panicked = self.ask(|policy| policy.forget(key)).is_none();
                Advice { delay: None, panicked }
            }
            Finish::Done | Finish::Release => Advice::default(),
        }
    }

    /// Asks a policy that counts by itself for the delay of a failed key; called without
    /// the lock.
    pub(super) fn when(&self, key: &K) -> Advice {
        let delay = self.ask(|policy| policy.when(key));
        Advice { delay, panicked: delay.is_none() }
    }

    /// Counts a failure, if failures are counted, and returns the delay of the key.
    pub(super) fn count(&self, failures: &mut u32) -> Backoff {
        let before = *failures;
        let delay = self.ask(|policy| policy.by_count().map(|by| by.delay(before)));
        let panicked = delay.is_none();
        if panicked || self.kind != (PolicyKind::ByCount { counts: false }) {
            *failures = before.saturating_add(1);
        }
        let delay = delay.flatten().unwrap_or_else(|| default_delay(before));
        Backoff { delay, panicked }
    }

    /// Forgets the failures of a key; for a policy that counts by itself.
    pub(super) fn forget(&self, key: &K) {
        self.retry.forget(key);
    }

    /// Returns how often a key has failed; for a policy that counts by itself.
    pub(super) fn num_requeues(&self, key: &K) -> u32 {
        self.retry.num_requeues(key)
    }

    /// As [`num_requeues`](Self::num_requeues), but returns `None` if the policy panics.
    pub(super) fn try_num_requeues(&self, key: &K) -> Option<u32> {
        self.ask(|policy| policy.num_requeues(key))
    }

    /// Asks the policy. Returns `None` if it panics.
    fn ask<R>(&self, question: impl FnOnce(&dyn RetryPolicy<K>) -> R) -> Option<R> {
        contain(|| question(&*self.retry))
    }
}

/// The delay by the default policy.
#[cold]
pub(super) fn default_delay(failures: u32) -> Duration {
    QueueDefault::default().delay(failures)
}
