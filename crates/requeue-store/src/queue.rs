//! The queue on a store, as programs use it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use requeue::{AddOptions, Added, AddedAll};

use crate::builder::SharedQueueBuilder;
use crate::client::Client;
use crate::client::batch::answered;
use crate::client::getters::delivered;
use crate::lease::{RawLease, SharedLease};
use crate::race::race;
use crate::{
    Add, Backoff, Error, ErrorKind, Key, Look, Owner, Phase, Receipt, RepliesExt, Stats,
    Store, StoreKey, When,
};

/// A queue on a store, for keys that must survive their process or that several machines
/// share.
///
/// It has the rules and method names of [`requeue::Queue`]: a ready key is queued once, it
/// is processed by one worker at a time, and a key that is added while it is being processed
/// runs once more afterwards. The differences:
///
/// | | [`requeue::Queue`] | `SharedQueue` |
/// |---|---|---|
/// | calls | immediate, cannot fail | `async`, can fail |
/// | a worker dies | its leases are dropped and retried | its leases expire, and the keys are delivered again: at least once, not exactly once |
/// | closing | ends the queue | ends this handle; the keys stay in the store |
/// | backoff | a [retry policy](requeue::retry) | a [`Backoff`](crate::Backoff); the store counts the failures |
/// | order | configurable | by priority from -128 to 127, then first in, first out, in each partition |
///
/// To inspect and manage the queue, call the [`store`](Self::store) with the trait [`Store`]
/// in scope, for example `queue.store().dead(10).await`.
///
/// Calls made while another call is in flight are sent together. With that, tasks that each
/// add or finish one key are nearly as fast as batches.
///
/// Handles are cheap to clone. The last handle that is dropped
/// [closes](SharedQueue::close) the queue; leases continue. Use a [`WeakSharedQueue`] where
/// a handle must not keep the queue open.
///
/// # Examples
///
/// ```
/// use requeue_store::{Error, MemoryStore, SharedQueue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
/// queue.add("default/web".to_owned()).await?;
/// if let Some(lease) = queue.get().await? {
///     assert_eq!(lease.key(), "default/web");
///     lease.succeed().await?;
/// }
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct SharedQueue<K, S: Store> {
    handle: Arc<OpenClient<S>>,
    key: PhantomData<fn() -> K>,
}

/// Owned by handles only, so that its drop is the drop of the last handle.
struct OpenClient<S: Store>(Arc<Client<S>>);

