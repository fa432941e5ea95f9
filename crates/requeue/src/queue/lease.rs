//! The right to work on one key, and the ways to end it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::get::Get;
use super::shared::{Finish, Return, Shared};
use super::state::Taken;

/// A key that was handed out, and the only right to work on it.
///
/// While a lease exists, nobody else is given its key. Ending the lease consumes it, so a
/// key cannot be finished twice, nor by anybody to whom it was not handed out:
///
/// | to say | call | client-go |
/// |---|---|---|
/// | it went well | [`succeed`](Lease::succeed) | `Forget`, `Done` |
/// | it failed, try again later | [`retry`](Lease::retry) | `AddRateLimited`, `Done` |
/// | come again at a given time | [`retry_after`](Lease::retry_after) | `Forget`, `AddAfter`, `Done` |
/// | neither well nor badly | [`done`](Lease::done), or drop it | `Done` |
/// | done, and give me the next | [`next`](Lease::next) | `Done`, `Get` |
///
/// A lease that is dropped is done, so that a worker that returns early, or a task that
/// is aborted, does not keep its key for ever. A lease that is dropped because its thread
/// panics is retried: the work did not finish.
///
/// The lease dereferences to its key, and can be moved into another thread or task.
/// [`std::mem::forget`] on a lease keeps its key processing for ever.
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
/// A lease ends once:
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
/// And it cannot be made from a key:
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

    /// The key.
    pub fn key(&self) -> &K {
        &self.held().key
    }

    /// The priority with which the key was added. With an order that does not heed
    /// priorities, such as the default one, it is 0.
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> i32 {
        self.held().priority
    }

    /// Says that the work is over, and nothing else.
    ///
    /// If the key was added meanwhile, it becomes ready now, at the tail. Failures of the
    /// key are remembered; to forget them, use [`succeed`](Self::succeed).
    #[doc(alias = "Done")]
    #[inline]
    pub fn done(self) {
        self.finish(Finish::Done);
    }

    /// Says that the work went well: failures of the key are forgotten.
    #[doc(alias = "Forget")]
    #[inline]
    pub fn succeed(self) {
        self.finish(Finish::Succeed);
    }

    /// Says that the work failed: the key comes again after a delay that the queue's
    /// retry policy chooses, which is returned.
    ///
    /// The key keeps its priority. On a queue that is closed, it joins the keys that
    /// [`drain`](crate::Queue::drain) and [`close_now`](crate::Queue::close_now) hand
    /// back.
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Duration {
        let (shared, back) = self.end(Finish::Retry);
        shared.finish(back).unwrap_or_default()
    }

    /// Has the key come again after `delay`, and forgets its failures.
    ///
    /// For work that went well but must be looked at again, such as a poll. Otherwise as
    /// [`retry`](Self::retry).
    #[doc(alias = "AddAfter")]
    #[doc(alias = "RequeueAfter")]
    pub fn retry_after(self, delay: Duration) {
        self.finish(Finish::RetryAfter(delay));
    }

    /// Ends the lease in the way that `finish` says; the methods above in one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: each way in code of its own")]
    pub fn finish(self, finish: Finish) {
        let (shared, back) = self.end(finish);
        shared.finish(back);
    }

    /// How often the key failed since it last succeeded.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self) -> u32 {
        let held = self.held();
        held.shared.num_requeues_of(held.slot, &held.key)
    }

    /// Ends this lease as [`done`](Self::done) does and waits for the next key.
    ///
    /// Both happen in one lock: this is the fastest loop for a worker. `None` means that
    /// the queue is closed and no key is ready.
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

    /// As [`next`](Self::next), ending this lease in the way that `finish` says.
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
