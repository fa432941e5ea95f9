//! Time that passes: delays end, and their keys are added.

use super::State;
use crate::contain::contain;
use crate::queue::delay::Progress;
use crate::queue::nanos::Nanos;
use crate::queue::slots::Phase;

/// How many entries of delays one [`State::end_delays`] works on. It bounds how long the lock
/// is held when many delays end at once: less than 0.1 ms.
pub(super) const DUE_CHUNK: usize = 1024;

impl<K> State<K> {
    /// Returns whether a lock scope must know the time: to end delays, or to time events.
    #[inline]
    pub(in crate::queue) fn needs_time(&self) -> bool {
        self.timing.is_some() || self.ends_delays()
    }

    /// Returns whether delays can end: a closed queue keeps its keys delayed.
    #[inline]
    pub(in crate::queue) fn ends_delays(&self) -> bool {
        !self.delays.is_empty() && !self.is_closed()
    }

    /// Whether the end of this lease must know the time. It must if the key is dirty, or if
    /// its delay may have ended unnoticed, which makes it dirty.
    #[inline]
    pub(in crate::queue) fn done_needs_time(&self, slot: u32) -> bool {
        self.phase(slot) == Phase::Dirty || self.delays.contains(slot)
    }

    /// Adds keys whose delay has ended, as many as fit into one bounded step. A closed queue
    /// keeps them delayed.
    pub(in crate::queue) fn end_delays(&mut self, now: Nanos) -> Progress {
        self.observe_time(now);
        if self.is_due(now) { self.add_due(now) } else { Progress::Done }
    }

    /// Returns whether a delay may have ended.
    #[inline]
    pub(in crate::queue) fn is_due(&self, now: Nanos) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    #[inline(never)]
    fn add_due(&mut self, now: Nanos) -> Progress {
        let mut due = std::mem::take(&mut self.due);
        let progress = self.delays.due(now, DUE_CHUNK, |slot| due.push(slot));
        for slot in due.drain(..) {
            let priority = self.priorities.take_delayed(slot);
            if contain(|| self.add_slot(slot, priority)).is_none() {
                self.strand(slot, priority);
            }
        }
        self.due = due;
        progress
    }

    /// The earliest deadline, unless the queue is closed, so that delays do not end.
    #[inline]
    pub(in crate::queue) fn next_deadline(&self) -> Option<Nanos> {
        if self.is_closed() { None } else { self.delays.next() }
    }

    /// Notes the time of a call, if the clock was read.
    #[inline]
    pub(in crate::queue) fn observe_time(&mut self, now: Nanos) {
        self.latest = self.latest.max(now);
    }

    /// The latest time that the queue has seen.
    pub(in crate::queue) fn latest(&self) -> Nanos {
        self.latest
    }
}