impl<S: Store> Drop for OpenClient<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// Creates a queue on `store` with the default settings of the
    /// [builder](Self::builder).
    ///
    /// # Panics
    ///
    /// If called outside a tokio runtime.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self::builder(store).build()
    }

    /// Starts to configure a queue on `store`.
    pub fn builder(store: S) -> SharedQueueBuilder<K, S> {
        SharedQueueBuilder::new(store)
    }

    pub(crate) fn from_client(client: Arc<Client<S>>) -> Self {
        Self { handle: Arc::new(OpenClient(client)), key: PhantomData }
    }

    pub(crate) fn client(&self) -> &Arc<Client<S>> {
        &self.handle.0
    }

    /// Returns a handle that does not keep the queue open.
    #[must_use]
    pub fn downgrade(&self) -> WeakSharedQueue<K, S> {
        WeakSharedQueue { handle: Arc::downgrade(&self.handle), key: PhantomData }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.client().store
    }

    /// Returns the name of this queue among the owners of leases.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.client().settings.owner
    }

    /// Adds a key. It runs once after this call.
    ///
    /// # Errors
    ///
    /// [`Closed`](ErrorKind::Closed) if this handle is [closed](Self::close), and
    /// [`Invalid`](ErrorKind::Invalid) if the key is longer than [`Key::MAX_LEN`]. Errors of
    /// the store are returned after the queue's [patience](SharedQueueBuilder::patience),
    /// for example [`Busy`](ErrorKind::Busy) if a transaction locked the key for that long.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key may or may not be added. Adding it again costs at
    /// worst one more run.
    #[doc(alias = "Add")]
    pub async fn add(&self, key: K) -> Result<Added, Error> {
        Ok(self.send(self.to_add(&key, When::Now)?).await?.added)
    }

    /// Adds keys in as few calls as possible.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), with the first error. Some keys may have been added.
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    pub async fn add_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<AddedAll, Error> {
        let adds = keys.into_iter().map(|key| self.to_add(&key, When::Now));
        let adds = adds.collect::<Result<Vec<_>, _>>()?;
        let mut all = AddedAll::default();
        if self.is_closed() {
            return Err(closed());
        }
        for answer in self.client().add_all(adds) {
            count(&mut all, answered(answer).await?.added);
        }
        Ok(all)
    }

    /// Adds a key after `delay` on the store's clock. If the key is delayed already, the
    /// earlier time wins.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    #[doc(alias = "AddAfter")]
    pub async fn add_after(&self, key: K, delay: Duration) -> Result<Added, Error> {
        Ok(self.send(self.to_add(&key, When::After(delay))?).await?.added)
    }

    /// Counts a failure of a key and adds it after the delay that the queue's backoff
    /// chooses.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    #[doc(alias = "AddRateLimited")]
    pub async fn add_rate_limited(&self, key: K) -> Result<Receipt, Error> {
        let when = When::RateLimited(self.client().settings.backoff);
        self.send(self.to_add(&key, when)?).await
    }

    /// Adds a key with options.
    ///
    /// Higher priorities are delivered first; a store accepts -128 to 127. If the options
    /// have both a delay and the backoff, the shorter one is used, but never less than the
    /// queue's [rate](Backoff::rate) allows.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), and [`Invalid`](ErrorKind::Invalid) if the priority is out of
    /// range.
    ///
    /// # Cancel safety
    ///
    /// As that of [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::AddOptions;
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
    /// queue.add("nightly".to_owned()).await?;
    /// queue.add_with("urgent".to_owned(), AddOptions::new().priority(10)).await?;
    /// let lease = queue.get().await?.expect("two keys are ready");
    /// assert_eq!((lease.key().as_str(), lease.priority()), ("urgent", 10));
    /// # lease.succeed().await?;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "AddWithOpts")]
    pub async fn add_with(&self, key: K, options: AddOptions) -> Result<Receipt, Error> {
        let AddOptions { after, rate_limited, priority, .. } = options;
        let when = match (rate_limited, after) {
            (false, None) => When::Now,
            (false, Some(delay)) => When::After(delay),
            (true, limit) => When::RateLimited(self.backoff_up_to(limit)),
        };
        let add = self.to_add(&key, when)?;
        self.send(add.with_priority(priority.unwrap_or_default())?).await
    }

    fn backoff_up_to(&self, limit: Option<Duration>) -> Backoff {
        let backoff = self.client().settings.backoff;
        Backoff {
            max: limit.map_or(backoff.max, |limit| limit.min(backoff.max)),
            ..backoff
        }
    }

    async fn send(&self, add: Add) -> Result<Receipt, Error> {
        if self.is_closed() {
            return Err(closed());
        }
        answered(self.client().add(add)).await
    }

    /// Returns the add of a key with the settings of this queue, without sending it.
    ///
    /// Use it to call the store directly, for example to add a key in a transaction. Report
    /// the result with [`count_added`](Self::count_added) if the queue has metrics.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) if the key is too long.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, RepliesExt, SharedQueue, Store, When};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<u64, _>::new(MemoryStore::new());
    /// let adds = [queue.to_add(&7, When::Now)?];
    /// let receipts = queue.store().add(&adds).all().await?;
    /// queue.count_added(&adds, &receipts);
    /// assert_eq!(queue.len().await?, 1);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn to_add(&self, key: &K, when: When) -> Result<Add, Error> {
        let revive_after = self.client().settings.revive_after;
        Ok(Add { revive_after, ..Add::new(Key::new(key.encode())?, when) })
    }

    /// Waits for a key. Returns `None` if this handle is closed.
    ///
    /// A key that cannot be [decoded](StoreKey::decode) moves to the dead keys with the
    /// error as its reason. It is reported to
    /// [`on_error`](SharedQueueBuilder::on_error), and the wait continues.
    ///
    /// # Errors
    ///
    /// Errors of the store: at once if a repetition cannot help, otherwise after the queue's
    /// [patience](SharedQueueBuilder::patience).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: a key in transit goes to the next getter or is
    /// released.
    ///
    /// # Examples
    ///
    /// A worker:
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # async fn process(key: &str) -> Result<(), String> { Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
    /// # queue.add("a".to_owned()).await?;
    /// # let closer = queue.downgrade();
    /// while let Some(lease) = queue.get().await? {
    ///     match process(lease.key()).await {
    ///         Ok(()) => lease.succeed().await?,
    ///         Err(error) => lease.with_error(error).retry().await?,
    ///     };
    ///     # closer.upgrade().unwrap().close();
    /// }
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "Get")]
    pub fn get(
        &self,
    ) -> impl Future<Output = Result<Option<SharedLease<K, S>>, Error>> + Send + use<K, S>
    {
        let client = Arc::clone(self.client());
        async move { Ok(get_decoded(&client, 1).await?.pop()) }
    }

    /// Waits for keys: at least one, at most `max`. Returns no keys if this handle is closed.
    ///
    /// One call of the store leases at most 256 keys.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<u64, _>::new(MemoryStore::new());
    /// queue.add_all([1, 2, 3]).await?;
    /// let leases = queue.get_many(2).await?;
    /// assert_eq!(leases.len(), 2);
    /// for lease in leases {
    ///     lease.succeed().await?;
    /// }
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use = "leases that are dropped are retried"]
    pub async fn get_many(&self, max: usize) -> Result<Vec<SharedLease<K, S>>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        get_decoded(self.client(), max).await
    }

    /// Waits for a key, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// [`Timeout`](ErrorKind::Timeout) if no key arrived in time,
    /// [`Closed`](ErrorKind::Closed) if this handle is closed, and otherwise as
    /// [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`get`](Self::get).
    #[must_use = "a lease that is dropped is retried"]
    pub async fn get_timeout(
        &self,
        timeout: Duration,
    ) -> Result<SharedLease<K, S>, Error> {
        let Some(lease) = race(self.get(), self.client().timer(timeout)).await else {
            let text = format!("no key became ready within {timeout:?}");
            return Err(Error::new(ErrorKind::Timeout, text));
        };
        lease?.ok_or_else(closed)
    }

    /// Takes a ready key without waiting for one. Returns `None` if no key is ready.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), but without patience.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: a key in transit is released.
    #[must_use = "a lease that is dropped is retried"]
    pub async fn try_get(&self) -> Result<Option<SharedLease<K, S>>, Error> {
        Ok(self.try_get_many(1).await?.pop())
    }

    /// Takes up to `max` ready keys, but at most 256, without waiting for them.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get).
    ///
    /// # Cancel safety
    ///
    /// As that of [`try_get`](Self::try_get).
    #[must_use = "leases that are dropped are retried"]
    pub async fn try_get_many(
        &self,
        max: usize,
    ) -> Result<Vec<SharedLease<K, S>>, Error> {
        loop {
            let raw = self.client().try_get(max).await?;
            let found = !raw.is_empty();
            let leases = decode_all(raw);
            if !found || !leases.is_empty() {
                return Ok(leases);
            }
        }
    }

    /// Resets the failures of a key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "Forget")]
    pub async fn forget(&self, key: &K) -> Result<(), Error> {
        self.store().forget(&[Key::new(key.encode())?]).all().await.map(drop)
    }

    /// Cancels a pending key. Returns whether it was ready, delayed or dirty.
    ///
    /// A lease on the key continues.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.store().remove(&[Key::new(key.encode())?]).all().await?.contains(&true))
    }

    /// Returns how often a key has failed since its failures were last forgotten.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "NumRequeues")]
    #[must_use = "asking the store changes nothing"]
    pub async fn num_requeues(&self, key: &K) -> Result<u32, Error> {
        Ok(self.look(key).await?.failures)
    }

    /// Returns whether a key is ready, delayed or being processed.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[must_use = "asking the store changes nothing"]
    pub async fn contains(&self, key: &K) -> Result<bool, Error> {
        let Look { phase, delayed, .. } = self.look(key).await?;
        Ok(delayed.is_some() || matches!(phase, Phase::Ready | Phase::Processing { .. }))
    }

    /// Returns the state of a key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[must_use = "asking the store changes nothing"]
    pub async fn look(&self, key: &K) -> Result<Look, Error> {
        let looks = self.store().look(&[Key::new(key.encode())?]).all().await?;
        Ok(looks.into_iter().next().unwrap_or_default())
    }

    /// Returns how many keys of the whole queue are in each state.
    ///
    /// The gauges in the queue's [metrics](SharedQueueBuilder::metrics) show the result of
    /// the last call; after a failed call they show nothing.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let stats = self.store().stats().await;
        self.client().measure(|meter| meter.set_stats(stats.as_ref().ok().copied()));
        stats
    }

    /// Counts adds in the queue's [metrics](SharedQueueBuilder::metrics) that were sent to
    /// the store directly; see [`to_add`](Self::to_add).
    pub fn count_added(&self, adds: &[Add], receipts: &[Receipt]) {
        for (add, receipt) in adds.iter().zip(receipts) {
            self.client().measure(|meter| meter.added(add, receipt));
        }
    }

    /// Returns how many keys are ready.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[expect(clippy::len_without_is_empty, reason = "asking a store is not free")]
    #[must_use = "asking the store changes nothing"]
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.stats().await?.ready)
    }

    /// Closes this handle and its clones: they add and deliver no more keys. Idempotent.
    ///
    /// The keys stay in the store for other handles. Held leases continue and can be
    /// finished.
    #[doc(alias = "ShutDown")]
    pub fn close(&self) {
        self.client().close();
    }

    /// Returns whether this handle is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client().is_closed()
    }

    /// Closes this handle, and waits until its leases have ended and the store has answered
    /// all calls.
    ///
    /// Unlike [`Queue::drain`](requeue::Queue::drain), it leaves ready keys in the store for
    /// other handles.
    ///
    /// # Cancel safety
    ///
    /// The handle is closed at the first poll. Dropping the future loses nothing.
    #[doc(alias = "ShutDownWithDrain")]
    pub async fn shutdown(&self) {
        self.close();
        self.client().idle().await;
    }
}

