//! What has happened so far, in numbers and in the keys that stand out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::Finished;
use super::text::{count, duration, shown};
use crate::command::Ending;

/// How many of the slowest keys are named.
const SLOWEST: usize = 5;

/// How many failed keys are named; the rest are counted.
const FAILED_NAMED: usize = 20;

/// Why a key failed for good.
#[derive(Clone, Debug)]
enum Failure {
    /// Its last run here failed.
    GivenUp(GivenUp),
    /// It is dead in the store, for this reason, and not by its last run here.
    Died(String),
}

/// Why a key was given up.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    pub(crate) ending: Ending,
    pub(crate) runs: u32,
    pub(crate) last_line: String,
}

#[derive(Debug, Default)]
pub(crate) struct Stats {
    runs: u64,
    succeeded: u64,
    /// Keys that failed for good.
    failed: HashMap<Vec<u8>, Failure>,
    /// The slowest first.
    slowest: Vec<(Duration, Vec<u8>)>,
    times: Times,
    retries: BinaryHeap<Reverse<Instant>>,
    speed: Option<Speed>,
}

impl Stats {
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    pub(super) fn failed_keys(&self) -> u64 {
        self.failed.len() as u64
    }

    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }

    pub(super) fn finished(&mut self, run: &Finished<'_>) {
        self.runs += 1;
        self.times.add(run.took);
        self.note_slow(run.key, run.took);
        if run.ending.is_success() {
            self.succeeded += 1;
            self.failed.remove(run.key);
        }
    }

    fn note_slow(&mut self, key: &[u8], took: Duration) {
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

    pub(super) fn gave_up(&mut self, key: &[u8], why: GivenUp) {
        self.failed.insert(key.to_vec(), Failure::GivenUp(why));
    }

    /// Takes note of a key that is dead in the store: whether that is news.
    pub(super) fn died(&mut self, key: &[u8], reason: &str) -> bool {
        if self.failed.contains_key(key) {
            return false;
        }
        self.failed.insert(key.to_vec(), Failure::Died(reason.to_owned()));
        true
    }

    pub(super) fn retried(&mut self, now: Instant, delay: Duration) {
        self.forget_past(now);
        if let Some(moment) = now.checked_add(delay) {
            self.retries.push(Reverse(moment));
        }
    }

    fn forget_past(&mut self, now: Instant) {
        while self.retries.peek().is_some_and(|Reverse(moment)| *moment <= now) {
            self.retries.pop();
        }
    }

    /// How long until the next retry is due.
    pub(super) fn next_retry(&mut self, now: Instant) -> Option<Duration> {
        self.forget_past(now);
        self.retries.peek().map(|Reverse(moment)| *moment - now)
    }

    /// Runs in a second, lately.
    pub(super) fn rate(&mut self, now: Instant) -> f64 {
        let runs = self.runs;
        self.speed.get_or_insert_with(|| Speed::new(now, runs)).at(now, runs)
    }

    /// The median of the times that runs took, and what 99 of 100 did not exceed.
    pub(super) fn times(&self) -> Option<(Duration, Duration)> {
        (self.runs > 0).then(|| (self.times.quantile(0.5), self.times.quantile(0.99)))
    }

    /// The keys that failed and those that took longest, a line each.
    pub(super) fn details(&self) -> String {
        let mut text = String::new();
        let mut failed: Vec<_> = self.failed.iter().collect();
        failed.sort_by_key(|(key, _)| *key);
        for (key, failure) in failed.iter().take(FAILED_NAMED) {
            line(&mut text, &format!("  failed: {}: {}", shown(key), reason(failure)));
        }
        if failed.len() > FAILED_NAMED {
            let more = failed.len() - FAILED_NAMED;
            line(&mut text, &format!("  and {more} more failed"));
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
            "# HELP requeue_lines_total Keys read from the input.\n\
             # TYPE requeue_lines_total counter\n\
             requeue_lines_total {lines}\n\
             # HELP requeue_merged_total Keys that were queued already.\n\
             # TYPE requeue_merged_total counter\n\
             requeue_merged_total {merged}\n\
             # HELP requeue_runs_total Runs of the command that have ended.\n\
             # TYPE requeue_runs_total counter\n\
             requeue_runs_total{{outcome=\"succeeded\"}} {}\n\
             requeue_runs_total{{outcome=\"failed\"}} {failed_runs}\n\
             # HELP requeue_failed_keys Keys that were given up and have not succeeded since.\n\
             # TYPE requeue_failed_keys gauge\n\
             requeue_failed_keys {}\n",
            self.succeeded,
            self.failed.len(),
        )
    }
}

