//! What a policy remembers of the keys that failed, in a bounded map.
//!
//! The map has two generations. A failure puts its key into the *young* one. When that is
//! full, it becomes the *old* one, and the previous old one is dropped. So a key is dropped
//! only after as many other keys have failed as a generation holds.
//!
//! # Invariants
//!
//! 1. A key is in at most one generation, and each holds at most `generation` keys.
//! 2. Keys are dropped after the lock is released: their `Drop` may call the policy.
//! 3. User code (`Hash`, `Eq`, `Clone`) that panics leaves the map usable. A panic of `Hash`
//!    while the map makes room may drop keys, which then start again without failures.

use std::hash::{BuildHasher, Hash};
use std::mem;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::sync::{self, Mutex, MutexGuard};

/// How many keys a generation holds by default.
const GENERATION: usize = 1 << 20;

/// A bounded map from the keys that failed to a `V` each. A `V` starts as its default.
pub(super) struct Failures<K, V = u32> {
    hasher: RandomState,
    generation: usize,
    map: Mutex<Generations<K, V>>,
}

struct Generations<K, V> {
    young: HashTable<(K, V)>,
    old: HashTable<(K, V)>,
}

impl<K, V> Failures<K, V> {
    pub(super) fn new() -> Self {
        let map = Generations { young: HashTable::new(), old: HashTable::new() };
        Self {
            hasher: RandomState::default(),
            generation: GENERATION,
            map: Mutex::new(map),
        }
    }

    /// Sets how many keys are tracked at most, before the first failure.
    pub(super) fn max_tracked(mut self, keys: usize) -> Self {
        self.generation = (keys / 2).max(1);
        self
    }

    /// Returns how many keys are tracked.
    pub(super) fn len(&self) -> usize {
        let map = self.lock();
        map.young.len() + map.old.len()
    }

    /// Under this lock runs no user code except `Hash`, `Eq` and `Clone` of the key.
    fn lock(&self) -> MutexGuard<'_, Generations<K, V>> {
        sync::lock(&self.map)
    }
}

impl<K: Clone + Eq + Hash, V: Copy + Default> Failures<K, V> {
    /// Records a failure of `key`: passes what is remembered of it to `change`.
    pub(super) fn fail<R>(&self, key: &K, change: impl FnOnce(&mut V) -> R) -> R {
        let hash = self.hasher.hash_one(key);
        let mut map = self.lock();
        let Generations { young, old } = &mut *map;
        let result = match young
            .entry(hash, is(key), |(key, _)| self.hasher.hash_one(key))
        {
            Entry::Occupied(mut entry) => change(&mut entry.get_mut().1),
            Entry::Vacant(room) => {
                let known = old.find_entry(hash, is(key)).ok().map(|it| it.remove().0);
                let entry = known.unwrap_or_else(|| (key.clone(), V::default()));
                change(&mut room.insert(entry).get_mut().1)
            }
        };
        let dropped = map.age(self.generation);
        drop(map);
        drop(dropped); // invariant 2
        result
    }

    /// Returns what is remembered of `key`, or the default if it is not tracked.
    pub(super) fn get(&self, key: &K) -> V {
        let hash = self.hasher.hash_one(key);
        let map = self.lock();
        let found = map.young.find(hash, is(key)).or_else(|| map.old.find(hash, is(key)));
        found.map_or_else(V::default, |(_, value)| *value)
    }

    /// Stops tracking `key`.
    pub(super) fn forget(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        let mut map = self.lock();
        let Generations { young, old } = &mut *map;
        let forgotten = [young, old].map(|table| {
            let forgotten = table.find_entry(hash, is(key)).ok().map(|it| it.remove().0);
            if table.len() < table.capacity() / 8 {
                let room = table.len() * 2;
                table.shrink_to(room, |(key, _)| self.hasher.hash_one(key));
            }
            forgotten
        });
        drop(map);
        drop(forgotten); // invariant 2
    }
}

/// Returns whether an entry has this key.
fn is<K: Eq, V>(key: &K) -> impl Fn(&(K, V)) -> bool {
    move |(other, _)| other == key
}

impl<K: Clone + Eq + Hash> Failures<K> {
    /// Counts a failure of `key`. Returns how many it had before.
    pub(super) fn count(&self, key: &K) -> u32 {
        self.fail(key, |count| {
            let before = *count;
            *count = before.saturating_add(1);
            before
        })
    }
}

impl<K, V> Generations<K, V> {
    /// Replaces the old generation if the young one is full, and returns it.
    #[inline]
    fn age(&mut self, generation: usize) -> HashTable<(K, V)> {
        if self.young.len() < generation {
            return HashTable::new();
        }
        mem::replace(&mut self.old, mem::take(&mut self.young))
    }
}

#[cfg(test)]
mod tests;
