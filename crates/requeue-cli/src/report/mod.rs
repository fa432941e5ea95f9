//! Everything that requeue reports: output of commands, progress, summaries, the log. The only
//! module that prints.

mod capture;
mod histogram;
mod key_failures;
mod log;
mod output_buffer;
mod progress;
mod resume;
mod run_stats;
mod screen;
mod speed;
mod status;
mod text;

pub(crate) use capture::Capture;
pub(crate) use key_failures::error_text;
pub(crate) use log::{Log, LogEntry};
pub(crate) use output_buffer::unnamed_file;
pub(crate) use progress::{Left, RunningKey, View, Work};
pub(crate) use resume::Resumed;
pub(crate) use screen::redraw;
pub(crate) use status::{dead_json, dead_table, status_json, status_text};
pub(crate) use text::{chain, count, duration as brief, escaped_lines, shown};

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Added, Clock, SystemClock};

use self::log::Line;
use self::run_stats::RunStats;
use self::screen::Screen;
use self::text::escaped;
use crate::command::Exit;
use crate::plan::{Output, Progress};

/// Prints to standard output, for example a manual page.
pub(crate) fn page(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Prints an error that ends the process.
pub(crate) fn error(error: &anyhow::Error) {
    note(&chain(error.as_ref()));
}

/// Prints one line to standard error.
pub(crate) fn note(text: &str) {
    print_error(&format!("requeue: {}\n", escaped(text)));
}

/// Prints to standard error. Ignores failures, which could not be reported anyway.
pub(crate) fn print_error(text: &str) {
    write!(io::stderr(), "{text}").unwrap_or_default();
}

/// Formats the message about a rejected input line.
pub(crate) fn rejected_text(line: &[u8], why: &str) -> String {
    match line {
        [] => format!("rejected line: {why}"),
        line => format!("rejected line: {why}: {}", shown(line)),
    }
}

/// Collects the events of `requeue run`, and reports them.
#[derive(Debug)]
pub(crate) struct Report {
    began: Instant,
    input: InputCounts,
    stats: Mutex<RunStats>,
    log: Option<Log>,
    screen: Screen,
    progress: Progress,
}

#[derive(Debug, Default)]
struct InputCounts {
    lines: AtomicU64,
    merged: AtomicU64,
    skipped: AtomicU64,
    rejected: AtomicU64,
}

/// A finished run of a key.
#[derive(Clone, Debug)]
pub(crate) struct FinishedRun<'r> {
    pub(crate) key: &'r [u8],
    pub(crate) attempt: u32,
    pub(crate) exit: Exit,
    pub(crate) took: Duration,
    /// The last line of its standard error.
    pub(crate) last_line: String,
}

/// The delay before a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryDelay {
    pub(crate) actual: Duration,
    /// The longest delay that the backoff alone would cause.
    pub(crate) backoff: Duration,
}

impl Report {
    pub(crate) fn new(progress: Progress, log: Option<Log>) -> Self {
        let began = SystemClock.now();
        Self {
            began,
            input: InputCounts::default(),
            stats: Mutex::new(RunStats::new(began)),
            log,
            screen: Screen::new(progress),
            progress,
        }
    }

