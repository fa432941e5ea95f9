//! The entries of one interval of time, in the order of pushing.
//!
//! A large bucket is a list of chunks: it grows without moving entries and wastes less than a
//! chunk. A vector would copy entries and leave up to half of its memory unused.

use std::collections::VecDeque;

/// A slot that becomes ready at a deadline, unless the stamp shows that the entry is stale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) deadline: u64,
    pub(super) slot: u32,
    pub(super) stamp: u16,
}

/// Entries in a chunk: 4 kB.
const CHUNK: usize = 256;
/// Room for this many entries (2 kB) is kept when a bucket becomes empty.
const KEEP: usize = 128;

/// A bucket fills one cache line.
#[repr(align(64))]
pub(super) struct Bucket {
    /// The earliest deadline of the entries, `u64::MAX` if there are none.
    min: u64,
    full: VecDeque<Vec<Entry>>,
    /// The last entries; empty only if the bucket is.
    tail: Vec<Entry>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { min: u64::MAX, full: VecDeque::new(), tail: Vec::new() }
    }
}

impl Bucket {
    pub(super) fn len(&self) -> usize {
        self.full.iter().map(Vec::len).sum::<usize>() + self.tail.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// Returns the earliest deadline of a bucket that has entries.
    pub(super) fn min(&self) -> u64 {
        self.min
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.min = self.min.min(entry.deadline);
        if self.tail.len() < self.tail.capacity() {
            self.tail.push(entry);
        } else {
            self.push_slow(entry);
        }
    }

    /// Removes and returns all entries. `spare` is the memory for later ones.
    pub(super) fn take(&mut self, spare: Vec<Entry>) -> Self {
        std::mem::replace(self, Self { tail: spare, ..Self::default() })
    }

    /// Removes the first chunk of entries; it is empty if the bucket is.
    pub(super) fn take_chunk(&mut self) -> Vec<Entry> {
        self.full.pop_front().unwrap_or_else(|| std::mem::take(&mut self.tail))
    }

    /// Calls `each` with all entries. Returns a vector to reuse.
    fn empty(mut self, mut each: impl FnMut(Entry)) -> Vec<Entry> {
        loop {
            let mut chunk = self.take_chunk();
            chunk.drain(..).for_each(&mut each);
            if self.is_empty() {
                return spare(chunk);
            }
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        std::mem::take(self).empty(|entry| {
            if keep(&entry) {
                self.push(entry);
            }
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.full.iter().flatten().chain(&self.tail)
    }

    pub(super) fn is_sorted(&self) -> bool {
        self.tail.is_sorted_by_key(|entry| entry.deadline)
            && (self.full.is_empty()
                || self.iter().is_sorted_by_key(|entry| entry.deadline))
    }

    /// Sorts by deadline; entries with equal deadlines keep their order.
    pub(super) fn sort(&mut self) {
        if !self.full.is_empty() {
            self.tail = self.iter().copied().collect();
            self.full.clear();
        }
        self.tail.sort_by_key(|entry| entry.deadline);
    }

    pub(super) fn shrink(&mut self) {
        self.full.shrink_to_fit();
        self.tail.shrink_to_fit();
    }

    /// Doubles the capacity up to a chunk, then starts another chunk.
    #[cold]
    fn push_slow(&mut self, entry: Entry) {
        let len = self.tail.len();
        if len < CHUNK {
            self.tail.reserve_exact(len.max(4).min(CHUNK - len));
        } else {
            self.full
                .push_back(std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK)));
        }
        self.tail.push(entry);
    }
}

/// Returns an emptied chunk if it is small enough to be kept.
pub(super) fn spare(chunk: Vec<Entry>) -> Vec<Entry> {
    if chunk.capacity() <= KEEP { chunk } else { Vec::new() }
}

#[cfg(test)]
impl Bucket {
    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        let room =
            self.full.iter().map(Vec::capacity).sum::<usize>() + self.tail.capacity();
        room * size_of::<Entry>() + self.full.capacity() * size_of::<Vec<Entry>>()
    }

    /// Panics unless every entry belongs here, and the earliest is known.
    pub(super) fn check(&self, belongs: impl Fn(&Entry) -> bool) {
        assert!(self.iter().all(belongs), "invariant 1 of the wheel");
        let min = self.iter().map(|entry| entry.deadline).min();
        assert_eq!(min, Some(self.min), "the earliest deadline");
    }
}
