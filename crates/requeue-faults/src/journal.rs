//! The file in which one process writes down what it does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use requeue_store::Now;

use crate::event::{Answer, Event, Line, Request};

/// The ending of the names of histories.
pub(crate) const EXTENSION: &str = "history";

/// The present time of this machine, which its engines read too.
pub(crate) fn now() -> u64 {
    Now::System.read().micros()
}

/// Writes each line with one call to the system, so that it outlives a process that is
/// killed the moment after.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Mutex<File>,
    numbers: AtomicU64,
}

impl Journal {
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name).with_extension(EXTENSION);
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file: Mutex::new(file), numbers: AtomicU64::new(0) })
    }

    /// A number for a call or an operation of this process.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes down what happens at this moment.
    ///
    /// # Panics
    ///
    /// If it cannot be written: a run without its history proves nothing.
    pub(crate) fn write(&self, event: Event) {
        let line = Line { at: now(), event };
        let mut text = serde_json::to_string(&line).expect("events are plain data");
        text.push('\n');
        let mut file = self.file.lock().expect("no writer panics with the lock");
        file.write_all(text.as_bytes()).expect("the history can be written");
    }

    /// Writes down that a call is about to be sent: its number.
    pub(crate) fn sent(&self, request: Request) -> u64 {
        let call = self.number();
        self.write(Event::Sent { call, request });
        call
    }

    pub(crate) fn answered(&self, call: u64, answer: Answer) {
        self.write(Event::Answered { call, answer });
    }
}
