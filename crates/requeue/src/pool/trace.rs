//! A span around each run, and events for failures (feature `tracing`).
//!
//! Without the feature, a span does nothing. With it, user code formats keys and errors and
//! receives the events. Its panics are contained here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::failure::Failure;
use super::source::Work;
#[cfg(feature = "tracing")]
use crate::contain::contain;
use crate::metrics::RunResult;

/// The span of one run. Holds `None` if the subscriber or the key panicked when it was made.
pub(super) struct RunSpan(#[cfg(feature = "tracing")] Option<tracing::Span>);

impl RunSpan {
    /// Calls user code inside the span. A panic is a failure of the run.
    pub(super) fn attempt<T>(&self, call: impl FnOnce() -> T) -> Result<T, Failure> {
        let called = catch_unwind(AssertUnwindSafe(|| self.enter(call)));
        called.map_err(Failure::from_panic)
    }
}

#[cfg(feature = "tracing")]
impl RunSpan {
    /// Makes a span for the key of a lease. Its retries are counted only for a subscriber.
    pub(super) fn new<W: Work>(pool: &str, lease: &W) -> Self {
        use tracing::field::Empty;
        let span = Self(contain(|| {
            let key = lease.key();
            tracing::info_span!("run", pool, ?key, retries = Empty, outcome = Empty)
        }));
        // A separate step: a panic here must not drop the span while it unwinds.
        span.report(|span| {
            if !span.is_disabled() {
                span.record("retries", lease.num_requeues());
            }
        });
        span
    }

    fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(span) => span.in_scope(work),
            None => work(),
        }
    }

    fn report(&self, report: impl FnOnce(&tracing::Span)) {
        if let Some(span) = &self.0 {
            contain(|| span.in_scope(|| report(span)));
        }
    }

    pub(super) fn ended(&self, result: RunResult) {
        self.report(|span| {
            span.record("outcome", tracing::field::debug(result));
        });
    }

    /// Reports a failure. The alternate form of many errors includes their causes.
    pub(super) fn failed(&self, failure: &Failure, dead: bool) {
        self.report(|_| {
            if dead {
                tracing::error!(
                    error = format_args!("{failure:#}"),
                    "run failed, the key is dead"
                );
            } else {
                tracing::warn!(error = format_args!("{failure:#}"), "run failed");
            }
        });
    }

    pub(super) fn overran(&self) {
        self.report(|_| tracing::warn!("run exceeded its timeout"));
    }
}

#[cfg(feature = "tracing")]
impl Drop for RunSpan {
    fn drop(&mut self) {
        contain(|| drop(self.0.take()));
    }
}

#[cfg(not(feature = "tracing"))]
#[expect(clippy::unused_self, reason = "the feature uses it")]
impl RunSpan {
    pub(super) fn new<W: Work>(_: &str, _: &W) -> Self {
        Self()
    }

    fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(super) fn ended(&self, _: RunResult) {}

    pub(super) fn failed(&self, _: &Failure, _: bool) {}

    pub(super) fn overran(&self) {}
}
