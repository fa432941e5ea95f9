//! A key that a transaction locks does not delay other keys.

use requeue::Added;
use requeue_store::{ErrorKind, Finished, SharedLease};

use super::*;

/// Advances the clock until `done` returns true.
async fn until(bench: &Bench, mut done: impl FnMut() -> bool) {
    while !done() {
        settle().await;
        bench.local.advance(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn add_of_a_locked_key_delays_no_other_add() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.lock_key(Some("a"));
    let locked = tokio::spawn({
        let queue = bench.queue.clone();
        async move { queue.add("a".to_owned()).await }
    });
    let others = bench.queue.add_all((0..100).map(|n| n.to_string()));
    assert_eq!(others.await.unwrap().ready, 100);
    settle().await;
    assert!(!locked.is_finished());
    bench.spy.lock_key(None);
    until(&bench, || locked.is_finished()).await;
    assert_eq!(locked.await.unwrap().unwrap(), Added::Ready);
}

#[tokio::test]
async fn adds_in_the_same_batch_succeed() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.lock_key(Some("50"));
    let adding = tokio::spawn({
        let queue = bench.queue.clone();
        async move { queue.add_all((0..100).map(|n| n.to_string())).await }
    });
    while bench.queue.len().await.unwrap() < 99 {
        settle().await;
    }
    assert!(!adding.is_finished());
    bench.spy.lock_key(None);
    until(&bench, || adding.is_finished()).await;
    assert_eq!(adding.await.unwrap().unwrap().ready, 100);
}

#[tokio::test]
async fn finish_of_a_locked_key_delays_no_other_finish() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.queue.add_all((0..100).map(|n| n.to_string())).await.unwrap();
    let leases = bench.queue.try_get_many(100).await.unwrap();
    bench.spy.lock_key(Some("50"));
    let mut finishes: Vec<_> =
        leases.into_iter().map(SharedLease::succeed).map(tokio::spawn).collect();
    let locked = finishes.remove(50);
    for finish in finishes {
        assert_eq!(finish.await.unwrap().unwrap(), Finished::Done);
    }
    assert!(!locked.is_finished());
    bench.spy.lock_key(None);
    until(&bench, || locked.is_finished()).await;
    assert_eq!(locked.await.unwrap().unwrap(), Finished::Done);
    bench.queue.shutdown().await;
}

#[tokio::test]
async fn patience_with_a_locked_key_ends() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.lock_key(Some("a"));
    let finish = tokio::spawn(lease.succeed());
    let queue = bench.queue.clone();
    let add = tokio::spawn(async move { queue.add("a".to_owned()).await });
    until(&bench, || finish.is_finished() && add.is_finished()).await;
    for error in
        [finish.await.unwrap().unwrap_err(), add.await.unwrap().unwrap_err().into()]
    {
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("\"a\""), "{error}");
    }
}

#[tokio::test]
async fn other_leases_are_extended() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.queue.add_all((0..10).map(|n| n.to_string())).await.unwrap();
    let leases = bench.queue.try_get_many(10).await.unwrap();
    bench.spy.lock_key(Some("5"));
    for _ in 0..3 {
        settle().await;
        bench.pass(LEASE / 3);
    }
    settle().await;
    let lost: Vec<_> = leases.iter().filter(|lease| lease.is_lost()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].key(), "5");
}
