//! Statistics about all runs, and the failed and slowest keys.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::FinishedRun;
use super::text::{count, duration, shown};
use crate::command::Exit;

/// How many of the slowest keys are listed.
const SLOWEST: usize = 5;

/// How many failed keys are listed; the rest are counted.
const FAILED_LISTED: usize = 20;

/// Why a key failed for good.
#[derive(Clone, Debug)]
enum KeyFailure {
    /// Its last run here failed.
    LastRun { exit: Exit, runs: u32, last_line: String },
    /// It died in the store, for this reason, but not because of its last run here.
    Died(String),
}

/// Statistics about all runs.
#[derive(Debug)]
pub(crate) struct RunStats {
    runs: u64,
    succeeded: u64,
    /// Keys that failed for good.
    failed: HashMap<Vec<u8>, KeyFailure>,
    /// Slowest first.
    slowest: Vec<(Duration, Vec<u8>)>,
    times: Histogram,
    /// When retries are due.
    retries: BinaryHeap<Reverse<Instant>>,
    speed: Speed,
}

impl RunStats {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            runs: 0,
            succeeded: 0,
            failed: HashMap::new(),
            slowest: Vec::new(),
            times: Histogram::default(),
            retries: BinaryHeap::new(),
            speed: Speed { since: began, runs_then: 0, latest: 0.0 },
        }
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    pub(super) fn failed_keys(&self) -> u64 {
        self.failed.len() as u64
    }

    pub(super) fn finished(&mut self, run: &FinishedRun<'_>) {
        self.runs += 1;
        self.times.add(run.took);
        self.record_slow(run.key, run.took);
        if run.exit.is_success() {
            self.succeeded += 1;
            self.failed.remove(run.key);
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
        let failure = KeyFailure::LastRun {
            exit: run.exit,
            runs: run.attempt,
            last_line: run.last_line.clone(),
        };
        self.failed.insert(run.key.to_vec(), failure);
    }

    /// Records a key that is dead in the store. Returns whether it was not known as failed.
    pub(super) fn died(&mut self, key: &[u8], reason: &str) -> bool {
        if self.failed.contains_key(key) {
            return false;
        }
        self.failed.insert(key.to_vec(), KeyFailure::Died(reason.to_owned()));
        true
    }

    pub(super) fn retried(&mut self, now: Instant, delay: Duration) {
        self.drop_past_retries(now);
        if let Some(moment) = now.checked_add(delay) {
            self.retries.push(Reverse(moment));
        }
    }

    fn drop_past_retries(&mut self, now: Instant) {
        while self.retries.peek().is_some_and(|Reverse(moment)| *moment <= now) {
            self.retries.pop();
        }
    }

    /// Returns the time until the next retry.
    pub(super) fn next_retry(&mut self, now: Instant) -> Option<Duration> {
        self.drop_past_retries(now);
        self.retries.peek().map(|Reverse(moment)| *moment - now)
    }

    /// Returns the recent number of runs per second.
    pub(super) fn rate(&mut self, now: Instant) -> f64 {
        self.speed.at(now, self.runs)
    }

    /// Returns the 50th and 99th percentile of run times.
    pub(super) fn times(&self) -> Option<(Duration, Duration)> {
        (self.runs > 0).then(|| (self.times.quantile(0.5), self.times.quantile(0.99)))
    }

    /// Lists the failed keys and the slowest keys.
    pub(super) fn details(&self) -> String {
        let mut text = String::new();
        let mut failed: Vec<_> = self.failed.iter().collect();
        failed.sort_by_key(|(key, _)| *key);
        for (key, failure) in failed.iter().take(FAILED_LISTED) {
            line(&mut text, &format!("  failed: {}: {}", shown(key), reason(failure)));
        }
        if failed.len() > FAILED_LISTED {
            let more = failed.len() - FAILED_LISTED;
            line(&mut text, &format!("  and {more} more failed keys"));
        }
        if self.runs > 1 && self.slowest.first().is_some_and(|(took, _)| *took >= SLOW) {
            let named = self.slowest.iter().filter(|(took, _)| *took >= SLOW);
            let named =
                named.map(|(took, key)| format!("{} {}", shown(key), duration(*took)));
            line(
                &mut text,
                &format!("  slowest: {}", named.collect::<Vec<_>>().join(", ")),
            );
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

/// Shorter runs are not listed among the slowest.
const SLOW: Duration = Duration::from_millis(100);

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
}

/// Formats a failed run: its exit and the last line of its standard error.
pub(crate) fn error_text(exit: Exit, last_line: &str) -> String {
    with_last_line(exit_text(exit), last_line)
}

fn with_last_line(text: String, last_line: &str) -> String {
    if last_line.is_empty() { text } else { format!("{text}: {last_line}") }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::TimedOut => "timed out".to_owned(),
        Exit::NotStarted | Exit::InvalidKey => "could not start".to_owned(),
        Exit::Status(_) => match exit.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exit code {}", exit.code()),
        },
    }
}

fn reason(failure: &KeyFailure) -> String {
    match failure {
        KeyFailure::Died(reason) => shown(reason.as_bytes()),
        KeyFailure::LastRun { exit, runs, last_line } => {
            let runs = count(u64::from(*runs), "run", "runs");
            with_last_line(format!("{} after {runs}", exit_text(*exit)), last_line)
        }
    }
}

