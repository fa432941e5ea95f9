//! One task per watch: update the store first, then add the keys.
//!
//! ```text
//! watcher (kube) ─► feed ─► store (kube), indexes
//!                     └───► keys ─► requeue::Queue ─► workers
//! ```
//!
//! A feed never waits for a worker: a queue is unbounded and merges keys. So a slow
//! reconciler cannot slow down a watch.

mod cache;
mod filter;
mod guard;
mod links;
mod reopen;
mod status;
mod watch;

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::Stream;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use requeue::{AddOptions, Queue, SystemClock};
use tokio::task::JoinHandle;

pub use self::cache::{Change, LOW, Seen};
pub use self::status::WatchStatus;

pub(crate) use self::cache::{Cache, Indexer, Subscriber};
pub(crate) use self::filter::{Filter, Property};
pub(crate) use self::guard::{Guard, guarded, guarded_in, invalid};
pub(crate) use self::links::{Links, Mapped};
pub(crate) use self::reopen::reopening;
pub(crate) use self::status::{Monitor, WatchFailure};
pub(crate) use self::watch::follow;

use crate::object::Object;

/// Feeds the keys of watched objects into a queue, in a background task.
///
/// This is the lower level below [`Controller`](crate::Controller): for keys of other types,
/// several clusters with one queue, or your own workers. `keys` returns the keys of a
/// change. The store is updated before the keys are added. A list takes effect when it is
/// complete; missing objects are then deleted, and unchanged ones added with a
/// [low priority](LOW).
///
/// After an error, the watch pauses and goes on. The task ends when the stream ends; abort it
/// to end it earlier. It does not keep the queue open.
///
/// # Panics
///
/// Outside of a tokio runtime.
///
/// # Examples
///
/// Two clusters with one queue:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::runtime::{reflector, watcher};
/// use kube::{Api, ResourceExt};
/// use requeue::Queue;
/// use requeue_kube::feed;
/// # use requeue_kube::testing::FakeCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let cluster = |name: &str| {
/// #     let cluster = FakeCluster::new();
/// #     let mut map = ConfigMap::default();
/// #     (map.metadata.name, map.metadata.namespace) = (Some(name.into()), Some("a".into()));
/// #     cluster.put(&map);
/// #     cluster.client()
/// # };
/// # let clients = [("east", cluster("x")), ("west", cluster("x"))];
/// let queue = Queue::<(&'static str, String)>::new();
/// for (cluster, client) in clients {
///     let events = watcher(Api::<ConfigMap>::all(client), watcher::Config::default());
///     let (_store, writer) = reflector::store();
///     feed(&queue, events, writer, (), move |seen| vec![(cluster, seen.object.name_any())]);
/// }
/// let first = queue.get().await.expect("the queue is open");
/// let second = queue.get().await.expect("the queue is open");
/// assert_ne!(first.key(), second.key());
/// # first.succeed();
/// # second.succeed();
/// # }
/// ```
pub fn feed<Key, K>(
    queue: &Queue<Key>,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    store: Writer<K>,
    dynamic: K::DynamicType,
    mut keys: impl FnMut(Seen<'_, K>) -> Vec<Key> + Send + 'static,
) -> JoinHandle<()>
where
    K: Object,
    Key: Eq + Hash + Send + Sync + 'static,
{
    let weak = queue.downgrade();
    let monitor = Monitor::new(K::kind(&dynamic));
    let mut cache = Cache::new(store, dynamic);
    cache.subscribe(Box::new(move |seen| {
        let Some(queue) = weak.upgrade() else { return false };
        let options = AddOptions::new().priority(seen.change.priority());
        // A closed queue takes no keys: the feed then only keeps the store up to date.
        let added = |key| queue.add_with(key, options).is_ok();
        keys(seen).into_iter().all(added)
    }));
    tokio::spawn(follow(events, monitor, Arc::new(SystemClock), move |event| {
        cache.apply(&event);
    }))
}

/// Calls user code: a mapper, a predicate or an index. Its panic must not end a watch, nor
/// cost other subscribers an event.
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    if called.is_err() {
        tracing::error!("a mapper, predicate or index panicked; keys may be missing");
    }
    called.ok()
}
