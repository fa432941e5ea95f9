//! Operators can pause a queue, count, forget and remove keys, and list failing keys and
//! workers.

use std::time::Duration;

use requeue::Finish;

use super::trial::{
    LEASE, Trial, adds_now, key, keys, millis, request, secs, summary, worker,
};
use crate::{RepliesExt, 
    Backoff, Failing, Finished, LeaseRequest, Look, Owner, Stats, When, Which, Worker,
};

async fn failing(t: &Trial, limit: usize) -> Vec<Failing> {
    let mut failing = t.store.failing(limit).await.expect("failing succeeds");
    failing.sort_by(|a, b| a.key.cmp(&b.key));
    failing
}

async fn workers(t: &Trial) -> Vec<Worker> {
    let mut workers = t.store.workers().await.expect("workers succeeds");
    workers.sort_by(|a, b| a.owner.cmp(&b.owner));
    workers
}

async fn pause(t: &Trial) {
    t.store.pause().await.expect("pause succeeds");
}

async fn resume(t: &Trial) {
    t.store.resume().await.expect("resume succeeds");
}

pub(super) async fn heartbeat_lists_an_idle_owner(t: Trial) {
    let idle = Owner::new("idle");
    t.store.heartbeat(&idle).await.expect("heartbeat succeeds");
    t.clock.advance(secs(7));
    let workers = t.store.workers().await.expect("workers succeeds");
    assert_eq!(workers, [Worker { owner: idle, seen: secs(7), processing: 0 }]);
}

pub(super) async fn store_describes_itself(t: Trial) {
    assert!(!t.store.describe().is_empty());
}

pub(super) async fn paused_queue_delivers_nothing_until_it_is_resumed(t: Trial) {
    t.add("a").await;
    pause(&t).await;
    pause(&t).await;
    let leased = t.lease_call(&request(1)).await;
    assert!(leased.grants.is_empty() && leased.paused);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    assert!(t.lease_call(&other).await.paused);
    assert!(t.stats().await.paused);
    resume(&t).await;
    assert!(!t.stats().await.paused);
    assert_eq!(t.lease_one().await.key, key("a"));
    assert!(!t.lease_call(&request(1)).await.paused);
}

pub(super) async fn pausing_stops_only_deliveries(t: Trial) {
    let grant = t.lease_new("a").await;
    t.lease_new("b").await;
    pause(&t).await;
    assert_eq!(t.add("a").await, requeue::Added::Dirty);
    assert!(t.extend(&grant, secs(60)).await);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    t.add_after("c", secs(1)).await;
    t.clock.advance(LEASE);
    assert!(t.lease(9).await.is_empty());
    let stats = t.stats().await;
    assert_eq!((stats.ready, stats.processing, stats.delayed), (3, 0, 0));
}

pub(super) async fn stats_of_an_empty_queue_are_zero(t: Trial) {
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn stats_count_every_state(t: Trial) {
    t.make_dead("dead").await;
    t.add("dirty").await;
    let grant = t.lease_one().await;
    t.add("dirty").await;
    assert!(t.extend(&grant, secs(60)).await);
    t.lease_new("processing").await;
    t.add_after("processing", secs(5)).await;
    t.add_when("failing", When::RateLimited(Backoff::default())).await;
    t.add_after("delayed", secs(5)).await;
    t.receipts(&adds_now(&keys(&["ready", "both"]))).await;
    t.add_after("both", secs(5)).await;
    let expected = Stats {
        ready: 2,
        delayed: 4,
        processing: 2,
        dirty: 1,
        failing: 1,
        dead: 1,
        oldest_ready: Some(Duration::ZERO),
        paused: false,
    };
    assert_eq!(t.stats().await, expected);
}

pub(super) async fn stats_return_to_zero(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.add("a").await;
    t.finish(&grant, Finish::Retry).await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::GiveUp).await;
    t.store.revive(&Which::All).await.expect("revive succeeds");
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::Succeed).await;
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn oldest_ready_counts_from_when_the_key_became_ready(t: Trial) {
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(5));
    t.stats().await;
    t.clock.advance(secs(3));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(3)));
    t.add("a").await;
    assert_eq!(t.stats().await.oldest_ready, Some(secs(3)));
    let grant = t.lease_one().await;
    assert_eq!(t.stats().await.oldest_ready, None);
    t.clock.advance(secs(9));
    t.finish(&grant, Finish::Release).await;
    t.clock.advance(secs(1));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(1)));
}

pub(super) async fn failing_lists_error_and_delay(t: Trial) {
    let grant = t.lease_new("a").await;
    t.finish_with_error(&grant, Finish::Retry, "first").await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish_with_error(&grant, Finish::Retry, "second").await;
    t.clock.advance(millis(4));
    let expected = Failing {
        key: key("a"),
        failures: 2,
        error: "second".to_owned(),
        retry_in: Some(millis(6)),
    };
    assert_eq!(failing(&t, 9).await, [expected]);
    t.clock.advance(secs(1));
    t.lease_one().await;
    let listed = failing(&t, 9).await;
    assert_eq!((listed[0].failures, listed[0].retry_in), (2, None));
    assert_eq!(listed[0].error, "second");
}

