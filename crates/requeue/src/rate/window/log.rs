//! The events of a window.
//!
//! Nothing here locks or reads a clock.
//!
//! # Invariants
//!
//! 1. The log holds, in order, the times of all granted events within the last `per` or in
//!    the future. It also holds those before the latest `n`: they matter again if later ones
//!    are taken back.
//! 2. Any `n + 1` consecutive events span at least `per`.
//! 3. Time does not go back: a call counts as made at the latest time that any call has
//!    seen.
//! 4. An event in the future belongs to the first waiter in line.

use std::collections::VecDeque;

use crate::rate::bucket::{Refusal, Request};
use crate::rate::line::{Held, TokenSource};
use crate::rate::moment::{FOREVER, Moment, Nanos};

/// The events that still matter, of at most `n` in any `per`.
pub(super) struct EventLog {
    n: u32,
    per: Nanos,
    events: VecDeque<Moment>,
    /// The latest time that a call has seen (invariant 3).
    latest: Moment,
    /// When the last event that was removed from the log stopped mattering.
    clear: Moment,
}

/// `n` events in the log at the time `at`.
#[derive(Clone, Copy, Debug)]
pub(in crate::rate) struct LoggedEvents {
    n: u32,
    at: Moment,
}

impl EventLog {
    pub(super) fn new(n: u32, per: Nanos) -> Self {
        let (latest, clear) = (Moment::START, Moment::START);
        Self { n, per, events: VecDeque::new(), latest, clear }
    }

    /// Records that it is `now`, and returns the effective time (invariant 3).
    pub(super) fn pass(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Returns when `n` more events may happen, from `at` on.
    pub(super) fn ready(&self, n: u32, at: Moment) -> Result<Moment, Refusal> {
        let others = self.n.checked_sub(n).ok_or(Refusal::ExceedsBurst(self.n))? as usize;
        // The new events share their window with at most `others` events, so all events
        // before those must have left it (invariant 2).
        let left = match self.events.len().checked_sub(others + 1) {
            None => at,
            Some(_) if self.per == FOREVER => return Err(Refusal::Never),
            Some(i) => self.events[i].plus(self.per),
        };
        let last = self.events.back().copied().unwrap_or(at);
        Ok(left.max(at).max(last).max(self.clear)) // invariant 1: in order
    }

    /// Logs `n` events at the time `at`.
    pub(super) fn push(&mut self, n: u32, at: Moment) {
        self.expire();
        self.events.extend(std::iter::repeat_n(at, n as usize));
    }

    /// Returns how many more events may happen now.
    pub(super) fn remaining(&mut self) -> u32 {
        self.expire();
        let events = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        self.n.saturating_sub(events)
    }

    /// Removes the events that are outside of every current or future window.
    fn expire(&mut self) {
        while let Some(clear) = self.events.front().map(|event| event.plus(self.per)) {
            if clear > self.latest {
                break;
            }
            self.events.pop_front();
            self.clear = clear;
        }
        if self.events.len() < self.events.capacity() / 8 {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.events.capacity()
    }
}

impl TokenSource for EventLog {
    type Claim = LoggedEvents;

    fn reserve(&mut self, request: Request) -> Result<Held<LoggedEvents>, Refusal> {
        let ready = self.ready(request.n, request.at.given())?;
        self.push(request.n, ready);
        Ok(Held { ready, claim: LoggedEvents { n: request.n, at: ready } })
    }

    /// Removes events that do not happen.
    fn give_back(&mut self, LoggedEvents { n, at }: LoggedEvents, _now: Moment) {
        let after = self.events.partition_point(|&event| event <= at);
        let first = after.saturating_sub(n as usize);
        if n > 0 && self.events.get(first) == Some(&at) {
            self.events.drain(first..after);
        }
    }

    /// Counts the events ahead as if they came one by one.
    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal> {
        let ready = self.ready(request.n, request.at.given())?;
        let per_window = u64::from(self.n).max(1);
        let windows = Nanos::try_from(ahead.div_ceil(per_window)).unwrap_or(FOREVER);
        Ok(ready.plus(self.per.saturating_mul(windows)))
    }
}
