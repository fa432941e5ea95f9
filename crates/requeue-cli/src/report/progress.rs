//! How far a run is, in a line.

use std::fmt::Write as _;
use std::time::Duration;

use requeue::Counts;

use super::text::{count, duration, shown};

/// What the queue and the workers know.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) counts: Counts,
    pub(crate) workers: usize,
    /// The one that runs longest first.
    pub(crate) running: Vec<RunningKey>,
}

/// How many keys were not run to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Exactly(u64),
    /// As many as are known of here: the store could not be asked.
    AtLeast(u64),
}

impl Left {
    /// Whether there is none, for certain.
    pub(crate) fn is_none(self) -> bool {
        self == Self::Exactly(0)
    }

    /// The number that is known.
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
                Some("keys may be left: the store did not answer".to_owned())
            }
            Self::AtLeast(_) => {
                Some(format!("at least {keys} left; the store did not answer"))
            }
        }
    }
}

/// A key whose command runs.
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

/// All numbers at one moment.
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
    pub(super) next: Option<Duration>,
    pub(super) times: Option<(Duration, Duration)>,
}

impl Snapshot<'_> {
    /// The line that is shown while the run goes on.
    pub(super) fn status(&self) -> String {
        // Writing to a string does not fail.
        let counts = &self.view.counts;
        let mut line = format!(
            "ready {}  running {}/{}  delayed {}",
            counts.ready,
            self.view.running.len(),
            self.view.workers,
            counts.delayed,
        );
        if let Some(next) = self.next.filter(|_| counts.delayed > 0) {
            write!(line, " (next {})", duration(next)).unwrap_or_default();
        }
        write!(
            line,
            "  done {}  failed {}  merged {}  {:.0}/s",
            self.succeeded, self.failed, self.merged, self.per_second,
        )
        .unwrap_or_default();
        if let Some((half, most)) = self.times {
            write!(line, "  p50 {}  p99 {}", duration(half), duration(most))
                .unwrap_or_default();
        }
        line
    }

    /// The line that is shown at the end.
    pub(super) fn totals(&self, left: Left) -> String {
        let runs = count(self.runs, "run", "runs");
        let mut line = format!(
            "{runs} in {}: {} succeeded, {} failed",
            duration(self.elapsed),
            self.succeeded,
            count(self.failed, "key", "keys"),
        );
        let merged = count(self.merged, "run", "runs");
        let parts = [
            (self.merged > 0)
                .then(|| format!("merging saved {merged} of {}", self.lines)),
            (self.skipped > 0)
                .then(|| format!("{} skipped as finished before", self.skipped)),
            left.text(),
            self.times.map(|(half, most)| {
                format!("p50 {}, p99 {}", duration(half), duration(most))
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
            next: Some(Duration::from_millis(1400)),
            times: Some((Duration::from_millis(41), Duration::from_millis(1900))),
        }
    }

    #[test]
    fn the_status_tells_where_the_keys_are() {
        let counts = Counts { ready: 12, delayed: 3, ..Counts::default() };
        let view = View { counts, workers: 8, running: Vec::new() };
        assert_eq!(
            snapshot(&view).status(),
            "ready 12  running 0/8  delayed 3 (next 1.4s)  done 20  failed 1  merged 9  \
             142/s  p50 41ms  p99 1.9s"
        );
    }

    #[test]
    fn the_totals_tell_what_merging_saved_and_what_is_left() {
        let view = View::default();
        assert_eq!(
            snapshot(&view).totals(Left::Exactly(2)),
            "21 runs in 1m15s: 20 succeeded, 1 key failed; merging saved 9 runs of 30; \
             2 keys left; p50 41ms, p99 1.9s"
        );
    }

    /// With the store away, those that were held here were told as all that are left.
    #[test]
    fn what_is_left_in_a_store_that_is_away_is_not_known() {
        let view = View::default();
        let told = |left| snapshot(&view).totals(left);
        let left = told(Left::AtLeast(2));
        assert!(left.contains("; at least 2 keys left; the store did not answer; p50"));
        assert!(told(Left::AtLeast(0)).contains("keys may be left: the store did not"));
        assert!(!told(Left::Exactly(0)).contains("left"));
    }

    #[test]
    fn a_running_key_tells_its_attempt_if_it_is_not_the_first() {
        let key = |attempt| RunningKey {
            key: b"a".to_vec(),
            attempt,
            since: Duration::from_secs(2),
        };
        assert_eq!(key(1).line(), "   2.0s  a");
        assert_eq!(key(3).line(), "   2.0s  a (attempt 3)");
    }
}
