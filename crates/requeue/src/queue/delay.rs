//! The deadlines of delayed slots.
//!
//! Slots are indices into the queue's slab. Time is an argument, in nanoseconds since the
//! queue was built. Nothing here locks, reads a clock or wakes.
//!
//! A delay is stored twice: in `deadlines`, by slot, and as an entry in `schedule`, by time.
//! Entries are never searched for. Moving or removing a delay leaves a stale entry behind. It
//! is dropped when its time comes, or when stale entries outnumber the valid ones.
//!
//! # Invariants
//!
//! 1. Each delayed slot has exactly one valid entry, with the slot's deadline. All other
//!    entries are stale.
//! 2. There are at most `live + STALE_MAX` stale entries, and none if nothing is delayed.
//!    Dropping them visits less than twice as many entries as it drops, so the cost is
//!    constant per change of a delay. They are also dropped when a stamp wraps around, once
//!    in 2^15 moves of one slot.
//! 3. Valid entries with equal deadlines are in the order in which their slots were delayed:
//!    the schedule keeps the order of pushing, and a slot that is delayed again gets a new
//!    entry.

mod bucket;
mod deadlines;
mod schedule;
#[cfg(test)]
mod tests;
mod wheel;

use deadlines::{Deadlines, Stamps};
use schedule::Schedule;

/// Up to this many stale entries (256 bytes) are not worth a search.
const STALE_MAX: usize = 16;

/// The effect of an [`insert`](Delays::insert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "says whether the delay changed"]
pub(crate) enum Scheduled {
    /// The slot was not delayed and is now.
    New,
    /// The slot was delayed for longer.
    Earlier,
    /// The slot had this deadline or an earlier one: nothing changed.
    Kept,
}

/// Whether all due slots were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "more slots may be due"]
pub(crate) enum Progress {
    Done,
    /// The budget was used up; call again.
    More,
}

/// The delayed slots of one queue.
#[derive(Default)]
pub(crate) struct Delays {
    deadlines: Deadlines,
    schedule: Schedule,
    /// The number of valid entries, and of delayed slots.
    live: usize,
    /// The number of stale entries.
    stale: usize,
    /// The earliest deadline of all entries, stale ones included.
    next: Option<u64>,
}

impl Delays {
    /// Delays `slot` until `deadline`, unless it has an earlier deadline already.
    ///
    /// A deadline that has passed is due at the next [`due`](Delays::due).
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, deadline: u64) -> Scheduled {
        match self.deadlines.deadline(slot) {
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

    /// Replaces the deadline of `slot`. It comes after all slots with the same deadline.
    pub(crate) fn replace(&mut self, slot: u32, deadline: u64) {
        self.remove(slot);
        self.delay(slot, deadline);
    }

    /// Ends the delay of `slot`. Returns whether it had one.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let delayed = self.contains(slot);
        if delayed {
            self.abandon(slot);
        }
        delayed
    }

    /// Returns the deadline of `slot`, if it is delayed.
    #[inline]
    pub(crate) fn deadline(&self, slot: u32) -> Option<u64> {
        self.deadlines.deadline(slot)
    }

    /// Returns whether `slot` is delayed.
    #[inline]
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.deadline(slot).is_some()
    }

    /// Returns the number of delayed slots.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Returns whether no slot is delayed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns when to call [`due`](Delays::due) next: at the earliest deadline, or earlier
    /// because of a stale entry, which that call drops.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Removes slots whose deadline has passed, by deadline; equal deadlines in the order in
    /// which the slots were delayed.
    ///
    /// Works on about `budget` entries. Time never goes back: an earlier `now` than that of a
    /// previous call counts as the previous one. `ready` must not panic: other due slots of
    /// the same call would be lost.
    pub(crate) fn due(
        &mut self,
        now: u64,
        budget: usize,
        mut ready: impl FnMut(u32),
    ) -> Progress {
        let Self { deadlines, schedule, live, stale, .. } = self;
        let progress = schedule.take_due(now, budget, |entry| {
            if deadlines.take(&entry) {
                *live -= 1;
                ready(entry.slot);
            } else {
                *stale -= 1;
            }
        });
        self.next = self.schedule.next();
        self.tidy();
        progress
    }

    /// Removes every slot, in the order in which they would have become ready.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32)) {
        let latest = self.schedule.latest();
        while self.due(u64::MAX, usize::MAX, &mut each) == Progress::More {}
        self.schedule.restart(latest);
    }

    /// Frees memory after a spike: that of slots from `slots` on which are not delayed, and
    /// unused room for entries.
    pub(crate) fn shrink(&mut self, slots: usize) {
        self.compact();
        self.deadlines.shrink(slots);
        self.schedule.shrink();
    }

    #[inline]
    fn delay(&mut self, slot: u32, deadline: u64) {
        let entry = self.deadlines.delay(slot, deadline);
        self.schedule.push(entry);
        self.live += 1;
        self.next = Some(self.next.map_or(deadline, |next| next.min(deadline)));
    }

    fn abandon(&mut self, slot: u32) {
        self.live -= 1;
        self.stale += 1;
        match self.deadlines.abandon(slot) {
            Stamps::Distinct => self.tidy(),
            Stamps::WrappedAround => self.compact(),
        }
    }

    /// Restores invariant 2 after a delay has ended.
    fn tidy(&mut self) {
        if self.live == 0 && self.stale > 0 {
            self.schedule.clear();
            self.stale = 0;
            self.next = None;
        } else if self.stale > self.live + STALE_MAX {
            self.compact();
        }
    }

    #[cold]
    fn compact(&mut self) {
        self.schedule.retain(|entry| self.deadlines.is_valid(entry));
        self.stale = 0;
        self.next = self.schedule.next();
    }
}

#[cfg(test)]
impl Delays {
    /// Returns the number of allocated bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.deadlines.bytes() + self.schedule.bytes()
    }

    /// Panics unless the invariants in the module docs hold.
    pub(crate) fn check(&self) {
        self.schedule.check();
        assert_eq!(self.next, self.schedule.next(), "the earliest deadline");
        let mut valid: Vec<_> = self
            .schedule
            .entries()
            .filter(|entry| self.deadlines.is_valid(entry))
            .collect();
        for entry in &valid {
            assert_eq!(self.deadline(entry.slot), Some(entry.deadline), "invariant 1");
        }
        valid.sort_by_key(|entry| entry.slot);
        let slots = valid.iter().map(|entry| entry.slot);
        assert!(slots.eq(self.deadlines.delayed()), "invariant 1: one entry per slot");
        assert_eq!(valid.len(), self.live, "invariant 1: count");
        assert_eq!(
            self.schedule.entries().count() - self.live,
            self.stale,
            "stale entries"
        );
        let bound = if self.live == 0 { 0 } else { self.live + STALE_MAX };
        assert!(self.stale <= bound, "invariant 2: {} of {}", self.stale, self.live);
    }
}
