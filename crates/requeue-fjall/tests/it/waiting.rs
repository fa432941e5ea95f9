//! Waiting for keys that become due.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use requeue::Finish;
use requeue_fjall::FjallStore;
use requeue_store::{Reply, Store, When};

use crate::support::{TestQueue, add, add_when, finish, lease};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(5);

fn poll(waiting: &mut Reply<'_, ()>) -> Poll<()> {
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(waiting).poll(&mut context).map(Result::unwrap)
}

/// Starts to wait. Waits that return at once had a wake-up left.
fn start_waiting(store: &FjallStore) -> Reply<'_, ()> {
    loop {
        let mut waiting = store.wait(HOUR);
        if poll(&mut waiting).is_pending() {
            return waiting;
        }
    }
}

/// Only ready keys ended a wait. A key that was delayed while a worker waited was up to 20
/// seconds late.
#[tokio::test]
async fn delay_that_starts_or_moves_forward_ends_a_wait() {
    let queue = TestQueue::new();
    let store = queue.open();
    let mut waiting = start_waiting(&store);
    add_when(&store, "a", When::After(HOUR / 2)).await;
    assert!(poll(&mut waiting).is_ready(), "a delay has started");

    let mut waiting = start_waiting(&store);
    add_when(&store, "b", When::After(HOUR)).await;
    assert!(poll(&mut waiting).is_pending(), "another key is due earlier");
    add_when(&store, "a", When::After(SOON)).await;
    assert!(poll(&mut waiting).is_ready(), "a delay has moved forward");
}

#[tokio::test]
async fn failed_run_ends_the_wait_of_another_handle() {
    let queue = TestQueue::new();
    let store = queue.open();
    add(&store, "a").await;
    let grant = lease(&store, 1).await.remove(0);
    let other = store.clone();
    let mut waiting = start_waiting(&other);
    finish(&store, &grant, Finish::Retry).await;
    assert!(poll(&mut waiting).is_ready());
}

#[tokio::test]
async fn wait_ends_when_the_first_delay_ends() {
    let queue = TestQueue::new();
    let store = queue.open();
    add_when(&store, "a", When::After(SOON)).await;
    // The clock of the store stands still, so only the time limit can end the wait.
    store.wait(HOUR).await.unwrap();
}