    fn stats(&self) -> MutexGuard<'_, RunStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves an entry in the log, if there is one, for a change about to be made.
    pub(crate) fn reserve(&self) -> Option<LogEntry<'_>> {
        self.log.as_ref().map(Log::reserve)
    }

    fn log(&self, line: impl FnOnce(&LogEntry<'_>) -> Line) -> io::Result<()> {
        let Some(entry) = self.reserve() else { return Ok(()) };
        let line = line(&entry);
        entry.write(line)
    }

    /// Reports an added key. `entry` was reserved before the add.
    pub(crate) fn added(
        &self,
        entry: Option<LogEntry<'_>>,
        key: &[u8],
        added: Added,
    ) -> io::Result<()> {
        let merged = added == Added::Duplicate;
        self.input.lines.fetch_add(1, Ordering::Relaxed);
        self.input.merged.fetch_add(merged.into(), Ordering::Relaxed);
        let Some(entry) = entry else { return Ok(()) };
        let line = entry.line(if merged { "merged" } else { "added" }).key(key);
        entry.buffer(line.flag("processing", added == Added::Dirty))
    }

    /// Counts a key that an earlier run has finished.
    pub(crate) fn skipped(&self) {
        self.input.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports an input line that is not a valid key.
    pub(crate) fn rejected(&self, line: &[u8], why: &str) {
        self.input.rejected.fetch_add(1, Ordering::Relaxed);
        self.note(&rejected_text(line, why));
    }

    pub(crate) fn started(
        &self,
        key: &[u8],
        attempt: u32,
        slot: usize,
        pid: i32,
    ) -> io::Result<()> {
        self.log(|entry| {
            entry
                .line("started")
                .key(key)
                .number("attempt", attempt)
                .number("slot", slot)
                .number("pid", pid)
        })
    }

    pub(crate) fn finished(&self, run: &FinishedRun<'_>) -> io::Result<()> {
        self.stats().finished(run);
        self.log(|entry| {
            entry
                .line("finished")
                .key(run.key)
                .number("attempt", run.attempt)
                .number("code", run.exit.code())
                .maybe("signal", run.exit.signal())
                .flag("timeout", run.exit == Exit::TimedOut)
                .millis("took_ms", run.took)
        })
    }

    /// Reports a run that does not count, because its lease was lost.
    pub(crate) fn lost(&self, key: &[u8]) -> io::Result<()> {
        self.note(&format!(
            "lease on {} expired; stopped its command, the key will run again",
            shown(key)
        ));
        self.log(|entry| entry.line("lost").key(key))
    }

    /// Reports a failed key that runs again after `delay`. `entry` was reserved before the
    /// retry, so the key cannot start before the logged time.
    pub(crate) fn retried(
        &self,
        entry: Option<LogEntry<'_>>,
        key: &[u8],
        failures: u32,
        delay: RetryDelay,
    ) -> io::Result<()> {
        self.stats().retried(SystemClock.now(), delay);
        let delay = delay.actual;
        let Some(entry) = entry else { return Ok(()) };
        let line = entry
            .line("retried")
            .key(key)
            .number("attempt", failures + 1)
            .millis("delay_ms", delay)
            .time("next", entry.time.saturating_add(delay));
        entry.buffer(line)
    }

    /// Reports a failed run whose key will run again.
    pub(crate) fn will_retry(&self, run: &FinishedRun<'_>) {
        self.stats().will_retry(run);
    }

    /// Reports a key that failed for good.
    pub(crate) fn gave_up(&self, run: &FinishedRun<'_>) -> io::Result<()> {
        self.stats().gave_up(run);
        self.log(|entry| {
            entry
                .line("gave_up")
                .key(run.key)
                .number("runs", run.attempt)
                .text("stderr", &run.last_line)
        })
    }

    /// Reports a key that was added by this process and is dead in the store.
    pub(crate) fn died(&self, key: &[u8], reason: &str) -> io::Result<()> {
        if !self.stats().died(key, reason) {
            return Ok(());
        }
        self.log(|entry| entry.line("died").key(key).text("reason", reason))
    }

    /// Returns the destination for the output of one run.
    pub(crate) fn capture<'r>(
        &'r self,
        output: &'r Output,
        key: &'r [u8],
    ) -> Capture<'r> {
        Capture::new(output, key, &self.screen)
    }

    /// Prints one line to standard error, above the status.
    pub(crate) fn note(&self, text: &str) {
        self.screen.say(&format!("requeue: {}\n", escaped(text)));
    }

    /// Removes the status, and draws none until `resume`.
    pub(crate) fn suspend(&self) {
        self.screen.suspend(true);
    }

    /// Draws the status again.
    pub(crate) fn resume(&self) {
        self.screen.suspend(false);
    }

    /// Shows the progress and returns the status line. As plain text, it is not repeated if it
    /// equals `before`.
    pub(crate) fn draw(&self, view: &View, before: &str) -> String {
        let bar = self.snapshot(view).bar(self.screen.columns());
        match self.progress {
            Progress::Bar => self.screen.draw(&bar, &view.running),
            Progress::Line if bar.text != before => self.note(&bar.text),
            Progress::Line | Progress::None => {}
        }
        bar.text
    }

    /// Prints the status, the running keys, and the failed and slowest keys.
    pub(crate) fn details(&self, view: &View) {
        let mut text = self.snapshot(view).counts();
        for key in &view.running {
            text.push_str("\n  ");
            text.push_str(&key.line());
        }
        self.screen.say(&format!("requeue: {text}\n{}", self.stats().details()));
    }

    /// Prints the summary at the end.
    pub(crate) fn summary(&self, view: &View, left: Left, unread: bool) {
        self.screen.clear();
        let quiet = self.progress == Progress::None
            && left.is_none()
            && !unread
            && !self.has_failures();
        if !quiet {
            let summary = self.snapshot(view).summary(left, unread);
            self.screen.say(&format!("requeue: {summary}\n{}", self.stats().details()));
        }
    }

    /// Writes the last line of the log.
    pub(crate) fn ended(&self, left: Left) -> io::Result<()> {
        let stats = self.stats();
        let (runs, failed) = (stats.runs(), stats.failed_keys());
        drop(stats);
        self.log(|entry| {
            entry
                .line("drained")
                .number("runs", runs)
                .number("failed", failed)
                .number("merged", self.input.merged.load(Ordering::Relaxed))
                .number("left", left.known())
                .flag("store_silent", matches!(left, Left::AtLeast(_)))
        })
    }

    /// Returns how many keys failed for good, and how many are done.
    pub(crate) fn failed_and_done(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.failed_keys(), stats.failed_keys() + stats.succeeded())
    }

    /// Returns whether a key failed for good.
    pub(crate) fn has_failures(&self) -> bool {
        self.stats().failed_keys() > 0
    }

    /// Returns whether an input line was rejected.
    pub(crate) fn has_rejected(&self) -> bool {
        self.input.rejected.load(Ordering::Relaxed) > 0
    }

    /// Returns the metrics of the command in Prometheus format. The queue has its own.
    pub(crate) fn metrics(&self) -> String {
        let lines = self.input.lines.load(Ordering::Relaxed);
        let merged = self.input.merged.load(Ordering::Relaxed);
        self.stats().metrics(lines, merged)
    }

    fn snapshot<'v>(&self, view: &'v View) -> progress::Snapshot<'v> {
        let mut stats = self.stats();
        let now = SystemClock.now();
        progress::Snapshot {
            view,
            elapsed: now.saturating_duration_since(self.began),
            lines: self.input.lines.load(Ordering::Relaxed),
            merged: self.input.merged.load(Ordering::Relaxed),
            skipped: self.input.skipped.load(Ordering::Relaxed),
            runs: stats.runs(),
            retries: stats.retries(),
            succeeded: stats.succeeded(),
            failed: stats.failed_keys(),
            retrying: stats.retrying_keys(),
            per_second: stats.rate(now),
            done_per_second: stats.done_rate(now),
            next_retry: stats.next_retry(now),
            throttled: stats.is_throttled(now),
            times: stats.times(),
        }
    }
}
