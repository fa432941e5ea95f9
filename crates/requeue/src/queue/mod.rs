//! The queue: its handle, and the parts behind it.
//!
//! `inline(always)` marks the functions of a worker's cycle that the compiler would otherwise
//! call. With a plain `inline`, a cycle takes 20 to 25 % more instructions
//! (`scripts/instructions`).

#![expect(clippy::inline_always, reason = "measured, as the module docs say")]

mod batch;
mod builder;
mod column;
mod delay;
mod delivery;
mod drain;
mod finish;
mod get;
mod hashing;
mod lease;
mod leases;
mod line;
mod links;
mod meter;
mod nanos;
mod offer;
mod options;
pub mod order;
mod park;
mod policy;
mod shared;
mod slots;
mod state;
mod table;
mod timing;
mod weak;

#[cfg(all(test, requeue_loom))]
mod loom_tests;
#[cfg(all(test, requeue_shuttle))]
mod shuttle_tests;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::batch::Batch;
pub use self::builder::Builder;
pub use self::drain::{Drain, WaitIdle};
pub use self::finish::Finish;
pub use self::get::{Get, GetMany};
pub use self::lease::Lease;
#[cfg(feature = "futures")]
pub use self::leases::Leases;
pub use self::leases::LeasesBlocking;
pub use self::options::{AddOptions, Added, AddedAll, Counts};
pub use self::weak::WeakQueue;

use self::offer::Owned;
use self::shared::{Closer, Shared};
use crate::error::Closed;
use crate::key::ToKey;

/// A deduplicating queue of keys. Each key is queued once and leased to one worker at a time.
///
/// This is a handle: clones refer to the same queue. Producers add keys, workers get them as
/// [leases](Lease), and any thread or task can do either. The [crate](crate) documentation
/// lists the promises of a queue.
///
/// # Waiting
///
/// | | one key | many keys |
/// |---|---|---|
/// | in a task | [`get`](Queue::get), [`get_timeout`](Queue::get_timeout), `leases` (feature `futures`) | [`get_many`](Queue::get_many) |
/// | on a thread | [`get_blocking`](Queue::get_blocking), [`get_blocking_timeout`](Queue::get_blocking_timeout), [`leases_blocking`](Queue::leases_blocking) | [`get_many_blocking`](Queue::get_many_blocking) |
/// | not at all | [`try_get`](Queue::try_get) | [`try_get_many`](Queue::try_get_many) |
///
/// A method without `_blocking` in its name never blocks. All of them can be used on one
/// queue at the same time. A key that becomes ready wakes one of the getters that have
/// waited longest. Another worker that asks first may still take it.
///
/// # Closing
///
/// A queue is open until it is [closed](Queue::close) or its last handle is dropped.
/// Leases and waiting futures are not handles: after `let waiting = queue.get();
/// drop(queue);` the future `waiting` returns `None`. A worker that owns a handle keeps the
/// queue open.
///
/// # Panics
///
/// User code that panics leaves the queue usable and loses no other key. This holds for the
/// key's `Hash`, `Eq`, `Clone` and `Drop`, the order, the clock, the retry policy, wakers and
/// the metrics recorder.
///
/// If `Hash`, `Eq`, the order or the clock panics, a call for one key changes nothing, and
/// [`add_all`](Queue::add_all) keeps the keys it has added. `Drop` of a key runs last, after
/// the change. A getter panics with `Clone` of the key it was about to lease, which is then
/// [stranded](Queue::stranded). Ending a lease never panics. A handler that panics drops its
/// lease, which is retried.
///
/// # Examples
///
/// ```
/// use requeue::Queue;
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// queue.add("b")?;
/// queue.add("a")?; // already queued
/// assert_eq!(queue.len(), 2);
///
/// let lease = queue.try_get()?;
/// assert_eq!(*lease, "a");
/// queue.add("a")?; // added while it is being processed: runs once more afterwards
/// lease.succeed();
/// let batch = queue.try_get_many(10)?;
/// assert_eq!(batch.keys().collect::<Vec<_>>(), [&"b", &"a"]);
/// batch.succeed();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "TypedInterface")]
#[doc(alias = "TypedDelayingInterface")]
#[doc(alias = "TypedRateLimitingInterface")]
#[doc(alias = "Interface")]
#[doc(alias = "DelayingInterface")]
#[doc(alias = "RateLimitingInterface")]
#[doc(alias = "PriorityQueue")]
#[doc(alias = "workqueue")]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
    /// Shared by handles only.
    closer: Arc<Closer<K>>,
}

