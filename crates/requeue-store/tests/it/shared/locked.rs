//! A key that somebody has to themselves, as a transaction of a database may, holds up
//! nobody else.

use requeue::Added;
use requeue_store::{ErrorKind, Finished, SharedLease};

use super::*;

/// Lets pauses pass until `done` says so.
async fn until(bench: &Bench, mut done: impl FnMut() -> bool) {
    while !done() {
        settle().await;
        bench.local.advance(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn an_add_of_it_waits_and_those_of_others_do_not() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.take(Some("a"));
    let locked = tokio::spawn({
        let queue = bench.queue.clone();
        async move { queue.add("a".to_owned()).await }
    });
    let others = bench.queue.add_all((0..100).map(|n| n.to_string()));
    assert_eq!(others.await.unwrap().ready, 100);
    settle().await;
    assert!(!locked.is_finished());
    bench.spy.take(None);
    until(&bench, || locked.is_finished()).await;
    assert_eq!(locked.await.unwrap().unwrap(), Added::Ready);
}

#[tokio::test]
async fn adds_that_go_with_it_come_through() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.spy.take(Some("50"));
    let adding = tokio::spawn({
        let queue = bench.queue.clone();
        async move { queue.add_all((0..100).map(|n| n.to_string())).await }
    });
    while bench.queue.len().await.unwrap() < 99 {
        settle().await;
    }
    assert!(!adding.is_finished());
    bench.spy.take(None);
    until(&bench, || adding.is_finished()).await;
    assert_eq!(adding.await.unwrap().unwrap().ready, 100);
}

#[tokio::test]
async fn the_end_of_its_lease_waits_and_those_of_others_do_not() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.queue.add_all((0..100).map(|n| n.to_string())).await.unwrap();
    let leases = bench.queue.try_get_many(100).await.unwrap();
    bench.spy.take(Some("50"));
    let mut ends: Vec<_> =
        leases.into_iter().map(SharedLease::succeed).map(tokio::spawn).collect();
    let locked = ends.remove(50);
    for end in ends {
        assert_eq!(end.await.unwrap().unwrap(), Finished::Done);
    }
    assert!(!locked.is_finished());
    bench.spy.take(None);
    until(&bench, || locked.is_finished()).await;
    assert_eq!(locked.await.unwrap().unwrap(), Finished::Done);
    bench.queue.drain().await;
}

#[tokio::test]
async fn patience_with_it_ends() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.add("a").await;
    let lease = bench.queue.get().await.unwrap().unwrap();
    bench.spy.take(Some("a"));
    let end = tokio::spawn(lease.succeed());
    let queue = bench.queue.clone();
    let add = tokio::spawn(async move { queue.add("a".to_owned()).await });
    until(&bench, || end.is_finished() && add.is_finished()).await;
    for error in [end.await.unwrap().unwrap_err(), add.await.unwrap().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("\"a\""), "{error}");
    }
}

#[tokio::test]
async fn leases_of_others_are_extended() {
    let _limit = Limit::start();
    let bench = Bench::new();
    bench.queue.add_all((0..10).map(|n| n.to_string())).await.unwrap();
    let leases = bench.queue.try_get_many(10).await.unwrap();
    bench.spy.take(Some("5"));
    for _ in 0..3 {
        settle().await;
        bench.pass(LEASE / 3);
    }
    settle().await;
    let lost: Vec<_> = leases.iter().filter(|lease| lease.is_lost()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].key(), "5");
}
