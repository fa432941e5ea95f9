//! Which commands run on an embedded store, in a file beside it.
//!
//! When this process is killed, its commands go on, and nobody who opens the store later
//! knows of them but by this file: their keys are not started again before they have ended.
//! The file need not survive more than the process does, so it is never synced; a machine
//! that has crashed has no such processes.
//!
//! | line | means |
//! |---|---|
//! | `boot ID` | the lines that follow are of this start of the machine |
//! | `start TOKEN KEY` | a command is about to start; the key in hexadecimal |
//! | `runs TOKEN PID TICKS` | it has started, as this process, at this time |
//! | `ended TOKEN` | it has ended |
//!
//! # Invariants
//!
//! 1. A command is written down before it starts. One whose number is not, because the
//!    process was killed in between, is found by its environment.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::command::Stranger;
use crate::hex::{hex, unhex};
use crate::input::Key;

/// The file is written anew once it is longer.
const LONGEST: u64 = 256 * 1024;

/// The file of what runs.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    book: Mutex<Book>,
    /// Commands of an earlier process that have not ended.
    strangers: Mutex<HashMap<Key, Stranger>>,
}

#[derive(Debug)]
struct Book {
    file: File,
    length: u64,
    running: HashMap<u64, Entry>,
}

/// A command that runs or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: Key,
    process: Option<Stranger>,
}

impl Ledger {
    /// Opens the file beside the store in `folder`, which is this process's own.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = fs::canonicalize(folder)?;
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(".running");
        let path = folder.with_file_name(name);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let running: HashMap<_, _> = still_running(&text).collect();
        let strangers = running
            .values()
            .filter_map(|entry| Some((entry.key.clone(), entry.process?)))
            .collect();
        let book = Book::write(&path, running)?;
        Ok(Self { path, book: Mutex::new(book), strangers: Mutex::new(strangers) })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_strangers(&self) -> MutexGuard<'_, HashMap<Key, Stranger>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commands of an earlier process that have not ended.
    pub(crate) fn strangers(&self) -> Vec<(Key, Stranger)> {
        let mut all: Vec<_> =
            self.lock_strangers().iter().map(|(key, who)| (key.clone(), *who)).collect();
        all.sort();
        all
    }

    /// The command of an earlier process that still runs for a key.
    pub(crate) fn stranger(&self, key: &[u8]) -> Option<Stranger> {
        let mut strangers = self.lock_strangers();
        let stranger = *strangers.get(key)?;
        if stranger.is_alive() {
            return Some(stranger);
        }
        strangers.remove(key);
        None
    }

    /// Writes down that a command is about to start.
    pub(crate) fn starting(&self, token: u64, key: &[u8]) -> io::Result<()> {
        let entry = Entry { key: key.to_vec(), process: None };
        let mut book = self.book();
        book.append(&start_line(token, &entry))?;
        book.running.insert(token, entry);
        Ok(())
    }

    /// Writes down that it has started.
    pub(crate) fn started(&self, token: u64, pid: i32) -> io::Result<()> {
        let Some(process) = Stranger::find(pid) else { return Ok(()) };
        let mut book = self.book();
        if let Some(entry) = book.running.get_mut(&token) {
            entry.process = Some(process);
        }
        book.append(&runs_line(token, process))
    }

    /// Writes down that it has ended.
    pub(crate) fn ended(&self, token: u64) -> io::Result<()> {
        let mut book = self.book();
        book.running.remove(&token);
        if book.length < LONGEST {
            return book.append(&format!("ended {token}\n"));
        }
        let running = std::mem::take(&mut book.running);
        *book = Book::write(&self.path, running)?;
        Ok(())
    }

