//! Finishing leases: the one way in which a leased key returns to the queue.
//!
//! A [`FinishRequest`] says which lease ends and how. It is carried out in three steps:
//!
//! 1. Without the lock, a retry policy that counts by itself is asked for advice.
//! 2. Under the lock, failures are counted or forgotten, the key is added again if the
//!    finish says so, and the lease ends. A policy that depends only on the number of
//!    failures is asked here.
//! 3. After the lock is released, the [`Finished`] lease is reported and its copies of the
//!    key are dropped.
//!
//! Finishing does not fail: a panic of user code is contained here or in `state.rs`.

use std::time::Duration;

use super::nanos::Nanos;
use super::policy::Backoff;
use super::shared::{CatchUp, Shared, nanos};
use super::state::{State, Taken};
use crate::contain::contain;

/// How a lease ends.
///
/// | finish | meaning | failures | then |
/// |---|---|---|---|
/// | `Succeed` | success | forgotten | – |
/// | `RequeueAfter` | success; run again later | forgotten | added after the delay |
/// | `Retry` | failure | counted | added after a delay that the retry policy chooses |
/// | `RetryAfter` | failure; the delay is known | counted | added after the delay |
/// | `GiveUp` | permanent failure | forgotten | dead |
/// | `Release` | not processed | kept | ready again at once |
/// | `Done` | the lease ends, nothing else | kept | – |
///
/// In each case a key that was added during its lease becomes ready. For a queue in memory,
/// `GiveUp` has the effect of `Succeed`; the callbacks and metrics of a
/// [pool](crate::pool) report the key as dead. A store keeps dead keys for inspection.
///
/// A [`Lease`](crate::Lease) has a method of the same name for each variant. A handler of a
/// [pool](crate::pool) can return a `Finish`, or `()` for `Succeed`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::{Finish, Queue};
///
/// let queue = Queue::new();
/// queue.add("status page")?;
/// let lease = queue.try_get()?;
/// lease.finish(Finish::RequeueAfter(Duration::from_secs(60)));
/// assert_eq!(queue.counts().delayed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Finish {
    /// Success. The failures of the key are forgotten.
    #[default]
    #[doc(alias = "Forget")]
    Succeed,
    /// Success. The key runs again after this delay, and its failures are forgotten.
    RequeueAfter(Duration),
    /// Failure. The key runs again after a delay that the retry policy chooses.
    #[doc(alias = "AddRateLimited")]
    Retry,
    /// Failure. The key runs again after this delay; use it for a delay that a server asks
    /// for, such as an HTTP `Retry-After`. The failure counts, as that of `Retry` does.
    RetryAfter(Duration),
    /// Permanent failure. The key is dead, and its failures are forgotten.
    #[doc(alias = "TerminalError")]
    GiveUp,
    /// Not processed, for example because the worker shuts down. The key is ready again at
    /// once, and its failures are kept.
    Release,
    /// Ends the lease and does nothing else. The failures of the key are kept.
    Done,
}

impl From<()> for Finish {
    fn from((): ()) -> Self {
        Self::Succeed
    }
}

impl Finish {
    /// Returns whether the key is not added again by this finish.
    #[inline]
    fn is_final(self) -> bool {
        matches!(self, Self::Succeed | Self::GiveUp | Self::Done)
    }
}

/// A lease that is to end.
pub(super) struct FinishRequest<K> {
    /// Its key is the lease's own copy, to be dropped after the lock is released.
    pub(super) taken: Taken<K>,
    pub(super) finish: Finish,
    /// The delay chosen by a retry policy that counts by itself.
    pub(super) advice: Option<Duration>,
}

impl<K> FinishRequest<K> {
    /// Returns which delays end before the lease does. If the key becomes ready with its end,
    /// all due keys come first, as in client-go.
    #[inline]
    pub(super) fn catch_up(&self, state: &State<K>) -> CatchUp {
        if self.finish.is_final() && !state.done_needs_time(self.taken.slot) {
            CatchUp::Not
        } else {
            CatchUp::Fully
        }
    }
}

/// The work that is left for an ended lease after the lock is released.
#[must_use = "report it after the lock is released"]
pub(super) struct Finished<K> {
    /// The lease's copy of the key, and a key that the queue has forgotten, which may be
    /// another one.
    keys: (K, Option<K>),
    /// The delay of a key that was retried or requeued.
    backoff: Option<Backoff>,
}

impl<K> Shared<K> {
    /// Asks for advice and makes the request.
    #[inline]
    pub(super) fn request(&self, taken: Taken<K>, finish: Finish) -> FinishRequest<K> {
        let advice = self.advice(&taken.key, finish);
        FinishRequest { taken, finish, advice }
    }

    #[inline]
    fn advice(&self, key: &K, finish: Finish) -> Option<Duration> {
        if self.policy.takes_part(finish) { self.ask(key, finish) } else { None }
    }

    #[inline(never)]
    fn ask(&self, key: &K, finish: Finish) -> Option<Duration> {
        let advice = self.policy.advise(key, finish);
        if advice.panicked {
            self.record(|recorder| recorder.panicked());
        }
        advice.delay
    }

