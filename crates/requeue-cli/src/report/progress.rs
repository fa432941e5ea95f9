//! The status line and the summary.

use std::fmt::Write as _;
use std::time::Duration;

use requeue::Counts;

use super::text::{count, duration, shown};

/// The state of the queue and the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) counts: Counts,
    pub(crate) workers: usize,
    /// Longest running first.
    pub(crate) running: Vec<RunningKey>,
}

/// The number of unfinished keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Exactly(u64),
    /// The number known to this process, because the store did not answer.
    AtLeast(u64),
}

impl Left {
    /// Returns whether certainly no keys are left.
    pub(crate) fn is_none(self) -> bool {
        self == Self::Exactly(0)
    }

    /// Returns the known number.
    pub(super) fn known(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) => number,
        }
    }

    fn text(self) -> Option<String> {
        let keys = count(self.known(), "key", "keys");
        match self {
            Self::Exactly(0) => None,
            Self::Exactly(_) => Some(format!("{keys} left")),
            Self::AtLeast(0) => {
                Some("keys may be left (no answer from the store)".to_owned())
            }
            Self::AtLeast(_) => {
                Some(format!("at least {keys} left (no answer from the store)"))
            }
        }
    }
}

/// A key whose command is running.
#[derive(Clone, Debug)]
pub(crate) struct RunningKey {
    pub(crate) key: Vec<u8>,
    pub(crate) attempt: u32,
    pub(crate) since: Duration,
}

impl RunningKey {
    pub(crate) fn line(&self) -> String {
        let (since, key) = (duration(self.since), shown(&self.key));
        match self.attempt {
            1 => format!("{since:>7}  {key}"),
            attempt => format!("{since:>7}  {key} (attempt {attempt})"),
        }
    }
}

/// All numbers at one time.
#[derive(Debug)]
pub(super) struct Snapshot<'v> {
    pub(super) view: &'v View,
    pub(super) elapsed: Duration,
    pub(super) lines: u64,
    pub(super) merged: u64,
    pub(super) skipped: u64,
    pub(super) runs: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) per_second: f64,
    pub(super) next_retry: Option<Duration>,
    pub(super) times: Option<(Duration, Duration)>,
}

impl Snapshot<'_> {
    /// Formats the status line.
    pub(super) fn status(&self) -> String {
        // Writing to a string cannot fail.
        let counts = &self.view.counts;
        let mut line = format!(
            "ready {}  running {}/{}  delayed {}",
            counts.ready,
            self.view.running.len(),
            self.view.workers,
            counts.delayed,
        );
        if let Some(next) = self.next_retry.filter(|_| counts.delayed > 0) {
            write!(line, " (next {})", duration(next)).unwrap_or_default();
        }
        write!(
            line,
            "  done {}  failed {}  merged {}  {:.0}/s",
            self.succeeded, self.failed, self.merged, self.per_second,
        )
        .unwrap_or_default();
        if let Some((p50, p99)) = self.times {
            write!(line, "  p50 {}  p99 {}", duration(p50), duration(p99))
                .unwrap_or_default();
        }
        line
    }

    /// Formats the summary at the end.
    pub(super) fn summary(&self, left: Left) -> String {
        let runs = count(self.runs, "run", "runs");
        let mut line = format!(
            "{runs} in {}: {} succeeded, {} failed",
            duration(self.elapsed),
            self.succeeded,
            count(self.failed, "key", "keys"),
        );
        let lines = count(self.lines, "line", "lines");
        let skipped = count(self.skipped, "key", "keys");
        let parts = [
            (self.merged > 0).then(|| format!("merged {} of {lines}", self.merged)),
            (self.skipped > 0).then(|| format!("skipped {skipped} finished earlier")),
            left.text(),
            self.times.map(|(p50, p99)| {
                format!("p50 {}, p99 {}", duration(p50), duration(p99))
            }),
        ];
        for part in parts.into_iter().flatten() {
            line += "; ";
            line += &part;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(view: &View) -> Snapshot<'_> {
        Snapshot {
            view,
            elapsed: Duration::from_secs(75),
            lines: 30,
            merged: 9,
            skipped: 0,
            runs: 21,
            succeeded: 20,
            failed: 1,
            per_second: 142.4,
            next_retry: Some(Duration::from_millis(1400)),
            times: Some((Duration::from_millis(41), Duration::from_millis(1900))),
        }
    }

    #[test]
    fn status_shows_where_the_keys_are() {
        let counts = Counts { ready: 12, delayed: 3, ..Counts::default() };
        let view = View { counts, workers: 8, running: Vec::new() };
        assert_eq!(
            snapshot(&view).status(),
            "ready 12  running 0/8  delayed 3 (next 1.4s)  done 20  failed 1  merged 9  \
             142/s  p50 41ms  p99 1.9s"
        );
    }

    #[test]
    fn summary_shows_merged_lines_and_remaining_keys() {
        let view = View::default();
        assert_eq!(
            snapshot(&view).summary(Left::Exactly(2)),
            "21 runs in 1m15s: 20 succeeded, 1 key failed; merged 9 of 30 lines; \
             2 keys left; p50 41ms, p99 1.9s"
        );
    }

    /// With an unreachable store, only the keys held here were once counted as left.
    #[test]
    fn number_of_keys_left_in_an_unreachable_store_is_unknown() {
        let view = View::default();
        let summary = |left| snapshot(&view).summary(left);
        let left = summary(Left::AtLeast(2));
        assert!(left.contains("; at least 2 keys left (no answer from the store); p50"));
        assert!(summary(Left::AtLeast(0)).contains("keys may be left (no answer"));
        assert!(!summary(Left::Exactly(0)).contains("left"));
    }

    #[test]
    fn running_key_shows_its_attempt_unless_it_is_the_first() {
        let key = |attempt| RunningKey {
            key: b"a".to_vec(),
            attempt,
            since: Duration::from_secs(2),
        };
        assert_eq!(key(1).line(), "   2.0s  a");
        assert_eq!(key(3).line(), "   2.0s  a (attempt 3)");
    }
}
