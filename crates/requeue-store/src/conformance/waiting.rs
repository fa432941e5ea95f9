//! Waiting: every way in which a key becomes ready, or a delay ends earlier, wakes a waiter.
//! A wait may return spuriously, so a check fails only if a wait does not return.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::timeout;

use requeue::Finish;

use super::trial::{LEASE, Trial, adds_now, keys, millis, request, secs, worker};
use crate::{Error, Store, Which};

/// The limit of the waits.
const LONG: Duration = Duration::from_secs(600);
/// How late a wake-up may be on a busy machine before it counts as missed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asserts that a waiter is woken when `act` makes a key ready.
async fn assert_wakes(t: &Trial, act: impl Future<Output = ()>) {
    assert!(t.lease(1).await.is_empty(), "no key is ready yet");
    let waiter = t.clone();
    let waiting = tokio::spawn(async move { waiter.store.wait(LONG).await });
    tokio::task::yield_now().await;
    act.await;
    let woken = timeout(PATIENCE, waiting).await.expect("the waiter was not woken");
    woken.expect("no panic").expect("wait succeeds");
    assert_eq!(t.lease(2).await.len(), 1);
}

pub(super) async fn add_wakes_a_waiter(t: Trial) {
    assert_wakes(&t, async {
        t.add("a").await;
    })
    .await;
}

pub(super) async fn finish_of_a_dirty_key_wakes_a_waiter(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add("a").await;
    assert_wakes(&t, async {
        t.finish(&grant, Finish::Done).await;
    })
    .await;
}

pub(super) async fn release_wakes_a_waiter(t: Trial) {
    let grant = t.lease_new("a").await;
    assert_wakes(&t, async {
        t.finish(&grant, Finish::Release).await;
    })
    .await;
}

pub(super) async fn requeue_without_a_delay_wakes_a_waiter(t: Trial) {
    let grant = t.lease_new("a").await;
    assert_wakes(&t, async {
        t.finish(&grant, Finish::RequeueAfter(Duration::ZERO)).await;
    })
    .await;
}

pub(super) async fn reclaim_wakes_a_waiter(t: Trial) {
    t.lease_new("a").await;
    assert_wakes(&t, async {
        t.store.reclaim(&worker(), &[]).await.expect("reclaim succeeds");
    })
    .await;
}

pub(super) async fn revive_wakes_a_waiter(t: Trial) {
    t.make_dead("a").await;
    assert_wakes(&t, async {
        t.store.revive(&Which::All).await.expect("revive succeeds");
    })
    .await;
}

pub(super) async fn moving_due_keys_wakes_a_waiter(t: Trial) {
    t.add_after("a", secs(5)).await;
    assert_wakes(&t, async {
        t.clock.advance(secs(5));
        t.expire(None).await;
    })
    .await;
    assert_wakes(&t, async {
        t.clock.advance(LEASE);
        t.expire(None).await;
    })
    .await;
}

pub(super) async fn resume_wakes_a_waiter(t: Trial) {
    t.store.pause().await.expect("pause succeeds");
    t.add("a").await;
    assert_wakes(&t, async {
        t.store.resume().await.expect("resume succeeds");
    })
    .await;
}

async fn assert_returns(waiting: impl Future<Output = Result<(), Error>>) {
    let returned = timeout(PATIENCE, waiting).await.expect("the waiter was not woken");
    returned.expect("wait succeeds");
}

