//! What is written together, and who waits for it.

use std::sync::Arc;

use requeue_store::Key;
use requeue_store::machine::Lasting;

use crate::journal::{Reach, Write};
use crate::outcome::{Outcome, Pending, Ticket};
use crate::record::{Encoder, State};

/// What is written together.
#[derive(Debug)]
pub(crate) struct Group {
    /// In the order in which the keys were first changed: neighbours in the engine's tree
    /// are often changed together, and are then found the faster.
    changes: Vec<Change>,
    /// Where among the changes that of a key is.
    places: foldhash::HashMap<Key, usize>,
    pub(crate) state: Option<State>,
    /// Somebody waits for it.
    pub(crate) firm: bool,
    done: Arc<Pending>,
}

#[derive(Debug)]
struct Change {
    key: Key,
    kept: Option<Lasting>,
    firm: bool,
}

impl Group {
    pub(crate) fn new() -> Self {
        let (changes, places) = (Vec::new(), foldhash::HashMap::default());
        Self { changes, places, state: None, firm: false, done: Arc::default() }
    }

    /// An empty one after this, with room for as much.
    pub(crate) fn next(&self) -> Self {
        let mut next = Self::new();
        next.changes.reserve(self.changes.len());
        next.places.reserve(self.changes.len());
        next
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.state.is_none()
    }

    /// How many keys it has.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Has it write what is kept of a key now, waited for or not.
    pub(crate) fn put(&mut self, key: Key, kept: Option<Lasting>, firm: bool) {
        self.firm |= firm;
        let place = *self.places.entry(key.clone()).or_insert(self.changes.len());
        match self.changes.get_mut(place) {
            None => self.changes.push(Change { key, kept, firm }),
            Some(change) => {
                change.kept = kept;
                change.firm |= firm;
            }
        }
    }

    /// Whether somebody waits for its change of this key.
    pub(crate) fn has_firm(&self, key: &Key) -> bool {
        self.places.get(key).is_some_and(|place| self.changes[*place].firm)
    }

    /// How far it must get.
    pub(crate) fn reach(&self) -> Reach {
        if self.firm { Reach::Disk } else { Reach::System }
    }

    /// Its records.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Write> {
        let mut encoder = Encoder::default();
        let state = self.state.as_ref().map(|state| Write {
            name: encoder.state_name(),
            value: Some(encoder.state(state)),
        });
        let keys = self.changes.iter().map(move |change| Write {
            name: encoder.key_name(&change.key),
            value: change.kept.as_ref().map(|kept| encoder.key(kept)),
        });
        keys.chain(state)
    }

    /// A wait for it.
    pub(crate) fn ticket(&self) -> Ticket {
        self.done.ticket()
    }

    /// Tells those who wait how it came out.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.done.end(outcome);
    }
}

/// Who waits for a group that nobody will write any more is told.
impl Drop for Group {
    fn drop(&mut self) {
        self.end(Err("its thread has ended".into()));
    }
}
