//! Throughput and latency of the store, compared with a plain file on the same disk.
//!
//! `cargo bench -p requeue-fjall [-- FOLDER]`; choose a folder on the disk to measure.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark that prints its results"
)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are rounded"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{iter, thread};

use requeue::Finish;
use requeue::{Clock, SystemClock};
use requeue_fjall::FjallStore;
use requeue_store::{
    Add, FinishRequest, Hold, Key, LeaseRequest, Owner, RepliesExt, Store, When,
};
use tokio::sync::oneshot;

/// Bytes of the record of a ready key: tag, key and value.
const RECORD: usize = 1 + 20 + 18;

fn main() {
    let folder = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let folder = match folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(run(folder.path()));
}

async fn run(folder: &Path) {
    println!("{:<34}{:>10}{:>10}{:>10}{:>9}", "", "ops/s", "p50 ms", "p99 ms", "CPU us");
    for (group, count) in [(1, 500), (64, 20_000), (512, 200_000), (1600, 400_000)] {
        raw(folder, group, count);
    }
    for (tasks, count) in [(1, 500), (64, 30_000), (512, 300_000)] {
        journal(folder, tasks, count).await;
    }
    let store = FjallStore::builder(folder.join("add")).open().unwrap();
    for (tasks, count) in [(1, 500), (64, 30_000), (512, 300_000)] {
        adds(&store, tasks, 1, count).await;
    }
    adds(&store, 16, 100, 500_000).await;
    drop(store);
    let store = FjallStore::builder(folder.join("cycle")).open().unwrap();
    for (tasks, count) in [(1, 300), (1024, 300_000)] {
        cycles(&store, tasks, count).await;
    }
    drop(store);
    million(folder).await;
}

/// Measures the disk: writes the same bytes to a file, with one fdatasync per group.
fn raw(folder: &Path, group: usize, count: usize) {
    let mut file = File::create(folder.join("raw")).unwrap();
    let bytes = vec![7; group * RECORD];
    let meter = Meter::start();
    for _ in 0..count / group {
        let begun = SystemClock.now();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        meter.took(begun);
    }
    meter.print(&format!("file, groups of {group}"), count);
}

/// Measures the upper bound: group commit to a file, without a queue.
///
/// One thread writes the records of many tasks, and each task waits until its record is on
/// disk.
async fn journal(folder: &Path, tasks: usize, count: usize) {
    let mut file = File::create(folder.join("journal")).unwrap();
    let (give, taken) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
    let committer = thread::spawn(move || {
        while let Ok(first) = taken.recv() {
            let group: Vec<_> = iter::once(first).chain(taken.try_iter()).collect();
            let bytes: Vec<_> =
                group.iter().flat_map(|(record, _)| record).copied().collect();
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
            for (_, written) in group {
                written.send(()).unwrap();
            }
        }
    });
    let name = format!("journal, {tasks} at a time");
    in_tasks(&name, tasks, 1, count, move |number| {
        let (answer, written) = oneshot::channel();
        let mut record = vec![7; RECORD];
        record[1..21].copy_from_slice(&add(number).key);
        give.send((record, answer)).unwrap();
        async move { written.await.unwrap() }
    })
    .await;
    committer.join().unwrap();
}

async fn adds(store: &FjallStore, tasks: usize, batch: usize, count: usize) {
    let name = format!("add, {tasks} at a time, {batch} keys each");
    let salt = (tasks * 1000 + batch) as u64 * 10_000_000;
    let store = store.clone();
    in_tasks(&name, tasks, batch, count, move |first| {
        let adds: Vec<_> = (first..first + batch as u64).map(|n| add(salt + n)).collect();
        let store = store.clone();
        async move { drop(store.add(&adds).all().await.unwrap()) }
    })
    .await;
}

async fn cycles(store: &FjallStore, tasks: usize, count: usize) {
    let name = format!("add, lease, finish, {tasks} at a time");
    let store = store.clone();
    in_tasks(&name, tasks, 1, count, move |number| {
        let store = store.clone();
        async move { cycle(&store, number).await }
    })
    .await;
}

