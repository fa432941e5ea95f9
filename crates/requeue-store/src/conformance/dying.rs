//! Dead keys: how a key becomes one, what is told of it, and how it comes back (rules 8
//! and 9).

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};

use super::tools::{ERROR, LEASE, REVIVE, Trial, add, all_now, finish_request, key, keys, many, request, secs, sorted, worker};
use crate::{Add, Backoff, Dead, Expired, LeaseRequest, Look, Owner, Stats, When, Which};

async fn dead(t: &Trial, limit: usize) -> Vec<Dead> {
    let mut dead = t.store.dead(limit).await.expect("dead keys are listed");
    dead.sort_by(|a, b| a.key.cmp(&b.key));
    dead
}

async fn revive(t: &Trial, which: Which) -> u64 {
    t.store.revive(&which).await.expect("dead keys are revived")
}

async fn drop_dead(t: &Trial, which: Which) -> u64 {
    t.store.drop_dead(&which).await.expect("dead keys are dropped")
}

pub(super) async fn a_key_dies_when_it_was_granted_too_often(t: Trial) {
    t.add("a").await;
    for delivery in 1..3 {
        assert_eq!(t.lease_one().await.deliveries, delivery);
        t.clock.advance(LEASE);
        let returned = Expired { due: 0, returned: 1, dead: 0 };
        assert_eq!(t.expire(Some(3)).await, returned);
    }
    t.lease_one().await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(3)).await, Expired { due: 0, returned: 0, dead: 1 });
    assert_eq!(t.shows("a").await, "dead");
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn a_key_may_die_at_the_first_lease_that_runs_out(t: Trial) {
    t.take("a").await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(1)).await.dead, 1);
}

pub(super) async fn a_key_that_was_granted_more_often_than_that_dies_too(t: Trial) {
    t.add("a").await;
    for _ in 0..4 {
        t.lease_one().await;
        t.clock.advance(LEASE);
    }
    assert_eq!(t.expire(Some(2)).await.dead, 1);
    assert_eq!(dead(&t, 9).await[0].deliveries, 4);
}

pub(super) async fn without_a_limit_a_key_never_dies_of_lost_leases(t: Trial) {
    t.add("a").await;
    for delivery in 1..50 {
        assert_eq!(t.lease_one().await.deliveries, delivery);
        t.clock.advance(LEASE);
    }
}

pub(super) async fn a_lease_call_lets_keys_die_too(t: Trial) {
    t.take("a").await;
    t.clock.advance(LEASE);
    let limited = LeaseRequest { max_deliveries: NonZeroU32::new(1), ..request(1) };
    assert!(t.lease_as(&limited).await.is_empty());
    assert_eq!(t.shows("a").await, "dead");
}

pub(super) async fn ends_of_leases_start_the_count_again(t: Trial) {
    t.add("a").await;
    for _ in 0..5 {
        t.lease_one().await;
        t.clock.advance(LEASE);
        assert_eq!(t.expire(Some(2)).await.returned, 1);
        let second = t.lease_one().await;
        t.finish(&second, Finish::RequeueAfter(Duration::ZERO)).await;
    }
    assert_eq!(t.shows("a").await, "ready");
}

pub(super) async fn a_dirty_key_dies_too_and_so_does_its_delay(t: Trial) {
    t.take("a").await;
    t.add("a").await;
    t.add_after("a", secs(90)).await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(1)).await.dead, 1);
    assert_eq!(t.look("a").await.delayed, None);
    t.clock.advance(secs(90));
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.stats().await, Stats { dead: 1, ..Stats::default() });
}

pub(super) async fn a_buried_key_is_listed_with_all_that_is_known(t: Trial) {
    let grant = t.take("a").await;
    t.finish(&grant, Finish::Retry).await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::GiveUp).await;
    t.clock.advance(secs(7));
    let listed = dead(&t, 9).await;
    assert_eq!(listed.len(), 1);
    let Dead { key: name, reason, since, failures, owner, .. } = &listed[0];
    assert_eq!((name, reason.as_str()), (&key("a"), ERROR));
    assert_eq!((*since, *failures, owner), (secs(7), 1, &worker()));
}

pub(super) async fn a_key_that_was_granted_too_often_is_listed_with_its_last_owner(t: Trial) {
    t.take_failed("a").await;
    t.clock.advance(LEASE);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    assert_eq!(t.lease_as(&other).await.len(), 1);
    t.clock.advance(LEASE);
    t.expire(Some(2)).await;
    t.clock.advance(secs(3));
    let listed = dead(&t, 9).await;
    let Dead { reason, since, failures, deliveries, owner, .. } = &listed[0];
    assert!(!reason.is_empty(), "people are told why");
    assert_eq!((*since, *failures, *deliveries), (secs(3), 1, 2));
    assert_eq!(owner, &Owner::new("other"));
}

