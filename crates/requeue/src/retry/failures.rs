//! What a policy remembers of the keys that failed: a bounded table.
//!
//! It does not know what is remembered: a count, or a count and a delay.
//!
//! A full table makes room by pushing out one key: of the next eight it meets on a walk
//! around its places, the one whose last failure is the longest ago. A list in the exact
//! order of failures would cost each key 8 bytes more and each repeated failure two cache
//! misses. Of its last failure a key has the tick only, a number of 8 bits; a tick lasts
//! for a 32nd of `max` failures, or for one.
//!
//! # Invariants
//!
//! 1. The table never holds more than `max` keys, each once.
//! 2. User code (`Hash`, `Eq`, `Clone`) that panics leaves every key in the table as it
//!    was.
//! 3. A key is dropped only after the lock is released: its `Drop` may call the policy.
//! 4. A key that failed in an earlier tick than another has the lower number, or both have
//!    the lowest: they failed more than half of all ticks ago.

mod table;

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

use self::table::{Hash24, Slot, Table, Tick};
use crate::sync::{self, Mutex, MutexGuard};

/// How many keys a policy tracks unless it is told otherwise: 1,048,576.
///
/// For `u64` keys that is 27 MB, and only if that many keys are failing.
pub const DEFAULT_MAX_TRACKED: usize = 1 << 20;

/// How many keys an eviction chooses from.
const SAMPLE: usize = 8;

/// How many ticks pass while as many keys fail as are tracked at the most.
const TICKS: usize = 32;

/// A bounded map from the keys that failed to a `V` each; a `V` starts as its default.
pub(super) struct Failures<K, V = u32> {
    hasher: RandomState,
    max: usize,
    tracked: Mutex<Tracked<K, V>>,
}

struct Tracked<K, V> {
    table: Table<K, V>,
    tick: Tick,
    /// Failures in this tick.
    failures: usize,
}

impl<K, V> Failures<K, V> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            max: DEFAULT_MAX_TRACKED,
            tracked: Mutex::new(Tracked::new()),
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
        let hash = self.hash(key);
        let (result, evicted) = {
            let mut tracked = self.lock();
            let tick = tracked.tick(self.max);
            tracked.table.make_room(self.max);
            let result = change(&mut tracked.table.entry(hash, key, tick).value);
            (result, tracked.evict_above(self.max))
        };
        drop(evicted); // invariant 3
        result
    }

    /// What is remembered of `key`; the default if it is not tracked.
    pub(super) fn get(&self, key: &K) -> V {
        let hash = self.hash(key);
        let table = &self.lock().table;
        table.find(hash, key).map_or_else(V::default, |slot| slot.value)
    }

    /// Stops tracking `key`.
    pub(super) fn forget(&self, key: &K) {
        let hash = self.hash(key);
        let forgotten = {
            let table = &mut self.lock().table;
            let forgotten = table.remove(hash, key);
            table.shrink();
            forgotten
        };
        drop(forgotten); // invariant 3
    }

    #[inline]
    fn hash(&self, key: &K) -> Hash24 {
        Hash24::of(self.hasher.hash_one(key))
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

impl<K, V> Tracked<K, V> {
    fn new() -> Self {
        Self { table: Table::new(), tick: Tick::MIN, failures: 0 }
    }

    /// Counts a failure and gives its tick.
    #[inline]
    fn tick(&mut self, max: usize) -> Tick {
        self.failures += 1;
        if self.failures > max / TICKS {
            self.failures = 0;
            self.tick = self.tick.checked_add(1).unwrap_or_else(|| self.renumber());
        }
        self.tick
    }

    /// Gives the ticks that keys failed in the numbers up to the middle, the latest ones
    /// if there are more (invariant 4), and gives the number after them.
    #[cold]
    fn renumber(&mut self) -> Tick {
        const MIDDLE: u8 = u8::MAX / 2;
        let mut used = [false; 256];
        self.table.iter().for_each(|slot| used[usize::from(slot.tick())] = true);
        let (mut numbers, mut next) = ([Tick::MIN; 256], MIDDLE);
        for (number, _) in numbers.iter_mut().zip(used).rev().filter(|(_, used)| *used) {
            *number = Tick::new(next).unwrap_or(Tick::MIN);
            next = next.saturating_sub(1);
        }
        let numbered = |slot: &Slot<K, V>| numbers[usize::from(slot.tick())];
        self.table.iter_mut().for_each(|slot| slot.set_tick(numbered(slot)));
        Tick::MIN.saturating_add(MIDDLE)
    }

    /// Pushes out a key that failed long ago if there are more than `max`, which is not 0.
    ///
    /// It is not the key that just failed: of two keys or more another has an earlier tick.
    /// With more than 200 keys all that are met may be of this tick, by a chance of one in
    /// 2^40.
    #[inline]
    fn evict_above(&mut self, max: usize) -> Option<Slot<K, V>> {
        if self.table.len() <= max {
            return None;
        }
        self.table.take_first_of(SAMPLE, Slot::tick)
    }
}

#[cfg(test)]
mod tests;