/// Calls `work` from `tasks` tasks until `count` numbers are used, and prints the figures.
///
/// Each call gets the first number of its batch.
async fn in_tasks<F: Future<Output = ()> + Send>(
    name: &str,
    tasks: usize,
    batch: usize,
    count: usize,
    work: impl Fn(u64) -> F + Clone + Send + 'static,
) {
    let (meter, next) = (Arc::new(Meter::start()), Arc::new(AtomicU64::new(0)));
    let run = (0..tasks).map(|_| {
        let (work, meter, next) = (work.clone(), Arc::clone(&meter), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let first = next.fetch_add(batch as u64, Ordering::Relaxed);
                if first >= count as u64 {
                    break;
                }
                let begun = SystemClock.now();
                work(first).await;
                meter.took(begun);
            }
        })
    });
    for task in run.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    drop(work);
    meter.print(name, count);
}

async fn cycle(store: &FjallStore, number: u64) {
    store.add(&[add(number)]).all().await.unwrap();
    let (owner, lease) = (Owner::new("bench"), Duration::from_secs(30));
    let request = LeaseRequest { owner, max: 1, lease, max_deliveries: None };
    let grant = store.lease(&request).await.unwrap().grants.pop().unwrap();
    let hold = Hold { key: grant.key, token: grant.token };
    store.finish(&[FinishRequest::new(hold, Finish::Succeed)]).all().await.unwrap();
}

/// Measures how long opening a million keys takes, and their size on disk.
async fn million(folder: &Path) {
    let path = folder.join("million");
    let store = FjallStore::builder(&path).open().unwrap();
    for first in (0..1_000_000_u64).step_by(10_000) {
        let adds: Vec<_> = (first..first + 10_000).map(add).collect();
        store.add(&adds).all().await.unwrap();
    }
    store.close().unwrap();
    let begun = SystemClock.now();
    let store = FjallStore::builder(&path).open().unwrap();
    let took = begun.elapsed();
    assert_eq!(store.stats().await.unwrap().ready, 1_000_000);
    println!("1M keys: opened in {took:.2?}, {} MB on disk", used(&path) >> 20);
    println!("stats: {:.2?} with 1M keys", stats_time(&store).await);
    let empty = FjallStore::builder(folder.join("empty")).open().unwrap();
    println!("stats: {:.2?} without keys", stats_time(&empty).await);
}

/// Returns the mean time of one call of `stats`.
async fn stats_time(store: &FjallStore) -> Duration {
    const CALLS: u32 = 1000;
    let begun = SystemClock.now();
    for _ in 0..CALLS {
        store.stats().await.unwrap();
    }
    begun.elapsed() / CALLS
}

/// Returns the disk usage of a folder, without the holes of sparse files.
fn used(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let sizes = entries.map(|path| {
        if path.is_dir() {
            used(&path)
        } else {
            fs::metadata(&path).unwrap().blocks() * 512
        }
    });
    sizes.sum()
}

fn add(number: u64) -> Add {
    let key = Key::new(format!("ns-0001/obj-{number:08}").into_bytes()).unwrap();
    Add { revive_after: Duration::ZERO, ..Add::new(key, When::Now) }
}

/// Measures wall time, latencies and CPU time of one run.
struct Meter {
    begun: Instant,
    cpu: Duration,
    latencies: std::sync::Mutex<Vec<Duration>>,
}

impl Meter {
    fn start() -> Self {
        let latencies = std::sync::Mutex::default();
        Self { begun: SystemClock.now(), cpu: cpu(), latencies }
    }

    fn took(&self, begun: Instant) {
        self.latencies.lock().unwrap().push(begun.elapsed());
    }

    fn print(&self, name: &str, count: usize) {
        let (wall, cpu) = (self.begun.elapsed(), cpu().saturating_sub(self.cpu));
        let mut all = self.latencies.lock().unwrap().clone();
        all.sort_unstable();
        let at =
            |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
        let rate = count as f64 / wall.as_secs_f64();
        let each = cpu.as_secs_f64() * 1e6 / count as f64;
        println!("{name:<34}{rate:>10.0}{:>10.2}{:>10.2}{each:>9.2}", at(0.5), at(0.99));
    }
}

/// Returns the CPU time of this process, in steps of 10 ms.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
