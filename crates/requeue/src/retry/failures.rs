//! What a policy remembers of the keys that failed: a bounded table.
//!
//! It does not know what is remembered: a count, or a count and a delay.
//!
//! A full table makes room by pushing out one key: of the next eight it meets on a walk
//! around its buckets, the one whose last failure is the longest ago. A list in the exact
//! order of failures would cost each key 8 bytes more and each repeated failure two cache
//! misses.
//!
//! # Invariants
//!
//! 1. The table never holds more than `max` keys, each once.
//! 2. User code (`Hash`, `Eq`, `Clone`) that panics leaves every key in the table as it
//!    was.
//! 3. A key is dropped only after the lock is released: its `Drop` may call the policy.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::hash_table::Entry;

use crate::rate::table::{self, Table};
use crate::sync::{self, Mutex, MutexGuard};

/// How many keys a policy tracks unless it is told otherwise: 1,048,576.
///
/// For `u64` keys that is at most 40 MB, and only if that many keys are failing.
pub const DEFAULT_MAX_TRACKED: usize = 1 << 20;

/// How many keys an eviction chooses from.
const SAMPLE: usize = 8;

/// A bounded map from the keys that failed to a `V` each; a `V` starts as its default.
pub(super) struct Failures<K, V = u32> {
    hasher: RandomState,
    max: usize,
    tracked: Mutex<Tracked<K, V>>,
}

struct Tracked<K, V> {
    table: Table<Slot<K, V>>,
    /// Failures so far, wrapping: a clock for the age of slots. A key that outlives 2^32
    /// failures of others looks young, and is met again a walk later.
    failures: u32,
}

/// 16 bytes for a `u64` key and a `u32` value.
struct Slot<K, V> {
    key: K,
    value: V,
    /// The value of `Tracked::failures` when the key failed last.
    failed_at: u32,
}

impl<K: Eq + Hash, V> table::Slot for Slot<K, V> {
    type Key = K;

    #[inline]
    fn key(&self) -> &K {
        &self.key
    }
}

impl<K, V> Failures<K, V> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            max: DEFAULT_MAX_TRACKED,
            tracked: Mutex::new(Tracked { table: Table::new(), failures: 0 }),
        }
    }

    /// Sets the bound, before the first failure.
    pub(super) fn max_tracked(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// How many keys are tracked.
    pub(super) fn len(&self) -> usize {
        self.lock().table.len()
    }

    /// Under this lock runs no user code but `Hash`, `Eq` and `Clone` of the key.
    fn lock(&self) -> MutexGuard<'_, Tracked<K, V>> {
        sync::lock(&self.tracked)
    }
}

impl<K: Clone + Eq + Hash, V: Copy + Default> Failures<K, V> {
    /// Counts a failure of `key`: gives `change` what is remembered of it, to change.
    pub(super) fn fail<R>(&self, key: &K, change: impl FnOnce(&mut V) -> R) -> R {
        if self.max == 0 {
            return change(&mut V::default());
        }
        let hash = self.hasher.hash_one(key);
        let (result, evicted) = {
            let mut tracked = self.lock();
            let slot = tracked.slot(hash, key, &self.hasher);
            let result = change(&mut slot.value);
            (result, tracked.evict_above(self.max))
        };
        drop(evicted); // invariant 3
        result
    }

    /// What is remembered of `key`; the default if it is not tracked.
    pub(super) fn get(&self, key: &K) -> V {
        let hash = self.hasher.hash_one(key);
        self.lock().table.find(hash, key).map_or_else(V::default, |slot| slot.value)
    }

    /// Stops tracking `key`.
    pub(super) fn forget(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        let forgotten = {
            let table = &mut self.lock().table;
            let forgotten = table.remove(hash, key);
            table.shrink(&self.hasher);
            forgotten
        };
        drop(forgotten); // invariant 3
    }
}

impl<K: Clone + Eq + Hash> Failures<K> {
    /// Counts a failure of `key` and gives how many it had before.
    pub(super) fn count(&self, key: &K) -> u32 {
        self.fail(key, |count| {
            let before = *count;
            *count = before.saturating_add(1);
            before
        })
    }
}

impl<K: Clone + Eq + Hash, V: Default> Tracked<K, V> {
    /// The slot of `key`, new if need be, marked as failed now.
    #[inline]
    fn slot(&mut self, hash: u64, key: &K, hasher: &RandomState) -> &mut Slot<K, V> {
        let entry = self.table.entry(hash, key, hasher);
        self.failures = self.failures.wrapping_add(1);
        let failed_at = self.failures;
        match entry {
            Entry::Occupied(slot) => {
                let slot = slot.into_mut();
                slot.failed_at = failed_at;
                slot
            }
            Entry::Vacant(room) => {
                let slot = Slot { key: key.clone(), value: V::default(), failed_at };
                room.insert(slot).into_mut()
            }
        }
    }
}

impl<K, V> Tracked<K, V> {
    /// Pushes out a key that failed long ago if there are more than `max`, which is not 0:
    /// of two keys or more one is older than the key that just failed.
    #[inline]
    fn evict_above(&mut self, max: usize) -> Option<Slot<K, V>> {
        if self.table.len() <= max {
            return None;
        }
        let now = self.failures;
        let age = |slot: &Slot<K, V>| now.wrapping_sub(slot.failed_at);
        self.table.take_first_of(SAMPLE, |slot| Reverse(age(slot)))
    }
}

#[cfg(test)]
mod tests;
