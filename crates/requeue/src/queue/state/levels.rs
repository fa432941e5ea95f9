//! The priorities of keys, by slot.
//!
//! A ready or dirty key has one priority and its delay another: a key that is ready at −3
//! and delayed at 5 is delivered at −3 now, and at 5 once more when the delay ends. Nothing
//! is stored for an order that ignores priorities.

use crate::queue::timing::{at, shrink_to};

/// No priority: any other is higher.
const NONE: i32 = i32::MIN;

#[derive(Clone, Copy)]
struct Level {
    /// Of a ready, dirty or stranded key.
    pending: i32,
    /// Of the delay.
    delayed: i32,
}

impl Default for Level {
    fn default() -> Self {
        Self { pending: NONE, delayed: NONE }
    }
}

#[derive(Default)]
pub(super) struct Levels {
    by_slot: Vec<Level>,
}

impl Levels {
    fn get(&self, slot: u32) -> Level {
        self.by_slot.get(slot as usize).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub(super) fn pending(&self, slot: u32) -> i32 {
        self.get(slot).pending
    }

    pub(super) fn delayed(&self, slot: u32) -> i32 {
        self.get(slot).delayed
    }

    pub(super) fn set_pending(&mut self, slot: u32, level: i32) {
        at(&mut self.by_slot, slot).pending = level;
    }

    pub(super) fn raise_delayed(&mut self, slot: u32, level: i32) {
        let delayed = &mut at(&mut self.by_slot, slot).delayed;
        *delayed = level.max(*delayed);
    }

    /// Forgets the priority of a key that is leased and returns it.
    pub(super) fn take_pending(&mut self, slot: u32) -> i32 {
        let level = self.pending(slot);
        if let Some(stored) = self.by_slot.get_mut(slot as usize) {
            stored.pending = NONE;
        }
        level
    }

    /// Forgets the priority of a delay that has ended and returns it.
    pub(super) fn take_delayed(&mut self, slot: u32) -> i32 {
        let level = self.delayed(slot);
        if let Some(stored) = self.by_slot.get_mut(slot as usize) {
            stored.delayed = NONE;
        }
        level
    }

    #[inline]
    pub(super) fn clear(&mut self, slot: u32) {
        if let Some(level) = self.by_slot.get_mut(slot as usize) {
            *level = Level::default();
        }
    }

    pub(super) fn shrink(&mut self, bound: usize) {
        shrink_to(&mut self.by_slot, bound);
    }
}

#[cfg(test)]
impl Levels {
    /// The slots that have a priority.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> + '_ {
        let used = |level: &Level| level.pending != NONE || level.delayed != NONE;
        (0..)
            .zip(&self.by_slot)
            .filter(move |(_, level)| used(level))
            .map(|(slot, _)| slot)
    }
}
