//! A journal of the running commands, in a file next to an embedded store.
//!
//! If requeue is killed, its commands keep running as orphans. The next requeue on the same
//! store finds them in this file and starts their keys only after they have exited. The file
//! is never synced: after a crash of the machine there are no orphans.
//!
//! | line | meaning |
//! |---|---|
//! | `boot ID` | the following lines were written since this boot |
//! | `start TOKEN KEY` | a command is about to start; the key in hexadecimal |
//! | `runs TOKEN PID TICKS` | it has started; its pid and start time |
//! | `ended TOKEN` | it has exited |
//!
//! # Invariants
//!
//! 1. A `start` line is written before the command starts. If requeue is killed before the
//!    `runs` line, the orphan is found by its environment.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::command::ProcessId;
use crate::hex::{hex, unhex};
use crate::input::Key;

/// The file is rewritten when it exceeds this size, in bytes.
const MAX_SIZE: u64 = 256 * 1024;

/// The journal of one store.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<JournalFile>,
    orphans: Mutex<HashMap<Key, ProcessId>>,
}

/// The file and its contents.
#[derive(Debug)]
struct JournalFile {
    file: File,
    size: u64,
    /// By token.
    running: HashMap<u64, JournalEntry>,
}

/// A command that is running or about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JournalEntry {
    key: Key,
    process: Option<ProcessId>,
}

