//! Finishing a lease does what the table of [`Store::finish`](crate::Store::finish) says, and
//! updates the counters (rule 7).

use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{Trial, at_once, millis, request, secs};
use crate::Finished::{Dead, Delayed, Done, Requeued};
use crate::{Backoff, Finished, Look, Stats, When};

/// Finishes a key with one failure. Checks the answer and the state after it, for a clean
/// and for a dirty key.
async fn assert_finish(
    t: &Trial,
    finish: Finish,
    clean: (Finished, &str),
    dirty: (Finished, &str),
) {
    let grant = t.lease_failed("clean").await;
    assert_eq!(t.finish(&grant, finish).await, clean.0, "{finish:?}");
    assert_eq!(t.state("clean").await, clean.1, "{finish:?}");
    t.remove("clean").await;

    let grant = t.lease_failed("dirty").await;
    assert_eq!(t.add("dirty").await, Added::Dirty);
    assert_eq!(t.finish(&grant, finish).await, dirty.0, "dirty, {finish:?}");
    assert_eq!(t.state("dirty").await, dirty.1, "dirty, {finish:?}");
}

pub(super) async fn done_keeps_failures(t: Trial) {
    let clean = (Done, "absent, failures 1");
    assert_finish(&t, Finish::Done, clean, (Requeued, "ready, failures 1")).await;
}

pub(super) async fn succeed_forgets_failures(t: Trial) {
    assert_finish(&t, Finish::Succeed, (Done, "absent"), (Requeued, "ready")).await;
}

pub(super) async fn retry_counts_a_failure_and_delays(t: Trial) {
    let clean = (Delayed(millis(10)), "absent, delayed 10ms, failures 2");
    let dirty = (Requeued, "ready, delayed 10ms, failures 2");
    assert_finish(&t, Finish::Retry, clean, dirty).await;
}

pub(super) async fn retry_without_a_delay_makes_the_key_ready(t: Trial) {
    let grant = t.lease_failed("a").await;
    assert_eq!(t.retry_with(&grant, at_once(None)).await, Requeued);
    assert_eq!(t.state("a").await, "ready, failures 2");
}

pub(super) async fn retry_after_counts_a_failure_and_delays(t: Trial) {
    let clean = (Delayed(secs(7)), "absent, delayed 7s, failures 2");
    let dirty = (Requeued, "ready, delayed 7s, failures 2");
    assert_finish(&t, Finish::RetryAfter(secs(7)), clean, dirty).await;
}

/// An endpoint that always answers 503 with `Retry-After` never became dead: each answer
/// made its failures start again.
pub(super) async fn retries_after_a_delay_add_up_and_keep_their_error(t: Trial) {
    t.add("a").await;
    for failures in 0..4 {
        let grant = t.lease_one().await;
        assert_eq!(grant.failures, failures);
        t.finish_with_error(&grant, Finish::RetryAfter(secs(1)), "503").await;
        t.clock.advance(secs(1));
    }
    let failing = t.store.failing(9).await.expect("failing succeeds");
    assert_eq!((failing[0].failures, failing[0].error.as_str()), (4, "503"));
}

pub(super) async fn retry_after_zero_makes_the_key_ready(t: Trial) {
    let ready = (Requeued, "ready, failures 2");
    assert_finish(&t, Finish::RetryAfter(Duration::ZERO), ready, ready).await;
}

pub(super) async fn requeue_after_forgets_failures_and_delays(t: Trial) {
    let clean = (Delayed(secs(7)), "absent, delayed 7s");
    let dirty = (Requeued, "ready, delayed 7s");
    assert_finish(&t, Finish::RequeueAfter(secs(7)), clean, dirty).await;
}

pub(super) async fn requeue_after_zero_makes_the_key_ready(t: Trial) {
    let ready = (Requeued, "ready");
    assert_finish(&t, Finish::RequeueAfter(Duration::ZERO), ready, ready).await;
}

pub(super) async fn give_up_makes_a_clean_key_dead(t: Trial) {
    let clean = (Dead, "dead, failures 1");
    assert_finish(&t, Finish::GiveUp, clean, (Requeued, "ready")).await;
}

pub(super) async fn release_takes_its_delivery_back(t: Trial) {
    let ready = (Requeued, "ready, failures 1");
    assert_finish(&t, Finish::Release, ready, ready).await;
}

