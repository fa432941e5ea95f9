//! Lanes: the keys of different servers are sent in separate calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::batch::Batcher;
use crate::sync::lock;

/// The batchers of a store, one for each [lane](crate::Store::lane) with a request so far.
#[derive(Debug)]
pub(crate) struct Lanes<I, O, G = ()> {
    batchers: Mutex<BTreeMap<usize, Batcher<I, O, G>>>,
    idle: Arc<Notify>,
}

impl<I, O, G> Lanes<I, O, G> {
    /// Creates lanes that notify `idle` each time one of them becomes idle.
    pub(crate) fn new(idle: Arc<Notify>) -> Self {
        Self { batchers: Mutex::default(), idle }
    }

    /// Returns the batcher of a lane.
    pub(crate) fn lane(&self, lane: usize) -> Batcher<I, O, G> {
        let mut batchers = lock(&self.batchers);
        let new = || Batcher::new(Arc::clone(&self.idle));
        batchers.entry(lane).or_insert_with(new).clone()
    }

    /// Returns whether no item of any lane is waiting or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.batchers).values().all(Batcher::is_idle)
    }
}

/// Groups items by lane.
pub(crate) fn by_lane<T>(
    items: impl IntoIterator<Item = T>,
    lane: impl Fn(&T) -> usize,
) -> BTreeMap<usize, Vec<T>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for item in items {
        groups.entry(lane(&item)).or_default().push(item);
    }
    groups
}
