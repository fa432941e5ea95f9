//! What a policy remembers of the keys that failed: a bounded table.
//!
//! [`Failures`] is the shell (a hasher and a lock), [`Table`] the pure part. Neither knows
//! what is remembered: a count, or a count and a delay.
//!
//! A full table makes room by pushing out one key: of the next eight it meets on a walk
//! around its buckets, the one whose last failure is the longest ago. Keys lie in their
//! buckets by hash, so the eight are a random sample. A list in the exact order of
//! failures would cost each key 8 bytes more and each repeated failure two cache misses.
//!
//! # Invariants
//!
//! 1. The table never holds more than `max` keys, each once.
//! 2. User code (`Hash`, `Eq`, `Clone`) that panics leaves every key in the table as it
//!    was. So the table never lets `hashbrown` hash a key: [`Table::rehash`] takes all
//!    hashes before it moves anything, and always leaves room for one more key.
//! 3. A key is dropped only after the lock is released: its `Drop` may call the policy.

use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// How many keys a policy tracks unless it is told otherwise: 1,048,576.
///
/// For `u64` keys that is at most 40 MB, and only if that many keys are failing.
pub const DEFAULT_MAX_TRACKED: usize = 1 << 20;

/// A bounded map from the keys that failed to a `V` each; a `V` starts as its default.
pub(super) struct Failures<K, V = u32> {
    hasher: RandomState,
    max: usize,
    table: Mutex<Table<K, V>>,
}

impl<K, V> Failures<K, V> {
    pub(super) fn new() -> Self {
        let table = Table { slots: HashTable::new(), failures: 0, hand: 0 };
        Self {
            hasher: RandomState::default(),
            max: DEFAULT_MAX_TRACKED,
            table: Mutex::new(table),
        }
    }

    /// Sets the bound, before the first failure.
    pub(super) fn max_tracked(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// How many keys are tracked.
    pub(super) fn len(&self) -> usize {
        self.table().slots.len()
    }

    /// Under this lock runs no user code but `Hash`, `Eq` and `Clone` of the key.
    fn table(&self) -> MutexGuard<'_, Table<K, V>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
            let mut table = self.table();
            table.make_room(&self.hasher);
            let result = table.fail(hash, key, change);
            (result, table.evict_above(self.max))
        };
        drop(evicted); // invariant 3
        result
    }

    /// What is remembered of `key`; the default if it is not tracked.
    pub(super) fn get(&self, key: &K) -> V {
        let hash = self.hasher.hash_one(key);
        let table = self.table();
        table
            .slots
            .find(hash, |slot| slot.key == *key)
            .map_or_else(V::default, |s| s.value)
    }

    /// Stops tracking `key`.
    pub(super) fn forget(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        let forgotten = {
            let mut table = self.table();
            let forgotten = table.forget(hash, key);
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

/// 16 bytes for a `u64` key and a `u32` value. One byte of control for each bucket, and at
/// least 7 keys for 16 buckets after growing, make that 39 bytes a key at the most.
struct Slot<K, V> {
    key: K,
    value: V,
    /// The value of `Table::failures` when the key failed last.
    failed_at: u32,
}

struct Table<K, V> {
    slots: HashTable<Slot<K, V>>,
    /// Failures so far, wrapping: a clock for the age of slots. A key that outlives 2^32
    /// failures of others looks young, and is met again a walk later.
    failures: u32,
    /// The bucket at which the walk for a key to push out goes on.
    hand: usize,
}

/// How many slots an eviction looks at.
const SAMPLE: usize = 8;

/// The fewest buckets worth shrinking.
const SMALL: usize = 64;

impl<K, V> Table<K, V> {
    /// Pushes out a key that failed long ago if there are more than `max`, which is not 0.
    #[inline]
    fn evict_above(&mut self, max: usize) -> Option<Slot<K, V>> {
        if self.slots.len() <= max { None } else { self.evict() }
    }

    /// Needs two keys or more, so that one is older than the key that just failed.
    #[cold]
    fn evict(&mut self) -> Option<Slot<K, V>> {
        let bucket = self.oldest_of_sample()?;
        let slot = self.slots.get_bucket_entry(bucket).ok()?;
        Some(slot.remove().0)
    }

    /// Walks on until it has met `SAMPLE` slots, or every bucket once.
    fn oldest_of_sample(&mut self) -> Option<usize> {
        let buckets = self.slots.num_buckets();
        let (mut met, mut oldest) = (0, None);
        for _ in 0..buckets {
            self.hand = (self.hand + 1) & (buckets - 1); // hashbrown: a power of two
            if let Some(slot) = self.slots.get_bucket(self.hand) {
                let age = self.failures.wrapping_sub(slot.failed_at);
                oldest = oldest.max(Some((age, self.hand)));
                met += 1;
            }
            if met == SAMPLE {
                break;
            }
        }
        oldest.map(|(_, bucket)| bucket)
    }
}

impl<K: Clone + Eq + Hash, V: Default> Table<K, V> {
    /// Needs `make_room` first.
    fn fail<R>(&mut self, hash: u64, key: &K, change: impl FnOnce(&mut V) -> R) -> R {
        let now = self.failures.wrapping_add(1);
        let unused = |_: &Slot<K, V>| unreachable!("invariant 2: there is room");
        let result = match self.slots.entry(hash, |slot| slot.key == *key, unused) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                slot.failed_at = now;
                change(&mut slot.value)
            }
            Entry::Vacant(room) => {
                let slot = Slot { key: key.clone(), value: V::default(), failed_at: now };
                change(&mut room.insert(slot).get_mut().value)
            }
        };
        self.failures = now;
        result
    }

    fn forget(&mut self, hash: u64, key: &K) -> Option<Slot<K, V>> {
        let slot = self.slots.find_entry(hash, |slot| slot.key == *key).ok()?;
        Some(slot.remove().0)
    }

    /// Sees to it that one more key fits.
    fn make_room(&mut self, hasher: &RandomState) {
        if self.slots.len() == self.slots.capacity() {
            self.rehash(hasher);
        }
    }

    /// Gives memory back once fewer than an eighth of the buckets are in use.
    fn shrink(&mut self, hasher: &RandomState) {
        let buckets = self.slots.num_buckets();
        if buckets > SMALL && self.slots.len() < buckets / 8 {
            self.rehash(hasher);
        }
    }

    /// Moves the slots to a table that fits them, with a quarter more room.
    #[cold]
    fn rehash(&mut self, hasher: &RandomState) {
        let taken: Vec<u64> =
            self.slots.iter().map(|slot| hasher.hash_one(&slot.key)).collect();
        // User code has run, nothing has moved (invariant 2).
        let room = taken.len() + taken.len() / 4 + 1;
        let old = mem::replace(&mut self.slots, HashTable::with_capacity(room));
        for (slot, hash) in old.into_iter().zip(taken) {
            self.slots
                .insert_unique(hash, slot, |_| unreachable!("invariant 2: it fits"));
        }
    }
}

#[cfg(test)]
mod tests;
