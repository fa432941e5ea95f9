//! A cache of objects that reports what each event changed.
//!
//! # Invariants
//!
//! 1. The store is updated first, then the indexes, then the subscribers are called. A
//!    subscriber that adds a key finds the object of that key, or a newer one, in the store.
//! 2. A list is applied as a whole, when it is complete. Until then, the store shows the
//!    objects of before.

use std::collections::HashMap;
use std::sync::Arc;

use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

use super::contain;
use super::guard::Guard;
use crate::object::{Object, key_of};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It was in the first list.
    Listed,
    /// It was created or changed, or is new in a later list.
    Changed,
    /// Its resource version is the same as before.
    Unchanged,
    /// It was deleted, or is missing in a later list.
    Deleted,
}

impl Change {
    /// Returns the priority for the keys of the object: low for objects that probably need
    /// no work.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Listed | Self::Unchanged => LOW,
            Self::Changed | Self::Deleted => 0,
        }
    }
}

/// The priority of listed and unchanged objects, as in controller-runtime.
#[doc(alias = "LowPriority")]
pub const LOW: i32 = -100;

/// A change of one object, after it was applied to the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Seen<'a, K> {
    /// What happened.
    pub change: Change,
    /// The object; its last known state if it was deleted.
    pub object: &'a K,
    /// The object before the change, if it was in the store.
    pub previous: Option<&'a K>,
}

/// Receives the changes of a cache. Returns whether it wants more.
pub(crate) type Subscriber<K> = Box<dyn FnMut(Seen<'_, K>) -> bool + Send>;

/// Follows the objects of a cache.
pub(crate) trait Indexer<K>: Send {
    /// Replaces an object by another one.
    fn replace(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>);
}

/// A store with its indexes and subscribers.
pub(crate) struct Cache<K: Object> {
    writer: Writer<K>,
    store: Store<K>,
    dynamic: K::DynamicType,
    ready: bool,
    /// The objects of a list that is not complete, except the first.
    listed: HashMap<ObjectRef<K>, (Change, Option<Arc<K>>)>,
    indexers: Vec<Box<dyn Indexer<K>>>,
    subscribers: Vec<Subscriber<K>>,
}

impl<K: Object> Cache<K> {
    pub(crate) fn new(writer: Writer<K>, dynamic: K::DynamicType) -> Self {
        Self {
            store: writer.as_reader(),
            writer,
            dynamic,
            ready: false,
            listed: HashMap::new(),
            indexers: Vec::new(),
            subscribers: Vec::new(),
        }
    }

    pub(crate) fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Adds a subscriber. It first receives all objects that are in the store.
    pub(crate) fn subscribe(&mut self, mut subscriber: Subscriber<K>) {
        if self.ready {
            for object in self.store.state() {
                let change = Change::Listed;
                subscriber(Seen { change, object: &object, previous: None });
            }
        }
        self.subscribers.push(subscriber);
    }

    /// Adds an index. It first receives all objects that are in the store.
    pub(crate) fn index(&mut self, mut indexer: Box<dyn Indexer<K>>) {
        for object in self.store.state() {
            indexer.replace(None, Some(&object));
        }
        self.indexers.push(indexer);
    }

    /// Applies an event to the store, the indexes and the subscribers.
    pub(crate) fn apply(&mut self, event: &Event<K>) {
        match event {
            Event::Init => {
                self.listed.clear();
                self.writer.apply_watcher_event(event);
            }
            Event::InitApply(object) => {
                if self.ready {
                    self.note(object);
                }
                self.writer.apply_watcher_event(event);
            }
            Event::InitDone => self.complete(),
            Event::Apply(object) => {
                let key = key_of(object, &self.dynamic);
                let previous = self.store.get(&key);
                self.writer.apply_watcher_event(event);
                let current = self.store.get(&key);
                let change = compare(previous.as_deref(), object);
                self.publish(change, previous.as_ref(), current.as_ref());
            }
            Event::Delete(object) => {
                let previous = self.store.get(&key_of(object, &self.dynamic));
                self.writer.apply_watcher_event(event);
                self.reindex(previous.as_ref(), None);
                let previous = previous.as_deref();
                self.call(Change::Deleted, object, previous);
            }
        }
    }

    /// Applies an event of objects that may not be decodable.
    ///
    /// Such an object is skipped. If an earlier state of it is known, that state is kept: the
    /// object was not deleted.
    pub(crate) fn apply_guarded(&mut self, event: Event<Guard<K>>) {
        let event = match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Apply(Guard::Valid(object)) => Event::Apply(object),
            Event::Delete(Guard::Valid(object)) => Event::Delete(object),
            Event::InitApply(Guard::Valid(object)) => Event::InitApply(object),
            Event::Apply(Guard::Invalid { .. }) => return,
            Event::Delete(Guard::Invalid { meta, .. }) => {
                let Some(known) = self.known(&meta) else { return };
                Event::Delete((*known).clone())
            }
            Event::InitApply(Guard::Invalid { meta, .. }) => {
                let Some(known) = self.known(&meta) else { return };
                Event::InitApply((*known).clone())
            }
        };
        self.apply(&event);
    }

    fn known(&self, meta: &kube::api::ObjectMeta) -> Option<Arc<K>> {
        let key = ObjectRef::new_with(meta.name.as_deref()?, self.dynamic.clone());
        let key = match &meta.namespace {
            Some(namespace) => key.within(namespace),
            None => key,
        };
        self.store.get(&key)
    }

    /// Compares a listed object with the one in the store.
    fn note(&mut self, object: &K) {
        let key = key_of(object, &self.dynamic);
        let previous = self.store.get(&key);
        let change = compare(previous.as_deref(), object);
        self.listed.insert(key, (change, previous));
    }

    /// Makes a complete list visible, then reports how it differs from the store before.
    fn complete(&mut self) {
        let before = if self.ready { self.store.state() } else { Vec::new() };
        self.writer.apply_watcher_event(&Event::InitDone); // invariant 2
        let listed = std::mem::take(&mut self.listed);
        if !std::mem::replace(&mut self.ready, true) {
            for object in self.store.state() {
                self.publish(Change::Listed, None, Some(&object));
            }
            return;
        }
        for vanished in before {
            if !listed.contains_key(&key_of(&*vanished, &self.dynamic)) {
                self.publish(Change::Deleted, Some(&vanished), None);
            }
        }
        for (key, (change, previous)) in listed {
            let current = self.store.get(&key);
            self.publish(change, previous.as_ref(), current.as_ref());
        }
    }

    fn publish(&mut self, change: Change, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        self.reindex(old, new);
        if let Some(object) = new.or(old) {
            self.call(change, object, old.map(|old| &**old));
        }
    }

    fn reindex(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        for indexer in &mut self.indexers {
            contain(|| indexer.replace(old, new));
        }
    }

    fn call(&mut self, change: Change, object: &K, previous: Option<&K>) {
        self.subscribers.retain_mut(|subscriber| {
            contain(|| subscriber(Seen { change, object, previous })).unwrap_or(true)
        });
    }
}

fn compare<K: Object>(previous: Option<&K>, object: &K) -> Change {
    let version = |object: &K| object.meta().resource_version.clone();
    match previous {
        Some(previous) if version(previous) == version(object) => Change::Unchanged,
        Some(_) | None => Change::Changed,
    }
}
