//! Ends and extensions by somebody who does not hold the lease: refused, and nothing is
//! changed.

use requeue::Finish;

use super::tools::{ERROR, LEASE, Trial, hold, key, keys, secs, words, worker};
use crate::{FinishRequest, Finished, Grant, Hold, Look, Stats, Token};

fn finishes() -> [Finish; 7] {
    [
        Finish::Succeed,
        Finish::RequeueAfter(secs(9)),
        Finish::Retry,
        Finish::RetryAfter(secs(9)),
        Finish::GiveUp,
        Finish::Release,
        Finish::Done,
    ]
}

/// Whatever the holder of `stale` tries, it is refused, and looks stay as they are.
async fn is_refused(t: &Trial, stale: &Hold, shows: &str) {
    let watched = keys(&["a", "b"]);
    let before: Vec<Look> = t.store.look(&watched).await.expect("keys are looked up");
    let words = words(&before[0]);
    assert!(words.starts_with(shows), "{words}");
    for finish in finishes() {
        let request = FinishRequest::new(stale.clone(), finish);
        assert_eq!(t.finish_all(&[request]).await, [Finished::LeaseLost], "{shows}, {finish:?}");
        let after = t.store.look(&watched).await.expect("keys are looked up");
        assert_eq!(after, before, "{shows}, {finish:?}");
    }
    let kept = t.store.extend(&worker(), std::slice::from_ref(stale), secs(9999)).await;
    assert_eq!(kept.expect("leases are extended"), [false], "{shows}");
    let after = t.store.look(&watched).await.expect("keys are looked up");
    assert_eq!(after, before, "{shows}, extended");
}

async fn has_run_out(t: &Trial) -> Grant {
    let grant = t.take_failed("a").await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    grant
}

pub(super) async fn of_a_key_that_nobody_knows(t: Trial) {
    let unknown = Hold { key: key("a"), token: Token(t.clock.now().micros()) };
    is_refused(&t, &unknown, "absent").await;
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn of_a_key_that_was_never_leased(t: Trial) {
    t.add("a").await;
    is_refused(&t, &Hold { key: key("a"), token: Token(0) }, "ready").await;
    is_refused(&t, &Hold { key: key("a"), token: Token(u64::MAX >> 1) }, "ready").await;
    assert_eq!(t.lease(5).await.len(), 1);
}

pub(super) async fn of_a_key_that_has_ended(t: Trial) {
    let grant = t.take("a").await;
    t.finish(&grant, Finish::Done).await;
    is_refused(&t, &hold(&grant), "absent").await;
}

pub(super) async fn of_a_key_that_is_delayed(t: Trial) {
    let grant = t.take("a").await;
    t.finish(&grant, Finish::RequeueAfter(secs(5))).await;
    is_refused(&t, &hold(&grant), "absent, delayed 5s").await;
}

pub(super) async fn of_a_key_whose_lease_ran_out(t: Trial) {
    let grant = has_run_out(&t).await;
    is_refused(&t, &hold(&grant), "ready, failures 1, deliveries 1").await;
    assert_eq!(t.lease_one().await.deliveries, 2);
}

pub(super) async fn of_a_key_that_another_holds(t: Trial) {
    let grant = has_run_out(&t).await;
    let next = t.lease_one().await;
    is_refused(&t, &hold(&grant), "processing, failures 1, deliveries 2").await;
    t.add("a").await;
    is_refused(&t, &hold(&grant), "dirty, failures 1, deliveries 2").await;
    assert_eq!(t.finish(&next, Finish::Done).await, Finished::Requeued);
}

pub(super) async fn of_a_key_that_the_same_worker_holds_again(t: Trial) {
    let first = t.take("a").await;
    t.finish(&first, Finish::Release).await;
    let second = t.lease_one().await;
    is_refused(&t, &hold(&first), "processing").await;
    assert_eq!(t.finish(&second, Finish::Done).await, Finished::Done);
}

pub(super) async fn of_a_key_by_the_token_of_another_key(t: Trial) {
    let a = t.take("a").await;
    let b = t.take("b").await;
    let mixed = Hold { key: a.key.clone(), token: Token(b.token.0.max(a.token.0) + 1) };
    is_refused(&t, &mixed, "processing").await;
    assert_eq!(t.finish(&b, Finish::Done).await, Finished::Done);
    assert_eq!(t.finish(&a, Finish::Done).await, Finished::Done);
}

pub(super) async fn of_a_dead_key(t: Trial) {
    let grant = t.take_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    is_refused(&t, &hold(&grant), "dead, failures 1").await;
    let dead = t.store.dead(5).await.expect("dead keys are listed");
    assert_eq!(dead[0].reason, ERROR);
}

pub(super) async fn a_refused_extension_does_not_lengthen_the_lease_of_another(t: Trial) {
    let grant = has_run_out(&t).await;
    t.lease_one().await;
    assert!(!t.extend(&grant, secs(9999)).await);
    t.clock.advance(LEASE);
    assert_eq!(t.expire(None).await.returned, 1);
}
