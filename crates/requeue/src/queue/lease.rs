//! Exclusive access to one key, and the ways to end it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::finish::{Finish, FinishRequest};
use super::get::Get;
use super::shared::Shared;
use super::state::Taken;

/// Exclusive access to one key.
///
/// No other worker receives the key while its lease exists. Finishing consumes the lease, so
/// a key cannot be finished twice or by code that does not hold the lease:
///
/// | the run | call | client-go |
/// |---|---|---|
/// | succeeded | [`succeed`](Lease::succeed) | `Forget`, `Done` |
/// | succeeded; run it again after a delay | [`requeue_after`](Lease::requeue_after) | `Forget`, `AddAfter`, `Done` |
/// | failed; the retry policy chooses the delay | [`retry`](Lease::retry) | `AddRateLimited`, `Done` |
/// | failed; the delay is known | [`retry_after`](Lease::retry_after) | – |
/// | failed for good | [`give_up`](Lease::give_up) | `Forget`, `Done` |
/// | did not happen | [`release`](Lease::release) | `Add`, `Done` |
/// | ended, nothing else | [`done`](Lease::done) | `Done` |
/// | succeeded; wait for the next key | [`next`](Lease::next) | `Forget`, `Done`, `Get` |
///
/// A lease that is dropped is retried, whether by a panic, a `?`, an aborted task or a
/// timeout: the failure counts, and the key runs again after its backoff.
/// [`Builder::on_drop`](crate::Builder::on_drop) changes that.
///
/// The lease dereferences to its key and can be moved to another thread or task. It owns a
/// clone of the key. [`std::mem::forget`] on a lease keeps its key processing forever.
///
/// Ending a lease does not panic, whatever the key, the order, the clock or the retry policy
/// do.
///
/// # Examples
///
/// ```
/// use requeue::Queue;
///
/// let queue = Queue::new();
/// queue.add("a".to_owned())?;
/// while let Ok(lease) = queue.try_get() {
///     match lease.len() {
///         1 => lease.succeed(),
///         _ => drop(lease.retry()),
///     }
/// }
/// assert!(queue.is_empty());
/// # Ok::<(), requeue::Closed<String>>(())
/// ```
///
/// A lease cannot be finished twice:
///
/// ```compile_fail,E0382
/// let queue = requeue::Queue::new();
/// queue.add(1).unwrap();
/// let lease = queue.try_get().unwrap();
/// lease.done();
/// lease.retry();
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail,E0308
/// let queue = requeue::Queue::new();
/// queue.add(1).unwrap();
/// let lease: requeue::Lease<i32> = queue.try_get().unwrap();
/// let twin: requeue::Lease<i32> = lease.clone();
/// ```
///
/// It cannot be made from a key:
///
/// ```compile_fail,E0451
/// let lease = requeue::Lease { held: None::<u64> };
/// ```
#[must_use = "a lease that is dropped is retried"]
pub struct Lease<K> {
    /// `None` only between the end of the lease and its drop.
    held: Option<Held<K>>,
}

struct Held<K> {
    shared: Arc<Shared<K>>,
    taken: Taken<K>,
}

impl<K> Lease<K> {
    #[inline]
    pub(super) fn new(shared: Arc<Shared<K>>, taken: Taken<K>) -> Self {
        Self { held: Some(Held { shared, taken }) }
    }

    fn held(&self) -> &Held<K> {
        self.held.as_ref().expect("a lease that has ended cannot be reached")
    }

    #[inline(always)]
    fn into_request(mut self, finish: Finish) -> (Arc<Shared<K>>, FinishRequest<K>) {
        let Held { shared, taken } = self.held.take().expect("a lease ends once");
        let request = shared.request(taken, finish);
        (shared, request)
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.held().taken.key
    }

    /// Returns the priority with which the key was queued; 0 with the default order.
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> i32 {
        self.held().taken.priority
    }