impl<K> Queue<K> {
    /// Creates a queue with the defaults; see [`Builder`].
    #[doc(alias = "NewTyped")]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder to configure a queue.
    #[doc(alias = "NewTypedWithConfig")]
    #[doc(alias = "NewTypedDelayingQueue")]
    #[doc(alias = "NewTypedDelayingQueueWithConfig")]
    #[doc(alias = "NewTypedRateLimitingQueue")]
    #[doc(alias = "NewTypedRateLimitingQueueWithConfig")]
    #[doc(alias = "NewNamedRateLimitingQueue")]
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    fn from_shared(shared: Arc<Shared<K>>) -> Self {
        let closer = Arc::new(Closer(Arc::clone(&shared)));
        Self { shared, closer }
    }

    /// Returns a handle that does not keep the queue open.
    pub fn downgrade(&self) -> WeakQueue<K> {
        WeakQueue::new(&self.closer)
    }

    /// Returns the name that the queue was built with.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the number of ready keys.
    ///
    /// Delayed, processing and dirty keys do not count; see [`counts`](Self::counts). The
    /// number is a snapshot: do not use it to decide whether to add or to get.
    #[doc(alias = "Len")]
    pub fn len(&self) -> usize {
        self.counts().ready
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys in each state.
    pub fn counts(&self) -> Counts {
        self.shared.with(|state| state.counts())
    }

    /// Returns how many keys are stranded: set aside because the order or `Clone` panicked.
    ///
    /// A key is stranded if its order panics when the key's delay or lease ends, or if its
    /// `Clone` panics when it is leased. Adding the key again makes it ready, unless that
    /// panics as well. [`remove`](Self::remove) forgets it, [`close_now`](Self::close_now)
    /// and [`drain`](Self::drain) return it.
    pub fn stranded(&self) -> usize {
        self.shared.with(|state| state.stranded())
    }

    /// Returns the number of getters that wait for a key.
    pub fn parked(&self) -> usize {
        let locked = self.shared.lock();
        let parked = locked.park.len();
        locked.unlock();
        parked
    }

    /// Closes the queue. Later adds are refused. Idempotent.
    ///
    /// Ready keys are still delivered, and so is a dirty key when its lease ends. Delayed
    /// keys are not: [`drain`](Self::drain) and [`close_now`](Self::close_now) return them.
    /// Waiting getters return `None`.
    #[doc(alias = "ShutDown")]
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns whether the queue is closed.
    #[doc(alias = "ShuttingDown")]
    pub fn is_closed(&self) -> bool {
        self.shared.peek(|state| state.is_closed())
    }
}

impl<K: Eq + Hash> Queue<K> {
    /// Adds a key. It becomes ready, unless it is ready already.
    ///
    /// A key that is being processed becomes dirty: it is delivered once more when its lease
    /// ends. A delayed key becomes ready now, and once more when its delay ends, unless the
    /// queue [absorbs delays](Builder::absorb_delays).
    ///
    /// # Errors
    ///
    /// [`Closed`] returns the key if the queue is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::{Added, Queue};
    ///
    /// let queue = Queue::new();
    /// assert_eq!(queue.add(7), Ok(Added::Ready));
    /// assert_eq!(queue.add(7), Ok(Added::Duplicate));
    /// let lease = queue.try_get()?;
    /// assert_eq!(queue.add(7), Ok(Added::Dirty));
    /// lease.succeed();
    /// queue.close();
    /// assert_eq!(queue.add(8).map_err(|closed| closed.into_key()), Err(8));
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), requeue::TryGetError>(())
    /// ```
    #[doc(alias = "Add")]
    pub fn add(&self, key: K) -> Result<Added, Closed<K>> {
        self.shared.add(key, 0)
    }

