//! A radix wheel: entries sorted by deadline as far as needed, and no further.
//!
//! Time is cut into ticks of 2^10 ns, and a tick is read as nine digits of six bits.
//! An entry lies at the level of the highest digit in which its deadline differs from
//! `origin`, in the bucket of that digit's value. A bucket of level 0 is one tick, of
//! level 1 64 ticks (65 µs), of level 3 268 ms, of level 8 nine years.
//!
//! | step | what happens                                                               |
//! |------|----------------------------------------------------------------------------|
//! | push | appends to one bucket                                                      |
//! | open | empties the first bucket: due entries leave, the rest goes to lower levels |
//!
//! A bucket is opened as soon as time reaches its beginning, so that entries move down
//! little by little and new ones are placed relative to the present.
//!
//! Nothing here knows slots: stale entries are told from valid ones by the caller.
//!
//! # Invariants
//!
//! 1. An entry lies in the bucket that `place` computes from its deadline and `origin`.
//!    So entries with equal deadlines share a bucket, and every entry of a bucket is
//!    earlier than every entry of the buckets after it (levels laid end to end).
//! 2. Entries with equal deadlines lie in the order in which they were pushed.
//! 3. A bit of `occupied` is set if and only if its bucket has entries.
//!
//! `origin` only ever moves forward to a moment before the first occupied bucket, or
//! inside it while it is opened or if it is a single tick. Entries of later buckets
//! differ from any such moment in the same highest digit as before: invariant 1 holds
//! for them untouched. What is left of an opened bucket goes, in its old order, to
//! buckets before it, which are all empty, or back: invariant 2.

use super::bucket::{Bucket, Entry};

/// Nanoseconds in a tick, as a power of two. Finer than any timer of a system, and
/// 64 - 10 bits are exactly nine digits.
const TICK_BITS: u32 = 10;
const DIGIT_BITS: u32 = 6;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 9;

/// Up to here a bucket is sorted when it is opened; a larger one is spread over lower
/// levels first. Sorting this many entries allocates nothing.
const SORT_MAX: usize = 128;

/// Entries by deadline.
#[derive(Default)]
pub(super) struct Wheel {
    /// The moment that places are relative to: the latest time seen by `take_due`.
    origin: u64,
    occupied: [u64; LEVELS],
    /// 64 for each level, as many levels as have been used so far.
    buckets: Vec<Bucket>,
    /// Empty; its room goes to the next bucket that is opened.
    spare: Vec<Entry>,
}

impl Wheel {
    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<u64> {
        self.first().map(|index| self.buckets[index].min())
    }