    /// Returns how often the key has failed since its failures were last forgotten.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self) -> u32 {
        let held = self.held();
        held.shared.num_requeues_of(&held.taken)
    }

    /// Ends the lease after a success: the failures of the key are forgotten.
    #[doc(alias = "Forget")]
    #[inline]
    pub fn succeed(self) {
        self.finish(Finish::Succeed);
    }

    /// Ends the lease after a success and adds the key again after `delay`.
    ///
    /// The failures of the key are forgotten. Use it for work that repeats, such as polling.
    #[doc(alias = "AddAfter")]
    #[doc(alias = "RequeueAfter")]
    pub fn requeue_after(self, delay: Duration) {
        self.finish(Finish::RequeueAfter(delay));
    }

    /// Ends the lease after a failure: the key is retried after a delay that the retry policy
    /// chooses. Returns that delay.
    ///
    /// The key keeps its priority. If the queue is closed, [`drain`](crate::Queue::drain) and
    /// [`close_now`](crate::Queue::close_now) return the key instead.
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Duration {
        let (shared, request) = self.into_request(Finish::Retry);
        shared.finish(request).unwrap_or_default()
    }

    /// Ends the lease after a failure: the key is retried after `delay`.
    ///
    /// The failure counts as one of [`retry`](Self::retry). Use it if the delay is known, for
    /// example from an HTTP `Retry-After`.
    pub fn retry_after(self, delay: Duration) {
        self.finish(Finish::RetryAfter(delay));
    }

    /// Ends the lease after a permanent failure: the key is not retried.
    ///
    /// Its failures are forgotten, so a key that is added again starts afresh.
    #[doc(alias = "TerminalError")]
    pub fn give_up(self) {
        self.finish(Finish::GiveUp);
    }

    /// Ends the lease of a key that was not processed: it is ready again at once.
    ///
    /// The key goes to the tail of the queue and keeps its failures. If the queue is closed,
    /// [`drain`](crate::Queue::drain) and [`close_now`](crate::Queue::close_now) return it
    /// instead.
    pub fn release(self) {
        self.finish(Finish::Release);
    }

    /// Ends the lease and does nothing else.
    ///
    /// If the key is dirty, it becomes ready at the tail of the queue. Its failures are kept;
    /// use [`succeed`](Self::succeed) to forget them.
    #[doc(alias = "Done")]
    #[inline]
    pub fn done(self) {
        self.finish(Finish::Done);
    }

    /// Ends the lease as `finish` says. Each of the methods above is one variant.
    #[inline(always)]
    pub fn finish(self, finish: Finish) {
        let (shared, request) = self.into_request(finish);
        shared.finish(request);
    }

    /// Succeeds, as [`succeed`](Self::succeed) does, and waits for the next key.
    ///
    /// Both happen in one lock: this is the fastest loop for a worker. Returns `None` if the
    /// queue is closed and no key is ready.
    ///
    /// # Cancel safety
    ///
    /// As that of [`Queue::get`](crate::Queue::get). This lease ends with the first poll,
    /// or when the future is dropped. A retry policy that counts by itself is asked by this
    /// call.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = requeue::Queue::new();
    /// queue.add_all(["a", "b", "c"])?;
    /// queue.close();
    /// let mut seen = Vec::new();
    /// let mut next = queue.get().await;
    /// while let Some(lease) = next {
    ///     seen.push(*lease);
    ///     next = lease.next().await;
    /// }
    /// assert_eq!(seen, ["a", "b", "c"]);
    /// # Ok::<(), requeue::Closed<_>>(())
    /// # }).unwrap();
    /// ```
    pub fn next(self) -> Get<K> {
        self.next_with(Finish::Succeed)
    }

    /// As [`next`](Self::next), but ends this lease as `finish` says.
    ///
    /// # Cancel safety
    ///
    /// As that of [`next`](Self::next).
    pub fn next_with(self, finish: Finish) -> Get<K> {
        let (shared, request) = self.into_request(finish);
        Get::new(shared, Some(request))
    }

    /// As [`next`](Self::next), blocking this thread.
    #[inline]
    #[must_use = "a lease that is dropped is retried"]
    pub fn next_blocking(self) -> Option<Self>
    where
        K: Clone,
    {
        self.next_blocking_with(Finish::Succeed)
    }

    /// As [`next_with`](Self::next_with), blocking this thread.
    #[inline(always)]
    #[must_use = "a lease that is dropped is retried"]
    pub fn next_blocking_with(self, finish: Finish) -> Option<Self>
    where
        K: Clone,
    {
        let (shared, request) = self.into_request(finish);
        shared.exchange_blocking(Some(request))
    }
}

impl<K> Deref for Lease<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K> Held<K> {
    /// Ends a lease that was dropped.
    #[inline(never)]
    fn end_dropped(self) {
        let Self { shared, taken } = self;
        shared.record_unwinding();
        let request = shared.request(taken, shared.on_drop);
        shared.finish(request);
    }
}

impl<K> Drop for Lease<K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.end_dropped();
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("priority", &self.priority())
            .finish()
    }
}