pub(super) async fn no_more_dead_keys_are_listed_than_were_asked_for(t: Trial) {
    for name in ["a", "b", "c"] {
        t.dead(name).await;
    }
    assert_eq!(dead(&t, 0).await.len(), 0);
    assert_eq!(dead(&t, 2).await.len(), 2);
    let listed: Vec<_> = dead(&t, 3).await.into_iter().map(|dead| dead.key).collect();
    assert_eq!(listed, keys(&["a", "b", "c"]));
    assert_eq!(t.stats().await.dead, 3);
}

pub(super) async fn a_dead_key_that_is_added_waits_and_starts_afresh(t: Trial) {
    let grant = t.take_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    let receipt = t.add_when("a", When::Now).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE));
    assert_eq!(t.shows("a").await, "absent, delayed 1000s");
    assert!(dead(&t, 9).await.is_empty());
    t.clock.advance(REVIVE);
    let again = t.lease_one().await;
    assert_eq!((again.deliveries, again.failures), (1, 0));
}

pub(super) async fn a_dead_key_that_is_added_with_a_longer_delay_has_that(t: Trial) {
    t.dead("a").await;
    let receipt = t.add_when("a", When::After(REVIVE + secs(5))).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE + secs(5)));
    t.dead("b").await;
    let receipt = t.add_when("b", When::After(secs(5))).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE));
    assert_eq!(t.shows("b").await, "absent, delayed 1000s");
}

pub(super) async fn a_dead_key_can_be_revived_by_an_add_at_once(t: Trial) {
    t.dead("a").await;
    let adds = [Add { revive_after: Duration::ZERO, ..add(&key("a"), When::Now) }];
    assert_eq!(t.adds(&adds).await, [Added::Ready]);
    assert_eq!(t.shows("a").await, "ready");
}

pub(super) async fn a_rate_limited_add_of_a_dead_key_counts_from_nothing(t: Trial) {
    let grant = t.take_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    let when = When::RateLimited(Backoff::default());
    let adds = [Add { revive_after: Duration::ZERO, ..add(&key("a"), when) }];
    let receipt = t.receipts(&adds).await[0];
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, Duration::from_millis(5)));
    assert_eq!(t.shows("a").await, "absent, delayed 5ms, failures 1");
}

pub(super) async fn revived_keys_are_ready_and_start_afresh(t: Trial) {
    let grant = t.take_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    assert_eq!(revive(&t, Which::All).await, 1);
    assert_eq!(t.shows("a").await, "ready");
    let grant = t.lease_one().await;
    assert_eq!((grant.deliveries, grant.failures), (1, 0));
    assert_eq!(revive(&t, Which::All).await, 0);
    assert!(dead(&t, 9).await.is_empty());
}

pub(super) async fn only_those_are_revived_that_are_meant_and_dead(t: Trial) {
    for name in ["a", "b", "c"] {
        t.dead(name).await;
    }
    t.take("busy").await;
    let meant = Which::Keys(keys(&["a", "unknown", "busy", "b", "a"]));
    assert_eq!(revive(&t, meant).await, 2);
    assert_eq!(t.shows("busy").await, "processing, deliveries 1");
    assert_eq!(t.shows("unknown").await, "absent");
    assert_eq!(t.shows("c").await, "dead");
    assert_eq!(sorted(&t.lease(9).await), keys(&["a", "b"]));
}

pub(super) async fn dropped_keys_are_gone_for_good(t: Trial) {
    for name in ["a", "b", "c"] {
        t.dead(name).await;
    }
    t.add("d").await;
    assert_eq!(drop_dead(&t, Which::Keys(keys(&["a", "d", "unknown"]))).await, 1);
    assert_eq!(t.look("a").await, Look::default());
    assert_eq!(t.shows("d").await, "ready");
    assert_eq!(drop_dead(&t, Which::All).await, 2);
    assert_eq!(t.stats().await.dead, 0);
    assert_eq!(t.add("a").await, Added::Ready, "as if it had never been");
}

pub(super) async fn hundreds_of_dead_keys_are_revived_and_dropped_in_one_call(t: Trial) {
    let names = many(700);
    for round in [Which::All, Which::Keys(names.clone())] {
        t.receipts(&all_now(&names)).await;
        let grants = t.lease(700).await;
        let bury = |grant| finish_request(grant, Finish::GiveUp);
        t.finish_all(&grants.iter().map(bury).collect::<Vec<_>>()).await;
        assert_eq!(revive(&t, round.clone()).await, 700);
        let grants = t.lease(700).await;
        assert_eq!(grants.len(), 700);
        t.finish_all(&grants.iter().map(bury).collect::<Vec<_>>()).await;
        assert_eq!(drop_dead(&t, round).await, 700);
    }
}

pub(super) async fn a_dead_key_is_neither_forgotten_nor_removed(t: Trial) {
    let grant = t.take_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    t.forget("a").await;
    assert!(!t.remove("a").await);
    assert_eq!(t.shows("a").await, "dead, failures 1");
    assert_eq!(dead(&t, 9).await[0].failures, 1);
}