    /// Ends a lease. Returns the delay of a key that is retried or requeued.
    #[inline(always)]
    pub(super) fn finish(&self, request: FinishRequest<K>) -> Option<Duration> {
        let mut locked = self.lock_to_end(|state| request.catch_up(state));
        let now = locked.now;
        let finished = self.end(&mut locked.state, request, now);
        locked.unlock();
        let backoff = finished.backoff;
        self.report(finished);
        backoff.map(|backoff| backoff.delay)
    }

    /// Ends many leases in the same way, in one lock.
    pub(super) fn finish_all(&self, taken: Vec<Taken<K>>, finish: Finish) {
        let takes_part = self.policy.takes_part(finish);
        if finish.is_final() && !takes_part {
            return self.end_all(taken, finish);
        }
        // A policy that counts by itself is asked for all keys first, without the lock.
        let requests: Vec<_> =
            taken.into_iter().map(|taken| self.request(taken, finish)).collect();
        let mut reports = Vec::new();
        let mut locked = self.lock_to_end(|_| CatchUp::Fully);
        for request in requests {
            let now = locked.now;
            let finished = self.end(&mut locked.state, request, now);
            if !self.is_silent(&finished) {
                reports.push(finished);
            }
        }
        locked.unlock();
        for finished in reports {
            self.report(finished);
        }
    }

    /// Ends many leases whose keys are not added again.
    #[inline]
    fn end_all(&self, taken: Vec<Taken<K>>, finish: Finish) {
        let slots = taken.iter().map(|taken| taken.slot);
        let mut locked = self.lock_to_end(|_| CatchUp::Fully);
        let forgotten = locked.state.done_many(slots, finish != Finish::Done);
        locked.unlock();
        if std::mem::needs_drop::<K>() {
            drop_each(forgotten);
            drop_each(taken);
        }
    }

    /// Ends a lease, with the lock held.
    ///
    /// The add comes before the done, as in client-go: a key that is retried at once is
    /// dirty when it is done, and so goes to the tail.
    #[inline(always)]
    pub(super) fn end(
        &self,
        state: &mut State<K>,
        request: FinishRequest<K>,
        now: Option<Nanos>,
    ) -> Finished<K> {
        let slot = request.taken.slot;
        let backoff = match request.finish {
            Finish::Done => None,
            Finish::Succeed | Finish::GiveUp => {
                state.clear_failures(slot);
                None
            }
            Finish::RequeueAfter(_)
            | Finish::Retry
            | Finish::RetryAfter(_)
            | Finish::Release => self.requeue(state, &request, now),
        };
        let forgotten = state.done(slot);
        Finished { keys: (request.taken.key, forgotten), backoff }
    }

    /// Adds the key again, just before its lease ends. Returns its delay, unless it was
    /// released.
    #[inline(never)]
    fn requeue(
        &self,
        state: &mut State<K>,
        request: &FinishRequest<K>,
        now: Option<Nanos>,
    ) -> Option<Backoff> {
        let backoff = self.settle_failures(state, request);
        let delay = backoff.map_or(Duration::ZERO, |backoff| backoff.delay);
        let Taken { slot, priority, .. } = request.taken;
        if delay.is_zero() && !state.is_closed() {
            state.add_slot(slot, priority);
            return backoff;
        }
        let now = now.unwrap_or_else(|| self.now_under_lock(state));
        state.observe_time(now);
        state.delay_slot(slot, now.saturating_add(nanos(delay)), priority);
        backoff
    }

    /// Counts or forgets failures. Returns the delay, unless the key was released.
    fn settle_failures(
        &self,
        state: &mut State<K>,
        request: &FinishRequest<K>,
    ) -> Option<Backoff> {
        let slot = request.taken.slot;
        let mut count = || match request.advice {
            Some(delay) => Backoff { delay, panicked: false },
            None => self.policy.count(state.failures(slot)),
        };
        match request.finish {
            Finish::Retry => Some(count()),
            Finish::RetryAfter(delay) => Some(Backoff { delay, ..count() }),
            Finish::RequeueAfter(delay) => {
                state.clear_failures(slot);
                Some(Backoff { delay, panicked: false })
            }
            Finish::Succeed | Finish::GiveUp | Finish::Release | Finish::Done => None,
        }
    }

    /// Returns whether nothing is left to do for an ended lease: no delay is reported, and
    /// dropping the key runs no code.
    fn is_silent(&self, finished: &Finished<K>) -> bool {
        let reported = finished.backoff.is_some() && self.is_measured();
        !reported && !std::mem::needs_drop::<K>()
    }

    /// Reports an ended lease and drops its keys, after the lock is released.
    #[inline]
    pub(super) fn report(&self, finished: Finished<K>) {
        let Finished { keys, backoff } = finished;
        if let Some(backoff) = backoff {
            self.report_backoff(backoff);
        }
        if std::mem::needs_drop::<K>() {
            let (leased, forgotten) = keys;
            drop_contained(forgotten);
            drop_contained(leased);
        }
    }

    /// Reports a delayed key, and the panic of its policy if there was one.
    pub(super) fn report_backoff(&self, backoff: Backoff) {
        self.record(|recorder| {
            recorder.delayed();
            if backoff.panicked {
                recorder.panicked();
            }
        });
    }
}

/// Drops a key, which is user code.
#[inline]
fn drop_contained<T>(key: T) {
    contain(|| drop(key));
}

/// Drops keys one by one, so that a panic costs no other.
pub(super) fn drop_each<T>(keys: Vec<T>) {
    keys.into_iter().for_each(drop_contained);
}
