//! Statistics about all runs, and the failed and slowest keys.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::key_failures::{KeyFailure, KeyFailures};
use super::speed::Speed;
use super::text::{duration, shown};
use super::{FinishedRun, RetryDelay};

/// How many of the slowest keys are listed.
const SLOWEST: usize = 5;

/// How many due times of retries are kept. Only the earliest is shown.
const MAX_RETRIES: usize = 1000;

/// A delay that exceeds the backoff by less is not counted as limited: a store rounds times.
const CLOCK_ERROR: Duration = Duration::from_millis(50);

/// Shorter runs are not listed among the slowest.
const SLOW: Duration = Duration::from_millis(100);

/// Statistics about all runs.
#[derive(Debug)]
pub(crate) struct RunStats {
    runs: u64,
    /// Runs of a key after its first.
    retries: u64,
    succeeded: u64,
    /// Keys that failed for good.
    failed: KeyFailures,
    /// Keys whose last run failed, and that will run again.
    retrying: KeyFailures,
    /// Slowest first.
    slowest: Vec<(Duration, Vec<u8>)>,
    times: Histogram,
    /// When retries are due. The number tells equal times apart.
    due: BTreeSet<(Instant, u64)>,
    /// When the last retry is due that waits for the rate limit.
    throttled_until: Option<Instant>,
    speed: Speed,
    /// The speed at which keys are done, for the time left.
    done_speed: Speed,
}

impl RunStats {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            runs: 0,
            retries: 0,
            succeeded: 0,
            failed: KeyFailures::default(),
            retrying: KeyFailures::default(),
            slowest: Vec::new(),
            times: Histogram::default(),
            due: BTreeSet::new(),
            throttled_until: None,
            speed: Speed::new(began),
            done_speed: Speed::new(began),
        }
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    pub(super) fn failed_keys(&self) -> u64 {
        self.failed.len()
    }

    pub(super) fn retrying_keys(&self) -> u64 {
        self.retrying.len()
    }

    pub(super) fn finished(&mut self, run: &FinishedRun<'_>) {
        self.runs += 1;
        self.retries += u64::from(run.attempt > 1);
        self.times.add(run.took);
        self.record_slow(run.key, run.took);
        if run.exit.is_success() {
            self.succeeded += 1;
            self.failed.remove(run.key);
            self.retrying.remove(run.key);
        }
    }

    fn record_slow(&mut self, key: &[u8], took: Duration) {
        if let Some(known) = self.slowest.iter_mut().find(|(_, known)| known == key) {
            known.0 = known.0.max(took);
        } else if self.slowest.len() < SLOWEST {
            self.slowest.push((took, key.to_vec()));
        } else if self.slowest.last().is_some_and(|(least, _)| took > *least) {
            self.slowest.pop();
            self.slowest.push((took, key.to_vec()));
        } else {
            return;
        }
        self.slowest.sort_by_key(|(took, _)| Reverse(*took));
    }

    pub(super) fn gave_up(&mut self, run: &FinishedRun<'_>) {
        self.retrying.remove(run.key);
        self.failed.insert(run.key, last_run(run));
    }

    /// Records a key that is dead in the store. Returns whether it was not known as failed.
    pub(super) fn died(&mut self, key: &[u8], reason: &str) -> bool {
        let new = !self.failed.contains(key);
        if new {
            self.retrying.remove(key);
            self.failed.insert(key, KeyFailure::Died(reason.to_owned()));
        }
        new
    }

    /// Records a failed run whose key will run again.
    pub(super) fn will_retry(&mut self, run: &FinishedRun<'_>) {
        self.retrying.insert(run.key, last_run(run));
    }

    /// Records when a retry is due.
    pub(super) fn retried(&mut self, now: Instant, delay: RetryDelay) {
        self.drop_past_retries(now);
        if let Some(moment) = now.checked_add(delay.actual) {
            self.due.insert((moment, self.runs));
            if delay.actual > delay.backoff + CLOCK_ERROR {
                self.throttled_until = Some(moment);
            }
        }
        if self.due.len() > MAX_RETRIES {
            self.due.pop_last();
        }
    }

    fn drop_past_retries(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(moment, _)| *moment <= now) {
            self.due.pop_first();
        }
    }

    /// Returns whether a retry waits for the rate limit, and not for its backoff.
    pub(super) fn is_throttled(&self, now: Instant) -> bool {
        self.throttled_until.is_some_and(|until| now < until)
    }

    /// Returns the time until the next retry.
    pub(super) fn next_retry(&mut self, now: Instant) -> Option<Duration> {
        self.drop_past_retries(now);
        self.due.first().map(|(moment, _)| *moment - now)
    }

    /// Returns the recent number of runs per second.
    pub(super) fn rate(&mut self, now: Instant) -> f64 {
        self.speed.at(now, self.runs)
    }

    /// Returns the recent number of keys per second that were done.
    pub(super) fn done_rate(&mut self, now: Instant) -> f64 {
        // A key that fails, and succeeds later, counts once.
        let done = self.succeeded + self.failed.len();
        self.done_speed.at(now, done)
    }

    /// Returns the 50th and 99th percentile of run times.
    pub(super) fn times(&self) -> Option<(Duration, Duration)> {
        (self.runs > 0).then(|| (self.times.quantile(0.5), self.times.quantile(0.99)))
    }

    /// Lists the failed keys, the keys waiting for a retry, and the slowest keys.
    pub(super) fn details(&self) -> String {
        let mut text = String::new();
        let failures = self.failed.list("failed").into_iter();
        for line in failures.chain(self.retrying.list("retrying")) {
            // Writing to a string cannot fail.
            writeln!(text, "  {line}").unwrap_or_default();
        }
        if self.runs > 1 && self.slowest.first().is_some_and(|(took, _)| *took >= SLOW) {
            let named = self.slowest.iter().filter(|(took, _)| *took >= SLOW);
            let named =
                named.map(|(took, key)| format!("{} {}", shown(key), duration(*took)));
            let named = named.collect::<Vec<_>>().join(", ");
            writeln!(text, "  slowest: {named}").unwrap_or_default();
        }
        text
    }

    pub(super) fn metrics(&self, lines: u64, merged: u64) -> String {
        let failed_runs = self.runs - self.succeeded;
        format!(
            "# HELP requeue_lines_total Keys read from the input, duplicates included.\n\
             # TYPE requeue_lines_total counter\n\
             requeue_lines_total {lines}\n\
             # HELP requeue_merged_total Keys read from the input that were already queued.\n\
             # TYPE requeue_merged_total counter\n\
             requeue_merged_total {merged}\n\
             # HELP requeue_runs_total Finished runs of the command.\n\
             # TYPE requeue_runs_total counter\n\
             requeue_runs_total{{outcome=\"succeeded\"}} {}\n\
             requeue_runs_total{{outcome=\"failed\"}} {failed_runs}\n\
             # HELP requeue_failed_keys Keys that failed for good and have not succeeded since.\n\
             # TYPE requeue_failed_keys gauge\n\
             requeue_failed_keys {}\n",
            self.succeeded,
            self.failed.len(),
        )
    }
}

