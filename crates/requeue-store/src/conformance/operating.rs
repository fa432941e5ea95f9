//! What people see and do: pausing, counting, forgetting, removing, and who is there.

use std::time::Duration;

use requeue::Finish;

use super::tools::{LEASE, Trial, all_now, key, keys, millis, request, secs, words, worker};
use crate::{Backoff, Failing, Finished, LeaseRequest, Look, Owner, Stats, When, Which, Worker};

async fn failing(t: &Trial, limit: usize) -> Vec<Failing> {
    let mut failing = t.store.failing(limit).await.expect("failing keys are listed");
    failing.sort_by(|a, b| a.key.cmp(&b.key));
    failing
}

async fn workers(t: &Trial) -> Vec<Worker> {
    let mut workers = t.store.workers().await.expect("workers are listed");
    workers.sort_by(|a, b| a.owner.cmp(&b.owner));
    workers
}

async fn pause(t: &Trial) {
    t.store.pause().await.expect("the queue is paused");
}

async fn resume(t: &Trial) {
    t.store.resume().await.expect("the queue is resumed");
}

pub(super) async fn a_store_says_what_it_is(t: Trial) {
    assert!(!t.store.describe().is_empty());
}

pub(super) async fn a_paused_queue_hands_nothing_out_until_it_is_resumed(t: Trial) {
    t.add("a").await;
    pause(&t).await;
    pause(&t).await;
    let leased = t.leased(&request(1)).await;
    assert!(leased.grants.is_empty() && leased.paused);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    assert!(t.leased(&other).await.paused);
    assert!(t.stats().await.paused);
    resume(&t).await;
    assert!(!t.stats().await.paused);
    assert_eq!(t.lease_one().await.key, key("a"));
    assert!(!t.leased(&request(1)).await.paused);
}

pub(super) async fn in_a_paused_queue_everything_else_goes_on(t: Trial) {
    let grant = t.take("a").await;
    t.take("b").await;
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

pub(super) async fn an_empty_queue_counts_nothing(t: Trial) {
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn every_key_is_counted_where_it_stands(t: Trial) {
    t.dead("dead").await;
    t.add("dirty").await;
    let grant = t.lease_one().await;
    t.add("dirty").await;
    assert!(t.extend(&grant, secs(60)).await);
    t.take("processing").await;
    t.add_after("processing", secs(5)).await;
    t.add_when("failing", When::RateLimited(Backoff::default())).await;
    t.add_after("delayed", secs(5)).await;
    t.receipts(&all_now(&keys(&["ready", "both"]))).await;
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

pub(super) async fn counts_go_back_to_nothing(t: Trial) {
    let grant = t.take_failed("a").await;
    t.add("a").await;
    t.finish(&grant, Finish::Retry).await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::GiveUp).await;
    t.store.revive(&Which::All).await.expect("dead keys are revived");
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::Succeed).await;
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn a_ready_key_is_as_old_as_its_readiness(t: Trial) {
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

pub(super) async fn failing_keys_are_listed_with_error_and_time(t: Trial) {
    let grant = t.take("a").await;
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

pub(super) async fn keys_that_are_well_or_dead_are_not_failing(t: Trial) {
    for (name, finish) in [
        ("done", Finish::Done),
        ("well", Finish::Succeed),
        ("later", Finish::RequeueAfter(secs(60))),
        ("failed", Finish::RetryAfter(secs(60))),
        ("dead", Finish::GiveUp),
        ("released", Finish::Release),
    ] {
        let grant = t.take_failed(name).await;
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

pub(super) async fn no_more_failing_keys_are_listed_than_were_asked_for(t: Trial) {
    for name in ["a", "b", "c"] {
        t.add_when(name, When::RateLimited(Backoff::default())).await;
    }
    assert_eq!(failing(&t, 0).await.len(), 0);
    assert_eq!(failing(&t, 2).await.len(), 2);
    assert_eq!(failing(&t, 3).await.len(), 3);
}

pub(super) async fn a_key_that_fails_again_has_only_its_new_error(t: Trial) {
    let grant = t.take("a").await;
    t.finish_with_error(&grant, Finish::Retry, "old").await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::Succeed).await;
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(failing(&t, 9).await[0].error, "");
}

pub(super) async fn forgotten_failures_count_no_more(t: Trial) {
    t.take_failed("a").await;
    t.store.forget(&keys(&["a", "unknown"])).await.expect("failures are forgotten");
    assert_eq!(t.shows("a").await, "processing, deliveries 1");
    assert_eq!(t.shows("unknown").await, "absent");
    let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(receipt.delay, millis(5));
}

pub(super) async fn forgetting_leaves_what_is_planned(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    t.forget("a").await;
    assert_eq!(t.shows("a").await, "absent, delayed 5ms");
}

pub(super) async fn a_removed_key_is_planned_no_more(t: Trial) {
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

pub(super) async fn a_removed_key_that_is_with_a_worker_stays_there(t: Trial) {
    let grant = t.take("a").await;
    assert!(!t.remove("a").await, "nothing was planned");
    t.add("a").await;
    t.add_after("a", secs(5)).await;
    assert!(t.remove("a").await);
    assert_eq!(t.shows("a").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert_eq!(t.shows("a").await, "absent");
}

pub(super) async fn a_removed_key_that_is_added_again_is_dirty_again(t: Trial) {
    let grant = t.take("a").await;
    t.add("a").await;
    t.remove("a").await;
    assert_eq!(t.add("a").await, requeue::Added::Dirty);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    assert_eq!(t.lease(9).await.len(), 1);
}

pub(super) async fn a_removed_key_keeps_its_failures(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert!(t.remove("a").await);
    assert_eq!(t.shows("a").await, "absent, failures 1");
    assert_eq!(t.stats().await.failing, 1);
    let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
    assert_eq!(receipt.delay, millis(10));
}

pub(super) async fn looks_come_in_the_order_of_the_keys(t: Trial) {
    t.add("b").await;
    let asked = keys(&["a", "b", "c", "b"]);
    let looks = t.store.look(&asked).await.expect("keys are looked up");
    let shown: Vec<_> = looks.iter().map(words).collect();
    assert_eq!(shown, ["absent", "ready", "absent", "ready"]);
}

pub(super) async fn workers_are_known_by_what_they_hold_and_when_they_spoke(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b"]))).await;
    let grants = t.lease(2).await;
    t.clock.advance(secs(5));
    let other = Owner::new("other");
    t.store.extend(&other, &[], LEASE).await.expect("leases are extended");
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

pub(super) async fn workers_that_were_not_heard_of_for_a_day_are_not_listed(t: Trial) {
    t.add("a").await;
    let holder = Owner::new("holder");
    let (owner, lease) = (holder.clone(), secs(1_000_000));
    t.lease_as(&LeaseRequest { owner, lease, ..request(1) }).await;
    t.store.extend(&worker(), &[], LEASE).await.expect("leases are extended");
    t.clock.advance(secs(24 * 3600 - 1));
    assert_eq!(workers(&t).await.len(), 2);
    t.clock.advance(secs(2));
    let left: Vec<_> = workers(&t).await.into_iter().map(|worker| worker.owner).collect();
    assert_eq!(left, [holder], "it holds a lease");
}