impl Journal {
    /// Opens the journal of the store in `dir`, which this process must have open.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let dir = fs::canonicalize(dir)?;
        let mut name = dir.file_name().unwrap_or_default().to_owned();
        name.push(".running");
        let path = dir.with_file_name(name);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let running: HashMap<_, _> = still_running(&text).collect();
        let orphans = running
            .values()
            .filter_map(|entry| Some((entry.key.clone(), entry.process?)))
            .collect();
        let file = JournalFile::write(&path, running)?;
        Ok(Self { path, file: Mutex::new(file), orphans: Mutex::new(orphans) })
    }

    fn lock(&self) -> MutexGuard<'_, JournalFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_orphans(&self) -> MutexGuard<'_, HashMap<Key, ProcessId>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys with orphans, and the orphans.
    pub(crate) fn orphans(&self) -> Vec<(Key, ProcessId)> {
        let mut all: Vec<_> = self
            .lock_orphans()
            .iter()
            .map(|(key, orphan)| (key.clone(), *orphan))
            .collect();
        all.sort();
        all
    }

    /// Returns the orphan that is still running for a key.
    pub(crate) fn orphan(&self, key: &[u8]) -> Option<ProcessId> {
        let mut orphans = self.lock_orphans();
        let orphan = *orphans.get(key)?;
        if orphan.is_alive() {
            return Some(orphan);
        }
        orphans.remove(key);
        None
    }

    /// Records that a command is about to start (invariant 1).
    pub(crate) fn starting(&self, token: u64, key: &[u8]) -> io::Result<()> {
        let entry = JournalEntry { key: key.to_vec(), process: None };
        let mut file = self.lock();
        file.append(&start_line(token, &entry))?;
        file.running.insert(token, entry);
        Ok(())
    }

    /// Records that it has started.
    pub(crate) fn started(&self, token: u64, pid: i32) -> io::Result<()> {
        let Some(process) = ProcessId::find(pid) else { return Ok(()) };
        let mut file = self.lock();
        if let Some(entry) = file.running.get_mut(&token) {
            entry.process = Some(process);
        }
        file.append(&runs_line(token, process))
    }

    /// Records that it has exited.
    pub(crate) fn ended(&self, token: u64) -> io::Result<()> {
        let mut file = self.lock();
        file.running.remove(&token);
        if file.size < MAX_SIZE {
            return file.append(&format!("ended {token}\n"));
        }
        let running = std::mem::take(&mut file.running);
        *file = JournalFile::write(&self.path, running)?;
        Ok(())
    }

    /// Removes the file unless a command is still running.
    pub(crate) fn close(&self) {
        let is_alive =
            |entry: &JournalEntry| entry.process.is_some_and(ProcessId::is_alive);
        if !self.lock().running.values().any(is_alive) {
            // If this fails, the file still says that nothing is running.
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

impl JournalFile {
    /// Replaces the file atomically.
    fn write(path: &Path, running: HashMap<u64, JournalEntry>) -> io::Result<Self> {
        let mut text = format!("boot {}\n", boot());
        for (token, entry) in &running {
            text += &start_line(*token, entry);
            text += &entry
                .process
                .map(|process| runs_line(*token, process))
                .unwrap_or_default();
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        fs::write(&draft, &text)?;
        fs::rename(&draft, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { file, size: text.len() as u64, running })
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.size += line.len() as u64;
        self.file.write_all(line.as_bytes())
    }
}

fn start_line(token: u64, entry: &JournalEntry) -> String {
    format!("start {token} {}\n", hex(&entry.key))
}

fn runs_line(token: u64, process: ProcessId) -> String {
    format!("runs {token} {} {}\n", process.pid, process.started)
}

/// Returns the id of the current boot.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Returns the commands in a journal that are still running, with their processes.
fn still_running(text: &str) -> impl Iterator<Item = (u64, JournalEntry)> + use<> {
    let running = if text.lines().next() == Some(&format!("boot {}", boot())) {
        replay(text)
    } else {
        HashMap::new()
    };
    running.into_iter().filter_map(|(token, entry)| {
        let process = match entry.process {
            Some(process) => Some(process).filter(|process| process.is_alive()),
            None => find_by_environment(token, &entry.key),
        };
        process.map(|_| (token, JournalEntry { process, ..entry }))
    })
}

/// Finds an orphan without a `runs` line (invariant 1).
fn find_by_environment(token: u64, key: &[u8]) -> Option<ProcessId> {
    let token = format!("REQUEUE_TOKEN={token}").into_bytes();
    let key = [b"REQUEUE_KEY=", key].concat();
    ProcessId::with_environment(&[token, key])
}

/// Replays a journal. Skips unreadable lines.
fn replay(text: &str) -> HashMap<u64, JournalEntry> {
    let mut running = HashMap::new();
    for line in text.lines() {
        apply(&mut running, line);
    }
    running
}

fn apply(running: &mut HashMap<u64, JournalEntry>, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let (verb, token) = (words.next()?, words.next()?.parse().ok()?);
    match verb {
        "start" => {
            let key = unhex(words.next()?)?;
            running.insert(token, JournalEntry { key, process: None });
        }
        "runs" => {
            let (pid, started) =
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            running.get_mut(&token)?.process = Some(ProcessId { pid, started });
        }
        "ended" => drop(running.remove(&token)),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], process: Option<(i32, u64)>) -> JournalEntry {
        let process = process.map(|(pid, started)| ProcessId { pid, started });
        JournalEntry { key: key.to_vec(), process }
    }

    #[test]
    fn commands_without_an_end_are_running() {
        let text = "boot x\nstart 7 6b\nruns 7 12 34\nstart 8 ff00\nstart 9 61\n\
                    ended 9\nruns 8 13\nsta";
        let wanted = [(7, entry(b"k", Some((12, 34)))), (8, entry(b"\xff\0", None))];
        assert_eq!(replay(text), HashMap::from(wanted));
    }

    #[test]
    fn written_lines_can_be_replayed() {
        let entry = entry(b"a b\n\xff", Some((5, 6)));
        let process = entry.process.unwrap();
        let text = start_line(3, &entry) + &runs_line(3, process);
        assert_eq!(replay(&text), HashMap::from([(3, entry)]));
    }

    #[test]
    fn journal_of_an_earlier_boot_has_no_running_commands() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let line = start_line(1, &entry(b"k", None))
            + &runs_line(1, ProcessId::find(pid).unwrap());
        let this = format!("boot {}\n{line}", boot());
        assert_eq!(still_running(&this).count(), 1);
        assert_eq!(still_running(&format!("boot other\n{line}")).count(), 0);
    }

    #[test]
    fn orphan_without_a_pid_is_found_by_its_environment() {
        let environment = [("REQUEUE_TOKEN", "4711"), ("REQUEUE_KEY", "a key")];
        let mut child = crate::command::cat(&environment);
        let text =
            format!("boot {}\n{}", boot(), start_line(4711, &entry(b"a key", None)));
        let found: Vec<_> = still_running(&text).collect();
        child.wait().unwrap();
        let process = found[0].1.process.unwrap();
        assert_eq!(process.pid, i32::try_from(child.id()).unwrap());
        assert_eq!(still_running(&text).count(), 0, "it has exited");
    }
}
