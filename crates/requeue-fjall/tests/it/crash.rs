//! `kill -9` loses no acknowledged key and brings no finished key back.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{Key, RepliesExt, Store};

use crate::support::{TestQueue, add, finish, is_there, key, lease};

/// Set in the child process; its value is the folder to write to.
const WRITER: &str = "REQUEUE_FJALL_WRITER";

/// The numbers of output lines after which a writer is killed.
const KILLS: [usize; 8] = [1, 40, 7, 333, 150, 2, 801, 77];

/// The keys that writers reported before they were killed.
#[derive(Default)]
struct Reported {
    added: BTreeSet<String>,
    finishing: BTreeSet<String>,
    finished: BTreeSet<String>,
}

impl Reported {
    fn record(&mut self, line: &str) {
        let (verb, key) = line.split_at(1);
        let keys = match verb {
            "+" => &mut self.added,
            "?" => &mut self.finishing,
            "-" => &mut self.finished,
            _ => return,
        };
        keys.insert(key.to_owned());
    }
}

#[test]
fn acknowledged_adds_and_finishes_survive_kill_9() {
    if let Some(path) = env::var_os(WRITER) {
        return write(Path::new(&path));
    }
    let queue = TestQueue::new();
    let mut reported = Reported::default();
    for lines in KILLS {
        let mut writer = start(&queue.path());
        kill_after(&mut writer, lines, &mut reported);
        check(&queue.path(), &reported);
    }
    assert!(!reported.finished.is_empty());
}

/// Starts this test again as a child process that writes.
fn start(path: &Path) -> Child {
    let name = "crash::acknowledged_adds_and_finishes_survive_kill_9";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WRITER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the writer after `lines` lines and records all its output.
fn kill_after(writer: &mut Child, lines: usize, reported: &mut Reported) {
    let mut output = BufReader::new(writer.stdout.take().unwrap());
    let (mut seen, mut line) = (0, String::new());
    while output.read_line(&mut line).unwrap() > 0 {
        // The kill can truncate the last line.
        if let Some(line) = line.strip_suffix('\n').filter(|line| line.contains('/')) {
            reported.record(line);
            seen += 1;
        }
        line.clear();
        if seen == lines {
            writer.kill().unwrap();
        }
    }
    assert!(!writer.wait().unwrap().success(), "the writer runs until it is killed");
    assert!(seen >= lines, "the writer ended by itself");
}

#[tokio::main(flavor = "current_thread")]
async fn check(path: &Path, reported: &Reported) {
    let store = FjallStore::builder(path).open().unwrap();
    let keys: Vec<Key> = reported.added.iter().map(|text| key(text)).collect();
    let looks = store.look(&keys).all().await.unwrap();
    for (text, look) in reported.added.iter().zip(&looks) {
        let there = is_there(look);
        assert!(
            there || reported.finishing.contains(text),
            "{text} was added but is lost"
        );
        assert!(
            !there || !reported.finished.contains(text),
            "{text} was finished but is back"
        );
    }
}

/// Adds and finishes keys concurrently, and reports each step.
#[tokio::main(flavor = "current_thread")]
async fn write(path: &Path) {
    let store = FjallStore::builder(path).open().unwrap();
    let process = std::process::id();
    let tasks = (0..8).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0_u64.. {
                let text = format!("/{process}/{task}/{number}");
                add(&store, &text).await;
                println!("+{text}");
                work(&store, number).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Finishes one key, or leaves it leased for the next process.
async fn work(store: &FjallStore, number: u64) {
    let Some(grant) = lease(store, 1).await.pop() else { return };
    if number % 3 == 2 {
        return;
    }
    println!("?{}", grant.key);
    finish(store, &grant, Finish::Succeed).await;
    println!("-{}", grant.key);
}
