//! Which keys the objects of an owned or mapped kind lead to.
//!
//! The objects themselves are not stored, only their versions and the keys. The keys are
//! enough to trigger a run for an object that vanished while the watch was interrupted.

use std::collections::HashMap;
use std::hash::Hash;

use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;

use super::cache::Change;
use super::guard::Guard;
use crate::object::Object;

type Name = (Option<String>, Option<String>);

/// The objects of one kind, as keys of another.
pub(crate) struct Links<Q> {
    known: HashMap<Name, Link<Q>>,
    /// The objects of a list that is not complete.
    listed: HashMap<Name, Link<Q>>,
    ready: bool,
}

#[derive(Clone)]
struct Link<Q> {
    version: Option<String>,
    uid: Option<String>,
    mapped: Mapped<Q>,
}

/// What a mapper says about an object.
#[derive(Clone)]
pub(crate) struct Mapped<Q> {
    pub(crate) keys: Vec<Q>,
    /// A change that leaves it as it was does not matter. `None`: every change matters.
    ///
    /// It is kept with the link, so a list that is not completed has no effect on it.
    pub(crate) property: Option<u64>,
}

impl<Q> Default for Links<Q> {
    fn default() -> Self {
        Self { known: HashMap::new(), listed: HashMap::new(), ready: false }
    }
}

impl<Q: Clone + Eq + Hash> Links<Q> {
    /// Applies an event, and calls `add` with each affected key.
    ///
    /// An object that leads to other keys than before affects both.
    pub(crate) fn apply<T: Object>(
        &mut self,
        event: Event<Guard<T>>,
        mut map: impl FnMut(T) -> Mapped<Q>,
        mut add: impl FnMut(Q, Change),
    ) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(Guard::Valid(object)) => {
                let (name, link) = Link::of(object, map);
                self.listed.insert(name, link);
            }
            Event::InitApply(Guard::Invalid { meta, .. }) => {
                let name = name_of(&meta);
                if let Some(link) = self.known.get(&name) {
                    self.listed.insert(name, link.clone());
                }
            }
            Event::InitDone => self.complete(&mut add),
            Event::Apply(Guard::Valid(object)) => {
                let (name, link) = Link::of(object, map);
                let old = self.known.remove(&name);
                let change = link.compare(old.as_ref());
                link.add(old.as_ref(), change, &mut add);
                self.known.insert(name, link);
            }
            Event::Apply(Guard::Invalid { .. }) => {}
            Event::Delete(object) => {
                let old = self.known.remove(&name_of(kube::Resource::meta(&object)));
                let new = match object {
                    Guard::Valid(object) => map(object).keys,
                    Guard::Invalid { .. } => Vec::new(),
                };
                let old = old.iter().flat_map(|link| &link.mapped.keys);
                add_each(old, &new, Change::Deleted, &mut add);
            }
        }
    }

    fn complete(&mut self, add: &mut impl FnMut(Q, Change)) {
        let first = !std::mem::replace(&mut self.ready, true);
        let mut before = std::mem::take(&mut self.known);
        for (name, link) in std::mem::take(&mut self.listed) {
            let old = before.remove(&name);
            let change = if first { Change::Listed } else { link.compare(old.as_ref()) };
            link.add(old.as_ref(), change, add);
            self.known.insert(name, link);
        }
        for vanished in before.into_values() {
            vanished.mapped.keys.into_iter().for_each(|key| add(key, Change::Deleted));
        }
    }
}

impl<Q: Clone + Eq + Hash> Link<Q> {
    fn of<T: Object>(object: T, mut map: impl FnMut(T) -> Mapped<Q>) -> (Name, Self) {
        let meta = object.meta();
        let (version, uid) = (meta.resource_version.clone(), meta.uid.clone());
        let name = name_of(meta);
        (name, Self { version, uid, mapped: map(object) })
    }

    fn compare(&self, old: Option<&Self>) -> Change {
        let same = |old: &Self| old.version == self.version && old.uid == self.uid;
        if old.is_some_and(same) { Change::Unchanged } else { Change::Changed }
    }

    /// Calls `add` with the keys of a change that matters.
    fn add(&self, old: Option<&Self>, change: Change, add: &mut impl FnMut(Q, Change)) {
        let property = self.mapped.property;
        let same = |old: &Self| old.uid == self.uid && old.mapped.property == property;
        if property.is_none() || !old.is_some_and(same) {
            let old = old.into_iter().flat_map(|link| &link.mapped.keys);
            add_each(old, &self.mapped.keys, change, add);
        }
    }
}

