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
    /// Keys that will be retried, if a store knows better than this process.
    pub(crate) retrying: Option<u64>,
    pub(crate) work: Work,
}

/// How much work there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// More keys may come from the input.
    #[default]
    Growing,
    /// All input was read.
    Known,
    /// A worker runs until it is stopped.
    Endless,
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
    pub(super) retries: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) retrying: u64,
    pub(super) per_second: f64,
    pub(super) done_per_second: f64,
    pub(super) next_retry: Option<Duration>,
    /// Retries wait for `--retry-rate`, not for their backoff.
    pub(super) throttled: bool,
    pub(super) times: Option<(Duration, Duration)>,
}

/// The status line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) text: String,
    /// The part that reports failures, to be shown in red.
    pub(super) alarm: Option<String>,
}

impl Snapshot<'_> {
    /// Formats the status line in at most `width` characters, if possible.
    pub(super) fn bar(&self, width: usize) -> Bar {
        let failed = format!("{} failed", self.failed);
        let retrying = self.view.retrying.unwrap_or(self.retrying);
        let running = self.view.running.len();
        // In order of position. The rank is the order of importance.
        let mut parts = vec![
            (0, Some(self.done())),
            (2, Some(format!("{retrying} retrying"))),
            (1, Some(failed.clone())),
            (3, self.time_left().map(|left| format!("ETA {}", spaced(left)))),
            (4, self.throttled.then(|| "limited by --retry-rate".to_owned())),
            (5, Some(format!("{:.0}/s", self.per_second))),
            (6, Some(format!("{running}/{} running", self.view.workers))),
            (7, (self.merged > 0).then(|| format!("{} merged", self.merged))),
            (8, self.times.map(|(p50, _)| format!("p50 {}", duration(p50)))),
            (9, self.times.map(|(_, p99)| format!("p99 {}", duration(p99)))),
        ];
        parts.retain(|(_, text)| text.is_some());
        loop {
            let text = parts.iter().filter_map(|(_, text)| text.as_deref());
            let text = text.collect::<Vec<_>>().join(" · ");
            let least = parts.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
            if text.chars().count() <= width || least <= 1 {
                return Bar { text, alarm: (self.failed > 0).then_some(failed) };
            }
            parts.retain(|(rank, _)| *rank != least);
        }
    }

    /// Formats how many keys are done.
    fn done(&self) -> String {
        let done = self.finished_keys();
        let (queued, total) = (self.remaining(), done + self.remaining());
        match self.view.work {
            Work::Known => {
                let percent = (done * 100).checked_div(total).unwrap_or(100);
                format!("{done}/{total} {percent} %")
            }
            Work::Growing => format!("{done}/{total}+"),
            Work::Endless => format!("{done} done · {queued} queued"),
        }
    }

    fn finished_keys(&self) -> u64 {
        self.succeeded + self.failed
    }

    fn remaining(&self) -> u64 {
        let counts = &self.view.counts;
        (counts.ready + counts.delayed + counts.processing + counts.dirty) as u64
    }

    /// Estimates the time until all keys are done.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn time_left(&self) -> Option<Duration> {
        let left = self.remaining() as f64 / self.done_per_second;
        let known = self.view.work == Work::Known && self.remaining() > 0;
        known.then(|| Duration::try_from_secs_f64(left).ok()).flatten()
    }

    /// Formats all counts, for the details.
    pub(super) fn counts(&self) -> String {
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
    pub(super) fn summary(&self, left: Left, unread: bool) -> String {
        let mut line = format!(
            "{}: {} ok, {} failed; {}, {}",
            count(self.finished_keys(), "key", "keys"),
            self.succeeded,
            self.failed,
            count(self.runs, "run", "runs"),
            count(self.retries, "retry", "retries"),
        );
        let lines = count(self.lines, "line", "lines");
        let skipped = count(self.skipped, "key", "keys");
        let waiting = self.retrying > 0 && !left.is_none();
        let parts = [
            left.text(),
            unread.then(|| "input not read to its end".to_owned()),
            waiting.then(|| format!("{} waiting for a retry", self.retrying)),
            (self.merged > 0).then(|| format!("merged {} of {lines}", self.merged)),
            (self.skipped > 0).then(|| format!("skipped {skipped} finished earlier")),
            Some(match self.times {
                Some((p50, p99)) => format!(
                    "{}, p50 {}, p99 {}",
                    duration(self.elapsed),
                    duration(p50),
                    duration(p99)
                ),
                None => duration(self.elapsed),
            }),
        ];
        for part in parts.into_iter().flatten() {
            line += "; ";
            line += &part;
        }
        line
    }
}

