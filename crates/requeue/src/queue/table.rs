//! The hash table of a queue: finds the slot of a key.
//!
//! Open addressing with linear probing over one vector of words; each word contains a hash of
//! 32 bits and a slot. So an operation touches one place in memory where a general hash map
//! touches two, and growing needs neither keys nor slots.
//!
//! The home of a word is its hash scaled to the size of the table, not its remainder. So a
//! table can have any size, and words are nearly sorted by hash: growing reads and writes
//! memory from front to back.
//!
//! # Invariants
//!
//! 1. At least one word is empty, so that every search ends.
//! 2. No word between the home of an entry and the entry itself is empty. The first word
//!    follows the last.
//! 3. Each known slot is in the table exactly once, under the hash of its key.

#[cfg(test)]
mod tests;

/// A hash in the upper half and a slot in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    /// No entry: no slot has this number.
    const EMPTY: Self = Self(u64::MAX);

    #[inline]
    fn new(hash: u32, slot: u32) -> Self {
        Self(u64::from(hash) << 32 | u64::from(slot))
    }

    #[inline]
    fn is_empty(self) -> bool {
        self == Self::EMPTY
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

/// The slots of the keys of one queue, by hash.
#[derive(Default)]
pub(super) struct Table {
    words: Vec<Word>,
    /// The number of entries.
    len: usize,
    /// The number of entries from which on the table grows.
    room: usize,
}

/// The empty word at which the search for an unknown key ended.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    hash: u32,
    index: usize,
}

impl Gap {
    /// Returns the hash that was searched for.
    #[inline]
    pub(super) fn hash(self) -> u32 {
        self.hash
    }
}

/// The smallest size that is not zero.
const MIN: usize = 8;

impl Table {
    /// Reserves memory for `keys` keys, if it is available.
    pub(super) fn reserve(&mut self, keys: usize) {
        let (before, size) = (self.words.len(), size_for(keys));
        if size > before && self.words.try_reserve_exact(size - before).is_ok() {
            self.grow(size);
        }
    }