/// A handle of a [`SharedQueue`] that does not keep it open.
///
/// # Examples
///
/// ```
/// use requeue_store::{MemoryStore, SharedQueue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = SharedQueue::<String, _>::new(MemoryStore::new());
/// let weak = queue.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(queue);
/// assert!(weak.upgrade().is_none());
/// # });
/// ```
pub struct WeakSharedQueue<K, S: Store> {
    handle: Weak<OpenClient<S>>,
    key: PhantomData<fn() -> K>,
}

impl<K, S: Store> WeakSharedQueue<K, S> {
    /// Returns the queue, or `None` if all its handles were dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<SharedQueue<K, S>> {
        Some(SharedQueue { handle: self.handle.upgrade()?, key: PhantomData })
    }
}

impl<K, S: Store> Clone for WeakSharedQueue<K, S> {
    fn clone(&self) -> Self {
        Self { handle: Weak::clone(&self.handle), key: PhantomData }
    }
}

impl<K, S: Store> fmt::Debug for WeakSharedQueue<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSharedQueue").finish_non_exhaustive()
    }
}

/// Waits for keys. Returns none if the client is closed.
pub(crate) async fn get_decoded<K: StoreKey, S: Store>(
    client: &Arc<Client<S>>,
    max: usize,
) -> Result<Vec<SharedLease<K, S>>, Error> {
    loop {
        let raw = delivered(client.get(max)).await?;
        let is_closed = raw.is_empty();
        let leases = decode_all(raw);
        if is_closed || !leases.is_empty() {
            return Ok(leases);
        }
    }
}

fn decode_all<K: StoreKey, S: Store>(raw: Vec<RawLease<S>>) -> Vec<SharedLease<K, S>> {
    raw.into_iter().filter_map(RawLease::decode).collect()
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this handle of the queue is closed")
}

fn count(all: &mut AddedAll, added: Added) {
    match added {
        Added::Dirty => all.dirty += 1,
        Added::Duplicate => all.duplicate += 1,
        Added::Ready | Added::Delayed | _ => all.ready += 1,
    }
}

impl<K, S: Store> Clone for SharedQueue<K, S> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), key: PhantomData }
    }
}

impl<K, S: Store> fmt::Debug for SharedQueue<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue")
            .field("store", &self.handle.0.store.describe())
            .finish_non_exhaustive()
    }
}
