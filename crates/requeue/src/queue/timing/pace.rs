//! How fast events of one kind come, and which of them are timed.

use super::Nanos;

/// Every event is timed, until [`BUSY_AFTER`] in a row have each come within [`QUICKLY`] of
/// the one before. Then it is one in two, four, eight and so on, for as long as they come
/// that fast: few of many, and more of few. Once the events since the last timed one took
/// longer than [`QUICKLY`] each, every event is timed again.
///
/// Events at the same time, be it of one call or by a clock that stands still, are one
/// when it comes to their number in a row, and may take as long as so many.
pub(super) struct Pace {
    /// The event that makes it zero is timed.
    left: u32,
    /// What `left` was at the last timed event.
    planned: u32,
    /// How many of the events since the last timed one have been told.
    told: u32,
    /// Events since `last` up to the last timed one.
    since: u64,
    /// When the clock was last seen to have moved.
    last: Nanos,
    /// Timed events in a row that came fast.
    quick: u32,
}

/// Events come fast if there are so few nanoseconds between them: a million in a second.
const QUICKLY: Nanos = 1_000;

/// Events that come fast, one after the other, before not all of them are timed.
const BUSY_AFTER: u32 = 64;

/// Timed events after which half as many are timed.
const RARER_AFTER: u32 = 16;

/// No fewer than one event in so many is timed.
pub(super) const RAREST: u32 = 128;

impl Default for Pace {
    fn default() -> Self {
        Self { left: 1, planned: 1, told: 0, since: 0, last: 0, quick: 0 }
    }
}

impl Pace {
    /// Counts an event: whether it passes by untimed.
    #[inline]
    pub(super) fn passes(&mut self) -> bool {
        self.left -= 1;
        self.left > 0
    }

    /// Has the next event timed, however fast events have come.
    pub(super) fn pause(&mut self) {
        self.plan(1);
    }

    /// Begins to count anew with an event that is timed: how many were untold, with it.
    pub(super) fn take(&mut self) -> u64 {
        let untold = self.flush();
        self.since += u64::from(self.passed());
        (self.planned, self.left, self.told) = (0, 0, 0);
        self.plan(self.spacing());
        untold
    }

    /// How many events were untold.
    pub(super) fn flush(&mut self) -> u64 {
        let passed = self.passed();
        u64::from(passed - std::mem::replace(&mut self.told, passed))
    }

    /// Learns when the last event that was taken came.
    pub(super) fn clock(&mut self, now: Nanos) {
        let took = now.saturating_sub(self.last);
        if took == 0 {
            return;
        }
        let fast = took <= self.since.saturating_mul(QUICKLY);
        self.quick = if fast { self.quick.saturating_add(1) } else { 0 };
        (self.last, self.since) = (now, 0);
        self.plan(self.spacing());
    }

    /// Whether events came fast when the clock was last read, so that not all are timed.
    pub(super) fn is_busy(&self) -> bool {
        self.quick >= BUSY_AFTER
    }

    /// One event in how many is timed.
    fn spacing(&self) -> u32 {
        match self.quick.checked_sub(BUSY_AFTER) {
            None => 1,
            Some(more) => 2 << (more / RARER_AFTER).min(RAREST.ilog2() - 1),
        }
    }

    /// Events since the last timed one.
    fn passed(&self) -> u32 {
        self.planned - self.left
    }

    /// Has the event timed that makes it `spacing` since the last timed one, or the next.
    fn plan(&mut self, spacing: u32) {
        let passed = self.passed();
        self.planned = spacing.max(passed + 1);
        self.left = self.planned - passed;
    }
}
