//! Indexes over a store.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::reflector::ObjectRef;

use crate::feed::Indexer;
use crate::object::{Object, key_of};

/// Finds the objects of a store by a function of the object; client-go's `Indexer`.
///
/// From [`Informer::index`](crate::Informer::index) or
/// [`Controller::index`](crate::Controller::index). The index is updated with each event,
/// after the store and before a key is added. A lookup takes constant time, whatever the
/// number of objects. Clones refer to the same index.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::Api;
/// use kube::runtime::watcher;
/// use requeue_kube::{Index, Informer};
/// # use requeue_kube::testing::FakeCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let client = FakeCluster::new().client();
/// let pods = Informer::new(Api::<Pod>::all(client), watcher::Config::default());
/// let by_node: Index<Pod, String> =
///     pods.index(|pod: &Pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect());
/// pods.start();
/// pods.synced().await;
/// assert!(by_node.get("node-1").is_empty());
/// # }
/// ```
#[doc(alias = "Indexer")]
#[doc(alias = "FieldIndexer")]
pub struct Index<K: Object, V> {
    entries: Entries<K, V>,
}

type Entries<K, V> = Arc<RwLock<HashMap<V, HashMap<ObjectRef<K>, Arc<K>>>>>;

impl<K: Object, V: Eq + Hash> Index<K, V> {
    /// Returns the objects for which the function returned `value`, in no particular order.
    pub fn get<Q>(&self, value: &Q) -> Vec<Arc<K>>
    where
        V: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(value).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// Returns the number of different values.
    pub fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether no object has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Object, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries) }
    }
}

impl<K: Object, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.entries.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Index").field("values", &values).finish_non_exhaustive()
    }
}

/// The writing side of an index.
struct IndexWriter<K: Object, V, F> {
    entries: Entries<K, V>,
    values: F,
    dynamic: K::DynamicType,
}

/// Creates an index, and the part that the cache updates.
pub(crate) fn index<K, V, F>(
    dynamic: K::DynamicType,
    values: F,
) -> (Index<K, V>, Box<dyn Indexer<K>>)
where
    K: Object,
    V: Eq + Hash + Send + Sync + 'static,
    F: Fn(&K) -> Vec<V> + Send + 'static,
{
    let entries = Entries::default();
    let writer = IndexWriter { entries: Arc::clone(&entries), values, dynamic };
    (Index { entries }, Box::new(writer))
}

impl<K, V, F> Indexer<K> for IndexWriter<K, V, F>
where
    K: Object,
    V: Eq + Hash + Send + Sync,
    F: Fn(&K) -> Vec<V> + Send,
{
    fn replace(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        // The function is the user's: it runs before the lock is taken.
        let old =
            old.map(|object| ((self.values)(object), key_of(&**object, &self.dynamic)));
        let new = new.map(|object| ((self.values)(object), object));
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((values, key)) = old {
            for value in values {
                if let Some(objects) = entries.get_mut(&value) {
                    objects.remove(&key);
                    if objects.is_empty() {
                        entries.remove(&value);
                    }
                }
            }
        }
        if let Some((values, object)) = new {
            for value in values {
                let key = key_of(&**object, &self.dynamic);
                entries.entry(value).or_default().insert(key, Arc::clone(object));
            }
        }
    }
}
