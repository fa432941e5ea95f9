//! All that is told: output of commands, progress, summaries, the log. The only place
//! that prints.

mod capture;
mod gathered;
mod log;
mod progress;
mod resume;
mod screen;
mod stats;
mod stored;
mod text;

pub(crate) use capture::Capture;
pub(crate) use log::Log;
pub(crate) use progress::{Left, RunningKey, View};
pub(crate) use resume::{Resumed, resume};
pub(crate) use screen::redraw;
pub(crate) use stored::{added_text, dead_json, dead_table, status_json, status_text};

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Added, Clock, SystemClock};

use self::log::Line;
use self::screen::Screen;
use self::stats::Stats;
pub(crate) use self::stats::{GivenUp, error_text};
pub(crate) use self::text::{chain, count, duration as brief, shown};
use crate::command::Ending;
use crate::plan::{Output, Progress};

/// Writes what main has for a person to read, such as a manual page.
pub(crate) fn page(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Says what went wrong before there was anything to run.
pub(crate) fn complaint(error: &anyhow::Error) {
    // Nobody is left to tell if the standard error is gone.
    writeln!(io::stderr(), "requeue: {}", chain(error.as_ref())).unwrap_or_default();
}

/// Writes to the person who typed something wrong.
pub(crate) fn warn(text: &str) {
    write!(io::stderr(), "{text}").unwrap_or_default();
}

/// What became of keys that were added to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddedKeys {
    pub(crate) new: u64,
    pub(crate) present: u64,
    pub(crate) delayed: u64,
    pub(crate) revived: u64,
}

impl AddedKeys {
    pub(crate) fn total(&self) -> u64 {
        self.new + self.present + self.delayed + self.revived
    }
}

/// Says one line to the person who typed a verb.
pub(crate) fn tell(text: &str) {
    writeln!(io::stderr(), "requeue: {text}").unwrap_or_default();
}

/// What is said of a line or word that is no key.
pub(crate) fn left_out(line: &[u8], why: &str) -> String {
    match line {
        [] => format!("line left out, {why}"),
        line => format!("line left out, {why}: {}", shown(line)),
    }
}

/// What is known of a run while it goes on, and who is told of it.
#[derive(Debug)]
pub(crate) struct Report {
    began: Instant,
    input: InputCounts,
    stats: Mutex<Stats>,
    log: Option<Log>,
    screen: Screen,
    progress: Progress,
}

#[derive(Debug, Default)]
struct InputCounts {
    lines: AtomicU64,
    merged: AtomicU64,
    skipped: AtomicU64,
    refused: AtomicU64,
}

/// A run of a key that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<'r> {
    pub(crate) key: &'r [u8],
    pub(crate) attempt: u32,
    pub(crate) ending: Ending,
    pub(crate) took: Duration,
}

impl Report {
    pub(crate) fn new(progress: Progress, log: Option<Log>) -> Self {
        Self {
            began: SystemClock.now(),
            input: InputCounts::default(),
            stats: Mutex::default(),
            log,
            screen: Screen::new(progress),
            progress,
        }
    }

    fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, line: impl FnOnce(&Log) -> Line) -> io::Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.write(line))
    }

    /// Adds a key by `add` and tells of it, unless the queue is closed.
    ///
    /// The log is held meanwhile: the key's start, on another thread, comes after.
    pub(crate) fn adding(
        &self,
        key: &[u8],
        add: impl FnOnce() -> Option<Added>,
    ) -> io::Result<Option<Added>> {
        let (added, written) = match &self.log {
            None => (add(), Ok(())),
            Some(log) => log
                .write_after(add, |added| added.map(|added| added_line(log, key, added))),
        };
        self.input.lines.fetch_add(1, Ordering::Relaxed);
        if added == Some(Added::Duplicate) {
            self.input.merged.fetch_add(1, Ordering::Relaxed);
        }
        written.map(|()| added)
    }

    /// Tells what became of a key that was added to a store.
    pub(crate) fn added(&self, key: &[u8], added: Added) -> io::Result<()> {
        self.adding(key, || Some(added)).map(|_| ())
    }

    /// Takes note of a key that an earlier run has finished.
    pub(crate) fn skipped(&self) {
        self.input.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of a line that is no key.
    pub(crate) fn refused(&self, line: &[u8], why: &str) {
        self.input.refused.fetch_add(1, Ordering::Relaxed);
        self.note(&left_out(line, why));
    }

    pub(crate) fn started(
        &self,
        key: &[u8],
        attempt: u32,
        slot: usize,
        pid: i32,
    ) -> io::Result<()> {
        self.log(|log| {
            log.line("started")
                .key(key)
                .number("attempt", attempt)
                .number("slot", slot)
                .number("pid", pid)
        })
    }

    pub(crate) fn finished(&self, run: &Finished<'_>) -> io::Result<()> {
        self.stats().finished(run);
        self.log(|log| {
            log.line("finished")
                .key(run.key)
                .number("attempt", run.attempt)
                .number("code", run.ending.code())
                .maybe("signal", run.ending.signal())
                .flag("timeout", run.ending == Ending::TimedOut)
                .millis("took_ms", run.took)
        })
    }

    /// Tells of a run that does not count, since its lease was lost.
    pub(crate) fn lost(&self, key: &[u8]) -> io::Result<()> {
        self.note(&format!(
            "lost the lease of {}: its command was ended, and it runs again",
            shown(key)
        ));
        self.log(|log| log.line("lost").key(key))
    }

    /// Retries a key by `retry` and tells when it comes again.
    pub(crate) fn retrying(
        &self,
        key: &[u8],
        attempt: u32,
        retry: impl FnOnce() -> Duration,
    ) -> io::Result<()> {
        let (delay, written) = match &self.log {
            None => (retry(), Ok(())),
            Some(log) => {
                // Read before the queue reads its own clock: the key cannot start earlier
                // than this says.
                let asked = log.now();
                log.write_after(retry, |delay| {
                    let line = log
                        .line("retried")
                        .key(key)
                        .number("attempt", attempt + 1)
                        .millis("delay_ms", *delay)
                        .time("next", asked.saturating_add(*delay));
                    Some(line)
                })
            }
        };
        self.stats().retried(SystemClock.now(), delay);
        written
    }

    pub(crate) fn gave_up(&self, key: &[u8], failure: GivenUp) -> io::Result<()> {
        let (runs, last) = (failure.runs, failure.last_line.clone());
        self.stats().gave_up(key, failure);
        self.log(|log| {
            log.line("gave_up").key(key).number("runs", runs).text("stderr", &last)
        })
    }

    /// Tells of a key that this run added and that is dead in the store.
    pub(crate) fn died(&self, key: &[u8], reason: &str) -> io::Result<()> {
        if !self.stats().died(key, reason) {
            return Ok(());
        }
        self.log(|log| log.line("died").key(key).text("reason", reason))
    }

    /// Makes what takes the output of one run.
    pub(crate) fn capture<'r>(
        &'r self,
        output: &'r Output,
        key: &'r [u8],
    ) -> Capture<'r> {
        Capture::new(output, key, &self.screen)
    }

    /// Says one line to the person at the terminal.
    pub(crate) fn note(&self, text: &str) {
        self.screen.say(&format!("requeue: {text}\n"));
    }

    /// Shows how far the run is, which comes back; a line that would say the same as
    /// `before` is left out.
    pub(crate) fn draw(&self, view: &View, before: &str) -> String {
        let status = self.snapshot(view).status();
        match self.progress {
            Progress::Bar => self.screen.draw(&status, &view.running),
            Progress::Line if status != before => self.note(&status),
            Progress::Line | Progress::None => {}
        }
        status
    }

    /// Prints all that is known, because somebody asked.
    pub(crate) fn summary(&self, view: &View) {
        let mut text = self.snapshot(view).status();
        for key in &view.running {
            text.push_str("\n  ");
            text.push_str(&key.line());
        }
        self.screen.say(&format!("requeue: {text}\n{}", self.stats().details()));
    }

    /// Tells how it went.
    pub(crate) fn summarize(&self, view: &View, left: Left) {
        self.screen.clear();
        let quiet =
            self.progress == Progress::None && left.is_none() && self.stats().is_clean();
        if !quiet {
            let totals = self.snapshot(view).totals(left);
            self.screen.say(&format!("requeue: {totals}\n{}", self.stats().details()));
        }
    }

    /// Writes the last line of the log.
    pub(crate) fn ended(&self, left: Left) -> io::Result<()> {
        let stats = self.stats();
        let (runs, failed) = (stats.runs(), stats.failed_keys());
        drop(stats);
        self.log(|log| {
            log.line("drained")
                .number("runs", runs)
                .number("failed", failed)
                .number("merged", self.input.merged.load(Ordering::Relaxed))
                .number("left", left.known())
                .flag("store_silent", matches!(left, Left::AtLeast(_)))
        })
    }

    /// Whether a key failed for good.
    pub(crate) fn has_failures(&self) -> bool {
        self.stats().failed_keys() > 0
    }

    /// Whether a line was no key.
    pub(crate) fn has_refused(&self) -> bool {
        self.input.refused.load(Ordering::Relaxed) > 0
    }

    /// What the queue's own metrics do not know, as text for Prometheus.
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
            succeeded: stats.succeeded(),
            failed: stats.failed_keys(),
            per_second: stats.rate(now),
            next: stats.next_retry(now),
            times: stats.times(),
        }
    }
}

fn added_line(log: &Log, key: &[u8], added: Added) -> Line {
    let event = if added == Added::Duplicate { "merged" } else { "added" };
    log.line(event).key(key).flag("processing", added == Added::Dirty)
}
