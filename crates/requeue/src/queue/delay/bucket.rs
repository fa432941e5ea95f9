//! The entries of one stretch of time, in the order in which they came.
//!
//! Large buckets are lists of chunks: growing one moves no entry and wastes less than a
//! chunk, where a growing vector would copy and leave up to half of its room unused.

/// A slot that becomes ready at a deadline, unless its stamp says it is stale.
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

#[derive(Default)]
pub(super) struct Bucket {
    /// The earliest deadline of the entries; without meaning if there are none.
    min: u64,
    full: Vec<Vec<Entry>>,
    /// What came after the full chunks.
    tail: Vec<Entry>,
}

impl Bucket {
    pub(super) fn len(&self) -> usize {
        self.full.len() * CHUNK + self.tail.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// The earliest deadline of a bucket that has entries.
    pub(super) fn min(&self) -> u64 {
        self.min
    }

    pub(super) fn push(&mut self, entry: Entry) {
        let first = self.tail.is_empty();
        self.min = if first { entry.deadline } else { self.min.min(entry.deadline) };
        if self.tail.len() == CHUNK {
            self.seal();
        }
        self.tail.push(entry);
    }

    /// Takes all entries out; `spare` is the room for those that come next.
    pub(super) fn take(&mut self, spare: Vec<Entry>) -> Self {
        std::mem::replace(self, Self { tail: spare, ..Self::default() })
    }

    /// Hands over all entries and gives back a vector to use as spare room.
    pub(super) fn empty(self, each: impl FnMut(Entry)) -> Vec<Entry> {
        let Self { full, mut tail, .. } = self;
        full.into_iter().flatten().chain(tail.drain(..)).for_each(each);
        if tail.capacity() <= KEEP { tail } else { Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        let emptied = std::mem::take(self).empty(drop);
        self.tail = emptied;
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
        self.iter().is_sorted_by_key(|entry| entry.deadline)
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

    #[cold]
    fn seal(&mut self) {
        self.full.push(std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK)));
    }
}

#[cfg(test)]
impl Bucket {
    /// How many bytes are allocated.
    pub(super) fn bytes(&self) -> usize {
        let room =
            self.full.iter().map(Vec::capacity).sum::<usize>() + self.tail.capacity();
        room * size_of::<Entry>() + self.full.capacity() * size_of::<Vec<Entry>>()
    }
}
