//! A period in which calls to the store fail.

use std::time::{Duration, Instant};

/// The pauses between attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    pause: Option<Duration>,
}

impl Outage {
    /// Records a failed call. Returns the pause before the next attempt.
    pub(crate) fn next_pause(&mut self, now: Instant) -> Duration {
        self.since.get_or_insert(now);
        let pause = self.pause.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        self.pause = Some(pause);
        pause
    }

    /// Returns how long calls have failed.
    pub(crate) fn duration(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns whether the patience for a request from `asked` ends before `next`.
    pub(crate) fn exceeds(
        &self,
        patience: Duration,
        asked: Instant,
        next: Option<Instant>,
    ) -> bool {
        let begun = self.since.map_or(asked, |since| since.max(asked));
        begun.checked_add(patience).is_some_and(|end| next.is_none_or(|next| next > end))
    }
}
