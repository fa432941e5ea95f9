//! What all workers of one pool go by, and what happens before and after each run.

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::outcome::Failure;
use super::roster::Seat;
use super::source::Work;
use super::trace::Span;
use super::verdict::{Ran, Verdict};
use crate::Clock;
use crate::metrics::PoolRecorder;

/// Hears of a key that failed.
pub(super) type OnFailure<K, E> = Box<dyn Fn(&K, &Failure<E>) + Send + Sync>;

/// What a pool was built with.
pub(super) struct Terms<K, E> {
    pub(super) name: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeout: Option<Duration>,
    pub(super) max_retries: Option<u32>,
    pub(super) on_failure: Option<OnFailure<K, E>>,
    pub(super) on_dead: Option<OnFailure<K, E>>,
    pub(super) recorder: Option<Arc<dyn PoolRecorder>>,
}

/// A run that is under way.
pub(super) struct Run {
    span: Span,
    /// Read only if something depends on it.
    started: Option<Instant>,
}

impl Run {
    /// Calls the user's code inside the span, and catches its panic. What it may leave
    /// behind is the user's: nothing of ours is changed in there.
    pub(super) fn attempt<T>(&self, call: impl FnOnce() -> T) -> thread::Result<T> {
        catch_unwind(AssertUnwindSafe(|| self.span.enter(call)))
    }
}

impl<K, E> Terms<K, E>
where
    K: Clone + Debug,
    E: Display,
{
    pub(super) fn begin(&self, seat: &Seat<K>, lease: &impl Work<Key = K>) -> Run {
        seat.run(Some(lease.key().clone()));
        let span = Span::new(&self.name, lease.key(), || lease.num_requeues());
        let timed = self.recorder.is_some() || self.timeout.is_some();
        let started = timed.then(|| self.clock.now());
        if let Some(recorder) = &self.recorder {
            recorder.started();
        }
        Run { span, started }
    }

    /// When the run is to be cancelled, if ever.
    #[cfg(feature = "tokio")]
    pub(super) fn deadline(&self, run: &Run) -> Option<(Instant, Duration)> {
        let timeout = self.timeout?;
        Some((run.started?.checked_add(timeout)?, timeout))
    }

    /// Tells everybody who wants to know, and says how the lease is to end.
    pub(super) fn end(
        &self,
        seat: &Seat<K>,
        lease: &impl Work<Key = K>,
        run: &Run,
        ran: Ran<E>,
    ) -> Verdict<E> {
        let took = run.started.map(|moment| self.clock.now() - moment);
        let verdict = Verdict::on(ran, || self.may_retry(lease));
        self.record(&verdict, run, took.unwrap_or_default());
        if let Some(failure) = &verdict.failure {
            self.tell(lease.key(), failure, verdict.dead, run);
        }
        seat.run(None);
        verdict
    }

    fn may_retry(&self, lease: &impl Work) -> bool {
        self.max_retries.is_none_or(|max| lease.num_requeues() < max)
    }

    fn record(&self, verdict: &Verdict<E>, run: &Run, took: Duration) {
        run.span.ended(&verdict.ended);
        let timed_out = matches!(verdict.failure, Some(Failure::TimedOut(_)));
        let overran = !timed_out && self.timeout.is_some_and(|timeout| took > timeout);
        if overran {
            run.span.overran();
        }
        let Some(recorder) = &self.recorder else { return };
        if overran {
            recorder.overran();
        }
        if verdict.dead {
            recorder.dead();
        }
        recorder.ended(verdict.ended, took);
    }

    /// The callbacks are the user's: a panic of theirs must cost neither the worker nor
    /// the outcome.
    fn tell(&self, key: &K, failure: &Failure<E>, dead: bool, run: &Run) {
        run.span.failed(failure, dead);
        let on_dead = self.on_dead.as_ref().filter(|_| dead);
        for callback in self.on_failure.iter().chain(on_dead) {
            drop(run.attempt(|| callback(key, failure)));
        }
    }
}
