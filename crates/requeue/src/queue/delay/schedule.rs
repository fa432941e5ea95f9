//! Entries by deadline: few of them in a sorted vector, many in a wheel.
//!
//! An empty wheel takes 4 kB for each level it has used. Most queues have few delayed keys at
//! a time, and a process may have many queues.

use super::Progress;
use super::bucket::Entry;
use super::wheel::Wheel;

/// Up to this many entries (1 kB) are kept in a vector.
const FEW: usize = 64;

/// The entries of one queue. Entries with equal deadlines keep the order of pushing.
pub(super) struct Schedule {
    entries: Entries,
    /// The largest number of entries in a vector.
    few: usize,
}

enum Entries {
    Few(Sorted),
    Many(Box<Wheel>),
}

impl Default for Schedule {
    fn default() -> Self {
        Self { entries: Entries::Few(Sorted::default()), few: FEW }
    }
}

impl Schedule {
    /// Returns the earliest deadline, or a moment before it.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        match &self.entries {
            Entries::Few(sorted) => sorted.entries.first().map(|entry| entry.deadline),
            Entries::Many(wheel) => wheel.next(),
        }
    }

    /// Adds an entry, after all that have the same deadline.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        match &mut self.entries {
            Entries::Many(wheel) => wheel.push(entry),
            Entries::Few(sorted) if sorted.entries.len() < self.few => sorted.push(entry),
            Entries::Few(sorted) => {
                let mut wheel = Wheel::from_sorted(sorted.latest, &sorted.entries);
                wheel.push(entry);
                self.entries = Entries::Many(Box::new(wheel));
            }
        }
    }

    /// Takes out entries that are due at `now`, by deadline. An earlier `now` than that of a
    /// previous call counts as the previous one.
    ///
    /// Stops after about `budget` entries.
    pub(super) fn take_due(
        &mut self,
        now: u64,
        budget: usize,
        due: impl FnMut(Entry),
    ) -> Progress {
        match &mut self.entries {
            Entries::Few(sorted) => sorted.take_due(now, budget, due),
            Entries::Many(wheel) => {
                let progress = wheel.take_due(now, budget, due);
                self.leave_empty_wheel();
                progress
            }
        }
    }

    /// Drops every entry that `keep` rejects.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        match &mut self.entries {
            Entries::Few(sorted) => sorted.entries.retain(keep),
            Entries::Many(wheel) => {
                wheel.retain(keep);
                self.leave_empty_wheel();
            }
        }
    }

    /// Drops every entry.
    pub(super) fn clear(&mut self) {
        let latest = self.latest();
        self.restart(latest);
    }

    /// Returns the latest time seen by [`take_due`](Self::take_due).
    pub(super) fn latest(&self) -> u64 {
        match &self.entries {
            Entries::Few(sorted) => sorted.latest,
            Entries::Many(wheel) => wheel.origin(),
        }
    }

    /// Drops every entry and sets the latest time.
    pub(super) fn restart(&mut self, latest: u64) {
        self.entries = Entries::Few(Sorted { latest, entries: Vec::new() });
    }

    /// Frees the memory that the present entries do not need.
    pub(super) fn shrink(&mut self) {
        match &mut self.entries {
            Entries::Few(sorted) => sorted.entries.shrink_to_fit(),
            Entries::Many(wheel) => wheel.shrink(),
        }
    }

    fn leave_empty_wheel(&mut self) {
        if self.next().is_none() {
            self.clear();
        }
    }
}

/// Entries sorted by deadline.
#[derive(Default)]
struct Sorted {
    /// The latest time seen.
    latest: u64,
    entries: Vec<Entry>,
}

impl Sorted {
    fn push(&mut self, entry: Entry) {
        let place =
            self.entries.partition_point(|other| other.deadline <= entry.deadline);
        self.entries.insert(place, entry);
    }

    fn take_due(&mut self, now: u64, budget: usize, due: impl FnMut(Entry)) -> Progress {
        self.latest = self.latest.max(now);
        let all = self.entries.partition_point(|entry| entry.deadline <= self.latest);
        let taken = all.min(budget.max(1));
        self.entries.drain(..taken).for_each(due);
        if taken < all { Progress::More } else { Progress::Done }
    }
}

#[cfg(test)]
impl Schedule {
    /// Creates a schedule that keeps up to `few` entries in a vector.
    pub(super) fn with_few(few: usize) -> Self {
        Self { few, ..Self::default() }
    }

    pub(super) fn entries(&self) -> Box<dyn Iterator<Item = &Entry> + '_> {
        match &self.entries {
            Entries::Few(sorted) => Box::new(sorted.entries.iter()),
            Entries::Many(wheel) => Box::new(wheel.entries()),
        }
    }

    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.entries {
            Entries::Few(sorted) => sorted.entries.capacity() * size_of::<Entry>(),
            Entries::Many(wheel) => wheel.bytes() + size_of::<Wheel>(),
        }
    }

    /// Panics unless the entries are in order.
    pub(super) fn check(&self) {
        match &self.entries {
            Entries::Few(sorted) => {
                assert!(sorted.entries.is_sorted_by_key(|entry| entry.deadline));
            }
            Entries::Many(wheel) => wheel.check(),
        }
    }
}
