//! Slots by key: open addressing with linear probing, every slot whole in its place.
//!
//! So an operation on a large table waits for memory once, where a hash map with control
//! bytes apart from its slots waits twice.
//!
//! A slot keeps 24 bits of the hash of its key. A table of more than 2^24 slots still works,
//! but its keys share homes, and searches get longer.
//!
//! # Invariants
//!
//! 1. Those of `probing.rs`; a table of no size has no empty place, and is not searched.
//! 2. Each key is in at most one slot.
//! 3. User code (`Eq`, `Clone`) runs only in [`Table::search`], which changes nothing, and
//!    in [`Table::entry`] before it fills a gap. A slot leaves only by being handed to the
//!    caller, who can drop it where it holds no lock.

use std::num::{NonZeroU8, NonZeroU32};

use crate::probing::{self, Place};
use crate::rate::hand::Hand;

/// What is remembered of a key; 16 bytes for a `u64` key and a `u32` value, also as an
/// `Option`.
pub(super) struct Slot<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    mark: Mark,
}

/// A hash in the upper 24 bits, and in the others when the key failed last.
#[derive(Clone, Copy)]
struct Mark(NonZeroU32);

/// The 24 bits of a hash that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash24(u32);

/// A number on the owner's clock of failures.
pub(super) type Tick = NonZeroU8;

/// How many bits of a [`Mark`] are its tick.
const TICK_BITS: u32 = 8;

const HASH_BITS: u32 = 24;

impl Hash24 {
    /// Of keys that are numbers in a row, foldhash gives hashes whose upper bits are in a
    /// row as well, and for one seed in a hundred lie in heaps, which linear probing does
    /// not bear. The product mixes all bits of the hash into the upper ones.
    #[inline]
    pub(super) fn of(hash: u64) -> Self {
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((mixed >> (u64::BITS - HASH_BITS)) as u32)
    }
}

impl Mark {
    #[inline]
    fn new(Hash24(hash): Hash24, tick: Tick) -> Self {
        Self(NonZeroU32::from(tick) | hash << TICK_BITS)
    }

    #[inline]
    fn hash(self) -> Hash24 {
        Hash24(self.0.get() >> TICK_BITS)
    }
}

impl<K, V> Slot<K, V> {
    /// When the key failed last.
    pub(super) fn tick(&self) -> u8 {
        let [tick, ..] = self.mark.0.get().to_le_bytes();
        tick
    }

    #[inline]
    pub(super) fn set_tick(&mut self, tick: Tick) {
        self.mark = Mark::new(self.mark.hash(), tick);
    }

    #[inline]
    fn hash(&self) -> Hash24 {
        self.mark.hash()
    }
}

/// The slots of the keys that failed.
pub(super) struct Table<K, V> {
    slots: Vec<Option<Slot<K, V>>>,
    /// How many places are taken.
    len: usize,
    hand: Hand,
}

/// The smallest size that is not zero.
const MIN: usize = 8;

/// The largest size that is not worth shrinking.
const SMALL: usize = 64;

/// The size to which a table grows.
fn larger(size: usize) -> usize {
    (size + size / 2).max(MIN)
}

/// How many of `size` places are taken at the most. A table that has grown by half is then
/// filled to five twelfths, so that 16 bytes for a slot are at most 39 for a key.
fn room(size: usize) -> usize {
    size / 8 * 5
}

impl<K, V> Place for Option<Slot<K, V>> {
    #[inline]
    fn empty() -> Self {
        None
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    #[inline]
    fn home(&self, size: usize) -> usize {
        self.as_ref().map_or(0, |slot| home(slot.hash(), size))
    }
}

/// The hash scaled to the size of the table.
#[inline]
fn home(Hash24(hash): Hash24, size: usize) -> usize {
    ((u64::from(hash) * size as u64) >> HASH_BITS) as usize
}

impl<K, V> Table<K, V> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), len: 0, hand: Hand::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<K, V>> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot<K, V>> {
        self.slots.iter_mut().flatten()
    }

    /// Takes out the slot at a place, if there is one.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "measured: moving the slot through memory makes each removal wait"
    )]
    fn take(&mut self, place: usize) -> Option<Slot<K, V>> {
        let slot = self.slots[place].take()?;
        self.len -= 1;
        probing::close_gap(&mut self.slots, place);
        Some(slot)
    }

    /// Walks on past `count` slots, or once around, and takes out the one that `rank`
    /// puts first.
    #[cold]
    pub(super) fn take_first_of<R: Ord>(
        &mut self,
        count: usize,
        rank: impl Fn(&Slot<K, V>) -> R,
    ) -> Option<Slot<K, V>> {
        let Self { slots, hand, .. } = self;
        let rank = |place: usize| slots[place].as_ref().map(&rank);
        let first = hand.first_of(slots.len(), count, rank)?;
        self.take(first)
    }

    /// Gives memory back once fewer than an eighth of the places are taken.
    #[inline]
    pub(super) fn shrink(&mut self) {
        let size = self.slots.len();
        if size > SMALL && self.len < size / 8 {
            self.shrink_to((self.len * 2).max(MIN));
        }
    }

    #[cold]
    fn shrink_to(&mut self, size: usize) {
        probing::rebuild(&mut self.slots, size);
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.slots.len();
        probing::stretch(&mut self.slots, larger(size));
    }

    #[inline]
    fn home(&self, hash: Hash24) -> usize {
        home(hash, self.slots.len())
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        probing::after(place, self.slots.len())
    }
}

impl<K: Eq, V> Table<K, V> {
    /// The slot of `key`.
    pub(super) fn find(&self, hash: Hash24, key: &K) -> Option<&Slot<K, V>> {
        self.slots.get(self.search(hash, key))?.as_ref()
    }

    /// Takes out the slot of `key`.
    #[inline]
    pub(super) fn remove(&mut self, hash: Hash24, key: &K) -> Option<Slot<K, V>> {
        let place = self.search(hash, key);
        self.slots.get(place)?;
        self.take(place)
    }

    /// The place of the slot of `key`, or the gap at which the search for it ended. In a
    /// table of no size that is no place.
    #[inline]
    fn search(&self, hash: Hash24, key: &K) -> usize {
        let mut place = self.home(hash);
        while let Some(Some(slot)) = self.slots.get(place) {
            if slot.hash() == hash && slot.key == *key {
                break;
            }
            place = self.after(place);
        }
        place
    }
}

impl<K: Clone + Eq, V: Default> Table<K, V> {
    /// The slot of `key`, new if need be, as one that failed at `tick`.
    #[inline]
    pub(super) fn entry(&mut self, hash: Hash24, key: &K, tick: Tick) -> &mut Slot<K, V> {
        if self.len >= room(self.slots.len()) {
            self.grow();
        }
        let place = self.search(hash, key);
        let mark = Mark::new(hash, tick);
        match &mut self.slots[place] {
            Some(slot) => {
                slot.mark = mark;
                slot
            }
            gap => {
                let slot = Slot { key: key.clone(), value: V::default(), mark };
                self.len += 1;
                gap.insert(slot)
            }
        }
    }
}

#[cfg(test)]
mod tests;
