//! Which slot holds the key with a given hash.
//!
//! Open addressing with linear probing over one vector of words: a hash of 32 bits and a
//! slot in each. So an operation touches one place in memory where a general hash map
//! touches two, and growing asks neither keys nor slots for their hashes.
//!
//! # Invariants
//!
//! 1. Those of `probing.rs`.
//! 2. Each known slot is in the table exactly once, under the hash of its key.

#[cfg(test)]
mod tests;

use crate::probing::{self, Place};

/// A hash in the upper half and a slot in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    /// No entry: the slot would be one that never exists.
    const EMPTY: Self = Self(u64::MAX);

    #[inline]
    fn new(hash: u32, slot: u32) -> Self {
        Self(u64::from(hash) << 32 | u64::from(slot))
    }

    #[inline]
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the slot")]
    fn slot(self) -> u32 {
        self.0 as u32
    }
}

impl Place for Word {
    #[inline]
    fn empty() -> Self {
        Self::EMPTY
    }

    #[inline]
    fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    #[inline]
    fn home(&self, size: usize) -> usize {
        home(self.hash(), size)
    }
}

/// The hash scaled to the size of the table.
#[inline]
fn home(hash: u32, size: usize) -> usize {
    ((u64::from(hash) * size as u64) >> 32) as usize
}

/// The slots of the keys of one queue, by hash.
#[derive(Default)]
pub(super) struct Table {
    words: Vec<Word>,
    /// How many words are taken.
    len: usize,
    /// How many words may be taken before the table grows.
    room: usize,
}

/// The place where a search ended that found nothing.
#[derive(Clone, Copy)]
pub(super) struct Gap(usize);

/// The smallest size that is not zero.
const MIN: usize = 8;

impl Table {
    /// Makes room for `keys` keys, if memory can hold them.
    pub(super) fn reserve(&mut self, keys: usize) {
        let (before, size) = (self.words.len(), size_for(keys));
        if size > before && self.words.try_reserve_exact(size - before).is_ok() {
            self.stretch(size);
        }
    }

    /// The slot with this hash that `is` the one looked for.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.search(hash, |slot| is(slot).then_some(())).ok().map(|(slot, ())| slot)
    }

    /// Finds the slot with this hash for which `look` returns something. Otherwise returns
    /// the gap where the search ended: the place for a slot that is inserted under this hash
    /// before the table changes.
    #[inline]
    pub(super) fn search<R>(
        &self,
        hash: u32,
        look: impl Fn(u32) -> Option<R>,
    ) -> Result<(u32, R), Gap> {
        if self.words.is_empty() {
            return Err(Gap(0));
        }
        let mut place = self.home(hash);
        loop {
            let word = self.words[place];
            if word == Word::EMPTY {
                return Err(Gap(place));
            }
            if word.hash() == hash {
                if let Some(seen) = look(word.slot()) {
                    return Ok((word.slot(), seen));
                }
            }
            place = self.after(place);
        }
    }

    /// Inserts a slot at the gap where a search for its hash ended.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, slot: u32, Gap(place): Gap) {
        let word = Word::new(hash, slot);
        if self.len >= self.room {
            return self.grow_and_insert(word);
        }
        self.len += 1;
        self.words[place] = word;
    }

    #[cold]
    fn grow_and_insert(&mut self, word: Word) {
        self.stretch(larger(self.words.len()));
        self.len += 1;
        probing::put(&mut self.words, word);
    }

    /// Removes a slot.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let word = Word::new(hash, slot);
        let mut place = self.home(hash);
        while self.words[place] != word {
            debug_assert!(!self.words[place].is_empty(), "invariant 2");
            place = self.after(place);
        }
        self.len -= 1;
        self.words[place] = Word::EMPTY;
        probing::close_gap(&mut self.words, place);
    }

    /// Frees the memory beyond what `keys` keys need. `known` yields the hash and slot of
    /// every key in the table, at most `keys` of them.
    pub(super) fn shrink_to(
        &mut self,
        keys: usize,
        known: impl Iterator<Item = (u32, u32)>,
    ) {
        let size = size_for(keys);
        if size < self.words.len() {
            *self = Self { words: probing::empty(size), room: room(size), len: 0 };
            for (hash, slot) in known {
                self.len += 1;
                probing::put(&mut self.words, Word::new(hash, slot));
            }
        }
    }

    fn stretch(&mut self, size: usize) {
        probing::stretch(&mut self.words, size);
        self.room = room(size);
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        home(hash, self.words.len())
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        probing::after(place, self.words.len())
    }
}

/// A table of fewer words than this fits into the first cache of a processor: it stays
/// three quarters empty, so that nearly every search ends where it begins.
const TINY: usize = 1 << 12;

/// A table of fewer words than this stays half empty. In a larger one room counts, and
/// three tenths stay empty.
const SMALL: usize = 1 << 16;

/// A table of fewer words than this doubles when it grows; of a larger one half remains
/// unused too often.
const LARGE: usize = 1 << 19;

/// The size to which a table grows: a small one far, so that it need not do so again soon.
fn larger(size: usize) -> usize {
    match size {
        0..TINY => (size * 4).clamp(MIN, TINY),
        TINY..LARGE => size * 2,
        LARGE.. => size + size / 2,
    }
}

/// How many entries a table of this size takes.
fn room(size: usize) -> usize {
    match size {
        0..TINY => size / 4,
        TINY..SMALL => size / 2,
        SMALL.. => size - size / 10 * 3,
    }
}

/// The size that a table for `keys` keys has.
fn size_for(keys: usize) -> usize {
    let (tiny, small) = (keys.saturating_mul(4), keys.saturating_mul(2));
    match keys {
        0 => 0,
        _ if tiny < TINY => tiny.max(MIN),
        _ if small < SMALL => small.max(TINY),
        _ => keys.saturating_add(keys / 2).max(SMALL),
    }
}