pub(super) async fn release_keeps_earlier_deliveries(t: Trial) {
    t.lease_new("a").await;
    t.clock.advance(secs(30));
    let second = t.lease_one().await;
    assert_eq!(second.deliveries, 2);
    assert_eq!(t.finish(&second, Finish::Release).await, Requeued);
    assert_eq!(t.state("a").await, "ready, deliveries 1");
    assert_eq!(t.lease_one().await.deliveries, 2);
}

pub(super) async fn every_other_finish_resets_deliveries(t: Trial) {
    for finish in [
        Finish::Done,
        Finish::Succeed,
        Finish::Retry,
        Finish::RetryAfter(secs(1)),
        Finish::RequeueAfter(secs(1)),
    ] {
        t.lease_new("a").await;
        t.clock.advance(secs(30));
        let grant = t.lease_one().await;
        assert_eq!(grant.deliveries, 2, "{finish:?}");
        t.finish(&grant, finish).await;
        assert_eq!(t.look("a").await.deliveries, 0, "{finish:?}");
        t.remove("a").await;
        t.forget("a").await;
    }
}

pub(super) async fn pending_delay_survives_the_finish(t: Trial) {
    for (finish, shows) in [
        (Finish::Done, "absent, delayed 60s"),
        (Finish::Succeed, "absent, delayed 60s"),
        (Finish::Release, "ready, delayed 60s"),
        (Finish::RequeueAfter(Duration::ZERO), "ready, delayed 60s"),
        (Finish::GiveUp, "dead"),
    ] {
        let grant = t.lease_new("a").await;
        t.add_after("a", secs(60)).await;
        t.finish(&grant, finish).await;
        assert_eq!(t.state("a").await, shows, "{finish:?}");
        t.remove("a").await;
    }
    t.clock.advance(secs(60));
    assert!(t.lease(1).await.is_empty(), "the delay of a dead key is cancelled");
}

pub(super) async fn earlier_delay_wins_at_a_finish_too(t: Trial) {
    for (delay, shows) in [(90, "absent, delayed 60s"), (7, "absent, delayed 7s")] {
        let grant = t.lease_new("a").await;
        t.add_after("a", secs(60)).await;
        let finished = t.finish(&grant, Finish::RequeueAfter(secs(delay))).await;
        assert!(matches!(finished, Delayed(_)), "{finished:?}");
        assert_eq!(t.state("a").await, shows);
        t.remove("a").await;
    }
}

pub(super) async fn longest_possible_requeue_is_accepted(t: Trial) {
    let grant = t.lease_new("a").await;
    let finished = t.finish(&grant, Finish::RequeueAfter(Duration::MAX)).await;
    assert!(matches!(finished, Delayed(_)), "{finished:?}");
    assert!(t.look("a").await.delayed > Some(secs(100 * 365 * 24 * 3600)));
}

pub(super) async fn succeeded_key_leaves_nothing_behind(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::Succeed).await;
    assert_eq!(t.look("a").await, Look::default());
    assert_eq!(t.stats().await, Stats::default());
    assert_eq!(t.lease_call(&request(1)).await.more_in, None);
}

pub(super) async fn delays_double_with_each_failure_as_in_client_go(t: Trial) {
    let backoff = Backoff::default();
    let mut delay = 5;
    t.add("a").await;
    for failures in 0..22_u32 {
        let grant = t.lease_one().await;
        assert_eq!(grant.failures, failures);
        let finished = t.retry_with(&grant, backoff).await;
        assert_eq!(
            finished,
            Delayed(millis(delay.min(1_000_000))),
            "{failures} failures"
        );
        t.clock.advance(millis(delay.min(1_000_000)));
        delay *= 2;
    }
}

pub(super) async fn any_backoff_is_accepted(t: Trial) {
    let backoff = Backoff { base: secs(9), max: secs(4), rate: None };
    assert_eq!(t.add_when("a", When::RateLimited(backoff)).await.delay, secs(4));
    let backoff = Backoff { base: Duration::MAX, max: Duration::MAX, rate: None };
    assert_eq!(t.add_when("b", When::RateLimited(backoff)).await.added, Added::Delayed);
    assert!(t.look("b").await.delayed > Some(secs(100 * 365 * 24 * 3600)));
}
