//! Where events become queued keys.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, ObjectRefExtra, Store};
use requeue::{AddOptions, Clock, Queue};

use crate::feed::{Change, LOW};
use crate::object::{Object, Scope, key_of};
use crate::reasons::{PendingReasons, Reasons};

/// How many times the debounce delay a key can be postponed by further events.
const MAX_DEBOUNCES: u32 = 10;

/// The queue of a controller, and the reasons of its keys.
pub(crate) struct Inbox<K: Object> {
    pub(super) queue: Queue<ObjectRef<K>>,
    pub(super) reasons: PendingReasons<ObjectRef<K>>,
    pub(super) store: Store<K>,
    pub(super) dynamic: K::DynamicType,
    pub(super) scope: Scope,
    pub(super) debounce: Option<Duration>,
    pub(super) owner_rule: OwnerRule,
    pub(super) clock: Arc<dyn Clock>,
}

impl<K: Object> Inbox<K> {
    /// Adds the key of a root object.
    pub(super) fn add_changed(&self, change: Change, object: &K) {
        let reason = match change {
            Change::Listed | Change::Unchanged => Reasons::LISTED,
            Change::Changed => Reasons::CHANGED,
            Change::Deleted => Reasons::DELETED,
        };
        self.add(key_of(object, &self.dynamic), reason, change.priority());
    }

    /// Adds an owner, if it exists.
    ///
    /// An owner that is missing here is reconciled when it appears. One that never does is in
    /// another namespace, which Kubernetes does not allow, or is not selected.
    pub(super) fn add_owner(&self, key: ObjectRef<K>, change: Change) {
        if self.store.get(&key).is_some() {
            self.add(key, Reasons::OWNED, change.priority());
        } else {
            tracing::debug!(%key, "ignored an owner that is not in the store");
        }
    }

    /// Records a reason and adds the key. A closed queue refuses it, which is not an error:
    /// the controller stops.
    pub(super) fn add(&self, key: ObjectRef<K>, reason: Reasons, priority: i32) {
        let key = self.normal(key);
        let added = match self.debounce {
            Some(delay) if priority > LOW => {
                let now = self.clock.now();
                let since = self.reasons.add(&key, reason, Some(now)).unwrap_or(now);
                let latest = since.checked_add(delay.saturating_mul(MAX_DEBOUNCES));
                let left = latest.map_or(delay, |at| at.saturating_duration_since(now));
                self.queue.postpone(key, delay.min(left))
            }
            _ => {
                self.reasons.add(&key, reason, None);
                self.queue.add_with(key, AddOptions::new().priority(priority))
            }
        };
        added.map(drop).unwrap_or_default();
    }

    /// Adds all objects of the store with low priority, spread over a period.
    pub(super) fn add_all(&self, reason: Reasons, period: Duration) {
        let objects = self.store.state();
        let count = u32::try_from(objects.len()).unwrap_or(u32::MAX).max(1);
        for (index, object) in (0_u32..).zip(&objects) {
            let key = key_of(&**object, &self.dynamic);
            self.reasons.add(&key, reason, None);
            let options = AddOptions::new().priority(LOW);
            let options = match (period / count).saturating_mul(index) {
                Duration::ZERO => options,
                delay => options.after(delay),
            };
            self.queue.add_with(key, options).map(drop).unwrap_or_default();
        }
    }

    /// Returns the one key of an object: a cluster-scoped object has no namespace.
    fn normal(&self, mut key: ObjectRef<K>) -> ObjectRef<K> {
        key.extra = ObjectRefExtra::default();
        if key.namespace.is_some() {
            let cluster = match self.scope {
                Scope::Cluster => true,
                Scope::Namespaced => false,
                Scope::Unknown => {
                    let found = self.store.get(&key);
                    found.is_some_and(|object| object.meta().namespace.is_none())
                }
            };
            if cluster {
                key.namespace = None;
            }
        }
        key
    }

    /// Returns the keys of the owners of an object that are of the kind `K`, in any version.
    pub(super) fn owners(&self, meta: &ObjectMeta) -> Vec<ObjectRef<K>> {
        let owners = meta.owner_references.iter().flatten();
        let owners = owners.filter(|owner| self.is_owner(owner));
        owners.filter_map(|owner| self.owner_key(owner, meta)).collect()
    }

    fn is_owner(&self, owner: &OwnerReference) -> bool {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        owner.kind == K::kind(&self.dynamic)
            && group == K::group(&self.dynamic)
            && (self.owner_rule == OwnerRule::All || owner.controller == Some(true))
    }

    fn owner_key(
        &self,
        owner: &OwnerReference,
        meta: &ObjectMeta,
    ) -> Option<ObjectRef<K>> {
        let key = ObjectRef::new_with(&owner.name, self.dynamic.clone());
        match (self.scope, &meta.namespace) {
            (Scope::Cluster, _) | (Scope::Unknown, None) => Some(key),
            (Scope::Namespaced | Scope::Unknown, Some(namespace)) => {
                Some(key.within(namespace))
            }
            (Scope::Namespaced, None) => {
                let child = meta.name.as_deref().unwrap_or_default();
                tracing::warn!(
                    child,
                    owner = owner.name,
                    "ignored an owner with a namespace of an object without one"
                );
                None
            }
        }
    }
}

/// Which owner references count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerRule {
    All,
    ControllerOnly,
}
