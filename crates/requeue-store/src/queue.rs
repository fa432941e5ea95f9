//! The queue on a store, as programs use it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use requeue::{AddOptions, Added, AddedAll, Finish};

use crate::batch::answered;
use crate::builder::SharedQueueBuilder;
use crate::engine::Engine;
use crate::getters::handed;
use crate::lease::{RawLease, SharedLease};
use crate::{
    Add, Backoff, Error, Key, Look, Owner, Phase, Receipt, Stats, Store, StoreKey, When,
};

/// The queue of keys on a store: [`requeue::Queue`] with its verbs, for keys that must not
/// be lost with a process, or that many machines work on.
///
/// The rules for a key are the same: it is ready once however often it is added, with one
/// worker at a time, and one that is added while it is processed is processed once more,
/// after. What differs, since a store is somewhere else:
///
/// | | [`requeue::Queue`] | `SharedQueue` |
/// |---|---|---|
/// | calls | at once, cannot fail | `async`, may fail |
/// | a worker that dies | ends its leases by dropping them | its leases run out, and the keys come again: at least once, not exactly once |
/// | closing | ends the queue | ends this handle; the keys stay in the store |
/// | failures and backoff | a [retry policy](requeue::retry) | a [`Backoff`](crate::Backoff), counted in the store |
/// | order | first in, first out, or another | by priority from -128 to 127, and then first in, first out; in each partition, if there are several |
///
/// What people look after, the dead, the failing and the workers, and pausing, is asked of
/// the [`store`](Self::store) itself: `queue.store().dead(10).await`, with the trait
/// [`Store`] in scope.
///
/// Handles are cheap to clone. Calls that come while another is on its way go together in
/// the next, so many tasks that each add or finish one key are nearly as fast as batches.
/// When the last handle is dropped, it [closes](SharedQueue::close).
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
    handle: Arc<Open<S>>,
    key: PhantomData<fn() -> K>,
}

/// What all handles hold and nobody else, so that its drop is that of the last handle.
struct Open<S: Store>(Arc<Engine<S>>);

impl<S: Store> Drop for Open<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K: StoreKey, S: Store> SharedQueue<K, S> {
    /// A queue on `store` as the [builder](Self::builder) makes it if nothing is said.
    ///
    /// # Panics
    ///
    /// If this is called from outside a runtime of tokio.
    pub fn new(store: S) -> Self {
        Self::builder(store).build()
    }

    /// Starts to configure a queue on `store`.
    pub fn builder(store: S) -> SharedQueueBuilder<K, S> {
        SharedQueueBuilder::new(store)
    }

    pub(crate) fn on(engine: Arc<Engine<S>>) -> Self {
        Self { handle: Arc::new(Open(engine)), key: PhantomData }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<S>> {
        &self.handle.0
    }

    /// The store underneath.
    pub fn store(&self) -> &S {
        &self.engine().store
    }

    /// The name of this handle among the workers of the queue.
    pub fn owner(&self) -> &Owner {
        &self.engine().terms.owner
    }

    /// Adds a key: it will be processed, once, after this call.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed) if this handle is [closed](Self::close).
    /// [`Invalid`](crate::ErrorKind::Invalid) if the key is longer than
    /// [`Key::MAX_LEN`]. Whatever the store fails with, after it was tried for as long as
    /// the queue's [patience](SharedQueueBuilder::patience) lasts;
    /// [`Busy`](crate::ErrorKind::Busy) if a transaction had the key for all of that time.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key may have been added or not; adding it once more
    /// costs at worst one more run.
    #[doc(alias = "Add")]
    pub async fn add(&self, key: K) -> Result<Added, Error> {
        Ok(self.send(self.to_add(&key, When::Now)?).await?.added)
    }

    /// Adds keys, together in as few calls as possible.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), with the first error. Keys of other batches may have been
    /// added.
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
        for answer in self.engine().add_all(adds) {
            count(&mut all, answered(answer).await?.added);
        }
        Ok(all)
    }

    /// Adds a key once `delay` has passed on the store's clock. Of several delays of a key
    /// the earliest counts.
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