    /// Adds an entry, after all that have the same deadline.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        let index = self.place(entry.deadline);
        if index >= self.buckets.len() {
            self.grow(index);
        }
        let bucket = &mut self.buckets[index];
        if bucket.is_empty() {
            self.occupied[index / DIGITS] |= 1 << (index % DIGITS);
        }
        bucket.push(entry);
    }

    /// Takes out every entry due at `now`, by deadline and then by order of pushing. An
    /// earlier `now` than before counts as that.
    pub(super) fn take_due(&mut self, now: u64, mut due: impl FnMut(Entry)) {
        let now = now.max(self.origin);
        while let Some(index) = self.first().filter(|index| self.opens(*index) <= now) {
            self.open(index, now, &mut due);
        }
        self.origin = now;
    }

    /// The latest time seen.
    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    /// Drops every entry that `keep` does not want.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        for (level, word) in self.occupied.iter_mut().enumerate() {
            for digit in digits(*word) {
                let bucket = &mut self.buckets[level * DIGITS + digit];
                bucket.retain(&mut keep);
                if bucket.is_empty() {
                    *word &= !(1 << digit);
                }
            }
        }
    }

    /// Drops every entry.
    pub(super) fn clear(&mut self) {
        for (level, word) in self.occupied.iter_mut().enumerate() {
            for digit in digits(std::mem::take(word)) {
                self.buckets[level * DIGITS + digit].clear();
            }
        }
    }

    /// Sets the time of a wheel without entries back.
    pub(super) fn rewind(&mut self, origin: u64) {
        debug_assert_eq!(self.first(), None, "invariant 1");
        self.origin = origin;
    }

    /// Gives back the memory that the present entries do not need.
    pub(super) fn shrink(&mut self) {
        let used = self.occupied.iter().rposition(|word| *word != 0);
        self.buckets.truncate(used.map_or(0, |level| (level + 1) * DIGITS));
        self.buckets.shrink_to_fit();
        self.buckets.iter_mut().for_each(Bucket::shrink);
        self.spare = Vec::new();
    }

    fn first(&self) -> Option<usize> {
        let level = self.occupied.iter().position(|word| *word != 0)?;
        Some(level * DIGITS + self.occupied[level].trailing_zeros() as usize)
    }

    /// When to open a bucket. A single tick is opened for an entry that is due: it has
    /// no lower bucket for the rest.
    fn opens(&self, index: usize) -> u64 {
        if index < DIGITS { self.buckets[index].min() } else { self.range(index).0 }
    }

    /// Empties the first bucket.
    fn open(&mut self, index: usize, now: u64, due: &mut impl FnMut(Entry)) {
        let mut bucket = self.take(index);
        let (start, end) = self.range(index);
        let sorted = bucket.is_sorted();
        self.spare = if !sorted && bucket.len() > SORT_MAX && index >= DIGITS {
            self.origin = start;
            bucket.empty(|entry| self.push(entry))
        } else {
            if !sorted {
                bucket.sort();
            }
            self.origin = self.origin.max(end.min(now));
            bucket.empty(|entry| self.pass(entry, now, due))
        };
    }

    #[expect(
        clippy::inline_always,
        reason = "the call is a tenth of taking an entry out"
    )]
    #[inline(always)]
    fn pass(&mut self, entry: Entry, now: u64, due: &mut impl FnMut(Entry)) {
        if entry.deadline <= now {
            due(entry);
        } else {
            self.push(entry);
        }
    }

    fn take(&mut self, index: usize) -> Bucket {
        self.occupied[index / DIGITS] &= !(1 << (index % DIGITS));
        self.buckets[index].take(std::mem::take(&mut self.spare))
    }

    /// The bucket for a deadline; a past one belongs to the tick of `origin`.
    fn place(&self, deadline: u64) -> usize {
        let origin = self.origin >> TICK_BITS;
        let tick = (deadline >> TICK_BITS).max(origin);
        let level = ((tick ^ origin) | 1).ilog2() / DIGIT_BITS;
        let digit = (tick >> (level * DIGIT_BITS)) as usize % DIGITS;
        level as usize * DIGITS + digit
    }

    /// The first and the last moment of a bucket.
    #[expect(clippy::cast_possible_truncation, reason = "a level is below nine")]
    fn range(&self, index: usize) -> (u64, u64) {
        let low = TICK_BITS + (index / DIGITS) as u32 * DIGIT_BITS;
        let digit = (index % DIGITS) as u64;
        let above = (self.origin >> low) & !(DIGITS as u64 - 1);
        let start = (above | digit) << low;
        (start, start | ((1 << low) - 1))
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        let levels = index / DIGITS + 1;
        self.buckets.reserve_exact(levels * DIGITS - self.buckets.len());
        self.buckets.resize_with(levels * DIGITS, Bucket::default);
    }
}

/// The positions of the bits that are set.
fn digits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let digit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(digit)
    })
}

#[cfg(test)]
impl Wheel {
    /// Every entry, bucket by bucket.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.buckets.iter().filter(|bucket| !bucket.is_empty()).flat_map(Bucket::iter)
    }

    /// How many bytes are allocated.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.iter().map(Bucket::bytes).sum::<usize>()
            + self.buckets.capacity() * size_of::<Bucket>()
            + self.spare.capacity() * size_of::<Entry>()
    }

    /// Panics unless the invariants in the module docs hold; the second is for the
    /// caller to check, who knows the order of pushing.
    pub(super) fn check(&self) {
        assert!(self.spare.is_empty(), "the spare vector has entries");
        for (index, bucket) in self.buckets.iter().enumerate() {
            let occupied = self.occupied[index / DIGITS] >> (index % DIGITS) & 1 == 1;
            assert_eq!(occupied, !bucket.is_empty(), "invariant 3");
            if occupied {
                bucket.check(|entry| self.place(entry.deadline) == index);
            }
        }
    }
}