fn last_run(run: &FinishedRun<'_>) -> KeyFailure {
    KeyFailure::LastRun {
        exit: run.exit,
        runs: run.attempt,
        last_line: run.last_line.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use requeue::{Clock, SystemClock};

    use super::*;
    use crate::command::Exit;

    fn finished(key: &[u8], code: i32, millis: u64) -> FinishedRun<'_> {
        let exit = Exit::Status(ExitStatus::from_raw(code << 8));
        let took = Duration::from_millis(millis);
        FinishedRun { key, attempt: 1, exit, took, last_line: String::new() }
    }

    fn failed<'k>(key: &'k [u8], last_line: &str) -> FinishedRun<'k> {
        let last_line = last_line.to_owned();
        FinishedRun { attempt: 6, last_line, ..finished(key, 3, 1) }
    }

    #[test]
    fn failed_keys_are_listed_with_their_last_error() {
        let mut stats = RunStats::new(SystemClock.now());
        stats.finished(&finished(b"k", 3, 1));
        stats.gave_up(&failed(b"k", "disk on fire"));
        assert_eq!(
            stats.details(),
            "  failed: k: exit code 3 after 6 runs: disk on fire\n"
        );
        stats.finished(&finished(b"k", 0, 1));
        assert_eq!(stats.failed_keys(), 0, "its last run succeeded");
    }

    #[test]
    fn key_that_died_in_the_store_is_listed_once_with_its_reason() {
        let mut stats = RunStats::new(SystemClock.now());
        stats.gave_up(&failed(b"a", ""));
        assert!(
            !stats.died(b"a", "exit code 3") && stats.died(b"b", "its lease expired")
        );
        assert_eq!(
            stats.details(),
            "  failed: a: exit code 3 after 6 runs\n  failed: b: its lease expired\n"
        );
    }

    /// Ctrl-C during backoff once reported "0 keys failed" and nothing else.
    #[test]
    fn keys_waiting_for_a_retry_are_listed_with_their_error() {
        let mut stats = RunStats::new(SystemClock.now());
        stats.will_retry(&failed(b"k", "disk on fire"));
        assert_eq!(
            stats.details(),
            "  retrying: k: exit code 3 after 6 runs: disk on fire\n"
        );
        stats.finished(&finished(b"k", 0, 1));
        assert_eq!((stats.details().as_str(), stats.retrying_keys()), ("", 0));
    }

    #[test]
    fn slowest_keys_are_listed_once_each() {
        let mut stats = RunStats::new(SystemClock.now());
        for (key, millis) in [(b"a", 200), (b"b", 900), (b"a", 300), (b"c", 1)] {
            stats.finished(&finished(key, 0, millis));
        }
        assert_eq!(stats.details(), "  slowest: b 900ms, a 300ms\n");
    }

    #[test]
    fn next_retry_is_the_earliest_in_the_future() {
        let now = SystemClock.now();
        let mut stats = RunStats::new(now);
        let second = Duration::from_secs(1);
        let delay = |actual| RetryDelay { actual, backoff: second * 2 };
        stats.retried(now, delay(second));
        assert!(!stats.is_throttled(now));
        stats.retried(now, delay(second * 3));
        assert!(stats.is_throttled(now) && !stats.is_throttled(now + second * 3));
        assert_eq!(stats.next_retry(now), Some(second));
        assert_eq!(stats.next_retry(now + second), Some(second * 2));
        assert_eq!(stats.next_retry(now + second * 3), None);
        stats.retried(now, delay(Duration::MAX));
    }

    #[test]
    fn all_metrics_are_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
        let page = std::fs::read_to_string(page).unwrap();
        let section = page.split("\n## ").find(|part| part.starts_with("The command"));
        let listed = section.unwrap().lines().filter(|line| line.starts_with("| `"));
        let mut listed: Vec<_> =
            listed.map(|row| row.split('`').nth(1).unwrap()).collect();
        let text = RunStats::new(SystemClock.now()).metrics(0, 0);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut exported: Vec<_> =
            types.map(|line| line.split(' ').next().unwrap()).collect();
        listed.sort_unstable();
        exported.sort_unstable();
        assert_eq!(listed, exported);
    }
}