    /// Adds a key by reference. An owned key is made only if the queue does not have it, so a
    /// duplicate string costs no allocation.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the queue is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let queue = requeue::Queue::<String>::new();
    /// queue.add_ref("namespace/name")?;
    /// queue.add_ref("namespace/name")?;
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), requeue::Closed>(())
    /// ```
    pub fn add_ref<Q>(&self, key: &Q) -> Result<Added, Closed>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.shared.add_ref(key)
    }

    /// Adds many keys, about a thousand per lock.
    ///
    /// # Errors
    ///
    /// [`Closed`] returns the keys that were not added because the queue is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let queue = requeue::Queue::new();
    /// let added = queue.add_all(["a", "b", "a"])?;
    /// assert_eq!((added.ready, added.duplicate), (2, 1));
    /// # Ok::<(), requeue::Closed<Vec<&str>>>(())
    /// ```
    pub fn add_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<AddedAll, Closed<Vec<K>>> {
        let mut keys = keys.into_iter();
        let mut tally = AddedAll::default();
        loop {
            // The iterator and `Hash` are the caller's: they run before the lock is taken.
            let hashed = |key| (self.shared.hash(&key), Owned::new(key));
            let mut chunk: Vec<_> = keys.by_ref().take(CHUNK).map(hashed).collect();
            if chunk.is_empty() {
                return Ok(tally);
            }
            if !self.shared.with(|state| state.add_many(&mut chunk, &mut tally)) {
                let chunk = chunk.into_iter().map(|(_, offer)| offer.into_key());
                return Err(Closed::new(chunk.chain(keys).collect()));
            }
        }
    }

    /// Adds a key after `delay`; at once if the delay is zero.
    ///
    /// If the key is already delayed, the earlier deadline counts; use
    /// [`postpone`](Self::postpone) to move it back. Keys with equal deadlines become ready in
    /// the order in which they were added. A delay can have any length: one that exceeds the
    /// range of [`Instant`] never ends.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    #[doc(alias = "AddAfter")]
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, Closed<K>> {
        self.shared.add_after(key, delay, 0)
    }

    /// Adds a key at `moment` on the queue's clock. Otherwise as
    /// [`add_after`](Self::add_after).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_at(&self, key: K, moment: Instant) -> Result<Added, Closed<K>> {
        let hash = self.shared.hash(&key);
        let (deadline, now) = (self.shared.nanos(moment), self.shared.now());
        self.shared.add_at(hash, key, deadline, 0, now)
    }

    /// Counts a failure of a key and adds it after the delay that the retry policy chooses.
    ///
    /// A worker calls [`Lease::retry`] instead, which does this and ends the lease in one
    /// step.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add). A closed queue counts no failure.
    #[doc(alias = "AddRateLimited")]
    pub fn add_rate_limited(&self, key: K) -> Result<Added, Closed<K>> {
        self.add_with(key, AddOptions::new().rate_limited(true))
    }

    /// Adds a key with options: a delay, a priority, or the delay of the retry policy.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    #[doc(alias = "AddWithOpts")]
    pub fn add_with(&self, key: K, options: AddOptions) -> Result<Added, Closed<K>> {
        self.shared.add_with(key, options)
    }

    /// Postpones a key: it becomes ready after `delay` and not before, even if it is ready
    /// now or has an earlier deadline.
    ///
    /// Each call replaces what was pending for the key. Call it for every event to wait until
    /// the events stop (debouncing). A key that is being processed is not disturbed; if it is
    /// dirty, it is delivered after the delay instead of at the end of its lease.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = requeue::Queue::new();
    /// queue.add("noisy")?;
    /// queue.postpone("noisy", Duration::from_secs(3))?;
    /// assert_eq!((queue.counts().ready, queue.counts().delayed), (0, 1));
    /// # Ok::<(), requeue::Closed<&str>>(())
    /// ```
    pub fn postpone(&self, key: K, delay: Duration) -> Result<Added, Closed<K>> {
        self.shared.postpone(key, delay)
    }

    /// Cancels a pending key. Returns `true` if the key was ready, delayed, dirty or stranded.
    ///
    /// A key that is being processed stays with its worker, but is no longer dirty. The
    /// failures of the key are kept.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.shared.hash(key);
        let (removed, key) = self.shared.with(|state| state.remove(hash, key));
        drop(key);
        removed
    }

    /// Returns whether a key is ready, delayed, being processed or stranded.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.shared.hash(key);
        self.shared.peek(|state| state.contains(hash, key))
    }

    /// Forgets the failures of a key. A key that waits for its retry keeps waiting.
    ///
    /// A worker calls [`Lease::succeed`] instead.
    #[doc(alias = "Forget")]
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.shared.forget(key);
    }

    /// Returns how often a key has failed since its failures were last forgotten.
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.shared.num_requeues(key)
    }
}

/// How many keys [`Queue::add_all`] adds per lock: enough to make the cost of the lock
/// negligible, few enough not to keep other callers waiting.
const CHUNK: usize = 1024;

/// Adds the keys as [`add_all`](Queue::add_all) does. A closed queue drops them.
impl<K: Eq + Hash> Extend<K> for Queue<K> {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        (&*self).extend(keys);
    }
}

/// Adds the keys as [`add_all`](Queue::add_all) does. A closed queue drops them.
impl<K: Eq + Hash> Extend<K> for &Queue<K> {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        drop(self.add_all(keys));
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), closer: Arc::clone(&self.closer) }
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the number of keys in each state, and no key.
impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        f.debug_struct("Queue")
            .field("name", &self.name())
            .field("ready", &counts.ready)
            .field("delayed", &counts.delayed)
            .field("processing", &counts.processing)
            .field("dirty", &counts.dirty)
            .finish_non_exhaustive()
    }
}
