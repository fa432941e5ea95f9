//! One run: a leased key and what happens before and after its handler.
//!
//! Everything here that calls user code contains its panics, so that a run always ends and
//! its lease with it. Panics of the handler and of the callbacks go through
//! [`Run::attempt`]; the clock, the recorder and the span contain their own.
//!
//! A task's run can be dropped at any await, when its runtime shuts down. It is then retried.

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::config::Config;
use super::outcome::Failure;
use super::source::{Conclusion, Work};
use super::trace::Span;
use super::verdict::{Ran, Verdict};
use crate::contain::contain;
use crate::metrics::Ended;

/// A run under way.
pub(super) struct Run<'a, W: Work, E> {
    config: &'a Config<W::Key, E>,
    /// `None` only between the end of the run and its drop.
    lease: Option<W>,
    span: Span,
    /// Read only if a timeout or a recorder needs it.
    started: Option<Instant>,
}

impl<'a, W: Work, E> Run<'a, W, E> {
    pub(super) fn begin(config: &'a Config<W::Key, E>, lease: W) -> Self
    where
        W::Key: Debug,
    {
        let span = Span::new(&config.name, &lease);
        let timed = config.recorder.is_on() || config.timeout.is_some();
        let started = if timed { config.time.now() } else { None };
        config.recorder.record(|recorder| recorder.started());
        Self { config, lease: Some(lease), span, started }
    }

    pub(super) fn lease(&mut self) -> &mut W {
        self.lease.as_mut().expect("a run that has ended cannot be reached")
    }

    /// Calls user code inside the span. A panic is a failure of the run.
    pub(super) fn attempt<T>(
        &mut self,
        call: impl FnOnce(&mut W) -> T,
    ) -> Result<T, Failure<E>> {
        let lease = self.lease.as_mut().expect("a run that has ended cannot be reached");
        let span = &self.span;
        let called = catch_unwind(AssertUnwindSafe(|| span.enter(|| call(lease))));
        called.map_err(Failure::from_panic)
    }

    fn took(&self) -> Duration {
        let took = self.started.map(|moment| self.config.time.since(moment));
        took.unwrap_or_default()
    }

    fn record(&self, ended: Ended, dead: bool) {
        let took = self.took();
        self.span.ended(&ended);
        let timeout = self.config.timeout.filter(|_| ended != Ended::TimedOut);
        let recorder = &self.config.recorder;
        if timeout.is_some_and(|timeout| took > timeout) {
            self.span.overran();
            recorder.record(|recorder| recorder.overran());
        }
        if dead {
            recorder.record(|recorder| recorder.dead());
        }
        recorder.record(|recorder| recorder.ended(ended, took));
    }
}

impl<W: Work, E: Display> Run<'_, W, E> {
    /// Reports how the run ended, and ends the lease accordingly.
    ///
    /// Returns what waits for the next key; `None` if the lease panicked when it ended.
    pub(super) fn finish(mut self, ran: Ran<E>) -> Option<W::Next> {
        let verdict = Verdict::on(ran, || self.may_retry());
        self.record(verdict.ended, verdict.dead);
        if let Some(failure) = &verdict.failure {
            self.span.failed(failure, verdict.dead);
            self.call_back(failure.get(), verdict.dead);
        }
        let lease = self.lease.take().expect("a run ends once");
        let next = contain(|| lease.next(&verdict.conclusion()));
        contain(|| drop(verdict));
        next
    }

    /// Returns whether a failed key is retried. A count that panics does not forbid it.
    fn may_retry(&mut self) -> bool {
        let Some(max) = self.config.max_retries else { return true };
        contain(|| self.lease().num_requeues()).is_none_or(|retries| retries < max)
    }

    fn call_back(&mut self, failure: &Failure<E>, dead: bool) {
        let config = self.config;
        let on_dead = config.on_dead.as_ref().filter(|_| dead);
        for callback in config.on_failure.iter().chain(on_dead) {
            let called = self.attempt(|lease| callback(lease.key(), failure));
            called.unwrap_or_default();
        }
    }
}

/// A run that was interrupted: its runtime has shut down.
impl<W: Work, E> Drop for Run<'_, W, E> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.record(Ended::Cancelled, false);
            contain(|| drop(lease.next(&Conclusion::interrupted())));
        }
    }
}
