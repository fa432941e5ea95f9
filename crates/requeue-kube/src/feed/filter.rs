//! Predicates: which changes of an object matter.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::runtime::Predicate;

use super::cache::Change;
use crate::object::Object;

/// Remembers a property of each object, and passes changes of it.
///
/// Deletes always pass. So does the first event of an object, also of one that was deleted
/// and created again under the same name: objects are told apart by their uid. A deletion
/// that waits for finalizers passes, and each change of these finalizers.
pub(crate) struct Filter<K> {
    predicate: Box<dyn Predicate<K> + Send>,
    properties: HashMap<Name, (Option<String>, u64)>,
}

type Name = (Option<String>, Option<String>);

impl<K: Object> Filter<K> {
    pub(crate) fn new(predicate: impl Predicate<K> + Send + 'static) -> Self {
        Self { predicate: Box::new(predicate), properties: HashMap::new() }
    }

    /// Returns whether a change matters.
    pub(crate) fn passes(&mut self, change: Change, object: &K) -> bool {
        let meta = object.meta();
        let name = (meta.namespace.clone(), meta.name.clone());
        if change == Change::Deleted {
            self.properties.remove(&name);
            return true;
        }
        let Some(property) = self.predicate.hash_property(object) else { return true };
        let mut hasher = DefaultHasher::new();
        property.hash(&mut hasher);
        let finalizers = meta.deletion_timestamp.as_ref().map(|_| &meta.finalizers);
        finalizers.hash(&mut hasher);
        let current = (meta.uid.clone(), hasher.finish());
        let previous = self.properties.insert(name, current.clone());
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
