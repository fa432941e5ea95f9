//! How fast events of one kind come, and which of them are timed.

use crate::queue::nanos::Nanos;

/// Every event is timed, until [`BUSY_AFTER`] in a row have come fast: each [`STRETCH`] of
/// them within that many times [`QUICKLY`]. Then it is one in two, four, eight and so on,
/// for as long as they come that fast: few of many, and more of few. Once a stretch took
/// longer, every event is timed again. It is not one event that counts but a stretch, since
/// the queue itself puts work off and now and then takes its time.
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
    /// When this stretch began.
    began: Nanos,
    /// Events of this stretch, up to the last timed one.
    events: u64,
    /// Moments of this stretch that were seen.
    moments: u32,
    /// The last of them.
    seen: Nanos,
    /// Moments in a row, up to this stretch, in which events came fast.
    quick: u32,
}

/// Events come fast if there are so few nanoseconds between them: a million in a second.
const QUICKLY: Nanos = 1_000;

/// Events of which it is judged whether they came fast.
const STRETCH: u64 = 16;

/// Events that come fast, one after the other, before not all of them are timed.
const BUSY_AFTER: u32 = 64;

/// Timed events after which half as many are timed.
const RARER_AFTER: u32 = 16;

/// No fewer than one event in so many is timed.
pub(super) const RAREST: u32 = 128;

impl Default for Pace {
    fn default() -> Self {
        let (began, events, moments, seen, quick) = (0, 0, 0, 0, 0);
        Self { left: 1, planned: 1, told: 0, began, events, moments, seen, quick }
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
        self.events += u64::from(self.passed());
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
        if now <= self.seen {
            return;
        }
        self.seen = now;
        self.moments += 1;
        let enough = self.events.max(STRETCH).saturating_mul(QUICKLY);
        if now - self.began > enough {
            self.quick = 0;
        } else if self.events >= STRETCH {
            self.quick = self.quick.saturating_add(self.moments);
        } else {
            return;
        }
        (self.began, self.events, self.moments) = (now, 0, 0);
        self.plan(self.spacing());
    }

    /// Whether events come so fast that not all of them are timed.
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
