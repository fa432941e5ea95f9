//! kill -9: what was acknowledged is kept, what was finished stays so.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{Key, Store};

use crate::support::{Place, add, finish, is_there, key, lease};

/// Tells a process of this test that it is the one that writes, and where.
const WRITER: &str = "REQUEUE_FJALL_WRITER";

/// After how many lines of a writer it is killed: early, late, and in between.
const KILLS: [usize; 8] = [1, 40, 7, 333, 150, 2, 801, 77];

/// What writers said, up to where they were killed.
#[derive(Default)]
struct Told {
    added: BTreeSet<String>,
    ending: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        let (verb, key) = line.split_at(1);
        let said = match verb {
            "+" => &mut self.added,
            "?" => &mut self.ending,
            "-" => &mut self.ended,
            _ => return,
        };
        said.insert(key.to_owned());
    }
}

#[test]
fn what_was_acknowledged_outlives_kill_9_and_what_was_finished_does_not_come_back() {
    if let Some(path) = env::var_os(WRITER) {
        return write(Path::new(&path));
    }
    let place = Place::new();
    let mut told = Told::default();
    for lines in KILLS {
        let mut writer = start(&place.path());
        listen(&mut writer, lines, &mut told);
        check(&place.path(), &told);
    }
    assert!(!told.ended.is_empty());
}

/// This test once more, as the process that writes.
fn start(path: &Path) -> Child {
    let name = "crash::what_was_acknowledged_outlives_kill_9_and_what_was_finished_does_not_come_back";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WRITER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the writer after so many lines of its own, and hears all that it said.
fn listen(writer: &mut Child, lines: usize, told: &mut Told) {
    let mut output = BufReader::new(writer.stdout.take().unwrap());
    let (mut said, mut line) = (0, String::new());
    while output.read_line(&mut line).unwrap() > 0 {
        // A line without an end was cut off by the kill.
        if let Some(line) = line.strip_suffix('\n').filter(|line| line.contains('/')) {
            told.hear(line);
            said += 1;
        }
        line.clear();
        if said == lines {
            writer.kill().unwrap();
        }
    }
    assert!(!writer.wait().unwrap().success(), "it writes until it is killed");
    assert!(said >= lines, "it ended by itself");
}

#[tokio::main(flavor = "current_thread")]
async fn check(path: &Path, told: &Told) {
    let store = FjallStore::builder(path).open().unwrap();
    let keys: Vec<Key> = told.added.iter().map(|text| key(text)).collect();
    let looks = store.look(&keys).await.unwrap();
    for (text, look) in told.added.iter().zip(&looks) {
        let there = is_there(look);
        assert!(there || told.ending.contains(text), "{text} was added, and is lost");
        assert!(!there || !told.ended.contains(text), "{text} was finished, and is back");
    }
}

/// Adds and finishes keys, several at a time, and says so before and after.
#[tokio::main(flavor = "current_thread")]
async fn write(path: &Path) {
    let store = FjallStore::builder(path).open().unwrap();
    let lives = std::process::id();
    let tasks = (0..8).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0_u64.. {
                let text = format!("/{lives}/{task}/{number}");
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

/// Finishes one key, or leaves it to the next life.
async fn work(store: &FjallStore, number: u64) {
    let Some(grant) = lease(store, 1).await.pop() else { return };
    if number % 3 == 2 {
        return;
    }
    println!("?{}", grant.key);
    finish(store, &grant, Finish::Succeed).await;
    println!("-{}", grant.key);
}