    /// Adds a key when the queue's backoff says, and counts a failure of it: how long that
    /// is from now.
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
        let when = When::RateLimited(self.engine().terms.backoff);
        self.send(self.to_add(&key, when)?).await
    }

    /// Adds a key with options: a delay, a priority, by the queue's backoff.
    ///
    /// A higher priority goes first; those of a store are from -128 to 127. With a delay
    /// and by the backoff, the shorter of the two counts, but the
    /// [rate](crate::Backoff::rate) of the whole queue is kept in any case.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), and [`Invalid`](crate::ErrorKind::Invalid) for a priority
    /// that a store cannot keep.
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
        let backoff = self.engine().terms.backoff;
        Backoff {
            max: limit.map_or(backoff.max, |limit| limit.min(backoff.max)),
            ..backoff
        }
    }

    async fn send(&self, add: Add) -> Result<Receipt, Error> {
        if self.is_closed() {
            return Err(closed());
        }
        answered(self.engine().add(add)).await
    }

    /// What adding a key is to the store, with the settings of this queue: for a call past
    /// it, such as an add inside a transaction of your own. Tell
    /// [`count_added`](Self::count_added) of it, if the queue is measured.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if the key is too long.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue_store::{Error, MemoryStore, SharedQueue, Store, When};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<u64, _>::new(MemoryStore::new());
    /// let adds = [queue.to_add(&7, When::Now)?];
    /// let receipts = queue.store().add(&adds).await?;
    /// queue.count_added(&adds, &receipts);
    /// assert_eq!(queue.len().await?, 1);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn to_add(&self, key: &K, when: When) -> Result<Add, Error> {
        let revive_after = self.engine().terms.revive_after;
        Ok(Add { revive_after, ..Add::new(Key::new(key.encode())?, when) })
    }

    /// Waits for a key: `None` once this handle is closed.
    ///
    /// Whoever calls this is in line from then on, also before what it returns is polled: do
    /// not keep that without awaiting it, since it may hold a key.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with: at once if trying again is no use, otherwise after
    /// the queue's [patience](SharedQueueBuilder::patience).
    /// [`Corrupt`](crate::ErrorKind::Corrupt) for a key that cannot be
    /// [decoded](StoreKey::decode), which is then among the dead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: one that was on its way goes to the next who
    /// waits, or is released.
    #[doc(alias = "Get")]
    pub fn get(
        &self,
    ) -> impl Future<Output = Result<Option<SharedLease<K, S>>, Error>> + Send + use<K, S>
    {
        let receiver = self.engine().get();
        async move { handed(receiver).await?.map(decode).transpose() }
    }

    /// Takes a key that is ready now, if there is one.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), without patience.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key: one that was on its way is released.
    pub async fn try_get(&self) -> Result<Option<SharedLease<K, S>>, Error> {
        Ok(self.try_get_many(1).await?.pop())
    }

    /// Takes up to `max` keys that are ready now, in one call, which takes no more than 256.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get). If one key cannot be decoded, the others are released.
    ///
    /// # Cancel safety
    ///
    /// As that of [`try_get`](Self::try_get).
    pub async fn try_get_many(
        &self,
        max: usize,
    ) -> Result<Vec<SharedLease<K, S>>, Error> {
        self.engine().try_get(max).await?.into_iter().map(decode).collect()
    }

    /// Forgets the failures of a key.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    #[doc(alias = "Forget")]
    pub async fn forget(&self, key: &K) -> Result<(), Error> {
        self.store().forget(&[Key::new(key.encode())?]).await
    }

    /// Takes out what is planned for a key: whether anything was. If it is being
    /// processed, that goes on.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    pub async fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.store().remove(&[Key::new(key.encode())?]).await?.contains(&true))
    }

    /// How often in a row a key has failed.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    #[doc(alias = "NumRequeues")]
    pub async fn num_requeues(&self, key: &K) -> Result<u32, Error> {
        Ok(self.look(key).await?.failures)
    }

    /// Whether a key is ready, delayed or dirty: whether it will be processed without being
    /// added.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    pub async fn contains(&self, key: &K) -> Result<bool, Error> {
        let look = self.look(key).await?;
        let planned = match look.phase {
            Phase::Ready => true,
            Phase::Processing { dirty, .. } => dirty,
            Phase::Absent | Phase::Dead => false,
        };
        Ok(planned || look.delayed.is_some())
    }

    /// Tells what the store knows of a key.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    pub async fn look(&self, key: &K) -> Result<Look, Error> {
        let looks = self.store().look(&[Key::new(key.encode())?]).await?;
        Ok(looks.into_iter().next().unwrap_or_default())
    }

    /// Tells how the queue stands, for all its handles together.
    ///
    /// The numbers of keys in the queue's [metrics](SharedQueueBuilder::metrics) are those of the
    /// last call of this; after one that failed there are none.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let stats = self.store().stats().await;
        self.engine().measure(|meter| meter.told(stats.as_ref().ok().copied()));
        stats
    }

    /// Counts adds in the queue's [metrics](SharedQueueBuilder::metrics) that went to the store
    /// past this handle, such as those in a transaction of your own.
    pub fn count_added(&self, adds: &[Add], receipts: &[Receipt]) {
        self.engine().measure(|meter| meter.added(adds, receipts));
    }

    /// How many keys are ready.
    ///
    /// # Errors
    ///
    /// Whatever the store fails with.
    #[expect(clippy::len_without_is_empty, reason = "asking a store is not free")]
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.stats().await?.ready)
    }

    /// Closes this handle and its clones: they add nothing and are given nothing any more.
    ///
    /// The keys stay in the store for others. Leases that are held can be ended as before.
    #[doc(alias = "ShutDown")]
    pub fn close(&self) {
        self.engine().close();
    }

    /// Whether this handle is closed.
    pub fn is_closed(&self) -> bool {
        self.engine().is_closed()
    }

    /// Closes this handle and waits until every lease that it gave out has ended, and the
    /// store has answered to all that was sent.
    ///
    /// # Cancel safety
    ///
    /// The handle closes when this is first polled. Dropping the future loses nothing.
    #[doc(alias = "ShutDownWithDrain")]
    pub async fn drain(&self) {
        self.close();
        self.engine().settle().await;
    }
}

fn closed() -> Error {
    Error::new(crate::ErrorKind::Closed, "this handle of the queue is closed")
}

fn count(all: &mut AddedAll, added: Added) {
    match added {
        Added::Dirty => all.dirty += 1,
        Added::Duplicate => all.duplicate += 1,
        Added::Ready | Added::Delayed | _ => all.ready += 1,
    }
}

/// Makes a key of its bytes. One that cannot be read would be handed out for ever, so it
/// goes to the dead.
pub(crate) fn decode<K: StoreKey, S: Store>(
    mut raw: RawLease<S>,
) -> Result<SharedLease<K, S>, Error> {
    match K::decode(&raw.grant.key) {
        Ok(key) => {
            raw.begin();
            Ok(SharedLease::new(key, raw))
        }
        Err(error) => {
            raw.set_error(error.to_string());
            drop(raw.finish(Finish::GiveUp));
            Err(error)
        }
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
