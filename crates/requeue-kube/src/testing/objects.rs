//! The objects of the fake API server, and their history. No I/O, no time.
//!
//! # Invariants
//!
//! 1. Each change has its own revision, which becomes the `resourceVersion` of the object.
//! 2. `history` is ordered by revision and complete since `compacted`.
//! 3. An object that is deleted while it has finalizers is kept, with a `deletionTimestamp`,
//!    until an update removes the last finalizer.

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::Patch as JsonPatch;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::selector::Selector;
use super::status::Refusal;

/// All timestamps of the fake server, so that tests are deterministic.
const TIMESTAMP: &str = "2026-01-01T00:00:00Z";

/// A kind, without its version: all versions of a kind are the same objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) plural: String,
}

impl Kind {
    pub(super) fn of(call: &Call) -> Self {
        Self { group: call.group.clone(), plural: call.plural.clone() }
    }
}

/// Where an object is stored. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) kind: Kind,
    /// The object before the change; `None` if it was created.
    pub(super) before: Option<Arc<Value>>,
    /// The object after the change. If it was deleted, its last state.
    pub(super) after: Arc<Value>,
    pub(super) deleted: bool,
}

/// The stored objects and their history.
#[derive(Debug, Default)]
pub(super) struct Objects {
    revision: u64,
    compacted: u64,
    uids: u64,
    stored: BTreeMap<Place, Arc<Value>>,
    history: Vec<Change>,
}

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    Merge,
    Json,
    Apply,
}

/// What an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything except the status.
    Main,
    /// The status only.
    Status,
    /// Everything: not a request, but the test itself.
    All,
}

impl Objects {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the oldest revision from which a watch can resume.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets the history. Watches cannot resume from any earlier revision.
    pub(super) fn compact(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.history.clear();
    }

    pub(super) fn changes_since(&self, revision: u64) -> &[Change] {
        let start = self.history.partition_point(|change| change.revision <= revision);
        &self.history[start..]
    }

    pub(super) fn get(&self, place: &Place) -> Result<Arc<Value>, Refusal> {
        let found = self.stored.get(place).cloned();
        found.ok_or_else(|| Refusal::not_found(&place.kind.plural, &place.name))
    }

    pub(super) fn list(&self, kind: &Kind, selector: &Selector) -> Vec<Arc<Value>> {
        let of_kind = self.stored.iter().filter(|(place, _)| place.kind == *kind);
        of_kind
            .map(|(_, object)| object)
            .filter(|o| selector.matches(o))
            .cloned()
            .collect()
    }