fn name_of(meta: &ObjectMeta) -> Name {
    (meta.namespace.clone(), meta.name.clone())
}

/// Calls `add` with the keys of before and after a change, each once.
fn add_each<'a, Q: Clone + Eq + Hash + 'a>(
    old: impl IntoIterator<Item = &'a Q>,
    new: impl IntoIterator<Item = &'a Q>,
    change: Change,
    add: &mut impl FnMut(Q, Change),
) {
    let mut seen: Vec<&Q> = Vec::new();
    for key in old.into_iter().chain(new) {
        if !seen.contains(&key) {
            seen.push(key);
            add(key.clone(), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: &str, key: &str) -> Guard<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.resource_version = Some(version.into());
        object.metadata.labels = Some([("key".to_owned(), key.to_owned())].into());
        Guard::Valid(object)
    }

    fn apply(
        links: &mut Links<String>,
        event: Event<Guard<ConfigMap>>,
    ) -> Vec<(String, Change)> {
        let mut added = Vec::new();
        let map = |object: ConfigMap| Mapped {
            keys: object
                .metadata
                .labels
                .into_iter()
                .flatten()
                .map(|(_, key)| key)
                .collect(),
            property: None,
        };
        links.apply(event, map, |key, change| added.push((key, change)));
        added.sort_by(|a, b| a.0.cmp(&b.0));
        added
    }

    fn entry(key: &str, change: Change) -> (String, Change) {
        (key.to_owned(), change)
    }

    #[test]
    fn list_is_compared_when_it_is_complete() {
        let mut links = Links::default();
        assert!(apply(&mut links, Event::Init).is_empty());
        for name in ["same", "changed", "gone"] {
            let listed = Event::InitApply(object(name, "1", name));
            assert!(apply(&mut links, listed).is_empty());
        }
        let first = apply(&mut links, Event::InitDone);
        assert!(first.iter().all(|(_, change)| *change == Change::Listed), "{first:?}");
        assert_eq!(first.len(), 3);
        apply(&mut links, Event::Init);
        apply(&mut links, Event::InitApply(object("same", "1", "same")));
        apply(&mut links, Event::InitApply(object("changed", "2", "moved")));
        apply(&mut links, Event::InitApply(object("new", "3", "new")));
        let expected = [
            entry("changed", Change::Changed),
            entry("gone", Change::Deleted),
            entry("moved", Change::Changed),
            entry("new", Change::Changed),
            entry("same", Change::Unchanged),
        ];
        assert_eq!(apply(&mut links, Event::InitDone), expected);
    }

    /// Without the earlier keys, the owner that lost a child would not be reconciled.
    #[test]
    fn moved_object_affects_both_keys() {
        let mut links = Links::default();
        apply(&mut links, Event::Apply(object("a", "1", "old")));
        let moved = apply(&mut links, Event::Apply(object("a", "2", "new")));
        assert_eq!(moved.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["new", "old"]);
        let deleted = apply(&mut links, Event::Delete(object("a", "3", "new")));
        assert_eq!(deleted, [entry("new", Change::Deleted)]);
    }

    #[test]
    fn interrupted_list_is_forgotten() {
        let mut links = Links::default();
        apply(&mut links, Event::Init);
        apply(&mut links, Event::InitApply(object("a", "1", "a")));
        apply(&mut links, Event::Init);
        apply(&mut links, Event::InitApply(object("b", "1", "b")));
        assert_eq!(apply(&mut links, Event::InitDone), [entry("b", Change::Listed)]);
    }

    #[test]
    fn undecodable_object_keeps_its_keys() {
        let invalid = |name: &str| {
            let meta = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
            Guard::Invalid { meta: Box::new(meta), error: "no".into() }
        };
        let mut links = Links::default();
        apply(&mut links, Event::Apply(object("a", "1", "owner")));
        assert!(apply(&mut links, Event::Apply(invalid("a"))).is_empty());
        apply(&mut links, Event::Init);
        apply(&mut links, Event::InitApply(invalid("a")));
        let relisted = apply(&mut links, Event::InitDone);
        assert_eq!(relisted, [entry("owner", Change::Listed)], "not taken for deleted");
        let deleted = apply(&mut links, Event::Delete(invalid("a")));
        assert_eq!(deleted, [entry("owner", Change::Deleted)]);
    }
}
