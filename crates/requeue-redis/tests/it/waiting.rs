//! Waiting for keys.

use std::time::Duration;

use requeue_store::{Add, RepliesExt, SharedQueue, Store, When};

use crate::support::server::TestServer;
use crate::support::{add, key, lease, new_queue, request};

const MINUTE: Duration = Duration::from_secs(60);

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// The task with the blocking command had died with its runtime, but it seemed to run. No
/// wait was ever woken again.
#[test]
fn a_wait_works_after_the_runtime_of_another_has_ended() {
    let (first, second) = (runtime(), runtime());
    let Some(own) = first.block_on(TestServer::start()) else { return };
    let builder = new_queue(&own.url);
    let store = first.block_on(builder.clone().open()).unwrap();
    let waiting = first.spawn({
        let store = store.clone();
        async move { store.wait(MINUTE * 60).await }
    });
    first.block_on(own.wait_until_blocked());
    first.shutdown_timeout(MINUTE);
    second.block_on(async {
        waiting.await.unwrap_err();
        let producer = builder.open().await.unwrap();
        assert!(producer.lease(&request(1)).await.unwrap().grants.is_empty());
        let waiting = tokio::spawn({
            let store = store.clone();
            // The first call may use a connection of the other runtime.
            async move { while store.wait(MINUTE * 60).await.is_err() {} }
        });
        own.wait_until_blocked().await;
        add(&producer, &["a"]).await;
        tokio::time::timeout(MINUTE, waiting).await.unwrap().unwrap();
        let leased = lease(&producer, 5).await;
        assert_eq!(leased.len(), 1);
    });
}

/// A waiter must not sleep until the time that it knew before it began to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_delay_that_starts_or_moves_during_a_wait_is_noticed_by_another_process() {
    for before in [None, Some(MINUTE * 60)] {
        let Some(own) = TestServer::start().await else { return };
        let builder = new_queue(&own.url).partitions(2);
        let worker = builder.clone().open().await.unwrap();
        let producer = builder.open().await.unwrap();
        if let Some(delay) = before {
            let late = Add::new(key("a"), When::After(delay));
            producer.add(&[late]).all().await.unwrap();
        }
        let queue = SharedQueue::<String, _>::new(worker);
        let getting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await }
        });
        own.wait_until_blocked().await;
        let soon = Add::new(key("a"), When::After(Duration::from_millis(5)));
        producer.add(&[soon]).all().await.unwrap();
        // The queue looks by itself only after 20 seconds.
        let limit = Duration::from_secs(15);
        let got = tokio::time::timeout(limit, getting).await.expect("it was noticed");
        got.unwrap().unwrap().unwrap().succeed().await.unwrap();
    }
}

/// A revived key is due in 1000 seconds. That must not end a wait, nor be missed.
#[tokio::test]
async fn a_lease_reports_when_a_revived_key_is_due() {
    let Some(own) = TestServer::start().await else { return };
    let clock = requeue_store::EngineClock::new();
    let store = new_queue(&own.url).clock(clock.clone()).open().await.unwrap();
    let max_deliveries = std::num::NonZeroU32::new(1);
    let last = requeue_store::LeaseRequest { max_deliveries, ..request(1) };
    add(&store, &["a"]).await;
    assert_eq!(store.lease(&last).await.unwrap().grants.len(), 1);
    add(&store, &["a"]).await;
    clock.advance(last.lease);
    let expired = store.expire(max_deliveries).await.unwrap();
    assert_eq!((expired.returned, expired.dead), (1, 0));
    let leased = store.lease(&last).await.unwrap();
    assert_eq!(leased.more_in, Some(Duration::from_secs(1000)));
}
