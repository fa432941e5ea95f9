//! Predicates: which changes of an object matter.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::runtime::Predicate;

use super::cache::Change;
use crate::object::Object;

/// The property of an object that a predicate looks at.
///
/// The finalizers of an object that is being deleted are part of it, so that a deletion and
/// each change of its finalizers pass.
pub(crate) struct Property<K>(Box<dyn Predicate<K> + Send>);

impl<K: Object> Property<K> {
    pub(crate) fn new(predicate: impl Predicate<K> + Send + 'static) -> Self {
        Self(Box::new(predicate))
    }

    /// Returns a hash of the property; `None` if every change passes.
    pub(crate) fn of(&self, object: &K) -> Option<u64> {
        let property = self.0.hash_property(object)?;
        let meta = object.meta();
        let finalizers = meta.deletion_timestamp.as_ref().map(|_| &meta.finalizers);
        let mut hasher = DefaultHasher::new();
        (property, finalizers).hash(&mut hasher);
        Some(hasher.finish())
    }
}

/// Remembers a property of each object, and passes changes of it.
///
/// Deletes always pass. So does the first event of an object. Objects differ if their uids
/// do, so one that was recreated under the same name passes too.
pub(crate) struct Filter<K> {
    property: Property<K>,
    known: HashMap<Name, (Option<String>, u64)>,
}

type Name = (Option<String>, Option<String>);

impl<K: Object> Filter<K> {
    pub(crate) fn new(predicate: impl Predicate<K> + Send + 'static) -> Self {
        Self { property: Property::new(predicate), known: HashMap::new() }
    }

    /// Returns whether a change matters.
    pub(crate) fn passes(&mut self, change: Change, object: &K) -> bool {
        let meta = object.meta();
        let name = (meta.namespace.clone(), meta.name.clone());
        if change == Change::Deleted {
            self.known.remove(&name);
            return true;
        }
        let Some(property) = self.property.of(object) else { return true };
        let current = (meta.uid.clone(), property);
        let previous = self.known.insert(name, current.clone());
        previous != Some(current)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::predicates;

    use super::*;

    fn object(uid: &str, generation: i64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".into());
        object.metadata.uid = Some(uid.into());
        object.metadata.generation = Some(generation);
        object
    }

    #[test]
    fn only_changes_of_the_property_pass() {
        let mut filter = Filter::new(predicates::generation);
        assert!(filter.passes(Change::Listed, &object("1", 1)));
        assert!(!filter.passes(Change::Changed, &object("1", 1)));
        assert!(!filter.passes(Change::Unchanged, &object("1", 1)));
        assert!(filter.passes(Change::Changed, &object("1", 2)));
    }

    /// kube-runtime's predicates swallow deletes: kube#1768.
    #[test]
    fn deletes_pass_and_forget_the_object() {
        let mut filter = Filter::new(predicates::generation);
        assert!(filter.passes(Change::Listed, &object("1", 1)));
        assert!(filter.passes(Change::Deleted, &object("1", 1)));
        assert!(filter.passes(Change::Changed, &object("1", 1)));
    }

    #[test]
    fn recreated_object_passes() {
        let mut filter = Filter::new(predicates::generation);
        assert!(filter.passes(Change::Listed, &object("1", 1)));
        assert!(filter.passes(Change::Changed, &object("2", 1)));
    }

    #[test]
    fn deletion_and_its_finalizers_pass() {
        let mut filter = Filter::new(predicates::generation);
        let mut deleting = object("1", 1);
        assert!(filter.passes(Change::Listed, &deleting));
        let time = "2026-01-01T00:00:00Z".parse().expect("it is a time");
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time);
        deleting.metadata.deletion_timestamp = Some(time);
        deleting.metadata.finalizers = Some(vec!["a".into(), "b".into()]);
        assert!(filter.passes(Change::Changed, &deleting));
        assert!(!filter.passes(Change::Changed, &deleting));
        deleting.metadata.finalizers = Some(vec!["b".into()]);
        assert!(filter.passes(Change::Changed, &deleting));
    }
}
