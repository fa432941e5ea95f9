//! A commit group: changes that are written together.

use std::sync::Arc;

use requeue_store::Key;
use requeue_store::machine::PersistedKey;

use crate::commit::{Commit, CommitResult, CommitWait};
use crate::journal::{Durability, Write};
use crate::record::{Encoder, QueueState};

/// Changes that are written together. Each key has at most one change, the latest.
#[derive(Debug)]
pub(crate) struct Group {
    /// In the order in which the keys were first changed. Neighbours in fjall's tree are
    /// often changed together, which makes inserting them faster.
    changes: Vec<Change>,
    /// Indices into `changes`.
    indices: foldhash::HashMap<Key, usize>,
    queue_state: Option<QueueState>,
    /// The strongest durability that any change needs.
    durability: Durability,
    commit: Arc<Commit>,
}

/// The new record of a key, or `None` to delete it.
#[derive(Debug)]
struct Change {
    key: Key,
    record: Option<PersistedKey>,
    durability: Durability,
}

impl Group {
    /// Creates an empty group with room for this many keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        let mut indices = foldhash::HashMap::default();
        indices.reserve(keys);
        Self {
            changes: Vec::with_capacity(keys),
            indices,
            queue_state: None,
            durability: Durability::Buffered,
            commit: Arc::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.queue_state.is_none()
    }

    /// Returns the number of changed keys.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds the change of a key, replacing an earlier one.
    pub(crate) fn put(
        &mut self,
        key: Key,
        record: Option<PersistedKey>,
        durability: Durability,
    ) {
        self.durability = self.durability.max(durability);
        let index = *self.indices.entry(key.clone()).or_insert(self.changes.len());
        match self.changes.get_mut(index) {
            None => self.changes.push(Change { key, record, durability }),
            Some(change) => {
                change.record = record;
                change.durability = change.durability.max(durability);
            }
        }
    }

    /// Adds the state of the queue, replacing an earlier one.
    pub(crate) fn put_queue_state(&mut self, state: QueueState, durability: Durability) {
        self.durability = self.durability.max(durability);
        self.queue_state = Some(state);
    }

    pub(crate) fn queue_state(&self) -> Option<&QueueState> {
        self.queue_state.as_ref()
    }

    /// Returns whether it contains a durable change of this key.
    pub(crate) fn has_durable_change(&self, key: &Key) -> bool {
        let change = self.indices.get(key).map(|index| &self.changes[*index]);
        change.is_some_and(|change| change.durability == Durability::Durable)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Encodes the changes.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Write> {
        let mut encoder = Encoder::default();
        let state = self.queue_state.as_ref().map(|state| Write {
            name: encoder.queue_state_name(),
            value: Some(encoder.queue_state(state)),
        });
        let keys = self.changes.iter().map(move |change| Write {
            name: encoder.key_name(&change.key),
            value: change.record.as_ref().map(|record| encoder.key(record)),
        });
        keys.chain(state)
    }

    /// Returns a future that completes when the group is committed or has failed.
    pub(crate) fn wait(&self) -> CommitWait {
        self.commit.wait()
    }

    /// Reports the result to all waiting callers.
    pub(crate) fn complete(&self, result: CommitResult) {
        self.commit.complete(result);
    }
}

/// Fails the waiting callers of a group that will never be written.
impl Drop for Group {
    fn drop(&mut self) {
        self.complete(Err("the writer thread has ended".into()));
    }
}
