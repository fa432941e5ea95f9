//! What is known of each slot: whether it is delayed, until when, and by which entry.
//!
//! # Invariants
//!
//! 1. A stamp is odd while its slot is delayed, and even otherwise.
//! 2. No entry in the wheel has an even stamp, and none but the valid one has the
//!    stamp of its slot. Therefore a slot that leaves an entry behind never comes back
//!    to that entry's stamp before the entry is gone: stamps count up, and when one
//!    starts over, all stale entries must be dropped.

use super::bucket::Entry;

/// Slots that are made room for at first (640 bytes).
const SLOTS_MIN: usize = 64;

/// The delays of all slots, by slot. Two vectors, since telling a stale entry from a
/// valid one needs the stamp alone: two bytes a slot stay in the cache.
#[derive(Default)]
pub(super) struct Slots {
    deadlines: Vec<u64>,
    stamps: Vec<u16>,
}

/// Whether stamps still tell valid entries from stale ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "stale entries must go when a stamp starts over"]
pub(super) enum Stamps {
    /// Every entry left behind has a stamp of its own.
    Distinct,
    /// The slot's stamp started over and could meet an old entry's.
    StartedOver,
}

impl Slots {
    /// When the slot becomes ready, if it is delayed.
    pub(super) fn deadline(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        let stamp = *self.stamps.get(slot)?;
        is_delayed(stamp).then(|| self.deadlines[slot])
    }

    /// Whether the entry is the valid one of its slot.
    pub(super) fn is_valid(&self, entry: &Entry) -> bool {
        self.stamps.get(entry.slot as usize) == Some(&entry.stamp)
    }

    /// Delays a slot that is not delayed, and gives the entry for it.
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

    /// Ends the delay of an entry's slot as the entry leaves the wheel, and says
    /// whether the entry was valid.
    pub(super) fn take(&mut self, entry: &Entry) -> bool {
        let valid = self.is_valid(entry);
        if valid {
            // The entry is gone, so its stamp is free again (invariant 2): a slot that
            // is always waited for never makes stamps start over.
            self.stamps[entry.slot as usize] -= 1;
        }
        valid
    }

    /// Ends the delay of a slot that is delayed, and leaves its entry behind.
    pub(super) fn abandon(&mut self, slot: u32) -> Stamps {
        let stamp = &mut self.stamps[slot as usize];
        debug_assert!(is_delayed(*stamp), "invariant 1");
        *stamp = stamp.wrapping_add(1);
        if *stamp == 0 { Stamps::StartedOver } else { Stamps::Distinct }
    }

    /// Forgets all slots from `slots` on, but none that is delayed. Only while the
    /// wheel has no stale entry: a forgotten stamp starts over.
    pub(super) fn shrink(&mut self, slots: usize) {
        let delayed = self.stamps.iter().rposition(|stamp| is_delayed(*stamp));
        let keep = slots.max(delayed.map_or(0, |slot| slot + 1));
        self.deadlines.truncate(keep);
        self.deadlines.shrink_to_fit();
        self.stamps.truncate(keep);
        self.stamps.shrink_to_fit();
    }

    /// Grows by a quarter at least, so that adding slots one by one costs little, and
    /// not by double, which would waste up to ten bytes a slot.
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
impl Slots {
    /// Every delayed slot.
    pub(super) fn delayed(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.stamps)
            .filter(|(_, stamp)| is_delayed(**stamp))
            .map(|(slot, _)| slot)
    }

    /// How many bytes are allocated.
    pub(super) fn bytes(&self) -> usize {
        self.deadlines.capacity() * size_of::<u64>()
            + self.stamps.capacity() * size_of::<u16>()
    }
}