pub(super) async fn failing_omits_healthy_and_dead_keys(t: Trial) {
    for (name, finish) in [
        ("done", Finish::Done),
        ("well", Finish::Succeed),
        ("later", Finish::RequeueAfter(secs(60))),
        ("failed", Finish::RetryAfter(secs(60))),
        ("dead", Finish::GiveUp),
        ("released", Finish::Release),
    ] {
        let grant = t.lease_failed(name).await;
        t.finish(&grant, finish).await;
    }
    let listed = failing(&t, 9).await;
    let listed: Vec<_> = listed.into_iter().map(|failing| failing.key).collect();
    assert_eq!(listed, keys(&["done", "failed", "released"]));
    assert_eq!(t.stats().await.failing, 3);
    t.forget("done").await;
    assert_eq!(t.stats().await.failing, 2);
    assert_eq!(failing(&t, 9).await.len(), 2);
}

pub(super) async fn failing_respects_the_limit(t: Trial) {
    for name in ["a", "b", "c"] {
        t.add_when(name, When::RateLimited(Backoff::default())).await;
    }
    assert_eq!(failing(&t, 0).await.len(), 0);
    assert_eq!(failing(&t, 2).await.len(), 2);
    assert_eq!(failing(&t, 3).await.len(), 3);
}

pub(super) async fn forgotten_failures_lose_their_error(t: Trial) {
    let grant = t.lease_new("a").await;
    t.finish_with_error(&grant, Finish::Retry, "old").await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::Succeed).await;
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(failing(&t, 9).await[0].error, "");
}

pub(super) async fn forget_resets_failures(t: Trial) {
    t.lease_failed("a").await;
    t.store.forget(&keys(&["a", "unknown"])).all().await.expect("forget succeeds");
    assert_eq!(t.state("a").await, "processing, deliveries 1");
    assert_eq!(t.state("unknown").await, "absent");
    let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(receipt.delay, millis(5));
}

pub(super) async fn forget_keeps_ready_and_delayed_keys(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    t.forget("a").await;
    assert_eq!(t.state("a").await, "absent, delayed 5ms");
}

pub(super) async fn remove_cancels_ready_and_delayed_keys(t: Trial) {
    t.add("ready").await;
    t.add_after("ready", secs(5)).await;
    t.add_after("delayed", secs(5)).await;
    for name in ["ready", "delayed"] {
        assert!(t.remove(name).await, "{name}");
        assert_eq!(t.look(name).await, Look::default(), "{name}");
        assert!(!t.remove(name).await, "{name}");
    }
    t.clock.advance(secs(5));
    assert!(t.lease(9).await.is_empty());
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn remove_keeps_the_lease(t: Trial) {
    let grant = t.lease_new("a").await;
    assert!(!t.remove("a").await, "the key was not pending");
    t.add("a").await;
    t.add_after("a", secs(5)).await;
    assert!(t.remove("a").await);
    assert_eq!(t.state("a").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert_eq!(t.state("a").await, "absent");
}

pub(super) async fn removed_key_can_become_dirty_again(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add("a").await;
    t.remove("a").await;
    assert_eq!(t.add("a").await, requeue::Added::Dirty);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    assert_eq!(t.lease(9).await.len(), 1);
}

pub(super) async fn remove_keeps_failures(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert!(t.remove("a").await);
    assert_eq!(t.state("a").await, "absent, failures 1");
    assert_eq!(t.stats().await.failing, 1);
    let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(receipt.delay, millis(10));
}

pub(super) async fn look_answers_in_the_order_of_the_keys(t: Trial) {
    t.add("b").await;
    let asked = keys(&["a", "b", "c", "b"]);
    let looks = t.store.look(&asked).all().await.expect("look succeeds");
    let shown: Vec<_> = looks.iter().map(summary).collect();
    assert_eq!(shown, ["absent", "ready", "absent", "ready"]);
}

pub(super) async fn workers_lists_leases_and_last_calls(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b"]))).await;
    let grants = t.lease(2).await;
    t.clock.advance(secs(5));
    let other = Owner::new("other");
    t.store.extend(&other, &[], LEASE).all().await.expect("extend succeeds");
    t.clock.advance(secs(1));
    let seen = |owner: &Owner, seen, processing| Worker {
        owner: owner.clone(),
        seen: secs(seen),
        processing,
    };
    assert_eq!(workers(&t).await, [seen(&other, 1, 0), seen(&worker(), 6, 2)]);
    assert!(t.extend(&grants[0], LEASE).await);
    t.finish(&grants[1], Finish::Done).await;
    assert_eq!(workers(&t).await, [seen(&other, 1, 0), seen(&worker(), 0, 1)]);
}

pub(super) async fn workers_omits_owners_idle_for_a_day(t: Trial) {
    t.add("a").await;
    let holder = Owner::new("holder");
    let (owner, lease) = (holder.clone(), secs(1_000_000));
    t.lease_all(&LeaseRequest { owner, lease, ..request(1) }).await;
    t.store.extend(&worker(), &[], LEASE).all().await.expect("extend succeeds");
    t.clock.advance(secs(24 * 3600 - 1));
    assert_eq!(workers(&t).await.len(), 2);
    t.clock.advance(secs(2));
    let left: Vec<_> = workers(&t).await.into_iter().map(|worker| worker.owner).collect();
    assert_eq!(left, [holder], "it holds a lease");
}
