//! A radix wheel: entries are sorted by deadline lazily, as far as needed.
//!
//! Time is divided into ticks of 2^10 ns, and a tick is written as nine digits of six bits.
//! An entry belongs to the level of the highest digit in which its deadline differs from
//! `origin`, and there to the bucket of that digit. A bucket of level 0 spans one tick, of
//! level 1 64 ticks (65 µs), of level 3 268 ms, of level 8 nine years.
//!
//! | step | what happens                                                               |
//! |------|----------------------------------------------------------------------------|
//! | push | appends to one bucket                                                      |
//! | open | empties the first bucket: due entries leave, others move to lower levels   |
//!
//! A bucket is opened when time reaches its start, so entries move down gradually and new
//! entries are placed relative to the present.
//!
//! A bucket may hold a million entries. It is emptied in chunks, and entries may be pushed
//! between two chunks: those that belong to the opened bucket are appended to it.
//!
//! The wheel does not distinguish stale entries from valid ones: that is up to the caller.
//!
//! # Invariants
//!
//! 1. An entry is in the bucket that `bucket_of` computes from its deadline and `origin`. So
//!    entries with equal deadlines share a bucket, and every entry of a bucket is earlier
//!    than every entry of later buckets (lower levels first).
//! 2. Entries with equal deadlines are in the order of pushing.
//! 3. A bit of `occupied` is set if and only if its bucket has entries.
//!
//! `origin` only moves forward: to a moment before the first occupied bucket, or inside that
//! bucket while it is opened or if it is a single tick. Entries of later buckets still differ
//! from `origin` in the same highest digit, so invariant 1 holds for them. The remaining
//! entries of an opened bucket move, in their order, to earlier buckets, which are all empty,
//! or back: invariant 2. An entry that joins an opened bucket is later than the time up to
//! which the bucket is emptied. It is not due, and moves down after all older entries:
//! invariant 2 again.

use super::Progress;
use super::bucket::{Bucket, Entry, spare};

/// Nanoseconds per tick, as a power of two. Finer than any system timer, and the remaining 54
/// bits are exactly nine digits.
const TICK_BITS: u32 = 10;
const DIGIT_BITS: u32 = 6;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 9;

/// A bucket of up to this many entries is sorted when it is opened; a larger one is spread
/// over lower levels first. Sorting this many entries allocates nothing.
const SORT_MAX: usize = 128;

/// Entries by deadline.
#[derive(Default)]
pub(super) struct Wheel {
    /// The time to which buckets are relative: the latest time seen by `take_due`.
    origin: u64,
    occupied: [u64; LEVELS],
    /// 64 per level, for the levels that have been used.
    buckets: Vec<Bucket>,
    /// Empty; its memory goes to the next bucket that is opened.
    spare: Vec<Entry>,
    opened: Option<Opened>,
}

/// A bucket that is being emptied.
struct Opened {
    entries: Bucket,
    /// The last moment of the bucket.
    end: u64,
    /// Entries up to this time are due; `None` if all of them move to lower levels.
    due_until: Option<u64>,
}

impl Wheel {
    /// Creates a wheel with these entries, sorted by deadline.
    pub(super) fn from_sorted(origin: u64, entries: &[Entry]) -> Self {
        let mut wheel = Self { origin, ..Self::default() };
        for entry in entries {
            wheel.push(*entry);
        }
        wheel
    }

