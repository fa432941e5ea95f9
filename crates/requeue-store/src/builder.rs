//! Configuring a queue on a store.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::metrics::Metrics;
use requeue::retry::RetryPolicy;
use requeue::{Clock, Finish, SystemClock};
use tokio::runtime::Handle;

use crate::client::{Client, Settings};
use crate::{Backoff, Error, Owner, SharedQueue, Store, StoreKey};

/// Configures a [`SharedQueue`].
///
/// | setting | default |
/// |---|---|
/// | [`lease`](SharedQueueBuilder::lease) | 30 seconds |
/// | [`max_deliveries`](SharedQueueBuilder::max_deliveries) | 5 |
/// | [`backoff`](SharedQueueBuilder::backoff) | 5 ms doubling to 1000 s for each key, no shared rate |
/// | [`retry`](SharedQueueBuilder::retry) | none: the backoff chooses the delays |
/// | [`revive_after`](SharedQueueBuilder::revive_after) | the longest backoff |
/// | [`patience`](SharedQueueBuilder::patience) | 10 seconds |
/// | [`on_drop`](SharedQueueBuilder::on_drop) | [`Finish::Retry`] |
/// | [`metrics`](SharedQueueBuilder::metrics) | none |
///
/// All processes of a queue should use the same lease.
#[must_use = "a builder does nothing until it is built"]
pub struct SharedQueueBuilder<K, S> {
    store: S,
    settings: Settings,
    revive_after: Option<Duration>,
    metrics: Option<Box<dyn Metrics>>,
    key: PhantomData<fn() -> K>,
}

impl<K: StoreKey, S: Store> SharedQueueBuilder<K, S> {
    pub(crate) fn new(store: S) -> Self {
        let backoff = Backoff::default();
        let settings = Settings {
            name: String::new(),
            owner: Owner::new(owner_name()),
            lease: Duration::from_secs(30),
            max_deliveries: NonZeroU32::new(5),
            backoff,
            retry: None,
            revive_after: backoff.max,
            patience: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
            on_error: None,
            on_drop: Finish::Retry,
        };
        Self { store, settings, revive_after: None, metrics: None, key: PhantomData }
    }

    /// Sets the name of the queue in metrics, traces and names of threads.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets the name of this queue among the owners of leases. It must be unique.
    ///
    /// The default consists of the host, the process and a random number.
    pub fn owner(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.owner = Owner::new(name);
        self
    }

    /// Sets how long a lease lasts if it is not extended, at least a millisecond.
    ///
    /// The queue extends leases three times in that time. After a worker dies, its keys wait
    /// until their leases expire.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_millis(1));
        self
    }

    /// Sets how often a key is delivered without a finish before it is dead.
    ///
    /// This stops a key that crashes its workers. `None` sets no limit.
    pub fn max_deliveries(mut self, max: Option<NonZeroU32>) -> Self {
        self.settings.max_deliveries = max;
        self
    }

    /// Sets how long keys are delayed after a failure.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Chooses the delay after a failure by a retry policy, as in memory.
    ///
    /// The policy must depend only on the number of failures, which the store counts; see
    /// [`RetryPolicy::by_count`]. [`Exponential`], [`FastSlow`], and their combinations with
    /// `and`, `at_most` and jitter do. The shared [rate](Backoff::rate) of the
    /// [`backoff`](Self::backoff) still applies; its other fields do not. If the policy
    /// panics, the backoff chooses the delay.
    ///
    /// # Panics
    ///
    /// If the policy is not by count.
    ///
    /// # Examples
    ///
    /// Keys that fail together are not retried together:
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::retry::{Exponential, RetryPolicy};
    /// use requeue_store::{Error, Finished, MemoryStore, SharedQueue};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let [second, hour] = [Duration::from_secs(1), Duration::from_secs(3600)];
    /// let queue = SharedQueue::<String, _>::builder(MemoryStore::new())
    ///     .retry(Exponential::new(second, hour).equal_jitter())
    ///     .build();
    /// queue.add("a".to_owned()).await?;
    /// let lease = queue.get().await?.expect("a key is ready");
    /// let finished = lease.retry().await?;
    /// assert!(matches!(finished, Finished::Delayed(d) if d >= second / 2 && d <= second));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// [`Exponential`]: requeue::retry::Exponential
    /// [`FastSlow`]: requeue::retry::FastSlow
    #[track_caller]
    pub fn retry(mut self, policy: impl RetryPolicy<K> + 'static) -> Self {
        assert!(
            policy.by_count().is_some(),
            "a queue on a store needs a retry policy that depends only on the number of \
             failures"
        );
        self.settings.retry = Some(Arc::new(move |failures| {
            policy.by_count().map_or(Duration::ZERO, |policy| policy.delay(failures))
        }));
        self
    }

    /// Sets how long a dead key is delayed when it is added again.
    ///
    /// An add gives a dead key a new chance, but a key that has just crashed its workers
    /// should not run at once. A key that was added before it died, during its last lease, is
    /// delayed by 1000 seconds instead.
    pub fn revive_after(mut self, delay: Duration) -> Self {
        self.revive_after = Some(delay);
        self
    }

    /// Sets how long calls with transient errors are repeated.
    ///
    /// After that they return the error; a pool keeps trying. The time counts from the call,
    /// or from the first failure if that is later. A call that fails is repeated without
    /// delaying the calls for other keys.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Sets the clock for leases, pauses and patience in this process. The store has its own
    /// clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Calls `callback` with errors that no caller receives, or not yet.
    ///
    /// Examples are a failed heartbeat, a failed call that is repeated, a key that cannot be
    /// decoded, and a failed finish of a pool.
    pub fn on_error(mut self, callback: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.settings.on_error = Some(Arc::new(callback));
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
        self.settings.on_drop = finish;
        self
    }

    /// Reports to `metrics`, as [`requeue::Queue`] does.
    ///
    /// Counters and histograms cover this process. A key that is added with a delay counts
    /// when it is added, and the store reports how long a key was ready. Gauges cover the
    /// whole queue and show the last [`stats`](SharedQueue::stats): measuring never calls
    /// the store, so call `stats` before a scrape.
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
    /// // Before each scrape:
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

    /// Builds the queue. Its tasks run on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// If called outside a tokio runtime.
    #[track_caller]
    pub fn build(self) -> SharedQueue<K, S> {
        self.build_on(Handle::current())
    }

    /// Builds the queue with its tasks on `runtime`.
    pub fn build_on(mut self, runtime: Handle) -> SharedQueue<K, S> {
        self.settings.revive_after =
            self.revive_after.unwrap_or(self.settings.backoff.max);
        let client = Client::new(self.store, self.settings, self.metrics, runtime);
        SharedQueue::from_client(client)
    }
}

/// Returns a unique name that says where the worker runs.
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
            .field("owner", &self.settings.owner)
            .field("lease", &self.settings.lease)
            .finish_non_exhaustive()
    }
}