/// Formats an estimate of a duration.
fn spaced(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
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
            runs: 26,
            retries: 5,
            succeeded: 14,
            failed: 1,
            retrying: 2,
            per_second: 142.4,
            done_per_second: 6.0,
            next_retry: Some(Duration::from_millis(1400)),
            throttled: false,
            times: Some((Duration::from_millis(41), Duration::from_millis(1900))),
        }
    }

    fn view(work: Work) -> View {
        let counts = Counts { ready: 40, delayed: 2, processing: 3, ..Counts::default() };
        View { counts, workers: 8, work, ..View::default() }
    }

    #[test]
    fn bar_shows_what_is_done_and_what_is_left() {
        let view = view(Work::Known);
        assert_eq!(
            snapshot(&view).bar(200).text,
            "15/60 25 % · 2 retrying · 1 failed · ETA 8 s · 142/s · 0/8 running · 9 merged \
             · p50 41ms · p99 1.9s"
        );
        let throttled = Snapshot { throttled: true, ..snapshot(&view) };
        assert!(throttled.bar(200).text.contains("ETA 8 s · limited by --retry-rate · "));
    }

    #[test]
    fn narrow_bar_drops_details_and_keeps_done_and_failed() {
        let view = view(Work::Known);
        let snapshot = snapshot(&view);
        let bar = |width| snapshot.bar(width).text;
        assert_eq!(bar(55), "15/60 25 % · 2 retrying · 1 failed · ETA 8 s · 142/s");
        assert_eq!(bar(45), "15/60 25 % · 2 retrying · 1 failed · ETA 8 s");
        assert_eq!(bar(40), "15/60 25 % · 2 retrying · 1 failed");
        assert_eq!(bar(25), "15/60 25 % · 1 failed");
        assert_eq!(bar(5), "15/60 25 % · 1 failed");
        assert_eq!(snapshot.bar(25).alarm.as_deref(), Some("1 failed"));
    }

    #[test]
    fn bar_has_no_total_that_is_not_known() {
        let shown = |work| snapshot(&view(work)).bar(29).text;
        assert_eq!(shown(Work::Growing), "15/60+ · 1 failed");
        assert_eq!(shown(Work::Endless), "15 done · 45 queued · 1 failed");
    }

    #[test]
    fn counts_show_where_the_keys_are() {
        let counts = Counts { ready: 12, delayed: 3, ..Counts::default() };
        let view = View { counts, workers: 8, ..View::default() };
        assert_eq!(
            snapshot(&view).counts(),
            "ready 12  running 0/8  delayed 3 (next 1.4s)  done 14  failed 1  merged 9  \
             142/s  p50 41ms  p99 1.9s"
        );
    }

    #[test]
    fn summary_shows_keys_runs_and_what_is_left() {
        let view = View::default();
        assert_eq!(
            snapshot(&view).summary(Left::Exactly(2), false),
            "15 keys: 14 ok, 1 failed; 26 runs, 5 retries; 2 keys left; 2 waiting for a \
             retry; merged 9 of 30 lines; 1m15s, p50 41ms, p99 1.9s"
        );
    }

    #[test]
    fn estimates_have_two_units() {
        let shown = |seconds| spaced(Duration::from_secs(seconds));
        assert_eq!([8, 200, 7500].map(shown), ["8 s", "3 min 20 s", "2 h 5 min"]);
        assert_eq!(spaced(Duration::from_millis(200)), "1 s");
    }

    /// With an unreachable store, only the keys held here were once counted as left.
    #[test]
    fn number_of_keys_left_in_an_unreachable_store_is_unknown() {
        let view = View::default();
        let summary = |left| snapshot(&view).summary(left, false);
        let left = summary(Left::AtLeast(2));
        assert!(left.contains("; at least 2 keys left (no answer from the store); "));
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