/// Runs below this are not worth naming.
const SLOW: Duration = Duration::from_millis(100);

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    writeln!(text, "{line}").unwrap_or_default();
}

/// How a failed run ended, and what it said last.
pub(crate) fn error_text(ending: Ending, last_line: &str) -> String {
    match last_line {
        "" => how(ending),
        last => format!("{}: {last}", how(ending)),
    }
}

fn how(ending: Ending) -> String {
    match ending {
        Ending::TimedOut => "took too long".to_owned(),
        Ending::NotStarted | Ending::UnfitKey => "could not be started".to_owned(),
        Ending::Exited(_) => match ending.signal() {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("exit code {}", ending.code()),
        },
    }
}

fn reason(failure: &Failure) -> String {
    let GivenUp { ending, runs, last_line } = match failure {
        Failure::Died(reason) => return shown(reason.as_bytes()),
        Failure::GivenUp(why) => why,
    };
    let how = how(*ending);
    let runs = count(u64::from(*runs), "run", "runs");
    match last_line.as_str() {
        "" => format!("{how} after {runs}"),
        last => format!("{how} after {runs}: {last}"),
    }
}

/// How often the speed is measured anew: less would flicker.
const SPEED_OVER: Duration = Duration::from_secs(2);

/// Runs in a second, between two looks that are far enough apart.
#[derive(Debug)]
struct Speed {
    since: Instant,
    runs_then: u64,
    latest: f64,
}

impl Speed {
    fn new(now: Instant, runs: u64) -> Self {
        Self { since: now, runs_then: runs, latest: 0.0 }
    }

    #[expect(clippy::cast_precision_loss, reason = "a speed is shown with three digits")]
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

/// Buckets in which a time doubles: quantiles are right to within a hundredth.
const PER_DOUBLING: f64 = 64.0;

/// From a microsecond to some fifty days.
const BUCKETS: usize = 64 * 42;

/// How many runs took how long.
#[derive(Debug)]
struct Times {
    counts: Vec<u64>,
    total: u64,
    shortest: Duration,
    longest: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let (shortest, longest) = (Duration::MAX, Duration::ZERO);
        Self { counts: vec![0; BUCKETS], total: 0, shortest, longest }
    }
}

