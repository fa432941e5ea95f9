//! Running an action only on some calls.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{AnyClock, Clock};

/// Runs an action only on some calls, for example to log from a busy loop.
///
/// It runs on the first call, and then on each call that passes one of the filters. Without a
/// filter it runs once.
///
/// | filter | passes |
/// |---|---|
/// | [`first`](Self::first) | the first `n` calls |
/// | [`every`](Self::every) | the first call and each `n`-th after it |
/// | [`interval`](Self::interval) | a call that comes at least this long after the last run ended |
///
/// No lock is held while the action runs, so it may call the same `Sometimes` again. Calls
/// during the action do not wait for it, and are counted as if it had ended.
///
/// # Examples
///
/// ```
/// use requeue::rate::Sometimes;
///
/// let sometimes = Sometimes::new().first(2).every(4);
/// let ran: Vec<u32> = (0..10).filter(|_| sometimes.run(|| ()).is_some()).collect();
/// assert_eq!(ran, [0, 1, 4, 8]);
/// ```
#[derive(Default)]
pub struct Sometimes {
    first: u64,
    every: u64,
    interval: Duration,
    clock: AnyClock,
    calls: Mutex<Calls>,
}

/// The history of the calls. A running action counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Calls {
    count: u64,
    /// When the action last ran. Set only if there is an interval.
    last_run: Option<Instant>,
}

impl Sometimes {
    /// Creates a value without a filter, which runs only on the first call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Passes the first `calls` calls; 0 disables the filter.
    #[must_use = "this returns the changed value"]
    pub fn first(self, calls: u64) -> Self {
        Self { first: calls, ..self }
    }

    /// Passes the first call and each `calls`-th after it; 0 disables the filter.
    #[must_use = "this returns the changed value"]
    pub fn every(self, calls: u64) -> Self {
        Self { every: calls, ..self }
    }

    /// Passes a call at least `interval` after the last run; zero disables the filter.
    #[must_use = "this returns the changed value"]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets the clock for the interval.
    #[must_use = "this returns the changed value"]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: AnyClock::new(clock), ..self }
    }

    /// Runs `action` if this call passes a filter, and returns its result.
    ///
    /// If the action panics, the call is not counted.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::rate::Sometimes;
    ///
    /// let sometimes = Sometimes::new();
    /// assert_eq!(sometimes.run(|| "once"), Some("once"));
    /// assert_eq!(sometimes.run(|| "once"), None);
    /// ```
    #[doc(alias = "Do")]
    pub fn run<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        let run = self.admit()?;
        let result = action();
        run.end();
        Some(result)
    }

    /// Counts a call. Returns the action to run if the call passes.
    fn admit(&self) -> Option<RunningAction<'_>> {
        let now = (!self.interval.is_zero()).then(|| self.clock.now());
        let mut calls = self.calls();
        let before = *calls;
        calls.count = calls.count.saturating_add(1);
        if !self.lets_through(before, now) {
            return None;
        }
        calls.last_run = now;
        Some(RunningAction { sometimes: self, before, started: now, ended: false })
    }

    fn lets_through(&self, calls: Calls, now: Option<Instant>) -> bool {
        calls.count == 0
            || calls.count < self.first
            || (self.every > 0 && calls.count % self.every == 0)
            || self.interval_has_passed(calls.last_run, now)
    }

    fn interval_has_passed(&self, last: Option<Instant>, now: Option<Instant>) -> bool {
        match (last, now) {
            (Some(last), Some(now)) => {
                now.saturating_duration_since(last) >= self.interval
            }
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // No user code runs with this lock held.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running action. If it does not end normally, its call is not counted.
struct RunningAction<'a> {
    sometimes: &'a Sometimes,
    before: Calls,
    started: Option<Instant>,
    ended: bool,
}

impl RunningAction<'_> {
    fn end(mut self) {
        self.ended = true;
        if self.started.is_some() {
            let now = self.sometimes.clock.now();
            let mut calls = self.sometimes.calls();
            calls.last_run = calls.last_run.max(Some(now));
        }
    }
}

impl Drop for RunningAction<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut calls = self.sometimes.calls();
        calls.count = calls.count.saturating_sub(1);
        if calls.last_run == self.started {
            calls.last_run = self.before.last_run;
        }
    }
}

impl fmt::Debug for Sometimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sometimes")
            .field("first", &self.first)
            .field("every", &self.every)
            .field("interval", &self.interval)
            .field("calls", &*self.calls())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
