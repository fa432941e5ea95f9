//! Producers report changes of services; threads and tasks bring each service to its
//! right state. Run it with `cargo run --release -p requeue --example workers`.
//!
//! What to look for: many reports make few runs, no service is with two workers at a
//! time, and one that fails comes again later each time, unless a new report brings it
//! back at once.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use requeue::retry::Exponential;
use requeue::{Clock, Lease, Queue, SystemClock};

const SERVICES: [&str; 6] = ["auth", "billing", "cart", "flaky-mail", "search", "web"];
const ROUNDS: u32 = 4;
const WORK: Duration = Duration::from_millis(8);

fn main() {
    let backoff = Exponential::new(Duration::from_millis(50), Duration::from_secs(1));
    let queue = Queue::<String>::builder().name("services").retry(backoff).build();
    let log = Log::new();

    let (queue, log) = (&queue, &log);
    thread::scope(|scope| {
        for worker in ["thread 1", "thread 2"] {
            scope.spawn(|| work_on_thread(queue, log, worker));
        }
        for worker in ["task 3", "task 4"] {
            scope.spawn(|| block_on(work_in_task(queue, log, worker)));
        }
        let producers =
            [1, 2, 3].map(|pause| scope.spawn(move || produce(queue, log, pause)));
        for producer in producers {
            producer.join().expect("a producer does not panic");
        }
        queue.wait_idle_blocking();
        queue.close();
    });
    log.sum_up();
}

/// Reports a change of every service, again and again.
fn produce(queue: &Queue<String>, log: &Log, pause: u64) {
    for _ in 0..ROUNDS {
        for service in SERVICES {
            queue.add_ref(service).unwrap();
            log.reports.fetch_add(1, Ordering::Relaxed);
        }
        SystemClock.park_until(SystemClock.now() + Duration::from_millis(pause));
    }
}

fn work_on_thread(queue: &Queue<String>, log: &Log, worker: &str) {
    while let Some(lease) = queue.get_blocking() {
        log.start(&lease);
        SystemClock.park_until(SystemClock.now() + WORK);
        finish(lease, log, worker);
    }
}

async fn work_in_task(queue: &Queue<String>, log: &Log, worker: &str) {
    while let Some(lease) = queue.get().await {
        log.start(&lease);
        SystemClock.timer(SystemClock.now() + WORK).await;
        finish(lease, log, worker);
    }
}

/// Ends the work on a service: a flaky one fails three times before it goes well.
fn finish(lease: Lease<String>, log: &Log, worker: &str) {
    let service = lease.key().clone();
    let failed = service.starts_with("flaky") && lease.num_requeues() < 3;
    log.end(&service);
    if failed {
        let delay = lease.retry();
        log.line(worker, &service, &format!("failed, again in {delay:?}"));
    } else {
        lease.succeed();
        log.line(worker, &service, "ok");
    }
}

/// What happened so far.
struct Log {
    began: Instant,
    reports: AtomicU32,
    runs: AtomicU32,
    /// How many workers each service is with.
    holders: Mutex<HashMap<String, u32>>,
}

impl Log {
    fn new() -> Self {
        Self {
            began: SystemClock.now(),
            reports: AtomicU32::new(0),
            runs: AtomicU32::new(0),
            holders: Mutex::default(),
        }
    }

    fn start(&self, service: &str) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let holders = self.hold(service, 1);
        assert_eq!(holders, 1, "{service} is with two workers");
    }

    fn end(&self, service: &str) {
        self.hold(service, -1);
    }

    fn hold(&self, service: &str, change: i32) -> u32 {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let count = holders.entry(service.to_owned()).or_default();
        *count = count.saturating_add_signed(change);
        *count
    }

    fn line(&self, worker: &str, service: &str, outcome: &str) {
        let ms = (SystemClock.now() - self.began).as_millis();
        println!("{ms:>4} ms  {worker:<8}  {service:<10}  {outcome}");
    }

    fn sum_up(&self) {
        let [reports, runs] =
            [&self.reports, &self.runs].map(|count| count.load(Ordering::Relaxed));
        println!("{reports} reports made {runs} runs; no service was with two workers");
    }
}
