//! Waiting: whoever waits is woken for each way in which a key becomes ready, and misses
//! none. A wait may return for no reason, so what fails here is one that does not return.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::timeout;

use requeue::Finish;

use super::tools::{LEASE, Trial, all_now, keys, request, secs, worker};
use crate::{Error, Which};

/// How long the waiters here would wait.
const LONG: Duration = Duration::from_secs(600);
/// How late a wake-up may be before it counts as missed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lets somebody wait while `act` makes a key ready, and asserts that it is woken.
async fn is_woken_by(t: &Trial, act: impl Future<Output = ()>) {
    assert!(t.lease(1).await.is_empty(), "there is nothing to have yet");
    let waiter = t.clone();
    let waiting = tokio::spawn(async move { waiter.store.wait(LONG).await });
    tokio::task::yield_now().await;
    act.await;
    let woken = timeout(PATIENCE, waiting).await.expect("the wait is over");
    woken.expect("no panic").expect("the store can be waited for");
    assert_eq!(t.lease(2).await.len(), 1);
}

pub(super) async fn an_add_wakes(t: Trial) {
    is_woken_by(&t, async {
        t.add("a").await;
    })
    .await;
}

pub(super) async fn the_end_of_a_dirty_key_wakes(t: Trial) {
    let grant = t.take("a").await;
    t.add("a").await;
    is_woken_by(&t, async {
        t.finish(&grant, Finish::Done).await;
    })
    .await;
}

pub(super) async fn a_release_wakes(t: Trial) {
    let grant = t.take("a").await;
    is_woken_by(&t, async {
        t.finish(&grant, Finish::Release).await;
    })
    .await;
}

pub(super) async fn a_retry_without_delay_wakes(t: Trial) {
    let grant = t.take("a").await;
    is_woken_by(&t, async {
        t.finish(&grant, Finish::RequeueAfter(Duration::ZERO)).await;
    })
    .await;
}

pub(super) async fn a_reclaim_wakes(t: Trial) {
    t.take("a").await;
    is_woken_by(&t, async {
        t.store.reclaim(&worker(), &[]).await.expect("leases are reclaimed");
    })
    .await;
}

pub(super) async fn a_revival_wakes(t: Trial) {
    t.dead("a").await;
    is_woken_by(&t, async {
        t.store.revive(&Which::All).await.expect("dead keys are revived");
    })
    .await;
}

pub(super) async fn what_somebody_moves_wakes(t: Trial) {
    t.add_after("a", secs(5)).await;
    is_woken_by(&t, async {
        t.clock.advance(secs(5));
        t.expire(None).await;
    })
    .await;
    is_woken_by(&t, async {
        t.clock.advance(LEASE);
        t.expire(None).await;
    })
    .await;
}

pub(super) async fn resuming_wakes(t: Trial) {
    t.store.pause().await.expect("the queue is paused");
    t.add("a").await;
    is_woken_by(&t, async {
        t.store.resume().await.expect("the queue is resumed");
    })
    .await;
}

async fn returns(waiting: impl Future<Output = Result<(), Error>>) {
    let returned = timeout(PATIENCE, waiting).await.expect("the wait is over");
    returned.expect("the store can be waited for");
}

pub(super) async fn a_key_that_came_between_the_lease_and_the_wait_is_not_missed(t: Trial) {
    for _ in 0..20 {
        assert!(t.lease(1).await.is_empty());
        t.add("a").await;
        returns(t.store.wait(LONG)).await;
        let grant = t.lease_one().await;
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn a_key_that_comes_while_somebody_begins_to_wait_is_not_missed(t: Trial) {
    for _ in 0..50 {
        assert!(t.lease(1).await.is_empty());
        let adder = t.clone();
        let adding = tokio::spawn(async move { adder.add("a").await });
        let grant = loop {
            returns(t.store.wait(LONG)).await;
            if let Some(grant) = t.leased(&request(1)).await.grants.pop() {
                break grant;
            }
        };
        adding.await.expect("no panic");
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn each_of_two_keys_wakes_somebody(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    let worker = |t: Trial| async move {
        loop {
            if let Some(grant) = t.leased(&request(1)).await.grants.pop() {
                return grant.key;
            }
            returns(t.store.wait(LONG)).await;
        }
    };
    let both = [tokio::spawn(worker(t.clone())), tokio::spawn(worker(t.clone()))];
    tokio::task::yield_now().await;
    t.receipts(&all_now(&keys(&["a", "b"]))).await;
    let mut got = Vec::new();
    for waiting in both {
        let key = timeout(PATIENCE, waiting).await.expect("the wait is over");
        got.push(key.expect("no panic"));
    }
    got.sort();
    assert_eq!(got, keys(&["a", "b"]));
}

pub(super) async fn whoever_stops_waiting_leaves_the_wake_up_to_another(t: Trial) {
    for _ in 0..10 {
        assert!(t.lease(1).await.is_empty());
        let mut leaving = t.store.wait(LONG);
        let mut staying = pin!(t.store.wait(LONG));
        let mut context = Context::from_waker(Waker::noop());
        let left = leaving.as_mut().poll(&mut context);
        let stayed = staying.as_mut().poll(&mut context);
        t.add("a").await;
        drop(leaving);
        if left.is_pending() && stayed.is_pending() {
            returns(staying).await;
        }
        let grant = t.lease_one().await;
        t.finish(&grant, Finish::Done).await;
    }
}

/// Who is woken and wants no key any more looks all the same, for nothing.
pub(super) async fn a_lease_of_nothing_leaves_the_wake_up_to_another(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    let wait = |t: Trial| async move { t.store.wait(LONG).await };
    let mut both = tokio::task::JoinSet::new();
    both.spawn(wait(t.clone()));
    both.spawn(wait(t.clone()));
    tokio::task::yield_now().await;
    t.add("a").await;
    for _ in 0..2 {
        let woken = timeout(PATIENCE, both.join_next()).await.expect("the wait is over");
        woken.expect("two wait").expect("no panic").expect("the store can be waited for");
        assert!(t.leased(&request(0)).await.grants.is_empty());
    }
    assert_eq!(t.lease(2).await.len(), 1);
}

pub(super) async fn a_wait_lasts_no_longer_than_it_was_told_to(t: Trial) {
    returns(t.store.wait(Duration::from_millis(1))).await;
    returns(t.store.wait(Duration::ZERO)).await;
    t.add_after("a", secs(5)).await;
    returns(t.store.wait(Duration::from_millis(1))).await;
}

pub(super) async fn the_longest_wait_there_is_can_be_asked_for(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    t.add("a").await;
    returns(t.store.wait(Duration::MAX)).await;
}
