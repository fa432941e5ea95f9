//! A process of a soak: it adds and processes keys of a fixed set.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::Finish;
use requeue_store::{Backoff, SharedQueue, Store, Which};

use crate::random::Random;
use crate::run::plan::Plan;
use crate::time::{now, sleep};

/// The number of different keys.
const KEYS: u64 = 5000;

/// The number of tasks that add, and of tasks that process keys.
const PRODUCERS: usize = 4;
const WORKERS: usize = 12;

/// The extension of the file in which a process counts its cycles.
const CYCLES: &str = "cycles";

type Queue = SharedQueue<String, Arc<dyn Store>>;

/// Works until the planned end, and writes down how many keys were processed.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    plan: &Plan,
    folder: &Path,
    name: &str,
) -> Result<()> {
    let backoff = Backoff { max: Duration::from_millis(500), ..Backoff::default() };
    let queue: Queue = SharedQueue::builder(Arc::clone(&store))
        .owner(name.to_owned())
        .lease(plan.scenario.lease)
        .backoff(backoff)
        .build();
    let cycles = Arc::new(AtomicU64::new(0));
    let random = |task: usize| Random::new(plan.seed, &format!("{name}/{task}"));
    let workers = (0..WORKERS).map(|task| {
        tokio::spawn(process(queue.clone(), Arc::clone(&cycles), random(task)))
    });
    let workers: Vec<_> = workers.collect();
    let producers = (0..PRODUCERS)
        .map(|task| tokio::spawn(add(queue.clone(), plan.until, random(100 + task))));
    for producer in producers.collect::<Vec<_>>() {
        producer.await?;
        // Dead keys would accumulate.
        drop(store.drop_dead(&Which::All).await);
    }
    queue.close();
    for worker in workers {
        worker.await?;
    }
    let path = folder.join(name).with_extension(CYCLES);
    fs::write(path, cycles.load(Ordering::Relaxed).to_string())?;
    Ok(())
}

/// Errors are expected: connections are cut all the time.
async fn add(queue: Queue, until: u64, mut random: Random) {
    while now() < until {
        let key = format!("key-{}", random.below(KEYS));
        let delay =
            if random.percent(20) { random.millis(1..2000) } else { Duration::ZERO };
        drop(queue.add_after(key, delay).await);
        sleep(random.millis(0..6)).await;
    }
}

async fn process(queue: Queue, cycles: Arc<AtomicU64>, mut random: Random) {
    loop {
        match queue.get().await {
            Ok(Some(lease)) => {
                sleep(random.millis(0..10)).await;
                let finish = match random.below(100) {
                    0..5 => Finish::Retry,
                    5 => Finish::GiveUp,
                    _ => Finish::Succeed,
                };
                if lease.finish(finish).await.is_ok() {
                    cycles.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(None) => return,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Returns how many keys all processes have processed.
pub(super) fn read_cycles(folder: &Path) -> Result<u64> {
    let mut cycles = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == CYCLES) {
            let text = fs::read_to_string(&path)?;
            cycles += text.parse::<u64>().context("the file contains a number")?;
        }
    }
    Ok(cycles)
}
