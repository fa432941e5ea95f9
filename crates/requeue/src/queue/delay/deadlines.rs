//! The delay of each slot: its deadline, and a stamp that identifies its valid entry.
//!
//! # Invariants
//!
//! 1. A stamp is odd while its slot is delayed, and even otherwise.
//! 2. No entry has an even stamp, and only the valid entry has the stamp of its slot. So a
//!    slot must not return to the stamp of an entry that it left behind: stamps count up, and
//!    all stale entries are dropped when one wraps around.

use super::bucket::Entry;

/// The initial capacity in slots (640 bytes).
const SLOTS_MIN: usize = 64;

/// The delays of all slots, by slot. Two vectors, because checking an entry needs only the
/// stamp: two bytes per slot stay in the cache.
#[derive(Default)]
pub(super) struct Deadlines {
    deadlines: Vec<u64>,
    stamps: Vec<u16>,
}

/// Whether stamps still distinguish valid entries from stale ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "stale entries must be dropped when a stamp wraps around"]
pub(super) enum Stamps {
    /// Every entry left behind has its own stamp.
    Distinct,
    /// The stamp of the slot wrapped around and could equal that of an old entry.
    WrappedAround,
}

impl Deadlines {
    /// Returns the deadline of a slot, if it is delayed.
    #[inline]
    pub(super) fn deadline(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        let stamp = *self.stamps.get(slot)?;
        is_delayed(stamp).then(|| self.deadlines[slot])
    }

    /// Returns whether an entry is the valid one of its slot.
    pub(super) fn is_valid(&self, entry: &Entry) -> bool {
        self.stamps.get(entry.slot as usize) == Some(&entry.stamp)
    }

    /// Delays a slot that is not delayed. Returns its entry.
    #[inline]
    pub(super) fn delay(&mut self, slot: u32, deadline: u64) -> Entry {
        let index = slot as usize;
        if index >= self.stamps.len() {
            self.grow(index + 1);
        }
        let stamp = &mut self.stamps[index];
        debug_assert!(!is_delayed(*stamp), "invariant 1");
        *stamp += 1;
        self.deadlines[index] = deadline;
        Entry { deadline, slot, stamp: *stamp }
    }

    /// Ends the delay of a slot whose entry has left the schedule. Returns whether the entry
    /// was valid.
    pub(super) fn take(&mut self, entry: &Entry) -> bool {
        let valid = self.is_valid(entry);
        if valid {
            // The entry is gone, so its stamp can be used again (invariant 2): the stamp of a
            // slot whose delays always end never wraps around.
            self.stamps[entry.slot as usize] -= 1;
        }
        valid
    }

    /// Ends the delay of a delayed slot and leaves its entry behind.
    pub(super) fn abandon(&mut self, slot: u32) -> Stamps {
        let stamp = &mut self.stamps[slot as usize];
        debug_assert!(is_delayed(*stamp), "invariant 1");
        *stamp = stamp.wrapping_add(1);
        if *stamp == 0 { Stamps::WrappedAround } else { Stamps::Distinct }
    }

    /// Frees the memory of slots from `slots` on, except delayed ones. Only allowed if there
    /// is no stale entry: a freed stamp starts over.
    pub(super) fn shrink(&mut self, slots: usize) {
        let delayed = self.stamps.iter().rposition(|stamp| is_delayed(*stamp));
        let keep = slots.max(delayed.map_or(0, |slot| slot + 1));
        self.deadlines.truncate(keep);
        self.deadlines.shrink_to_fit();
        self.stamps.truncate(keep);
        self.stamps.shrink_to_fit();
    }

    /// Grows by at least a quarter, so that adding slots one by one is cheap. Doubling would
    /// waste up to ten bytes per slot.
    #[cold]
    fn grow(&mut self, slots: usize) {
        let len = slots.max(self.stamps.len() + self.stamps.len() / 4).max(SLOTS_MIN);
        self.deadlines.reserve_exact(len - self.deadlines.len());
        self.deadlines.resize(len, 0);
        self.stamps.reserve_exact(len - self.stamps.len());
        self.stamps.resize(len, 0);
    }
}

fn is_delayed(stamp: u16) -> bool {
    stamp % 2 == 1
}

#[cfg(test)]
impl Deadlines {
    /// Returns every delayed slot.
    pub(super) fn delayed(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.stamps)
            .filter(|(_, stamp)| is_delayed(**stamp))
            .map(|(slot, _)| slot)
    }

    /// Returns the number of allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.deadlines.capacity() * size_of::<u64>()
            + self.stamps.capacity() * size_of::<u16>()
    }
}
