//! Workers without a pool: threads and tasks that share one queue.
//!
//! `cargo run -p requeue --example workers` runs until Ctrl-C. It then drains the queue and
//! prints the keys that are left.
//!
//! A producer reports changes of services faster than the workers can check them. The reports
//! collapse into few runs, no service is checked by two workers at once, and a service that
//! fails is retried with backoff.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use requeue::retry::Exponential;
use requeue::{Clock, Closed, Finish, Lease, Queue, SystemClock, Timer};

const SERVICES: [&str; 6] = ["auth", "billing", "cart", "flaky-mail", "search", "web"];
const WORK: Duration = Duration::from_millis(80);

static RUNS: AtomicU32 = AtomicU32::new(0);
static REPORTS: AtomicU32 = AtomicU32::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backoff = Exponential::new(Duration::from_millis(500), Duration::from_secs(10));
    let queue = Queue::builder().name("services").retry(backoff).build();

    let threads = ["thread 1", "thread 2"].map(|worker| {
        let queue = queue.clone();
        thread::spawn(move || work_on_thread(&queue, worker))
    });
    let tasks = ["task 1", "task 2"]
        .map(|worker| tokio::spawn(work_in_task(queue.clone(), worker)));

    tokio::select! {
        closed = report_changes(&queue) => closed?,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    println!("--- draining");
    let left = queue.drain().await;
    for task in tasks {
        task.await?;
    }
    for thread in threads {
        thread.join().expect("a worker does not panic");
    }
    let [reports, runs] = [&REPORTS, &RUNS].map(|count| count.load(Ordering::Relaxed));
    println!("--- {reports} reports, {runs} runs; left: {left:?}");
    Ok(())
}

/// Reports a change of each service every 50 milliseconds.
async fn report_changes(queue: &Queue<String>) -> Result<(), Closed> {
    loop {
        for service in SERVICES {
            queue.add_ref(service)?;
            REPORTS.fetch_add(1, Ordering::Relaxed);
        }
        Timer::after(Duration::from_millis(50)).await;
    }
}

/// Ends each lease and waits for the next key in one call.
fn work_on_thread(queue: &Queue<String>, worker: &str) {
    let mut next = queue.get_blocking();
    while let Some(lease) = next {
        SystemClock.park_until(SystemClock.now() + WORK);
        let finish = check(&lease, worker);
        next = lease.next_blocking_with(finish);
    }
}

async fn work_in_task(queue: Queue<String>, worker: &str) {
    let mut next = queue.get().await;
    while let Some(lease) = next {
        Timer::after(WORK).await;
        let finish = check(&lease, worker);
        next = lease.next_with(finish).await;
    }
}

/// Checks a service. A flaky one fails three times before it succeeds.
fn check(lease: &Lease<String>, worker: &str) -> Finish {
    RUNS.fetch_add(1, Ordering::Relaxed);
    let failures = lease.num_requeues();
    if lease.starts_with("flaky") && failures < 3 {
        println!("{worker:<8}  {:<10}  failed {} times", lease.key(), failures + 1);
        return Finish::Retry;
    }
    println!("{worker:<8}  {:<10}  ok", lease.key());
    Finish::Succeed
}
