//! A hash table that a panicking key cannot damage and that is walked a few slots at a time.
//!
//! It knows nothing of what its slots hold but their key. Hashes come in as an argument, so
//! that callers take them outside their lock.
//!
//! # Invariants
//!
//! 1. Each key is in at most one slot.
//! 2. User code (`Hash`, `Eq`) that panics leaves every slot as it was. So `hashbrown`
//!    never hashes a key: [`Table::rehash`] takes all hashes before it moves anything, and
//!    there is always room for one more key when a slot is looked up to be filled.
//! 3. A slot leaves the table only by being handed to the caller, who can drop it where
//!    it holds no lock: `Drop` of a key is user code as well.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::hand::Hand;

/// What a [`Table`] holds.
pub(super) trait Slot {
    type Key: Eq + Hash;

    fn key(&self) -> &Self::Key;
}

/// Slots by key.
///
/// With slots of 24 bytes a key costs at most 58: one byte of control for each bucket, and
/// at least 7 keys for 16 buckets after growing.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: HashTable<T>,
    hand: Hand,
}

/// The fewest buckets worth shrinking.
const SMALL: usize = 64;

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { slots: HashTable::new(), hand: Hand::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.allocation_size()
    }

    /// Walks on past `count` slots, or once around, and takes out the one that `rank`
    /// puts first.
    #[cold]
    pub(super) fn take_first_of<R: Ord>(
        &mut self,
        count: usize,
        rank: impl Fn(&T) -> R,
    ) -> Option<T> {
        let Self { slots, hand } = self;
        let rank = |bucket| slots.get_bucket(bucket).map(&rank);
        let first = hand.first_of(slots.num_buckets(), count, rank)?;
        self.take(first)
    }

    /// Walks on past `buckets` buckets, as far as the first slot that is `stale`, and
    /// takes that out.
    #[inline]
    pub(super) fn take_stale(
        &mut self,
        buckets: usize,
        stale: impl Fn(&T) -> bool,
    ) -> Option<T> {
        for _ in 0..buckets {
            let bucket = self.hand.step(self.slots.num_buckets());
            if self.slots.get_bucket(bucket).is_some_and(&stale) {
                return self.take(bucket);
            }
        }
        None
    }

    #[cold]
    fn take(&mut self, bucket: usize) -> Option<T> {
        Some(self.slots.get_bucket_entry(bucket).ok()?.remove().0)
    }
}

impl<T: Slot> Table<T> {
    /// The slot of `key`.
    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> Option<&T>
    where
        T::Key: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.slots.find(hash, |slot| slot.key().borrow() == key)
    }

    /// The slot of `key`, to change.
    pub(super) fn find_mut<Q>(&mut self, hash: u64, key: &Q) -> Option<&mut T>
    where
        T::Key: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.slots.find_mut(hash, |slot| slot.key().borrow() == key)
    }

    /// Takes out the slot of `key`.
    pub(super) fn remove<Q>(&mut self, hash: u64, key: &Q) -> Option<T>
    where
        T::Key: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let found = self.slots.find_entry(hash, |slot| slot.key().borrow() == key);
        found.ok().map(|slot| slot.remove().0)
    }

    /// The slot of `key`, or the room for it.
    #[inline]
    pub(super) fn entry<Q>(
        &mut self,
        hash: u64,
        key: &Q,
        hasher: &RandomState,
    ) -> Entry<'_, T>
    where
        T::Key: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        if self.slots.len() == self.slots.capacity() {
            self.rehash(hasher);
        }
        let unused = |_: &T| unreachable!("invariant 2: there is room");
        self.slots.entry(hash, |slot| slot.key().borrow() == key, unused)
    }

    /// Gives memory back once fewer than an eighth of the buckets are in use.
    #[inline]
    pub(super) fn shrink(&mut self, hasher: &RandomState) {
        let buckets = self.slots.num_buckets();
        if buckets > SMALL && self.slots.len() < buckets / 8 {
            self.rehash(hasher);
        }
    }

    /// Moves the slots to a table that fits them, with a quarter more room.
    #[cold]
    fn rehash(&mut self, hasher: &RandomState) {
        let taken: Vec<u64> =
            self.slots.iter().map(|slot| hasher.hash_one(slot.key())).collect();
        // User code has run, nothing has moved (invariant 2).
        let room = taken.len() + taken.len() / 4 + 1;
        let old = mem::replace(&mut self.slots, HashTable::with_capacity(room));
        for (slot, hash) in old.into_iter().zip(taken) {
            self.slots
                .insert_unique(hash, slot, |_| unreachable!("invariant 2: it fits"));
        }
    }
}
