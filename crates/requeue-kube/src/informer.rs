//! A watched store that several controllers can share.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Api;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use requeue::{Clock, Queue, SystemClock};
use tokio::task::AbortHandle;

use crate::feed::{
    Cache, Guard, Monitor, Seen, Subscriber, WatchStatus, follow, guarded, invalid,
    reopening,
};
use crate::index::{Index, index};
use crate::object::Object;

/// One watch and its store, for any number of controllers; client-go's shared informer.
///
/// Clones refer to the same watch, which ends when the last of them is dropped. A controller
/// takes one with [`Controller::for_informer`](crate::Controller::for_informer),
/// [`owns_informer`](crate::Controller::owns_informer) or
/// [`watches_informer`](crate::Controller::watches_informer). A subscriber that comes late
/// first receives all objects, and no subscriber can block another one: all of them only add
/// keys to queues.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use kube::Api;
/// use kube::runtime::watcher;
/// use requeue_kube::Informer;
/// # use requeue_kube::testing::FakeCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let cluster = FakeCluster::new();
/// # let mut secret = Secret::default();
/// # (secret.metadata.name, secret.metadata.namespace) = (Some("a".into()), Some("b".into()));
/// # cluster.put(&secret);
/// # let client = cluster.client();
/// let secrets = Informer::new(Api::<Secret>::all(client), watcher::Config::default());
/// secrets.start();
/// secrets.synced().await;
/// assert_eq!(secrets.store().len(), 1);
/// # }
/// ```
#[doc(alias = "SharedInformer")]
#[doc(alias = "SharedIndexInformer")]
pub struct Informer<K: Object> {
    inner: Arc<Inner<K>>,
    /// Shared by the handles only, not by the task.
    task: Arc<Task>,
}

struct Inner<K: Object> {
    cache: Mutex<Cache<K>>,
    store: Store<K>,
    dynamic: K::DynamicType,
    monitor: Arc<Monitor>,
    source: Mutex<Option<Source<K>>>,
}

/// What a watch needs before it starts.
struct Source<K> {
    api: Api<K>,
    config: watcher::Config,
    clock: Arc<dyn Clock>,
}

/// Ends the watch when the last handle is dropped.
#[derive(Default)]
struct Task(Mutex<Option<AbortHandle>>);

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl<K: Object> Informer<K>
where
    K::DynamicType: Default,
{
    /// Creates an informer. It watches when it is [started](Self::start), by a controller or
    /// by hand.
    pub fn new(api: Api<K>, config: watcher::Config) -> Self {
        Self::new_with(api, config, K::DynamicType::default())
    }
}

impl<K: Object> Informer<K> {
    /// As [`new`](Self::new), for kinds that are known at run time only.
    pub fn new_with(
        api: Api<K>,
        config: watcher::Config,
        dynamic: K::DynamicType,
    ) -> Self {
        let cache = Cache::new(Writer::new(dynamic.clone()), dynamic.clone());
        let clock = Arc::new(SystemClock);
        let inner = Inner {
            store: cache.store().clone(),
            cache: Mutex::new(cache),
            monitor: Monitor::new(K::kind(&dynamic)),
            dynamic,
            source: Mutex::new(Some(Source { api, config, clock })),
        };
        Self { inner: Arc::new(inner), task: Arc::default() }
    }

    /// Sets the clock for pauses after errors. The default is the system's. Has no effect
    /// once the watch has started.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        self.set_clock(Arc::new(clock));
        self
    }

    pub(crate) fn set_clock(&self, clock: Arc<dyn Clock>) {
        if let Some(source) = &mut *lock(&self.inner.source) {
            source.clock = clock;
        }
    }

    /// Returns the store. It is empty until the first list is complete.
    pub fn store(&self) -> Store<K> {
        self.inner.store.clone()
    }

    pub(crate) fn dynamic(&self) -> &K::DynamicType {
        &self.inner.dynamic
    }

    pub(crate) fn monitor(&self) -> &Arc<Monitor> {
        &self.inner.monitor
    }

    /// Returns the state of the watch.
    pub fn status(&self) -> WatchStatus {
        self.inner.monitor.status()
    }

    /// Waits until the first list is complete and in the store.
    ///
    /// Any number of tasks can wait at the same time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn synced(&self) {
        self.inner.monitor.synced().await;
    }

    /// Indexes the store by the values that `values` returns for an object.
    ///
    /// The function runs in the task of the watch: it must not block.
    pub fn index<V>(&self, values: impl Fn(&K) -> Vec<V> + Send + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        let (index, writer) = index(self.inner.dynamic.clone(), values);
        lock(&self.inner.cache).index(writer);
        index
    }

    /// Adds the keys of all objects, and of each change from now on, to a queue.
    ///
    /// `keys` returns the keys of a change. It runs in the task of the watch: it must not
    /// block. Keys that a slow worker has not taken yet are merged, so nothing piles up.
    pub fn feed<Key>(
        &self,
        queue: &Queue<Key>,
        mut keys: impl FnMut(Seen<'_, K>) -> Vec<Key> + Send + 'static,
    ) where
        Key: Eq + Hash + Send + Sync + 'static,
    {
        let weak = queue.downgrade();
        self.subscribe(Box::new(move |seen| {
            let Some(queue) = weak.upgrade() else { return false };
            let options = requeue::AddOptions::new().priority(seen.change.priority());
            keys(seen).into_iter().all(|key| queue.add_with(key, options).is_ok())
        }));
    }

    pub(crate) fn subscribe(&self, subscriber: Subscriber<K>) {
        lock(&self.inner.cache).subscribe(subscriber);
    }

    /// Starts the watch. Idempotent.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        let Some(source) = lock(&self.inner.source).take() else { return };
        let Source { api, config, clock } = source;
        let inner = Arc::clone(&self.inner);
        let api = guarded(api, &inner.dynamic);
        let open = move || kube::runtime::watcher(api.clone(), config.clone());
        let events = reopening(open, Arc::clone(&clock));
        let monitor = Arc::clone(&inner.monitor);
        let apply = move |event| inner.apply(event);
        let task = tokio::spawn(follow(events, monitor, clock, apply));
        *lock(&self.task.0) = Some(task.abort_handle());
    }
}

impl<K: Object> Inner<K> {
    fn apply(&self, event: Event<Guard<K>>) {
        warn_if_invalid(&event, &self.monitor);
        lock(&self.cache).apply_guarded(event);
    }
}

/// Logs and counts an object that cannot be decoded.
pub(crate) fn warn_if_invalid<K: Object>(event: &Event<Guard<K>>, monitor: &Monitor) {
    if let Some((meta, error)) = invalid(event) {
        let skipped = monitor.undecodable();
        tracing::warn!(
            kind = monitor.kind(),
            namespace = meta.namespace.as_deref().unwrap_or_default(),
            name = meta.name.as_deref().unwrap_or_default(),
            error,
            skipped,
            "skipped an object that cannot be decoded"
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Object> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), task: Arc::clone(&self.task) }
    }
}

impl<K: Object> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("status", &self.status()).finish_non_exhaustive()
    }
}
