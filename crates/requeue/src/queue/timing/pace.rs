//! How fast events of one kind come, and which of them are timed.

use super::Nanos;

/// Every event is timed, until [`BUSY_AFTER`] in a row have each come within
/// [`QUICKLY`] of the one before. From then on it is one in so many, until that many took
/// longer than [`QUICKLY`] each.
///
/// Events at the same time, be it of one call or by a clock that stands still, change
/// nothing: they are not fast, they are one.
pub(super) struct Pace {
    /// One event in so many is timed while they come fast.
    spacing: u32,
    /// The next event that makes it so many since the last timed one is timed.
    due: u32,
    /// Events since the last timed one.
    passed: u32,
    /// How many of those have been told.
    told: u32,
    /// Events since `last` that were counted before the last timed one.
    since: u64,
    /// When the clock was last seen to have moved.
    last: Nanos,
    /// Timed events in a row that came fast.
    quick: u32,
}

/// An event comes fast if it is within this many nanoseconds of the one before: a million
/// in a second.
const QUICKLY: Nanos = 1_000;

/// Events that come fast, one after the other, before not all of them are timed.
const BUSY_AFTER: u32 = 64;

impl Pace {
    pub(super) fn new(spacing: u32) -> Self {
        Self { spacing, due: 1, passed: 0, told: 0, since: 0, last: 0, quick: 0 }
    }

    /// Counts an event: whether it passes by untimed.
    #[inline]
    pub(super) fn passes(&mut self) -> bool {
        self.passed += 1;
        self.passed < self.due
    }

    /// Has the next event timed, however fast events have come.
    pub(super) fn pause(&mut self) {
        self.due = 0;
    }

    /// Begins to count anew with an event that is timed: how many were untold, with it.
    pub(super) fn take(&mut self) -> u64 {
        let untold = self.flush();
        self.since += u64::from(self.passed);
        (self.passed, self.told) = (0, 0);
        self.plan();
        untold
    }

    /// How many events were untold.
    pub(super) fn flush(&mut self) -> u64 {
        let told = std::mem::replace(&mut self.told, self.passed);
        u64::from(self.passed - told)
    }

    /// Learns when the last event that was taken came.
    pub(super) fn clock(&mut self, now: Nanos) {
        let took = now.saturating_sub(self.last);
        if took == 0 {
            return;
        }
        let events = if self.is_busy() { self.since } else { 1 };
        let fast = took <= events.saturating_mul(QUICKLY);
        self.quick = if fast { self.quick.saturating_add(1) } else { 0 };
        (self.last, self.since) = (now, 0);
        self.plan();
    }

    /// Whether events came fast when the clock was last read.
    pub(super) fn is_busy(&self) -> bool {
        self.quick >= BUSY_AFTER
    }

    fn plan(&mut self) {
        self.due = if self.is_busy() { self.spacing } else { 1 };
    }
}
