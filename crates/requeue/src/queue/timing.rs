//! How long keys wait and how long they are processed. Only a queue with metrics has this.
//!
//! Nothing here reads a clock: [`start`](Timing::start) is given the time of a lock scope,
//! and all events of that scope happen at this time.
//!
//! Events go to a [`Tally`] at once, which is our own code. A recorder is user code: it
//! receives them after the lock is released.
//!
//! # Invariants
//!
//! 1. `running` holds the slot of each leased key once, longest lease first.
//! 2. `leased_sum` is the sum of the times at which those leases began.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::column::Column;
use super::links::{Links, List};
use super::nanos::Nanos;
use crate::metrics::{Recorder, Tally};

/// The times of one key.
#[derive(Clone, Copy, Default)]
struct Times {
    /// When a ready or dirty key was added.
    added: Nanos,
    /// When a processing or dirty key was leased.
    leased: Nanos,
}

/// An event that is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A key became ready or dirty.
    Added,
    /// A key was leased after it had waited for so long.
    Got(Nanos),
    /// A lease ended after so long.
    Done(Nanos),
}

impl Event {
    pub(super) fn record(self, recorder: &dyn Recorder) {
        match self {
            Self::Added => recorder.added(),
            Self::Got(waited) => recorder.got(Duration::from_nanos(waited)),
            Self::Done(worked) => recorder.done(Duration::from_nanos(worked)),
        }
    }
}

/// Where events go.
enum Sink {
    Tally(Arc<dyn Tally>),
    /// The events of this lock scope, for the recorder.
    Recorder(Vec<Event>),
}

/// The times of the keys of one queue.
pub(super) struct Timing {
    /// The time of this lock scope, or of the last one.
    now: Nanos,
    times: Column<Times>,
    running: List,
    links: Links,
    leased_sum: u128,
    sink: Sink,
}

/// How long keys have been leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// The sum over all leased keys.
    pub(super) total: Nanos,
    pub(super) longest: Nanos,
}

impl Timing {
    /// Times keys for a tally, or without one for the recorder.
    pub(super) fn new(tally: Option<Arc<dyn Tally>>) -> Self {
        Self {
            now: 0,
            times: Column::default(),
            running: List::default(),
            links: Links::default(),
            leased_sum: 0,
            sink: tally.map_or(Sink::Recorder(Vec::new()), Sink::Tally),
        }
    }

    /// Starts a lock scope. Time does not go back, even if the caller read the clock before
    /// the previous scope did.
    #[inline]
    pub(super) fn start(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Records that a key became ready or dirty.
    #[inline]
    pub(super) fn added(&mut self, slot: u32) {
        self.times.at(slot).added = self.now;
        match &mut self.sink {
            Sink::Tally(tally) => tally.added(),
            Sink::Recorder(events) => events.push(Event::Added),
        }
    }

    /// Records that a key was leased.
    #[inline]
    pub(super) fn leased(&mut self, slot: u32) {
        let times = self.times.at(slot);
        times.leased = self.now;
        let waited = self.now - times.added;
        match &mut self.sink {
            Sink::Tally(tally) => tally.got(waited),
            Sink::Recorder(events) => events.push(Event::Got(waited)),
        }
        self.links.push_back(&mut self.running, slot);
        self.leased_sum += u128::from(self.now);
    }

    /// Records that the lease of a key ended.
    #[inline]
    pub(super) fn done(&mut self, slot: u32) {
        let Times { leased, .. } = self.times.get(slot);
        let worked = self.now - leased;
        match &mut self.sink {
            Sink::Tally(tally) => tally.done(worked),
            Sink::Recorder(events) => events.push(Event::Done(worked)),
        }
        self.links.unlink(&mut self.running, slot);
        self.leased_sum -= u128::from(leased);
    }

    /// Returns whether events wait for the recorder.
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        matches!(&self.sink, Sink::Recorder(events) if !events.is_empty())
    }

    /// Takes the events that wait for the recorder.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        match &mut self.sink {
            Sink::Tally(_) => Vec::new(),
            Sink::Recorder(events) => std::mem::take(events),
        }
    }

    /// Returns how long keys have been leased, given how many they are.
    pub(super) fn unfinished(&self, processing: usize) -> Unfinished {
        let Some(first) = self.running.front() else { return Unfinished::default() };
        let total = u128::from(self.now) * processing as u128 - self.leased_sum;
        Unfinished {
            total: Nanos::try_from(total).unwrap_or(Nanos::MAX),
            longest: self.now - self.times.get(first).leased,
        }
    }

    /// Frees the memory of the slots from `bound` on.
    pub(super) fn shrink(&mut self, bound: usize) {
        self.times.shrink(bound);
        self.links.shrink(bound);
    }
}
