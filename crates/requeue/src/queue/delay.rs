//! Which slots become ready when.
//!
//! Slots are indices into the queue's slab, time is nanoseconds since the queue's
//! epoch and comes in as an argument. Nothing here locks, reads a clock or wakes.
//!
//! A slot's delay is written down twice: in `slots`, by slot, and as an entry in
//! `wheel`, by time. An entry is never searched for. A delay that is moved or removed
//! leaves its entry behind as a stale one, which is dropped when its time comes, or
//! when stale entries outnumber the others.
//!
//! # Invariants
//!
//! 1. Each delayed slot has exactly one valid entry, with the slot's deadline. All
//!    other entries are stale.
//! 2. There are at most `live + STALE_MAX` stale entries, and none if nothing is
//!    delayed. Dropping them looks at less than twice as many entries as it drops, so
//!    each change of a delay pays for its own entry only. A stamp that starts over, once
//!    in 2^15 moves of one slot, makes them go as well.
//! 3. Valid entries with equal deadlines lie in the order in which their slots were
//!    delayed: the wheel keeps the order of pushing, and a slot delayed anew gets a
//!    new entry.

mod bucket;
mod slots;
#[cfg(test)]
mod tests;
mod wheel;

use slots::{Slots, Stamps};
use wheel::Wheel;

/// So many stale entries (1 kB) are not worth looking for.
const STALE_MAX: usize = 64;

/// What an [`insert`](Delays::insert) changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a deadline that became earlier may have to wake the worker that waits for it"]
pub(crate) enum Scheduled {
    /// The slot was not delayed and is now.
    New,
    /// The slot was delayed for longer.
    Earlier,
    /// The slot was delayed until then or a moment before: nothing changed.
    Kept,
}

/// Whether all due slots were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "more slots may be due"]
pub(crate) enum Progress {
    /// All of them.
    Done,
    /// The work was cut short; call again.
    More,
}

/// The delayed slots of one queue.
#[derive(Default)]
pub(crate) struct Delays {
    slots: Slots,
    wheel: Wheel,
    /// How many entries are valid, and slots delayed.
    live: usize,
    /// How many entries are stale.
    stale: usize,
}

impl Delays {
    /// Delays `slot` until `deadline`, or until an earlier deadline that it has already.
    ///
    /// A deadline that has passed is due at the next [`due`](Delays::due).
    pub(crate) fn insert(&mut self, slot: u32, deadline: u64) -> Scheduled {
        match self.slots.deadline(slot) {
            None => {
                self.delay(slot, deadline);
                Scheduled::New
            }
            Some(present) if deadline < present => {
                self.abandon(slot);
                self.delay(slot, deadline);
                Scheduled::Earlier
            }
            Some(_) => Scheduled::Kept,
        }
    }

    /// Delays `slot` until `deadline`, whatever its deadline was, after all slots that
    /// have the same one.
    pub(crate) fn replace(&mut self, slot: u32, deadline: u64) {
        self.remove(slot);
        self.delay(slot, deadline);
    }

    /// Ends the delay of `slot`, and says whether it had one.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let delayed = self.contains(slot);
        if delayed {
            self.abandon(slot);
        }
        delayed
    }

    /// When `slot` becomes ready, if it is delayed.
    pub(crate) fn deadline(&self, slot: u32) -> Option<u64> {
        self.slots.deadline(slot)
    }

    /// Whether `slot` is delayed.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.deadline(slot).is_some()
    }

    /// How many slots are delayed.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Whether no slot is delayed.
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// When to call [`due`](Delays::due) next: never later than the earliest deadline,
    /// and earlier only by a stale entry, which that call drops.
    pub(crate) fn next(&self) -> Option<u64> {
        self.wheel.next()
    }

    /// Takes out slots whose deadline is `now` or before, by deadline, and in the order in
    /// which they were delayed where deadlines are equal.
    ///
    /// Works on about `budget` entries and reports whether more are left. Time never goes
    /// back: an earlier `now` than that of a previous call counts as that one. `ready` must
    /// not panic: slots that are due in the same call would be lost.
    pub(crate) fn due(
        &mut self,
        now: u64,
        budget: usize,
        mut ready: impl FnMut(u32),
    ) -> Progress {
        let Self { slots, wheel, live, stale } = self;
        let progress = wheel.take_due(now, budget, |entry| {
            if slots.take(&entry) {
                *live -= 1;
                ready(entry.slot);
            } else {
                *stale -= 1;
            }
        });
        self.tidy();
        progress
    }

    /// Takes out every slot, in the order in which they would have become ready.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        let now = self.wheel.origin();
        while self.due(u64::MAX, usize::MAX, &mut each) == Progress::More {}
        self.wheel.rewind(now);
    }

    /// Gives memory back after a spike: forgets what is kept for slots from `slots` on,
    /// unless they are delayed, and the room of entries that are gone.
    pub(crate) fn shrink(&mut self, slots: usize) {
        self.compact();
        self.slots.shrink(slots);
        self.wheel.shrink();
    }

    fn delay(&mut self, slot: u32, deadline: u64) {
        let entry = self.slots.delay(slot, deadline);
        self.wheel.push(entry);
        self.live += 1;
    }

    fn abandon(&mut self, slot: u32) {
        self.live -= 1;
        self.stale += 1;
        match self.slots.abandon(slot) {
            Stamps::Distinct => self.tidy(),
            Stamps::StartedOver => self.compact(),
        }
    }

    /// Restores invariant 2 after a delay ended.
    fn tidy(&mut self) {
        if self.live == 0 && self.stale > 0 {
            self.wheel.clear();
            self.stale = 0;
        } else if self.stale > self.live + STALE_MAX {
            self.compact();
        }
    }

    #[cold]
    fn compact(&mut self) {
        self.wheel.retain(|entry| self.slots.is_valid(entry));
        self.stale = 0;
    }
}

#[cfg(test)]
impl Delays {
    /// How many bytes are allocated for delayed slots.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.wheel.bytes()
    }

    /// Panics unless the invariants in the module docs hold.
    pub(crate) fn check(&self) {
        self.wheel.check();
        let mut valid: Vec<_> =
            self.wheel.entries().filter(|entry| self.slots.is_valid(entry)).collect();
        for entry in &valid {
            assert_eq!(self.deadline(entry.slot), Some(entry.deadline), "invariant 1");
        }
        valid.sort_by_key(|entry| entry.slot);
        let slots = valid.iter().map(|entry| entry.slot);
        assert!(slots.eq(self.slots.delayed()), "invariant 1: one entry a slot");
        assert_eq!(valid.len(), self.live, "invariant 1: count");
        assert_eq!(self.wheel.entries().count() - self.live, self.stale, "stale entries");
        let bound = if self.live == 0 { 0 } else { self.live + STALE_MAX };
        assert!(self.stale <= bound, "invariant 2: {} of {}", self.stale, self.live);
    }
}
