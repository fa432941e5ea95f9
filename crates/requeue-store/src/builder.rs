//! How a queue on a store is made.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::metrics::Metrics;
use requeue::{Clock, Finish, SystemClock};
use tokio::runtime::Handle;

use crate::engine::{Engine, Terms};
use crate::{Backoff, Error, Owner, SharedQueue, Store, StoreKey};

/// Settings of a [`SharedQueue`].
///
/// | setting | if nothing is said |
/// |---|---|
/// | [`lease`](SharedQueueBuilder::lease) | 30 seconds |
/// | [`max_deliveries`](SharedQueueBuilder::max_deliveries) | 5 |
/// | [`backoff`](SharedQueueBuilder::backoff) | 5 ms doubling to 1000 s for each key, no shared rate |
/// | [`revive_after`](SharedQueueBuilder::revive_after) | the longest backoff |
/// | [`patience`](SharedQueueBuilder::patience) | 10 seconds |
/// | [`on_drop`](SharedQueueBuilder::on_drop) | [`Finish::Retry`] |
/// | [`metrics`](SharedQueueBuilder::metrics) | nothing is measured |
///
/// Handles of one queue in different processes should agree on the lease.
#[must_use = "a builder makes nothing until it builds"]
pub struct SharedQueueBuilder<K, S> {
    store: S,
    terms: Terms,
    revive_after: Option<Duration>,
    metrics: Option<Box<dyn Metrics>>,
    key: PhantomData<fn() -> K>,
}

impl<K: StoreKey, S: Store> SharedQueueBuilder<K, S> {
    pub(crate) fn new(store: S) -> Self {
        let backoff = Backoff::default();
        let terms = Terms {
            name: String::new(),
            owner: Owner::new(owner_name()),
            lease: Duration::from_secs(30),
            max_deliveries: NonZeroU32::new(5),
            backoff,
            revive_after: backoff.max,
            patience: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
            on_error: None,
            on_drop: Finish::Retry,
        };
        Self { store, terms, revive_after: None, metrics: None, key: PhantomData }
    }

    /// Names the queue, for its metrics and those of a pool, traces and threads.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.terms.name = name.into();
        self
    }

    /// Names this handle among the workers of the queue. It must be unlike all others; by
    /// default it is made of the host, the process and a random number.
    pub fn owner(mut self, name: impl Into<Arc<str>>) -> Self {
        self.terms.owner = Owner::new(name);
        self
    }

    /// Sets how long a lease lasts if it is not extended, which is tried three times as
    /// often: how long a key waits after its worker died. At least a millisecond.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease.max(Duration::from_millis(1));
        self
    }

    /// Sets after how many grants without an end a key is dead, when the lease of the last
    /// runs out: a key that kills its workers must not kill them all for ever. `None` tries
    /// for ever.
    pub fn max_deliveries(mut self, max: Option<NonZeroU32>) -> Self {
        self.terms.max_deliveries = max;
        self
    }

    /// Sets how long keys wait after a failure.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.terms.backoff = backoff;
        self
    }

    /// Sets how long a dead key waits after it was added again: a new event is a new
    /// chance, but not for a key that has just brought down its workers.
    pub fn revive_after(mut self, delay: Duration) -> Self {
        self.revive_after = Some(delay);
        self
    }

    /// Sets for how long calls are tried again while the store cannot be reached, before
    /// their error is returned: each from when it was made, or from when the store began to
    /// fail.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.terms.patience = patience;
        self
    }

    /// Takes the time of leases, pauses and patience in this process from `clock`. The
    /// store has its own.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.terms.clock = Arc::new(clock);
        self
    }

    /// Calls `callback` with errors that no caller is told of, or not yet: a heartbeat that
    /// failed, an attempt that will be repeated, the end of a lease that a pool could not
    /// bring to the store.
    pub fn on_error(mut self, callback: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.terms.on_error = Some(Arc::new(callback));
        self
    }

    /// Sets how a lease ends that is dropped without being finished, for example by a
    /// panic, a `?`, an aborted task or a timeout. The default is [`Finish::Retry`].
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::Finish;
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let queue = SharedQueue::<String, _>::builder(MemoryStore::new())
    ///     .on_drop(Finish::Release)
    ///     .build();
    /// queue.add("a".to_owned()).await?;
    /// drop(queue.get().await?);
    /// let again = queue.get().await?.expect("the key is ready again");
    /// assert_eq!(again.num_requeues(), 0);
    /// # again.succeed().await?;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn on_drop(mut self, finish: Finish) -> Self {
        self.terms.on_drop = finish;
        self
    }

    /// Reports to `metrics`, as [`requeue::Queue`] does. Nothing is measured by default.
    ///
    /// What is counted and timed is what passes through this process: keys that are added,
    /// delayed, worked on. A key that is added with a delay counts when it is added; how
    /// long it was ready is what the store says with its grant. The numbers of keys are of
    /// the whole queue, as the store told them last: measuring never asks the store, so call
    /// [`stats`](SharedQueue::stats) before a scrape.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::metrics::Prometheus;
    /// use requeue_store::{Error, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let prometheus = Prometheus::new();
    /// let queue = SharedQueue::<String, _>::builder(MemoryStore::new())
    ///     .name("mail")
    ///     .metrics(prometheus.clone())
    ///     .build();
    /// queue.add("a".to_owned()).await?;
    ///
    /// // For each scrape:
    /// queue.stats().await?;
    /// let page = prometheus.encode();
    /// assert!(page.contains("workqueue_adds_total{name=\"mail\"} 1\n"));
    /// assert!(page.contains("workqueue_depth{name=\"mail\"} 1\n"));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self {
        self.metrics = Some(Box::new(metrics));
        self
    }

    /// Makes the queue. Its tasks run on the runtime of tokio from which this is called.
    ///
    /// # Panics
    ///
    /// If this is called from outside a runtime.
    #[track_caller]
    pub fn build(self) -> SharedQueue<K, S> {
        self.build_on(Handle::current())
    }

    /// Makes the queue with its tasks on `runtime`.
    pub fn build_on(mut self, runtime: Handle) -> SharedQueue<K, S> {
        self.terms.revive_after = self.revive_after.unwrap_or(self.terms.backoff.max);
        SharedQueue::on(Engine::new(self.store, self.terms, self.metrics, runtime))
    }
}

/// Says where a worker is, and is unlike that of every other.
fn owner_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = if host.trim().is_empty() { "host" } else { host.trim() };
    let random = RandomState::new().hash_one(host);
    format!("{host}/{}/{random:016x}", std::process::id())
}

impl<K, S: Store> fmt::Debug for SharedQueueBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueueBuilder")
            .field("store", &self.store.describe())
            .field("owner", &self.terms.owner)
            .field("lease", &self.terms.lease)
            .finish_non_exhaustive()
    }
}
