//! A finish or an extension with a token that is not current is refused and changes
//! nothing.

use requeue::Finish;

use super::trial::{ERROR, LEASE, Trial, hold, key, keys, secs, summary, worker};
use crate::{RepliesExt, FinishRequest, Finished, Grant, Hold, Look, Stats, Token};

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

/// Checks that every finish and extension of `refused` is refused and changes nothing.
async fn is_refused(t: &Trial, refused: &Hold, state: &str) {
    let watched = keys(&["a", "b"]);
    let before: Vec<Look> = t.store.look(&watched).all().await.expect("look succeeds");
    let summary = summary(&before[0]);
    assert!(summary.starts_with(state), "{summary}");
    for finish in finishes() {
        let request = FinishRequest::new(refused.clone(), finish);
        assert_eq!(
            t.finish_all(&[request]).await,
            [Finished::LeaseLost],
            "{state}, {finish:?}"
        );
        let after = t.store.look(&watched).all().await.expect("look succeeds");
        assert_eq!(after, before, "{state}, {finish:?}");
    }
    let extended =
        t.store.extend(&worker(), std::slice::from_ref(refused), secs(9999)).all().await;
    assert_eq!(extended.expect("extend succeeds"), [false], "{state}");
    let after = t.store.look(&watched).all().await.expect("look succeeds");
    assert_eq!(after, before, "{state}, extended");
}

async fn lease_expired(t: &Trial) -> Grant {
    let grant = t.lease_failed("a").await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    grant
}

pub(super) async fn unknown_key_is_refused(t: Trial) {
    let unknown = Hold { key: key("a"), token: Token(t.clock.now().micros()) };
    is_refused(&t, &unknown, "absent").await;
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn ready_key_is_refused(t: Trial) {
    t.add("a").await;
    is_refused(&t, &Hold { key: key("a"), token: Token(0) }, "ready").await;
    is_refused(&t, &Hold { key: key("a"), token: Token(u64::MAX >> 1) }, "ready").await;
    assert_eq!(t.lease(5).await.len(), 1);
}

pub(super) async fn finished_key_is_refused(t: Trial) {
    let grant = t.lease_new("a").await;
    t.finish(&grant, Finish::Done).await;
    is_refused(&t, &hold(&grant), "absent").await;
}

pub(super) async fn delayed_key_is_refused(t: Trial) {
    let grant = t.lease_new("a").await;
    t.finish(&grant, Finish::RequeueAfter(secs(5))).await;
    is_refused(&t, &hold(&grant), "absent, delayed 5s").await;
}

pub(super) async fn expired_lease_is_refused(t: Trial) {
    let grant = lease_expired(&t).await;
    is_refused(&t, &hold(&grant), "ready, failures 1, deliveries 1").await;
    assert_eq!(t.lease_one().await.deliveries, 2);
}

pub(super) async fn key_leased_to_another_owner_is_refused(t: Trial) {
    let grant = lease_expired(&t).await;
    let next = t.lease_one().await;
    is_refused(&t, &hold(&grant), "processing, failures 1, deliveries 2").await;
    t.add("a").await;
    is_refused(&t, &hold(&grant), "dirty, failures 1, deliveries 2").await;
    assert_eq!(t.finish(&next, Finish::Done).await, Finished::Requeued);
}

pub(super) async fn older_token_of_the_same_owner_is_refused(t: Trial) {
    let first = t.lease_new("a").await;
    t.finish(&first, Finish::Release).await;
    let second = t.lease_one().await;
    is_refused(&t, &hold(&first), "processing").await;
    assert_eq!(t.finish(&second, Finish::Done).await, Finished::Done);
}

pub(super) async fn token_of_another_key_is_refused(t: Trial) {
    let a = t.lease_new("a").await;
    let b = t.lease_new("b").await;
    let mixed = Hold { key: a.key.clone(), token: Token(b.token.0.max(a.token.0) + 1) };
    is_refused(&t, &mixed, "processing").await;
    assert_eq!(t.finish(&b, Finish::Done).await, Finished::Done);
    assert_eq!(t.finish(&a, Finish::Done).await, Finished::Done);
}

pub(super) async fn dead_key_is_refused(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    is_refused(&t, &hold(&grant), "dead, failures 1").await;
    let dead = t.store.dead(5).await.expect("dead succeeds");
    assert_eq!(dead[0].reason, ERROR);
}

pub(super) async fn refused_extension_does_not_extend_the_current_lease(t: Trial) {
    let grant = lease_expired(&t).await;
    t.lease_one().await;
    assert!(!t.extend(&grant, secs(9999)).await);
    t.clock.advance(LEASE);
    assert_eq!(t.expire(None).await.returned, 1);
}