    /// Returns the slot with this hash for which `is` returns `true`.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.search(hash, |slot| is(slot).then_some(())).ok().map(|(slot, ())| slot)
    }

    /// Returns the slot with this hash for which `look` returns something.
    ///
    /// Otherwise returns the gap for an [`insert`](Self::insert). The table must not change
    /// before that.
    #[inline]
    pub(super) fn search<R>(
        &self,
        hash: u32,
        look: impl Fn(u32) -> Option<R>,
    ) -> Result<(u32, R), Gap> {
        if self.words.is_empty() {
            return Err(Gap { hash, index: 0 });
        }
        let mut index = self.home(hash);
        loop {
            let word = self.words[index];
            if word.is_empty() {
                return Err(Gap { hash, index });
            }
            if word.hash() == hash {
                if let Some(seen) = look(word.slot()) {
                    return Ok((word.slot(), seen));
                }
            }
            index = self.after(index);
        }
    }

    /// Inserts a slot at the gap where the search for its hash ended.
    #[inline]
    pub(super) fn insert(&mut self, gap: Gap, slot: u32) {
        let word = Word::new(gap.hash, slot);
        if self.len >= self.room {
            return self.grow_and_insert(word);
        }
        self.len += 1;
        self.words[gap.index] = word;
    }

    #[cold]
    fn grow_and_insert(&mut self, word: Word) {
        self.grow(larger(self.words.len()));
        self.len += 1;
        self.put(word);
    }

    /// Removes a slot.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let word = Word::new(hash, slot);
        let mut index = self.home(hash);
        while self.words[index] != word {
            debug_assert!(!self.words[index].is_empty(), "invariant 3");
            index = self.after(index);
        }
        self.len -= 1;
        self.words[index] = Word::EMPTY;
        self.close_gap(index);
    }

    /// Moves later entries into an empty word, until invariant 2 holds again.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let mut index = self.after(gap);
        while !self.words[index].is_empty() {
            if !is_between(gap, self.home(self.words[index].hash()), index) {
                self.words.swap(gap, index);
                gap = index;
            }
            index = self.after(index);
        }
    }

    /// Frees the memory that is not needed for `keys` keys. `known` yields the hash and slot
    /// of every key in the table, at most `keys` of them.
    pub(super) fn shrink_to(
        &mut self,
        keys: usize,
        known: impl Iterator<Item = (u32, u32)>,
    ) {
        let size = size_for(keys);
        if size < self.words.len() {
            *self = Self { words: vec![Word::EMPTY; size], room: room(size), len: 0 };
            for (hash, slot) in known {
                self.len += 1;
                self.put(Word::new(hash, slot));
            }
        }
    }

    /// Writes an entry to the first empty word from its home on.
    #[inline]
    fn put(&mut self, entry: Word) {
        let mut index = self.home(entry.hash());
        while !self.words[index].is_empty() {
            index = self.after(index);
        }
        self.words[index] = entry;
    }

    /// Grows the table in place: page faults of fresh memory would cost more than the rest.
    ///
    /// From the last word to the first, each entry moves up, past all entries that have not
    /// moved yet. The few entries that cannot, near both ends, are inserted at the end.
    fn grow(&mut self, size: usize) {
        let before = self.words.len();
        self.words.reserve_exact(size - before);
        self.words.resize(size, Word::EMPTY);
        self.room = room(size);
        let mut late = Vec::new();
        for index in (0..before).rev() {
            if self.words[index].is_empty() {
                continue;
            }
            match self.gap_above(index) {
                Some(gap) => self.words.swap(index, gap),
                None => late.push(std::mem::replace(&mut self.words[index], Word::EMPTY)),
            }
        }
        for entry in late {
            self.put(entry);
        }
    }

    /// Returns the empty word for an entry whose home is above it. It does not continue at
    /// the first word, where entries have not moved yet.
    #[inline]
    fn gap_above(&self, index: usize) -> Option<usize> {
        let home = self.home(self.words[index].hash());
        let above = self.words.get(home..).filter(|_| home > index)?;
        above.iter().position(|word| word.is_empty()).map(|gap| home + gap)
    }

    /// Returns where the search for a hash begins.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.words.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, index: usize) -> usize {
        if index + 1 == self.words.len() { 0 } else { index + 1 }
    }
}

/// Returns whether `home` lies after `gap` and not after `index`, where the first word follows
/// the last. The search for the entry at `index` then does not pass the gap.
#[inline]
fn is_between(gap: usize, home: usize, index: usize) -> bool {
    if gap <= index { gap < home && home <= index } else { gap < home || home <= index }
}

/// A table of fewer words than this fits into the first cache of a processor. It stays three
/// quarters empty, so that nearly every search ends at its first word.
const TINY: usize = 1 << 12;

/// A table of fewer words than this stays half empty. In a larger one memory counts, and three
/// tenths stay empty.
const SMALL: usize = 1 << 16;

/// A table of fewer words than this doubles when it grows. A larger one grows by half, since
/// doubling often leaves half of it unused.
const LARGE: usize = 1 << 19;

/// Returns the size to which a table grows. A small one grows fourfold, so that it rarely grows.
fn larger(size: usize) -> usize {
    match size {
        0..TINY => (size * 4).clamp(MIN, TINY),
        TINY..LARGE => size * 2,
        LARGE.. => size + size / 2,
    }
}

/// Returns how many entries fit into a table of this size.
fn room(size: usize) -> usize {
    match size {
        0..TINY => size / 4,
        TINY..SMALL => size / 2,
        SMALL.. => size - size / 10 * 3,
    }
}

/// Returns the size of a table for `keys` keys.
fn size_for(keys: usize) -> usize {
    let (tiny, small) = (keys.saturating_mul(4), keys.saturating_mul(2));
    match keys {
        0 => 0,
        _ if tiny < TINY => tiny.max(MIN),
        _ if small < SMALL => small.max(TINY),
        _ => keys.saturating_add(keys / 2).max(SMALL),
    }
}
