//! Getting keys from a queue, and closing it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Queue;
use super::batch::Batch;
use super::drain::{Drain, WaitIdle};
use super::get::{Get, GetMany, Getter, take_many};
use super::lease::Lease;
#[cfg(feature = "futures")]
use super::leases::Leases;
use super::leases::LeasesBlocking;
use super::state::State;
use crate::error::{DrainTimeout, GetTimeoutError, TryGetError};

impl<K: Clone> Queue<K> {
    /// Waits for a key. Returns `None` if the queue is closed and no key is ready.
    ///
    /// The future is independent of this handle and of any runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key. If it had been woken, another getter is woken
    /// instead.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = requeue::Queue::new();
    /// queue.add("key")?;
    /// queue.close();
    /// while let Some(lease) = queue.get().await {
    ///     assert_eq!(*lease, "key");
    ///     lease.succeed();
    /// }
    /// # Ok::<(), requeue::Closed<&str>>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Get")]
    pub fn get(&self) -> Get<K> {
        Get::new(Arc::clone(&self.shared), None)
    }

    /// Waits for a key, blocking this thread. Returns `None` if the queue is closed and no
    /// key is ready.
    #[doc(alias = "Get")]
    #[must_use = "a lease that is dropped is retried"]
    pub fn get_blocking(&self) -> Option<Lease<K>> {
        Arc::clone(&self.shared).exchange_blocking(None)
    }

    /// Waits for a key for at most `timeout` on the queue's clock.
    ///
    /// The time starts with this call. The future is independent of this handle and of any
    /// runtime.
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// [`GetTimeoutError::Timeout`] after `timeout`, [`GetTimeoutError::Closed`] if the queue
    /// is closed and no key is ready.
    pub fn get_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Lease<K>, GetTimeoutError>> + use<K> {
        let within = self.within(timeout, self.get());
        async {
            let lease = within.await.ok_or(GetTimeoutError::Timeout)?;
            lease.ok_or(GetTimeoutError::Closed)
        }
    }

    /// As [`get_timeout`](Self::get_timeout), blocking this thread.
    ///
    /// # Errors
    ///
    /// As [`get_timeout`](Self::get_timeout).
    pub fn get_blocking_timeout(
        &self,
        timeout: Duration,
    ) -> Result<Lease<K>, GetTimeoutError> {
        self.get_by(self.deadline(timeout))
    }

    /// Waits for a key until `deadline` on the queue's clock, blocking this thread.
    ///
    /// # Errors
    ///
    /// As [`get_timeout`](Self::get_timeout).
    pub fn get_blocking_deadline(
        &self,
        deadline: Instant,
    ) -> Result<Lease<K>, GetTimeoutError> {
        self.get_by(Some(deadline))
    }

    fn get_by(&self, deadline: Option<Instant>) -> Result<Lease<K>, GetTimeoutError> {
        let taken = self.block(deadline, State::take)?;
        Ok(Lease::new(Arc::clone(&self.shared), taken))
    }

    fn block<T>(
        &self,
        deadline: Option<Instant>,
        take: impl Fn(&mut State<K>) -> Option<T>,
    ) -> Result<T, GetTimeoutError> {
        Getter::new(Arc::clone(&self.shared)).block(deadline, take)
    }