/// The time between two measurements of the speed. A shorter one would flicker.
const SPEED_OVER: Duration = Duration::from_secs(2);

/// The number of runs per second between the last two measurements.
#[derive(Debug)]
struct Speed {
    since: Instant,
    runs_then: u64,
    latest: f64,
}

impl Speed {
    #[expect(clippy::cast_precision_loss, reason = "a speed is shown without decimals")]
    fn at(&mut self, now: Instant, runs: u64) -> f64 {
        let passed = now.saturating_duration_since(self.since);
        if passed >= SPEED_OVER || (self.latest == 0.0 && !passed.is_zero()) {
            self.latest = (runs - self.runs_then) as f64 / passed.as_secs_f64();
        }
        if passed >= SPEED_OVER {
            (self.since, self.runs_then) = (now, runs);
        }
        self.latest
    }
}

/// Buckets per doubling: the error of a quantile is about 1 %.
const PER_DOUBLING: f64 = 64.0;

/// From one microsecond to about fifty days.
const BUCKETS: usize = 64 * 42;

/// A histogram of run times.
#[derive(Debug)]
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    shortest: Duration,
    longest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        let (shortest, longest) = (Duration::MAX, Duration::ZERO);
        Self { counts: vec![0; BUCKETS], total: 0, shortest, longest }
    }
}

impl Histogram {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of at least one microsecond is small and not negative"
    )]
    fn add(&mut self, took: Duration) {
        let micros = (took.as_secs_f64() * 1e6).max(1.0);
        let bucket = (micros.log2() * PER_DOUBLING) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.shortest = self.shortest.min(took);
        self.longest = self.longest.max(took);
    }

    /// Returns a quantile of the run times. It is exact if it is the shortest or longest run,
    /// which is the usual case if there are few.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a fraction of the number of runs is not greater than that number"
    )]
    fn quantile(&self, part: f64) -> Duration {
        let rank = (self.total as f64 * part).ceil() as u64;
        if rank <= 1 {
            return self.shortest;
        }
        if rank >= self.total {
            return self.longest;
        }
        let mut left = rank;
        let bucket = self.counts.iter().position(|count| {
            left = left.saturating_sub(*count);
            left == 0
        });
        let micros = ((bucket.unwrap_or(BUCKETS) as f64 + 0.5) / PER_DOUBLING).exp2();
        Duration::from_secs_f64(micros / 1e6).clamp(self.shortest, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use requeue::{Clock, SystemClock};

    use super::*;

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

    #[test]
    fn slowest_keys_are_listed_once_each() {
        let mut stats = RunStats::new(SystemClock.now());
        for (key, millis) in [(b"a", 200), (b"b", 900), (b"a", 300), (b"c", 1)] {
            stats.finished(&finished(key, 0, millis));
        }
        assert_eq!(stats.details(), "  slowest: b 900ms, a 300ms\n");
    }

    #[test]
    fn quantiles_are_nearly_exact() {
        let mut times = Histogram::default();
        for millis in 1..=100 {
            times.add(Duration::from_millis(millis));
        }
        for (part, exact) in [(0.5, 50.0), (0.99, 99.0)] {
            let quantile = times.quantile(part).as_secs_f64() * 1e3;
            assert!((quantile / exact - 1.0).abs() < 0.01, "{quantile} is not {exact}");
        }
        times.add(Duration::MAX);
        times.add(Duration::ZERO);
    }

    /// A single run of 7 seconds was once reported as 7.3 seconds, and the longer one of two
    /// runs as shorter than it was.
    #[test]
    fn quantiles_of_few_runs_are_exact() {
        let second = Duration::from_secs(1);
        let quantiles = |seconds: &[u32]| {
            let mut times = Histogram::default();
            for count in seconds {
                times.add(second * *count);
            }
            (times.quantile(0.5), times.quantile(0.99))
        };
        assert_eq!(quantiles(&[7]), (second * 7, second * 7));
        assert_eq!(quantiles(&[900, 7]), (second * 7, second * 900));
        let (half, most) = quantiles(&[900, 7, 30]);
        assert_eq!((duration(half).as_str(), most), ("29.9s", second * 900));
        assert_eq!(quantiles(&[7, 7, 7]).0, second * 7);
    }

    #[test]
    fn next_retry_is_the_earliest_in_the_future() {
        let now = SystemClock.now();
        let mut stats = RunStats::new(now);
        let second = Duration::from_secs(1);
        stats.retried(now, second * 3);
        stats.retried(now, second);
        assert_eq!(stats.next_retry(now), Some(second));
        assert_eq!(stats.next_retry(now + second), Some(second * 2));
        assert_eq!(stats.next_retry(now + second * 3), None);
        stats.retried(now, Duration::MAX);
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

    #[test]
    fn speed_is_measured_between_two_calls() {
        let now = SystemClock.now();
        let mut stats = RunStats::new(now);
        assert!(stats.rate(now).abs() < 1e-9);
        (0..40).for_each(|_| stats.finished(&finished(b"k", 0, 1)));
        assert!((stats.rate(now + SPEED_OVER) - 20.0).abs() < 1e-9);
        assert!(stats.rate(now + SPEED_OVER * 2).abs() < 1e-9, "no runs since then");
    }
}
