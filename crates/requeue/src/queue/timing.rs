//! How long keys wait and how long they are processed. Only a queue with metrics has this.
//!
//! Nothing here reads a clock: [`start`](Timing::start) is given the time of a lock scope,
//! and all events of that scope happen at this time. They are reported after the lock is
//! released, as a [`Report`].
//!
//! # Invariants
//!
//! 1. `running` holds the slot of each leased key once, longest lease first.
//! 2. `leased_sum` is the sum of the times at which those leases began.

mod report;
#[cfg(test)]
mod tests;

pub(super) use self::report::Report;
use super::column::Column;
use super::links::{Links, List};
use super::nanos::Nanos;

/// The times of one key.
#[derive(Clone, Copy, Default)]
struct Times {
    /// When a ready or dirty key was added.
    added: Nanos,
    /// When a processing or dirty key was leased.
    leased: Nanos,
}

/// The times of the keys of one queue.
#[derive(Default)]
pub(super) struct Timing {
    /// The time of this lock scope, or of the last one.
    now: Nanos,
    times: Column<Times>,
    running: List,
    links: Links,
    leased_sum: u128,
    report: Report,
}

/// How long keys have been leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// The sum over all leased keys.
    pub(super) total: Nanos,
    pub(super) longest: Nanos,
}

impl Timing {
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
        self.report.added += 1;
    }

    /// Records that a key was leased.
    #[inline]
    pub(super) fn leased(&mut self, slot: u32) {
        let times = self.times.at(slot);
        times.leased = self.now;
        self.report.waited.push(self.now - times.added);
        self.links.push_back(&mut self.running, slot);
        self.leased_sum += u128::from(self.now);
    }

    /// Records that the lease of a key ended.
    #[inline]
    pub(super) fn done(&mut self, slot: u32) {
        let Times { leased, .. } = self.times.get(slot);
        self.report.worked.push(self.now - leased);
        self.links.unlink(&mut self.running, slot);
        self.leased_sum -= u128::from(leased);
    }

    #[inline]
    pub(super) fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
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
