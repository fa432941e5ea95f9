//! Workers on plain threads: no runtime, no feature.
//!
//! Run it with `cargo run -p requeue --example thread_workers`. It renders the pages of a
//! small site and ends.
//!
//! What to look for: a page that is changed ten times is rendered once or twice, one whose
//! renderer panics or fails is tried again and does no harm to others, one that never
//! works is dead after four tries, and when the time is over the pool says what it left.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use requeue::pool::{Outcome, Pool};
use requeue::retry::Exponential;
use requeue::{Clock, Queue, SystemClock};

const PAGES: [&str; 8] =
    ["about", "blog", "broken", "contact", "flaky", "index", "news", "panics"];

fn main() -> io::Result<()> {
    std::panic::set_hook(Box::new(|_| {})); // the pool tells us; no need for a backtrace

    let backoff = Exponential::new(Duration::from_millis(20), Duration::from_secs(5));
    let queue = Queue::builder().name("pages").retry(backoff).build();
    let tries = Arc::new(Tries::default());

    let counted = Arc::clone(&tries);
    let pool = Pool::new(queue.clone())
        .workers(2)
        .max_retries(3)
        .on_failure(|page, failure| println!("{page:<8} {failure}"))
        .on_dead(|page, _| println!("{page:<8} is dead"))
        .run(move |page: &&str| render(page, counted.count(page)))?;

    println!("--- ten changes of each page, two workers");
    for _ in 0..10 {
        queue.add_all(PAGES).unwrap();
    }
    SystemClock.park_until(SystemClock.now() + Duration::from_millis(30));
    println!("--- six workers");
    pool.set_workers(6)?;
    queue.add_all(PAGES).unwrap();

    // "news" comes again and again, so the queue never runs empty. All else is over soon.
    SystemClock.park_until(SystemClock.now() + Duration::from_millis(600));
    let stopped = pool.stop_blocking(Duration::from_secs(5));
    let total = tries.total();
    println!("--- {} changes made {total} runs", 11 * PAGES.len());
    println!("--- still running: {:?}; left: {:?}", stopped.still_running, stopped.left);
    Ok(())
}

/// Renders a page. `tries` is how often that was tried before.
fn render(page: &str, tries: u32) -> Result<Outcome, String> {
    // Stands for work that takes its time.
    SystemClock.park_until(SystemClock.now() + Duration::from_millis(10));
    match page {
        "broken" => return Err("a tag is never closed".to_owned()),
        "flaky" if tries < 2 => return Err("the template is being edited".to_owned()),
        "panics" => assert!(tries > 0, "the first render finds no theme"),
        _ => {}
    }
    println!("{page:<8} rendered");
    if page == "news" {
        return Ok(Outcome::After(Duration::from_millis(200))); // it shows the time
    }
    Ok(Outcome::Done)
}

/// How often each page was tried.
#[derive(Default)]
struct Tries(Mutex<HashMap<String, u32>>);

impl Tries {
    fn count(&self, page: &str) -> u32 {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = tries.entry(page.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    fn total(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}
