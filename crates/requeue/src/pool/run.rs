//! A run as its handler sees it.

use std::borrow::BorrowMut;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::PoolInner;
use super::failure::Failure;
use super::outcome::Outcome;
use super::source::Expiry;
use super::time::Sleep;
use super::worker_set::Listener;
use crate::contain::contain;

/// One run of a handler: the key, and what is known about its lease.
///
/// It dereferences to the key. A handler on a thread gets a reference; a task owns its run.
///
/// # Cancellation
///
/// A run is cancelled when the pool [stops](super::Handle::stop) at its deadline, when the
/// run exceeds the [timeout](super::Pool::timeout), or when its lease is lost. The future of
/// a task is then dropped. A thread cannot be interrupted: a handler that runs for long
/// checks [`is_cancelled`](Self::is_cancelled).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::pool::Pool;
/// use requeue::{Finish, Queue};
///
/// let queue = Queue::new();
/// queue.add("report.csv".to_owned())?;
/// let pool = Pool::new(queue).spawn_threads(|run| {
///     println!("attempt {} of {}", run.attempt(), run.key());
///     for _line in 0..1000 {
///         if run.is_cancelled() {
///             return Finish::Release;
///         }
///     }
///     Finish::Succeed
/// })?;
/// assert!(pool.drain_blocking(Duration::from_secs(10)).left.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Run<K> {
    pub(super) key: K,
    pub(super) attempt: u32,
    pub(super) priority: i32,
    pub(super) started: Option<Instant>,
    pub(super) expiry: Option<Arc<dyn Expiry>>,
    pub(super) pool: Arc<PoolInner>,
}

impl<K> Run<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the key by value.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Returns 1 for the first run of a key, and one more after each failure in a row.
    ///
    /// The retry policy of the queue counts the failures. A policy that does not count, such
    /// as [`Bucket`](crate::retry::Bucket) alone, leaves this at 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the priority with which the key was queued.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns the fencing token of the lease, if the queue is on a store.
    ///
    /// Later leases of a key have greater tokens. Pass it to the systems that the handler
    /// changes, so that they can refuse a worker whose lease has expired.
    pub fn token(&self) -> Option<u64> {
        self.expiry.as_ref().map(|expiry| expiry.token())
    }

    /// Returns when the lease expires unless it is extended, if the queue is on a store.
    ///
    /// The lease is extended in the background, so the deadline moves.
    pub fn lease_deadline(&self) -> Option<Instant> {
        self.expiry.as_ref().and_then(|expiry| expiry.deadline())
    }

    /// Returns whether the run is cancelled.
    pub fn is_cancelled(&self) -> bool {
        let lost = |expiry: &Arc<dyn Expiry>| contain(|| expiry.is_lost()) == Some(true);
        self.pool.worker_set.is_cancelled()
            || self.pool.time_left(self.started) == Some(Duration::ZERO)
            || self.expiry.as_ref().is_some_and(lost)
    }

    /// Waits until the run is cancelled.
    ///
    /// The future does not borrow the run, so it can move to another task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<K> {
        let listener = Listener::new(&self.pool.worker_set);
        let mut cancellation =
            Cancellation::new(listener, &self.pool, self.started, self.expiry.as_ref());
        poll_fn(move |cx| cancellation.poll(cx).map(drop))
    }
}

impl<K> Deref for Run<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug> fmt::Debug for Run<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("key", &self.key)
            .field("attempt", &self.attempt)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Waits until a run is cancelled. A worker lends its listener, which is already registered.
pub(super) struct Cancellation<L> {
    listener: L,
    timeout: Option<(Duration, Sleep)>,
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<L: BorrowMut<Listener>> Cancellation<L> {
    pub(super) fn new(
        listener: L,
        pool: &PoolInner,
        started: Option<Instant>,
        expiry: Option<&Arc<dyn Expiry>>,
    ) -> Self {
        let sleep = pool.time_left(started).map(|left| pool.time.sleep(left));
        Self {
            listener,
            timeout: pool.timeout.zip(sleep),
            lost: expiry.and_then(|expiry| contain(|| expiry.lost())),
        }
    }

    /// Returns the outcome of the run, once it is cancelled.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let listener = self.listener.borrow_mut();
        listener.listen(cx.waker());
        if listener.worker_set().is_cancelled() || self.poll_lost(cx).is_ready() {
            return Poll::Ready(Outcome::released());
        }
        let Some((timeout, sleep)) = &mut self.timeout else { return Poll::Pending };
        let outcome = |()| Outcome::retried(Failure::TimedOut(*timeout));
        Pin::new(sleep).poll(cx).map(outcome)
    }

    /// A lease that panics when it is asked is never lost.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(lost) = &mut self.lost else { return Poll::Pending };
        contain(|| lost.as_mut().poll(cx)).unwrap_or_else(|| {
            let panicked = self.lost.take();
            contain(|| drop(panicked));
            Poll::Pending
        })
    }
}

/// Drops the future of the lease, which is user code.
impl<L> Drop for Cancellation<L> {
    fn drop(&mut self) {
        let lost = self.lost.take();
        contain(|| drop(lost));
    }
}
