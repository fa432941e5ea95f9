//! A span around each run, and events for what failed (feature `tracing`).
//!
//! Without the feature, all of this is empty. With it, formatting a key or an error and
//! calling the subscriber run foreign code. Panics are contained here, except in `enter`,
//! whose caller does that.

use std::fmt;

use super::source::Work;
#[cfg(feature = "tracing")]
use crate::contain::contain;

/// The span of one run. `None` if the subscriber or the key panicked when it was made.
#[cfg(feature = "tracing")]
pub(super) struct Span(Option<tracing::Span>);

#[cfg(feature = "tracing")]
impl Span {
    /// Makes a span for the key of a lease. Its retries are counted only for a subscriber.
    pub(super) fn new<W: Work<Key: fmt::Debug>>(pool: &str, lease: &W) -> Self {
        use tracing::field::Empty;
        let span = Self(contain(|| {
            let key = lease.key();
            tracing::info_span!("run", pool, ?key, retries = Empty, outcome = Empty)
        }));
        // A step by itself: a panic here must not drop the span while it unwinds.
        span.report(|span| {
            if !span.is_disabled() {
                span.record("retries", lease.num_requeues());
            }
        });
        span
    }

    pub(super) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
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

    pub(super) fn ended(&self, outcome: &dyn fmt::Debug) {
        self.report(|span| {
            span.record("outcome", tracing::field::debug(outcome));
        });
    }

    /// Reports a failure. The alternate form of many errors includes their causes.
    pub(super) fn failed(&self, failure: &dyn fmt::Display, dead: bool) {
        self.report(|_| {
            let error = format_args!("{failure:#}");
            if dead {
                tracing::error!(error, "the run failed and the key is dead");
            } else {
                tracing::warn!(error, "the run failed and the key is retried");
            }
        });
    }

    pub(super) fn overran(&self) {
        self.report(|_| tracing::warn!("the run took longer than its timeout"));
    }
}

#[cfg(feature = "tracing")]
impl Drop for Span {
    fn drop(&mut self) {
        contain(|| drop(self.0.take()));
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(super) fn new<W: Work<Key: fmt::Debug>>(_: &str, _: &W) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn ended(&self, _: &dyn fmt::Debug) {}

    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn failed(&self, _: &dyn fmt::Display, _: bool) {}

    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn overran(&self) {}
}
