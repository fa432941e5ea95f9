//! The log: one JSON object per line for every event of a key.
//!
//! Lines that matter after a crash (starts and ends) reach the file at once. Lines about added
//! keys stay in a buffer until the next such line: a million adds would be a million writes.
//!
//! # Invariants
//!
//! 1. Entries are written in the order of their reservation. A thread that changes the queue
//!    reserves its entry before the change and writes it afterwards; no lock is held in
//!    between. So the start of a key follows its add, and times never decrease.

use std::collections::VecDeque;
use std::fmt::{Display, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use requeue::{Clock, SystemClock};

use super::text::json;
use crate::hex::hex;

/// An open log file.
#[derive(Debug)]
pub(crate) struct Log {
    writer: Mutex<LogWriter>,
    /// A moment of the monotonic clock, and the same moment since 1970.
    epoch: (Instant, Duration),
}

impl Log {
    /// Opens a log to append to. Creates it if it does not exist.
    pub(crate) fn append(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path)?;
        end_line(&mut file)?;
        let file = BufWriter::new(file);
        let writer = LogWriter { file, first: 0, entries: VecDeque::new() };
        Ok(Self { writer: Mutex::new(writer), epoch: epoch() })
    }

    fn lock(&self) -> MutexGuard<'_, LogWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since 1970.
    fn now(&self) -> Duration {
        let (moment, since_1970) = self.epoch;
        since_1970 + SystemClock.now().saturating_duration_since(moment)
    }

    /// Reserves the next entry.
    pub(crate) fn reserve(&self) -> LogEntry<'_> {
        let mut writer = self.lock();
        let number = writer.first + writer.entries.len() as u64;
        writer.entries.push_back(None);
        // Read under the lock (invariant 1).
        let time = self.now();
        LogEntry { log: self, number, time, filled: false }
    }
}

/// The file, and the entries that are reserved and not yet written.
#[derive(Debug)]
struct LogWriter {
    file: BufWriter<File>,
    /// The number of the first entry in `entries`.
    first: u64,
    entries: VecDeque<Option<Text>>,
}

/// The text of an entry.
#[derive(Debug)]
struct Text {
    line: String,
    flush: bool,
}

impl LogWriter {
    /// Fills an entry, and writes all entries up to the first one that is not filled.
    fn fill(&mut self, number: u64, text: Text) -> io::Result<()> {
        let index = usize::try_from(number - self.first);
        let index = index.expect("there are fewer entries than bytes of memory");
        self.entries[index] = Some(text);
        let mut flush = false;
        while let Some(text) = self.entries.front_mut().and_then(Option::take) {
            self.entries.pop_front();
            self.first += 1;
            flush |= text.flush;
            self.file.write_all(text.line.as_bytes())?;
        }
        if flush { self.file.flush() } else { Ok(()) }
    }
}

/// A reserved entry of the log. Empty if it is dropped without a line.
#[derive(Debug)]
pub(crate) struct LogEntry<'l> {
    log: &'l Log,
    number: u64,
    /// When it was reserved, since 1970.
    pub(super) time: Duration,
    filled: bool,
}

impl LogEntry<'_> {
    /// Starts a line about an event.
    pub(super) fn line(&self, event: &str) -> Line {
        Line(String::with_capacity(128)).text("event", event).time("time", self.time)
    }

    /// Writes a line to the file at once.
    pub(super) fn write(self, line: Line) -> io::Result<()> {
        self.fill(Text { line: line.end(), flush: true })
    }

    /// Writes a line to the buffer.
    pub(super) fn buffer(self, line: Line) -> io::Result<()> {
        self.fill(Text { line: line.end(), flush: false })
    }

    fn fill(mut self, text: Text) -> io::Result<()> {
        self.filled = true;
        self.log.lock().fill(self.number, text)
    }
}

impl Drop for LogEntry<'_> {
    fn drop(&mut self) {
        if !self.filled {
            let empty = Text { line: String::new(), flush: false };
            // If writing fails, the next line reports it.
            self.log.lock().fill(self.number, empty).unwrap_or_default();
        }
    }
}

/// Ends an unfinished line that a crash left behind.
fn end_line(file: &mut File) -> io::Result<()> {
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

#[expect(clippy::disallowed_methods, reason = "log lines have the time of day")]
fn epoch() -> (Instant, Duration) {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (SystemClock.now(), since_1970)
}

/// An unfinished JSON object.
#[must_use = "a line has no effect until it is written"]
pub(crate) struct Line(String);

impl Line {
    fn value(mut self, name: &str, value: impl Display) -> Self {
        let comma = if self.0.is_empty() { '{' } else { ',' };
        // Writing to a string cannot fail.
        write!(self.0, "{comma}\"{name}\":{value}").unwrap_or_default();
        self
    }

    /// Adds the key as text, and also in hexadecimal if it is not UTF-8.
    pub(crate) fn key(self, key: &[u8]) -> Self {
        match std::str::from_utf8(key) {
            Ok(text) => self.text("key", text),
            Err(_) => {
                self.text("key", &String::from_utf8_lossy(key)).text("key_hex", &hex(key))
            }
        }
    }

    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.value(name, json(&text.into()))
    }

    pub(crate) fn number(self, name: &str, number: impl Display) -> Self {
        self.value(name, number)
    }

    /// Adds a field only if there is a value.
    pub(crate) fn maybe(self, name: &str, number: Option<impl Display>) -> Self {
        match number {
            Some(number) => self.value(name, number),
            None => self,
        }
    }

    /// Adds a field only if it is true.
    pub(crate) fn flag(self, name: &str, value: bool) -> Self {
        if value { self.value(name, true) } else { self }
    }

    pub(crate) fn millis(self, name: &str, time: Duration) -> Self {
        self.value(name, format_args!("{:.3}", time.as_secs_f64() * 1e3))
    }

    /// Adds a time since 1970, in seconds.
    pub(crate) fn time(self, name: &str, time: Duration) -> Self {
        self.value(name, format_args!("{}.{:06}", time.as_secs(), time.subsec_micros()))
    }

    fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a log in a new directory, runs `act` on it, and returns the events in the file.
    fn events(name: &str, act: impl FnOnce(&Log, &dyn Fn() -> Vec<String>)) {
        let name = format!("requeue-log-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let log = Log::append(&path).unwrap();
        let read = || {
            let text = std::fs::read_to_string(&path).unwrap();
            let event = |line: &str| {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                value["event"].as_str().unwrap().to_owned()
            };
            text.lines().map(event).collect()
        };
        act(&log, &read);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn entries_are_written_in_the_order_of_their_reservation() {
        events("order", |log, read| {
            let (added, started) = (log.reserve(), log.reserve());
            let line = started.line("started");
            started.write(line).unwrap();
            assert_eq!(read(), [""; 0], "the add is not written yet");
            let line = added.line("added");
            added.buffer(line).unwrap();
            assert_eq!(read(), ["added", "started"], "the start is flushed");
        });
    }

    #[test]
    fn dropped_entry_does_not_hold_up_the_others() {
        events("drop", |log, read| {
            let (refused, started) = (log.reserve(), log.reserve());
            let line = started.line("started");
            started.write(line).unwrap();
            drop(refused);
            assert_eq!(read(), ["started"]);
        });
    }
}
