//! `SharedQueue` on the in-memory store.

mod batches;
mod classes;
mod faults;
mod heartbeat;
mod leases;
mod limiter;
mod locked;
mod metrics;
mod pools;
mod queue;
mod retries;
mod shutdown;
mod spy;

use std::future::Future;
use std::io::Write;
use std::pin::{Pin, pin};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use requeue::testing::FakeClock;
use requeue_store::{EngineClock, MemoryStore, SharedQueue};

use self::spy::Spy;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

/// A queue on a store in memory, with both clocks under control of the test.
struct Bench {
    queue: SharedQueue<String, Spy>,
    spy: Spy,
    /// The clock of the process.
    local: FakeClock,
    /// The clock of the store.
    engine: EngineClock,
}

impl Bench {
    fn new() -> Self {
        let (local, engine) = (FakeClock::new(), EngineClock::new());
        let spy = Spy::on(MemoryStore::with_clock(engine.clone()));
        let queue = SharedQueue::builder(spy.clone())
            .name("mail")
            .lease(LEASE)
            .clock(local.clone())
            .build();
        Self { queue, spy, local, engine }
    }

    /// Advances both clocks.
    fn pass(&self, time: Duration) {
        self.engine.advance(time);
        self.local.advance(time);
    }

    async fn add(&self, key: &str) {
        self.queue.add(key.to_owned()).await.unwrap();
    }
}

/// Aborts a test after a minute, because a test that hangs would not say which one it is.
/// It is not a performance requirement.
struct Limit {
    /// Dropped at the end of the test.
    _running: mpsc::Sender<()>,
}

impl Limit {
    fn start() -> Self {
        let (running, ended) = mpsc::channel::<()>();
        let name = thread::current().name().unwrap_or_default().to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(60 * SECOND) == Err(RecvTimeoutError::Timeout) {
                // Not with a macro, whose output is captured until the end of the test.
                let text = format!("{name} has not ended within a minute\n");
                drop(std::io::stderr().write_all(text.as_bytes()));
                std::process::abort();
            }
        });
        Self { _running: running }
    }
}

/// Lets the other tasks of this thread run until they are idle.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Polls a future once, so that it starts to wait.
fn start<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(is_waiting(future.as_mut()));
    future
}

/// Returns whether a future is still waiting.
fn is_waiting(future: impl Future) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut cx), Poll::Pending)
}
