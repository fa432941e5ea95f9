//! The log: a JSON object on each line for all that happens to a key.
//!
//! A line that somebody may have to act on after a crash (a start, an end) is handed to
//! the system at once. Added keys wait in the buffer for the next such line, since a
//! million of them would be a million calls.

use std::fmt::{Display, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use requeue::{Clock, SystemClock};

use crate::hex::hex;

/// Where events are written.
#[derive(Debug)]
pub(crate) struct Log {
    file: Mutex<BufWriter<File>>,
    /// The time since 1970 at a moment of the clock that does not jump.
    epoch: (Instant, Duration),
}

impl Log {
    /// Opens a log to go on with it; one that is not there is made.
    pub(crate) fn append(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path)?;
        end_line(&mut file)?;
        Ok(Self { file: Mutex::new(BufWriter::new(file)), epoch: epoch() })
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since 1970.
    pub(crate) fn now(&self) -> Duration {
        let (moment, since_1970) = self.epoch;
        since_1970 + SystemClock.now().saturating_duration_since(moment)
    }

    /// Begins a line about something that happens now.
    pub(crate) fn line(&self, event: &str) -> Line {
        Line(String::with_capacity(128)).text("event", event).time("time", self.now())
    }

    /// Writes a line and hands it to the system.
    ///
    /// The line is made once it is its turn, so that times never go back in a log.
    pub(crate) fn write(&self, line: impl FnOnce(&Self) -> Line) -> io::Result<()> {
        let mut file = self.lock();
        file.write_all(line(self).end().as_bytes())?;
        file.flush()
    }

    /// Does something and writes about it before anybody else writes anything.
    pub(crate) fn write_after<T>(
        &self,
        act: impl FnOnce() -> T,
        line: impl FnOnce(&T) -> Option<Line>,
    ) -> (T, io::Result<()>) {
        let mut file = self.lock();
        let done = act();
        let written = match line(&done) {
            Some(line) => file.write_all(line.end().as_bytes()),
            None => Ok(()),
        };
        (done, written)
    }
}

/// Ends a line that a crash has left open.
fn end_line(file: &mut File) -> io::Result<()> {
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

#[expect(clippy::disallowed_methods, reason = "a log tells the time of day")]
fn epoch() -> (Instant, Duration) {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (SystemClock.now(), since_1970)
}

/// A JSON object in the making.
#[must_use = "a line does nothing until it is written"]
pub(crate) struct Line(String);

impl Line {
    fn value(mut self, name: &str, value: impl Display) -> Self {
        let comma = if self.0.is_empty() { '{' } else { ',' };
        // Writing to a string does not fail.
        write!(self.0, "{comma}\"{name}\":{value}").unwrap_or_default();
        self
    }

    /// The key as text and, if it is none, its bytes in hexadecimal besides.
    pub(crate) fn key(self, key: &[u8]) -> Self {
        match std::str::from_utf8(key) {
            Ok(text) => self.text("key", text),
            Err(_) => {
                self.text("key", &String::from_utf8_lossy(key)).text("key_hex", &hex(key))
            }
        }
    }

    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.value(name, serde_json::Value::from(text))
    }

    pub(crate) fn number(self, name: &str, number: impl Display) -> Self {
        self.value(name, number)
    }

    pub(crate) fn maybe(self, name: &str, number: Option<impl Display>) -> Self {
        match number {
            Some(number) => self.value(name, number),
            None => self,
        }
    }

    /// Says something only if it is so.
    pub(crate) fn flag(self, name: &str, so: bool) -> Self {
        if so { self.value(name, true) } else { self }
    }

    pub(crate) fn millis(self, name: &str, time: Duration) -> Self {
        self.value(name, format_args!("{:.3}", time.as_secs_f64() * 1e3))
    }

    /// Seconds since 1970.
    pub(crate) fn time(self, name: &str, time: Duration) -> Self {
        self.value(name, format_args!("{}.{:06}", time.as_secs(), time.subsec_micros()))
    }

    fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}
