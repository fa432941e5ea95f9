//! Keeps a copy of a directory up to date.
//!
//! `cargo run -p requeue --example directory_sync -- SOURCE TARGET` copies the files of
//! SOURCE to TARGET until it is killed. Without arguments it runs a demonstration on a
//! temporary directory.
//!
//! Each file is a key. One more key scans the source: it adds the files that have changed,
//! and runs again after a moment. A file that changes ten times before it is copied is copied
//! once. A file that cannot be copied is retried with backoff and does not delay the others.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use requeue::pool::{Failed, Handle, Pool};
use requeue::retry::Exponential;
use requeue::{Clock, Finish, Queue, SystemClock};

const SCAN_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Scan,
    File(OsString),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    match &arguments[..] {
        [source, target] => start(source, target)?.join_blocking(),
        _ => demonstrate()?,
    }
    Ok(())
}

/// Starts to copy `source` to `target`.
fn start(
    source: &Path,
    target: &Path,
) -> Result<Handle<Queue<Key>>, Box<dyn std::error::Error>> {
    let backoff = Exponential::new(Duration::from_millis(50), Duration::from_secs(30));
    let queue = Queue::builder().name("files").retry(backoff).build();
    queue.add(Key::Scan)?;

    let (source, target) = (source.to_owned(), target.to_owned());
    let seen = Mutex::new(HashMap::new());
    let weak = queue.downgrade(); // a strong handle would keep the queue open
    let pool = Pool::new(queue)
        .workers(4)
        .on_failure(|key, failure| println!("{key:?} failed: {failure}"))
        .spawn_threads(move |run| {
            match run.key() {
                Key::Scan => {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    let changed = changes(&source, &mut seen)?;
                    if let Some(queue) = weak.upgrade() {
                        queue.add_all(changed.into_iter().map(Key::File)).ok();
                    }
                    return Ok(Finish::RequeueAfter(SCAN_INTERVAL));
                }
                Key::File(name) => sync(&source, &target, name)?,
            }
            Ok::<_, Failed>(Finish::Succeed)
        })?;
    Ok(pool)
}

/// Changes whenever the file does.
type Stamp = (SystemTime, u64);

/// Returns the names of the files that were added, changed or removed since the last scan.
fn changes(
    source: &Path,
    seen: &mut HashMap<OsString, Stamp>,
) -> io::Result<Vec<OsString>> {
    let now = stamps(source)?;
    let changed = now.iter().filter(|(name, stamp)| seen.get(*name) != Some(stamp));
    let removed = seen.keys().filter(|name| !now.contains_key(*name));
    let names = changed.map(|(name, _)| name).chain(removed).cloned().collect();
    *seen = now;
    Ok(names)
}

fn stamps(source: &Path) -> io::Result<HashMap<OsString, Stamp>> {
    let mut stamps = HashMap::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            stamps.insert(entry.file_name(), (metadata.modified()?, metadata.len()));
        }
    }
    Ok(stamps)
}

/// Copies or removes one file, depending on the current state of the source.
fn sync(source: &Path, target: &Path, name: &OsStr) -> io::Result<()> {
    let (from, to) = (source.join(name), target.join(name));
    if from.exists() {
        // Renamed into place, so that no reader sees an incomplete file.
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

/// Changes a directory and waits until its copy follows.
fn demonstrate() -> Result<(), Box<dyn std::error::Error>> {
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
    pause(Duration::from_millis(500));
    println!("--- unblock the third");
    fs::remove_dir(target.join("blocked.txt"))?;
    wait_until(|| is_copied(&source, &target, "blocked.txt"));
    println!("--- change the first, remove the second");
    fs::write(source.join("one.txt"), "this has changed")?;
    fs::remove_file(source.join("two.txt"))?;
    wait_until(|| is_copied(&source, &target, "one.txt"));
    wait_until(|| !target.join("two.txt").exists());

    let stopped = pool.stop_blocking(Duration::from_secs(5));
    println!("--- stopped; keys left: {:?}", stopped.left);
    Ok(fs::remove_dir_all(root)?)
}

fn is_copied(source: &Path, target: &Path, name: &str) -> bool {
    let [from, to] = [source, target].map(|directory| fs::read(directory.join(name)));
    matches!((from, to), (Ok(from), Ok(to)) if from == to)
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        pause(Duration::from_millis(10));
    }
}

fn pause(duration: Duration) {
    SystemClock.park_until(SystemClock.now() + duration);
}
