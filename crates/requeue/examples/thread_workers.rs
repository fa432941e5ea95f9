//! Workers on plain threads, without an async runtime.
//!
//! `cargo run -p requeue --example thread_workers` renders the pages of a small site.
//!
//! Many changes of a page collapse into one or two runs. A page that fails or panics is
//! retried without disturbing the others, and is dead after its last retry. When the pool
//! stops, it returns the keys that are left.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use requeue::pool::{Pool, Run};
use requeue::retry::Exponential;
use requeue::{Clock, Finish, Queue, SystemClock};

const PAGES: [&str; 8] =
    ["about", "blog", "broken", "contact", "flaky", "index", "news", "panics"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::panic::set_hook(Box::new(|_| {})); // `on_failure` prints the message

    let backoff = Exponential::new(Duration::from_millis(20), Duration::from_secs(5));
    let queue = Queue::builder().name("pages").retry(backoff).build();
    let runs = Arc::new(AtomicU32::new(0));

    let count = Arc::clone(&runs);
    let pool = Pool::new(queue.clone())
        .workers(2)
        .max_retries(3)
        .on_failure(|page, failure| println!("{page:<8} {failure}"))
        .on_dead(|page, _| println!("{page:<8} is dead"))
        .spawn_threads(move |run| {
            count.fetch_add(1, Ordering::Relaxed);
            render(run)
        })?;

    println!("--- ten changes of each page, two workers");
    for _ in 0..10 {
        queue.add_all(PAGES)?;
    }
    pause(Duration::from_millis(30));
    println!("--- one more change, six workers");
    pool.set_workers(6)?;
    queue.add_all(PAGES)?;

    // "news" is requeued forever. The other pages are finished by then.
    pause(Duration::from_millis(600));
    let stopped = pool.stop_blocking(Duration::from_secs(5));
    println!("--- {} changes, {} runs", 11 * PAGES.len(), runs.load(Ordering::Relaxed));
    println!("--- still running: {:?}; left: {:?}", stopped.still_running, stopped.left);
    Ok(())
}

fn render(run: &Run<&str>) -> Result<Finish, &'static str> {
    pause(Duration::from_millis(10)); // stands for work
    match *run.key() {
        "broken" => return Err("a tag is never closed"),
        "flaky" if run.attempt() < 3 => return Err("the template is being edited"),
        "panics" => assert!(run.attempt() > 1, "there is no theme yet"),
        _ => {}
    }
    println!("{:<8} rendered", run.key());
    match *run.key() {
        "news" => Ok(Finish::RequeueAfter(Duration::from_millis(200))),
        _ => Ok(Finish::Succeed),
    }
}

fn pause(duration: Duration) {
    SystemClock.park_until(SystemClock.now() + duration);
}