    /// Takes the file away, if nothing runs.
    pub(crate) fn close(&self) {
        let is_alive = |entry: &Entry| entry.process.is_some_and(Stranger::is_alive);
        if !self.book().running.values().any(is_alive) {
            // Left behind, it says that nothing runs.
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

impl Book {
    /// Writes the file anew, as a whole or not at all.
    fn write(path: &Path, running: HashMap<u64, Entry>) -> io::Result<Self> {
        let mut text = format!("boot {}\n", boot());
        for (token, entry) in &running {
            text += &start_line(*token, entry);
            text += &entry.process.map(|who| runs_line(*token, who)).unwrap_or_default();
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        fs::write(&draft, &text)?;
        fs::rename(&draft, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { file, length: text.len() as u64, running })
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.length += line.len() as u64;
        self.file.write_all(line.as_bytes())
    }
}

fn start_line(token: u64, entry: &Entry) -> String {
    format!("start {token} {}\n", hex(&entry.key))
}

fn runs_line(token: u64, process: Stranger) -> String {
    format!("runs {token} {} {}\n", process.pid, process.started)
}

/// What tells one start of the machine from another.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// The commands of a file that have not ended, with their processes.
fn still_running(text: &str) -> impl Iterator<Item = (u64, Entry)> + use<> {
    let running = if text.lines().next() == Some(&format!("boot {}", boot())) {
        read(text)
    } else {
        HashMap::new()
    };
    running.into_iter().filter_map(|(token, entry)| {
        let process = match entry.process {
            Some(process) => Some(process).filter(|process| process.is_alive()),
            None => by_environment(token, &entry.key),
        };
        process.map(|_| (token, Entry { process, ..entry }))
    })
}

/// Invariant 1.
fn by_environment(token: u64, key: &[u8]) -> Option<Stranger> {
    let token = format!("REQUEUE_TOKEN={token}").into_bytes();
    let key = [b"REQUEUE_KEY=", key].concat();
    Stranger::with_environment(&[token, key])
}

/// The lines of a file; those that cannot be read are left out.
fn read(text: &str) -> HashMap<u64, Entry> {
    let mut running = HashMap::new();
    for line in text.lines() {
        follow(&mut running, line);
    }
    running
}

fn follow(running: &mut HashMap<u64, Entry>, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let (verb, token) = (words.next()?, words.next()?.parse().ok()?);
    match verb {
        "start" => {
            let key = unhex(words.next()?)?;
            running.insert(token, Entry { key, process: None });
        }
        "runs" => {
            let (pid, started) =
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            running.get_mut(&token)?.process = Some(Stranger { pid, started });
        }
        "ended" => drop(running.remove(&token)),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], process: Option<(i32, u64)>) -> Entry {
        let process = process.map(|(pid, started)| Stranger { pid, started });
        Entry { key: key.to_vec(), process }
    }

    #[test]
    fn what_has_not_ended_still_runs() {
        let text = "boot x\nstart 7 6b\nruns 7 12 34\nstart 8 ff00\nstart 9 61\n\
                    ended 9\nruns 8 13\nsta";
        let wanted = [(7, entry(b"k", Some((12, 34)))), (8, entry(b"\xff\0", None))];
        assert_eq!(read(text), HashMap::from(wanted));
    }

    #[test]
    fn lines_can_be_read_back() {
        let entry = entry(b"a b\n\xff", Some((5, 6)));
        let process = entry.process.unwrap();
        let text = start_line(3, &entry) + &runs_line(3, process);
        assert_eq!(read(&text), HashMap::from([(3, entry)]));
    }

    #[test]
    fn another_start_of_the_machine_has_no_processes_of_this_one() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let line = start_line(1, &entry(b"k", None))
            + &runs_line(1, Stranger::find(pid).unwrap());
        let this = format!("boot {}\n{line}", boot());
        assert_eq!(still_running(&this).count(), 1);
        assert_eq!(still_running(&format!("boot other\n{line}")).count(), 0);
    }

    #[test]
    fn a_command_whose_number_was_not_written_is_found_by_what_it_was_told() {
        let told = [("REQUEUE_TOKEN", "4711"), ("REQUEUE_KEY", "a key")];
        let mut child = crate::command::cat(&told);
        let text =
            format!("boot {}\n{}", boot(), start_line(4711, &entry(b"a key", None)));
        let found: Vec<_> = still_running(&text).collect();
        child.wait().unwrap();
        let process = found[0].1.process.unwrap();
        assert_eq!(process.pid, i32::try_from(child.id()).unwrap());
        assert_eq!(still_running(&text).count(), 0, "it has ended");
    }
}