    /// Creates an object. `place.name` may be empty if the object has a `generateName`.
    pub(super) fn create(
        &mut self,
        mut place: Place,
        mut object: Value,
        part: Part,
    ) -> Result<Arc<Value>, Refusal> {
        if place.name.is_empty() {
            place.name = self.new_name(&object)?;
        }
        if self.stored.contains_key(&place) {
            return Err(Refusal::exists(&place.kind.plural, &place.name));
        }
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        let metadata = metadata_mut(&mut object);
        metadata.insert("name".into(), place.name.clone().into());
        if !place.namespace.is_empty() {
            metadata.insert("namespace".into(), place.namespace.clone().into());
        }
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), TIMESTAMP.into());
        metadata.entry("generation").or_insert(json!(1));
        metadata.remove("deletionTimestamp");
        if part != Part::All {
            remove_field(&mut object, "status");
        }
        Ok(self.commit(place, object))
    }

    fn new_name(&self, object: &Value) -> Result<String, Refusal> {
        let metadata = &object["metadata"];
        if let Some(name) = metadata["name"].as_str() {
            return Ok(name.to_owned());
        }
        let prefix = metadata["generateName"].as_str();
        let prefix = prefix
            .ok_or_else(|| Refusal::new(422, "name or generateName is required"))?;
        Ok(format!("{prefix}{:05x}", self.revision + 1))
    }

    /// Replaces an object.
    pub(super) fn update(
        &mut self,
        place: Place,
        object: Value,
        part: Part,
    ) -> Result<Arc<Value>, Refusal> {
        let before = self.get(&place)?;
        check_versions(&place, &before, &object)?;
        let mut after = merged(&before, object, part);
        keep_metadata(&before, &mut after);
        if spec_of(&before) != spec_of(&after) {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(1) + 1;
            metadata_mut(&mut after).insert("generation".into(), generation.into());
        }
        if *before == after {
            return Ok(before); // as in a real server, nothing is written
        }
        if is_deleting(&after) && !has_finalizers(&after) {
            return Ok(self.remove(&place, after)); // invariant 3
        }
        Ok(self.commit(place, after))
    }

    /// Changes an object. An apply patch creates a missing one.
    pub(super) fn patch(
        &mut self,
        place: Place,
        patch: Value,
        kind: PatchKind,
        part: Part,
    ) -> Result<Arc<Value>, Refusal> {
        let before = match self.get(&place) {
            Err(_) if kind == PatchKind::Apply && part == Part::Main => {
                return self.create(place, patch, part);
            }
            before => before?,
        };
        let mut object = (*before).clone();
        match kind {
            PatchKind::Merge | PatchKind::Apply => {
                remove_version(&mut object);
                merge(&mut object, patch);
            }
            PatchKind::Json => {
                let patch: JsonPatch = serde_json::from_value(patch)
                    .map_err(|error| Refusal::new(400, error.to_string()))?;
                json_patch::patch(&mut object, &patch)
                    .map_err(|error| Refusal::new(422, error.to_string()))?;
            }
        }
        self.update(place, object, part)
    }

    /// Deletes an object, or marks it as deleted if it has finalizers.
    pub(super) fn delete(
        &mut self,
        place: &Place,
        preconditions: &Value,
    ) -> Result<Arc<Value>, Refusal> {
        let before = self.get(place)?;
        let metadata = &before["metadata"];
        for field in ["uid", "resourceVersion"] {
            let expected = &preconditions[field];
            if !expected.is_null() && *expected != metadata[field] {
                return Err(Refusal::conflict(&place.kind.plural, &place.name));
            }
        }
        if !has_finalizers(&before) {
            return Ok(self.remove(place, (*before).clone()));
        }
        if is_deleting(&before) {
            return Ok(before);
        }
        let mut after = (*before).clone();
        metadata_mut(&mut after).insert("deletionTimestamp".into(), TIMESTAMP.into());
        Ok(self.commit(place.clone(), after))
    }

    /// Removes an object, whether it has finalizers or not.
    pub(super) fn remove(&mut self, place: &Place, last: Value) -> Arc<Value> {
        let before = self.stored.remove(place);
        self.record(place, before, last, true)
    }

    fn commit(&mut self, place: Place, after: Value) -> Arc<Value> {
        let before = self.stored.get(&place).cloned();
        let after = self.record(&place, before, after, false);
        self.stored.insert(place, Arc::clone(&after));
        after
    }

    fn record(
        &mut self,
        place: &Place,
        before: Option<Arc<Value>>,
        mut after: Value,
        deleted: bool,
    ) -> Arc<Value> {
        self.revision += 1;
        let version = self.revision.to_string();
        metadata_mut(&mut after).insert("resourceVersion".into(), version.into());
        let after = Arc::new(after);
        self.history.push(Change {
            revision: self.revision,
            kind: place.kind.clone(),
            before,
            after: Arc::clone(&after),
            deleted,
        });
        after
    }
}

fn check_versions(place: &Place, before: &Value, object: &Value) -> Result<(), Refusal> {
    for field in ["resourceVersion", "uid"] {
        let sent = &object["metadata"][field];
        let given = sent.as_str().is_some_and(|text| !text.is_empty());
        if given && *sent != before["metadata"][field] {
            return Err(Refusal::conflict(&place.kind.plural, &place.name));
        }
    }
    Ok(())
}

/// Takes from `sent` the part that the request may change, and the rest from `before`.
fn merged(before: &Value, mut sent: Value, part: Part) -> Value {
    match part {
        Part::All => sent,
        Part::Main => {
            copy_field(before, &mut sent, "status");
            sent
        }
        Part::Status => {
            let mut after = before.clone();
            copy_field(&sent, &mut after, "status");
            after
        }
    }
}

/// Restores the fields of the metadata that the server owns.
fn keep_metadata(before: &Value, after: &mut Value) {
    const OWNED: [&str; 7] = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
    ];
    for field in OWNED {
        let metadata = metadata_mut(after);
        match before["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

/// Everything whose change makes a new generation.
fn spec_of(object: &Value) -> Map<String, Value> {
    let mut fields = object.as_object().cloned().unwrap_or_default();
    for field in ["metadata", "status", "apiVersion", "kind"] {
        fields.remove(field);
    }
    if is_deleting(object) {
        fields.insert("deleting".into(), Value::Bool(true));
    }
    fields
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("it was just made one")
}

fn remove_version(object: &mut Value) {
    metadata_mut(object).remove("resourceVersion");
}

fn remove_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove_field(to, field),
    }
}

