//! The documented rules of client-go's queue in its own terms, and those that we added.
//!
//! A key in `queue` is in `dirty` and not in `processing`; a key that is added while it
//! is in `processing` is in `dirty` only. Slow and plain on purpose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::{Added, Counts, Nanos};

pub(super) type Key = u8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    queue: VecDeque<Key>,
    dirty: BTreeSet<Key>,
    processing: BTreeSet<Key>,
    /// The deadline of each delayed key, and the number of its delay.
    waiting: BTreeMap<Key, (Nanos, usize)>,
    told: usize,
    closed: bool,
    failures: BTreeMap<Key, u32>,
    /// Keys known for their failures only, the one that came to rest first in front.
    tracked: VecDeque<Key>,
    absorb: bool,
    max_tracked: usize,
}

impl Model {
    pub(super) fn new(absorb: bool, max_tracked: usize) -> Self {
        Self { absorb, max_tracked, ..Self::default() }
    }

    /// Returns `None` if the queue is closed.
    pub(super) fn add(&mut self, key: Key) -> Option<Added> {
        if self.closed {
            return None;
        }
        self.tracked.retain(|other| *other != key);
        if self.absorb {
            self.waiting.remove(&key);
        }
        if !self.dirty.insert(key) {
            return Some(Added::Duplicate);
        }
        if self.processing.contains(&key) {
            return Some(Added::Dirty);
        }
        self.queue.push_back(key);
        Some(Added::Ready)
    }

    pub(super) fn add_at(&mut self, key: Key, deadline: Nanos) -> Option<Added> {
        if self.closed { None } else { Some(self.wait(key, deadline)) }
    }

    /// The earlier time wins; a key that is moved goes behind those of the same time.
    pub(super) fn wait(&mut self, key: Key, deadline: Nanos) -> Added {
        if self.absorb && self.dirty.contains(&key) {
            return Added::Duplicate;
        }
        self.tracked.retain(|other| *other != key);
        if self.waiting.get(&key).is_some_and(|(present, _)| *present <= deadline) {
            return Added::Duplicate;
        }
        self.told += 1;
        self.waiting.insert(key, (deadline, self.told));
        Added::Delayed
    }

    pub(super) fn postpone(&mut self, key: Key, deadline: Nanos) -> Option<Added> {
        if self.closed {
            return None;
        }
        self.unplan(key);
        Some(self.wait(key, deadline))
    }

    /// The keys that wait, in the order in which they become ready.
    fn in_time(&self) -> Vec<(Nanos, Key)> {
        let mut times: Vec<_> =
            self.waiting.iter().map(|(key, (at, told))| (*at, *told, *key)).collect();
        times.sort_unstable();
        times.into_iter().map(|(at, _, key)| (at, key)).collect()
    }

    pub(super) fn advance(&mut self, now: Nanos) {
        if self.closed {
            return;
        }
        for (_, key) in self.in_time().into_iter().take_while(|(at, _)| *at <= now) {
            self.waiting.remove(&key);
            self.add(key);
        }
    }

    pub(super) fn get(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key);
        Some(key)
    }

    pub(super) fn done(&mut self, key: Key) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.queue.push_back(key);
        } else {
            self.retire(key);
        }
    }

    fn unplan(&mut self, key: Key) -> bool {
        self.queue.retain(|other| *other != key);
        let dirty = self.dirty.remove(&key);
        self.waiting.remove(&key).is_some() || dirty
    }

    pub(super) fn remove(&mut self, key: Key) -> bool {
        let planned = self.unplan(key);
        if planned {
            self.retire(key);
        }
        planned
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.dirty.contains(&key)
            || self.processing.contains(&key)
            || self.waiting.contains_key(&key)
    }

    /// Remembers the failures of a key for which nothing is planned, as long as there is
    /// room.
    fn retire(&mut self, key: Key) {
        if self.contains(key) || self.retries(key) == 0 {
            return;
        }
        self.tracked.push_back(key);
        if self.tracked.len() > self.max_tracked {
            let oldest = self.tracked.pop_front();
            oldest.and_then(|oldest| self.failures.remove(&oldest));
        }
    }

    pub(super) fn fail(&mut self, key: Key) -> u32 {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        *failures
    }

    pub(super) fn forget(&mut self, key: Key) {
        self.failures.remove(&key);
        self.tracked.retain(|other| *other != key);
    }

    pub(super) fn retries(&self, key: Key) -> u32 {
        self.failures.get(&key).copied().unwrap_or(0)
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ready keys, then dirty ones in no order that is promised, then delayed ones.
    pub(super) fn undelivered(&mut self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.queue.iter().copied().collect();
        let dirty = self.dirty.iter().filter(|key| self.processing.contains(key));
        keys.extend(dirty.copied().collect::<Vec<_>>());
        let later: Vec<Key> = self.in_time().into_iter().map(|(_, key)| key).collect();
        keys.extend(later.into_iter().filter(|key| !self.dirty.contains(key)));
        for key in &keys {
            self.unplan(*key);
            // The failures of a forgotten key are never read.
            if !self.processing.contains(key) {
                self.forget(*key);
            }
        }
        keys
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        let first = self.in_time().first().map(|(at, _)| *at);
        first.filter(|_| !self.closed)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            ready: self.queue.len(),
            delayed: self.waiting.len(),
            processing: self.processing.len(),
            dirty: self.dirty.intersection(&self.processing).count(),
        }
    }
}
