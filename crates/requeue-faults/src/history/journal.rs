//! The file in which one process records its history.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use super::event::{Answer, Event, Line, Request};
use crate::time::now;

/// The file extension of histories.
pub(crate) const EXTENSION: &str = "history";

/// Writes each line with one system call, so that a line survives if the process is killed
/// right after it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Mutex<File>,
    next_number: AtomicU64,
}

impl Journal {
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name).with_extension(EXTENSION);
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file: Mutex::new(file), next_number: AtomicU64::new(0) })
    }

    /// Returns a new number for a call or an add of this process.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an event with the current time.
    ///
    /// # Panics
    ///
    /// If the file cannot be written: a run without its history proves nothing.
    pub(crate) fn write(&self, event: Event) {
        let line = Line { at: now(), event };
        let mut text = serde_json::to_string(&line).expect("events are plain data");
        text.push('\n');
        let mut file = self.file.lock().expect("no writer panics with the lock");
        file.write_all(text.as_bytes()).expect("the history can be written");
    }

    /// Records a request before it is sent. Returns the number of the call.
    pub(crate) fn sent(&self, request: Request) -> u64 {
        let call = self.next_number();
        self.write(Event::Sent { call, request });
        call
    }

    pub(crate) fn answered(&self, call: u64, answer: Answer) {
        self.write(Event::Answered { call, answer });
    }
}
