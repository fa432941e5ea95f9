//! What happens to keys, and when; kept only while somebody measures.
//!
//! A reading of the clock takes most of the time of a whole cycle of add, get and done. So
//! a very busy queue times few keys, and counts the others: see [`Pace`]. A key whose add
//! is timed is timed to its end. A key whose add is not may be timed from its hand-out on:
//! a queue that is filled in a moment and worked on slowly times all work.
//!
//! Nothing here reads a clock. An event that is to be timed is pending until the time of
//! its call is known, and what is to be told about it becomes part of the [`News`]. Those
//! who cause an event learn whether it is one of those, so that the news are to be taken.
//!
//! # Invariants
//!
//! 1. Every event is counted once: as untold, in a pending event, or in the news.
//! 2. Nothing is pending while the time is known, nor once the news are taken.
//! 3. Each slot whose key is ready, processing or dirty has its times: adding the key made
//!    room for them.

mod news;
mod pace;
mod running;
#[cfg(test)]
mod tests;

pub(super) use self::news::News;
use self::pace::Pace;
use self::running::{Place, Running};
use super::column::Column;
use super::nanos::Nanos;

/// What is known of the key in one slot.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Since when a ready or dirty key waits; [`UNTIMED`] if that is not known.
    added: Nanos,
    /// Where among the running a key that is processed stands.
    place: Place,
}

/// The time of an add that is not timed.
const UNTIMED: Nanos = Nanos::MAX;

/// The times of the keys in one queue, and what has not been told.
#[derive(Default)]
pub(super) struct Timing {
    /// By slot.
    times: Column<Times>,
    running: Running,
    adds: Pace,
    gets: Pace,
    /// Keys that were finished untimed, and are untold.
    dones: u64,
    /// How long the last key of which it is known had waited.
    waited: Nanos,
    /// How long the last key of which it is known had been with its worker.
    worked: Nanos,
    /// Events that are to be timed, in their order.
    pending: Vec<Event>,
    /// The time of this call, if it was read.
    now: Option<Nanos>,
    news: News,
}

/// An event that is to be timed. It speaks for those of its kind that were not, since the
/// last one that was: `count`, with itself.
#[derive(Clone, Copy)]
enum Event {
    Add { slot: u32, count: u64 },
    Get { slot: u32, count: u64 },
    Done { since: Nanos, count: u64 },
}

impl Timing {
    /// A key became ready, or dirty: whether that is timed.
    #[inline]
    pub(super) fn add(&mut self, slot: u32) -> bool {
        if self.adds.passes() {
            self.times.at(slot).added = UNTIMED;
            return false;
        }
        self.add_timed(slot);
        true
    }

    #[inline(never)]
    fn add_timed(&mut self, slot: u32) {
        // Any time will do until the right one is known: if the key is handed out in the
        // same call, that is pending behind its add.
        self.times.at(slot).added = 0;
        let count = self.adds.take();
        self.note(Event::Add { slot, count });
    }

    /// A key was handed out: whether that is timed.
    #[inline]
    pub(super) fn get(&mut self, slot: u32) -> bool {
        let passes = self.gets.passes();
        let times = self.times.at(slot); // invariant 3
        if passes && times.added == UNTIMED {
            times.place = self.running.untimed();
            return false;
        }
        self.get_timed(slot);
        true
    }

    #[inline(never)]
    fn get_timed(&mut self, slot: u32) {
        self.times.at(slot).place = self.running.begin(slot);
        let count = self.gets.take();
        self.note(Event::Get { slot, count });
    }

    /// A key was finished: whether that is timed.
    #[inline]
    pub(super) fn done(&mut self, slot: u32) -> bool {
        self.dones += 1;
        let place = self.times.get(slot).place;
        if place == self.running.untimed() {
            return false;
        }
        self.done_timed(place);
        true
    }

    #[inline(never)]
    fn done_timed(&mut self, place: Place) {
        let (since, moved) = self.running.end(place);
        if let Some(slot) = moved {
            self.times.at(slot).place = place;
        }
        let count = std::mem::take(&mut self.dones);
        self.note(Event::Done { since, count });
    }

    /// Somebody found no key: whatever comes after that is timed, to see whether the
    /// queue is still as busy as it was.
    pub(super) fn pause(&mut self) {
        self.adds.pause();
        self.gets.pause();
    }

    fn note(&mut self, event: Event) {
        match self.now {
            Some(now) => self.stamp(event, now),
            None => self.pending.push(event),
        }
    }

    /// Says what time it is, if that is known before the end of a call.
    pub(super) fn tell_time(&mut self, now: Nanos) {
        self.now = Some(now);
        self.stamp_pending(now);
    }

    fn stamp_pending(&mut self, now: Nanos) {
        for place in 0..self.pending.len() {
            self.stamp(self.pending[place], now);
        }
        self.pending.clear();
        self.pending.shrink_to(MAX_PENDING);
    }

    fn stamp(&mut self, event: Event, now: Nanos) {
        match event {
            Event::Add { slot, count } => {
                self.times.at(slot).added = now;
                self.adds.clock(now);
                self.news.added(count);
            }
            Event::Get { slot, count } => self.stamp_get(slot, count, now),
            Event::Done { since, count } => {
                self.worked = now.saturating_sub(since);
                self.news.done(self.worked, count);
            }
        }
    }

    fn stamp_get(&mut self, slot: u32, count: u64, now: Nanos) {
        let Times { added, place } = *self.times.at(slot);
        if added != UNTIMED {
            self.waited = now.saturating_sub(added);
        }
        self.running.stamp(place, now);
        self.gets.clock(now);
        if !self.gets.is_busy() {
            self.adds.pause(); // they may be as slow by now
        }
        self.news.got(self.waited, count);
    }

    /// Takes what is to be told without the lock. `clock` is asked if an event is pending.
    #[inline]
    pub(super) fn take_news(&mut self, clock: impl FnOnce() -> Nanos) -> News {
        if !self.pending.is_empty() {
            self.stamp_pending(clock());
        }
        self.now = None;
        std::mem::take(&mut self.news)
    }

    /// Makes news of all that was counted and is untold.
    pub(super) fn flush(&mut self) {
        self.news.added(self.adds.flush());
        self.news.got(self.waited, self.gets.flush());
        self.news.done(self.worked, std::mem::take(&mut self.dones));
    }

    /// How long the keys with a worker, of which there are so many, have been there: added
    /// up, and the longest. One that was handed out untimed is there from now on.
    pub(super) fn running(&mut self, processing: usize, now: Nanos) -> (Nanos, Nanos) {
        self.running.meet(processing, now);
        self.running.times(now)
    }

    /// Forgets the times of slots that are gone.
    pub(super) fn shrink(&mut self, bound: usize) {
        self.times.shrink(bound);
    }
}

/// Room for more pending events than this is given back.
const MAX_PENDING: usize = 1024;