    /// `None` if the deadline exceeds the range of `Instant`, and so is never reached.
    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.shared.clock.now().checked_add(timeout)
    }

    /// Waits for `event` for at most `timeout` from now. Returns `None` at the deadline.
    fn within<F: Future + Unpin>(
        &self,
        timeout: Duration,
        mut event: F,
    ) -> impl Future<Output = Option<F::Output>> + use<K, F> {
        let deadline = self.deadline(timeout);
        let mut timer = deadline.map(|moment| self.shared.clock.timer(moment));
        poll_fn(move |cx| match (Pin::new(&mut event).poll(cx), &mut timer) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, Some(timer)) => Pin::new(timer).poll(cx).map(|()| None),
            (Poll::Pending, None) => Poll::Pending,
        })
    }

    /// Returns a blocking iterator over leases. It ends when the queue is closed and no key
    /// is ready.
    ///
    /// # Examples
    ///
    /// ```
    /// let queue = requeue::Queue::new();
    /// queue.add_all(["a", "b"])?;
    /// queue.close();
    /// for lease in queue.leases_blocking() {
    ///     println!("{}", *lease);
    ///     lease.succeed();
    /// }
    /// # Ok::<(), requeue::Closed<Vec<&str>>>(())
    /// ```
    pub fn leases_blocking(&self) -> LeasesBlocking<K> {
        LeasesBlocking::new(Arc::clone(&self.shared))
    }

    /// Returns a stream of leases. It ends when the queue is closed and no key is ready.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream loses no key.
    ///
    /// # Examples
    ///
    /// Up to eight keys at the same time:
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// # futures::executor::block_on(async {
    /// let queue = requeue::Queue::new();
    /// queue.add_all(1..=100)?;
    /// queue.close();
    /// queue.leases().for_each_concurrent(8, async |lease| lease.succeed()).await;
    /// assert!(queue.is_empty());
    /// # Ok::<(), requeue::Closed<Vec<i32>>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub fn leases(&self) -> Leases<K> {
        Leases::new(Arc::clone(&self.shared))
    }

    /// Returns a key if one is ready, without waiting.
    ///
    /// # Errors
    ///
    /// [`TryGetError::Closed`] if the queue is closed as well.
    pub fn try_get(&self) -> Result<Lease<K>, TryGetError> {
        let taken = self.try_take(State::take)?;
        Ok(Lease::new(Arc::clone(&self.shared), taken))
    }

    fn try_take<T>(
        &self,
        take: impl FnOnce(&mut State<K>) -> Option<T>,
    ) -> Result<T, TryGetError> {
        self.shared.with_next(|state| {
            take(state).ok_or(if state.is_closed() {
                TryGetError::Closed
            } else {
                TryGetError::Empty
            })
        })
    }

    /// Waits for at least one key and leases up to `max`, in one lock. Returns `None` if the
    /// queue is closed and no key is ready.
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    pub fn get_many(&self, max: usize) -> GetMany<K> {
        GetMany::new(Arc::clone(&self.shared), max)
    }

    /// As [`get_many`](Self::get_many), blocking this thread.
    #[must_use = "a batch that is dropped is retried"]
    pub fn get_many_blocking(&self, max: usize) -> Option<Batch<K>> {
        let taken = self.block(None, take_many(max)).ok()?;
        Some(Batch::new(Arc::clone(&self.shared), taken))
    }

    /// Leases up to `max` keys if any are ready, in one lock, without waiting.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get).
    pub fn try_get_many(&self, max: usize) -> Result<Batch<K>, TryGetError> {
        let taken = self.try_take(take_many(max))?;
        Ok(Batch::new(Arc::clone(&self.shared), taken))
    }

    /// Closes the queue and returns every key that was not delivered.
    ///
    /// Those are the ready keys in their order, then dirty ones, then delayed ones by
    /// deadline, then stranded ones; each once. Keys that are being processed are not
    /// disturbed. If `Clone` of a dirty or delayed key that is being processed panics, the
    /// queue keeps that key: it is delivered when its lease ends, or returned by the next
    /// call.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = requeue::Queue::new();
    /// queue.add("now")?;
    /// queue.add_after("later", Duration::from_secs(60))?;
    /// assert_eq!(queue.close_now(), ["now", "later"]);
    /// assert!(queue.get_blocking().is_none());
    /// # Ok::<(), requeue::Closed<&str>>(())
    /// ```
    pub fn close_now(&self) -> Vec<K> {
        self.shared.close();
        self.shared.with(State::take_undelivered)
    }

    /// As [`close_now`](Self::close_now). Also returns the keys that are leased at that moment.
    pub(crate) fn close_now_and_list_leased(&self) -> (Vec<K>, Vec<K>) {
        self.shared.close();
        self.shared.with(|state| (state.take_undelivered(), state.leased_keys()))
    }

    /// Closes the queue and waits until no key is ready, processing or dirty. Returns the
    /// keys that are not delivered: delayed and stranded ones.
    ///
    /// Workers must keep running to process the ready keys. If two callers drain at the same
    /// time, one of them gets the returned keys.
    ///
    /// # Cancel safety
    ///
    /// The queue closes with the first poll and stays closed. Dropping the future loses no
    /// key.
    #[doc(alias = "ShutDownWithDrain")]
    pub fn drain(&self) -> Drain<K> {
        Drain::new(Arc::clone(&self.shared))
    }

    /// As [`drain`](Self::drain), blocking this thread.
    #[doc(alias = "ShutDownWithDrain")]
    pub fn drain_blocking(&self) -> Vec<K> {
        self.shared.drain_blocking(None).unwrap_or_default()
    }

    /// As [`drain`](Self::drain), for at most `timeout` on the queue's clock.
    ///
    /// The time starts with this call.
    ///
    /// # Cancel safety
    ///
    /// As that of [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`DrainTimeout`] reports the keys that are left. The queue is closed in any case.
    pub fn drain_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<K>, DrainTimeout>> + use<K> {
        let within = self.within(timeout, self.drain());
        let shared = Arc::clone(&self.shared);
        async move {
            let left = || DrainTimeout { left: shared.with(|state| state.counts()) };
            within.await.ok_or_else(left)
        }
    }

    /// As [`drain_timeout`](Self::drain_timeout), blocking this thread.
    ///
    /// # Errors
    ///
    /// As [`drain_timeout`](Self::drain_timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = requeue::Queue::new();
    /// queue.add("without a worker")?;
    /// let error = queue.drain_blocking_timeout(Duration::ZERO).unwrap_err();
    /// assert_eq!(error.left.ready, 1);
    /// # Ok::<(), requeue::Closed<&str>>(())
    /// ```
    pub fn drain_blocking_timeout(
        &self,
        timeout: Duration,
    ) -> Result<Vec<K>, DrainTimeout> {
        let deadline = self.deadline(timeout);
        let drained = self.shared.drain_blocking(deadline);
        drained.ok_or_else(|| DrainTimeout { left: self.counts() })
    }

    /// Waits until no key is ready, processing, dirty or delayed. On a closed queue, delayed
    /// keys do not count.
    ///
    /// This does not close the queue: keys may be added again before the caller continues.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn wait_idle(&self) -> WaitIdle<K> {
        WaitIdle::new(Arc::clone(&self.shared))
    }

    /// As [`wait_idle`](Self::wait_idle), blocking this thread.
    pub fn wait_idle_blocking(&self) {
        self.shared.wait_idle_blocking();
    }
}
