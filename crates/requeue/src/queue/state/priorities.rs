//! The priorities of keys, by slot.
//!
//! A ready or dirty key has one priority and its delay another: a key that is ready at −3
//! and delayed at 5 is delivered at −3 now, and at 5 once more when the delay ends. Nothing
//! is stored for an order that ignores priorities.

use crate::queue::column::Column;

/// No priority: any other is higher.
const NONE: i32 = i32::MIN;

#[derive(Clone, Copy)]
struct KeyPriority {
    /// Of a ready, dirty or stranded key.
    pending: i32,
    /// Of the delay.
    delayed: i32,
}

impl Default for KeyPriority {
    fn default() -> Self {
        Self { pending: NONE, delayed: NONE }
    }
}

#[derive(Default)]
pub(super) struct Priorities(Column<KeyPriority>);

impl Priorities {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pending(&self, slot: u32) -> i32 {
        self.0.get(slot).pending
    }

    pub(super) fn delayed(&self, slot: u32) -> i32 {
        self.0.get(slot).delayed
    }

    pub(super) fn set_pending(&mut self, slot: u32, priority: i32) {
        self.0.at(slot).pending = priority;
    }

    pub(super) fn raise_delayed(&mut self, slot: u32, priority: i32) {
        let delayed = &mut self.0.at(slot).delayed;
        *delayed = priority.max(*delayed);
    }

    /// Forgets the priority of a key that is leased and returns it.
    pub(super) fn take_pending(&mut self, slot: u32) -> i32 {
        self.0
            .get_mut(slot)
            .map_or(NONE, |stored| std::mem::replace(&mut stored.pending, NONE))
    }

    /// Forgets the priority of a delay that has ended and returns it.
    pub(super) fn take_delayed(&mut self, slot: u32) -> i32 {
        self.0
            .get_mut(slot)
            .map_or(NONE, |stored| std::mem::replace(&mut stored.delayed, NONE))
    }

    #[inline]
    pub(super) fn clear(&mut self, slot: u32) {
        self.0.take(slot);
    }

    pub(super) fn shrink(&mut self, bound: usize) {
        self.0.shrink(bound);
    }
}

#[cfg(test)]
impl Priorities {
    /// Returns the slots that have a priority.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> + '_ {
        let used = |stored: KeyPriority| stored.pending != NONE || stored.delayed != NONE;
        self.0.iter().filter(move |(_, stored)| used(*stored)).map(|(slot, _)| slot)
    }
}