impl Times {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of a microsecond or more is small and not negative"
    )]
    fn add(&mut self, took: Duration) {
        let micros = (took.as_secs_f64() * 1e6).max(1.0);
        let bucket = (micros.log2() * PER_DOUBLING) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.shortest = self.shortest.min(took);
        self.longest = self.longest.max(took);
    }

    /// The time that this part of the runs did not exceed: right if it is that of the
    /// shortest or of the longest, which of few runs it mostly is.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a part of the number of runs is no more than that number"
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

    fn finished(key: &[u8], code: i32, millis: u64) -> Finished<'_> {
        let ending = Ending::Exited(ExitStatus::from_raw(code << 8));
        Finished { key, attempt: 1, ending, took: Duration::from_millis(millis) }
    }

    fn failure(last_line: &str) -> GivenUp {
        let ending = Ending::Exited(ExitStatus::from_raw(3 << 8));
        GivenUp { ending, runs: 6, last_line: last_line.to_owned() }
    }

    #[test]
    fn failed_keys_are_named_with_what_they_said_last() {
        let mut stats = Stats::default();
        stats.finished(&finished(b"k", 3, 1));
        stats.gave_up(b"k", failure("disk on fire"));
        assert_eq!(
            stats.details(),
            "  failed: k: exit code 3 after 6 runs: disk on fire\n"
        );
        stats.finished(&finished(b"k", 0, 1));
        assert_eq!(stats.failed_keys(), 0, "its last run succeeded");
    }

    #[test]
    fn a_key_that_died_in_the_store_is_named_once_with_its_reason() {
        let mut stats = Stats::default();
        stats.gave_up(b"a", failure(""));
        assert!(
            !stats.died(b"a", "exit code 3") && stats.died(b"b", "its lease ran out")
        );
        assert_eq!(
            stats.details(),
            "  failed: a: exit code 3 after 6 runs\n  failed: b: its lease ran out\n"
        );
    }

    #[test]
    fn the_slowest_keys_are_named_once_each() {
        let mut stats = Stats::default();
        for (key, millis) in [(b"a", 200), (b"b", 900), (b"a", 300), (b"c", 1)] {
            stats.finished(&finished(key, 0, millis));
        }
        assert_eq!(stats.details(), "  slowest: b 900ms, a 300ms\n");
    }

    #[test]
    fn quantiles_are_near_the_truth() {
        let mut times = Times::default();
        for millis in 1..=100 {
            times.add(Duration::from_millis(millis));
        }
        for (part, truth) in [(0.5, 50.0), (0.99, 99.0)] {
            let told = times.quantile(part).as_secs_f64() * 1e3;
            assert!((told / truth - 1.0).abs() < 0.01, "{told} is not {truth}");
        }
        times.add(Duration::MAX);
        times.add(Duration::ZERO);
    }

    /// A single run of 7 seconds was told as one of 7.3, and the longest of two as one
    /// that was shorter.
    #[test]
    fn quantiles_of_few_runs_are_their_times() {
        let second = Duration::from_secs(1);
        let told = |seconds: &[u32]| {
            let mut times = Times::default();
            for count in seconds {
                times.add(second * *count);
            }
            (times.quantile(0.5), times.quantile(0.99))
        };
        assert_eq!(told(&[7]), (second * 7, second * 7));
        assert_eq!(told(&[900, 7]), (second * 7, second * 900));
        let (half, most) = told(&[900, 7, 30]);
        assert_eq!((duration(half).as_str(), most), ("29.9s", second * 900));
        assert_eq!(told(&[7, 7, 7]).0, second * 7);
    }

    #[test]
    fn the_next_retry_is_the_earliest_that_has_not_passed() {
        let (mut stats, now) = (Stats::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        stats.retried(now, second * 3);
        stats.retried(now, second);
        assert_eq!(stats.next_retry(now), Some(second));
        assert_eq!(stats.next_retry(now + second), Some(second * 2));
        assert_eq!(stats.next_retry(now + second * 3), None);
        stats.retried(now, Duration::MAX);
    }

    #[test]
    fn the_page_on_metrics_lists_those_of_the_command() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
        let page = std::fs::read_to_string(page).unwrap();
        let section = page.split("\n## ").find(|part| part.starts_with("The command"));
        let listed = section.unwrap().lines().filter(|line| line.starts_with("| `"));
        let mut listed: Vec<_> =
            listed.map(|row| row.split('`').nth(1).unwrap()).collect();
        let text = Stats::default().metrics(0, 0);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut told: Vec<_> =
            types.map(|line| line.split(' ').next().unwrap()).collect();
        listed.sort_unstable();
        told.sort_unstable();
        assert_eq!(listed, told);
    }

    #[test]
    fn speed_is_measured_between_looks() {
        let now = SystemClock.now();
        let mut stats = Stats::default();
        assert!(stats.rate(now).abs() < 1e-9);
        (0..40).for_each(|_| stats.finished(&finished(b"k", 0, 1)));
        assert!((stats.rate(now + SPEED_OVER) - 20.0).abs() < 1e-9);
        assert!(stats.rate(now + SPEED_OVER * 2).abs() < 1e-9, "nothing ran since");
    }
}
