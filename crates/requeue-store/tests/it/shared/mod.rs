//! The queue on a store, on the store in memory: batches, leases, faults, pools.

mod batches;
mod faults;
mod leases;
mod pools;
mod spy;
mod verbs;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use requeue::testing::FakeClock;
use requeue_store::{EngineClock, MemoryStore, SharedQueue};

use self::spy::Spy;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

/// A queue on a store in memory, with both clocks in the test's hand.
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

    /// Lets time pass for everybody.
    fn pass(&self, time: Duration) {
        self.engine.advance(time);
        self.local.advance(time);
    }

    async fn add(&self, key: &str) {
        self.queue.add(key.to_owned()).await.unwrap();
    }
}

/// Lets the other tasks of this thread run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Whether a future is still waiting.
fn is_waiting(future: impl Future) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut cx), Poll::Pending)
}
