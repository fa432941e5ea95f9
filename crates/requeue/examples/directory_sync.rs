//! Keeps a directory equal to another.
//!
//! `cargo run -p requeue --example directory_sync` shows it on a directory of its own and
//! ends; `cargo run -p requeue --example directory_sync -- SOURCE TARGET` goes on until it
//! is killed.
//!
//! A key is the name of a file. One more key stands for the look at the whole source: it
//! adds the files that changed, and asks to come again after a moment. A file that cannot
//! be copied is retried, later each time, without holding up the others; one that changes
//! ten times before its turn is copied once.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use requeue::pool::{Handle, Outcome, Pool};
use requeue::retry::Exponential;
use requeue::{Clock, Queue, SystemClock};

const WORKERS: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Look for changes in the source.
    Look,
    /// Bring this file of the target to its right state.
    File(OsString),
}

fn main() -> io::Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    match &arguments[..] {
        [source, target] => {
            start(source, target)?.join_blocking();
            Ok(())
        }
        _ => demonstrate(),
    }
}

/// Starts to keep `target` as `source` is.
fn start(source: &Path, target: &Path) -> io::Result<Handle<Key>> {
    let backoff = Exponential::new(Duration::from_millis(50), Duration::from_secs(30));
    let queue = Queue::builder().name("files").retry(backoff).build();
    queue.add(Key::Look).unwrap();

    let (source, target) = (source.to_owned(), target.to_owned());
    let seen = Mutex::new(HashMap::new());
    let adder = queue.clone();
    Pool::new(queue)
        .workers(WORKERS)
        .on_failure(|key, failure| println!("{key:?} failed: {failure}"))
        .run(move |key| match key {
            Key::Look => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                adder
                    .add_all(changes(&source, &mut seen)?.into_iter().map(Key::File))
                    .unwrap();
                Ok::<_, io::Error>(Outcome::After(LOOK_EVERY))
            }
            Key::File(name) => sync(&source, &target, name).map(|()| Outcome::Done),
        })
}

/// What changes when a file does.
type Stamp = (SystemTime, u64);

/// The names of files that are new, different or gone since the last look.
fn changes(
    source: &Path,
    seen: &mut HashMap<OsString, Stamp>,
) -> io::Result<Vec<OsString>> {
    let now = stamps(source)?;
    let changed = now.iter().filter(|(name, stamp)| seen.get(*name) != Some(stamp));
    let gone = seen.keys().filter(|name| !now.contains_key(*name));
    let names = changed.map(|(name, _)| name).chain(gone).cloned().collect();
    *seen = now;
    Ok(names)
}

fn stamps(source: &Path) -> io::Result<HashMap<OsString, Stamp>> {
    let mut stamps = HashMap::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() {
            stamps.insert(entry.file_name(), (about.modified()?, about.len()));
        }
    }
    Ok(stamps)
}

/// Looks at the file as it is by now, whatever it was when its key was added.
fn sync(source: &Path, target: &Path, name: &OsStr) -> io::Result<()> {
    let (from, to) = (source.join(name), target.join(name));
    if from.exists() {
        // Copied beside and renamed: nobody ever sees half a file.
        let mut part = OsString::from(".part-");
        part.push(name);
        let part = target.join(part);
        let bytes = fs::copy(&from, &part)?;
        fs::rename(&part, &to)?;
        println!("{} copied, {bytes} bytes", name.to_string_lossy());
    } else if to.exists() {
        fs::remove_file(&to)?;
        println!("{} removed", name.to_string_lossy());
    }
    Ok(())
}

/// Changes a directory, and waits until its copy has followed.
fn demonstrate() -> io::Result<()> {
    let root = env::temp_dir().join(format!("requeue-directory-sync-{}", process::id()));
    let (source, target) = (root.join("source"), root.join("target"));
    fs::create_dir_all(&source)?;
    fs::create_dir_all(target.join("blocked.txt"))?; // a directory is in the way

    let pool = start(&source, &target)?;
    println!("--- three files, one of them blocked");
    for name in ["one.txt", "two.txt", "blocked.txt"] {
        fs::write(source.join(name), format!("this is {name}"))?;
    }
    wait_until(|| is_copied(&source, &target, "one.txt"));
    wait_until(|| is_copied(&source, &target, "two.txt"));
    SystemClock.park_until(SystemClock.now() + Duration::from_millis(500));
    println!("--- the way is free");
    fs::remove_dir(target.join("blocked.txt"))?;
    wait_until(|| is_copied(&source, &target, "blocked.txt"));
    println!("--- one changes, one goes");
    fs::write(source.join("one.txt"), "this has changed")?;
    fs::remove_file(source.join("two.txt"))?;
    wait_until(|| is_copied(&source, &target, "one.txt"));
    wait_until(|| !target.join("two.txt").exists());

    let stopped = pool.stop_blocking(Duration::from_secs(5));
    println!("--- stopped; left over: {:?}", stopped.left);
    fs::remove_dir_all(root)
}

fn is_copied(source: &Path, target: &Path, name: &str) -> bool {
    let [from, to] = [source, target].map(|directory| fs::read(directory.join(name)));
    matches!((from, to), (Ok(from), Ok(to)) if from == to)
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        SystemClock.park_until(SystemClock.now() + Duration::from_millis(10));
    }
}
