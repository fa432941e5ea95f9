//! The bounds on watched objects, and the keys of objects.

use std::any::TypeId;
use std::fmt::Debug;
use std::hash::Hash;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use serde::de::DeserializeOwned;

/// A kind of objects that can be watched. Implemented for every suitable type.
///
/// These are all kinds of `k8s-openapi`, those that derive `CustomResource`,
/// [`DynamicObject`](kube::api::DynamicObject), and
/// [`PartialObjectMeta`](kube::core::PartialObjectMeta) to watch only metadata.
pub trait Object:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<T> Object for T
where
    T: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    T::DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin,
{
}

/// Whether the objects of a kind are in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
    /// Known at run time only: an object without a namespace is cluster-scoped.
    Unknown,
}

impl Scope {
    pub(crate) fn of<K: Object>() -> Self {
        let scope = TypeId::of::<K::Scope>();
        if scope == TypeId::of::<ClusterResourceScope>() {
            Self::Cluster
        } else if scope == TypeId::of::<NamespaceResourceScope>() {
            Self::Namespaced
        } else {
            Self::Unknown
        }
    }
}

/// Returns the key of an object: without the resource version and the uid, which would only
/// take memory.
pub(crate) fn key_of<K: Object>(object: &K, dynamic: &K::DynamicType) -> ObjectRef<K> {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let key = ObjectRef::new_with(name, dynamic.clone());
    match &meta.namespace {
        Some(namespace) => key.within(namespace),
        None => key,
    }
}
