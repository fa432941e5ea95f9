//! A span around each run, and events for what failed (feature `tracing`).
//!
//! Without the feature, all of this is empty.

use std::fmt;

/// The span of one run.
#[cfg(feature = "tracing")]
pub(super) struct Span(tracing::Span);

#[cfg(feature = "tracing")]
impl Span {
    pub(super) fn new(
        pool: &str,
        key: &dyn fmt::Debug,
        retries: impl FnOnce() -> u32,
    ) -> Self {
        use tracing::field::Empty;
        let span =
            tracing::info_span!("run", pool, ?key, retries = Empty, outcome = Empty);
        if !span.is_disabled() {
            span.record("retries", retries());
        }
        Self(span)
    }

    pub(super) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.in_scope(work)
    }

    pub(super) fn ended(&self, outcome: &dyn fmt::Debug) {
        self.0.record("outcome", tracing::field::debug(outcome));
    }

    /// Tells of a failure. The alternate form of an error shows its causes, if it has one.
    pub(super) fn failed(&self, failure: &dyn fmt::Display, dead: bool) {
        let error = format_args!("{failure:#}");
        self.0.in_scope(|| {
            if dead {
                tracing::error!(error, "the run failed and the key is dead");
            } else {
                tracing::warn!(error, "the run failed and the key is retried");
            }
        });
    }

    pub(super) fn overran(&self) {
        self.0.in_scope(|| tracing::warn!("the run took longer than its timeout"));
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(super) fn new(_: &str, _: &dyn fmt::Debug, _: impl FnOnce() -> u32) -> Self {
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