/// A JSON merge patch, RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("it was just made one");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        let kind = Kind { group: String::new(), plural: "things".into() };
        Place { kind, namespace: "n".into(), name: name.into() }
    }

    fn with(name: &str, spec: i32) -> (Objects, Arc<Value>) {
        let mut objects = Objects::default();
        let object = json!({"kind": "Thing", "spec": spec});
        let made = objects.create(place(name), object, Part::Main).expect("it is new");
        (objects, made)
    }

    fn code<T>(result: Result<T, Refusal>) -> Option<u16> {
        result.err().map(|refusal| refusal.code)
    }

    #[test]
    fn stale_versions_are_refused() {
        let (mut objects, first) = with("a", 1);
        let mut second = (*first).clone();
        second["spec"] = json!(2);
        let updated = objects.update(place("a"), second.clone(), Part::Main);
        assert_eq!(updated.expect("it is current")["metadata"]["generation"], 2);
        assert_eq!(
            code(objects.update(place("a"), second.clone(), Part::Main)),
            Some(409)
        );
        second["metadata"]["resourceVersion"] = json!("");
        assert_eq!(code(objects.update(place("a"), second, Part::Main)), None);
        assert_eq!(code(objects.create(place("a"), json!({}), Part::Main)), Some(409));
        assert_eq!(code(objects.update(place("b"), json!({}), Part::Main)), Some(404));
    }

    #[test]
    fn unchanged_update_writes_nothing() {
        let (mut objects, first) = with("a", 1);
        let again = objects.update(place("a"), (*first).clone(), Part::Main);
        assert_eq!(again.expect("it is current"), first);
        assert_eq!(objects.revision(), 1);
    }

    #[test]
    fn status_and_spec_are_written_apart() {
        let (mut objects, _) = with("a", 1);
        let both = json!({"spec": 2, "status": "ready"});
        let status =
            objects.patch(place("a"), both.clone(), PatchKind::Merge, Part::Status);
        let status = status.expect("it exists");
        assert_eq!((&status["spec"], &status["status"]), (&json!(1), &json!("ready")));
        assert_eq!(status["metadata"]["generation"], 1);
        let main = json!({"spec": 2, "status": "other"});
        let main = objects.patch(place("a"), main, PatchKind::Merge, Part::Main);
        let main = main.expect("it exists");
        assert_eq!((&main["spec"], &main["status"]), (&json!(2), &json!("ready")));
    }

    #[test]
    fn finalizers_postpone_the_end() {
        let (mut objects, _) = with("a", 1);
        let patch = json!({"metadata": {"finalizers": ["x"]}});
        objects
            .patch(place("a"), patch, PatchKind::Merge, Part::Main)
            .expect("it exists");
        let deleted = objects.delete(&place("a"), &Value::Null).expect("it exists");
        assert!(is_deleting(&deleted));
        assert!(objects.get(&place("a")).is_ok());
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers/0", "value": "x"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        objects
            .patch(place("a"), patch, PatchKind::Json, Part::Main)
            .expect("it matches");
        assert_eq!(code(objects.get(&place("a"))), Some(404));
        assert!(objects.changes_since(0).last().is_some_and(|change| change.deleted));
    }

    #[test]
    fn preconditions_of_a_delete_are_checked() {
        let (mut objects, made) = with("a", 1);
        assert_eq!(
            code(objects.delete(&place("a"), &json!({"uid": "other"}))),
            Some(409)
        );
        let uid = &made["metadata"]["uid"];
        assert_eq!(code(objects.delete(&place("a"), &json!({"uid": uid}))), None);
    }

    #[test]
    fn apply_creates_a_missing_object() {
        let mut objects = Objects::default();
        let patch = json!({"spec": 1});
        let made = objects.patch(place("a"), patch, PatchKind::Apply, Part::Main);
        assert_eq!(made.expect("it is created")["metadata"]["name"], "a");
        let patch = json!({"spec": 1});
        assert_eq!(
            code(objects.patch(place("b"), patch, PatchKind::Merge, Part::Main)),
            Some(404)
        );
    }

    #[test]
    fn names_are_generated() {
        let mut objects = Objects::default();
        let object = json!({"metadata": {"generateName": "a-"}});
        let made =
            objects.create(place(""), object, Part::Main).expect("it has a prefix");
        let name = made["metadata"]["name"].as_str().expect("it has a name").to_owned();
        assert!(name.starts_with("a-") && name.len() > 2, "{name}");
        assert_eq!(code(objects.create(place(""), json!({}), Part::Main)), Some(422));
    }
}