pub(super) async fn key_added_between_lease_and_wait_is_not_missed(t: Trial) {
    for _ in 0..20 {
        assert!(t.lease(1).await.is_empty());
        t.add("a").await;
        assert_returns(t.store.wait(LONG)).await;
        let grant = t.lease_one().await;
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn key_added_at_the_start_of_a_wait_is_not_missed(t: Trial) {
    for _ in 0..50 {
        assert!(t.lease(1).await.is_empty());
        let adder = t.clone();
        let adding = tokio::spawn(async move { adder.add("a").await });
        let grant = loop {
            assert_returns(t.store.wait(LONG)).await;
            if let Some(grant) = t.lease_call(&request(1)).await.grants.pop() {
                break grant;
            }
        };
        adding.await.expect("no panic");
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn two_keys_wake_two_waiters(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    let worker = |t: Trial| async move {
        loop {
            if let Some(grant) = t.lease_call(&request(1)).await.grants.pop() {
                return grant.key;
            }
            assert_returns(t.store.wait(LONG)).await;
        }
    };
    let both = [tokio::spawn(worker(t.clone())), tokio::spawn(worker(t.clone()))];
    tokio::task::yield_now().await;
    t.receipts(&adds_now(&keys(&["a", "b"]))).await;
    let mut got = Vec::new();
    for waiting in both {
        let key = timeout(PATIENCE, waiting).await.expect("the waiter was not woken");
        got.push(key.expect("no panic"));
    }
    got.sort();
    assert_eq!(got, keys(&["a", "b"]));
}

pub(super) async fn cancelled_wait_passes_its_wake_up_on(t: Trial) {
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
            assert_returns(staying).await;
        }
        let grant = t.lease_one().await;
        t.finish(&grant, Finish::Done).await;
    }
}

/// A woken waiter that no longer wants a key leases zero keys, to pass the wake-up on.
pub(super) async fn lease_of_zero_keys_passes_its_wake_up_on(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    let wait = |t: Trial| async move { t.store.wait(LONG).await };
    let mut both = tokio::task::JoinSet::new();
    both.spawn(wait(t.clone()));
    both.spawn(wait(t.clone()));
    tokio::task::yield_now().await;
    t.add("a").await;
    for _ in 0..2 {
        let woken =
            timeout(PATIENCE, both.join_next()).await.expect("the waiter was not woken");
        woken.expect("both waiters are there").expect("no panic").expect("wait succeeds");
        assert!(t.lease_call(&request(0)).await.grants.is_empty());
    }
    assert_eq!(t.lease(2).await.len(), 1);
}

/// The number of rounds of a check, and its limit. A store that looks once a second takes
/// twice as long.
const ROUNDS: u64 = 60;
const LIMIT: Duration = Duration::from_secs(30);

/// Asserts that a waiter in `waiter` is woken each time `act` makes the first delay end
/// earlier.
async fn assert_notices(
    t: &Trial,
    waiter: &Arc<dyn Store>,
    act: impl AsyncFn(u64),
    clean_up: impl AsyncFn(),
) {
    assert!(t.lease(1).await.is_empty(), "no key is ready");
    let all = async {
        for round in 0..ROUNDS {
            let waiter = Arc::clone(waiter);
            let waiting = tokio::spawn(async move { waiter.wait(LONG).await });
            tokio::task::yield_now().await;
            act(round).await;
            waiting.await.expect("no panic").expect("wait succeeds");
            clean_up().await;
        }
    };
    timeout(LIMIT, all).await.expect("the waiter did not notice a delay");
}

async fn assert_start_is_noticed(t: &Trial, waiter: &Arc<dyn Store>) {
    let start = async |_| {
        t.add_after("a", secs(5)).await;
    };
    let clean_up = async || assert!(t.remove("a").await);
    assert_notices(t, waiter, start, clean_up).await;
}

async fn assert_move_is_noticed(t: &Trial, waiter: &Arc<dyn Store>) {
    t.add_after("a", secs(2 * ROUNDS)).await;
    let forward = async |round| {
        t.add_after("a", secs(2 * ROUNDS - 1 - round)).await;
    };
    assert_notices(t, waiter, forward, async || {}).await;
}

/// A waiter in memory or on a folder looked after 20 seconds, because only ready keys woke
/// it.
pub(super) async fn delay_that_starts_wakes_a_waiter(t: Trial) {
    assert_start_is_noticed(&t, &t.store).await;
}

pub(super) async fn delay_that_moves_forward_wakes_a_waiter(t: Trial) {
    assert_move_is_noticed(&t, &t.store).await;
}

pub(super) async fn retry_wakes_a_waiter(t: Trial) {
    let names: Vec<_> = (0..ROUNDS).map(|n| n.to_string()).collect();
    let mut grants = Vec::new();
    for name in &names {
        t.add(name).await;
        grants.extend(t.lease(1).await);
    }
    let retry = async |round| {
        let grant = &grants[usize::try_from(round).expect("small")];
        t.finish(grant, Finish::RetryAfter(secs(2 * ROUNDS - round))).await;
    };
    assert_notices(&t, &t.store, retry, async || {}).await;
}

pub(super) async fn delay_that_starts_wakes_a_waiter_of_another_handle(t: Trial) {
    assert_start_is_noticed(&t, &t.other).await;
}

pub(super) async fn delay_that_moves_forward_wakes_a_waiter_of_another_handle(t: Trial) {
    assert_move_is_noticed(&t, &t.other).await;
}

/// The next wait must know of a delay that started after the lease call.
pub(super) async fn delay_started_between_lease_and_wait_is_not_missed(t: Trial) {
    let all = async {
        for round in 0..ROUNDS {
            assert!(t.lease(1).await.is_empty());
            t.add_after("a", millis(1)).await;
            assert_returns(t.store.wait(LONG)).await;
            assert!(t.remove("a").await, "round {round}");
        }
    };
    timeout(LIMIT, all).await.expect("the waiter did not notice a delay");
}

pub(super) async fn wait_ends_at_its_limit(t: Trial) {
    assert_returns(t.store.wait(Duration::from_millis(1))).await;
    assert_returns(t.store.wait(Duration::ZERO)).await;
    t.add_after("a", secs(5)).await;
    assert_returns(t.store.wait(Duration::from_millis(1))).await;
}

pub(super) async fn longest_possible_wait_is_accepted(t: Trial) {
    assert!(t.lease(1).await.is_empty());
    t.add("a").await;
    assert_returns(t.store.wait(Duration::MAX)).await;
}