    /// Returns the earliest deadline, or a moment before it.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let opened = self.opened.as_ref().map(|opened| opened.entries.min());
        let first = self.first().map(|index| self.buckets[index].min());
        opened.into_iter().chain(first).min()
    }

    /// Adds an entry, after all that have the same deadline.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        if let Some(opened) = &mut self.opened {
            if entry.deadline <= opened.end {
                return opened.entries.push(entry);
            }
        }
        let index = self.bucket_of(entry.deadline);
        if index >= self.buckets.len() {
            self.grow(index);
        }
        let bucket = &mut self.buckets[index];
        if bucket.is_empty() {
            self.occupied[index / DIGITS] |= 1 << (index % DIGITS);
        }
        bucket.push(entry);
    }

    /// Takes out entries that are due at `now`, by deadline. An earlier `now` than that of a
    /// previous call counts as the previous one.
    ///
    /// Stops after about `budget` entries, at the end of a chunk.
    pub(super) fn take_due(
        &mut self,
        now: u64,
        mut budget: usize,
        mut due: impl FnMut(Entry),
    ) -> Progress {
        let now = now.max(self.origin);
        loop {
            if let Some(opened) = self.opened.take() {
                self.opened = self.empty(opened, &mut budget, &mut due);
            }
            if self.opened.is_some() {
                return Progress::More;
            }
            let Some(index) = self.first().filter(|index| self.opens(*index) <= now)
            else {
                self.origin = now;
                return Progress::Done;
            };
            if budget == 0 {
                return Progress::More;
            }
            budget -= 1;
            self.opened = Some(self.open(index, now));
        }
    }

    /// Returns the latest time seen.
    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    /// Drops every entry that `keep` rejects.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        if let Some(opened) = &mut self.opened {
            opened.entries.retain(&mut keep);
        }
        self.opened.take_if(|opened| opened.entries.is_empty());
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

    /// Frees the memory that the present entries do not need.
    pub(super) fn shrink(&mut self) {
        let used = self.occupied.iter().rposition(|word| *word != 0);
        self.buckets.truncate(used.map_or(0, |level| (level + 1) * DIGITS));
        self.buckets.shrink_to_fit();
        let opened = self.opened.as_mut().map(|opened| &mut opened.entries);
        self.buckets.iter_mut().chain(opened).for_each(Bucket::shrink);
        self.spare = Vec::new();
    }

    fn first(&self) -> Option<usize> {
        let level = self.occupied.iter().position(|word| *word != 0)?;
        Some(level * DIGITS + self.occupied[level].trailing_zeros() as usize)
    }

    /// Returns when to open a bucket. A single tick is opened when an entry is due, since
    /// there is no lower level for the others.
    fn opens(&self, index: usize) -> u64 {
        if index < DIGITS { self.buckets[index].min() } else { self.range(index).0 }
    }

    /// Opens the first bucket. A large unsorted one is spread over lower levels; any other is
    /// sorted, and its due entries leave.
    fn open(&mut self, index: usize, now: u64) -> Opened {
        let mut entries = self.take(index);
        let (start, end) = self.range(index);
        let sorted = entries.is_sorted();
        if !sorted && entries.len() > SORT_MAX && index >= DIGITS {
            self.origin = start;
            return Opened { entries, end, due_until: None };
        }
        if !sorted {
            entries.sort();
        }
        self.origin = self.origin.max(end.min(now));
        Opened { entries, end, due_until: Some(now) }
    }

    /// Empties an opened bucket, chunk by chunk, within the budget. Returns it if entries are
    /// left.
    fn empty(
        &mut self,
        mut opened: Opened,
        budget: &mut usize,
        due: &mut impl FnMut(Entry),
    ) -> Option<Opened> {
        while !opened.entries.is_empty() {
            if *budget == 0 {
                return Some(opened);
            }
            let mut chunk = opened.entries.take_chunk();
            *budget = budget.saturating_sub(chunk.len());
            for entry in chunk.drain(..) {
                self.pass(entry, opened.due_until, due);
            }
            self.spare = spare(chunk);
        }
        None
    }

    #[inline(always)]
    fn pass(
        &mut self,
        entry: Entry,
        due_until: Option<u64>,
        due: &mut impl FnMut(Entry),
    ) {
        if due_until.is_some_and(|now| entry.deadline <= now) {
            due(entry);
        } else {
            self.push(entry);
        }
    }

    fn take(&mut self, index: usize) -> Bucket {
        self.occupied[index / DIGITS] &= !(1 << (index % DIGITS));
        self.buckets[index].take(std::mem::take(&mut self.spare))
    }

    /// Returns the bucket for a deadline. A past deadline belongs to the tick of `origin`.
    fn bucket_of(&self, deadline: u64) -> usize {
        let origin = self.origin >> TICK_BITS;
        let tick = (deadline >> TICK_BITS).max(origin);
        let level = ((tick ^ origin) | 1).ilog2() / DIGIT_BITS;
        let digit = (tick >> (level * DIGIT_BITS)) as usize % DIGITS;
        level as usize * DIGITS + digit
    }

    /// Returns the first and the last moment of a bucket.
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

/// Returns the positions of the bits that are set.
fn digits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let digit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(digit)
    })
}

#[cfg(test)]
impl Wheel {
    /// Returns every entry, bucket by bucket.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let opened = self.opened.as_ref().map(|opened| &opened.entries);
        let buckets = self.buckets.iter().filter(|bucket| !bucket.is_empty());
        opened.into_iter().chain(buckets).flat_map(Bucket::iter)
    }

    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        let opened = self.opened.as_ref().map(|opened| &opened.entries);
        self.buckets.iter().chain(opened).map(Bucket::bytes).sum::<usize>()
            + self.buckets.capacity() * size_of::<Bucket>()
            + self.spare.capacity() * size_of::<Entry>()
    }

    /// Panics unless invariants 1 and 3 hold. The caller checks invariant 2, since it knows
    /// the order of pushing.
    pub(super) fn check(&self) {
        assert!(self.spare.is_empty(), "the spare vector has entries");
        if let Some(opened) = &self.opened {
            let belongs = opened.entries.iter().all(|entry| entry.deadline <= opened.end);
            assert!(belongs, "invariant 1: the opened bucket");
        }
        for (index, bucket) in self.buckets.iter().enumerate() {
            let occupied = self.occupied[index / DIGITS] >> (index % DIGITS) & 1 == 1;
            assert_eq!(occupied, !bucket.is_empty(), "invariant 3");
            if occupied {
                bucket.check(|entry| self.bucket_of(entry.deadline) == index);
            }
        }
    }
}
