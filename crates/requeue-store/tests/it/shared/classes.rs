//! Transient errors never close a handle, and an error of one key affects no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::pool::Pool;
use requeue_store::ErrorKind::{
    self, Busy, Closed, Conflict, Corrupt, Denied, Full, Invalid, LeaseLost, Poisoned,
    ReadOnly, Server, Timeout, Unavailable, Unknown, Version,
};
use requeue_store::{Class, Error, Store};

use super::spy::Fault;
use super::*;

const TRANSIENT: [ErrorKind; 7] =
    [Busy, Timeout, Full, Unavailable, Unknown, ReadOnly, Denied];

/// The table in the documentation of [`Class`].
#[test]
fn each_kind_has_its_class() {
    let table = [
        (Class::RetryHere, &[Busy, Timeout, Full][..]),
        (Class::RetryElsewhere, &[Unavailable, Unknown, ReadOnly, Denied]),
        (Class::GiveUpKey, &[LeaseLost, Invalid]),
        (Class::GiveUp, &[Conflict, Corrupt, Version, Poisoned, Closed, Server]),
    ];
    for (class, kinds) in table {
        for kind in kinds {
            let error = Error::new(*kind, "why");
            assert_eq!(error.class(), class, "{kind:?}");
            assert_eq!(error.is_transient(), TRANSIENT.contains(kind), "{kind:?}");
        }
    }
}

/// Redis `OOM`, and a deadlock on PostgreSQL that came for the sixth time, closed the handle
/// of a pool.
#[tokio::test]
async fn pool_survives_every_transient_error_of_every_call() {
    let _limit = Limit::start();
    for kind in TRANSIENT {
        let bench = Bench::new();
        for call in ["add", "lease", "wait", "extend", "heartbeat", "finish"] {
            for _ in 0..6 {
                bench.spy.fail(call, Fault::Error(kind));
            }
        }
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        let pool = Pool::new(bench.queue.clone())
            .clock(bench.local.clone())
            .spawn_tasks(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                async {}
            })
            .unwrap();
        let queue = bench.queue.clone();
        let add = tokio::spawn(async move { queue.add("a".to_owned()).await.map(drop) });
        for _ in 0..400 {
            settle().await;
            bench.pass(SECOND / 20);
        }
        assert!(add.await.unwrap().is_ok(), "{kind:?}");
        assert!(!bench.queue.is_closed(), "{kind:?}");
        assert_eq!(ran.load(Ordering::Relaxed), 1, "{kind:?}");
        let stats = bench.spy.store.stats().await.unwrap();
        assert_eq!(stats.processing, 0, "{kind:?}: its finish was repeated");
        pool.stop(SECOND).await;
    }
}

#[tokio::test]
async fn pool_ends_if_the_store_cannot_be_used() {
    let _limit = Limit::start();
    for kind in [Conflict, Corrupt, Version, Poisoned, Server] {
        let bench = Bench::new();
        bench.spy.fail("lease", Fault::Error(kind));
        let pool = Pool::new(bench.queue.clone()).spawn_tasks(|_| async {}).unwrap();
        settle().await;
        assert!(bench.queue.is_closed(), "{kind:?}");
        pool.stop(SECOND).await;
    }
}

/// A failing key blocked the sender for the queue's patience.
#[tokio::test]
async fn failing_key_delays_no_other_key() {
    let _limit = Limit::start();
    for kind in TRANSIENT {
        let bench = Bench::new();
        bench.spy.fail_key(Some("bad"), kind);
        let queue = bench.queue.clone();
        let bad =
            tokio::spawn(async move { queue.add("bad".to_owned()).await.map(drop) });
        settle().await;
        bench.add("alone").await;
        let all = (0..300).map(|n| n.to_string());
        assert_eq!(bench.queue.add_all(all).await.unwrap().ready, 300, "{kind:?}");
        assert!(!bad.is_finished(), "{kind:?}");
        bench.spy.fail_key(None, kind);
        while !bad.is_finished() {
            settle().await;
            bench.local.advance(SECOND / 100);
        }
        assert!(bad.await.unwrap().is_ok(), "{kind:?}");
    }
}

/// A key that fails for good failed its whole batch.
#[tokio::test]
async fn permanent_error_of_a_key_fails_no_other_key() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.fail_key(Some("7"), Corrupt);
    let adds: Vec<_> = (0..20).map(|n| start(bench.queue.add(n.to_string()))).collect();
    for (number, add) in adds.into_iter().enumerate() {
        assert_eq!(add.await.is_err(), number == 7, "{number}");
    }
}
