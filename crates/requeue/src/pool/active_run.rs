//! A run under way: a leased key, and the steps before and after its handler.
//!
//! Each call of user code is contained, so that a run always ends, and its lease with it.
//! Panics of the handler and of the callbacks go through [`RunSpan::attempt`]; the clock,
//! the recorder and the span contain their own.
//!
//! A task's run can be dropped at any await, when its runtime shuts down. Its key is then
//! released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::outcome::Outcome;
#[cfg(feature = "tokio")]
use super::run::Cancellation;
use super::run::Run;
use super::source::{Expiry, Work};
use super::trace::RunSpan;
#[cfg(feature = "tokio")]
use super::worker_set::Listener;
use super::{Callbacks, PoolInner};
use crate::contain::contain;

/// A run under way.
pub(super) struct ActiveRun<'a, W: Work> {
    pool: &'a Arc<PoolInner>,
    callbacks: &'a Callbacks<W::Key>,
    /// `None` only between the end of the run and its drop.
    lease: Option<W>,
    expiry: Option<Arc<dyn Expiry>>,
    pub(super) span: RunSpan,
    /// Read only if a timeout or a recorder needs it.
    started: Option<Instant>,
}

impl<'a, W: Work> ActiveRun<'a, W> {
    pub(super) fn begin(
        pool: &'a Arc<PoolInner>,
        callbacks: &'a Callbacks<W::Key>,
        lease: W,
    ) -> Self {
        let span = RunSpan::new(&pool.name, &lease);
        let timed = pool.recorder.is_some() || pool.timeout.is_some();
        let started = if timed { pool.time.now() } else { None };
        pool.record(|recorder| recorder.started());
        let expiry = contain(|| lease.expiry()).flatten();
        Self { pool, callbacks, lease: Some(lease), expiry, span, started }
    }

    fn lease(&self) -> &W {
        self.lease.as_ref().expect("a run that has ended cannot be reached")
    }

    /// Makes the value that the handler gets.
    pub(super) fn run(&self) -> Run<W::Key> {
        let lease = self.lease();
        let failures = contain(|| lease.num_requeues()).unwrap_or_default();
        Run {
            key: lease.key().clone(),
            attempt: failures.saturating_add(1),
            priority: lease.priority(),
            started: self.started,
            expiry: self.expiry.clone(),
            pool: Arc::clone(self.pool),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn cancellation<'b>(
        &self,
        listener: &'b mut Listener,
    ) -> Cancellation<&'b mut Listener> {
        Cancellation::new(listener, self.pool, self.started, self.expiry.as_ref())
    }

    /// Reports how the run ended, and ends the lease accordingly.
    ///
    /// Returns the future of the next key, or `None` if the lease panicked when it ended.
    pub(super) fn finish(mut self, mut outcome: Outcome) -> Option<W::Next> {
        outcome.limit_retries(|| self.may_retry());
        self.record(&outcome);
        if let Some(failure) = &outcome.failure {
            self.span.failed(failure, outcome.is_dead());
            self.call_back(failure, outcome.is_dead());
        }
        let next = self.end(&outcome);
        contain(|| drop(outcome));
        next
    }

    fn end(&mut self, outcome: &Outcome) -> Option<W::Next> {
        let lease = self.lease.take()?;
        contain(|| lease.next(outcome.finish, outcome.failure.as_ref()))
    }

    /// Returns whether a failed key is retried. A count that panics does not forbid it.
    fn may_retry(&self) -> bool {
        let Some(max) = self.pool.max_retries else { return true };
        contain(|| self.lease().num_requeues()).is_none_or(|retries| retries < max)
    }

    fn record(&self, outcome: &Outcome) {
        let pool = self.pool;
        let took = self.started.map(|moment| pool.time.since(moment));
        let took = took.unwrap_or_default();
        self.span.ended(outcome.result);
        if self.overran(took, outcome) {
            self.span.overran();
            pool.record(|recorder| recorder.overran());
        }
        if outcome.is_dead() {
            pool.record(|recorder| recorder.dead());
        }
        pool.record(|recorder| recorder.ended(outcome.result, took));
    }

    /// Returns whether the run exceeded its timeout and was not cancelled for it.
    fn overran(&self, took: Duration, outcome: &Outcome) -> bool {
        let cancelled = matches!(outcome.failure, Some(Failure::TimedOut(_)));
        !cancelled && self.pool.timeout.is_some_and(|timeout| took > timeout)
    }

    fn call_back(&self, failure: &Failure, dead: bool) {
        let Callbacks { on_failure, on_dead } = self.callbacks;
        for callback in on_failure.iter().chain(on_dead.as_ref().filter(|_| dead)) {
            let called = self.span.attempt(|| callback(self.lease().key(), failure));
            called.unwrap_or_default();
        }
    }
}

/// Releases the key of a run that was interrupted: its runtime has shut down.
impl<W: Work> Drop for ActiveRun<'_, W> {
    fn drop(&mut self) {
        if self.lease.is_some() {
            let outcome = Outcome::released();
            self.record(&outcome);
            let next = self.end(&outcome);
            contain(|| drop(next));
        }
    }
}
