//! Exclusive access to one key, and the ways to end it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::get::Get;
use super::shared::{Finish, Return, Shared};
use super::state::Taken;

/// Exclusive access to one key.
///
/// No other worker receives the key while its lease exists. Finishing consumes the lease, so
/// a key cannot be finished twice or by code that does not hold the lease:
///
/// | the run | call | client-go |
/// |---|---|---|
/// | succeeded | [`succeed`](Lease::succeed) | `Forget`, `Done` |
/// | failed; retry it later | [`retry`](Lease::retry) | `AddRateLimited`, `Done` |
/// | is to be repeated after a delay | [`retry_after`](Lease::retry_after) | `Forget`, `AddAfter`, `Done` |
/// | ended, nothing else | [`done`](Lease::done), or drop the lease | `Done` |
/// | ended; wait for the next key | [`next`](Lease::next) | `Done`, `Get` |
///
/// Dropping a lease ends it as [`done`](Lease::done) does, so a worker that returns early or
/// an aborted task does not keep its key. If it is dropped by a panic of its thread, the key
/// is retried.
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
/// queue.add("a".to_owned());
/// while let Ok(lease) = queue.try_get() {
///     match lease.len() {
///         1 => lease.succeed(),
///         _ => drop(lease.retry()),
///     }
/// }
/// assert!(queue.is_empty());
/// ```
///
/// A lease cannot be finished twice:
///
/// ```compile_fail,E0382
/// let queue = requeue::Queue::new();
/// queue.add(1);
/// let lease = queue.try_get().unwrap();
/// lease.done();
/// lease.retry();
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail,E0308
/// let queue = requeue::Queue::new();
/// queue.add(1);
/// let lease: requeue::Lease<i32> = queue.try_get().unwrap();
/// let twin: requeue::Lease<i32> = lease.clone();
/// ```
///
/// It cannot be made from a key:
///
/// ```compile_fail,E0451
/// let lease = requeue::Lease { held: None::<u64> };
/// ```
#[must_use = "a lease that is dropped is done at once"]
pub struct Lease<K> {
    /// `None` only between the end of the lease and its drop.
    held: Option<Held<K>>,
}

struct Held<K> {
    shared: Arc<Shared<K>>,
    slot: u32,
    key: K,
    priority: i32,
}

impl<K> Held<K> {
    /// Ends a lease that was dropped.
    #[inline(never)]
    fn abandon(self) {
        if !std::thread::panicking() {
            let (shared, back) = self.end(Finish::Done, None);
            shared.finish(back);
            return;
        }
        let advice = self.shared.consult(&self.key, Finish::Retry);
        let (shared, back) = self.end(Finish::Retry, advice);
        shared.record(|recorder| recorder.panicked());
        shared.finish(back);
    }

    #[inline]
    fn end(
        self,
        finish: Finish,
        advice: Option<Duration>,
    ) -> (Arc<Shared<K>>, Return<K>) {
        let Self { shared, slot, key, priority } = self;
        (shared, Return { slot, key, priority, finish, advice })
    }
}

impl<K> Lease<K> {
    #[inline]
    pub(super) fn new(shared: Arc<Shared<K>>, taken: Taken<K>) -> Self {
        let Taken { slot, key, priority } = taken;
        Self { held: Some(Held { shared, slot, key, priority }) }
    }

    fn held(&self) -> &Held<K> {
        self.held.as_ref().expect("a lease that has ended cannot be reached")
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: each way in code of its own")]
    fn end(mut self, finish: Finish) -> (Arc<Shared<K>>, Return<K>) {
        let held = self.held();
        let advice = held.shared.consult(&held.key, finish);
        self.held.take().expect("a lease ends once").end(finish, advice)
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.held().key
    }

    /// Returns the priority with which the key was queued. It is 0 if the order ignores
    /// priorities, as the default one does.
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> i32 {
        self.held().priority
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

    /// Ends the lease after a success: the failures of the key are forgotten.
    #[doc(alias = "Forget")]
    #[inline]
    pub fn succeed(self) {
        self.finish(Finish::Succeed);
    }

    /// Ends the lease after a failure: the key is retried after a delay that the retry policy
    /// chooses. Returns that delay.
    ///
    /// The key keeps its priority. If the queue is closed, [`drain`](crate::Queue::drain) and
    /// [`close_now`](crate::Queue::close_now) return the key instead.
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Duration {
        let (shared, back) = self.end(Finish::Retry);
        shared.finish(back).unwrap_or_default()
    }

    /// Ends the lease, adds the key again after `delay`, and forgets its failures.
    ///
    /// Use it for work that succeeded and must be repeated, such as polling. Otherwise as
    /// [`retry`](Self::retry).
    #[doc(alias = "AddAfter")]
    #[doc(alias = "RequeueAfter")]
    pub fn retry_after(self, delay: Duration) {
        self.finish(Finish::RetryAfter(delay));
    }

    /// Ends the lease as `finish` says. Each of the methods above is one variant.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: each way in code of its own")]
    pub fn finish(self, finish: Finish) {
        let (shared, back) = self.end(finish);
        shared.finish(back);
    }

    /// Returns how often the key has failed since its failures were last forgotten.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self) -> u32 {
        let held = self.held();
        held.shared.num_requeues_of(held.slot, &held.key)
    }

    /// Ends this lease as [`done`](Self::done) does and waits for the next key.
    ///
    /// Both happen in one lock: this is the fastest loop for a worker. Returns `None` if the
    /// queue is closed and no key is ready.
    ///
    /// # Cancel safety
    ///
    /// As that of [`Queue::get`](crate::Queue::get). This lease ends with the first poll,
    /// or when the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = requeue::Queue::new();
    /// queue.add_all(["a", "b", "c"]);
    /// queue.close();
    /// let mut seen = Vec::new();
    /// let mut lease = queue.get().await;
    /// while let Some(key) = lease {
    ///     seen.push(*key);
    ///     lease = key.next().await;
    /// }
    /// assert_eq!(seen, ["a", "b", "c"]);
    /// # });
    /// ```
    pub fn next(self) -> Get<K> {
        self.next_with(Finish::Done)
    }

    /// As [`next`](Self::next), but ends this lease as `finish` says.
    ///
    /// # Cancel safety
    ///
    /// As that of [`next`](Self::next).
    pub fn next_with(self, finish: Finish) -> Get<K> {
        let (shared, back) = self.end(finish);
        Get::new(shared, Some(back))
    }

    /// As [`next`](Self::next), blocking this thread.
    #[inline]
    pub fn next_blocking(self) -> Option<Self>
    where
        K: Clone,
    {
        self.next_blocking_with(Finish::Done)
    }

    /// As [`next_with`](Self::next_with), blocking this thread.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: each way in code of its own")]
    pub fn next_blocking_with(self, finish: Finish) -> Option<Self>
    where
        K: Clone,
    {
        let (shared, back) = self.end(finish);
        shared.exchange_blocking(Some(back))
    }
}

impl<K> Deref for Lease<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K> Drop for Lease<K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.abandon();
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held();
        f.debug_struct("Lease")
            .field("key", &held.key)
            .field("priority", &held.priority)
            .finish()
    }
}
